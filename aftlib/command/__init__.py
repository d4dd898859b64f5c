"""Command line, notebooks in batch and their pages; imports all packages, and none imports it.

`documents` lists the documents with their claims and parameters. `batch` runs notebooks by
papermill and collects their verdicts, and `origin` says which code, inputs and machine they come
from. `pages` writes a report for each by nbconvert, `front` the index and the scorecard. `light`
stores a full run's reports with pictures instead of scripts. `data` gives a report's figures and
tables as frames. `cli` is the command `aft`. The link ``06_your_sensors.ipynb`` brings the notebook
of `aft plan` into wheels.
"""

"""From a notebook to its report and to the scorecard of all claims.

`cli` defines the command line. `notebook` finds a notebook and hashes all that its results depend
on; `parameter_cell` and `parameter_model` check its parameters. `reproduce` decides which notebooks
must run, and `execute` runs one in a kernel, where `data_out` captures its frames. `runs` stores
executed notebooks, `sweeps` makes many runs, `compare` compares them. `html` renders an executed
notebook as a report, from templates that `pages` fills. `figure_data` extracts the data of figures,
and `export` writes figures and tables as files. `index` writes the front pages. `watch` shows the
metrics of guarded streams.

Notebooks and packages use `claims` (the scorecard), `documents`, and `style` (the look of figures
and their sliders). `doctor` reports missing requirements.
"""

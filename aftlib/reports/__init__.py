"""From a notebook to its report and to the scorecard of all claims.

`entry` begins, `cli` takes the command. `notebook` finds the notebook, `parameter_cell` checks its
parameters, `run_key` hashes what its results depend on, `reproduce` decides what must run, and
`execute` runs it in a kernel, where `data_out` captures its frames. `runs` is the store of executed
notebooks; `sweeps` makes many runs, `compare` puts them side by side, `run_commands`
list and open them.
From executed notebooks come the reports (`html`, with the `evidence` of claims and the data of
figures and tables, which `export` writes as files), the front pages (`index`) and ``claims.json``.

What notebooks and rooms use: `claims` (a scorecard of `core.claims`) and `style` (the look of
figures, their sliders, and those of single results). `doctor` says what the machine lacks;
`browser` draws pictures, where there is one.
"""

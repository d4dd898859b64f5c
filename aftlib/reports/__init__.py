"""From a notebook to its report and to the scorecard of all claims.

`entry` starts the command line, `cli` defines it. `notebook` finds a notebook, `parameter_cell` and
`parameter_model` check its parameters, `run_key` hashes everything that its results depend on,
`reproduce` decides which notebooks must run, and `execute` runs one in a kernel, where `data_out`
captures its frames. `runs` stores executed notebooks; `sweeps` makes many runs, `compare` compares
them, `run_commands` lists and opens them.
`html` renders an executed notebook as a report, with the `evidence` of its claims and the data that
`export` writes as files. `index` writes the front page and ``claims.json``.

Notebooks and packages use `claims` (the scorecard) and `style` (the look of figures and their
sliders). `doctor` reports missing requirements; `browser` draws pictures, where there is one.
"""

"""From a notebook to its report and to the scorecard of all claims.

`entry` begins, `cli` takes the command. `notebook` finds the notebook, `parameter_cell` checks what
it was given, `run_key` hashes what its results depend on, `reproduce` decides what must run,
`execute` runs it in a kernel, and the `executed` notebook is the record of that. `runs` keeps each
run with the tables that it `kept`, `sweeps` makes many of them, `compare` puts them side by side,
and `run_commands` are the commands about them.
From records come the report (`html`, with `markdown`, the `evidence` of claims and `data_out`, of
which `export` makes files), the front pages (`index`) and ``claims.json``.

What notebooks and rooms use: `claims` (to settle one of `documents`) and `style` (the look of
figures, their sliders, and those of single results). `doctor` says what the machine lacks;
`browser` draws pictures, where there is one.
"""

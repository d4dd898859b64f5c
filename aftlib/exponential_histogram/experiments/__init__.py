"""D5's experiments: `parameters`, `errors` (figs 3, 6), `costs` (fig. 5, memory, merging)."""

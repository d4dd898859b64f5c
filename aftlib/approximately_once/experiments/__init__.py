"""D1's experiments: `cases` (parameters, data), `grid` (figs 10–13), `streams` (real crashes)."""

"""Speed as ratios within one run: `python -m benchmarks [NAME …]` prints and keeps JSON."""

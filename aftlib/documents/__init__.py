"""The five documents, a package each: algorithms, then `experiments`, `figures`, `claims`."""

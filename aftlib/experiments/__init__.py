"""The documents' experiments: parameters in, tidy DataFrames out."""

"""D3's strategies on Spark: upfront partitioning, late local and late global merge."""

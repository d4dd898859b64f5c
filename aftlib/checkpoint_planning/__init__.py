"""D2: checkpoints and partial replay that keep ε, δ and a recovery time."""

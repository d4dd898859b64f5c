"""What several rooms stand on: model, requirement, windows, logs, paths."""

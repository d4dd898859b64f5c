"""Where running state survives a crash: one contract, one module a store."""

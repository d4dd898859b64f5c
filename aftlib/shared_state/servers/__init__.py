"""Late global merge by servers, tasks and output tasks that die and come back (D3)."""

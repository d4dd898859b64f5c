"""Late global merge with servers, tasks and output tasks that die and come back (D3 sections 3-5)."""

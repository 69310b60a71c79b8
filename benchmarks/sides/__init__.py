"""Programs that are compared; each runs in a process of its own and answers requests of its parent."""

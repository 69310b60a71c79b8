"""The graph and the engine in Python."""

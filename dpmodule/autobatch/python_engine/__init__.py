"""The Python implementation of the graph and the engine."""

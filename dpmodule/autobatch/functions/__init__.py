"""The functions that make expressions: thin faces of the table of operations."""

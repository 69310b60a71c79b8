"""Compared programs; each runs in its own process and answers requests of its parent."""

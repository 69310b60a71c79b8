"""Executors of one graph on several contexts, fed with parts of a batch."""

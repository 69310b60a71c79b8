"""Devices and their memory: random generators, shared memory, copies to a GPU, precision."""

"""Layers of neural networks."""

"""Tensor pipes: `tensor_pipe` and the parts of its two ends."""

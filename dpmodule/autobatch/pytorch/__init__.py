"""Automatic batching of plain PyTorch programs: `batching` and `map`."""

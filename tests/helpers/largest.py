"""How large the tensors are that some code makes."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode


def _memories(values):
    """Return the storages of the dense tensors among an operator's arguments or results."""
    for one in values:
        if isinstance(one, torch.Tensor) and one.layout == torch.strided:
            yield one.untyped_storage(), one.itemsize
        elif isinstance(one, (tuple, list)):
            yield from _memories(one)


class Largest(TorchDispatchMode):
    """Notes in `count` the most elements of a dense tensor that is made inside; views, and what exists, aside."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        known = {storage.data_ptr() for storage, _ in _memories((*args, *(kwargs or {}).values()))}
        out = func(*args, **(kwargs or {}))
        for storage, size in _memories([out]):
            if storage.data_ptr() not in known:
                self.count = max(self.count, storage.nbytes() // size)
        return out

"""Take any object apart into its tensors, which travel through a tensor pipe, and a pickle of the rest."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
import torch

_NUMBERS = frozenset("?bhilqBefdFD")
"""Type letters of the NumPy arrays that torch can share."""


class _Splitter(pickle.Pickler):
    """Pickles an object without the arrays and tensors in it, which it collects."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.tensors: list[torch.Tensor] = []
        self._places: dict[int, int] = {}
        self._held: list[Any] = []

    def persistent_id(self, obj: object) -> Any:
        if isinstance(obj, torch.Tensor):
            if obj.layout != torch.strided or obj.is_quantized or obj.device.type != "cpu":
                return None
            return "tensor", self._place(obj, obj.detach())
        if type(obj) is np.ndarray and obj.dtype.char in _NUMBERS and obj.dtype.isnative:
            return "array", self._place(obj, torch.from_numpy(obj if _sharable(obj) else obj.copy()))
        return None

    def _place(self, obj: Any, tensor: torch.Tensor) -> int:
        place = self._places.get(id(obj))
        if place is None:
            place = self._places[id(obj)] = len(self.tensors)
            self.tensors.append(tensor)
            self._held.append(obj)  # or another array, made for its owner's pickle only, might get its id
        return place


class _Joiner(pickle.Unpickler):
    """Reads such a pickle."""

    def __init__(self, data: bytes, tensors: list[torch.Tensor]) -> None:
        super().__init__(io.BytesIO(data))
        self._tensors = tensors

    def persistent_load(self, pid: Any) -> Any:
        kind, place = pid
        tensor = self._tensors[place]
        return tensor if kind == "tensor" else tensor.numpy()


def _sharable(array: np.ndarray[Any, Any]) -> bool:
    """Say whether torch takes the array as it lies: it may be written, and no axis goes backwards."""
    steps_fit = all(stride >= 0 and not stride % array.itemsize for stride in array.strides)
    return array.flags.writeable and steps_fit


def split(value: Any) -> tuple[bytes, list[torch.Tensor]]:
    """Return a pickle of a value without its tensors and arrays, and these."""
    file = io.BytesIO()
    splitter = _Splitter(file)
    splitter.dump(value)
    return file.getvalue(), splitter.tensors


def join(data: bytes, tensors: list[torch.Tensor]) -> Any:
    """Return the value that `split` took apart; its arrays lie in the memory of the tensors.

    Args:
        tensors: those that `split` gave, or what came out of the pipe in their place.
    """
    return _Joiner(data, tensors).load()

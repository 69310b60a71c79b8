"""Parameters of a graph on their way to ONNX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import torch

from ...base import ArgumentError
from ...ndarray import NDArray
from ...ops.dtypes import name_of
from .call import Dims
from .types import fill

__all__ = ["KnownVariables"]


class KnownVariables:
    """Variables whose values are known, by name.

    Args:
        arrays: their values.
    """

    def __init__(self, arrays: Mapping[str, NDArray]) -> None:
        self._tensors = {name: array.raw.detach().cpu().contiguous() for name, array in arrays.items()}

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def check(self, name: str, dims: Dims) -> None:
        """Refuse a parameter whose shape is not that of the graph.

        Raises:
            ArgumentError: names both shapes.
        """
        found = tuple(self._tensors[name].shape)
        if found != dims:
            raise ArgumentError(f"params has {name!r} of shape {found}, the symbol wants {dims}")

    def elements(self, name: str) -> np.ndarray[Any, Any] | None:
        """Return the elements of a parameter; None for what is none. Those of bfloat16 come as float32."""
        found = self._tensors.get(name)
        if found is None:
            return None
        return (found.float() if found.dtype == torch.bfloat16 else found).numpy()

    def dtype(self, name: str) -> str:
        """Return the name of a parameter's type."""
        return name_of(self._tensors[name].dtype)

    def store(self, name: str, place: onnx.TensorProto) -> None:
        """Put a parameter into an empty tensor of ONNX."""
        found = self._tensors[name]
        bits = found.view(torch.uint16) if found.dtype == torch.bfloat16 else found
        fill(place, name, bits.numpy(), name_of(found.dtype))

"""`TorchValue`: start from what a torch module holds."""

from __future__ import annotations

from ..ndarray import NDArray
from ..ops.torch_call import torch_value
from .base import Initializer, register


@register
class TorchValue(Initializer):
    """Copy a parameter or buffer of a torch module; put on the variables of `sym.torch_module` by itself.

    Args:
        number: number of the module within this process.
        path: torch's name of the parameter, such as "layers.0.weight".
    """

    def __init__(self, number: int, path: str) -> None:
        super().__init__(number=number, path=path)
        self._number, self._path = number, path

    def _init_weight(self, name: str, arr: NDArray) -> None:
        arr.raw.copy_(torch_value(self._number, self._path))

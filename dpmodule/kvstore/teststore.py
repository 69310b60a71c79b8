"""`TestStore`: the smallest store that works, to try out what surrounds stores, and an example of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..ndarray import NDArray
from .base import KVStoreBase

if TYPE_CHECKING:
    from .keys import ArraysLike, KeysLike


def _listed(arrays: ArraysLike) -> list[NDArray]:
    found: list[Any] = list(arrays) if isinstance(arrays, (list, tuple)) else [arrays]
    return found


@KVStoreBase.register
class TestStore(KVStoreBase):
    """Sums over devices and keeps nothing; made by ``mx.kv.create("teststore")``.

    Source: MXNet 1.9.1 `TestStore`.
    """

    __test__ = False  # not a test class, whatever pytest makes of the name

    def broadcast(self, key: KeysLike, value: ArraysLike, out: ArraysLike, priority: int = 0) -> None:
        for array in _listed(out):
            array[:] = value

    def pushpull(
        self, key: KeysLike, value: ArraysLike, out: ArraysLike | None = None, priority: int = 0
    ) -> None:
        first, *rest = _listed(value)
        summed = first.copy()
        for array in rest:
            summed += array.as_in_context(first.context)
        for array in _listed(value if out is None else out):
            array[:] = summed

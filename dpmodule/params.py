"""`ParamStore`: parameters, their gradients and auxiliary states, by name and device.

Whatever shares parameters holds the same store: executor groups, buckets, modules bound with `shared_module`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from .base import ArgumentError, DTypeError, ShapeError, StateError, dtype_name
from .context import Context, cpu
from .executor.sparse_arrays import allocate_as, is_sparse
from .ndarray import NDArray
from .ops.exposure import expose
from .segment import Segment

__all__ = ["ParamStore"]

_Slot = tuple[str, int, str]
"""What tells the arrays of a store apart: table, position of the context, name."""

_KINDS = {"arrays": "parameter", "grads": "the gradient of", "aux": "state"}


class ParamStore:
    """Owner of parameters, gradients and auxiliary states on some contexts.

    Args:
        contexts: one copy of everything is kept on each.

    A store can be pickled. After `share_memory()`, one that is sent through `torch.multiprocessing`, as an argument of
    a process for example, comes out as a store over the same memory; else the copy has values of its own.
    """

    def __init__(self, contexts: Sequence[Context]) -> None:
        self.contexts = list(contexts)
        self._arrays: list[dict[str, NDArray]] = [{} for _ in contexts]
        self._grads: list[dict[str, NDArray]] = [{} for _ in contexts]
        self._aux: list[dict[str, NDArray]] = [{} for _ in contexts]
        self._segments: list[tuple[Segment, list[_Slot]]] = []

    def _declare(
        self,
        table: list[dict[str, NDArray]],
        name: str,
        shape: tuple[int, ...],
        dtype: str,
        contexts: Sequence[Context] | None,
        stype: str = "default",
    ) -> None:
        for ctx, arrays in zip(contexts or self.contexts, table):
            known = arrays.get(name)
            if known is None:
                arrays[name] = allocate_as(stype, shape, ctx, dtype)
                if stype == "default":
                    self._share_latecomer(arrays[name])
            elif known.shape != shape:
                raise ShapeError(f"shared parameter {name} has shape {known.shape}, this graph needs {shape}")
            elif dtype_name(known.dtype) != dtype:
                raise DTypeError(
                    f"shared parameter {name} is {dtype_name(known.dtype)}, this graph needs {dtype}"
                )

    def declare(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: str,
        needs_grad: bool,
        contexts: Sequence[Context] | None = None,
        grad_stype: str = "default",
    ) -> None:
        """Allocate a parameter, and its gradient if needed, on every context; an existing one must fit.

        Args:
            name: its name.
            shape: its shape.
            dtype: dtype name.
            needs_grad: whether it has a gradient.
            contexts: where the copies lie instead, one for each of the store's contexts (model parallelism).
            grad_stype: storage type of the gradient.

        Raises:
            ShapeError: it exists with another shape.
            DTypeError: it exists with another dtype.
        """
        self._declare(self._arrays, name, shape, dtype, contexts)
        if needs_grad:
            self._declare(self._grads, name, shape, dtype, contexts, grad_stype)

    def declare_aux(
        self, name: str, shape: tuple[int, ...], dtype: str, contexts: Sequence[Context] | None = None
    ) -> None:
        """Allocate an auxiliary state on every context; see `declare`."""
        self._declare(self._aux, name, shape, dtype, contexts)

    def place(self, name: str, memory: torch.Tensor, keep: bool) -> None:
        """Move a parameter or state of the first context into given memory, whose owner then sees every update.

        Args:
            name: of a parameter or state that has been declared.
            memory: contiguous tensor of its shape, type and device.
            keep: whether to keep the store's value; else that of the memory counts, on every context.

        Raises:
            ShapeError: the memory has another shape.
            DTypeError: it has another type.
            ArgumentError: it lies on another device, or is not contiguous.
            StateError: the store is in shared memory and stays there.
        """
        if self.is_shared:
            raise StateError(f"{name} is in shared memory; give it another place before share_memory()")
        table = self._arrays if name in self._arrays[0] else self._aux
        array = table[0][name]
        if tuple(memory.shape) != array.shape:
            raise ShapeError(f"{name} has shape {array.shape}, the memory for it {tuple(memory.shape)}")
        if memory.dtype != array.raw.dtype:
            raise DTypeError(f"{name} is {dtype_name(array.dtype)}, the memory for it {memory.dtype}")
        if memory.device != array.raw.device or not memory.is_contiguous():
            raise ArgumentError(
                f"{name}: expected contiguous memory on {array.raw.device}, it lies on {memory.device}"
            )
        if keep:
            memory.copy_(array.raw)
        array.raw, array.pinned = memory, True
        expose(memory)
        if not keep:
            for other in table[1:]:
                other[name].raw.copy_(memory)

    def array(self, name: str, i: int) -> NDArray:
        """Return a parameter on context `i`."""
        return self._arrays[i][name]

    def grad(self, name: str, i: int) -> NDArray | None:
        """Return a parameter's gradient on context `i`, None if none is kept."""
        return self._grads[i].get(name)

    def aux(self, name: str, i: int) -> NDArray:
        """Return an auxiliary state on context `i`."""
        return self._aux[i][name]

    def names(self) -> list[str]:
        """Return the names of the parameters."""
        return list(self._arrays[0])

    def aux_names(self) -> list[str]:
        """Return the names of the auxiliary states."""
        return list(self._aux[0])

    def load(
        self, arg_params: Mapping[str, NDArray], aux_params: Mapping[str, NDArray], allow_extra: bool = False
    ) -> None:
        """Copy values to every context.

        Args:
            arg_params: parameters by name.
            aux_params: auxiliary states by name.
            allow_extra: pass over unknown names.

        Raises:
            ArgumentError: a name is unknown.
            ShapeError: a shape does not fit.
        """
        for kind, given, table in (("parameter", arg_params, self._arrays), ("state", aux_params, self._aux)):
            for name, value in given.items():
                if name not in table[0]:
                    if allow_extra:
                        continue
                    raise ArgumentError(
                        f"{name!r} is no {kind} of this graph; it has {', '.join(table[0]) or 'none'} "
                        "(allow_extra=True passes over unknown names)"
                    )
                for arrays in table:
                    target = arrays[name]
                    if target.shape != value.shape:
                        raise ShapeError(f"{name} has shape {value.shape}, expected {target.shape}")
                    if target.raw is not value.raw:
                        target.raw.copy_(value.raw)

    def average(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Return parameters and states as new CPU arrays, averaged over the contexts."""
        return self._average(self._arrays), self._average(self._aux)

    def _average(self, table: list[dict[str, NDArray]]) -> dict[str, NDArray]:
        home = cpu()
        found = {}
        for name, first in table[0].items():
            total = first.raw.to(home.torch_device, copy=True)
            if len(table) > 1 and total.is_floating_point():
                for arrays in table[1:]:
                    total += arrays[name].raw.to(home.torch_device)
                total /= len(table)
            found[name] = NDArray(total, home)
        return found

    # shared memory

    @property
    def is_shared(self) -> bool:
        """Whether `share_memory` has been called, here or where the store came from."""
        return bool(self._segments)

    def share_memory(self) -> None:
        """Move parameters, gradients and auxiliary states into memory that other processes can map.

        From then on they stay where they are; what one process writes, all others see, without any locking. What
        is declared later goes there too. Send the store to a process through `torch.multiprocessing`.

        Raises:
            StateError: an array has been handed out, so that its owner would keep the old memory.

        Example:
            >>> store = ParamStore([mx.cpu()])
            >>> store.declare("weight", (2, 2), "float32", needs_grad=True)
            >>> store.share_memory()
            >>> process = torch.multiprocessing.get_context("spawn").Process(target=print, args=(store,))
        """
        if self.is_shared:
            return
        slots = list(self._slots())
        for slot in slots:
            array = self._at(slot)
            if array.pinned:
                kind, _, name = slot
                raise StateError(
                    f"share_memory: {_KINDS[kind]} {name!r} on {array.context} has been handed out, as a view or to "
                    "torch, NumPy, DLPack or a torch module, and cannot move any more; call share_memory() first"
                )
        by_device: dict[torch.device, list[_Slot]] = {}
        for slot in slots:
            by_device.setdefault(self._at(slot).raw.device, []).append(slot)
        for members in by_device.values():
            self._move(members)

    def _slots(self) -> Iterator[_Slot]:
        for kind, table in self._tables().items():
            for i, arrays in enumerate(table):
                for name, array in arrays.items():
                    if not is_sparse(array):
                        yield kind, i, name

    def _tables(self) -> dict[str, list[dict[str, NDArray]]]:
        return {"arrays": self._arrays, "grads": self._grads, "aux": self._aux}

    def _at(self, slot: _Slot) -> NDArray:
        kind, i, name = slot
        return self._tables()[kind][i][name]

    def _move(self, slots: list[_Slot]) -> None:
        """Put arrays of one device into a segment of their own."""
        segment = Segment([self._at(slot).raw for slot in slots])
        for slot, tensor in zip(slots, segment.tensors(), strict=True):
            array = self._at(slot)
            array.raw, array.pinned = tensor, True
        self._segments.append((segment, slots))

    def _share_latecomer(self, array: NDArray) -> None:
        """Move an array that was declared after `share_memory`."""
        if self.is_shared:
            self._move([slot for slot in self._slots() if self._at(slot) is array])

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes; of what lies in shared memory the segments instead of the arrays."""
        state = dict(self.__dict__)
        if self.is_shared:
            contexts = {slot: self._at(slot).context for slot in self._slots()}
            sparse = [{k: v for k, v in grads.items() if is_sparse(v)} for grads in self._grads]
            state |= {"_slot_contexts": contexts, "_arrays": None, "_grads": sparse, "_aux": None}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        contexts = state.pop("_slot_contexts", None)
        self.__dict__.update(state)
        if contexts is None:
            return
        for name in ("_arrays", "_aux"):
            setattr(self, name, [{} for _ in self.contexts])
        tensors = {
            s: t for segment, slots in self._segments for s, t in zip(slots, segment.tensors(), strict=True)
        }
        for slot, ctx in contexts.items():
            kind, i, name = slot
            self._tables()[kind][i][name] = NDArray(tensors[slot], ctx, True)
        self._segments = [(segment, slots) for segment, slots in self._segments if segment.is_shared]

"""`ParamStore`: parameters, their gradients and auxiliary states, by name and device.

Whatever shares parameters holds the same store: executor groups, buckets, modules bound with `shared_module`, and
modules of several processes, which bind with `store`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch

from ._core import lazy
from ._devices.shared_memory import Segment
from ._devices.single_thread import single_thread
from .base import ArgumentError, DTypeError, ShapeError, StateError, dtype_name
from .context import Context, cpu
from .executor.sparse_arrays import allocate_as
from .ndarray import NDArray
from .ops.write_tracking import expose
from .optimizer import Optimizer, Updater

if TYPE_CHECKING:
    from .optimizer.updater import SharedStates, StateKey

__all__ = ["ParamStore"]

lazy.publish(__name__, __all__)

_Slot = tuple[str, int, str]
"""What tells the arrays of a store apart: table, position of the context, name."""

_KINDS = {"arrays": "parameter", "aux": "state"}


class ParamStore:
    """Owner of parameters, gradients and auxiliary states on some contexts.

    Args:
        contexts: devices; one copy of everything is kept on each.
    A store can be pickled. After `share_memory()`, one that is sent through `torch.multiprocessing`, as an argument of
    a process for example, or inherited by a fork, is a store over the same memory there, to which modules `bind`; else
    the copy has values of its own. Gradients are each process's own and never sent: those of a shared store's copy
    begin as zeros.

    Attributes:
        contexts: the contexts.
        optimizer_states: states and update counts of the optimizer, once the store is shared and has one; else None.
    """

    def __init__(self, contexts: Sequence[Context]) -> None:
        self.contexts = list(contexts)
        self._arrays: list[dict[str, NDArray]] = [{} for _ in contexts]
        self._grads: list[dict[str, NDArray]] = [{} for _ in contexts]
        self._aux: list[dict[str, NDArray]] = [{} for _ in contexts]
        self._segments: list[tuple[Segment, list[_Slot]]] = []
        self.optimizer_states: SharedStates | None = None
        self._updaters: WeakKeyDictionary[Any, dict[Any, StateKey] | None] = WeakKeyDictionary()
        self._filled: set[str] = set()
        self._shared_by: int | None = None

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
                if self.is_received and table is not self._grads:
                    there = ", ".join((self._arrays if table is self._arrays else self._aux)[0]) or "none"
                    raise StateError(
                        f"the shared store has no {name!r} ({there}), and one allocated here would be this process's "
                        "alone; bind this network to the store in the process that shared it, before it is sent"
                    )
                arrays[name] = allocate_as(stype, shape, ctx, dtype, name)
                if table is not self._grads:
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
            name: under which everyone finds it.
            shape: length of each axis.
            dtype: dtype name.
            needs_grad: whether it has a gradient.
            contexts: where the copies lie instead, one for each of the store's contexts (model parallelism).

        Raises:
            ShapeError: it exists with another shape.
            DTypeError: it exists with another dtype.
            StateError: it does not exist, and the store came from another process.
        """
        self._declare(self._arrays, name, shape, dtype, contexts)
        if needs_grad:
            self._declare(self._grads, name, shape, dtype, contexts, grad_stype)

    def declare_aux(
        self, name: str, shape: tuple[int, ...], dtype: str, contexts: Sequence[Context] | None = None
    ) -> None:
        """Allocate an auxiliary state on every context; see `declare`.

        Args:
            name: under which everyone finds it.
            shape: length of each axis.
            dtype: dtype name.
            contexts: where the copies lie instead, one for each of the store's contexts (model parallelism).
        """
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
        self._filled.add(name)
        if not keep:
            for other in table[1:]:
                other[name].raw.copy_(memory)

    def array(self, name: str, i: int) -> NDArray:
        """Return a parameter on context `i`.

        Args:
            name: under which it was declared.
            i: position of the context in `contexts`.
        """
        return self._arrays[i][name]

    def grad(self, name: str, i: int) -> NDArray | None:
        """Return a parameter's gradient on context `i`, None if none is kept.

        Args:
            name: under which it was declared.
            i: position of the context in `contexts`.
        """
        return self._grads[i].get(name)

    def aux(self, name: str, i: int) -> NDArray:
        """Return an auxiliary state on context `i`.

        Args:
            name: under which it was declared.
            i: position of the context in `contexts`.
        """
        return self._aux[i][name]

    @property
    def filled(self) -> frozenset[str]:
        """Names of parameters and states that have values; in a store from another process all of them have."""
        return frozenset((*self._arrays[0], *self._aux[0]) if self.is_received else self._filled)

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
                self._filled.add(name)

    def average(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Return parameters and states as new CPU arrays, averaged over the contexts."""
        with single_thread():
            return self._average(self._arrays), self._average(self._aux)

    def _average(self, table: list[dict[str, NDArray]]) -> dict[str, NDArray]:
        home = cpu()
        found = {}
        for name, first in table[0].items():
            total = first.raw.to(home.torch_device, copy=True)
            others = [arrays[name].raw.to(home.torch_device) for arrays in table[1:]]
            # what is the same everywhere keeps its bits: a third of three times a number may be another one
            if total.is_floating_point() and not all(torch.equal(total, each) for each in others):
                for other in others:
                    total += other
                total /= len(table)
            found[name] = NDArray(total, home)
        return found

    # shared memory

    @property
    def is_shared(self) -> bool:
        """Whether `share_memory` has been called, here or where the store came from."""
        return self._shared_by is not None

    @property
    def is_received(self) -> bool:
        """Whether the store is shared and this is another process than the one that shared it."""
        return self.is_shared and self._shared_by != os.getpid()

    def share_memory(self) -> None:
        """Move parameters, auxiliary states and the optimizer's states into memory that other processes can map.

        From then on they stay where they are; what one process writes, all others see, without any locking. What
        is declared later goes there too. Send the store to a process through `torch.multiprocessing`, bind a module
        to it there, and call its `init_optimizer` as here: it goes on with the shared states. Every process counts its
        updates in the same counts, so that schedules of the learning rate follow the updates of all. Gradients stay
        each process's own.

        The optimizer is that of the module bound to the store; one that is installed later, in this process, has its
        states in shared memory from the start, and what is sent before lacks them.

        Raises:
            StateError: an array has been handed out, so that its owner would keep the old memory; or the optimizer
                remembers what cannot be shared, runs inside a kvstore, or is one of several.
            MemoryError: there is not as much shared memory left.

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
        updater, keys = self._only_updater()
        states = None if updater is None else self._made_states(updater, keys)
        by_device: dict[torch.device, list[_Slot]] = {}
        for slot in slots:
            by_device.setdefault(self._at(slot).raw.device, []).append(slot)
        with single_thread():
            for members in by_device.values():
                self._move(members)
        self._shared_by, self.optimizer_states = os.getpid(), states
        if updater is not None:
            self._give_states(updater, keys)

    # the optimizer's states

    def adopt(self, updater: Any, keys: Mapping[Any, StateKey] | None, anew: bool = False) -> None:
        """Take note of what updates the parameters; on a shared store it goes on with the shared states and counts.

        Args:
            updater: the `Updater`; a kvstore, if that updates copies of its own.
            keys: for the updater's number of each parameter its name and the context's position; None of a kvstore.
            anew: whether states begin anew even if the store has shared ones; only where it was shared.

        Raises:
            StateError: the store is shared, and its states are not those of this optimizer, or are another process's
                business to make; or the optimizer remembers what cannot be shared.
        """
        known = None if keys is None else {**(self._updaters.get(updater) or {}), **keys}
        if self.is_shared:
            self._adopt_shared(updater, known, anew)
        self._updaters[updater] = known

    def _adopt_shared(self, updater: Any, keys: Mapping[Any, StateKey] | None, anew: bool) -> None:
        """Let an updater go on with the shared states, which are made if there are none; see `adopt`."""
        if keys is None:
            raise StateError(
                f"{type(updater).__name__} updates copies of the parameters, which no other process would see; "
                "initialize the optimizer with kvstore=None"
            )
        before = self.optimizer_states
        if before is not None and (self.is_received or not anew):
            if updater.shared is not before or self._updaters.get(updater) != keys:
                before.check(updater.optimizer, self._weights(keys))
                self._give_states(updater, keys)
            return
        if self.is_received:
            raise StateError(
                "the store came from another process without states of an optimizer, and those made here would be this "
                "process's alone; call init_optimizer() there before the store is sent"
            )
        self.optimizer_states = self._made_states(updater, keys)
        if before is not None:
            before.replaced.fill_(1)
        self._give_states(updater, keys)

    def _only_updater(self) -> tuple[Updater | None, dict[Any, StateKey]]:
        """Return what updates the parameters, with its keys."""
        found = list(self._updaters.items())
        if not found:
            return None, {}
        if len(found) > 1:
            raise StateError(
                f"share_memory: {len(found)} optimizers update this store, and only the states of one can be shared; "
                "call borrow_optimizer() of the other modules first"
            )
        ((updater, keys),) = found
        if keys is None:
            raise StateError(
                f"share_memory: the optimizer runs inside {type(updater).__name__}, on copies of the parameters that "
                "no other process would see; initialize it with kvstore=None, or after share_memory()"
            )
        return updater, keys

    def _weights(self, keys: Mapping[Any, StateKey]) -> dict[StateKey, NDArray]:
        return {key: self.array(*key) for key in keys.values()}

    def _made_states(self, updater: Updater, keys: Mapping[Any, StateKey]) -> SharedStates:
        """Copy the states of an updater, made as far as they are still to be made, into shared memory."""
        optimizer: Optimizer = updater.optimizer
        states, counts = {}, {}
        for index, key in keys.items():
            states[key] = updater.state_of(index, self.array(*key))
            counts[key] = optimizer.count_of(index)
        from .optimizer.updater import SharedStates  # few programs share

        return SharedStates(optimizer, states, counts)

    def _give_states(self, updater: Updater, keys: Mapping[Any, StateKey]) -> None:
        if self.optimizer_states is not None:
            devices = {array.context.device_id for array in self._weights(keys).values()}
            updater.share(self.optimizer_states, keys, sorted(devices))

    def _slots(self) -> Iterator[_Slot]:
        for kind, table in self._tables().items():
            for i, arrays in enumerate(table):
                for name in arrays:
                    yield kind, i, name

    def _tables(self) -> dict[str, list[dict[str, NDArray]]]:
        """Return what is shared: gradients are not."""
        return {"arrays": self._arrays, "aux": self._aux}

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

    def with_own_gradients(self) -> ParamStore:
        """Return a store over the same memory with gradients of its own, for another thread that trains.

        Raises:
            StateError: the store is not in shared memory.
        """
        if not self.is_shared:
            raise StateError("the store has memory of its own; call share_memory() before others use that")
        return copy(self)

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes; of what is shared the segments, of gradients only what they are like."""
        state = {**self.__dict__, "_updaters": None}
        if not self.is_shared:
            return state
        contexts = {slot: self._at(slot).context for slot in self._slots()}
        grads = [{name: _outline(grad) for name, grad in each.items()} for each in self._grads]
        return state | {"_slot_contexts": contexts, "_arrays": None, "_grads": grads, "_aux": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        contexts = state.pop("_slot_contexts", None)
        self.__dict__.update(state)
        self._updaters = WeakKeyDictionary()
        if contexts is None:
            return
        self._grads = [{name: allocate_as(*like) for name, like in each.items()} for each in state["_grads"]]
        for name in ("_arrays", "_aux"):
            setattr(self, name, [{} for _ in self.contexts])
        tensors = {
            s: t for segment, slots in self._segments for s, t in zip(slots, segment.tensors(), strict=True)
        }
        stays = all(segment.is_shared for segment, _ in self._segments)
        for slot, ctx in contexts.items():
            kind, i, name = slot
            self._tables()[kind][i][name] = NDArray(tensors[slot], ctx, stays)
        if not stays:  # a plain copy, with values of its own
            self._segments, self._shared_by, self.optimizer_states = [], None, None
            self._filled = {name for _, _, name in contexts}


def _outline(grad: NDArray) -> tuple[str, tuple[int, ...], Context, str]:
    """Return what `allocate_as` needs to make an array like a gradient."""
    return grad.stype, grad.shape, grad.context, dtype_name(grad.dtype)

"""`ParamStore`: parameters, their gradients and auxiliary states, by name and device.

Executor groups, buckets, modules bound with `shared_module`, and modules of several processes, which bind with
`store`, share parameters by using the same store.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
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

_ArrayKey = tuple[str, int, str]
"""Key of an array in a store: table, index of the context, name."""

_KINDS = {"arrays": "parameter", "aux": "state"}


class ParamStore:
    """Owner of parameters, gradients and auxiliary states on some contexts.

    A store can be pickled. After `share_memory()`, a store that is sent through `torch.multiprocessing`, for example as
    an argument of a process, or inherited by a fork, uses the same memory, and modules can `bind` to it there;
    otherwise the copy has its own values. Gradients are never sent: every process has its own, initially zero.

    Args:
        contexts: devices, each with a copy of every array.

    Attributes:
        contexts: the contexts.
        optimizer_states: states and update counts of the optimizer of a shared store, or None.
    """

    def __init__(self, contexts: Sequence[Context]) -> None:
        self.contexts = list(contexts)
        self._arrays: list[dict[str, NDArray]] = [{} for _ in contexts]
        self._grads: list[dict[str, NDArray]] = [{} for _ in contexts]
        self._aux: list[dict[str, NDArray]] = [{} for _ in contexts]
        self._segments: list[tuple[Segment, list[_ArrayKey]]] = []
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
                    present = ", ".join((self._arrays if table is self._arrays else self._aux)[0]) or "none"
                    raise StateError(
                        f"the shared store has no {name!r} (it has {present}), and one allocated here would not be "
                        "shared; bind this network to the store in the process that shares it, before sending it"
                    )
                arrays[name] = allocate_as(stype, shape, ctx, dtype, name)
                if table is not self._grads:
                    self._share_new_array(arrays[name])
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
        """Allocate a parameter, and its gradient if needed, on every context, or check an existing one.

        Args:
            name: name of the parameter.
            shape: length of each axis.
            dtype: dtype name.
            needs_grad: True for a parameter with a gradient.
            contexts: contexts of the copies, one for each of the store's contexts (model parallelism).

        Raises:
            ShapeError: the parameter exists with another shape.
            DTypeError: the parameter exists with another dtype.
            StateError: the parameter does not exist, and the store came from another process.
        """
        self._declare(self._arrays, name, shape, dtype, contexts)
        if needs_grad:
            self._declare(self._grads, name, shape, dtype, contexts, grad_stype)

    def declare_aux(
        self, name: str, shape: tuple[int, ...], dtype: str, contexts: Sequence[Context] | None = None
    ) -> None:
        """Allocate an auxiliary state on every context; see `declare`.

        Args:
            name: name of the state.
            shape: length of each axis.
            dtype: dtype name.
            contexts: contexts of the copies, one for each of the store's contexts (model parallelism).
        """
        self._declare(self._aux, name, shape, dtype, contexts)

    def place(self, name: str, memory: torch.Tensor, keep: bool) -> None:
        """Use the memory of a tensor for a parameter or state of the first context.

        Args:
            name: name of a declared parameter or state.
            memory: contiguous tensor of its shape, type and device.
            keep: True to keep the store's value, False to take that of the tensor on every context.

        Raises:
            ShapeError: the tensor has another shape.
            DTypeError: the tensor has another type.
            ArgumentError: the tensor is on another device, or is not contiguous.
            StateError: the store is in shared memory, which it cannot leave.
        """
        if self.is_shared:
            raise StateError(
                f"{name} is in shared memory and cannot move; use other memory before share_memory()"
            )
        table = self._arrays if name in self._arrays[0] else self._aux
        array = table[0][name]
        if tuple(memory.shape) != array.shape:
            raise ShapeError(
                f"{name} has shape {array.shape}, but its memory has shape {tuple(memory.shape)}"
            )
        if memory.dtype != array.raw.dtype:
            raise DTypeError(f"{name} is {dtype_name(array.dtype)}, but its memory is {memory.dtype}")
        if memory.device != array.raw.device or not memory.is_contiguous():
            raise ArgumentError(
                f"{name}: expected contiguous memory on {array.raw.device}, got memory on {memory.device}"
            )
        if keep:
            memory.copy_(array.raw)
        array.raw, array.pinned = memory, True
        expose(memory)
        self._filled.add(name)
        if not keep:
            for other in table[1:]:
                other[name].raw.copy_(memory)

    def replace_array(self, name: str, array: NDArray) -> None:
        """Use another array for a parameter of a store with one context."""
        self._arrays[0][name] = array
        self._filled.add(name)

    def fill(self, name: str, fill: Callable[[torch.Tensor], None]) -> None:
        """Give a parameter its first values.

        Args:
            fill: called with the memory of each context, which it fills.
        """
        for arrays in self._arrays:
            fill(arrays[name].raw)
        self._filled.add(name)

    def array(self, name: str, i: int) -> NDArray:
        """Return a parameter on context `i`.

        Args:
            name: name of the declared array.
            i: index of the context in `contexts`.
        """
        return self._arrays[i][name]

    def grad(self, name: str, i: int) -> NDArray | None:
        """Return a parameter's gradient on context `i`, None if it has none.

        Args:
            name: name of the declared array.
            i: index of the context in `contexts`.
        """
        return self._grads[i].get(name)

    def aux(self, name: str, i: int) -> NDArray:
        """Return an auxiliary state on context `i`.

        Args:
            name: name of the declared array.
            i: index of the context in `contexts`.
        """
        return self._aux[i][name]

    @property
    def filled(self) -> frozenset[str]:
        """Names of parameters and states that have values; in a store from another process, all names."""
        return frozenset((*self._arrays[0], *self._aux[0]) if self.is_received else self._filled)

    def names(self) -> list[str]:
        """Return the names of the parameters."""
        return list(self._arrays[0])

    def value(self, name: str, i: int) -> NDArray:
        """Return a parameter or an auxiliary state on context `i`.

        Args:
            name: name of the declared array.
            i: index of the context in `contexts`.
        """
        return self.array(name, i) if name in self._arrays[i] else self.aux(name, i)

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
            ShapeError: a shape is wrong.
        """
        for kind, values, table in (
            ("parameter", arg_params, self._arrays),
            ("state", aux_params, self._aux),
        ):
            for name, value in values.items():
                if name not in table[0]:
                    if allow_extra:
                        continue
                    raise ArgumentError(
                        f"{name!r} is not a {kind} of this graph; it has {', '.join(table[0]) or 'none'} "
                        "(allow_extra=True ignores unknown names)"
                    )
                for arrays in table:
                    target = arrays[name]
                    if target.shape != value.shape:
                        raise ShapeError(f"{name} has shape {value.shape}, expected {target.shape}")
                    if target.stype != "default":
                        target[:] = value
                    elif target.raw is not value.raw:
                        target.raw.copy_(value.raw)
                self._filled.add(name)

    def average(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Return parameters and states as new CPU arrays, averaged over the contexts."""
        with single_thread():
            return self._average(self._arrays), self._average(self._aux)

    def _average(self, table: list[dict[str, NDArray]]) -> dict[str, NDArray]:
        home = cpu()
        means = {}
        for name, first in table[0].items():
            if first.stype != "default":  # rows that several processes keep
                means[name] = first
                continue
            total = first.raw.to(home.torch_device, copy=True)
            others = [arrays[name].raw.to(home.torch_device) for arrays in table[1:]]
            # equal arrays stay as they are: a third of three times a number may differ from the number
            if total.is_floating_point() and not all(torch.equal(total, other) for other in others):
                for other in others:
                    total += other
                total /= len(table)
            means[name] = NDArray(total, home)
        return means

    # shared memory

    @property
    def is_shared(self) -> bool:
        """True once `share_memory` has been called, here or in the process that sent the store."""
        return self._shared_by is not None

    @property
    def is_received(self) -> bool:
        """True if another process shared the store."""
        return self.is_shared and self._shared_by != os.getpid()

    def share_memory(self) -> None:
        """Move parameters, auxiliary states and the optimizer's states into memory that other processes can map.

        They cannot move afterwards, and all processes see each other's writes, without locks. Arrays declared later are
        shared, too. Send the store to a process through `torch.multiprocessing`, bind a module to it there, and call
        its `init_optimizer` as here; it continues with the shared states. All processes count updates together, so
        that learning-rate schedules follow the total. Gradients are not shared.

        The optimizer is that of the module bound to the store. The states of an optimizer installed later, in this
        process, are shared from the start, but stores sent before lack them.

        Raises:
            StateError: another object holds the memory of an array; a table is spread over processes or has
                ``hash_rows=True``; or the optimizer has states that cannot be shared, runs inside a kvstore, or is one
                of several.
            MemoryError: there is too little shared memory.

        Example:
            >>> store = ParamStore([mx.cpu()])
            >>> store.declare("weight", (2, 2), "float32", needs_grad=True)
            >>> store.share_memory()
            >>> process = torch.multiprocessing.get_context("spawn").Process(target=print, args=(store,))
        """
        if self.is_shared:
            return
        array_keys = list(self._array_keys())
        for array_key in array_keys:
            array = self._at(array_key)
            kind, _, name = array_key
            if array.stype != "default":
                raise StateError(
                    f"share_memory: the rows of {name!r} are spread over processes, or made for ids (hash_rows=True), "
                    "and cannot move to shared memory; train with the kvstore 'dist_sync'"
                )
            if array.pinned:
                raise StateError(
                    f"share_memory: {_KINDS[kind]} {name!r} on {array.context} shares its memory with a view, torch, "
                    "NumPy, DLPack or a torch module, and can no longer move; call share_memory() first"
                )
        updater, keys = self._single_updater()
        states = None if updater is None else self._share_states(updater, keys)
        by_device: dict[torch.device, list[_ArrayKey]] = {}
        for array_key in array_keys:
            by_device.setdefault(self._at(array_key).raw.device, []).append(array_key)
        with single_thread():
            for members in by_device.values():
                self._move(members)
        self._shared_by, self.optimizer_states = os.getpid(), states
        if updater is not None:
            self._attach_states(updater, keys)

    # the optimizer's states

    def register_updater(
        self, updater: Any, keys: Mapping[Any, StateKey] | None, reset: bool = False
    ) -> None:
        """Register what updates the parameters; on a shared store, attach it to the shared states and counts.

        Args:
            updater: the `Updater`, or a kvstore that updates its own copies.
            keys: parameter name and index of the context by the updater's number; None for a kvstore.
            reset: True to replace shared states with new ones, in the process that shared the store.

        Raises:
            StateError: the store is shared, and its states belong to another optimizer, or only another process can
                make them; or the optimizer has states that cannot be shared.
        """
        known = None if keys is None else {**(self._updaters.get(updater) or {}), **keys}
        if self.is_shared:
            self._attach_updater(updater, known, reset)
        self._updaters[updater] = known

    def _attach_updater(self, updater: Any, keys: Mapping[Any, StateKey] | None, reset: bool) -> None:
        """Attach an updater to the shared states, which are made if missing; see `register_updater`."""
        if keys is None:
            raise StateError(
                f"{type(updater).__name__} updates copies of the parameters, which other processes do not see; "
                "initialize the optimizer with kvstore=None"
            )
        before = self.optimizer_states
        if before is not None and (self.is_received or not reset):
            if updater.shared is not before or self._updaters.get(updater) != keys:
                before.check(updater.optimizer, self._weights(keys))
                self._attach_states(updater, keys)
            return
        if self.is_received:
            raise StateError(
                "the store came from another process without optimizer states, and states made here would not be "
                "shared; call init_optimizer() in that process before sending the store"
            )
        self.optimizer_states = self._share_states(updater, keys)
        if before is not None:
            before.replaced.fill_(1)
        self._attach_states(updater, keys)

    def _single_updater(self) -> tuple[Updater | None, dict[Any, StateKey]]:
        """Return the updater of the parameters, with its keys."""
        updaters = list(self._updaters.items())
        if not updaters:
            return None, {}
        if len(updaters) > 1:
            raise StateError(
                f"share_memory: {len(updaters)} optimizers update this store, but only one can share its states; "
                "call borrow_optimizer() of the other modules first"
            )
        ((updater, keys),) = updaters
        if keys is None:
            raise StateError(
                f"share_memory: the optimizer runs inside {type(updater).__name__}, on copies of the parameters that "
                "other processes do not see; initialize it with kvstore=None, or after share_memory()"
            )
        return updater, keys

    def _weights(self, keys: Mapping[Any, StateKey]) -> dict[StateKey, NDArray]:
        return {key: self.array(*key) for key in keys.values()}

    def _share_states(self, updater: Updater, keys: Mapping[Any, StateKey]) -> SharedStates:
        """Copy the states of an updater into shared memory, making missing ones."""
        optimizer: Optimizer = updater.optimizer
        states, counts = {}, {}
        for index, key in keys.items():
            states[key] = updater.state_of(index, self.array(*key))
            counts[key] = optimizer.count_of(index)
        from .optimizer.updater import SharedStates  # few programs share memory

        return SharedStates(optimizer, states, counts)

    def _attach_states(self, updater: Updater, keys: Mapping[Any, StateKey]) -> None:
        if self.optimizer_states is not None:
            devices = {array.context.device_id for array in self._weights(keys).values()}
            updater.share(self.optimizer_states, keys, sorted(devices))

    def _array_keys(self) -> Iterator[_ArrayKey]:
        for kind, table in self._tables().items():
            for i, arrays in enumerate(table):
                for name in arrays:
                    yield kind, i, name

    def _tables(self) -> dict[str, list[dict[str, NDArray]]]:
        """Return the shared tables, without gradients."""
        return {"arrays": self._arrays, "aux": self._aux}

    def _at(self, array_key: _ArrayKey) -> NDArray:
        kind, i, name = array_key
        return self._tables()[kind][i][name]

    def _move(self, array_keys: list[_ArrayKey]) -> None:
        """Move arrays of one device into a new segment."""
        segment = Segment([self._at(key).raw for key in array_keys])
        for key, tensor in zip(array_keys, segment.tensors(), strict=True):
            array = self._at(key)
            array.raw, array.pinned = tensor, True
        self._segments.append((segment, array_keys))

    def _share_new_array(self, array: NDArray) -> None:
        """Move an array that was declared after `share_memory`."""
        if self.is_shared:
            self._move([key for key in self._array_keys() if self._at(key) is array])

    def with_own_gradients(self) -> ParamStore:
        """Return a store over the same memory with its own gradients, for another training thread.

        Raises:
            StateError: the store is not in shared memory.
        """
        if not self.is_shared:
            raise StateError("the store is not in shared memory; call share_memory() first")
        return copy(self)

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes, with the segments of shared arrays and only descriptions of gradients."""
        state = {**self.__dict__, "_updaters": None}
        if not self.is_shared:
            return state
        contexts = {key: self._at(key).context for key in self._array_keys()}
        grads = [{name: _allocation(grad) for name, grad in table.items()} for table in self._grads]
        return state | {"_slot_contexts": contexts, "_arrays": None, "_grads": grads, "_aux": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        contexts = state.pop("_slot_contexts", None)
        self.__dict__.update(state)
        self._updaters = WeakKeyDictionary()
        if contexts is None:
            return
        self._grads = [
            {name: allocate_as(*spec) for name, spec in table.items()} for table in state["_grads"]
        ]
        for name in ("_arrays", "_aux"):
            setattr(self, name, [{} for _ in self.contexts])
        tensors = {
            k: t for segment, keys in self._segments for k, t in zip(keys, segment.tensors(), strict=True)
        }
        is_shared = all(segment.is_shared for segment, _ in self._segments)
        for array_key, ctx in contexts.items():
            kind, i, name = array_key
            self._tables()[kind][i][name] = NDArray(tensors[array_key], ctx, is_shared)
        if not is_shared:  # a plain copy with its own values
            self._segments, self._shared_by, self.optimizer_states = [], None, None
            self._filled = {name for _, _, name in contexts}


def _allocation(grad: NDArray) -> tuple[str, tuple[int, ...], Context, str]:
    """Return the arguments of `allocate_as` for an array like a gradient."""
    return grad.stype, grad.shape, grad.context, dtype_name(grad.dtype)

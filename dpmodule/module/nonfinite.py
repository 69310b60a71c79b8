"""Checks for NaN and infinity in outputs and gradients before an update."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch

from .. import native
from .._core import torch_private
from .._devices import generators
from .._devices.device_transfer import HostCopy
from ..base import ArgumentError, NonFiniteError, StateError
from ..executor import Executor
from ..executor.sparse_arrays import is_sparse
from ..ndarray import NDArray
from ..ndarray.row_sparse import RowSparseNDArray
from .protocol import Trainable

if TYPE_CHECKING:
    from .types import BatchLike

_RAW = attrgetter("raw")
_CHOICES = ("raise", "warn", "ignore")


def check_choice(what: str, on_nonfinite: str, *more: str) -> None:
    """Raise ArgumentError if `on_nonfinite` is not one of its values."""
    choices = (*_CHOICES, *more)
    if on_nonfinite not in choices:
        raise ArgumentError(f"{what}: on_nonfinite is {on_nonfinite!r}, expected {' or '.join(choices)}")


def are_finite(tensor: torch.Tensor) -> bool:
    """Return True if every element is finite; without the extension, one sum decides unless it overflows."""
    if not tensor.is_floating_point():
        return True
    if native.core is not None and tensor.dtype is torch.float32 and tensor.is_cpu and tensor.is_contiguous():
        return bool(native.core.first_nonfinite([tensor.data_ptr()], [tensor.numel()]) < 0)
    total = float(tensor.sum())
    return total - total == 0 or bool(torch.isfinite(tensor).all())


def _stored(array: Any) -> torch.Tensor:
    """Return the elements of an array; of a sparse array, the stored ones."""
    values: torch.Tensor = array.stored.values if is_sparse(array) else array.raw
    return values


def nonfinite_names(arrays: Mapping[str, NDArray]) -> list[str]:
    """Return the names of the arrays with an element that is not finite."""
    return [name for name, array in arrays.items() if not are_finite(_stored(array))]


def first_nonfinite_node(executor: Executor) -> str | None:
    """Return the name of the first node with a NaN or infinite value, None if all values are finite.

    Runs forward again with different random numbers, and restores the states of the generators.

    Args:
        executor: has run a batch, whose inputs are still in its arrays.
    """
    names: list[str] = []

    def record(name: str, array: NDArray) -> None:
        if not names and not are_finite(_stored(array)):
            names.append(name)

    monitor, random_state = executor.monitor, generators.state_dict()
    executor.set_monitor_callback(record, monitor_all=True)
    try:
        executor.forward(is_train=True)
    finally:
        executor.set_monitor_callback(*monitor)
        generators.load_state_dict(random_state)
    return names[0] if names else None


class GradientCheck:
    """Checks gradients; one call of the native extension checks all float32 gradients on the CPU.

    Shape:
        grads[i][k]: that of the parameter.
    """

    __slots__ = ("_names", "_on_host", "float32", "others", "sizes")

    def __init__(self, names: Sequence[str], grads: Sequence[Sequence[NDArray]]) -> None:
        pairs = [(name, array) for name, arrays in zip(names, grads) for array in arrays]
        has_extension = native.core is not None
        plain = [pair for pair in pairs if has_extension and _is_float32(pair[1])]
        self._names = [name for name, _ in plain]
        self.float32 = [array for _, array in plain]
        self.sizes = [array.size for array in self.float32]
        self.others = [pair for pair in pairs if not (has_extension and _is_float32(pair[1]))]
        self._on_host = all(_stored(array).is_cpu for _, array in self.others)

    def first(self, optimizer: object) -> str | None:
        """Return the name of the first parameter whose gradient is unusable, None if all are usable.

        Args:
            optimizer: receives the gradients; if it clips gradients, infinite ones are usable.
        """
        may_be_infinite = _clips(optimizer)
        if self.float32:
            addresses = list(map(torch.Tensor.data_ptr, map(_RAW, self.float32)))
            index = native.core.first_nonfinite(addresses, self.sizes)  # type: ignore[union-attr]
            if index >= 0 and not may_be_infinite:
                return str(self._names[index])
            if index >= 0:
                return next((n for n, array in zip(self._names, self.float32) if _has_nan(array)), None)
        if not self._on_host:
            tensors = [CheckedTensor(name, _stored(array), may_be_infinite) for name, array in self.others]
            return AsyncCheck(tensors).first()
        for name, array in self.others:
            if not are_finite(_stored(array)) and (not may_be_infinite or _has_nan(array)):
                return name
        return None

    def tensors(self, optimizer: object) -> list[CheckedTensor]:
        """Return all gradients, to be checked together with other tensors; see `first`."""
        may_be_infinite = _clips(optimizer)
        pairs = [*zip(self._names, self.float32), *self.others]
        return [
            CheckedTensor(f"the gradient of {name!r}", _stored(array), may_be_infinite)
            for name, array in pairs
        ]


def _clips(optimizer: object) -> bool:
    """Return True if an optimizer clips gradients."""
    return (getattr(optimizer, "clip_gradient", None) or 0) > 0


def _is_float32(array: NDArray) -> bool:
    """Return True if an array is dense float32 on the CPU; all gradients are contiguous."""
    return not is_sparse(array) and array.raw.is_cpu and array.raw.dtype is torch.float32


def _has_nan(array: NDArray) -> bool:
    return bool(torch.isnan(_stored(array)).any())


class CheckedTensor(NamedTuple):
    """A tensor to be checked, and its description in messages."""

    what: str
    tensor: torch.Tensor
    may_be_infinite: bool = False


class AsyncCheck:
    """A check of tensors whose largest magnitudes are copied to the host asynchronously.

    Shape:
        tensors[i].tensor: any.
    """

    __slots__ = ("_copies", "_rules")

    def __init__(self, tensors: Sequence[CheckedTensor]) -> None:
        tensors = [each for each in tensors if each.tensor.is_floating_point() and each.tensor.numel()]
        self._rules = [(each.what, each.may_be_infinite) for each in tensors]
        devices: dict[torch.device, list[int]] = {}
        for index, checked in enumerate(tensors):
            devices.setdefault(checked.tensor.device, []).append(index)
        self._copies = [
            (indices, HostCopy(_magnitudes([tensors[index].tensor for index in indices])))
            for indices in devices.values()
        ]

    def is_ready(self) -> bool:
        """Return True if `first` would not wait."""
        return all(copy.is_ready() for _, copy in self._copies)

    def first(self) -> str | None:
        """Return the description of the first tensor that is not finite, None if all are; waits for the devices."""
        magnitudes = [0.0] * len(self._rules)
        for indices, copy in self._copies:
            for index, magnitude in zip(indices, copy.numbers()):
                magnitudes[index] = magnitude
        for (what, may_be_infinite), magnitude in zip(self._rules, magnitudes):
            if math.isnan(magnitude) or (math.isinf(magnitude) and not may_be_infinite):
                return what
        return None


def _magnitudes(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the largest magnitude of each tensor, NaN if one of its elements is NaN.

    Shape:
        tensors: any but empty, on one device.
        returns: (number of tensors,) float64.
    """
    return torch.stack([norm.double() for norm in torch_private.foreach_norm(tensors, math.inf)])


class PendingChecks:
    """Checks whose results arrive, and are reported, while training continues."""

    def __init__(self) -> None:
        self._pending: deque[tuple[AsyncCheck, Callable[[str], None]]] = deque()

    def add(self, tensors: Sequence[CheckedTensor], report: Callable[[str], None]) -> None:
        """Start a check without waiting for its result.

        Args:
            report: called by `report_ready` with the description of the first tensor that is not finite.
        """
        self._pending.append((AsyncCheck(tensors), report))

    def report_ready(self, wait: bool = False) -> None:
        """Report the checks whose results have arrived, in their order."""
        while self._pending and (wait or self._pending[0][0].is_ready()):
            check, report = self._pending.popleft()
            what = check.first()
            if what is not None:
                report(what)


class BatchPosition(Protocol):
    """The position of a run, for messages."""

    @property
    def position(self) -> str:
        """The batch and its epoch."""

    def samples_in(self, batch: BatchLike) -> str:
        """Return a description of the samples of a batch."""


class NonFiniteCheck:
    """Checks for NaN and infinity after each backward, and handles them as `on_nonfinite` says.

    If outputs and gradients are all float32 on the CPU, one call of the native extension checks them.
    """

    def __init__(self, module: Trainable, on_nonfinite: str = "raise") -> None:
        self._module: Any = module
        self._on_nonfinite = on_nonfinite
        self._pending = PendingChecks()
        self._knows_gradients = _knows_gradients(module)
        self._updates: list[Any] = []
        self._gradients: list[NDArray] | None = []  # None: some are neither float32 on the CPU nor row-sparse
        self._row_sparse: list[RowSparseNDArray] = []
        self._sizes: list[int] = []

    def find_problem(self, batch: BatchLike, run: BatchPosition) -> str | None:
        """Return what is not finite, so that the gradients of a batch must not be applied; None if they may.

        With "warn" they are always applied; a warning that needs a copy from a device comes some batches later.
        """
        if self._on_nonfinite == "ignore":
            return None
        warns = self._on_nonfinite == "warn"
        what = self.first(run if warns else None)
        if warns:
            self._pending.report_ready()
        if what is None:
            return None
        where = run.position + run.samples_in(batch)
        if warns:
            self._warn(where, what)
            return None
        text = f"{what} is not finite in {where}"
        node = self._module.first_nonfinite_node()
        return text if node is None or repr(node) in what else f"{text}, first at the node {node!r}"

    def skip_or_raise(self, text: str) -> None:
        """Skip a batch with values that are not finite, or raise NonFiniteError."""
        module = self._module
        module.restore_aux_states()
        if self._on_nonfinite == "skip":
            module.logger.warning("%s; the batch is skipped", text)
            return
        raise NonFiniteError(
            f"{text}; {_params_state(module)}. Try a smaller learning rate or clip_gradient, and check the data; "
            'on_nonfinite="skip" skips such batches, "warn" and "ignore" continue'
        )

    def report_pending(self) -> None:
        """Wait for all pending checks, and report them."""
        self._pending.report_ready(wait=True)

    def first(self, run: BatchPosition | None = None) -> str | None:
        """Return what is not finite after a backward: an output, the loss or a gradient; None if all is finite.

        Args:
            run: if given, a check that copies from devices is not waited for; its warning comes later.
        """
        module = self._module
        probes = module.output_probes()
        if not self._knows_gradients:
            return self._search(probes, run)
        updates = module.all_updates()
        if updates != self._updates:
            self._prepare(updates)
        gradients = self._gradients
        if gradients is None:
            return self._search(probes, run)
        tensors = list(chain.from_iterable(probes))
        for array in self._row_sparse:
            tensors.append(array.parts()[1])  # noqa: PERF401
        addresses: list[int] = []
        sizes: list[int] = []
        for tensor in tensors:
            if tensor.dtype is not torch.float32 or not tensor.is_cpu or not tensor.is_contiguous():
                return self._search(probes, run)
            addresses.append(tensor.data_ptr())
            sizes.append(tensor.numel())
        addresses += map(torch.Tensor.data_ptr, map(_RAW, gradients))
        index = native.core.first_nonfinite(addresses, sizes + self._sizes)  # type: ignore[union-attr]
        return None if index < 0 else self._search(probes, run)

    def _prepare(self, updates: list[Any]) -> None:
        checks = [update.gradient_check for update in updates]
        self._updates = updates
        self._sizes = [size for check in checks for size in check.sizes]
        others: list[Any] = [array for check in checks for _, array in check.others]
        self._row_sparse = [array for array in others if isinstance(array, RowSparseNDArray)]
        is_plain = len(self._row_sparse) == len(others)
        self._gradients = [array for check in checks for array in check.float32] if is_plain else None

    def _search(self, probes: Sequence[Sequence[torch.Tensor]], run: BatchPosition | None) -> str | None:
        """Do what `first` does for tensors of every type and device, one by one."""
        for number, tensors in enumerate(probes):
            for tensor in tensors:
                if not tensor.is_cpu:
                    return self._search_devices(probes, run)
                if not are_finite(tensor):
                    return self._output(number)
        return self._nonfinite_gradient()

    def _nonfinite_gradient(self) -> str | None:
        name = self._module.nonfinite_gradient()
        return None if name is None else f"the gradient of {name!r}"

    def _output(self, number: int) -> str:
        names = self._module.output_names
        return f"output {names[number]!r}" if number < len(names) else "the loss"

    def _search_devices(
        self, probes: Sequence[Sequence[torch.Tensor]], run: BatchPosition | None
    ) -> str | None:
        """Do what `first` does, with one copy from each device for outputs and gradients together."""
        checked = [
            CheckedTensor(self._output(i), tensor) for i, tensors in enumerate(probes) for tensor in tensors
        ]
        try:
            for updates in self._module.all_updates():
                checked += updates.gradient_check.tensors(updates.optimizer)
        except (AttributeError, NotImplementedError):  # a user-defined module with its own updates
            return AsyncCheck(checked).first() or self._nonfinite_gradient()
        if run is None:
            return AsyncCheck(checked).first()
        self._pending.add(checked, partial(self._warn, run.position))
        return None

    def _warn(self, where: str, what: str) -> None:
        self._module.logger.warning(
            "%s is not finite in %s; training continues and may corrupt the parameters", what, where
        )


def _knows_gradients(module: Any) -> bool:
    """Return True if the updates of a module hold all of its gradients; a user-defined class may have others."""
    package = __name__.partition(".")[0] + "."
    for part in (module, *getattr(module, "modules", ())):
        for name in ("all_updates", "nonfinite_gradient"):
            if not getattr(getattr(type(part), name, None), "__module__", "").startswith(package):
                return False
    try:
        module.all_updates()
    except (AttributeError, NotImplementedError, StateError):
        return False
    return native.core is not None


def _params_state(module: Trainable) -> str:
    """Return a description of the parameters of a module that was not updated."""
    arg_params, aux_params = module.get_params()
    nonfinite = nonfinite_names({**arg_params, **aux_params})
    if not nonfinite:
        return "the parameters are those before this batch"
    names = ", ".join(nonfinite[:3]) + (f" and {len(nonfinite) - 3} more" if len(nonfinite) > 3 else "")
    return f"before this batch there were already values that are not finite in {names}"

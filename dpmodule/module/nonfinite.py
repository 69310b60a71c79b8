"""NaN and infinity: found in outputs and gradients before they reach parameters."""

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
from ..base import ArgumentError, NonFiniteError, StateError
from ..compat import torch_private
from ..devices import generators
from ..devices.device_transfer import HostCopy
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
    """Refuse anything that `on_nonfinite` cannot be."""
    choices = (*_CHOICES, *more)
    if on_nonfinite not in choices:
        raise ArgumentError(f"{what}: on_nonfinite is {on_nonfinite!r}, expected {' or '.join(choices)}")


def are_finite(tensor: torch.Tensor) -> bool:
    """Say whether every element is finite; without the extension the sum tells in one pass unless it has_overflow."""
    if not tensor.is_floating_point():
        return True
    if native.core is not None and tensor.dtype is torch.float32 and tensor.is_cpu and tensor.is_contiguous():
        return bool(native.core.first_nonfinite([tensor.data_ptr()], [tensor.numel()]) < 0)
    total = float(tensor.sum())
    return total - total == 0 or bool(torch.isfinite(tensor).all())


def _stored(array: Any) -> torch.Tensor:
    """Return the numbers of an array; of a sparse one, those that it stores."""
    found: torch.Tensor = array.stored.values if is_sparse(array) else array.raw
    return found


def nonfinite_names(arrays: Mapping[str, NDArray]) -> list[str]:
    """Return the names of the arrays in which some element is not finite."""
    return [name for name, array in arrays.items() if not are_finite(_stored(array))]


def first_nonfinite_node(executor: Executor) -> str | None:
    """Return the name of the node from which on something is NaN or infinite, None if nothing is.

    Runs forward again, with other random numbers than before, and leaves the generators as they are.

    Args:
        executor: has run a batch, which still lies in its arrays.
    """
    found: list[str] = []

    def look(name: str, array: NDArray) -> None:
        if not found and not are_finite(_stored(array)):
            found.append(name)

    monitor, numbers = executor.monitor, generators.state_dict()
    executor.set_monitor_callback(look, monitor_all=True)
    try:
        executor.forward(is_train=True)
    finally:
        executor.set_monitor_callback(*monitor)
        generators.load_state_dict(numbers)
    return found[0] if found else None


class GradientCheck:
    """Looks at gradients, all float32 ones on the CPU in one call of the native extension.

    Shape:
        grads[i][k]: that of the parameter.
    """

    __slots__ = ("_names", "_on_host", "float32", "others", "sizes")

    def __init__(self, names: Sequence[str], grads: Sequence[Sequence[NDArray]]) -> None:
        pairs = [(name, array) for name, arrays in zip(names, grads) for array in arrays]
        can_look = native.core is not None
        plain = [pair for pair in pairs if can_look and _is_float32(pair[1])]
        self._names = [name for name, _ in plain]
        self.float32 = [array for _, array in plain]
        self.sizes = [array.size for array in self.float32]
        self.others = [pair for pair in pairs if not (can_look and _is_float32(pair[1]))]
        self._on_host = all(_stored(array).is_cpu for _, array in self.others)

    def first(self, optimizer: object) -> str | None:
        """Return the name of the first parameter whose gradient would spoil it, None if there is none.

        Args:
            optimizer: gets the gradients; one that clips them takes infinite ones.
        """
        may_be_infinite = _clips(optimizer)
        if self.float32:
            addresses = list(map(torch.Tensor.data_ptr, map(_RAW, self.float32)))
            place = native.core.first_nonfinite(addresses, self.sizes)  # type: ignore[union-attr]
            if place >= 0 and not may_be_infinite:
                return str(self._names[place])
            if place >= 0:
                return next((n for n, array in zip(self._names, self.float32) if _has_nan(array)), None)
        if not self._on_host:
            looks = [CheckedTensor(name, _stored(array), may_be_infinite) for name, array in self.others]
            return AsyncCheck(looks).first()
        for name, array in self.others:
            if not are_finite(_stored(array)) and (not may_be_infinite or _has_nan(array)):
                return name
        return None

    def looks(self, optimizer: object) -> list[CheckedTensor]:
        """Return all gradients, to be looked at together with other tensors; see `first`."""
        may_be_infinite = _clips(optimizer)
        pairs = [*zip(self._names, self.float32), *self.others]
        return [CheckedTensor(f"the gradient of {name!r}", _stored(array), may_be_infinite) for name, array in pairs]


def _clips(optimizer: object) -> bool:
    """Say whether an optimizer cuts infinite gradients down."""
    return (getattr(optimizer, "clip_gradient", None) or 0) > 0


def _is_float32(array: NDArray) -> bool:
    """Say whether an array is float32 numbers of the CPU, which lie one behind the other as all gradients do."""
    return not is_sparse(array) and array.raw.is_cpu and array.raw.dtype is torch.float32


def _has_nan(array: NDArray) -> bool:
    return bool(torch.isnan(_stored(array)).any())


class CheckedTensor(NamedTuple):
    """A tensor that is to be looked at."""

    what: str
    tensor: torch.Tensor
    may_be_infinite: bool = False


class AsyncCheck:
    """What is not finite in some tensors: their largest magnitudes, on their way to the host.

    Shape:
        looks[i].tensor: any.
    """

    __slots__ = ("_copies", "_rules")

    def __init__(self, looks: Sequence[CheckedTensor]) -> None:
        looks = [look for look in looks if look.tensor.is_floating_point() and look.tensor.numel()]
        self._rules = [(look.what, look.may_be_infinite) for look in looks]
        devices: dict[torch.device, list[int]] = {}
        for place, look in enumerate(looks):
            devices.setdefault(look.tensor.device, []).append(place)
        self._copies = [
            (places, HostCopy(_extents([looks[place].tensor for place in places])))
            for places in devices.values()
        ]

    def is_there(self) -> bool:
        """Say whether `first` would return at once."""
        return all(copy.is_there() for _, copy in self._copies)

    def first(self) -> str | None:
        """Return what the first tensor is called in which something is not finite; waits until that is known."""
        found = [0.0] * len(self._rules)
        for places, copy in self._copies:
            for place, extent in zip(places, copy.numbers()):
                found[place] = extent
        for (what, may_be_infinite), extent in zip(self._rules, found):
            if math.isnan(extent) or (math.isinf(extent) and not may_be_infinite):
                return what
        return None


def _extents(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the largest magnitude of each tensor, NaN where one of its elements is.

    Shape:
        tensors: any, on one device, but not empty.
        returns: (number of tensors,) float64.
    """
    return torch.stack([each.double() for each in torch_private.foreach_norm(tensors, math.inf)])


class PendingChecks:
    """AsyncCheck of batches after which training goes on whatever they are, told when they have come."""

    def __init__(self) -> None:
        self._pending: deque[tuple[AsyncCheck, Callable[[str], None]]] = deque()

    def add(self, looks: Sequence[CheckedTensor], tell: Callable[[str], None]) -> None:
        """CheckedTensor at some tensors without waiting.

        Args:
            tell: is called by `hear` with what is not finite, if something is.
        """
        self._pending.append((AsyncCheck(looks), tell))

    def hear(self, wait: bool = False) -> None:
        """Tell of the batches whose findings have come, in their order."""
        while self._pending and (wait or self._pending[0][0].is_there()):
            findings, tell = self._pending.popleft()
            what = findings.first()
            if what is not None:
                tell(what)


class Position(Protocol):
    """Where a run stands, for messages."""

    @property
    def place(self) -> str:
        """The batch and its epoch."""

    def samples_in(self, batch: BatchLike) -> str:
        """Return words about the samples of a batch."""


class NonFiniteCheck:
    """Looks for NaN and infinity after each backward, and does about them what a program wants.

    Where all that must be finite is float32 numbers on the CPU, one call of the native extension sees all of it.
    """

    def __init__(self, module: Trainable, on_nonfinite: str = "raise") -> None:
        self._module: Any = module
        self._on_nonfinite = on_nonfinite
        self._late = PendingChecks()
        self._knows_gradients = _knows_gradients(module)
        self._updates: list[Any] = []
        self._gradients: list[NDArray] | None = []  # None: they are not all float32 on the CPU, or of rows
        self._of_rows: list[RowSparseNDArray] = []
        self._sizes: list[int] = []

    def find_problem(self, batch: BatchLike, run: Position) -> str | None:
        """Say what is not finite and find_problem to apply the gradients of a batch; None if nothing does.

        A warning find_problem nothing, so where it takes a copy from a device, it comes some batches later.
        """
        if self._on_nonfinite == "ignore":
            return None
        warns = self._on_nonfinite == "warn"
        what = self.first(run if warns else None)
        if warns:
            self._late.hear()
        if what is None:
            return None
        where = run.place + run.samples_in(batch)
        if warns:
            self._warn(where, what)
            return None
        text = f"{what} is not finite in {where}"
        node = self._module.first_nonfinite_node()
        return text if node is None or repr(node) in what else f"{text}, from {node!r} on"

    def skip_or_raise(self, text: str) -> None:
        """Leave out a batch in which something is not finite."""
        module = self._module
        module.restore_aux_states()
        if self._on_nonfinite == "skip":
            module.logger.warning("%s; the batch is left out", text)
            return
        raise NonFiniteError(
            f"{text}; {_params_state(module)}. A smaller learning rate, clip_gradient or a look at the data may help; "
            'on_nonfinite="skip" leaves such batches out, "warn" or "ignore" goes on'
        )

    def report_pending(self) -> None:
        """Warn of all batches that have not been told of yet."""
        self._late.hear(wait=True)

    def first(self, run: Position | None = None) -> str | None:
        """Return what is not finite after a backward: an output, the loss or a gradient; None if nothing is.

        Args:
            run: if given, a look that takes copies from devices is not waited for; its warning comes later.
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
        for array in self._of_rows:
            tensors.append(array.parts()[1])  # noqa: PERF401
        addresses: list[int] = []
        sizes: list[int] = []
        for tensor in tensors:
            if tensor.dtype is not torch.float32 or not tensor.is_cpu or not tensor.is_contiguous():
                return self._search(probes, run)
            addresses.append(tensor.data_ptr())
            sizes.append(tensor.numel())
        addresses += map(torch.Tensor.data_ptr, map(_RAW, gradients))
        place = native.core.first_nonfinite(addresses, sizes + self._sizes)  # type: ignore[union-attr]
        return None if place < 0 else self._search(probes, run)

    def _prepare(self, updates: list[Any]) -> None:
        checks = [each.gradient_check for each in updates]
        self._updates = updates
        self._sizes = [size for check in checks for size in check.sizes]
        others: list[Any] = [array for check in checks for _, array in check.others]
        self._of_rows = [array for array in others if isinstance(array, RowSparseNDArray)]
        is_plain = len(self._of_rows) == len(others)
        self._gradients = [array for check in checks for array in check.float32] if is_plain else None

    def _search(self, probes: Sequence[Sequence[torch.Tensor]], run: Position | None) -> str | None:
        """Do what `first` does for numbers of every type and place, one by one."""
        for number, parts in enumerate(probes):
            for part in parts:
                if not part.is_cpu:
                    return self._search_devices(probes, run)
                if not are_finite(part):
                    return self._output(number)
        return self._nonfinite_gradient()

    def _nonfinite_gradient(self) -> str | None:
        name = self._module.nonfinite_gradient()
        return None if name is None else f"the gradient of {name!r}"

    def _output(self, number: int) -> str:
        names = self._module.output_names
        return f"output {names[number]!r}" if number < len(names) else "the loss"

    def _search_devices(self, probes: Sequence[Sequence[torch.Tensor]], run: Position | None) -> str | None:
        """Do what `first` does with one copy from each device, for outputs and gradients together."""
        looks = [CheckedTensor(self._output(number), part) for number, parts in enumerate(probes) for part in parts]
        try:
            for updates in self._module.all_updates():
                looks += updates.gradient_check.looks(updates.optimizer)
        except (AttributeError, NotImplementedError):  # it has updates of its own
            return AsyncCheck(looks).first() or self._nonfinite_gradient()
        if run is None:
            return AsyncCheck(looks).first()
        self._late.add(looks, partial(self._warn, run.place))
        return None

    def _warn(self, where: str, what: str) -> None:
        self._module.logger.warning(
            "%s is not finite in %s; training goes on, and may spoil the parameters", what, where
        )


def _knows_gradients(module: Any) -> bool:
    """Say whether the updates of a module tell all of its gradients: a program's own class may have others."""
    own = __name__.partition(".")[0] + "."
    for part in (module, *getattr(module, "modules", ())):
        for name in ("all_updates", "nonfinite_gradient"):
            if not getattr(getattr(type(part), name, None), "__module__", "").startswith(own):
                return False
    try:
        module.all_updates()
    except (AttributeError, NotImplementedError, StateError):
        return False
    return native.core is not None


def _params_state(module: Trainable) -> str:
    """Say what can be said of the parameters of a module that is not updated."""
    arg_params, aux_params = module.get_params()
    spoilt = nonfinite_names({**arg_params, **aux_params})
    if not spoilt:
        return "the parameters are those before this batch"
    names = ", ".join(spoilt[:3]) + (f" and {len(spoilt) - 3} more" if len(spoilt) > 3 else "")
    return f"before this batch, too, there were numbers that are not finite in {names}"

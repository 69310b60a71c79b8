"""NaN and infinity: found in gradients before they reach parameters, and in parameters for what is said about them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from .. import native
from ..base import ArgumentError, NonFiniteError
from ..devices import generators
from ..executor import Executor
from ..executor.sparse_arrays import is_sparse
from ..ndarray import NDArray
from .looks import Findings, Look
from .protocol import Trainable

if TYPE_CHECKING:
    from .types import BatchLike

__all__ = [
    "GradientCheck",
    "RowWatch",
    "are_finite",
    "check_choice",
    "first_bad_node",
    "first_nonfinite",
    "names_of_nonfinite",
    "sample_numbers",
    "samples_in",
]


_CHOICES = ("raise", "warn", "ignore")


def check_choice(what: str, on_nonfinite: str, *more: str) -> None:
    """Refuse anything that `on_nonfinite` cannot be.

    Args:
        what: the name of the method that was called.
        on_nonfinite: its argument.
        more: what it can be besides "raise", "warn" and "ignore".

    Raises:
        ArgumentError: it is none of these.
    """
    choices = (*_CHOICES, *more)
    if on_nonfinite not in choices:
        raise ArgumentError(f"{what}: on_nonfinite is {on_nonfinite!r}, expected {' or '.join(choices)}")


def are_finite(tensor: torch.Tensor) -> bool:
    """Say whether every element is finite; without the extension the sum tells in one pass unless it overflows.

    Shape:
        tensor: any.
    """
    if not tensor.is_floating_point():
        return True
    if native.core is not None and tensor.dtype is torch.float32 and tensor.is_cpu and tensor.is_contiguous():
        return bool(native.core.first_nonfinite([tensor.data_ptr()], [tensor.numel()]) < 0)
    total = float(tensor.sum())
    return total - total == 0 or bool(torch.isfinite(tensor).all())


def _stored(array: Any) -> torch.Tensor:
    """Return the numbers of an array; of a sparse one, those that it stores."""
    found: torch.Tensor = array.record().values if is_sparse(array) else array.raw
    return found


def names_of_nonfinite(arrays: Mapping[str, NDArray]) -> list[str]:
    """Return the names of the arrays in which some element is not finite.

    Shape:
        arrays[name]: any.
    """
    return [name for name, array in arrays.items() if not are_finite(_stored(array))]


def first_nonfinite(module: Trainable, later: Callable[[list[Look]], None] | None = None) -> str | None:
    """Return what is NaN or infinite after a backward: an output, the loss or a gradient; None if nothing is.

    Args:
        module: what has been run.
        later: gets what there is to look at, instead, where that takes copies from devices.
    """
    probes = module.output_probes()
    for number, parts in enumerate(probes):
        for part in parts:
            if not part.is_cpu:
                return _first_on_devices(module, probes, later)
            if not are_finite(part):
                return _output(module, number)
    return _bad_gradient(module)


def _bad_gradient(module: Trainable) -> str | None:
    name = module.bad_gradient()
    return None if name is None else f"the gradient of {name!r}"


def _output(module: Trainable, number: int) -> str:
    names = module.output_names
    return f"output {names[number]!r}" if number < len(names) else "the loss"


def _first_on_devices(
    module: Trainable, probes: Sequence[Sequence[torch.Tensor]], later: Callable[[list[Look]], None] | None
) -> str | None:
    """Do what `first_nonfinite` does with one copy from each device, for outputs and gradients together."""
    looks = [Look(_output(module, number), part) for number, parts in enumerate(probes) for part in parts]
    known: Any = module  # not every one is resumable
    try:
        looks += [look for updates in known.all_updates() for look in updates.looks()]
    except (AttributeError, NotImplementedError):  # it has updates of its own
        return Findings(looks).first() or _bad_gradient(module)
    if later is None:
        return Findings(looks).first()
    later(looks)
    return None


def first_bad_node(executor: Executor) -> str | None:
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


_SHOWN_SAMPLES = 8


def sample_numbers(batch: BatchLike, data: object) -> list[int] | None:
    """Return the numbers that an iterator gives the samples of a batch, None where it gives none.

    Args:
        batch: the batch.
        data: the iterator that has just returned it.
    """
    index = getattr(batch, "index", None)
    if index is None and hasattr(data, "getindex"):
        index = data.getindex()
    return None if index is None else [int(each) for each in index]


def samples_in(module: Trainable, batch: BatchLike, data: object) -> str:
    """Return words about the samples of a batch, by the numbers that its iterator gives them; "" where it gives none.

    Args:
        module: what was run on it; samples whose outputs are NaN are named alone, if there are some.
        batch: the batch.
        data: the iterator that has just returned it.
    """
    numbers = sample_numbers(batch, data)
    if numbers is None:
        return ""
    bad, rows = module.nan_rows()
    numbers = [numbers[row] for row in bad] if bad and rows == len(numbers) else numbers
    shown = ", ".join(map(str, numbers[:_SHOWN_SAMPLES]))
    more = len(numbers) - _SHOWN_SAMPLES
    return f" (samples {shown}{f' and {more} more' if more > 0 else ''})"


class GradientCheck:
    """Looks at gradients, all float32 ones on the CPU in one call of the native extension.

    Args:
        names: of the parameters.
        grads: for each parameter its gradient on every context.

    Shape:
        grads[i][k]: that of the parameter.
    """

    __slots__ = ("_float32", "_float32_names", "_on_host", "_others", "_sizes")

    def __init__(self, names: Sequence[str], grads: Sequence[Sequence[NDArray]]) -> None:
        pairs = [(name, array) for name, arrays in zip(names, grads) for array in arrays]
        can_look = native.core is not None
        plain = [pair for pair in pairs if can_look and _is_float32(pair[1])]
        self._float32_names = [name for name, _ in plain]
        self._float32 = [array for _, array in plain]
        self._sizes = [array.size for array in self._float32]
        self._others = [pair for pair in pairs if not (can_look and _is_float32(pair[1]))]
        self._on_host = all(_stored(array).is_cpu for _, array in self._others)

    def first(self, may_be_infinite: bool) -> str | None:
        """Return the name of the first parameter whose gradient is not finite, None if there is none.

        Args:
            may_be_infinite: only NaN counts, as the optimizer cuts infinite numbers down.
        """
        if self._float32:
            addresses = [array.raw.data_ptr() for array in self._float32]
            found = native.core.first_nonfinite(addresses, self._sizes)  # type: ignore[union-attr]
            if found >= 0 and not may_be_infinite:
                return str(self._float32_names[found])
            if found >= 0:
                return next(
                    (n for n, array in zip(self._float32_names, self._float32) if _has_nan(array)), None
                )
        if not self._on_host:
            looks = [Look(name, _stored(array), may_be_infinite) for name, array in self._others]
            return Findings(looks).first()
        for name, array in self._others:
            if not are_finite(_stored(array)) and (not may_be_infinite or _has_nan(array)):
                return name
        return None

    def looks(self, may_be_infinite: bool) -> list[Look]:
        """Return all gradients, to be looked at together with other tensors.

        Args:
            may_be_infinite: see `first`.
        """
        pairs = [*zip(self._float32_names, self._float32), *self._others]
        return [Look(f"the gradient of {name!r}", _stored(array), may_be_infinite) for name, array in pairs]


def _is_float32(array: NDArray) -> bool:
    """Say whether an array is float32 numbers of the CPU, which lie one behind the other as all gradients do."""
    return not is_sparse(array) and array.raw.is_cpu and array.raw.dtype is torch.float32


def _has_nan(array: NDArray) -> bool:
    return bool(torch.isnan(_stored(array)).any())


class RowWatch:
    """Counts the rows of outputs that are NaN while data is predicted or scored, and says so once, at the end.

    Args:
        module: what predicts.
        what: the name of the method, for messages.
        on_nonfinite: "warn"; "raise", at once; or "ignore".

    Raises:
        ArgumentError: `on_nonfinite` is something else.
    """

    def __init__(self, module: Trainable, what: str, on_nonfinite: str) -> None:
        check_choice(what, on_nonfinite)
        self._module, self._what, self._on_nonfinite = module, what, on_nonfinite
        self._count, self._first = 0, -1

    def look(self, number: int, pad: int) -> None:
        """Look at the outputs of the last forward.

        Args:
            number: of the batch, from 0.
            pad: how many rows at its end are padding.

        Raises:
            NonFiniteError: a row is NaN, and the choice is "raise".
        """
        if self._on_nonfinite == "ignore" or not _may_be_nan(self._module.output_probes()):
            return
        found, rows = self._module.nan_rows()
        found = [row for row in found if row < rows - pad]
        if found and self._first < 0:
            self._first = number * rows + found[0]
        self._count += len(found)
        if found and self._on_nonfinite == "raise":
            raise NonFiniteError(f"{self._message()}; it is in batch {number}")

    def tell(self) -> None:
        """Warn if there were any."""
        if self._count:
            self._module.logger.warning("%s", self._message())

    def _message(self) -> str:
        rows = "1 row of the outputs is" if self._count == 1 else f"{self._count} rows of the outputs are"
        return f"{self._what}: {rows} NaN, the first at index {self._first}"


def _may_be_nan(probes: Sequence[Sequence[torch.Tensor]]) -> bool:
    """Say whether some element may be NaN: a sum is, too, if infinite numbers of both signs are among them."""
    for parts in probes:
        for part in parts:
            if not part.is_cpu:
                looks = [Look("", each, may_be_infinite=True) for parts in probes for each in parts]
                return Findings(looks).first() is not None
            if not are_finite(part) and math.isnan(part.sum()):
                return True
    return False

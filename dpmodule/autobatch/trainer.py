"""The base of trainers: clipping, sparse updates, weight decay; steps in one pass where the extension is here."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

import torch

from .. import native
from .arguments import as_index, finite, flag, number_from
from .collection import ParameterCollection, as_collection
from .errors import NonFiniteError, user_line
from .expression import as_list
from .parameters import LookupParameters, Parameters
from .session import state
from .storage import LookupStorage, ParameterStorage

Tensor = torch.Tensor


class ParameterAddress(NamedTuple):
    """What native code updates of one parameter.

    Shape:
        rows: (n,).

    Attributes:
        rows: those to update (int64), None for all.
        numbers: addresses of value, gradient, three moments and row numbers, 0 for none; how many rows there are, and
            how many numbers in each.
    """

    storage: ParameterStorage
    rows: Tensor | None
    numbers: tuple[int, ...]


def _fits(value: Tensor, gradient: Tensor) -> bool:
    return (
        native.core is not None
        and value.dtype is torch.float32
        and value.is_cpu
        and value.is_contiguous()
        and gradient.is_contiguous()
    )


class ParameterAddresses:
    """Where values and gradients lie; little is done while they lie where they did.

    Args:
        moments: returns what the trainer keeps for a parameter, always the same tensors.
    """

    def __init__(self, moments: Callable[[ParameterStorage], list[Tensor]]) -> None:
        self._moments = moments
        self._seen: dict[ParameterStorage, tuple[Tensor, Tensor, tuple[int, int], ParameterAddress]] = {}

    def of(self, storage: ParameterStorage, rows: Tensor | None = None) -> ParameterAddress | None:
        """Return where a parameter with a gradient lies, None where native code does not take it.

        Shape:
            rows: (n,).

        Args:
            rows: those that matter (int64), None for all.
        """
        value, gradient = storage.tensor, storage.gradient
        if gradient is None:
            return None
        here = value.data_ptr(), gradient.data_ptr()
        seen = self._seen.get(storage)
        if seen is None or seen[0] is not value or seen[1] is not gradient or seen[2] != here:
            storage.check_shape()
            if not _fits(value, gradient):
                return None
            addresses = [*here, *[each.data_ptr() for each in self._moments(storage)]]
            addresses += [0] * (5 - len(addresses))
            place = ParameterAddress(storage, None, (*addresses, 0, 1, value.numel()))
            seen = self._seen[storage] = value, gradient, here, place
        place = seen[3]
        if rows is None:
            return place
        extent = rows.data_ptr(), len(rows), value.numel() // len(value)
        return ParameterAddress(storage, rows, (*place.numbers[:5], *extent))


def _native_length(places: Sequence[ParameterAddress]) -> float:
    """Return the length of all gradients together."""
    core = native.core
    return math.sqrt(core.autobatch_squared_length([each.numbers for each in places])) if core else 0.0


def _native_step(
    kind: str, places: Sequence[ParameterAddress], factors: dict[str, float], scale: float
) -> None:
    """Take a trainer's step, and make the gradients zero."""
    core = native.core
    if core is None or not places:
        return
    rule = {"kind": kind, "rescale_grad": scale, **factors}
    core.autobatch_rule(rule, [each.numbers for each in places])
    increment = torch.autograd.graph.increment_version
    for storage, _, _ in places:
        increment(storage.tensor)
        storage.gradient_is_zero()


class Trainer:
    """The base of trainers: clipping, sparse updates, weight decay.

    Subclasses define `rule`, and how many tensors of the parameter's shape they keep for it.

    Attributes:
        model: the parameters.

    Raises:
        ArgumentError: a number is NaN, or outside of what is possible.
        ForeignValueError: `m` is no collection, or a number none.

    Source: DyNet's `Trainer`: the threshold of 5, clipping before every update, updates of those rows only that were
    looked up.
    """

    moments: ClassVar[int] = 0
    _native: ClassVar[str] = ""

    def __init_subclass__(cls, native: str = "", **others: Any) -> None:
        """Note which rule of native code does what the class's `rule` does; none for a new `rule` that names none."""
        super().__init_subclass__(**others)
        if native or "rule" in vars(cls):
            cls._native = native

    def __init__(self, m: ParameterCollection, learning_rate: float) -> None:
        self.model, self.learning_rate = as_collection(m, f"{type(self).__name__}: m"), learning_rate
        self._clip = 5.0
        self._sparse = True
        self._moments: dict[ParameterStorage, list[Tensor]] = {}
        self._places = ParameterAddresses(self._moments_of)
        self.updates = 0
        self._clips = self._updates_shown = 0

    def rule(self, value: Tensor, gradient: Tensor, moments: list[Tensor]) -> None:
        """Update a value in place.

        Shape:
            value, gradient, moments: equal; (*d), or (n, *d) of n rows of a table.

        Args:
            value: a parameter, or rows of a table.
            gradient: its gradient, clipped; may be written to.
            moments: what the trainer keeps for it, updated in place.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define rule")

    @property
    def learning_rate(self) -> float:
        """The factor of steps; may be changed at any time.

        Raises:
            ArgumentError: it is set to NaN or infinity.
            ForeignValueError: it is set to something else than a number.
        """
        return self._learning_rate

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        self._learning_rate = finite(value, "learning_rate")

    def whoami(self) -> str:
        """Return the name of the class."""
        return type(self).__name__

    def update(self) -> None:
        """Update all parameters that are to be updated, and make their gradients zero.

        Raises:
            NonFiniteError: the gradient is NaN or infinite, and clipping is on.
        """
        self._update(self._all_parameters())

    def _all_parameters(self) -> list[Parameters | LookupParameters]:
        return [*self.model.parameters_list(), *self.model.lookup_parameters_list()]

    def _update(self, chosen: Sequence[Parameters | LookupParameters]) -> None:
        state.graph.settle()
        places = self._gradient_places()
        scale = self._clipping(places)
        native_places: list[ParameterAddress] = []
        others: list[tuple[ParameterStorage, bool]] = []
        is_descent = self._native == "sgd"  # which zeros do not move
        for each in chosen:
            storage = each.storage
            if storage.gradient is None and (is_descent or self._is_still(storage)):
                continue
            if not storage.updated:
                continue
            by_rows = self._is_by_rows(storage)
            place = places.get(storage)
            if not by_rows and (place is None or place.rows is not None):
                place = self._places.of(storage)
            if place is not None and self._native:
                native_places.append(place)
            else:
                others.append((storage, by_rows))
        if others:
            self._update_in_torch(others, scale)
        _native_step(self._native, native_places, self._factors(), scale)
        self.updates += 1
        self._updates_shown += 1
        self._decay()

    def _is_by_rows(self, storage: ParameterStorage) -> bool:
        return self._sparse and isinstance(storage, LookupStorage)

    def _is_still(self, storage: ParameterStorage) -> bool:
        """Say whether a parameter without a gradient stays as it is; gives it one of zeros if moments may move it."""
        if type(storage) is not ParameterStorage:
            return self._is_by_rows(storage)
        if storage.updated:
            storage.opened()
        return not storage.updated

    def _gradient_places(self) -> dict[ParameterStorage, ParameterAddress | None]:
        """Return where all gradients lie, None for those that native code does not take."""
        found = {}
        for each in self._all_parameters():
            storage = each.storage
            if storage.gradient is not None:
                is_table = isinstance(each, LookupParameters)
                rows = storage.rows() if is_table and isinstance(storage, LookupStorage) else None
                found[storage] = self._places.of(storage, rows)
        return found

    def _moments_of(self, storage: ParameterStorage) -> list[Tensor]:
        found = self._moments.get(storage)
        if found is None:
            found = self._moments[storage] = [torch.zeros_like(storage.tensor) for _ in range(self.moments)]
        return found

    def _factors(self) -> dict[str, float]:
        """Return the numbers that the native rule takes beside the addresses."""
        return {}

    @torch.no_grad()
    def _update_in_torch(self, storages: list[tuple[ParameterStorage, bool]], scale: float) -> None:
        """Update parameters, or only the rows with a gradient."""
        for storage, by_rows in storages:
            if by_rows:
                self._update_rows(storage, scale)
            else:
                gradient = storage.dense_gradient()
                self.rule(
                    storage.tensor,
                    gradient if scale == 1.0 else gradient.mul_(scale),
                    self._moments_of(storage),
                )
            storage.clear_gradient()

    def _update_rows(self, storage: Any, scale: float) -> None:
        rows = storage.rows()
        gradient = storage.gradient.index_select(0, rows)
        value = storage.tensor.index_select(0, rows)
        kept = self._moments_of(storage)
        moments = [each.index_select(0, rows) for each in kept]
        self.rule(value, gradient if scale == 1.0 else gradient.mul_(scale), moments)
        storage.tensor.index_copy_(0, rows, value)
        for whole, part in zip(kept, moments):
            whole.index_copy_(0, rows, part)

    def _clipping(self, places: dict[ParameterStorage, ParameterAddress | None]) -> float:
        """Return the factor that brings the length of the whole gradient below the threshold."""
        if self._clip <= 0:
            return 1.0
        native_places = [each for each in places.values() if each is not None]
        length = _native_length(native_places) if len(native_places) == len(places) else _length(places)
        if not math.isfinite(length):
            raise NonFiniteError(
                f"Magnitude of gradient is bad: {length}{self._nonfinite_gradient()} (at {user_line()})"
            )
        if length <= self._clip:
            return 1.0
        self._clips += 1
        return self._clip / length

    def _nonfinite_gradient(self) -> str:
        """Return whose gradient is not finite, for an error."""
        for each in self._all_parameters():
            gradient = each.storage.gradient
            if gradient is not None and not bool(gradient.isfinite().all()):
                return f", that of {each.name()} is not finite"
        return ""

    def _decay(self) -> None:
        rate = self.model.get_weight_decay()
        if rate:
            with torch.no_grad():
                for each in self._all_parameters():
                    if each.storage.updated:
                        each.storage.tensor.mul_(1.0 - rate)

    def update_subset(self, updated_params: list[int], updated_lookups: list[int]) -> None:
        """Update some of the parameters only.

        Args:
            updated_params: their places in `ParameterCollection.parameters_list`.
            updated_lookups: the places of tables in `ParameterCollection.lookup_parameters_list`. One that is named
                twice is updated once.

        Raises:
            BoundsError: there is no such place; then nothing is updated.
            NonFiniteError: see `update`.
            ForeignValueError: an argument is no list of integers.
            NegativeIndexError: a place is negative.
        """
        parameters, lookups = self.model.parameters_list(), self.model.lookup_parameters_list()
        dense = [parameters[each] for each in _places(updated_params, len(parameters), "updated_params")]
        tables = [lookups[each] for each in _places(updated_lookups, len(lookups), "updated_lookups")]
        self._update([*dense, *tables])

    def update_epoch(self, r: float = 1.0) -> None:
        """Do nothing; DyNet's old way to lower the learning rate. Change `learning_rate` instead."""

    def restart(self, learning_rate: float | None = None) -> None:
        """Forget all moments.

        Args:
            learning_rate: a new one, if given.

        Raises:
            ArgumentError: the rate is NaN or infinite.
            ForeignValueError: it is no number.
        """
        for moments in self._moments.values():
            for each in moments:
                each.zero_()
        if learning_rate is not None:
            self.learning_rate = learning_rate

    def set_learning_rate(self, value: float) -> None:
        """Change the learning rate.

        Raises:
            ArgumentError: it is NaN or infinite.
            ForeignValueError: it is no number.
        """
        self.learning_rate = value

    def set_clip_threshold(self, thr: float) -> None:
        """Set the length that gradients are cut to.

        Args:
            thr: the Euclidean length of all gradients together; 5 at first. 0 or less switches clipping off.

        Raises:
            ArgumentError: `thr` is NaN.
            ForeignValueError: it is no number.
        """
        self._clip = max(number_from(thr, -math.inf, "clip threshold"), 0.0)

    def get_clip_threshold(self) -> float:
        """Return the length that gradients are cut to, 0 where they are not."""
        return self._clip

    def set_sparse_updates(self, su: bool) -> None:
        """Choose which rows of tables are updated.

        Args:
            su: True, as at first, for those only that have been looked up; False for all, as of other parameters.

        Raises:
            ForeignValueError: `su` is neither True nor False.
        """
        self._sparse = flag(su, "set_sparse_updates")

    def describe(self) -> str:
        """Return learning rate, and how many updates and clipped ones there were since the last `status`."""
        return f"[lr={self.learning_rate:g} clips={self._clips} updates={self._updates_shown}]"

    def status(self) -> None:
        """Write `describe` to the standard error output, and count from zero again."""
        sys.stderr.write(self.describe() + " ")
        self._clips = self._updates_shown = 0


def _length(storages: Iterable[ParameterStorage]) -> float:
    """Return the length of the whole gradient, which native code does not take."""
    norms = []
    for each in storages:
        gradient = each.dense_gradient()
        if isinstance(each, LookupStorage):
            gradient = gradient.index_select(0, each.rows())
        norms.append(torch.linalg.vector_norm(gradient))
    return float(torch.linalg.vector_norm(torch.stack(norms)))


def _places(given: Sequence[int], size: int, what: str) -> list[int]:
    name = f"update_subset: {what}"
    return list(dict.fromkeys(as_index(each, size, name) for each in as_list(name, given)))

"""Trainers: DyNet's update rules for the parameters of a collection."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

import torch

from .. import native
from .arguments import as_index, below_one, finite, flag, number, number_from, probability
from .collection import ParameterCollection, as_collection
from .errors import ArgumentError, NonFiniteError, user_line
from .expression import as_list
from .parameters import LookupParameters, Parameters
from .session import state
from .storage import LookupStorage, ParameterStorage

Tensor = torch.Tensor


class ParameterAddress(NamedTuple):
    """Addresses of one parameter for a native update.

    Shape:
        rows: (n,).

    Attributes:
        rows: rows to update (int64), None for all.
        numbers: addresses of value, gradient, three moments and row numbers, 0 for none; the number of rows, and of
            elements per row.
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
    """Cached addresses of values and gradients.

    Args:
        moments: function that returns the trainer's moments of a parameter, always the same tensors.
    """

    def __init__(self, moments: Callable[[ParameterStorage], list[Tensor]]) -> None:
        self._moments = moments
        self._seen: dict[ParameterStorage, tuple[Tensor, Tensor, tuple[int, int], ParameterAddress]] = {}

    def of(self, storage: ParameterStorage, rows: Tensor | None = None) -> ParameterAddress | None:
        """Return the addresses of a parameter, None without a gradient or if native code does not support it.

        Shape:
            rows: (n,).

        Args:
            rows: rows to update (int64), None for all.
        """
        value, gradient = storage.whole(), storage.gradient
        if gradient is None:
            return None
        memory = value.data_ptr(), gradient.data_ptr()
        seen = self._seen.get(storage)
        if seen is None or seen[0] is not value or seen[1] is not gradient or seen[2] != memory:
            storage.check_shape()
            if not _fits(value, gradient):
                return None
            addresses = [*memory, *[each.data_ptr() for each in self._moments(storage)]]
            addresses += [0] * (5 - len(addresses))
            address = ParameterAddress(storage, None, (*addresses, 0, 1, value.numel()))
            seen = self._seen[storage] = value, gradient, memory, address
        address = seen[3]
        if rows is None:
            return address
        extent = rows.data_ptr(), len(rows), value.numel() // len(value)
        return ParameterAddress(storage, rows, (*address.numbers[:5], *extent))


def _native_length(addresses: Sequence[ParameterAddress]) -> float:
    """Return the global norm of the gradients."""
    core = native.core
    return math.sqrt(core.autobatch_squared_length([each.numbers for each in addresses])) if core else 0.0


def _native_step(
    kind: str, addresses: Sequence[ParameterAddress], factors: dict[str, float], scale: float
) -> None:
    """Run a native update and clear the gradients."""
    core = native.core
    if core is None or not addresses:
        return
    rule = {"kind": kind, "rescale_grad": scale, **factors}
    core.autobatch_rule(rule, [each.numbers for each in addresses])
    increment = torch.autograd.graph.increment_version
    for storage, _, _ in addresses:
        increment(storage.whole())
        storage.gradient_is_zero()


class Trainer:
    """The base of trainers: clipping, sparse updates, weight decay.

    Subclasses define `rule` and `moments`, the number of tensors that they keep per parameter.

    Attributes:
        model: the parameters.

    Raises:
        ArgumentError: a number is NaN or outside its range.
        ForeignValueError: `m` is not a collection, or an argument is not a number.

    Source: DyNet's `Trainer`, with its clipping threshold of 5 and its sparse updates of the rows that were looked up.
    """

    moments: ClassVar[int] = 0
    _native: ClassVar[str] = ""

    def __init_subclass__(cls, native: str = "", **others: Any) -> None:
        """Set the native equivalent of the class's `rule`; a new `rule` has none unless it is named."""
        super().__init_subclass__(**others)
        if native or "rule" in vars(cls):
            cls._native = native

    def __init__(self, m: ParameterCollection, learning_rate: float) -> None:
        self.model, self.learning_rate = as_collection(m, f"{type(self).__name__}: m"), learning_rate
        self._clip = 5.0
        self._sparse = True
        self._moments: dict[ParameterStorage, list[Tensor]] = {}
        self._addresses = ParameterAddresses(self._moments_of)
        self.updates = 0
        self._clips = self._updates_shown = 0

    def rule(self, value: Tensor, gradient: Tensor, moments: list[Tensor]) -> None:
        """Update a value in place.

        Shape:
            value, gradient, moments: equal; (*d), or (n, *d) for n rows of a table.

        Args:
            value: a parameter, or rows of a table.
            gradient: the clipped gradient, which may be modified.
            moments: the trainer's moments, updated in place.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define rule")

    @property
    def learning_rate(self) -> float:
        """The learning rate, which may be changed at any time.

        Raises:
            ArgumentError: the new value is NaN or infinite.
            ForeignValueError: the new value is not a number.
        """
        return self._learning_rate

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        self._learning_rate = finite(value, "learning_rate")

    def whoami(self) -> str:
        """Return the name of the class."""
        return type(self).__name__

    def update(self) -> None:
        """Update all parameters, except constant ones, and clear their gradients.

        Raises:
            NonFiniteError: the gradient is NaN or infinite, and clipping is on.
        """
        self._update(self._all_parameters())

    def _all_parameters(self) -> list[Parameters | LookupParameters]:
        return [*self.model.parameters_list(), *self.model.lookup_parameters_list()]

    def _update(self, chosen: Sequence[Parameters | LookupParameters]) -> None:
        state.graph.settle()
        addresses = self._gradient_addresses()
        scale = self._clipping(addresses)
        native_addresses: list[ParameterAddress] = []
        others: list[tuple[ParameterStorage, bool]] = []
        is_descent = self._native == "sgd"  # zero gradients have no effect
        for each in chosen:
            storage = each.storage
            if storage.gradient is None and (is_descent or self._is_unchanged(storage)):
                continue
            if not storage.updated:
                continue
            by_rows = self._is_by_rows(storage)
            address = addresses.get(storage)
            if not by_rows and (address is None or address.rows is not None):
                address = self._addresses.of(storage)
            if address is not None and self._native:
                native_addresses.append(address)
            else:
                others.append((storage, by_rows))
        if others:
            self._update_in_torch(others, scale)
        _native_step(self._native, native_addresses, self._factors(), scale)
        self.updates += 1
        self._updates_shown += 1
        self._decay()

    def _is_by_rows(self, storage: ParameterStorage) -> bool:
        return self._sparse and isinstance(storage, LookupStorage)

    def _is_unchanged(self, storage: ParameterStorage) -> bool:
        """Return True if a parameter without a gradient is unchanged; else give it a zero gradient."""
        if type(storage) is not ParameterStorage:
            return self._is_by_rows(storage)
        if storage.updated:
            storage.opened()
        return not storage.updated

    def _gradient_addresses(self) -> dict[ParameterStorage, ParameterAddress | None]:
        """Return the addresses of all gradients, None if native code does not support them."""
        addresses = {}
        for each in self._all_parameters():
            storage = each.storage
            if storage.gradient is not None:
                is_table = isinstance(each, LookupParameters)
                rows = storage.rows() if is_table and isinstance(storage, LookupStorage) else None
                addresses[storage] = self._addresses.of(storage, rows)
        return addresses

    def _moments_of(self, storage: ParameterStorage) -> list[Tensor]:
        found = self._moments.get(storage)
        if found is None:
            found = self._moments[storage] = [torch.zeros_like(storage.whole()) for _ in range(self.moments)]
        return found

    def _factors(self) -> dict[str, float]:
        """Return the hyperparameters of the native rule."""
        return {}

    @torch.no_grad()
    def _update_in_torch(self, storages: list[tuple[ParameterStorage, bool]], scale: float) -> None:
        """Update parameters in torch, or only their rows with a gradient."""
        for storage, by_rows in storages:
            if by_rows:
                self._update_rows(storage, scale)
            else:
                gradient = storage.dense_gradient()
                self.rule(
                    storage.whole(),
                    gradient if scale == 1.0 else gradient.mul_(scale),
                    self._moments_of(storage),
                )
            storage.clear_gradient()

    def _update_rows(self, storage: Any, scale: float) -> None:
        rows = storage.rows()
        gradient = storage.gradient.index_select(0, rows)
        value = storage.whole().index_select(0, rows)
        kept = self._moments_of(storage)
        moments = [each.index_select(0, rows) for each in kept]
        self.rule(value, gradient if scale == 1.0 else gradient.mul_(scale), moments)
        storage.whole().index_copy_(0, rows, value)
        for whole, part in zip(kept, moments):
            whole.index_copy_(0, rows, part)

    def _clipping(self, addresses: dict[ParameterStorage, ParameterAddress | None]) -> float:
        """Return the factor that clips the global norm of the gradient to the threshold."""
        if self._clip <= 0:
            return 1.0
        native_addresses = [each for each in addresses.values() if each is not None]
        length = (
            _native_length(native_addresses)
            if len(native_addresses) == len(addresses)
            else _length(addresses)
        )
        if not math.isfinite(length):
            raise NonFiniteError(
                f"Magnitude of gradient is bad: {length}{self._nonfinite_gradient()} (at {user_line()})"
            )
        if length <= self._clip:
            return 1.0
        self._clips += 1
        return self._clip / length

    def _nonfinite_gradient(self) -> str:
        """Return the name of a parameter with a non-finite gradient, for an error message."""
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
                        each.storage.whole().mul_(1.0 - rate)

    def update_subset(self, updated_params: list[int], updated_lookups: list[int]) -> None:
        """Update some of the parameters only.

        Args:
            updated_params: indices in `ParameterCollection.parameters_list`.
            updated_lookups: indices in `ParameterCollection.lookup_parameters_list`. Duplicates are updated once.

        Raises:
            BoundsError: an index is out of range; then nothing is updated.
            NonFiniteError: see `update`.
            ForeignValueError: an argument is not a list of integers.
            NegativeIndexError: an index is negative.
        """
        parameters, lookups = self.model.parameters_list(), self.model.lookup_parameters_list()
        dense = [parameters[each] for each in _addresses(updated_params, len(parameters), "updated_params")]
        tables = [lookups[each] for each in _addresses(updated_lookups, len(lookups), "updated_lookups")]
        self._update([*dense, *tables])

    def update_epoch(self, r: float = 1.0) -> None:
        """Do nothing; DyNet's old way to lower the learning rate. Change `learning_rate` instead."""

    def restart(self, learning_rate: float | None = None) -> None:
        """Reset all moments.

        Args:
            learning_rate: a new learning rate, if given.

        Raises:
            ArgumentError: the rate is NaN or infinite.
            ForeignValueError: it is not a number.
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
            ForeignValueError: it is not a number.
        """
        self.learning_rate = value

    def set_clip_threshold(self, thr: float) -> None:
        """Set the threshold of gradient clipping.

        Args:
            thr: limit of the global gradient norm, 5 initially; 0 or less disables clipping.

        Raises:
            ArgumentError: `thr` is NaN.
            ForeignValueError: it is not a number.
        """
        self._clip = max(number_from(thr, -math.inf, "clip threshold"), 0.0)

    def get_clip_threshold(self) -> float:
        """Return the threshold of gradient clipping, 0 if it is disabled."""
        return self._clip

    def set_sparse_updates(self, su: bool) -> None:
        """Switch sparse updates of tables on or off.

        Args:
            su: True (initially) to update only rows that were looked up, False for all rows.

        Raises:
            ForeignValueError: `su` is not a bool.
        """
        self._sparse = flag(su, "set_sparse_updates")

    def describe(self) -> str:
        """Return the learning rate, and the numbers of clipped and of all updates since the last `status`."""
        return f"[lr={self.learning_rate:g} clips={self._clips} updates={self._updates_shown}]"

    def status(self) -> None:
        """Write `describe` to standard error, and reset its counts."""
        sys.stderr.write(self.describe() + " ")
        self._clips = self._updates_shown = 0


def _length(storages: Iterable[ParameterStorage]) -> float:
    """Return the global norm of the gradient, computed in torch."""
    norms = []
    for each in storages:
        gradient = each.dense_gradient()
        if isinstance(each, LookupStorage):
            gradient = gradient.index_select(0, each.rows())
        norms.append(torch.linalg.vector_norm(gradient))
    return float(torch.linalg.vector_norm(torch.stack(norms)))


def _addresses(given: Sequence[int], size: int, what: str) -> list[int]:
    name = f"update_subset: {what}"
    return list(dict.fromkeys(as_index(each, size, name) for each in as_list(name, given)))


class SimpleSGDTrainer(Trainer, native="sgd"):
    """Gradient descent.

    Raises:
        ArgumentError: a number is outside its range.
        ForeignValueError: `m` is not a collection, or another argument is not a number.
    """

    def __init__(self, m: ParameterCollection, learning_rate: float = 0.1) -> None:
        super().__init__(m, learning_rate)

    def _factors(self) -> dict[str, float]:
        return {"lr": self.learning_rate}

    def rule(self, value: Tensor, gradient: Tensor, moments: list[Tensor]) -> None:
        value.add_(gradient, alpha=-self.learning_rate)


class CyclicalSGDTrainer(SimpleSGDTrainer):
    """Gradient descent whose learning rate goes up and down.

    Args:
        step_size: number of updates from one extreme to the other.
        gamma: decay factor of the highest rate per update, from 0 to 1.

    Raises:
        ArgumentError: a number is outside its range.
        ForeignValueError: `m` is not a collection, or another argument is not a number.

    Source: Smith, "Cyclical learning rates for training neural networks", 2017.
    """

    def __init__(
        self,
        m: ParameterCollection,
        learning_rate_min: float = 0.01,
        learning_rate_max: float = 0.1,
        step_size: float = 2000,
        gamma: float = 1.0,
    ) -> None:
        super().__init__(m, learning_rate_min)
        self._low, self._high = self.learning_rate, finite(learning_rate_max, "learning_rate_max")
        self._period, self._gamma = number(step_size, "step_size"), probability(gamma, "gamma")
        if not self._period > 0.0:
            raise ArgumentError(f"step_size is {step_size!r}, expected a positive number (at {user_line()})")
        self._iteration = 0

    def update(self) -> None:
        super().update()
        cycle = math.floor(1 + self._iteration / (2.0 * self._period))
        x = abs(self._iteration / self._period - 2 * cycle + 1)
        height = (self._high - self._low) * max(0.0, 1 - x) * self._gamma**self._iteration
        self.learning_rate = self._low + height
        self._iteration += 1


class MomentumSGDTrainer(Trainer, native="momentum"):
    """Gradient descent with momentum.

    Args:
        mom: momentum factor.

    Raises:
        ArgumentError: a number is outside its range.
        ForeignValueError: `m` is not a collection, or another argument is not a number.
    """

    moments: ClassVar[int] = 1

    def __init__(self, m: ParameterCollection, learning_rate: float = 0.01, mom: float = 0.9) -> None:
        super().__init__(m, learning_rate)
        self._momentum = finite(mom, "mom")

    def _factors(self) -> dict[str, float]:
        return {"momentum": self._momentum, "lr": self.learning_rate}

    def rule(self, value: Tensor, gradient: Tensor, moments: list[Tensor]) -> None:
        step = moments[0].mul_(self._momentum).add_(gradient, alpha=-self.learning_rate)
        value.add_(step)


class AdagradTrainer(Trainer, native="adagrad"):
    """Adagrad: steps divided by the root of the sum of squared gradients.

    Raises:
        ArgumentError: a number is outside its range.
        ForeignValueError: `m` is not a collection, or another argument is not a number.

    Source: Duchi, Hazan, Singer, "Adaptive subgradient methods", 2011.
    """

    moments: ClassVar[int] = 1

    def __init__(self, m: ParameterCollection, learning_rate: float = 0.1, eps: float = 1e-20) -> None:
        super().__init__(m, learning_rate)
        self._eps = number_from(eps, 0.0, "eps")

    def _factors(self) -> dict[str, float]:
        return {"epsilon": self._eps, "lr": self.learning_rate}

    def rule(self, value: Tensor, gradient: Tensor, moments: list[Tensor]) -> None:
        total = moments[0].addcmul_(gradient, gradient)
        value.addcdiv_(gradient, (total + self._eps).sqrt_(), value=-self.learning_rate)


class AdadeltaTrainer(Trainer, native="adadelta"):
    """Adadelta: steps scaled by past steps and divided by the root of mean squared gradients.

    Args:
        rho: decay rate of the means, from 0 to 1.

    Raises:
        ArgumentError: a number is outside its range.
        ForeignValueError: `m` is not a collection, or another argument is not a number.

    Source: Zeiler, "ADADELTA: an adaptive learning rate method", 2012.
    """

    moments: ClassVar[int] = 2

    def __init__(self, m: ParameterCollection, eps: float = 1e-6, rho: float = 0.95) -> None:
        super().__init__(m, 1.0)
        self._eps, self._rho = number_from(eps, 0.0, "eps"), probability(rho, "rho")

    def _factors(self) -> dict[str, float]:
        return {"gamma1": self._rho, "epsilon": self._eps}

    def rule(self, value: Tensor, gradient: Tensor, moments: list[Tensor]) -> None:
        squares, steps = moments
        squares.mul_(self._rho).addcmul_(gradient, gradient, value=1.0 - self._rho)
        step = -gradient * (steps + self._eps).sqrt_() / (squares + self._eps).sqrt_()
        steps.mul_(self._rho).addcmul_(step, step, value=1.0 - self._rho)
        value.add_(step)


class RMSPropTrainer(Trainer, native="rmsprop"):
    """RMSProp: steps divided by the root of a moving mean of squared gradients.

    Args:
        rho: decay rate of the means, from 0 to 1.

    Raises:
        ArgumentError: a number is outside its range.
        ForeignValueError: `m` is not a collection, or another argument is not a number.

    Source: Tieleman and Hinton, "Lecture 6.5: rmsprop", 2012, as in DyNet.
    """

    moments: ClassVar[int] = 1

    def __init__(
        self, m: ParameterCollection, learning_rate: float = 0.001, eps: float = 1e-8, rho: float = 0.9
    ) -> None:
        super().__init__(m, learning_rate)
        self._eps, self._rho = number_from(eps, 0.0, "eps"), probability(rho, "rho")

    def _factors(self) -> dict[str, float]:
        return {"gamma1": self._rho, "epsilon": self._eps, "lr": self.learning_rate}

    def rule(self, value: Tensor, gradient: Tensor, moments: list[Tensor]) -> None:
        mean = moments[0].mul_(self._rho).addcmul_(gradient, gradient, value=1.0 - self._rho)
        value.addcdiv_(gradient, (mean + self._eps).sqrt_(), value=-self.learning_rate)


class AdamTrainer(Trainer, native="adam"):
    """Adam: steps along a moving mean of gradients, divided by the root of the mean of squares.

    Args:
        beta_1: decay rate of the mean of gradients, in [0, 1).
        beta_2: decay rate of the mean of squares, in [0, 1).

    Raises:
        ArgumentError: a number is outside its range.
        ForeignValueError: `m` is not a collection, or another argument is not a number.

    Source: Kingma and Ba, "Adam: a method for stochastic optimization", 2015; as in DyNet, `eps` is added before the
    correction of the bias, and rows of tables that are not looked up keep their moments.
    """

    moments: ClassVar[int] = 2

    def __init__(
        self,
        m: ParameterCollection,
        alpha: float = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        eps: float = 1e-8,
    ) -> None:
        super().__init__(m, alpha)
        self._beta_1, self._beta_2 = below_one(beta_1, "beta_1"), below_one(beta_2, "beta_2")
        self._eps = number_from(eps, 0.0, "eps")

    def _rate(self) -> float:
        count = self.updates + 1
        return self.learning_rate * math.sqrt(1.0 - self._beta_2**count) / (1.0 - self._beta_1**count)

    def _factors(self) -> dict[str, float]:
        return {"beta1": self._beta_1, "beta2": self._beta_2, "lr": self._rate(), "epsilon": self._eps}

    def rule(self, value: Tensor, gradient: Tensor, moments: list[Tensor]) -> None:
        mean, square = moments[:2]
        mean.lerp_(gradient, 1.0 - self._beta_1)
        square.mul_(self._beta_2).addcmul_(gradient, gradient, value=1.0 - self._beta_2)
        value.addcdiv_(mean, self._divisor(moments).sqrt().add_(self._eps), value=-self._rate())

    def _divisor(self, moments: list[Tensor]) -> Tensor:
        """Return the mean of squares for the divisor of steps."""
        return moments[1]


class AmsgradTrainer(AdamTrainer, native="amsgrad"):
    """Amsgrad: Adam divided by the maximum of the means of squares.

    Args:
        beta_1: decay rate of the mean of gradients, in [0, 1).
        beta_2: decay rate of the mean of squares, in [0, 1).

    Raises:
        ArgumentError: a number is outside its range.
        ForeignValueError: `m` is not a collection, or another argument is not a number.

    Source: Reddi, Kale, Kumar, "On the convergence of Adam and beyond", 2018.
    """

    moments: ClassVar[int] = 3

    def _divisor(self, moments: list[Tensor]) -> Tensor:
        _, square, greatest = moments
        return torch.maximum(greatest, square, out=greatest)

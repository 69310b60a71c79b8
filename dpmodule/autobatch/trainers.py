"""Trainers: DyNet's update rules for the parameters of a collection."""

from __future__ import annotations

import math
from typing import ClassVar

import torch

from .arguments import below_one, finite, number, number_from, probability
from .collection import ParameterCollection
from .errors import ArgumentError, user_line
from .trainer import Trainer as Trainer

Tensor = torch.Tensor


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

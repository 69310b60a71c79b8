"""Optimizers with Paddle's names and arguments; `minimize` sets the optimizer of a program.

The formulas are those of MXNet; docs/fluid.md lists the differences from Paddle.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from .. import optimizer as opt
from .._core import lazy
from ..base import ArgumentError
from ..lr_scheduler import LRScheduler
from .clip import GradientClipByGlobalNorm, GradientClipByValue, check_clip
from .variable import L2Decay, Parameter, Variable

_TINY = 1e-8
"""Replaces 0 where MXNet would divide 0 by 0."""


@dataclass(frozen=True)
class Update:
    """Update of a parameter, from `minimize`.

    Args:
        type: name of the rule, such as "adagrad".
        parameter: the trained parameter.
    """

    type: str
    parameter: Parameter


class Optimizer:
    """Optimizer of a program; created by the functions below.

    Args:
        kind: name of MXNet's optimizer.
        learning_rate: a number, or a schedule of `layers` or `mx.lr_scheduler`.
        regularization: weight decay of parameters without their own.
        grad_clip: limit of gradients, of `fluid.clip`; None: that of `fluid.clip.set_gradient_clip`.
        arguments: further arguments of MXNet's optimizer.

    Raises:
        ArgumentError: the rate is not a number from 0 or a schedule, `regularization` is not an `L2Decay`, or
            `grad_clip` is not a limit.
    """

    def __init__(
        self,
        kind: str,
        learning_rate: Any,
        regularization: Any,
        grad_clip: Any,
        arguments: Mapping[str, Any],
    ) -> None:
        is_number = isinstance(learning_rate, Real) and not isinstance(learning_rate, bool)
        if not isinstance(learning_rate, LRScheduler) and not (is_number and learning_rate >= 0):
            raise ArgumentError(
                f"learning_rate is {learning_rate!r}, expected a number from 0, or a schedule such as "
                "fluid.layers.exponential_decay(...)"
            )
        if regularization is not None and not isinstance(regularization, L2Decay):
            raise ArgumentError(
                f"regularization is {regularization!r}, expected L2Decay(coefficient) or None"
            )
        if grad_clip is not None:
            check_clip("grad_clip", grad_clip)
        self.kind = kind
        self._clip = grad_clip
        self._decay = 0.0 if regularization is None else regularization.coefficient
        self._arguments = dict(arguments)
        if is_number:
            self._arguments["learning_rate"] = float(learning_rate)
        else:
            self._arguments |= {
                "lr_scheduler": learning_rate,
                "learning_rate": None,
            }  # the schedule's, no default

    def __repr__(self) -> str:
        arguments = ", ".join(f"{key}={value!r}" for key, value in self._arguments.items())
        return f"<fluid optimizer {self.kind}: {arguments}>"

    def minimize(
        self,
        loss: Any,
        startup_program: Any = None,
        parameter_list: Sequence[Any] | None = None,
        no_grad_set: Collection[Any] | None = None,
    ) -> tuple[list[Update], list[tuple[Parameter, str]]]:
        """Set a program to minimize a loss.

        Args:
            loss: a scalar variable, such as the result of `layers.mean`.
            startup_program: ignored; states are zeros before the first batch.
            parameter_list: variables or names to train; None: all that the loss depends on.
            no_grad_set: variables or names not to train.

        Returns:
            A list with an `Update` for each parameter, and a list of pairs of a parameter and the name of its gradient.

        Raises:
            ArgumentError: the loss is not a scalar, or does not depend on a trained parameter; or gradients are clipped
                by their global norm, and the loss depends on a parameter that is not trained.
            StateError: the program already has an optimizer.
        """
        if not isinstance(loss, Variable) or loss.shape not in ((1,), ()):
            raise ArgumentError(
                f"minimize: loss is {loss!r}, expected a scalar variable, such as the result of layers.mean"
            )
        program = loss.program
        names = set(loss.symbol.list_arguments())
        reached = [parameter for parameter in program.all_parameters() if parameter.name in names]
        trained = [
            parameter
            for parameter in reached
            if parameter.trainable and _is_chosen(parameter, parameter_list, no_grad_set)
        ]
        if not trained:
            raise ArgumentError(f"minimize: {loss.name!r} does not depend on a parameter to train")
        clip = program.gradient_clip if self._clip is None else self._clip
        norm = clip.clip_norm if isinstance(clip, GradientClipByGlobalNorm) else None
        still = sorted({each.name for each in reached if each.trainable} - {each.name for each in trained})
        if norm is not None and still:
            raise ArgumentError(
                f"minimize: {still[0]!r} is not trained, but would count in the global norm of gradients; use "
                "fluid.clip.GradientClipByValue, or train it"
            )
        limit = clip.max if isinstance(clip, GradientClipByValue) else None
        program.train_for(loss, self._optimizer_factory(reached, trained, limit), norm)
        updates = [Update(self.kind, parameter) for parameter in trained]
        return updates, [(parameter, f"{parameter.name}@GRAD") for parameter in trained]

    def _optimizer_factory(
        self, reached: Sequence[Parameter], trained: Sequence[Parameter], limit: float | None
    ) -> Callable[[], opt.Optimizer]:
        """Return a function that creates MXNet's optimizer with zero counts."""
        chosen = {each.name for each in trained}
        rates = {each.name: each.attr.learning_rate if each.name in chosen else 0.0 for each in reached}
        decays = {
            each.name: self._decay if each.attr.regularizer is None else each.attr.regularizer.coefficient
            for each in reached
        }

        def make() -> opt.Optimizer:
            decay = 1.0 if any(decays.values()) else 0.0
            optimizer = opt.create(
                self.kind, wd=decay, rescale_grad=1.0, clip_gradient=limit, **self._arguments
            )
            optimizer.set_lr_mult(rates)
            optimizer.set_wd_mult(decays)
            return optimizer

        return make


def _is_chosen(parameter: Parameter, wanted: Any, unwanted: Any) -> bool:
    def names(given: Any) -> set[str]:
        return {each if isinstance(each, str) else each.name for each in given}

    return (wanted is None or parameter.name in names(wanted)) and parameter.name not in names(unwanted or ())


def SGD(
    learning_rate: Any, regularization: Any = None, name: str | None = None, grad_clip: Any = None
) -> Optimizer:
    """Return gradient descent: ``w -= lr * (g + decay * w)``."""
    return Optimizer("sgd", learning_rate, regularization, grad_clip, {})


def Momentum(
    learning_rate: Any,
    momentum: float,
    use_nesterov: bool = False,
    regularization: Any = None,
    name: str | None = None,
    grad_clip: Any = None,
) -> Optimizer:
    """Return gradient descent with momentum: ``v = momentum * v + g``, ``w -= lr * v`` for a constant rate.

    Args:
        momentum: momentum factor.
        use_nesterov: whether to use Nesterov's momentum.
    """
    return Optimizer(
        "nag" if use_nesterov else "sgd", learning_rate, regularization, grad_clip, {"momentum": momentum}
    )


def Adagrad(
    learning_rate: Any,
    epsilon: float = 1.0e-6,
    regularization: Any = None,
    name: str | None = None,
    initial_accumulator_value: float = 0.0,
    grad_clip: Any = None,
) -> Optimizer:
    """Return AdaGrad: ``h += g ** 2``, ``w -= lr * (g / sqrt(h + epsilon ** 2) + decay * w)``.

    Paddle divides by ``sqrt(h) + epsilon``. With the square of epsilon below the root, the step is the same if h is far
    from that square, and otherwise up to 1.41 times as large.

    Args:
        initial_accumulator_value: must be 0.

    Raises:
        ArgumentError: `initial_accumulator_value` is not 0.
    """
    if initial_accumulator_value != 0:
        raise ArgumentError(
            f"Adagrad: initial_accumulator_value is {initial_accumulator_value!r}, expected 0"
        )
    return Optimizer("adagrad", learning_rate, regularization, grad_clip, {"eps": epsilon**2})


def Adam(
    learning_rate: Any = 0.001,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    regularization: Any = None,
    name: str | None = None,
    lazy_mode: bool = False,
    grad_clip: Any = None,
) -> Optimizer:
    """Return Adam.

    Args:
        beta1: decay rate of the mean.
        beta2: decay rate of the mean square.
        lazy_mode: whether a sparse gradient updates only its rows and their means.
    """
    given = {"beta1": beta1, "beta2": beta2, "epsilon": epsilon, "lazy_update": lazy_mode}
    return Optimizer("adam", learning_rate, regularization, grad_clip, given)


def Adamax(
    learning_rate: Any = 0.001,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    regularization: Any = None,
    name: str | None = None,
    grad_clip: Any = None,
) -> Optimizer:
    """Return Adamax.

    Args:
        beta1: decay rate of the mean.
        beta2: decay rate of the maximum.
        epsilon: must be 1e-8.

    Raises:
        ArgumentError: `epsilon` is not 1e-8.
    """
    if epsilon != _TINY:
        raise ArgumentError(f"Adamax: epsilon is {epsilon!r}, expected {_TINY}")
    return Optimizer("adamax", learning_rate, regularization, grad_clip, {"beta1": beta1, "beta2": beta2})


def Ftrl(
    learning_rate: Any,
    l1: float = 0.0,
    l2: float = 0.0,
    lr_power: float = -0.5,
    regularization: Any = None,
    name: str | None = None,
    grad_clip: Any = None,
) -> Optimizer:
    """Return FTRL-proximal.

    Args:
        lr_power: must be -0.5.

    Raises:
        ArgumentError: `lr_power` is not -0.5, or both `l2` and `regularization` are given, which are the same here.
    """
    if lr_power != -0.5:
        raise ArgumentError(f"Ftrl: lr_power is {lr_power!r}, expected -0.5")
    if l2 and regularization is not None:
        raise ArgumentError("Ftrl: l2 and regularization both set the weight decay; give only one")
    decay = L2Decay(2.0 * l2) if l2 else regularization
    return Optimizer("ftrl", learning_rate, decay, grad_clip, {"lamda1": l1, "beta": _TINY})


def RMSProp(
    learning_rate: Any,
    rho: float = 0.95,
    epsilon: float = 1e-6,
    momentum: float = 0.0,
    centered: bool = False,
    regularization: Any = None,
    name: str | None = None,
    grad_clip: Any = None,
) -> Optimizer:
    """Return RMSProp, plain or centered.

    Args:
        rho: decay rate of the means.
        momentum: momentum factor; only with `centered`.
        centered: whether to subtract the square of the mean.

    Raises:
        ArgumentError: `momentum` is given without `centered`, which MXNet does not support.
    """
    if momentum and not centered:
        raise ArgumentError(f"RMSProp: momentum is {momentum!r}, expected 0, or centered=True")
    given: dict[str, Any] = {"gamma1": rho, "epsilon": epsilon, "centered": centered}
    return Optimizer(
        "rmsprop",
        learning_rate,
        regularization,
        grad_clip,
        given | ({"gamma2": momentum} if centered else {}),
    )


SGDOptimizer, MomentumOptimizer, AdagradOptimizer = SGD, Momentum, Adagrad
AdamOptimizer, FtrlOptimizer, RMSPropOptimizer = Adam, Ftrl, RMSProp
AdamaxOptimizer = Adamax

__all__ = lazy.own_names(vars())
lazy.publish(__name__, __all__)

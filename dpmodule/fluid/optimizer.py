"""Optimizers with Paddle's names and arguments; `minimize` sets the optimizer of a program.

The formulas are those of MXNet; docs/fluid.md lists the differences from Paddle.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from .. import optimizer as opt
from .. import symbol as sym
from .._core import lazy
from ..base import ArgumentError, StateError
from ..lr_scheduler import LRScheduler
from ..symbol import Symbol
from .clip import Clip, GradientClipByGlobalNorm, GradientClipByNorm, GradientClipByValue, check_clip
from .variable import Decay, L1Decay, L2Decay, Parameter, Variable

_TINY = 1e-8
"""Replaces 0 where MXNet would divide 0 by 0."""


@dataclass(frozen=True)
class Update:
    """Update of a parameter, from `minimize`.

    Args:
        type: name of the rule, such as "adam".
        parameter: the trained parameter.
    """

    type: str
    parameter: Parameter


_TYPES: dict[str, Any] = {
    "parameter_list": (list, tuple),
    "use_nesterov": bool,
    "regularization": Decay,
    "grad_clip": Clip,
    "name": str,
    "lazy_mode": bool,
}
"""Types of the arguments after those of the rule."""


def _by_type(**given: Any) -> dict[str, Any]:
    """Return arguments, each in the place that its type has; positional ones may be in the order of Paddle 1.3."""
    found = dict.fromkeys(given)
    for name, value in given.items():
        home = name
        if value is not None and not isinstance(value, _TYPES[name]):
            home = next((other for other in given if isinstance(value, _TYPES[other])), name)
        if found[home] in (None, False):
            found[home] = value
    return found


class Optimizer:
    """Optimizer of a program; created by the functions below.

    Args:
        kind: name of MXNet's optimizer.
        learning_rate: a number, or a schedule of `layers` or `mx.lr_scheduler`.
        arguments: further arguments of MXNet's optimizer.
        parameter_list: variables or names to train, for `minimize`; None: all.
        regularization: weight decay of parameters without their own.
        grad_clip: limit of gradients, of `fluid.clip`; None: that of `fluid.clip.set_gradient_clip`.
        name: ignored.
        keeps_weight: function of a parameter, True if it has no weight decay; None: all have it.

    Raises:
        ArgumentError: the rate is not a number from 0 or a schedule, another setting is not a number, `regularization`
            is not a decay, or `grad_clip` is not a limit.
    """

    def __init__(
        self,
        kind: str,
        learning_rate: Any,
        arguments: Mapping[str, Any],
        parameter_list: Any = None,
        regularization: Any = None,
        grad_clip: Any = None,
        name: Any = None,
        keeps_weight: Callable[[Parameter], bool] | None = None,
    ) -> None:
        is_number = isinstance(learning_rate, Real) and not isinstance(learning_rate, bool)
        if not isinstance(learning_rate, LRScheduler) and not (is_number and learning_rate >= 0):
            raise ArgumentError(
                f"learning_rate is {learning_rate!r}, expected a number from 0, or a schedule such as "
                "fluid.layers.exponential_decay(...)"
            )
        for key, value in arguments.items():
            if not isinstance(value, Real):
                raise ArgumentError(f"{key} of the optimizer is {value!r}, expected a number")
        if regularization is not None and not isinstance(regularization, Decay):
            raise ArgumentError(
                f"regularization is {regularization!r}, expected L2Decay(coefficient), L1Decay(coefficient) or None"
            )
        if grad_clip is not None:
            check_clip("grad_clip", grad_clip)
        if parameter_list is not None and not isinstance(parameter_list, (list, tuple)):
            raise ArgumentError(
                f"parameter_list is {parameter_list!r}, expected a list of parameters or None"
            )
        self.kind = kind
        self._clip = grad_clip
        self._parameters = parameter_list
        self._decay = regularization
        self._keeps_weight = keeps_weight
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
        grad_clip: Any = None,
    ) -> tuple[list[Update], list[tuple[Parameter, str]]]:
        """Set a program to minimize a loss.

        Args:
            loss: a scalar variable, such as the result of `layers.mean`.
            startup_program: ignored; states are zeros before the first batch.
            parameter_list: variables or names to train; None: those of the optimizer, or all that the loss depends on.
            no_grad_set: variables or names not to train.
            grad_clip: limit of gradients; None: that of the optimizer.

        Returns:
            A list with an `Update` for each parameter, and a list of pairs of a parameter and the name of its gradient.

        Raises:
            ArgumentError: the loss is not a scalar, or does not depend on a trained parameter; or gradients are clipped
                by their global norm, and the loss depends on a parameter that is not trained, or on one with an
                `L1Decay`.
            StateError: the program already has an optimizer.
        """
        if grad_clip is not None:
            check_clip("grad_clip", grad_clip)
        chosen = self._parameters if parameter_list is None else parameter_list
        reached, trained = trained_parameters("minimize", loss, chosen, no_grad_set)
        program = loss.program
        clip = next(
            (each for each in (grad_clip, self._clip, program.gradient_clip) if each is not None), None
        )
        still = sorted({each.name for each in reached if each.trainable} - {each.name for each in trained})
        if isinstance(clip, GradientClipByGlobalNorm) and still:
            raise ArgumentError(
                f"minimize: {still[0]!r} is not trained, but would count in the global norm of gradients; use "
                "fluid.clip.GradientClipByValue, or train it"
            )
        norm_limit = None
        if isinstance(clip, (GradientClipByGlobalNorm, GradientClipByNorm)):
            norm_limit = ("each" if isinstance(clip, GradientClipByNorm) else "global", clip.clip_norm)
        penalty = self._penalty(trained)
        if clip is not None and penalty is not None:
            raise ArgumentError(
                "minimize: L1Decay and limits of gradients are not supported together; use L2Decay"
            )
        limit = clip.max if isinstance(clip, GradientClipByValue) else None
        make = self._optimizer_factory(reached, trained, limit, norm_limit)
        program.train_for(loss, make, penalty)
        updates = [Update(self.kind, parameter) for parameter in trained]
        return updates, [(parameter, f"{parameter.name}@GRAD") for parameter in trained]

    def backward(
        self,
        loss: Any,
        startup_program: Any = None,
        parameter_list: Sequence[Any] | None = None,
        no_grad_set: Collection[Any] | None = None,
        callbacks: Any = None,
    ) -> list[tuple[Parameter, str]]:
        """Return the parameters that a loss trains, for `apply_gradients`; see `fluid.backward.append_backward`.

        Args:
            startup_program: ignored.
            callbacks: accepted.
        """
        return append_backward(
            loss, self._parameters if parameter_list is None else parameter_list, no_grad_set
        )

    def apply_gradients(self, params_grads: Sequence[tuple[Parameter, str]]) -> list[Update]:
        """Set a program to minimize the loss of `backward`.

        Args:
            params_grads: the pairs of `backward` or `append_backward`; parameters without a pair are not trained.

        Raises:
            ArgumentError: as for `minimize`.
            StateError: the program already has an optimizer, or `backward` has not been called.
        """
        pairs = list(params_grads)
        loss = pairs[0][0].program.differentiated if pairs else None
        if loss is None:
            raise StateError(
                "apply_gradients: call backward(loss) of the optimizer first, and pass its pairs"
            )
        return self.minimize(loss, parameter_list=[parameter for parameter, _ in pairs])[0]

    def _decay_of(self, parameter: Parameter, kind: type[Decay]) -> float:
        """Return the coefficient of a parameter's weight decay, 0 if it is of another kind."""
        decay = self._decay if parameter.attr.regularizer is None else parameter.attr.regularizer
        if not isinstance(decay, kind) or self._keeps_weight is not None and self._keeps_weight(parameter):
            return 0.0
        return decay.coefficient

    def _penalty(self, trained: Sequence[Parameter]) -> Symbol | None:
        """Return the sum of the L1 decays, None if there are none."""
        terms = [
            sym.sum(sym.abs(each.symbol)) * coefficient
            for each in trained
            if (coefficient := self._decay_of(each, L1Decay))
        ]
        return sym.add_n(*terms) if terms else None

    def _optimizer_factory(
        self, reached: Sequence[Parameter], trained: Sequence[Parameter], limit: float | None, norm_limit: Any
    ) -> Callable[[], opt.Optimizer]:
        """Return a function that creates MXNet's optimizer with zero counts."""
        chosen = {each.name for each in trained}
        rates = {each.name: each.attr.learning_rate if each.name in chosen else 0.0 for each in reached}
        decays = {each.name: self._decay_of(each, L2Decay) for each in reached}

        def make() -> opt.Optimizer:
            decay = 1.0 if any(decays.values()) else 0.0
            optimizer = opt.create(
                self.kind, wd=decay, rescale_grad=1.0, clip_gradient=limit, **self._arguments
            )
            optimizer.set_lr_mult(rates)
            optimizer.set_wd_mult(decays)
            if norm_limit is not None:
                vars(optimizer)["norm_limit"] = norm_limit  # for `limit_norms` of workers
            return optimizer

        return make


def trained_parameters(
    call: str, loss: Any, wanted: Any, unwanted: Any
) -> tuple[list[Parameter], list[Parameter]]:
    """Return the parameters that a loss depends on, and those of them to train.

    Raises:
        ArgumentError: the loss is not a scalar, or no parameter can be trained.
    """
    if not isinstance(loss, Variable) or loss.shape not in ((1,), ()):
        raise ArgumentError(
            f"{call}: loss is {loss!r}, expected a scalar variable, such as the result of layers.mean"
        )
    names = set(loss.symbol.list_arguments())
    reached = [parameter for parameter in loss.program.all_parameters() if parameter.name in names]
    trained = [each for each in reached if each.trainable and _is_chosen(each, wanted, unwanted)]
    if not trained:
        raise ArgumentError(f"{call}: {loss.name!r} does not depend on a parameter to train")
    return reached, trained


def append_backward(
    loss: Any,
    parameter_list: Sequence[Any] | None = None,
    no_grad_set: Collection[Any] | None = None,
    callbacks: Any = None,
    checkpoints: Any = None,
) -> list[tuple[Parameter, str]]:
    """Return the parameters that a loss trains, each with the name of its gradient.

    Give the pairs to `apply_gradients` of an optimizer.

    Args:
        loss: a scalar variable, such as the result of `layers.mean`.
        parameter_list: variables or names to train; None: all that the loss depends on.
        no_grad_set: variables or names not to train.
        callbacks: accepted.
        checkpoints: accepted.

    Raises:
        ArgumentError: the loss is not a scalar, or does not depend on a trained parameter.

    Source: Paddle 1.8 `append_backward`.
    """
    _, trained = trained_parameters("append_backward", loss, parameter_list, no_grad_set)
    loss.program.differentiated = loss
    return [(parameter, f"{parameter.name}@GRAD") for parameter in trained]


def _is_chosen(parameter: Parameter, wanted: Any, unwanted: Any) -> bool:
    def names(given: Any) -> set[str]:
        return {each if isinstance(each, str) else each.name for each in given}

    return (wanted is None or parameter.name in names(wanted)) and parameter.name not in names(unwanted or ())


# arguments in the order of Paddle 1.8; those of 1.3, where regularization comes first, are known by their types


def SGD(
    learning_rate: Any,
    parameter_list: Any = None,
    regularization: Any = None,
    grad_clip: Any = None,
    name: Any = None,
) -> Optimizer:
    """Return gradient descent: ``w -= lr * (g + decay * w)``."""
    rest = _by_type(
        parameter_list=parameter_list, regularization=regularization, grad_clip=grad_clip, name=name
    )
    return Optimizer("sgd", learning_rate, {}, **rest)


def Momentum(
    learning_rate: Any,
    momentum: float,
    parameter_list: Any = None,
    use_nesterov: Any = False,
    regularization: Any = None,
    grad_clip: Any = None,
    name: Any = None,
) -> Optimizer:
    """Return gradient descent with momentum: ``v = momentum * v + g``, ``w -= lr * v``.

    Args:
        momentum: momentum factor.
        use_nesterov: whether to use Nesterov's momentum.
    """
    rest = _by_type(
        parameter_list=parameter_list,
        use_nesterov=use_nesterov,
        regularization=regularization,
        grad_clip=grad_clip,
        name=name,
    )
    nesterov = bool(rest.pop("use_nesterov"))
    if isinstance(learning_rate, Real) and not nesterov:  # the same, with rules in all engines
        return Optimizer("sgd", learning_rate, {"momentum": momentum}, **rest)
    return Optimizer("plainmomentum", learning_rate, {"momentum": momentum, "nesterov": nesterov}, **rest)


def LarsMomentum(
    learning_rate: Any,
    momentum: float,
    lars_coeff: float = 0.001,
    lars_weight_decay: float = 0.0005,
    parameter_list: Any = None,
    regularization: Any = None,
    grad_clip: Any = None,
    name: Any = None,
) -> Optimizer:
    """Return momentum with a rate for each parameter: ``lr * lars_coeff * norm(w) / (norm(g) + decay * norm(w))``.

    Names that end in ``_bias`` keep the rate, as in MXNet.

    Args:
        momentum: momentum factor.
        lars_coeff: factor of the rates.
        lars_weight_decay: weight decay of all parameters.

    Raises:
        ArgumentError: `regularization` is given, which is the same here.

    Source: You, Gitman and Ginsburg, "Large batch training of convolutional networks", 2017.
    """
    rest = _by_type(
        parameter_list=parameter_list, regularization=regularization, grad_clip=grad_clip, name=name
    )
    rest["regularization"] = _only_decay("LarsMomentum", "lars_weight_decay", lars_weight_decay, rest)
    given = {"momentum": momentum, "eta": lars_coeff, "momentum_correction": False}
    return Optimizer("lars", learning_rate, given, **rest)


def _only_decay(rule: str, name: str, coefficient: float, rest: Mapping[str, Any]) -> L2Decay:
    if rest["regularization"] is not None:
        raise ArgumentError(f"{rule}: {name} and regularization both set the weight decay; give only one")
    return L2Decay(coefficient)


def Adagrad(
    learning_rate: Any,
    epsilon: float = 1.0e-6,
    parameter_list: Any = None,
    regularization: Any = None,
    grad_clip: Any = None,
    name: Any = None,
    initial_accumulator_value: float = 0.0,
) -> Optimizer:
    """Return AdaGrad: ``h += g ** 2``, ``w -= lr * g / (sqrt(h) + epsilon)``.

    Args:
        initial_accumulator_value: must be 0.

    Raises:
        ArgumentError: `initial_accumulator_value` is not 0.
    """
    if initial_accumulator_value != 0:
        raise ArgumentError(
            f"Adagrad: initial_accumulator_value is {initial_accumulator_value!r}, expected 0"
        )
    rest = _by_type(
        parameter_list=parameter_list, regularization=regularization, grad_clip=grad_clip, name=name
    )
    return Optimizer("plainadagrad", learning_rate, {"eps": epsilon}, **rest)


def DecayedAdagrad(
    learning_rate: Any,
    decay: float = 0.95,
    epsilon: float = 1.0e-6,
    parameter_list: Any = None,
    regularization: Any = None,
    grad_clip: Any = None,
    name: Any = None,
) -> Optimizer:
    """Return AdaGrad with a moving mean of squares: ``h = decay * h + (1 - decay) * g ** 2``.

    The step is ``lr * g / sqrt(h + epsilon ** 2)``, and in Paddle ``lr * g / (sqrt(h) + epsilon)``: they differ only if
    h is about as small as ``epsilon ** 2``.

    Args:
        decay: decay rate of the mean.
    """
    rest = _by_type(
        parameter_list=parameter_list, regularization=regularization, grad_clip=grad_clip, name=name
    )
    return Optimizer("rmsprop", learning_rate, {"gamma1": decay, "epsilon": epsilon**2}, **rest)


def Adadelta(
    learning_rate: Any,
    epsilon: float = 1.0e-6,
    rho: float = 0.95,
    parameter_list: Any = None,
    regularization: Any = None,
    grad_clip: Any = None,
    name: Any = None,
) -> Optimizer:
    """Return AdaDelta, whose steps do not depend on the learning rate.

    Weight decay is added to the step, not to the gradient.

    Args:
        learning_rate: ignored, as in Paddle.
        rho: decay rate of the means of squares.

    Source: Zeiler, "ADADELTA: An adaptive learning rate method", 2012.
    """
    rest = _by_type(
        parameter_list=parameter_list, regularization=regularization, grad_clip=grad_clip, name=name
    )
    return Optimizer("adadelta", learning_rate, {"rho": rho, "epsilon": epsilon}, **rest)


def Adam(
    learning_rate: Any = 0.001,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    parameter_list: Any = None,
    regularization: Any = None,
    grad_clip: Any = None,
    name: Any = None,
    lazy_mode: Any = False,
) -> Optimizer:
    """Return Adam.

    Args:
        beta1: decay rate of the mean.
        beta2: decay rate of the mean square.
        lazy_mode: whether a sparse gradient updates only its rows and their means.
    """
    rest = _by_type(
        parameter_list=parameter_list,
        regularization=regularization,
        grad_clip=grad_clip,
        name=name,
        lazy_mode=lazy_mode,
    )
    given = {"beta1": beta1, "beta2": beta2, "epsilon": epsilon, "lazy_update": bool(rest.pop("lazy_mode"))}
    return Optimizer("adam", learning_rate, given, **rest)


def Adamax(
    learning_rate: Any = 0.001,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    parameter_list: Any = None,
    regularization: Any = None,
    grad_clip: Any = None,
    name: Any = None,
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
    rest = _by_type(
        parameter_list=parameter_list, regularization=regularization, grad_clip=grad_clip, name=name
    )
    return Optimizer("adamax", learning_rate, {"beta1": beta1, "beta2": beta2}, **rest)


def Lamb(
    learning_rate: Any = 0.001,
    lamb_weight_decay: float = 0.01,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-6,
    parameter_list: Any = None,
    regularization: Any = None,
    grad_clip: Any = None,
    exclude_from_weight_decay_fn: Callable[[Parameter], bool] | None = None,
    name: Any = None,
) -> Optimizer:
    """Return Adam with a rate for each parameter, by the ratio of its norm and that of the step, as in Paddle 1.8.

    The means are not corrected for their zero initialization.

    Args:
        lamb_weight_decay: weight decay of all parameters.
        beta1: decay rate of the mean.
        beta2: decay rate of the mean square.
        exclude_from_weight_decay_fn: function of a parameter, True if it has no weight decay.

    Raises:
        ArgumentError: `regularization` is given, which is the same here.

    Source: You et al., "Large batch optimization for deep learning: training BERT in 76 minutes", 2019.
    """
    rest = _by_type(
        parameter_list=parameter_list, regularization=regularization, grad_clip=grad_clip, name=name
    )
    rest["regularization"] = _only_decay("Lamb", "lamb_weight_decay", lamb_weight_decay, rest)
    given = {"beta1": beta1, "beta2": beta2, "epsilon": epsilon, "bias_correction": False}
    return Optimizer("lamb", learning_rate, given, **rest, keeps_weight=exclude_from_weight_decay_fn)


def Ftrl(
    learning_rate: Any,
    l1: float = 0.0,
    l2: float = 0.0,
    lr_power: float = -0.5,
    parameter_list: Any = None,
    regularization: Any = None,
    grad_clip: Any = None,
    name: Any = None,
) -> Optimizer:
    """Return FTRL-proximal.

    Args:
        lr_power: must be -0.5.

    Raises:
        ArgumentError: `lr_power` is not -0.5, or both `l2` and `regularization` are given, which are the same here.
    """
    if lr_power != -0.5:
        raise ArgumentError(f"Ftrl: lr_power is {lr_power!r}, expected -0.5")
    rest = _by_type(
        parameter_list=parameter_list, regularization=regularization, grad_clip=grad_clip, name=name
    )
    if l2:
        rest["regularization"] = _only_decay("Ftrl", "l2", 2.0 * l2, rest)
    return Optimizer("ftrl", learning_rate, {"lamda1": l1, "beta": _TINY}, **rest)


def RMSProp(
    learning_rate: Any,
    rho: float = 0.95,
    epsilon: float = 1e-6,
    momentum: float = 0.0,
    centered: bool = False,
    parameter_list: Any = None,
    regularization: Any = None,
    grad_clip: Any = None,
    name: Any = None,
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
    rest = _by_type(
        parameter_list=parameter_list, regularization=regularization, grad_clip=grad_clip, name=name
    )
    given: dict[str, Any] = {"gamma1": rho, "epsilon": epsilon, "centered": centered}
    return Optimizer("rmsprop", learning_rate, given | ({"gamma2": momentum} if centered else {}), **rest)


SGDOptimizer, MomentumOptimizer, LarsMomentumOptimizer = SGD, Momentum, LarsMomentum
AdagradOptimizer, DecayedAdagradOptimizer, AdadeltaOptimizer = Adagrad, DecayedAdagrad, Adadelta
AdamOptimizer, AdamaxOptimizer, LambOptimizer = Adam, Adamax, Lamb
FtrlOptimizer, RMSPropOptimizer = Ftrl, RMSProp

__all__ = [name for name in lazy.own_names(vars()) if name not in ("append_backward", "trained_parameters")]
lazy.publish(__name__, __all__)

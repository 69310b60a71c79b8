"""Operators named ``_contrib_*`` as functions of arrays, such as ``nd.contrib.box_nms``, and control flow.

Loops and branches are plain Python; under `autograd.record` every step is recorded.

Source: MXNet 1.9.1 `ndarray.contrib`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from .._core import lazy
from ..base import ArgumentError, ShapeError
from .creation import full, zeros
from .handle import Handle
from .ndarray import NDArray
from .op_functions import names_in, op_function, op_function_in

if TYPE_CHECKING:
    from ..types import ContextLike, Number

__all__ = [
    "adamw_update",
    "cond",
    "foreach",
    "isfinite",
    "isinf",
    "isnan",
    "mp_adamw_update",
    "multi_adamw_update",
    "multi_lamb_update",
    "multi_mp_adamw_update",
    "multi_mp_lamb_update",
    "rand_zipfian",
    "while_loop",
]


__getattr__, __dir__ = lazy.attributes(
    __name__, __all__, otherwise=partial(op_function_in, "contrib"), operators=partial(names_in, "contrib")
)


def isinf(data: NDArray) -> Any:
    """Return 1 where an element is infinite, else 0, in the type of `data`."""
    return data.abs() == math.inf


def isnan(data: NDArray) -> Any:
    """Return 1 where an element is NaN, else 0, in the type of `data`."""
    return data != data


def isfinite(data: NDArray) -> Any:
    """Return 1 where an element is neither infinite nor NaN, else 0, in the type of `data`."""
    return op_function("_mul")(data == data, data.abs() != math.inf)


def rand_zipfian(
    true_classes: NDArray, num_sampled: int, range_max: int, ctx: ContextLike | None = None
) -> tuple[Any, Any, Any]:
    """Draw classes, with replacement, from an approximately Zipfian distribution.

    Class k has the probability ``log((k + 2) / (k + 1)) / log(range_max + 1)``: classes should be numbered by falling
    frequency.

    Args:
        true_classes: classes whose expected counts are also returned, any shape.
        range_max: number of classes.
        ctx: context of the result; None means the current context.

    Returns:
        The sampled classes, (num_sampled,) int64; the expected counts of the true classes, float64; and those of the
        sampled classes, (num_sampled,) float64.

    Example:
        >>> drawn, of_true, of_drawn = mx.nd.contrib.rand_zipfian(mx.nd.array([3]), 4, 5)
    """
    span = math.log(range_max + 1)
    given = {} if ctx is None else {"ctx": ctx}
    drawn = op_function("_random_uniform")(0, span, shape=(num_sampled,), dtype="float64", **given)
    sampled = (drawn.exp() - 1).astype("int64") % range_max

    def expected(classes: NDArray) -> Any:
        number = classes.astype("float64")
        return ((number + 2.0) / (number + 1.0)).log() / span * num_sampled

    return sampled, expected(true_classes.as_in_context(sampled.context)), expected(sampled)


Arrays = Sequence[NDArray]


def _factor(rescale_grad: NDArray | Number, like: NDArray) -> NDArray:
    """Return a gradient's factor as an array in the context of the weight."""
    if isinstance(rescale_grad, NDArray):
        return rescale_grad.as_in_context(like.context)
    return full((1,), rescale_grad, ctx=like.context)


def _interleaved(*lists: Arrays) -> list[NDArray]:
    """Return the first array of each list, then the second of each, and so on."""
    return [array for group in zip(*lists, strict=True) for array in group]


def adamw_update(
    weight: NDArray,
    grad: NDArray,
    mean: NDArray,
    var: NDArray,
    rescale_grad: NDArray | Number,
    lr: float,
    eta: float,
    **attributes: Any,
) -> Any:
    """Update a weight by AdamW; see the operator `_adamw_update`.

    Args:
        rescale_grad: the gradient's factor, a number or an array of one; NaN, infinite or 0 skips the step.
        **attributes: beta1, beta2, epsilon, wd, clip_gradient, and `out`.

    Returns:
        The new weight, or `out`.
    """
    factor = _factor(rescale_grad, weight)
    return op_function("_adamw_update")(weight, grad, mean, var, factor, lr=lr, eta=eta, **attributes)


def mp_adamw_update(
    weight: NDArray,
    grad: NDArray,
    mean: NDArray,
    var: NDArray,
    weight32: NDArray,
    rescale_grad: NDArray | Number,
    lr: float,
    eta: float,
    **attributes: Any,
) -> Any:
    """Update a 16-bit weight by AdamW through its float32 copy; see `adamw_update`.

    Args:
        mean: running mean of the gradient, float32, updated in place.
        var: running variance of the gradient, float32, updated in place.
        weight32: float32 copy of the weight, updated in place.
        rescale_grad: the gradient's factor, a number or an array of one.
        **attributes: beta1, beta2, epsilon, wd, clip_gradient, and `out`.

    Returns:
        The new weight, or `out`.
    """
    factor = _factor(rescale_grad, weight)
    return op_function("_mp_adamw_update")(
        weight, grad, mean, var, weight32, factor, lr=lr, eta=eta, **attributes
    )


def multi_adamw_update(
    weights: Arrays,
    grads: Arrays,
    mean: Arrays,
    var: Arrays,
    rescale_grad: NDArray | Number,
    lrs: Sequence[float],
    wds: Sequence[float],
    etas: Sequence[float],
    size: int = 0,
    **attributes: Any,
) -> Any:
    """Update several weights by AdamW; see `adamw_update`.

    Args:
        rescale_grad: the gradients' factor, a number or an array of one.
        size: number of weights; 0 counts them.
        **attributes: beta1, beta2, epsilon, clip_gradient, and `out`, a list.

    Returns:
        The new weights, or `out`.
    """
    arrays = [*_interleaved(weights, grads, mean, var), _factor(rescale_grad, weights[0])]
    rates = {"lrs": tuple(lrs), "wds": tuple(wds), "etas": tuple(etas)}
    return op_function("_multi_adamw_update")(
        *arrays, num_weights=size or len(weights), **rates, **attributes
    )


def multi_mp_adamw_update(
    weights: Arrays,
    grads: Arrays,
    mean: Arrays,
    var: Arrays,
    weights32: Arrays,
    rescale_grad: NDArray | Number,
    lrs: Sequence[float],
    wds: Sequence[float],
    etas: Sequence[float],
    size: int = 0,
    **attributes: Any,
) -> Any:
    """Update several 16-bit weights by AdamW through their float32 copies; see `multi_adamw_update`.

    Args:
        mean: running means of the gradients, float32, updated in place.
        var: running variances of the gradients, float32, updated in place.
        weights32: float32 copies of the weights, updated in place.
        rescale_grad: the gradients' factor, a number or an array of one.
        size: number of weights; 0 counts them.
        **attributes: beta1, beta2, epsilon, clip_gradient, and `out`, a list.

    Returns:
        The new weights, or `out`.
    """
    arrays = [*_interleaved(weights, grads, mean, var, weights32), _factor(rescale_grad, weights[0])]
    rates = {"lrs": tuple(lrs), "wds": tuple(wds), "etas": tuple(etas)}
    return op_function("_multi_mp_adamw_update")(
        *arrays, num_weights=size or len(weights), **rates, **attributes
    )


def multi_lamb_update(
    weights: Arrays,
    grads: Arrays,
    mean: Arrays,
    var: Arrays,
    step_count: Sequence[int],
    lrs: Sequence[float],
    wds: Sequence[float],
    num_tensors: int = 0,
    **attributes: Any,
) -> Any:
    """Update several weights by LAMB; see the operator `_multi_lamb_update`.

    Args:
        step_count: number of this update of each weight, from 1.
        num_tensors: number of weights; 0 counts them.
        **attributes: beta1, beta2, epsilon, rescale_grad, clip_gradient, lower_bound, upper_bound,
            bias_correction, and `out`, a list.

    Returns:
        The new weights, or `out`.
    """
    arrays = _interleaved(weights, grads, mean, var)
    rates = {"learning_rates": tuple(lrs), "wds": tuple(wds), "step_count": tuple(step_count)}
    return op_function("_multi_lamb_update")(
        *arrays, num_tensors=num_tensors or len(weights), **rates, **attributes
    )


def multi_mp_lamb_update(
    weights: Arrays,
    grads: Arrays,
    mean: Arrays,
    var: Arrays,
    weights32: Arrays,
    step_count: Sequence[int],
    lrs: Sequence[float],
    wds: Sequence[float],
    num_tensors: int = 0,
    **attributes: Any,
) -> Any:
    """Update several 16-bit weights by LAMB through their float32 copies; see `multi_lamb_update`.

    Args:
        mean: running means of the gradients, float32, updated in place.
        var: running variances of the gradients, float32, updated in place.
        weights32: float32 copies of the weights, updated in place.
        step_count: number of this update of each weight, from 1.
        num_tensors: number of weights; 0 counts them.

    Returns:
        The new weights, or `out`.
    """
    arrays = _interleaved(weights, grads, mean, var, weights32)
    rates = {"learning_rates": tuple(lrs), "wds": tuple(wds), "step_count": tuple(step_count)}
    number = num_tensors or len(weights)
    return op_function("_multi_mp_lamb_update")(*arrays, num_tensors=number, **rates, **attributes)


Nested: TypeAlias = "Handle | Sequence[Any]"
"""An array, or a list of arrays nested to any depth."""


Form: TypeAlias = "int | list[Any]"
"""Structure of a nested list: 0 for one leaf, a number for several that belong together, or a list of structures."""


def flatten(value: Any, parts: Callable[[Any], Sequence[Any] | None], what: str) -> tuple[list[Any], Form]:
    """Return the leaves of a nested list in order, and its structure.

    Args:
        value: one leaf, or a list or tuple of leaves nested to any depth.
        parts: returns the parts of a leaf, such as the single outputs of a symbol; None if a value is not a leaf.
    """
    found = parts(value)
    if found is not None:
        return list(found), 0 if len(found) == 1 else len(found)
    if not isinstance(value, (list, tuple)):
        raise ArgumentError(
            f"{what} must be one array or symbol, or a (nested) list of them, got {type(value).__name__} {value!r}"
        )
    flat: list[Any] = []
    form: list[Form] = []
    for each in value:
        leaves, inner = flatten(each, parts, what)
        flat.extend(leaves)
        form.append(inner)
    return flat, form


def regroup(leaves: Sequence[Any], form: Form) -> Any:
    """Return leaves in the structure that `flatten` returned; tuples become lists."""
    taken = iter(leaves)

    def build(form: Form) -> Any:
        if isinstance(form, int):
            return next(taken) if form == 0 else [next(taken) for _ in range(form)]
        return [build(each) for each in form]

    return build(form)


def _leaf(value: object) -> list[Any] | None:
    return [value] if isinstance(value, Handle) else None


def foreach(
    body: Callable[[Any, Any], tuple[Any, Any]], data: Nested, init_states: Nested
) -> tuple[Any, Any]:
    """Run a function on every element along axis 0 of the data, passing states from call to call.

    Args:
        body: ``(element, states) -> (outputs, new states)``; the element is a list if `data` is one.
        data: an array, or a list of arrays of one length.
        init_states: an array, or a nested list of arrays; the new states have the same structure.

    Returns:
        The outputs of all calls, stacked along a new axis 0 and nested as `body` returned them, and the last states.

    Example:
        >>> outs, last = mx.nd.contrib.foreach(lambda x, s: (x + s, x + s), mx.nd.array([[1], [2]]), mx.nd.zeros((1,)))
        >>> outs.asnumpy().tolist(), last.asnumpy().tolist()
        ([[1.0], [3.0]], [3.0])
    """
    arrays, _ = flatten(data, _leaf, "foreach: data")
    flatten(init_states, _leaf, "foreach: init_states")
    if not arrays:
        raise ArgumentError("foreach: data is empty, expected at least one element")
    lengths = {len(array) for array in arrays}
    if len(lengths) > 1:
        raise ShapeError(f"foreach: the arrays of data have lengths {sorted(lengths)}, expected one length")
    states, collected, form = init_states, [], None
    for i in range(lengths.pop()):
        element: Any = arrays[0][i] if isinstance(data, Handle) else [each[i] for each in data]
        outputs, states = body(element, states)
        leaves, form = flatten(outputs, _leaf, "foreach: an output of body")
        collected.append(leaves)
    stacked = [op_function("stack")(*column) for column in zip(*collected)]
    return ([] if form is None else regroup(stacked, form)), states


def _scalar(value: object, kind: Callable[[Any], Any], what: str) -> Any:
    """Return a number or an array of one element as a Python number."""
    plain = value.asscalar() if isinstance(value, Handle) else value  # type: ignore[attr-defined]
    try:
        return kind(plain)
    except (TypeError, ValueError):
        raise ArgumentError(f"{what} is {value!r}, expected a number") from None


def _step(func: Callable[..., tuple[Any, Any]], variables: list[Any]) -> tuple[list[Any], Any, list[Any]]:
    """Run the body of a while loop once."""
    outputs, new = func(*variables)
    leaves, form = flatten([] if outputs is None else outputs, _leaf, "while_loop: an output of func")
    after = [] if new is None else list(new) if isinstance(new, (list, tuple)) else [new]
    if len(after) != len(variables):
        raise ArgumentError(
            f"while_loop: func returned {len(after)} loop variables, expected {len(variables)} as loop_vars has"
        )
    return leaves, form, after


def while_loop(
    cond: Callable[..., Any],
    func: Callable[..., tuple[Any, Any]],
    loop_vars: Nested,
    max_iterations: int | None = None,
) -> tuple[Any, Any]:
    """Run a function on loop variables while a condition holds.

    Args:
        cond: ``(*loop_vars) -> one number``; 0 ends the loop.
        func: ``(*loop_vars) -> (outputs, new loop_vars)``; either may be None.
        loop_vars: an array, or a list of arrays, at least one.
        max_iterations: maximum number of steps.

    Returns:
        The outputs of all steps, stacked along a new axis 0 whose length is always `max_iterations` (padded with
        zeros), and the last loop variables. Without any step the outputs are an empty list.
    """
    if max_iterations is None:
        raise ArgumentError("while_loop: max_iterations should be specified")
    limit = _scalar(max_iterations, int, "while_loop: max_iterations")
    variables = [loop_vars] if isinstance(loop_vars, Handle) else list(loop_vars)
    if not variables:
        raise ArgumentError("while_loop: loop_vars should contain at least one array")
    collected: list[list[Any]] = []
    form = None
    while len(collected) < limit and _scalar(cond(*variables), bool, "while_loop: the value of cond"):
        leaves, form, variables = _step(func, variables)
        if collected and len(leaves) != len(collected[0]):
            raise ArgumentError(
                f"while_loop: func returned {len(leaves)} outputs, and {len(collected[0])} the step before"
            )
        collected.append(leaves)
    stacked = [_stacked(column, limit, i) for i, column in enumerate(zip(*collected))]
    outputs = [] if form is None else regroup(stacked, form)
    return outputs, variables[0] if isinstance(loop_vars, Handle) else variables


def _stacked(column: Sequence[Any], length: int, number: int) -> Any:
    """Stack the outputs of all steps and pad with zeros."""
    first = column[0]
    if any(each.shape != first.shape for each in column):
        shapes = ", ".join(f"step {i} {each.shape}" for i, each in enumerate(column))
        raise ShapeError(f"while_loop: output {number} of func changes its shape: {shapes}")
    rows = op_function("stack")(*column)
    if len(column) == length:
        return rows
    rest = zeros((length - len(column), *first.shape), ctx=first.context, dtype=first.dtype)
    return op_function("Concat")(rows, rest, dim=0)


def cond(pred: Handle | Number, then_func: Callable[[], Any], else_func: Callable[[], Any]) -> Any:
    """Call one of two functions.

    Args:
        pred: one number; 0 selects `else_func`.
        then_func: ``() -> outputs``.
    """
    return then_func() if _scalar(pred, bool, "cond: pred") else else_func()

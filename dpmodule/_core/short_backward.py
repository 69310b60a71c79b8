"""Backward through the recordings of a few operators, without autograd's engine.

Starting the engine takes 10 microseconds, as long as a small operator. Here the gradient functions are called one by
one. Which ones, and where their results go, is found once and reused for as long as the same operators are recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, compress
from operator import itemgetter, methodcaller
from typing import Any, NamedTuple

import torch

from .torch_private import AccumulateGrad, Gradients, PythonFunction

_MAX_FUNCTIONS = 3
"""Gradient functions from which the engine is as fast."""
_LARGE = 2**18
"""Elements of a sum of gradients from which the engine, which adds in place, is faster."""
_PRODUCT = "MulBackward0"
"""Type of torch's gradient function of a product."""
_FUNCTION = itemgetter(0)
"""The gradient function of a pair of one and the number of the gradient that it takes."""

_Result = tuple[int, torch.Size, torch.dtype] | None
_Call = Callable[[Any, Sequence[torch.Tensor | None]], Iterable[torch.Tensor | None]]


class _Step(NamedTuple):
    """A gradient function of a recording. The gradients that the functions take and return have numbers.

    Attributes:
        kind, following: its type, and those of the functions that take its results.
        shapes: those of the gradients that it takes.
        reader: position of the step that passes it a gradient, and of that gradient among its results; None for the
            root's function.
        leaves: position of each result that is the gradient of an input, and the input's number.
        begin, end: range of the numbers of the gradients that it takes.
        results: for each result the number, shape and dtype of the gradient of which it is a part, or None.
        call: computes the results from the function and the gradients that it takes.
    """

    kind: type[Any]
    following: Sequence[type[Any]]
    shapes: Sequence[torch.Size]
    reader: tuple[int, int] | None
    leaves: Sequence[tuple[int, int]]
    begin: int
    end: int
    results: Sequence[_Result]
    call: _Call


class ShortBackward:
    """Computes what `torch_private.run_backward` does for one root, if it depends on a few operators.

    Hooks are not called, and the recording is not freed.
    """

    def __init__(self) -> None:
        self._steps: Sequence[_Step] | None = None  # of the last recording; empty if the engine must run

    def gradients(
        self, root: torch.Tensor, seed: torch.Tensor, inputs: Sequence[torch.Tensor]
    ) -> Gradients | None:
        """Return the gradients of the inputs.

        Shape:
            root, seed: alike.
            returns: each as its input.

        Returns:
            None if the engine must run: on a GPU, for more operators, for gradient functions that are written in Python
            and take several gradients, for sums of large gradients, and to detect anomalies.
        """
        if not seed.is_cpu or torch.is_grad_enabled() or torch.is_anomaly_enabled():
            return None
        steps, functions = self._recorded(root, inputs)
        if not steps:
            return None
        grads: list[torch.Tensor | None] = [None] * steps[-1].end
        grads[len(inputs) + root.output_nr] = seed
        for function, step in zip(functions, steps):
            begin, end = step.begin, step.end
            if end - begin == 1 and grads[begin] is None:
                continue
            for result, grad in zip(step.results, step.call(function, grads[begin:end])):
                if result is None or grad is None:
                    continue
                number, shape, dtype = result
                # the engine sums over broadcast axes, and converts
                if grad.shape != shape:
                    grad = grad.sum_to_size(shape)
                if grad.dtype is not dtype:
                    grad = grad.to(dtype)
                other = grads[number]
                grads[number] = grad if other is None else other + grad
        del grads[len(inputs) :]
        return grads

    def _recorded(
        self, root: torch.Tensor, inputs: Sequence[torch.Tensor]
    ) -> tuple[Sequence[_Step], Sequence[Any]]:
        """Return the steps of a recording and their gradient functions; no steps if only the engine fits."""
        if self._steps is not None:
            functions = _functions(root, inputs, self._steps)
            if functions is not None:
                return self._steps, functions
        self._steps = _steps(root, inputs)
        return self._steps, _functions(root, inputs, self._steps) or ()


def _call(function: Any, grads: Sequence[torch.Tensor | None]) -> Iterable[torch.Tensor | None]:
    """Return the results of a gradient function."""
    if not isinstance(function, PythonFunction):
        found = function(*grads)
        return found if type(found) is tuple else (found,)
    found = function.apply(*grads)
    if type(found) is not tuple:
        return (found,)
    # one for each argument, while only tensors have a number
    return compress(found, function.needs_input_grad)


def _call_square(function: Any, grads: Sequence[Any]) -> Iterable[torch.Tensor]:
    """Return the gradient of a product of a tensor with itself, in fewer passes than the sum of two products."""
    return (torch.mul(grads[0], function._saved_self).mul_(2),)


def _functions(
    root: torch.Tensor, inputs: Sequence[torch.Tensor], steps: Sequence[_Step]
) -> list[Any] | None:
    """Return the gradient functions of a recording; None if they are not those of the steps."""
    functions: list[Any] = []
    for step in steps:
        function: Any = root.grad_fn
        if step.reader is not None:
            reader, position = step.reader
            function = functions[reader].next_functions[position][0]
            if _shapes(function) != step.shapes:
                return None
        if type(function) is not step.kind:
            return None
        following = list(map(_FUNCTION, function.next_functions))
        if list(map(type, following)) != step.following:
            return None
        for position, number in step.leaves:
            if following[position].variable is not inputs[number]:
                return None
        functions.append(function)
    return functions


def _shapes(function: Any) -> list[torch.Size]:
    """Return the shapes of the gradients that a function takes."""
    return [torch.Size(like.shape) for like in function._input_metadata]  # lists for some


def _steps(root: torch.Tensor, inputs: Sequence[torch.Tensor]) -> Sequence[_Step]:
    """Return the steps of a recording; empty if only the engine fits.

    The gradients of the inputs have the first numbers, those that the functions take the following ones.
    """
    if root.grad_fn is None or AccumulateGrad is None:
        return ()
    functions, readers = _in_order(root.grad_fn)
    shapes = list(map(_shapes, functions))
    ends = list(accumulate(map(len, shapes), initial=len(inputs)))
    numbers, summed = {id(tensor): i for i, tensor in enumerate(inputs)}, set[int]()
    steps: list[_Step] = []
    for i, function in enumerate(functions):
        in_python = isinstance(function, PythonFunction)
        if len(functions) > _MAX_FUNCTIONS or (in_python and len(shapes[i]) > 1):
            return ()
        leaves: list[tuple[int, int]] = []
        results: list[_Result] = []
        for position, (after, index) in enumerate(function.next_functions):
            if after is None:
                if not in_python:
                    results.append(None)
                continue
            if type(after) is AccumulateGrad:
                if id(after.variable) not in numbers:
                    return ()
                number = numbers[id(after.variable)]
                leaves.append((position, number))
                shape, dtype = inputs[number].shape, inputs[number].dtype
            else:
                step = functions.index(after)
                number = ends[step] + index
                shape, dtype = shapes[step][index], after._input_metadata[index].dtype
            results.append((number, shape, dtype))
        call, results = _call_of(function, results)
        if _adds_large(results, summed):
            return ()
        following = [type(after) for after, _ in function.next_functions]
        begin, end = ends[i : i + 2]
        steps.append(
            _Step(type(function), following, shapes[i], readers[function], leaves, begin, end, results, call)
        )
    return steps


def _call_of(function: Any, results: list[_Result]) -> tuple[_Call, list[_Result]]:
    """Return the function that computes the results of a gradient function, and the results that it returns."""
    is_product = type(function).__name__ == _PRODUCT and len(results) == 2
    if is_product and results[0] is not None and results[0] == results[1] and results[0][2].is_floating_point:
        return _call_square, results[:1]
    return _call, results


def _adds_large(results: Iterable[_Result], summed: set[int]) -> bool:
    """Return True if one of the results is added to a large gradient.

    Args:
        summed: numbers of the gradients that have a part; those of the results are added.
    """
    for number, shape, _ in filter(None, results):
        if number in summed and shape.numel() >= _LARGE:
            return True
        summed.add(number)
    return False


def _in_order(last: Any) -> tuple[list[Any], dict[Any, tuple[int, int] | None]]:
    """Return gradient functions, each before those that take its results, and the `reader` of each.

    Args:
        last: the function of the operator that was recorded last.
    """
    functions = [last]
    readers: dict[Any, tuple[Any, int] | None] = {last: None}
    for function in functions:  # grows
        if len(functions) > _MAX_FUNCTIONS:
            break
        for position, (following, _) in enumerate(function.next_functions):
            if following is not None and type(following) is not AccumulateGrad and following not in readers:
                functions.append(following)
                readers[following] = function, position
    functions.sort(key=methodcaller("_sequence_nr"), reverse=True)
    places = {function: i for i, function in enumerate(functions)}
    return functions, {f: None if r is None else (places[r[0]], r[1]) for f, r in readers.items()}

"""Checks of single operators through the registry: values, rules, attribute text, memory, gradients."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from dpmodule import ops
from dpmodule.ops.attrs import to_text
from dpmodule.ops.dtypes import name_of
from dpmodule.ops.shapes import infer_shape, infer_type
from dpmodule.ops.spec import AUX, Env

CPU = torch.device("cpu")


@dataclass(frozen=True)
class OpCase:
    """One call of an operator.

    Attributes:
        name: registry name or alias.
        inputs: NumPy arrays.
        attrs: attributes as Python values.
        expect: function of the inputs that returns the expected output or a tuple of them (NumPy).
        grad: positions of the inputs whose gradient is checked; None = every float64 one.
        no_grad: why there is no gradient to check.
    """

    name: str
    inputs: tuple[np.ndarray, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    expect: Callable[..., Any] | None = None
    grad: tuple[int, ...] | None = None
    no_grad: str = ""

    def __str__(self) -> str:
        """Return a readable test id."""
        text = ",".join(f"{k}={v}" for k, v in self.attrs.items())
        return f"{self.name}({text})" if text else self.name


def parsed(name: str, attrs: dict[str, Any], count: int = 0) -> Any:
    """Return the attributes as an operator reads them from the text of a saved graph."""
    op = ops.get(name)
    if op.variadic is not None and op.variadic.count:
        attrs = {**attrs, op.variadic.count: op.variadic.units(count)}
    return op.parse({key: to_text(value) for key, value in attrs.items()})


def call(name: str, *tensors: torch.Tensor, is_train: bool = True, **attrs: Any) -> tuple[torch.Tensor, ...]:
    """Call an operator on tensors, as the executor does."""
    op = ops.get(name)
    a = parsed(name, attrs, len(tensors))
    if op.bind is not None:
        found = op.bind(a)(*tensors)
    else:
        outs = infer_shape(op, a, [tuple(t.shape) for t in tensors], [None] * len(op.output_names(a)))[1]
        generator = torch.Generator().manual_seed(0)
        found = op.run(a, Env(CPU, generator, is_train, tuple(outs)), *tensors)
    found = found if isinstance(found, (tuple, list)) else (found,)
    return tuple(found)[: len(op.output_names(a))]


def run(name: str, *arrays: np.ndarray, is_train: bool = True, **attrs: Any) -> np.ndarray:
    """Call an operator on NumPy arrays and return its first output."""
    tensors = [torch.from_numpy(np.array(each)) for each in arrays]
    return call(name, *tensors, is_train=is_train, **attrs)[0].numpy()


def shapes(
    name: str, ins: list[Any], outs: list[Any] | None = None, **attrs: Any
) -> tuple[list[Any], list[Any]]:
    """Run an operator's shape rule; None = unknown, 0 = unknown dimension."""
    op = ops.get(name)
    a = parsed(name, attrs, len(ins))
    return infer_shape(op, a, ins, outs or [None] * len(op.output_names(a)))


def gradients(name: str, *arrays: np.ndarray, head: Any = None, **attrs: Any) -> list[np.ndarray]:
    """Return the gradient of each input for a head gradient of ones, or `head`; zeros where there is none."""
    op = ops.get(name)
    kinds = [] if op.variadic else [i.kind for i in op.active_inputs(parsed(name, attrs))]
    tensors = [torch.from_numpy(np.array(each)) for each in arrays]
    for number, tensor in enumerate(tensors):
        state = number < len(kinds) and kinds[number] == AUX
        tensor.requires_grad_(tensor.is_floating_point() and not state)
    out = call(name, *tensors, **attrs)[0]
    if out.requires_grad:
        out.backward(
            torch.ones_like(out)
            if head is None
            else torch.from_numpy(np.asarray(head, out.numpy(force=True).dtype))
        )
    return [
        np.zeros(t.shape, t.detach().numpy().dtype) if t.grad is None else t.grad.numpy() for t in tensors
    ]


def check_value(case: OpCase, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """Check an operator's outputs, its shape and type rules, and that only declared views share memory."""
    op = ops.get(case.name)
    a = parsed(case.name, case.attrs, len(case.inputs))
    tensors = [torch.from_numpy(np.array(each)) for each in case.inputs]
    before = [t.clone() for t in tensors]
    found = call(case.name, *tensors, **case.attrs)
    names = op.output_names(a)
    _, outs = infer_shape(op, a, [tuple(t.shape) for t in tensors], [None] * len(names))
    _, types = infer_type(op, a, [name_of(t.dtype) for t in tensors], [None] * len(names))
    # None: the shape stands in the input's values, as that of an image in its file
    assert [None if out is None else tuple(f.shape) for f, out in zip(found, outs, strict=True)] == outs
    assert [name_of(f.dtype) for f in found] == types
    for tensor, kept in zip(tensors, before, strict=True):
        assert torch.equal(tensor.nan_to_num(), kept.nan_to_num()), "an input was changed"
        shared = any(f.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr() for f in found)
        assert op.view or not shared or not tensor.numel(), (
            "the result shares memory without being declared a view"
        )
    if case.expect is not None:
        expected = case.expect(*case.inputs)
        for one, want in zip(found, expected if isinstance(expected, tuple) else (expected,), strict=True):
            assert one.numpy().shape == want.shape
            np.testing.assert_allclose(one.numpy(), want, rtol, atol, err_msg=str(case))


def check_gradient(
    case: OpCase, inputs: tuple[int, ...] | None = None, eps: float = 1e-6, tol: float = 1e-6
) -> None:
    """Check the gradient of a random weighting of the first output against central differences in float64.

    Args:
        case: the call; its inputs should be float64 and keep away from kinks.
        inputs: which inputs to check; None means all.
        eps: half the distance of the two points.
        tol: relative and absolute tolerance.
    """
    random = np.random.RandomState(7)
    weights = random.uniform(0.5, 1.5, run(case.name, *case.inputs, **case.attrs).shape)
    analytic = gradients(case.name, *case.inputs, head=weights, **case.attrs)
    for number in range(len(case.inputs)) if inputs is None else inputs:
        numeric = np.zeros_like(case.inputs[number])
        for place in np.ndindex(*numeric.shape):
            values = []
            for sign in (1, -1):
                moved = [each.copy() for each in case.inputs]
                moved[number][place] += sign * eps
                values.append((run(case.name, *moved, **case.attrs) * weights).sum())
            numeric[place] = (values[0] - values[1]) / (2 * eps)
        np.testing.assert_allclose(analytic[number], numeric, tol, tol, err_msg=f"{case}, input {number}")

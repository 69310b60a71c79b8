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
from helpers.walk import walks

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


def environment(train: bool = True, seed: int | None = None) -> Env:
    """Return an environment on the CPU; with a seed it has a generator."""
    return Env(CPU, None if seed is None else torch.Generator().manual_seed(seed), train)


def parsed(name: str, attrs: dict[str, Any], count: int = 0) -> Any:
    """Return the attributes as an operator reads them from the text of a saved graph."""
    op = ops.get(name)
    if op.variadic is not None and op.variadic.count:
        attrs = {**attrs, op.variadic.count: op.variadic.units(count)}
    return op.parse({key: to_text(value) for key, value in attrs.items()})


def call(
    name: str, *tensors: torch.Tensor, is_train: bool = True, env: Env | None = None, **attrs: Any
) -> tuple[torch.Tensor, ...]:
    """Call an operator on tensors, as the executor does, or in an environment of choice, without inference."""
    return call_parsed(ops.get(name), parsed(name, attrs, len(tensors)), tensors, is_train, env)


def call_parsed(op: Any, a: Any, tensors: Any, is_train: bool = True, env: Env | None = None) -> Any:
    """Call an operator with attributes that are parsed."""
    bound = op.bind(a) if op.bind is not None and env is None else None
    if bound is not None:
        found = bound(*tensors)
    else:
        if env is None:
            outs = infer_shape(op, a, [tuple(t.shape) for t in tensors], [None] * len(op.output_names(a)))[1]
            env = Env(CPU, torch.Generator().manual_seed(0), is_train, tuple(outs))
        found = op.run(a, env, *tensors)
    found = found if isinstance(found, (tuple, list)) else (found,)
    return tuple(found)[: len(op.output_names(a))]


def run(name: str, *arrays: Any, is_train: bool = True, env: Env | None = None, **attrs: Any) -> np.ndarray:
    """Call an operator on NumPy arrays and return its first output."""
    tensors = [torch.from_numpy(np.array(each)) for each in arrays]
    return call(name, *tensors, is_train=is_train, env=env, **attrs)[0].numpy()


def outputs(name: str, *arrays: Any, env: Env | None = None, **attrs: Any) -> list[Any]:
    """Return all that an operator's function gives, hidden outputs among it; None stays None."""
    op = ops.get(name)
    tensors = [torch.from_numpy(np.array(each)) for each in arrays]
    found = op.run(parsed(name, attrs, len(tensors)), env or environment(), *tensors)
    found = found if isinstance(found, (tuple, list)) else (found,)
    return [None if each is None else each.detach().numpy() for each in found]


def _ruled(infer: Callable[..., Any]) -> Callable[..., tuple[list[Any], list[Any]]]:
    def rule(name: str, ins: list[Any], outs: list[Any] | None = None, **attrs: Any) -> Any:
        op, a = ops.get(name), parsed(name, attrs, len(ins))
        return infer(op, a, ins, outs or [None] * len(op.output_names(a)))

    return rule


shapes, types = _ruled(infer_shape), _ruled(infer_type)
"""Run an operator's shape or type rule: None = unknown, 0 = unknown dimension."""


def gradients(name: str, *arrays: Any, head: Any = None, env: Env | None = None, **attrs: Any) -> list[Any]:
    """Return the gradient of each input for a head gradient of ones, or `head`; zeros where there is none."""
    op = ops.get(name)
    kinds = [] if op.variadic else [i.kind for i in op.active_inputs(parsed(name, attrs))]
    tensors = [torch.from_numpy(np.array(each)) for each in arrays]
    for number, tensor in enumerate(tensors):
        state = number < len(kinds) and kinds[number] == AUX
        tensor.requires_grad_(tensor.is_floating_point() and not state)
    out = call(name, *tensors, env=env, **attrs)[0]
    if out.requires_grad:
        head = np.ones(out.shape) if head is None else np.asarray(head)
        out.backward(torch.from_numpy(head).to(out.dtype))
    return [(torch.zeros_like(t) if t.grad is None else t.grad).detach().numpy() for t in tensors]


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
    written = (
        [number for number, _ in op.mutated_inputs(op.active_inputs(a, len(tensors)))] if op.stateful else ()
    )
    for number, (tensor, kept) in enumerate(zip(tensors, before, strict=True)):
        same = torch.equal(tensor.nan_to_num(), kept.nan_to_num())
        assert same or number in written, "an input was changed"
        shared = any(f.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr() for f in found)
        assert op.view or not shared or not tensor.numel(), "a view that is not declared"
    if case.expect is not None:
        expected = case.expect(*case.inputs)
        for one, want in zip(found, expected if isinstance(expected, tuple) else (expected,), strict=True):
            assert one.numpy().shape == want.shape
            np.testing.assert_allclose(one.numpy(), want, rtol, atol, err_msg=str(case))


def check_gradient(
    case: OpCase,
    inputs: tuple[int, ...] | None = None,
    eps: float = 1e-6,
    tol: float = 1e-6,
    env: Env | None = None,
) -> None:
    """Check the gradient of a random weighting of the first output against central differences in float64.

    Args:
        case: the call; its inputs should be float64 and keep away from kinks.
        inputs: which inputs to check; None means all.
        eps: half the distance of the two points.
        tol: relative and absolute tolerance.
        env: as of `call`.
    """
    options = {"env": env, **case.attrs}
    weights = np.random.RandomState(7).uniform(0.5, 1.5, run(case.name, *case.inputs, **options).shape)
    analytic = gradients(case.name, *case.inputs, head=weights, **options)
    for number in range(len(case.inputs)) if inputs is None else inputs:
        numeric = np.zeros_like(case.inputs[number])
        for place in np.ndindex(*numeric.shape):
            values = []
            for sign in (1, -1):
                moved = [each.copy() for each in case.inputs]
                moved[number][place] += sign * eps
                values.append((run(case.name, *moved, **options) * weights).sum())
            numeric[place] = (values[0] - values[1]) / (2 * eps)
        np.testing.assert_allclose(analytic[number], numeric, tol, tol, err_msg=f"{case}, input {number}")


def values_test(*rows: Any) -> Any:
    """Return a test of rows (name, inputs, attributes, expected): an array, a tuple of them, or a function."""

    def test(name, inputs, attrs, expected):
        expect = expected if callable(expected) else lambda *_: expected
        check_value(OpCase(name, inputs, attrs, expect))
        wanted = expect(*inputs)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        found = call(name, *(torch.from_numpy(np.array(each)) for each in inputs), **attrs)
        assert [each.numpy().dtype for each in found] == [each.dtype for each in wanted]

    return walks(rows)(test)


def gradients_test(*rows: Any) -> Any:
    """Return a test of rows (name, inputs, attributes, gradients for a head of ones); None = any."""

    def test(name, inputs, attrs, expected):
        found = gradients(name, *inputs, **attrs)
        for place, (one, want) in enumerate(zip(found, expected)):
            if want is not None:
                want = np.array(want, one.dtype)
                np.testing.assert_allclose(one, want, 2e-5, 1e-5, err_msg=f"input {place}")

    return walks(rows)(test)


def slopes_test(*rows: Any, tol: float = 1e-5) -> Any:
    """Return a test of rows (name, inputs, attributes): the gradients of float64 inputs against differences."""

    def test(name, inputs, attrs):
        wanted = tuple(i for i, x in enumerate(inputs) if x.dtype == np.float64)
        check_gradient(OpCase(name, inputs, attrs), wanted, tol=tol)

    return walks(rows)(test)


def rules_test(*rows: Any, rule: Any = shapes) -> Any:
    """Return a test of rows (name, inputs, attributes, inputs wanted, outputs wanted, outputs known); None = any."""

    def test(name, ins, attrs, wanted_ins, wanted_outs, outs):
        found = rule(name, ins, outs, **attrs)
        assert wanted_ins in (None, found[0]), found[0]
        assert wanted_outs in (None, found[1]), found[1]

    return walks([(*row, *[None] * (6 - len(row))) for row in rows])(test)

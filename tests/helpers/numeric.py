"""Run one operator on NumPy arrays in an environment of choice, and its gradient, also by finite differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from dpmodule.ops import get
from dpmodule.ops.shapes import infer_shape, infer_type
from dpmodule.ops.spec import Env


def environment(train: bool = True, seed: int | None = None) -> Env:
    """Return an environment on the CPU; with a seed it has a generator."""
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    return Env(torch.device("cpu"), generator, train)


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    """Return float32 numbers between -1 and 1, four dimensions in channels_last."""
    values = np.random.RandomState(seed).uniform(-1, 1, shape).astype(np.float32)
    found = torch.from_numpy(values)
    return found.contiguous(memory_format=torch.channels_last) if len(shape) == 4 else found


def _tensors(arrays: Sequence[Any]) -> list[torch.Tensor]:
    return [torch.from_numpy(np.array(a)) for a in arrays]


def _outputs(name: str, tensors: Sequence[torch.Tensor], env: Env, attrs: dict[str, Any]) -> list[Any]:
    op = get(name)
    result = op.run(op.parse(attrs), env, *tensors)
    return list(result) if isinstance(result, tuple) else [result]


def run(name: str, *arrays: Any, env: Env | None = None, **attrs: Any) -> Any:
    """Return what an operator gives, as an array, or a list of them (None stays None)."""
    found = [
        None if r is None else r.detach().numpy()
        for r in _outputs(name, _tensors(arrays), env or environment(), attrs)
    ]
    return found if len(found) > 1 else found[0]


def gradients(
    name: str,
    *arrays: Any,
    head: Any = None,
    wanted: Sequence[int] = (0,),
    env: Env | None = None,
    **attrs: Any,
) -> list[np.ndarray]:
    """Return the gradients of the inputs `wanted`, under the head gradient `head` (ones if None)."""
    tensors = _tensors(arrays)
    for i in wanted:
        tensors[i].requires_grad_()
    out = _outputs(name, tensors, env or environment(), attrs)[0]
    seed = torch.ones_like(out) if head is None else torch.from_numpy(np.array(head))
    found = torch.autograd.grad(out, [tensors[i] for i in wanted], seed, allow_unused=True)
    return [np.zeros_like(arrays[i]) if g is None else g.numpy() for i, g in zip(wanted, found, strict=True)]


def check_gradients(
    name: str, *arrays: Any, wanted: Sequence[int] = (0,), env: Env | None = None, seed: int = 0, **attrs: Any
) -> None:
    """Compare the gradients of float64 inputs with central differences of a weighted sum of the output."""
    first = run(name, *arrays, env=env, **attrs)
    out = first[0] if isinstance(first, list) else first
    head = np.random.RandomState(seed).standard_normal(out.shape)

    def total(values: Sequence[Any]) -> float:
        found = run(name, *values, env=env, **attrs)
        return float(((found[0] if isinstance(found, list) else found) * head).sum())

    exact = gradients(name, *arrays, head=head, wanted=wanted, env=env, **attrs)
    step = 1e-6
    for i, found in zip(wanted, exact, strict=True):
        numeric = np.zeros_like(arrays[i])
        for at in np.ndindex(*arrays[i].shape):
            moved = [np.array(a) for a in arrays]
            moved[i][at] += step
            above = total(moved)
            moved[i][at] -= 2 * step
            numeric[at] = (above - total(moved)) / (2 * step)
        np.testing.assert_allclose(found, numeric, rtol=1e-5, atol=1e-6, err_msg=f"{name} input {i}")


def shapes(name: str, *ins: Any, outs: Sequence[Any] = (None,), **attrs: Any) -> tuple[list[Any], list[Any]]:
    """Return the inferred shapes of inputs and outputs."""
    op = get(name)
    found = infer_shape(op, op.parse(attrs), list(ins), list(outs))
    return list(found[0]), list(found[1])


def types(name: str, *ins: Any, outs: Sequence[Any] = (None,), **attrs: Any) -> tuple[list[Any], list[Any]]:
    """Return the inferred types of inputs and outputs."""
    op = get(name)
    found = infer_type(op, op.parse(attrs), list(ins), list(outs))
    return list(found[0]), list(found[1])

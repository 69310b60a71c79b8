"""Loops and branches over subgraphs: `_foreach`, `_while_loop` and `_cond`.

A node contains its subgraphs, which are passed as ``a.bodies``: objects with `shapes` and `types` for inference, which
are also functions ``body(env, tensors, step) -> outputs`` when the graph runs. The ``*_locs`` attributes map inputs of
the node to inputs of the subgraphs. Users call ``sym.contrib.foreach``, ``while_loop`` and ``cond``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..base import Shape, ShapeError
from .attrs import integer, shape
from .dtypes import name_of, torch_dtype
from .registry import op
from .shapes import unify
from .spec import Attr, Env, Onnx, Shapes, Types, Variadic, numbered

_COUNTS = {
    "num_args": Attr(integer(low=1), "number of inputs and subgraphs"),
    "num_outputs": Attr(integer(low=1), "number of outputs"),
}
_NUM_OUT_DATA = Attr(integer(low=0), "number of outputs that are stacked; the others are states")


def _outputs(a: Any) -> tuple[str, ...]:
    return numbered(a.num_outputs)


def _result(outputs: Sequence[torch.Tensor]) -> Any:
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _pick(values: Sequence[Any], positions: Sequence[int]) -> list[Any]:
    return [values[i] for i in positions]


def _merge_shapes(
    old: Sequence[Shape], positions: Sequence[int], found: Sequence[Shape], what: str
) -> list[Shape]:
    """Return `old` with the shapes at `positions` merged with `found`."""
    merged = list(old)
    for position, dims in zip(positions, found):
        merged[position] = unify(merged[position], dims, what)
    return merged


def _merge_types(
    old: Sequence[str | None], positions: Sequence[int], found: Sequence[str | None]
) -> list[str | None]:
    merged = list(old)
    for position, dtype in zip(positions, found):
        merged[position] = merged[position] or dtype
    return merged


def _check_attrs(a: Any, is_right: bool, locs: Sequence[int], count: int) -> None:
    """Raise an error for inconsistent attributes, as in a damaged file."""
    if not is_right or any(not 0 <= i < count for i in locs):
        attributes = ", ".join(f"{key}={value}" for key, value in zip(a._fields, a) if key != "bodies")
        raise ShapeError(f"the attributes do not match {count} inputs and the subgraphs: {attributes}")


# foreach


def _element_shape(whole: Shape) -> Shape:
    """Return the shape of one element along axis 0; (1,) for a vector, since MXNet has no arrays without axes."""
    return None if whole is None else whole[1:] or (1,)


def _stacked_shape(element: Shape, length: int, known: Shape) -> Shape:
    """Return the shape of `length` stacked elements; 0 is unknown."""
    if element is None:
        return known
    if known is not None and len(known) == 1 and element == (1,):
        return (length,)
    return (length, *element)


def _foreach_order(a: Any) -> tuple[int, ...]:
    """Return the subgraph's input index of each input of the node."""
    return (*a.in_data_locs, *a.in_state_locs, *a.remain_locs)


def _length(shapes: Sequence[Shape]) -> int:
    """Return the common length of axis 0, or 0 if unknown."""
    known = {s[0] for s in shapes if s} - {0}
    if len(known) > 1:
        raise ShapeError(f"foreach iterates over axis 0 of its data, but the lengths differ: {sorted(known)}")
    return known.pop() if known else 0


def _infer_foreach(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    num_data, num_out = len(a.in_data_locs), a.num_out_data
    order = _foreach_order(a)
    counts = num_data >= 1 and num_out + len(a.in_state_locs) == a.num_outputs
    _check_attrs(a, counts and sorted(order) == list(range(a.bodies[0].num_inputs)), order, len(ins))
    length = _length([*ins[:num_data], *outs[:num_out]])
    states = range(num_data, num_data + len(a.in_state_locs))
    body_ins: list[Shape] = [None] * len(ins)
    for i, position in enumerate(order):
        body_ins[position] = _element_shape(ins[i]) if i < num_data else ins[i]
    body_ins = _merge_shapes(body_ins, a.in_state_locs, outs[num_out:], "state before and after the loop")
    steps = [*map(_element_shape, outs[:num_out]), *outs[num_out:]]
    inner, body_outs = a.bodies[0].shapes(body_ins, steps)
    inner = _merge_shapes(inner, a.in_state_locs, body_outs[num_out:], "state before and after one step")
    node_ins = _pick(inner, order)
    node_ins[:num_data] = [_stacked_shape(e, length, known) for e, known in zip(node_ins, ins[:num_data])]
    results = [_stacked_shape(e, length, None) for e in body_outs[:num_out]] + [node_ins[i] for i in states]
    return (
        [unify(x, y, "input of foreach") for x, y in zip(ins, node_ins)],
        [unify(x, y, "output of foreach") for x, y in zip(outs, results)],
    )


def _infer_foreach_type(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    order, num_out = _foreach_order(a), a.num_out_data
    body_ins: list[str | None] = [None] * len(ins)
    for i, position in enumerate(order):
        body_ins[position] = ins[i]
    body_ins = _merge_types(body_ins, a.in_state_locs, outs[num_out:])
    inner, body_outs = a.bodies[0].types(body_ins)
    inner = _merge_types(inner, a.in_state_locs, body_outs[num_out:])
    states = _pick(inner, a.in_state_locs)
    return _pick(inner, order), [o or m for o, m in zip(outs, [*body_outs[:num_out], *states])]


@op(
    "_foreach",
    attrs={
        **_COUNTS,
        "num_out_data": _NUM_OUT_DATA,
        "in_state_locs": Attr(shape, "indices of the states among the body's inputs"),
        "in_data_locs": Attr(shape, "indices of the data's elements among the body's inputs"),
        "remain_locs": Attr(shape, "indices of all other inputs among the body's inputs"),
    },
    variadic=Variadic("data", count=None),
    outputs=_outputs,
    infer=_infer_foreach,
    infer_type=_infer_foreach_type,
    stateful=True,
    num_subgraphs=1,
    onnx=Onnx("Scan", builder="foreach"),
)
def foreach(a: Any, env: Env, *tensors: torch.Tensor) -> Any:
    """Run a subgraph on each element along axis 0 of the data, passing states from one step to the next.

    Shape:
        data0, ...: the data (length, ...), the states, and all other inputs of the body.
        returns: (length, ...) for each output of the body, then the last states.

    Source: MXNet 1.9.1 `_foreach`.
    """
    num_data, num_out = len(a.in_data_locs), a.num_out_data
    data = [_elements(t) for t in tensors[:num_data]]
    values: list[Any] = [None] * len(tensors)
    for position, tensor in zip(_foreach_order(a)[num_data:], tensors[num_data:]):
        values[position] = tensor
    collected: list[list[torch.Tensor]] = [[] for _ in range(num_out)]
    for step in range(len(data[0])):
        for position, elements in zip(a.in_data_locs, data):
            values[position] = elements[step]
        results = a.bodies[0](env, values, step)
        for column, result in zip(collected, results):
            column.append(result)
        for position, state in zip(a.in_state_locs, results[num_out:]):
            values[position] = state
    return _result([*map(torch.stack, collected), *_pick(values, a.in_state_locs)])


def _elements(data: torch.Tensor) -> Sequence[torch.Tensor]:
    return (data.unsqueeze(1) if data.dim() == 1 else data).unbind(0)


# while_loop


def _loop_var_sources(a: Any) -> list[int]:
    """Return the node's input index of each loop variable."""
    return [a.func_input_locs[i] for i in a.func_var_locs]


def _infer_while(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    condition, body = a.bodies
    counts = [len(a.cond_input_locs), len(a.func_input_locs), a.num_out_data + len(a.func_var_locs)]
    is_right = counts == [condition.num_inputs, body.num_inputs, a.num_outputs]
    _check_attrs(a, is_right, (*a.cond_input_locs, *a.func_input_locs), len(ins))
    _check_attrs(a, True, a.func_var_locs, body.num_inputs)
    num_out, sources = a.num_out_data, _loop_var_sources(a)
    merged = _merge_shapes(ins, sources, outs[num_out:], "loop variable before and after the loop")
    inner, _ = condition.shapes(_pick(merged, a.cond_input_locs))
    merged = _merge_shapes(merged, a.cond_input_locs, inner, "input of while_loop")
    steps = [*(None if s is None else s[1:] or None for s in outs[:num_out]), *outs[num_out:]]
    inner, body_outs = body.shapes(_pick(merged, a.func_input_locs), steps)
    merged = _merge_shapes(merged, a.func_input_locs, inner, "input of while_loop")
    merged = _merge_shapes(merged, sources, body_outs[num_out:], "loop variable before and after one step")
    stacked = [None if s is None else (a.max_iterations, *s) for s in body_outs[:num_out]]
    results = [*stacked, *_pick(merged, sources)]
    return merged, [unify(o, r, "output of while_loop") for o, r in zip(outs, results)]


def _infer_while_type(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    condition, body = a.bodies
    num_out, sources = a.num_out_data, _loop_var_sources(a)
    merged = _merge_types(ins, sources, outs[num_out:])
    merged = _merge_types(merged, a.cond_input_locs, condition.types(_pick(merged, a.cond_input_locs))[0])
    inner, body_outs = body.types(_pick(merged, a.func_input_locs))
    merged = _merge_types(merged, a.func_input_locs, inner)
    return merged, [o or m for o, m in zip(outs, [*body_outs[:num_out], *_pick(merged, sources)])]


@op(
    "_while_loop",
    attrs={
        **_COUNTS,
        "num_out_data": _NUM_OUT_DATA,
        "max_iterations": Attr(integer(low=0), "maximum number of steps, and length of the stacked outputs"),
        "cond_input_locs": Attr(shape, "indices of the inputs of the condition"),
        "func_input_locs": Attr(shape, "indices of the inputs of the body"),
        "func_var_locs": Attr(shape, "indices of the loop variables among the body's inputs"),
    },
    variadic=Variadic("data", count=None),
    outputs=_outputs,
    infer=_infer_while,
    infer_type=_infer_while_type,
    needs_shapes=True,
    stateful=True,
    num_subgraphs=2,
    onnx=Onnx("Loop", builder="while_loop"),
)
def while_loop(a: Any, env: Env, *tensors: torch.Tensor) -> Any:
    """Run a subgraph while another one returns a nonzero number, at most `max_iterations` times.

    Shape:
        data0, ...: loop variables and all other inputs of condition and body.
        returns: each output of the body (max_iterations, ...), zeros after the last step; then the final values of the
            loop variables.

    Source: MXNet 1.9.1 `_while_loop`.
    """
    condition, body = a.bodies
    num_out = a.num_out_data
    outer, values = list(tensors), _pick(tensors, a.func_input_locs)
    sources = _loop_var_sources(a)
    collected: list[list[torch.Tensor]] = [[] for _ in range(num_out)]
    for step in range(a.max_iterations):
        if not _read_condition(
            condition(env, _pick(outer, a.cond_input_locs), step), "the condition of while_loop"
        ):
            break
        results = body(env, values, step)
        for column, result in zip(collected, results):
            column.append(result)
        for source, position, state in zip(sources, a.func_var_locs, results[num_out:]):
            outer[source] = values[position] = state
    types = [] if all(collected) else body.types([name_of(v.dtype) for v in values])[1]
    stacked = [
        _stack_padded(column, size, torch_dtype(types[i] or "float32") if types else None, env)
        for i, (column, size) in enumerate(zip(collected, env.out_shapes))
    ]
    return _result([*stacked, *_pick(values, a.func_var_locs)])


def _stack_padded(
    column: list[torch.Tensor], size: tuple[int, ...], dtype: torch.dtype | None, env: Env
) -> torch.Tensor:
    """Stack the outputs of all steps and pad with zeros."""
    if not column:
        return torch.zeros(size, dtype=dtype, device=env.device)
    rows = torch.stack(column)
    missing = size[0] - rows.shape[0]
    return torch.cat([rows, rows.new_zeros((missing, *rows.shape[1:]))]) if missing else rows


def _read_condition(outputs: Sequence[torch.Tensor], what: str) -> bool:
    """Return the truth value of a condition's output."""
    (value,) = outputs
    if value.numel() != 1:
        raise ShapeError(f"{what} returned an array of shape {tuple(value.shape)}, expected one number")
    return bool(value.detach().reshape(()))


# cond


def _infer_cond(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    merged, results = list(ins), list(outs)
    for body, positions in zip(a.bodies, (a.cond_input_locs, a.then_input_locs, a.else_input_locs)):
        _check_attrs(a, len(positions) == body.num_inputs, positions, len(ins))
        inner, body_outs = body.shapes(_pick(merged, positions), () if body is a.bodies[0] else results)
        merged = _merge_shapes(merged, positions, inner, "input of cond")
        if body is not a.bodies[0]:
            results = [unify(r, m, "outputs of the two branches of cond") for r, m in zip(results, body_outs)]
    return merged, results


def _infer_cond_type(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    merged, results = list(ins), list(outs)
    for body, positions in zip(a.bodies, (a.cond_input_locs, a.then_input_locs, a.else_input_locs)):
        inner, body_outs = body.types(_pick(merged, positions))
        merged = _merge_types(merged, positions, inner)
        if body is a.bodies[0]:  # MXNet declares the condition's result as float32
            merged = _merge_types(merged, positions, ["float32"] * len(positions))
        else:
            results = [r or m for r, m in zip(results, body_outs)]
    return merged, results


@op(
    "_cond",
    attrs={
        **_COUNTS,
        "cond_input_locs": Attr(shape, "indices of the inputs of the condition"),
        "then_input_locs": Attr(shape, "indices of the inputs of the first branch"),
        "else_input_locs": Attr(shape, "indices of the inputs of the second branch"),
    },
    variadic=Variadic("data", count=None),
    outputs=_outputs,
    infer=_infer_cond,
    infer_type=_infer_cond_type,
    stateful=True,
    num_subgraphs=3,
    onnx=Onnx("If", builder="cond"),
)
def cond(a: Any, env: Env, *tensors: torch.Tensor) -> Any:
    """Run one of two subgraphs: the first if a third one returns a nonzero number.

    Shape:
        data0, ...: all inputs of the condition and the branches.
        returns: the outputs of the branch; both branches have the same output shapes.

    Source: MXNet 1.9.1 `_cond`.
    """
    condition, then_branch, else_branch = a.bodies
    if _read_condition(condition(env, _pick(tensors, a.cond_input_locs)), "the condition of cond"):
        return _result(then_branch(env, _pick(tensors, a.then_input_locs)))
    return _result(else_branch(env, _pick(tensors, a.else_input_locs)))

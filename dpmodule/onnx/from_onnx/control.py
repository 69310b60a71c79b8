"""`If`, `Loop`, `Scan`, and sequences of arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...graph import Entry, Graph, Node
from ...ops import get
from .build import GraphBuilder, GraphScope, NodeCall, Translator
from .check import Unsupported
from .index import selected
from .shape_helpers import MAX_LENGTH, move_axis, normalize_axis, positions, squeeze, unsqueeze
from .value import Dims, OnnxValue, Sizes


def _if(c: NodeCall) -> list[Any]:
    b = c.b
    known = b.constant_value(c.x)
    if known is not None:
        return c.body(c.attrs["then_branch" if bool(known.reshape(-1)[0]) else "else_branch"], [])
    yes, no = c.attrs["then_branch"], c.attrs["else_branch"]
    return branch(
        b,
        c.x.cast("float32"),
        lambda: c.body(yes, [], scope=b.scope),
        lambda: c.body(no, [], scope=b.scope),
    )


def _counts(b: GraphBuilder, limit: OnnxValue | None) -> tuple[int, ...] | None:
    """Return the maximal number of steps of a loop in every trial; None if it is open."""
    result = None if limit is None else b.values_per_trial(limit)
    if result is None:
        return None
    counts = tuple(int(n) for n in result)
    return None if max(counts) >= _ENDLESS else counts


def _loop(c: NodeCall) -> list[Any]:
    b, graph = c.b, c.attrs["body"]
    states = [c.value(i) for i in range(2, len(c.inputs))]
    counts = _counts(b, c.maybe(0))
    begins = None if c.maybe(1) is None else b.constant_value(c.value(1))
    if counts is not None and min(counts) < 1:
        raise Unsupported("a loop without steps")
    always_begins = c.maybe(1) is None or (begins is not None and bool(begins))
    if counts is not None and max(counts) <= MAX_LENGTH and always_begins and id(graph) not in b.may_end:
        result = _counted(c, graph, states, counts)
        if result is not None:
            return result
        b.may_end[id(graph)] = graph  # an outer loop translates it again
    return _conditional(c, graph, states, counts)


def _counted(c: NodeCall, graph: Any, states: list[OnnxValue], counts: tuple[int, ...]) -> list[Any] | None:
    """Translate a loop with a known number of steps; None if its body can end it."""
    b = c.b
    always: list[bool] = []

    def step(elements: list[OnnxValue], held: list[OnnxValue]) -> tuple[list[OnnxValue], list[OnnxValue]]:
        outs = c.body(graph, [elements[0], b.constant(torch.tensor(True)), *held], scope=b.scope)
        known = b.constant_value(outs[0])
        always.append(known is not None and bool(known))
        return outs[1 + len(held) :], outs[1 : 1 + len(held)]

    try:
        collected, last = scan_steps(b, [positions(b, counts)], states, step)
    except Unsupported:
        if always == [False]:
            return None
        raise
    return [*last, *collected] if always == [True] else None


def _conditional(
    c: NodeCall, graph: Any, states: list[OnnxValue], counts: tuple[int, ...] | None
) -> list[Any]:
    """Translate a loop that its body can end."""
    b = c.b
    zero = b.constant(torch.zeros(1, dtype=torch.int64)).as_scalar(True)
    start = c.maybe(1) or b.constant(torch.tensor(True))
    limit = c.maybe(0)
    variables = [zero, start.cast("float32"), *states]

    def test(held: list[OnnxValue]) -> OnnxValue:
        if limit is None:
            return held[1]
        return (held[0] < limit).cast("float32") * held[1]

    def step(held: list[OnnxValue]) -> tuple[list[OnnxValue], list[OnnxValue]]:
        outs = c.body(graph, [held[0], held[1].cast("bool"), *held[2:]], scope=b.scope)
        news = [held[0] + 1.0, outs[0].cast("float32"), *outs[1 : 1 + len(states)]]
        return outs[1 + len(states) :], news

    max_steps = None if counts is None or len(set(counts)) > 1 else counts[0]
    collected, last = while_true(b, variables, max_steps, test, step)
    if collected and max_steps is not None:
        keep = positions(b, (max_steps,)) < last[0]
        collected = [selected(b, value, keep.cast("float32")) for value in collected]
    return [*last[2:], *collected]


def _scan(c: NodeCall) -> list[Any]:
    if c.since < 9:
        raise Unsupported("a Scan of opset 8")
    b, a, graph = c.b, c.attrs, c.attrs["body"]
    count = a["num_scan_inputs"]
    total = len(c.inputs) - count
    states, data = [c.value(i) for i in range(total)], [c.value(i) for i in range(total, len(c.inputs))]
    axes, backwards = a.get("scan_input_axes") or [0] * count, a.get("scan_input_directions") or [0] * count
    moved = []
    for value, axis, is_back in zip(data, axes, backwards):
        front = move_axis(value, normalize_axis(axis, value.rank), 0)
        moved.append(b("reverse", front, axis=0) if is_back else front)

    def step(elements: list[OnnxValue], held: list[OnnxValue]) -> tuple[list[OnnxValue], list[OnnxValue]]:
        outs = c.body(graph, [*held, *elements], scope=b.scope)
        return outs[total:], outs[:total]

    collected, last = scan_steps(b, moved, states, step)
    axes = a.get("scan_output_axes") or [0] * len(collected)
    backwards = a.get("scan_output_directions") or [0] * len(collected)
    outputs = []
    for value, axis, is_back in zip(collected, axes, backwards):
        turned = b("reverse", value, axis=0) if is_back else value
        outputs.append(move_axis(turned, 0, normalize_axis(axis, turned.rank)))
    return [*last, *outputs]


# sequences: Python lists of values during translation


def _items(c: NodeCall) -> list[OnnxValue]:
    if not c.inputs or not isinstance(c.inputs[0], list):
        raise Unsupported("its input is not a sequence of known length")
    return list(c.inputs[0])


def _place(c: NodeCall, number: int, length: int) -> int:
    position = int(c.b.required_constant(c.value(number), "position"))
    if not -length <= position < max(length, 1):
        raise Unsupported(f"position {position} of a sequence of {length}")
    return position % length if length else 0


def _at(c: NodeCall) -> OnnxValue:
    items = _items(c)
    return items[_place(c, 1, len(items))]


def _insert(c: NodeCall) -> list[Any]:
    items = _items(c)
    position = int(c.b.required_constant(c.value(2), "position")) if c.has(2) else len(items)
    if not -len(items) <= position <= len(items):
        raise Unsupported(f"position {position} of a sequence of {len(items)}")
    items.insert(position, c.value(1))
    return [items]


def _erase(c: NodeCall) -> list[Any]:
    items = _items(c)
    del items[_place(c, 1, len(items)) if c.has(1) else len(items) - 1]
    return [items]


def _concat_from_sequence(c: NodeCall) -> OnnxValue:
    b, items, axis = c.b, _items(c), c.attrs["axis"]
    if c.attrs["new_axis"]:
        items = [unsqueeze(v, [axis]) for v in items]
    return items[0] if len(items) == 1 else b("Concat", *items, dim=normalize_axis(axis, items[0].rank))


def _split_to_sequence(c: NodeCall) -> list[Any]:
    b, x = c.b, c.x
    axis = normalize_axis(c.attrs["axis"], x.rank)
    whole = x.size(axis)
    if whole is None:
        raise Unsupported("a sequence whose length depends on the sizes of the inputs")
    split_value = c.maybe(1)
    sizes = [1] if split_value is None else list(b.integers(split_value, "split")[0])
    if split_value is None or split_value.is_scalar:
        step = max(1, sizes[0])
        if whole > 4096 * step:
            raise Unsupported(f"a sequence of {-(-whole // step)} arrays, expected at most 4096")
        sizes = [min(sizes[0], whole - i) for i in range(0, whole, step)]
    if sum(sizes) != whole or min(sizes) < 1 or len(sizes) > 4096:
        raise Unsupported(f"split {sizes[:16]} of an axis of {whole} elements")
    indices = [sum(sizes[:i]) for i in range(len(sizes))]
    items = [b("slice_axis", x, axis=axis, begin=p, end=p + n) for p, n in zip(indices, sizes)]
    if split_value is None and not c.attrs["keepdims"]:
        items = [squeeze(v, [axis]) for v in items]
    return [items]


TABLE: dict[str, Translator] = {
    "ConcatFromSequence": _concat_from_sequence,
    "If": _if,
    "Loop": _loop,
    "Scan": _scan,
    "SequenceAt": _at,
    "SequenceConstruct": lambda c: [[c.value(i) for i in range(len(c.inputs))]],
    "SequenceEmpty": lambda c: [[]],
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": lambda c: c.b.constant(torch.tensor(len(_items(c)))),
    "SplitToSequence": _split_to_sequence,
}


# loops and branches from functions that build their bodies

Values = list[OnnxValue]
_ENDLESS = 2**31 - 1


def graph_of(
    b: GraphBuilder, values: Sequence[OnnxValue], labels: Sequence[str], named: bool = False
) -> Graph:
    """Return the graph of some values in the current scope; each value gets its own node.

    Args:
        labels: names of added nodes.
    """
    heads: list[Entry] = []
    seen: set[Entry] = set()
    for value, label in zip(values, labels):
        entry = b.entry(value)
        is_other = named and entry[0].output_names[entry[1]].removesuffix("_output") != label.removesuffix(
            "_output"
        )
        if entry[0].op is None or entry in seen or is_other:
            b.label = label
            entry = b.entry(b("identity", _open(b, value)))
            entry[0].name = b.reserve(label.removesuffix("_output"))
        seen.add(entry)
        heads.append(entry)
    return Graph(tuple(heads))


def _open(b: GraphBuilder, value: OnnxValue) -> OnnxValue:
    """Return a value that is not known to be constant, so that operators on it are not folded."""
    result = value.again()
    result.entry, result.scope, result.known, result.recipe = b.entry(value), b.scope, None, None
    return result


def _placeholder(
    b: GraphBuilder, kind: str, shapes: tuple[Dims, ...], dtype: str, is_scalar: bool
) -> OnnxValue:
    result = b.variable(b.reserve(f"{b.label}_{kind}"), shapes, dtype, is_open=True)
    return result.as_scalar(is_scalar)


def _element(b: GraphBuilder, whole: OnnxValue) -> OnnxValue:
    shapes = tuple(s[1:] or (1,) for s in whole.shapes)
    return _placeholder(b, "element", shapes, whole.dtype, len(whole.shapes[0]) == 1)


def _outer_value(b: GraphBuilder, scope: GraphScope, node: Node) -> OnnxValue:
    """Return the outer value that a variable of a body represents."""
    for outer, inner in scope.captured.values():
        if inner is node:
            result = OnnxValue(b, ((1,),) * b.trials, "float32", outer)
            result.scope, result.trains = b.scope, True
            return result
    raise Unsupported(f"a body reads {node.name!r}, which is not defined")


def _checked_state(b: GraphBuilder, old: OnnxValue, new: OnnxValue) -> OnnxValue:
    """Return a state after a step, checked against the state before."""
    if new.shapes != old.shapes:
        raise Unsupported(f"a state changes its shape from {old.dims[0]} to {new.dims[0]}")
    return new.cast(old.dtype)


def _with_all_variables_read(
    b: GraphBuilder, graph: Graph, variables: Values, values: Values, labels: list[str]
) -> Graph:
    """Return the graph with all variables read, as MXNet's loops require; of unused ones only the shape is read."""
    there = set(graph.inputs)
    changed = list(values)
    for i, variable in enumerate(variables):
        if variable.entry is not None and variable.entry[0] not in there:
            position = len(values) - len(variables) + i
            changed[position] = b("reshape_like", _open(b, changed[position]), variable)
    return graph if changed == values else graph_of(b, changed, labels)


def scan_steps(
    b: GraphBuilder, data: Values, states: Values, step: Callable[[Values, Values], tuple[Values, Values]]
) -> tuple[Values, Values]:
    """Run a body on every element along axis 0 of the data.

    Args:
        data: arrays of one length.
        step: ``(elements, states) -> (outputs, new states)``.

    Returns:
        The outputs of all steps, stacked along axis 0, and the last states.
    """
    outer, scope = b.scope, GraphScope(b.scope)
    lengths = data[0].axis(0)
    b.scope = scope
    try:
        elements = [_element(b, v) for v in data]
        held = [_placeholder(b, "state", v.shapes, v.dtype, v.is_scalar) for v in states]
        outs, news = step(elements, held)
        news = [_checked_state(b, old, new) for old, new in zip(held, news)]
        results = [*outs, *news]
        labels = [f"{b.label}_step{i}" for i in range(len(results))]
        graph = graph_of(b, results, labels)
        graph = _with_all_variables_read(b, graph, held, results, labels)
        if not any(e.entry is not None and e.entry[0] in graph.inputs for e in elements):
            results[0] = _open(b, results[0]) + elements[0].cast(results[0].dtype) * 0.0
            graph = _with_all_variables_read(b, graph_of(b, results, labels), held, results, labels)
    finally:
        b.scope = outer
    return _foreach(b, scope, graph, (data, elements), (states, held), outs, lengths)


def _foreach(
    b: GraphBuilder,
    scope: GraphScope,
    graph: Graph,
    data: tuple[Values, Values],
    states: tuple[Values, Values],
    outs: Values,
    lengths: Sizes,
) -> tuple[Values, Values]:
    inputs = list(graph.inputs)
    read = [(whole, e) for whole, e in zip(*data) if e.entry is not None and e.entry[0] in inputs]
    data_locs = [inputs.index(e.entry[0]) for _, e in read if e.entry]
    state_locs = [inputs.index(h.entry[0]) for h in states[1] if h.entry]
    rest = [i for i in range(len(inputs)) if i not in (*data_locs, *state_locs)]
    values = [*(whole for whole, _ in read), *states[0], *(_outer_value(b, scope, inputs[i]) for i in rest)]
    count = len(outs) + len(states[0])
    params = {
        "num_args": str(len(values) + 1),
        "num_outputs": str(count),
        "num_out_data": str(len(outs)),
        "in_state_locs": str(tuple(state_locs)),
        "in_data_locs": str(tuple(data_locs)),
        "remain_locs": str(tuple(rest)),
    }
    op = get("_foreach")
    shapes = [tuple((n, *s) for n, s in zip(lengths, v.shapes)) for v in outs] + [v.shapes for v in states[0]]
    types = [v.dtype for v in (*outs, *states[0])]
    result = b.apply_op(op, op.parse(params, (graph,)), params, values, shapes, (graph,), types)
    stacked = [b("Reshape", v, shape=(-1,)) if o.is_scalar else v for v, o in zip(result, outs)]
    return stacked, [v.as_scalar(s.is_scalar) for v, s in zip(result[len(outs) :], states[0])]


def while_true(
    b: GraphBuilder,
    variables: Values,
    limit: int | None,
    test: Callable[[Values], OnnxValue],
    step: Callable[[Values], tuple[Values, Values]],
) -> tuple[Values, Values]:
    """Run a body as long as a test holds.

    Args:
        limit: the maximal number of steps; None means no limit, and then a step must not have outputs.
        test: ``(variables) -> one number``.
        step: ``(variables) -> (outputs, new variables)``.

    Returns:
        The outputs of all steps, stacked along axis 0 with zeros up to the limit, and the last variables.
    """
    outer = b.scope
    first, scope = GraphScope(outer), GraphScope(outer)
    try:
        b.scope = first
        asked = [_placeholder(b, "var", v.shapes, v.dtype, v.is_scalar) for v in variables]
        question = graph_of(b, [test(asked)], [f"{b.label}_test"])
        b.scope = scope
        held = [_placeholder(b, "var", v.shapes, v.dtype, v.is_scalar) for v in variables]
        outs, news = step(held)
        if outs and limit is None:
            raise Unsupported("a loop that collects results has no maximal number of steps")
        results = [*outs, *(_checked_state(b, old, new) for old, new in zip(held, news))]
        labels = [f"{b.label}_step{i}" for i in range(len(results))]
        graph = _with_all_variables_read(b, graph_of(b, results, labels), held, results, labels)
    finally:
        b.scope = outer
    values = list(variables)
    locs = [_located(b, g, s, own, values) for g, s, own in ((question, first, asked), (graph, scope, held))]
    inputs = list(graph.inputs)
    params = {
        "num_args": str(len(values) + 2),
        "num_outputs": str(len(results)),
        "num_out_data": str(len(outs)),
        "max_iterations": str(_ENDLESS if limit is None else limit),
        "cond_input_locs": str(tuple(locs[0])),
        "func_input_locs": str(tuple(locs[1])),
        "func_var_locs": str(tuple(inputs.index(h.entry[0]) for h in held if h.entry)),
    }
    op = get("_while_loop")
    shapes = [tuple((limit or 0, *s) for s in v.shapes) for v in outs] + [v.shapes for v in variables]
    types = [v.dtype for v in (*outs, *variables)]
    result = b.apply_op(
        op, op.parse(params, (question, graph)), params, values, shapes, (question, graph), types
    )
    stacked = [b("Reshape", v, shape=(-1,)) if o.is_scalar else v for v, o in zip(result, outs)]
    return stacked, [v.as_scalar(s.is_scalar) for v, s in zip(result[len(outs) :], variables)]


def _located(b: GraphBuilder, graph: Graph, scope: GraphScope, own: Values, values: Values) -> list[int]:
    """Return the index in `values` of each input of a body, appending outer values that it reads."""
    nodes = [v.entry[0] if v.entry else None for v in own]
    results = []
    for node in graph.inputs:
        if node in nodes:
            results.append(nodes.index(node))
        else:
            results.append(len(values))
            values.append(_outer_value(b, scope, node))
    return results


def branch(
    b: GraphBuilder, condition: OnnxValue, yes: Callable[[], Values], no: Callable[[], Values]
) -> Values:
    """Run one of two bodies.

    Args:
        condition: one number; 0 chooses the second.
        yes: ``() -> outputs``.
        no: the same; as many, of the same shapes and types.
    """
    outer = b.scope
    values: Values = []
    graphs, locs, outs = [], [], []
    bodies: list[Callable[[], Values]] = [lambda: [condition], yes, no]
    for number, body in enumerate(bodies):
        scope = GraphScope(outer)
        b.scope = scope
        try:
            new = body()
            graph = graph_of(b, new, [f"{b.label}_branch{number}_{i}" for i in range(len(new))])
        finally:
            b.scope = outer
        outs.append(new)
        graphs.append(graph)
        locs.append(_located(b, graph, scope, [], values))
    for one, other in zip(outs[1], outs[2]):
        if one.shapes != other.shapes or one.dtype != other.dtype:
            raise Unsupported(
                f"its branches give {one.dims[0]} of {one.dtype} and {other.dims[0]} of {other.dtype}"
            )
    params = {
        "num_args": str(len(values) + 3),
        "num_outputs": str(len(outs[1])),
        "cond_input_locs": str(tuple(locs[0])),
        "then_input_locs": str(tuple(locs[1])),
        "else_input_locs": str(tuple(locs[2])),
    }
    op = get("_cond")
    bodies_of = tuple(graphs)
    result = b.apply_op(
        op,
        op.parse(params, bodies_of),
        params,
        values,
        [v.shapes for v in outs[1]],
        bodies_of,
        [v.dtype for v in outs[1]],
    )
    return [v.as_scalar(o.is_scalar) for v, o in zip(result, outs[1])]

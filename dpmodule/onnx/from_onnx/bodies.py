"""Loops and branches made of functions that make their bodies."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...graph import Entry, Graph, Node
from ...ops import get
from .build import GraphBuilder, GraphScope
from .problems import Refused
from .value import OnnxValue
from .worlds import Dims, Sizes

Values = list[OnnxValue]
_ENDLESS = 2**31 - 1


def graph_of(
    b: GraphBuilder, values: Sequence[OnnxValue], labels: Sequence[str], named: bool = False
) -> Graph:
    """Return the graph of some values in the scope that is being made; each gets a node of its own.

    Args:
        labels: what the nodes are called that have to be made.
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
    """Return a value of which nobody knows that it is constant, so that an operator on it is not computed."""
    made = value.again()
    made.entry, made.scope, made.known, made.recipe = b.entry(value), b.scope, None, None
    return made


def _stand_in(b: GraphBuilder, kind: str, shapes: tuple[Dims, ...], dtype: str, is_scalar: bool) -> OnnxValue:
    made = b.variable(b.reserve(f"{b.label}_{kind}"), shapes, dtype, is_open=True)
    return made.as_scalar(is_scalar)


def _element(b: GraphBuilder, whole: OnnxValue) -> OnnxValue:
    shapes = tuple(s[1:] or (1,) for s in whole.shapes)
    return _stand_in(b, "element", shapes, whole.dtype, len(whole.shapes[0]) == 1)


def _outside(b: GraphBuilder, scope: GraphScope, node: Node) -> OnnxValue:
    """Return what a variable of a body stands for in the graph around it."""
    for outer, inner in scope.captured.values():
        if inner is node:
            made = OnnxValue(b, ((1,),) * b.worlds, "float32", outer)
            made.scope, made.trains = b.scope, True
            return made
    raise Refused(f"a body reads {node.name!r}, which is not there")


def _kept(b: GraphBuilder, old: OnnxValue, new: OnnxValue) -> OnnxValue:
    """Return a state after a step, checked against the one before, which it has to read by all means."""
    if new.shapes != old.shapes:
        raise Refused(f"a state changes its shape from {old.dims[0]} to {new.dims[0]}")
    return new.cast(old.dtype)


def _reading(b: GraphBuilder, graph: Graph, variables: Values, values: Values, labels: list[str]) -> Graph:
    """Return the graph with all variables read, which MXNet's loops ask for; only their shape is, if need be."""
    there = set(graph.inputs)
    changed = list(values)
    for i, variable in enumerate(variables):
        if variable.entry is not None and variable.entry[0] not in there:
            place = len(values) - len(variables) + i
            changed[place] = b("reshape_like", _open(b, changed[place]), variable)
    return graph if changed == values else graph_of(b, changed, labels)


def each_step(
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
        held = [_stand_in(b, "state", v.shapes, v.dtype, v.is_scalar) for v in states]
        outs, news = step(elements, held)
        news = [_kept(b, old, new) for old, new in zip(held, news)]
        results = [*outs, *news]
        labels = [f"{b.label}_step{i}" for i in range(len(results))]
        graph = graph_of(b, results, labels)
        graph = _reading(b, graph, held, results, labels)
        if not any(e.entry is not None and e.entry[0] in graph.inputs for e in elements):
            results[0] = _open(b, results[0]) + elements[0].cast(results[0].dtype) * 0.0
            graph = _reading(b, graph_of(b, results, labels), held, results, labels)
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
    values = [*(whole for whole, _ in read), *states[0], *(_outside(b, scope, inputs[i]) for i in rest)]
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
    found = b.made(op, op.parse(params, (graph,)), params, values, shapes, (graph,), types)
    stacked = [b("Reshape", v, shape=(-1,)) if o.is_scalar else v for v, o in zip(found, outs)]
    return stacked, [v.as_scalar(s.is_scalar) for v, s in zip(found[len(outs) :], states[0])]


def while_true(
    b: GraphBuilder,
    variables: Values,
    limit: int | None,
    test: Callable[[Values], OnnxValue],
    step: Callable[[Values], tuple[Values, Values]],
) -> tuple[Values, Values]:
    """Run a body as long as a test holds.

    Args:
        limit: the largest number of steps; None = none, with which a step may have no outputs.
        test: ``(variables) -> one number``.
        step: ``(variables) -> (outputs, new variables)``.

    Returns:
        The outputs of all steps, stacked along axis 0 with zeros up to the limit, and the last variables.
    """
    outer = b.scope
    first, scope = GraphScope(outer), GraphScope(outer)
    try:
        b.scope = first
        asked = [_stand_in(b, "var", v.shapes, v.dtype, v.is_scalar) for v in variables]
        question = graph_of(b, [test(asked)], [f"{b.label}_test"])
        b.scope = scope
        held = [_stand_in(b, "var", v.shapes, v.dtype, v.is_scalar) for v in variables]
        outs, news = step(held)
        if outs and limit is None:
            raise Refused("a loop without a largest number of steps that collects results")
        results = [*outs, *(_kept(b, old, new) for old, new in zip(held, news))]
        labels = [f"{b.label}_step{i}" for i in range(len(results))]
        graph = _reading(b, graph_of(b, results, labels), held, results, labels)
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
    found = b.made(op, op.parse(params, (question, graph)), params, values, shapes, (question, graph), types)
    stacked = [b("Reshape", v, shape=(-1,)) if o.is_scalar else v for v, o in zip(found, outs)]
    return stacked, [v.as_scalar(s.is_scalar) for v, s in zip(found[len(outs) :], variables)]


def _located(b: GraphBuilder, graph: Graph, scope: GraphScope, own: Values, values: Values) -> list[int]:
    """Return which of the values each input of a body is; what it reads besides is put there."""
    nodes = [v.entry[0] if v.entry else None for v in own]
    found = []
    for node in graph.inputs:
        if node in nodes:
            found.append(nodes.index(node))
        else:
            found.append(len(values))
            values.append(_outside(b, scope, node))
    return found


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
            made = body()
            graph = graph_of(b, made, [f"{b.label}_branch{number}_{i}" for i in range(len(made))])
        finally:
            b.scope = outer
        outs.append(made)
        graphs.append(graph)
        locs.append(_located(b, graph, scope, [], values))
    for one, other in zip(outs[1], outs[2]):
        if one.shapes != other.shapes or one.dtype != other.dtype:
            raise Refused(
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
    found = b.made(
        op,
        op.parse(params, bodies_of),
        params,
        values,
        [v.shapes for v in outs[1]],
        bodies_of,
        [v.dtype for v in outs[1]],
    )
    return [v.as_scalar(o.is_scalar) for v, o in zip(found, outs[1])]

"""Loops and branches in graphs: `sym.contrib.foreach`, `while_loop` and `cond`.

Source: MXNet 1.9.1 `symbol.contrib`; the graphs are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from .. import attribute
from .. import name as naming
from ..attribute import AttrScope
from ..base import ArgumentError
from ..graph import Entry, Graph, Node
from ..ndarray.contrib import Form, flatten, regroup
from ..ops import get as get_op
from .compose import source_line
from .symbol import Group, Symbol, Variable, call

SUBGRAPH = "__subgraph_name__"
"""Attribute of the nodes of a subgraph."""


@dataclass(frozen=True)
class Subgraph:
    """A subgraph and the sources of its inputs.

    Attributes:
        sources: outer entry of each input in order; a copy of the variable if it was created inside.
    """

    graph: Graph
    sources: tuple[Entry, ...]
    own: tuple[bool, ...]

    @property
    def names(self) -> list[str]:
        """Names of the inputs."""
        return [node.name for node in self.graph.inputs]


def symbols_of(value: object, what: str) -> tuple[list[Symbol], Any]:
    """Return the single symbols in a nested list of symbols, and its structure; see `flatten`."""
    return flatten(value, lambda one: list(one) if isinstance(one, Symbol) else None, what)


def input_name(symbol: Symbol) -> str:
    """Return the name of the variable that represents a symbol inside a subgraph."""
    node, i = symbol.entries[0]
    return f"{node.name}-{i}"


def with_identities(symbols: Sequence[Symbol], name: str, others: Sequence[Symbol] = ()) -> Symbol:
    """Group outputs of a subgraph; outputs that are also inputs, or come from outside, get an identity node.

    Args:
        others: further outputs, which also get one if they share a node with `symbols`.
    """
    inputs = {node.name for node in Group([*symbols, *others]).graph.inputs}
    first = {symbol.name for symbol in symbols}
    outputs = []
    for i, symbol in enumerate((*symbols, *others)):
        node = symbol.entries[0][0]
        repeated = i >= len(symbols) and node.name in first
        foreign = node.attrs.get(SUBGRAPH) != name
        outputs.append(call("identity", symbol) if node.name in inputs or repeated or foreign else symbol)
    return Group(outputs)


def extract_subgraph(symbol: Symbol, name: str) -> Subgraph:
    """Return the subgraph of a symbol, whose nodes carry the subgraph's name."""
    sources: dict[Node, Entry] = {}
    stand_ins: dict[Entry, Node] = {}
    copies: dict[Node, Node] = {}
    for node in symbol.graph.nodes:
        if node.attrs.get(SUBGRAPH) != name:
            continue
        inputs = []
        for child, i in node.inputs:
            if child in copies:
                inputs.append((copies[child], i))
                continue
            if (child, i) not in stand_ins:
                stand_ins[child, i] = variable = Node(None, child.output_names[i], source=child.source)
                sources[variable] = (child, i)
            inputs.append((stand_ins[child, i], 0))
        copies[node] = copy = Node(
            node.op,
            node.name,
            dict(node.params),
            dict(node.attrs),
            tuple(inputs),
            node.source,
            node.subgraphs,
        )
        if node.op is None:
            sources[copy] = (node, 0)
    graph = Graph(tuple((copies[node], i) for node, i in symbol.entries))
    _check_names(graph)
    return Subgraph(
        graph,
        tuple(sources[node] for node in graph.inputs),
        tuple(node.attrs.get(SUBGRAPH) == name for node in graph.inputs),
    )


def _check_names(graph: Graph) -> None:
    """Raise if two inputs of a subgraph have one name."""
    seen: dict[str, Node] = {}
    for node in graph.inputs:
        other = seen.setdefault(node.name, node)
        if other is not node:
            raise ArgumentError(
                f"two inputs of a subgraph are named {node.name!r} ({other.describe()}; {node.describe()}); "
                "rename one of them"
            )


Nested: TypeAlias = "Symbol | Sequence[Any]"
"""A symbol, or a list of symbols nested to any depth."""


class UnusedInputError(ArgumentError, AssertionError):
    """Data, a state or a loop variable that the body of a loop does not read."""


def _make(
    op_name: str, subgraphs: Sequence[Subgraph], inputs: Sequence[Entry], params: Mapping[str, Any]
) -> list[Symbol]:
    """Create the node of a loop or branch and return its outputs."""
    op = get_op(op_name)
    texts = {"num_args": len(inputs) + len(subgraphs), **params}
    node = Node(
        op,
        naming.current().get(None, op_name),
        {key: str(value) for key, value in texts.items()},
        attribute.current().get(None),
        tuple(inputs),
        source_line(),
        tuple(subgraph.graph for subgraph in subgraphs),
    )
    return [Symbol([(node, i)]) for i in range(node.num_outputs)]


def _source(subgraph: Subgraph, i: int) -> Entry:
    """Return the source of a subgraph's input; an inner variable is copied, so that no node is in both graphs."""
    node, output = subgraph.sources[i]
    return (
        (Node(None, node.name, attrs=dict(node.attrs), source=node.source), 0)
        if subgraph.own[i]
        else (node, output)
    )


def _body_variables(symbols: Sequence[Symbol], form: Form) -> Any:
    """Return new variables for the body of a loop, nested like the user's symbols."""
    return regroup([Variable(input_name(symbol)) for symbol in symbols], form)


def _positions(subgraph: Subgraph, symbols: Sequence[Symbol], what: str) -> list[int]:
    """Return the positions of symbols among the inputs of a subgraph."""
    names = subgraph.names
    for symbol in symbols:
        if input_name(symbol) not in names:
            raise UnusedInputError(f"{what}: {symbol.name!r} has to be used in the loop body")
    return [names.index(input_name(symbol)) for symbol in symbols]


def foreach(
    body: Callable[[Any, Any], tuple[Any, Any]], data: Nested, init_states: Nested, name: str = "foreach"
) -> tuple[Any, Any]:
    """Run a subgraph on every element along axis 0 of the data, passing states from run to run.

    Args:
        body: ``(element, states) -> (outputs, new states)``, called once to create the subgraph. It may use outer
            symbols and create variables, which become arguments.
        data: a symbol, or a nested list of symbols, of one length.

    Returns:
        The outputs of all runs stacked along a new axis 0, and the last states, both nested as `body` returned them.

    Example:
        >>> x, s = mx.sym.Variable("x"), mx.sym.Variable("s")
        >>> total, last = mx.sym.contrib.foreach(lambda x, s: (x + s, x + s), x, s)
        >>> total.eval(x=mx.nd.array([[1], [2]]), s=mx.nd.zeros((1,)))[0].asnumpy().tolist()
        [[1.0], [3.0]]
    """
    items, data_form = symbols_of(data, "foreach: data")
    states, state_form = symbols_of(init_states, "foreach: init_states")
    if not items:
        raise ArgumentError("foreach: data is empty, expected at least one symbol")
    scope = attribute.subgraph_name(name)
    with AttrScope(**{SUBGRAPH: scope}):
        outputs, after = body(_body_variables(items, data_form), _body_variables(states, state_form))
        out_items, out_form = symbols_of(outputs, "foreach: an output of body")
        new_states, new_form = symbols_of(after, "foreach: a state that body returned")
        if new_form != state_form:
            raise UnusedInputError(
                "foreach: body returned states of another structure than init_states: "
                f"{len(new_states)} symbols for {len(states)}, or another nesting"
            )
        if not out_items and not new_states:
            raise ArgumentError("foreach: body returned neither outputs nor states")
        subgraph = extract_subgraph(with_identities(out_items, scope, new_states), scope)
    data_locs = _positions(subgraph, items, "foreach: data")
    state_locs = _positions(subgraph, states, "foreach: state")
    remain = [i for i in range(len(subgraph.names)) if i not in (*data_locs, *state_locs)]
    inputs = [symbol.entries[0] for symbol in (*items, *states)] + [_source(subgraph, i) for i in remain]
    loop = _make(
        "_foreach",
        [subgraph],
        inputs,
        {
            "num_outputs": len(out_items) + len(states),
            "num_out_data": len(out_items),
            "in_state_locs": state_locs,
            "in_data_locs": data_locs,
            "remain_locs": remain,
        },
    )
    return regroup(loop, out_form), regroup(loop[len(out_items) :], new_form)


def _as_lists(value: object) -> Any:
    return [] if value is None else list(value) if isinstance(value, tuple) else value


def while_loop(
    cond: Callable[..., Symbol],
    func: Callable[..., tuple[Any, Any]],
    loop_vars: Nested,
    max_iterations: int | None = None,
    name: str = "while_loop",
) -> tuple[Any, Any]:
    """Run a subgraph on loop variables while a condition, another subgraph, is not 0.

    Args:
        cond: ``(*loop_vars) -> symbol of one number``, called once to create a subgraph.
        func: ``(*loop_vars) -> (outputs, new loop_vars)``, called once; either may be None.
        loop_vars: a symbol, or a nested list of symbols, at least one.
        max_iterations: maximum number of steps.

    Returns:
        The outputs of all steps, stacked along a new axis 0 whose length is always `max_iterations` (padded with
        zeros), and the last loop variables.
    """
    if max_iterations is None:
        raise ArgumentError("while_loop: max_iterations should be specified")
    try:
        limit = int(max_iterations)
    except (TypeError, ValueError):
        raise ArgumentError(
            f"while_loop: max_iterations is {max_iterations!r}, expected an integer"
        ) from None
    variables, form = symbols_of(loop_vars, "while_loop: loop_vars")
    if not variables:
        raise ArgumentError("while_loop: loop_vars should contain at least one symbol")
    test = _test_subgraph(cond, variables, form, name)
    scope = attribute.subgraph_name(f"{name}_func")
    with AttrScope(**{SUBGRAPH: scope}):
        outputs, after = func(*_arguments(variables, form))
        out_items, out_form = symbols_of(_as_lists(outputs), "while_loop: an output of func")
        new, _ = symbols_of(_as_lists(after), "while_loop: a loop variable that func returned")
        if len(new) != len(variables):
            raise ArgumentError(
                f"while_loop: func returned {len(new)} loop variables, expected {len(variables)} as loop_vars has"
            )
        subgraph = extract_subgraph(with_identities([*out_items, *new], scope), scope)
    inputs, (test_locs, body_locs) = _united([test, subgraph], variables)
    loop = _make(
        "_while_loop",
        [test, subgraph],
        inputs,
        {
            "num_outputs": len(out_items) + len(new),
            "num_out_data": len(out_items),
            "max_iterations": limit,
            "cond_input_locs": test_locs,
            "func_input_locs": body_locs,
            "func_var_locs": _positions(subgraph, variables, "while_loop: loop variable"),
        },
    )
    return regroup(loop, out_form), regroup(loop[len(out_items) :], form)


def _arguments(variables: Sequence[Symbol], form: Form) -> list[Any]:
    variables_inside = _body_variables(variables, form)
    return variables_inside if isinstance(variables_inside, list) else [variables_inside]


def _test_subgraph(test: Callable[..., Any], variables: Sequence[Symbol], form: Form, name: str) -> Subgraph:
    """Return the subgraph of a while loop's condition."""
    scope = attribute.subgraph_name(f"{name}_cond")
    with AttrScope(**{SUBGRAPH: scope}):
        result = test(*_arguments(variables, form))
        if not isinstance(result, Symbol) or len(result) != 1:
            raise ArgumentError(f"while_loop: cond returned {result!r}, expected a Symbol with one output")
        return extract_subgraph(with_identities([result], scope), scope)


def _united(
    subgraphs: Sequence[Subgraph], variables: Sequence[Symbol]
) -> tuple[list[Entry], list[list[int]]]:
    """Return the joint inputs of all subgraphs, and the position of each subgraph's inputs among them.

    Loop variables are listed once, other inputs of two subgraphs twice, as in MXNet.
    """
    by_name = {input_name(variable): variable.entries[0] for variable in variables}
    inputs: list[Entry] = []
    positions: dict[str, int] = {}
    locs = []
    for subgraph in subgraphs:
        own = []
        for i, name in enumerate(subgraph.names):
            if name in by_name and name in positions:
                own.append(positions[name])
                continue
            positions[name] = len(inputs)
            own.append(len(inputs))
            inputs.append(by_name[name] if name in by_name else _source(subgraph, i))
        locs.append(own)
    return inputs, locs


def cond(pred: Symbol, then_func: Callable[[], Any], else_func: Callable[[], Any], name: str = "cond") -> Any:
    """Run one of two subgraphs.

    Args:
        pred: a symbol of one number; 0 selects `else_func`.
        then_func: ``() -> outputs``, called once to create a subgraph.
        else_func: the same; its outputs have the same number, shapes and types.

    Returns:
        The outputs, nested as `then_func` returned them.
    """
    subgraphs, forms = [], []
    for role, function in (("pred", lambda: pred), ("then", then_func), ("else", else_func)):
        scope = attribute.subgraph_name(f"{name}_{role}")
        with AttrScope(**{SUBGRAPH: scope}):
            items, form = symbols_of(function(), f"cond: an output of {role}")
            if not items:
                raise ArgumentError(f"cond: {role} returned no outputs")
            subgraphs.append(extract_subgraph(with_identities(items, scope), scope))
        forms.append(form)
    counts = [len(subgraph.graph.heads) for subgraph in subgraphs]
    if counts[0] != 1:
        raise ArgumentError(f"cond: pred has {counts[0]} outputs, expected one")
    if counts[1] != counts[2]:
        raise ArgumentError(f"cond: then_func returned {counts[1]} outputs, else_func {counts[2]}")
    inputs, locs = _united_by_node(subgraphs)
    branch = _make(
        "_cond",
        subgraphs,
        inputs,
        {
            "num_outputs": counts[1],
            "cond_input_locs": locs[0],
            "then_input_locs": locs[1],
            "else_input_locs": locs[2],
        },
    )
    return regroup(branch, forms[1])


def _united_by_node(subgraphs: Sequence[Subgraph]) -> tuple[list[Entry], list[list[int]]]:
    """Return the joint inputs of all branches, and the position of each branch's inputs among them.

    Inputs of two branches are listed once if they have the same name, as in MXNet.
    """
    inputs: list[Entry] = []
    locs = []
    for subgraph in subgraphs:
        before = {node.name: i for i, (node, _) in enumerate(inputs) if node.op is None}
        own = []
        for i, name in enumerate(subgraph.names):
            if name in before:
                own.append(before[name])
            else:
                own.append(len(inputs))
                inputs.append(_source(subgraph, i))
        locs.append(own)
    return inputs, locs

"""`cell`: a symbol as a function of single examples, batched like every other operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, overload

import torch

from .._core import mode as flags
from ..base import ArgumentError, ShapeError
from ..executor.subgraph_function import SubgraphFunction
from ..graph import Graph, Node
from ..initializer import Xavier
from ..ops.shapes import known
from ..ops.spec import Env
from ..symbol import Symbol
from .arguments import TOO_LARGE, as_integer, flag, text
from .cell_symbol import CellParameters, RaggedInputs, can_stack, why_not_row_wise
from .collection import ParameterCollection
from .errors import user_line, wrong_type
from .expression import as_list
from .pytorch.cells import cell as pytorch_cell
from .session import state
from .user_function import UserFunction, as_expression

Tensor = torch.Tensor
Shape = tuple[int, ...]
Function = TypeVar("Function", bound=Callable[..., Any])


class Cell(UserFunction):
    """A symbol as a function of expressions; made by `cell`.

    Call it with its inputs by position, in the order of `input_names`, or by name. It returns its output as an
    expression, or a tuple of outputs.

    Args:
        params: the parameters. A collection: parameters named like the symbol's arguments are used, others are added to
            it. A dict of NDArrays, tensors or Parameters by name: their memory is used, gradients are added to
            ``array.grad``, and arguments that are not in the dict are inputs. None: a new collection.
        inputs: names of the inputs; by default all arguments that no operator declares as a parameter.
        shapes: shape of one example of every input, to create parameters immediately rather than in the first call.
        rows: whether the symbol works row by row, overriding what its operators declare.
        initializer: initializer of new parameters; `Xavier` by default.
        allow_extra: ignore arrays of the dict that are not parameters of the symbol.

    Shape:
        inputs, outputs: without the symbol's first axis, that of the examples.

    Attributes:
        symbol: the graph computed for each example; a group has several outputs.
        input_names: names of the inputs.
        collection: the parameters and states, for trainers and for saving.
        is_train: True for training mode; None follows `training` and mx.autograd.

    Raises:
        ArgumentError: `params` names an unknown parameter, or no argument is an input.
        ForeignValueError: an argument has the wrong type.
        ShapeError: `shapes` do not fit the symbol.
    """

    def __init__(
        self,
        symbol: Symbol,
        params: ParameterCollection | Mapping[str, Any] | None,
        inputs: Sequence[str] | None,
        shapes: Mapping[str, Sequence[int]] | None,
        rows: bool | None,
        initializer: Any,
        allow_extra: bool,
        name: str | None,
    ) -> None:
        graph = symbol.graph
        graph.check_names()
        loss_outputs = [_ignores_head(node) for node, _ in graph.heads]
        random = any(node.draws() for node in graph.nodes)
        losses = [node for node in _every_node(graph) if _ignores_head(node)]
        super().__init__(name or graph.heads[0][0].name, random, bool(losses))
        # True if all losses skip rows that are not counted, see `UserFunction.compute`
        self._skips_uncounted = all(node.op is not None and node.op.is_loss(node.a) for node in losses)
        self.symbol = symbol
        self._graph, self._loss_outputs, self._rows = graph, loss_outputs, rows
        self._ragged = RaggedInputs(graph)
        self._body = SubgraphFunction(graph, self._ragged.storage)
        self._executions: dict[Any, str] = {}  # by mode and input shapes; see `execution`
        self._scalars: dict[Any, frozenset[int]] = {}  # by input shapes: inputs that are 0-d in the symbol
        self._arguments = CellParameters(symbol, params, inputs, initializer, allow_extra, self._ragged)
        self.collection, self.input_names = self._arguments.collection, self._arguments.input_names
        if shapes is not None and self._arguments.missing:
            self._arguments.make({name: _example(name, shape) for name, shape in shapes.items()})
        self.parameters = list(self._arguments.operands().values())

    def __repr__(self) -> str:
        return f"Cell {self.name}({', '.join(self.input_names)})"

    # shapes

    def _examples(self, shapes: Sequence[Shape]) -> dict[str, Shape]:
        """Return the shape of each input for one example; inputs of one element may have no axes."""
        given = dict(zip(self.input_names, shapes))
        labels = [n for n in self.input_names if given[n] == (1,) and n not in self._ragged.names]
        attempts = [given]
        if labels:
            of_labels = {n: () for n in labels if n in self._graph.labels or n.endswith("label")}
            attempts = [{**given, **of_labels}, given, {**given, **dict.fromkeys(labels, ())}]
        found = [self._attempt(each) for each in attempts]
        for each, reason in zip(attempts, found):
            if reason is None:
                return each
        reason = found[0]
        text = ", ".join(f"{name} {shape}" for name, shape in given.items())
        raise ShapeError(
            f"{self.name}: inputs of shapes {text} do not fit: {reason} (at {user_line()})"
        ) from reason

    def _attempt(self, examples: Mapping[str, Shape]) -> ShapeError | None:
        """Return the error of shape inference, None if the examples fit."""
        try:
            self._arguments.infer(examples)
        except ShapeError as error:
            return error
        return None

    def shapes(self, is_train: bool, shapes: Sequence[Shape]) -> list[Shape]:
        examples = self._examples(shapes)
        names = self.input_names
        self._scalars[tuple(shapes)] = frozenset(i for i, n in enumerate(names) if examples[n] != shapes[i])
        found = self._arguments.infer(examples)
        outs = [found[node][i] for node, i in self._graph.heads]
        for name, shape in zip(self._graph.output_names, outs):
            if not known(shape):
                raise ShapeError(
                    f"{self.name}: the shape of {name} cannot be inferred from the inputs (at {user_line()})"
                )
        self._executions[is_train, tuple(shapes)] = self._choose_execution(examples)
        singles = [shape[1:] if shape[0] == 1 else shape for shape in outs]
        return self._ragged.with_lengths(singles, examples, self.name)

    def _choose_execution(self, examples: Mapping[str, Shape]) -> str:
        if self._rows is True:
            return ""
        if self._rows is False:
            return "one by one: rows=False"
        nominal = self._ragged.without_lengths(examples)
        reason = why_not_row_wise(self._graph, nominal, self._arguments.shapes(), self._ragged.nodes)
        if not reason:
            return ""
        # retrying after torch.vmap fails half-way would draw other random numbers
        stacks = can_stack(self._graph) and not self.random and not self._ragged.names
        return f"by torch.vmap: {reason}" if stacks else f"one by one: {reason}"

    def execution(self, is_train: bool, shapes: Sequence[Shape]) -> str:
        return self._executions.get((is_train, tuple(shapes)), "")

    # calls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Add a call on one example to the graph.

        Shape:
            args, kwargs, returns: without the symbol's first axis, that of the examples.

        Args:
            args: the inputs, in the order of `input_names`: expressions, numbers or arrays.
            kwargs: inputs by name.

        Returns:
            The output as an expression, or a tuple of outputs.
        """
        data = [as_expression(each) for each in self._bound(args, kwargs)]
        if self._arguments.missing:
            dims = [state.graph.dim(x.enter()).d for x in data]
            self._arguments.make(self._examples(dims))
            self.parameters = list(self._arguments.operands().values())
        return self.append(data, self._mode(), self._loss_outputs)

    def _own_mode(self) -> bool:
        return flags.is_training()

    def _bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        names = self.input_names
        if not kwargs and len(args) == len(names):
            return list(args)
        if len(args) > len(names):
            raise ArgumentError(
                f"{self.name}: {len(args)} inputs, expected {', '.join(names)} (at {user_line()})"
            )
        bound = dict(zip(names, args))
        for name, value in kwargs.items():
            if name not in names or name in bound:
                what = "is given twice" if name in bound else "is not an input"
                raise ArgumentError(
                    f"{self.name}: {name!r} {what}; the inputs are {', '.join(names)} (at {user_line()})"
                )
            bound[name] = value
        missing = [name for name in names if name not in bound]
        if missing:
            raise ArgumentError(f"{self.name}: input {', '.join(missing)} is missing (at {user_line()})")
        return [bound[name] for name in names]

    # computing

    def compute(
        self,
        is_train: bool,
        rows: Sequence[Tensor],
        parameters: Sequence[Tensor],
        generator: torch.Generator | None,
        again: bool,
        counted: Tensor | None = None,
    ) -> list[Tensor]:
        shapes = tuple(tuple(x.shape[1:]) for x in rows)
        scalars = self._scalars.get(shapes, frozenset())
        data = [x.reshape(x.shape[0]) if i in scalars else x for i, x in enumerate(rows)]
        tensors = self._arguments.state_tensors()
        if again:
            tensors = {name: tensor.clone() for name, tensor in tensors.items()}
        tensors.update(zip(self._arguments.operands(), parameters))
        env = Env(rows[0].device, generator, is_train, counted=counted)
        way = self._executions.get((is_train, shapes), "")
        if not way and (counted is None or self._skips_uncounted):
            return self._call(env, tensors, data)
        if way.startswith("by") and counted is None:
            try:
                return self._stacked(env, tensors, data)
            except (
                Exception
            ) as error:  # torch.vmap raises many errors; if the symbol itself fails, it does below, too
                reason = " ".join(str(error).split())[:160]
                self._executions[is_train, shapes] = f"one by one: torch.vmap fails: {reason}"
        return self._one_by_one(env, tensors, data)

    def _call(self, env: Env, given: Mapping[str, Tensor], data: Sequence[Tensor]) -> list[Tensor]:
        rows = {name: self._ragged.value(name, x) for name, x in zip(self.input_names, data)}
        values: dict[str, Any] = {**given, **rows}
        found = self._body(env, [values[node.name] for node in self._graph.inputs])
        return [self._ragged.rows(output) for output in found] if self._ragged.names else found

    def _stacked(self, env: Env, given: Mapping[str, Tensor], data: Sequence[Tensor]) -> list[Tensor]:
        def one(*example: Tensor) -> tuple[Tensor, ...]:
            return tuple(self._call(env, given, [x.unsqueeze(0) for x in example]))

        return list(torch.vmap(one, randomness="different")(*data))

    def _one_by_one(self, env: Env, given: Mapping[str, Tensor], data: Sequence[Tensor]) -> list[Tensor]:
        counted, env = env.counted, replace(env, counted=None)
        recorded, found = torch.is_grad_enabled(), []
        for i in range(data[0].shape[0]):
            with torch.set_grad_enabled(recorded and (counted is None or bool(counted[i]))):
                found.append(self._call(env, given, [x[i : i + 1] for x in data]))
        return [torch.stack(column) for column in zip(*found)]


def _example(name: str, shape: Any) -> Shape:
    """Convert the shape of an input's example to integers."""
    what = f"cell: shapes of {name}"
    found = tuple(as_integer(size, what) for size in as_list(what, shape))
    if not all(0 < size < TOO_LARGE for size in found):
        raise ShapeError(f"{what} is {found}, expected positive sizes below {TOO_LARGE} (at {user_line()})")
    return found


def _every_node(graph: Graph) -> Iterator[Node]:
    for node in graph.nodes:
        yield node
        for inner in node.subgraphs:
            yield from _every_node(inner)


def _ignores_head(node: Node) -> bool:
    return node.op is not None and not node.op.needs_head_gradient(node.a)


@overload
def cell(
    symbol: Symbol,
    params: ParameterCollection | Mapping[str, Any] | None = None,
    *,
    inputs: Sequence[str] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    rows: bool | None = None,
    initializer: Any = None,
    allow_extra: bool = False,
    name: str | None = None,
) -> Cell: ...


@overload
def cell(symbol: Function) -> Function: ...


def cell(
    symbol: Any,
    params: ParameterCollection | Mapping[str, Any] | None = None,
    *,
    inputs: Sequence[str] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    rows: bool | None = None,
    initializer: Any = None,
    allow_extra: bool = False,
    name: str | None = None,
) -> Any:
    """Turn a symbol into a function of single examples, or declare what `batching` may record as one call.

    A module of torch, a class of modules, or a function (also as a decorator) is returned unchanged, but `batching`
    records its calls as one, for arguments of equal shapes, which is faster. Declare only what has no side effects, and
    whose result depends on its arguments and on its module alone. The layers of `torch.nn` are cells already. A body
    that reads a value or changes an argument runs as usual.

    The following describes symbols.

    Write the symbol as usual, with the examples along the first axis. Call the cell with expressions of one example,
    without that axis; it returns what an executor bound for a batch of one returns. Calls with equal shapes are
    computed together: in one call if every operator works row by row, else by `torch.vmap` or one by one (`explain`
    reports which, and why).

    An example of an input declared ``Variable(stype="ragged")`` is one non-empty row: (length, ...). Calls with rows of
    equal lengths are computed together; a ragged output is (length, ...), too.

    Loss heads such as SoftmaxOutput ignore their incoming gradient: add their outputs with `sum_elems` and `esum`, and
    call `backward` on the sum. Labels are ordinary inputs. In training mode (see `training`), dropout is active, and
    BatchNorm uses the statistics of the examples in a batch and updates its averages when the batch is computed.

    Shape:
        inputs, outputs of the function: without the symbol's first axis, that of the examples.

    Args:
        symbol: the graph computed for each example; a group has several outputs.
        params: the parameters. A collection: parameters named like the symbol's arguments are used, others are added to
            it. A dict of NDArrays, tensors or Parameters by name: their memory is used, gradients are added to
            ``array.grad``, and arguments that are not in the dict are inputs. None: a new collection.
        inputs: names of the inputs; by default all arguments that no operator declares as a parameter.
        shapes: shape of one example of every input, to create parameters immediately rather than in the first call.
        rows: whether the symbol works row by row, overriding what its operators declare.
        initializer: initializer of new parameters; `Xavier` by default.
        allow_extra: ignore arrays of the dict that are not parameters of the symbol.
        name: name in errors and in `explain`; by default that of the first output.

    Raises:
        ArgumentError: `params` names an unknown parameter, or no argument is an input.
        ForeignValueError: an argument has the wrong type.
        ShapeError: `shapes` do not fit the symbol.

    Example:
        >>> import torch
        >>> from dpmodule import autobatch
        >>> @autobatch.cell
        ... def gated(x, h):
        ...     return torch.sigmoid(x) * torch.tanh(h)
        >>> with autobatch.batching():
        ...     found = [gated(x, x) for x in torch.eye(4)]
        >>> found[0]
        tensor([0.5568, 0.0000, 0.0000, 0.0000])

        >>> import dpmodule.autobatch as dy
        >>> net = mx.sym.FullyConnected(mx.sym.Variable("x"), num_hidden=2, name="fc")
        >>> w, b = mx.nd.array([[1, 0, 0], [0, 1, 1]]), mx.nd.zeros((2,))
        >>> fc = dy.cell(net, {"fc_weight": w, "fc_bias": b})
        >>> y = fc([1.0, 2.0, 3.0])
        >>> y.npvalue()
        array([1., 5.])
        >>> dy.sum_elems(y).backward()
        >>> b.grad.asnumpy()
        array([1., 1.], dtype=float32)
    """
    if not isinstance(symbol, Symbol):
        if not callable(symbol):
            raise wrong_type("cell", symbol, "is not a symbol, a module of torch or a function")
        given = (params, inputs, shapes, rows, initializer, name)
        if allow_extra or any(each is not None for each in given):
            raise ArgumentError("cell: a module of torch or a function takes no other arguments")
        return pytorch_cell(symbol)
    if not (shapes is None or isinstance(shapes, Mapping)):
        raise wrong_type("cell: shapes", shapes, "is not a dict from input names to shapes")
    if not (initializer is None or callable(initializer)):
        raise wrong_type("cell: initializer", initializer, "is not an initializer of mx.init")
    return Cell(
        symbol,
        params,
        inputs,
        shapes,
        None if rows is None else flag(rows, "cell: rows"),
        Xavier() if initializer is None else initializer,
        flag(allow_extra, "cell: allow_extra"),
        None if name is None else text(name, "cell: name"),
    )

"""Symbols from torch modules through `torch.export`."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Mapping, Reversible, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch.export import ExportedProgram
from torch.fx import Node as TorchNode
from torch.utils import _pytree as pytree

from .._devices.single_thread import single_thread
from ..base import ArgumentError, MXNetError
from ..ndarray import NDArray
from .symbol import Group, Symbol
from .torch_export import export, functional, leaf_names, user_inputs, writes_simply
from .torch_operators import NoCounterpart, SymbolBuilder, TorchValue, as_size, dims_of, find, is_number

if TYPE_CHECKING:
    from torch.export.graph_signature import InputSpec


class Imported(NamedTuple):
    """A translated torch module.

    Attributes:
        arg_params: values of its parameters and constants by name.
        aux_params: values of its auxiliary states by name.
        inputs: examples of its inputs by name.
    """

    symbol: Symbol
    arg_params: dict[str, NDArray]
    aux_params: dict[str, NDArray]
    fixed: list[str]
    inputs: dict[str, torch.Tensor]


def from_torch(
    module: torch.nn.Module,
    *example: Any,
    dynamic: Mapping[str, Mapping[int, str]] | None = None,
    **named: Any,
) -> tuple[Symbol, dict[str, NDArray], dict[str, NDArray]]:
    """Translate a torch module into a symbol of ordinary operators, with the values of its parameters.

    The module is exported by `torch.export`, and every torch operator is translated. The symbol can be bound, trained,
    saved, exported, bucketed and shown by `explain`. Its inputs have the names of forward's parameters; a part of a
    tuple or dict has the name of the whole, "_" and its number or key. Parameters keep torch's names
    (``layer1.0.conv1.weight``), so that ``module.load_state_dict(..., strict=False)`` accepts them. Buffers that are
    moving statistics become auxiliary states; other buffers, constants, and parameters without ``requires_grad``
    become arguments with learning rate 0. All parameters have weight decay as in torch's optimizers, even biases.

    Dropout and batch normalisation depend on the mode in which the symbol runs. If forward reads ``self.training``, the
    module's current mode is used; attention keeps its dropout only in training mode.

    Args:
        module: a network in torch.
        example: a tensor for each parameter of forward; other values become constants.
        dynamic: dynamic sizes, such as ``{"x": {0: "batch"}}``; None means the first axis of every input, if the
            module allows it.
        named: examples for parameters by name.

    Returns:
        The symbol, its arguments' values and its auxiliary states' values, by name. The outputs of a module that
        returns a dict have its keys as names; those of a tuple are output0, output1, ...

    Raises:
        ArgumentError: forward branches on values, an operator has no translation (the message lists all of them with
            their source lines), an argument is invalid, or a dynamic size is fixed.

    Example:
        >>> import torch
        >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> symbol, arg_params, aux_params = mx.sym.from_torch(net, torch.zeros(2, 4))
        >>> symbol.list_arguments()
        ['input', '0.weight', '0.bias', '2.weight', '2.bias']
        >>> symbol.infer_shape(input=(32, 4))[1]
        [(32, 2)]

    Source: `torch.export`; MXNet has no such function.
    """
    result = imported(module, example, named, dynamic)
    return result.symbol, result.arg_params, result.aux_params


def imported(
    module: torch.nn.Module,
    example: Sequence[Any],
    named: Mapping[str, Any],
    dynamic: Mapping[str, Mapping[int, str]] | None,
) -> Imported:
    """Implement `from_torch`; arguments and errors are the same."""
    exported = export(module, example, named, dynamic)
    program, training = exported.program, _trains(module, exported.program)
    if not _can_walk(program):
        program = functional(module, program)
    names = [name for name, _ in exported.inputs]
    owned = {id(tensor): name for name, tensor in (*module.named_parameters(), *module.named_buffers())}
    with single_thread():
        symbol, values = _Translation(type(module).__name__, program, names, owned, training).run()
    arguments = {n: values[n] for n in symbol.list_arguments() if n in values}
    states = {n: values[n] for n in symbol.list_auxiliary_states() if n in values}
    trained = {owned[id(p)] for p in module.parameters() if p.requires_grad}
    examples = {n: e for n, e in exported.inputs if n in symbol.list_arguments()}
    return Imported(symbol, arguments, states, [n for n in arguments if n not in trained], examples)


_PROGRAM = "_StatefulGraphModule"
"""Private class of the result of `ExportedProgram.module`; it is always in training mode."""


def _trains(module: torch.nn.Module, program: ExportedProgram) -> bool:
    """Return True if a module is in training mode; for an exported program, its operators determine it."""
    if not any(kind.__name__ == _PROGRAM for kind in type(module).__mro__):
        training: bool = module.training
        return training
    return any(
        given is True and argument.name in ("train", "training")
        for node in program.graph.nodes
        if node.op == "call_function" and hasattr(node.target, "_schema")
        for argument, given in zip(node.target._schema.arguments, node.args)
    )


def _can_walk(program: ExportedProgram) -> bool:
    """Return True if torch's graph can be translated as it is."""
    nodes = _live(program.graph.nodes)
    known = all(_is_plumbing(n) or find(n.target) is not None for n in nodes if n.op == "call_function")
    return known and writes_simply(nodes)


_IGNORED = ("_assert", "sym_constrain", "_set_grad_enabled", "_assert_tensor_metadata")


def _is_plumbing(node: TorchNode) -> bool:
    """Return True if a node computes sizes, picks one of several results, or checks something."""
    if node.target is operator.getitem or not isinstance(
        node.meta.get("val", 0), (torch.Tensor, list, tuple)
    ):
        return True
    return _is_ignored(node) or getattr(node.target, "__name__", "") == "wrap_with_set_grad_enabled"


def _is_ignored(node: TorchNode) -> bool:
    schema = getattr(node.target, "_schema", None)
    name = getattr(node.target, "__name__", "") if schema is None else schema.name.removeprefix("aten::")
    return name.startswith(_IGNORED)


def _live(nodes: Reversible[TorchNode]) -> list[TorchNode]:
    """Return the nodes that something reads, or that write in place."""
    live: set[TorchNode] = set()
    for node in reversed(nodes):
        schema = getattr(node.target, "_schema", None)
        is_pure = node.op == "call_function" and (schema is None or not schema.is_mutable)
        if not is_pure or any(user in live for user in node.users):
            live.add(node)
    return [node for node in nodes if node in live]


class _Translation:
    """The translation of one exported program."""

    def __init__(
        self, kind: str, program: ExportedProgram, inputs: list[str], owned: dict[int, str], training: bool
    ) -> None:
        self.kind, self.program, self.inputs, self.owned = kind, program, inputs, owned
        self.builder = SymbolBuilder(training)
        self.values: dict[TorchNode, Any] = {}
        self.problems: dict[str, list[str]] = {}
        self.names = _names(program.graph.nodes)

    def run(self) -> tuple[Symbol, dict[str, NDArray]]:
        """Translate the program; return the symbol, and the values of all variables except inputs."""
        self._enter_variables()
        outputs = [(self.builder.unique(name) if name else "", leaf) for name, leaf in self._outputs()]
        self._translate(self.program.graph.nodes)
        self._check_buffers()
        heads = self._heads(outputs) if not self.problems else []
        if self.problems:
            raise self._refusal()
        symbol = heads[0] if len(heads) == 1 else Group(heads)
        return symbol, self.builder.params

    def _refusal(self) -> ArgumentError:
        rows = "".join(f"\n  {what}: {', '.join(locations)}" for what, locations in self.problems.items())
        return ArgumentError(
            f"from_torch: {self.kind} cannot be translated:{rows}\nsym.torch_module(module, ...) runs the whole "
            "module as one operator instead"
        )

    def _problem(self, what: str, node: TorchNode) -> None:
        locations = self.problems.setdefault(what, [])
        location = _place(node)
        if location not in locations:
            locations.append(location)

    # variables

    def _enter_variables(self) -> None:
        inputs = dict(zip(user_inputs(self.program), self.inputs))
        tied: dict[int, TorchValue] = {}
        specs = {s.arg.name: s for s in self.program.graph_signature.input_specs}
        for node in self.program.graph.nodes:
            if node.op != "placeholder":
                continue
            if node in inputs:
                self._enter_input(node, inputs[node])
            elif (
                node.users and specs[node.name].target is not None
            ):  # a target of None is a token that orders side effects
                tensor = self._held(specs[node.name].target)
                value = tied.get(id(tensor))
                if value is None:
                    value = tied[id(tensor)] = self._entered(specs[node.name], tensor, node)
                self.values[node] = value

    def _enter_input(self, node: TorchNode, name: str) -> None:
        example = node.meta["val"]
        if isinstance(example, torch.Tensor):
            self.builder.begin(name, "", example)
            self.values[node] = self.builder.input(name, example)
            self.builder.finish([])
        else:
            self.values[node] = example

    def _held(self, target: str) -> torch.Tensor:
        """Return a parameter, buffer or constant."""
        tensor = self.program.state_dict.get(target)
        constant: torch.Tensor = self.program.constants[target] if tensor is None else tensor
        return constant

    def _entered(self, spec: InputSpec, tensor: torch.Tensor, node: TorchNode) -> TorchValue:
        input_kind, name = spec.kind.name, self.owned.get(id(tensor), spec.target or "")
        if input_kind == "PARAMETER":
            return self._variable(name, tensor, tensor.requires_grad, node)
        if input_kind == "BUFFER" and tensor.dtype.is_floating_point:
            return self._variable(name, tensor, False, node)
        named = name if input_kind == "BUFFER" else ""
        return TorchValue(dims_of(tensor), tensor.dtype, None, tensor.detach().cpu(), named)

    def _variable(self, name: str, tensor: torch.Tensor, trained: bool, node: TorchNode) -> TorchValue:
        self.builder.begin(name, "", node.meta["val"])
        value = self.builder.variable(name, tensor, trained)
        self.builder.finish([])
        return value

    # operators

    def _translate(self, nodes: Reversible[TorchNode]) -> None:
        for node in _live(nodes):
            if node.op != "call_function" or _is_ignored(node):
                continue
            if node.target is operator.getitem:
                whole = self.values.get(cast("TorchNode", node.args[0]))
                self.values[node] = None if whole is None else whole[node.args[1]]
            elif isinstance(node.meta.get("val"), (torch.Tensor, list, tuple)):
                self._enter(node, self._called(node))

    def _enter(self, node: TorchNode, value: Any) -> None:
        """Store a node's value, also as the value of an array that the node overwrote."""
        self.values[node] = value
        schema = getattr(node.target, "_schema", None)
        while schema is not None and schema.is_mutable and isinstance(node.args[0], TorchNode):
            node = node.args[0]
            self.values[node] = value
            schema = getattr(node.target, "_schema", None)

    def _called(self, node: TorchNode) -> Any:
        if getattr(node.target, "__name__", "") == "wrap_with_set_grad_enabled":
            return self._inlined(node)
        name = str(node.target)
        translator = find(node.target)
        try:
            args, kwargs = self._resolved(node.args), self._resolved(dict(node.kwargs))
            known = _known(node, args, kwargs)
            if known is not None:
                return known
            if translator is None:
                self._problem(f"{name}, which has no translation", node)
                return self._unknown(node)
            self.builder.begin(self.names[node], _source(node), node.meta["val"])
            output = self._valued(translator(self.builder, *args, **kwargs), node)
            self.builder.finish(
                [v.symbol for v in (output if isinstance(output, list) else [output]) if v is not None]
            )
            return output
        except NoCounterpart as error:
            self._problem(f"{name} {error}", node)
        except MXNetError as error:
            self._problem(f"{name}: {error}", node)
        except (TypeError, ValueError, KeyError, IndexError, AttributeError):
            self._problem(f"{name} with arguments that have no translation", node)
        except _Missing:
            pass  # what it comes from is in the list already
        return self._unknown(node)

    def _unknown(self, node: TorchNode) -> Any:
        """Return a placeholder for a value that could not be translated, so that others can be checked."""
        return _UNKNOWN if isinstance(node.meta["val"], torch.Tensor) else [_UNKNOWN] * len(node.meta["val"])

    def _valued(self, output: Any, node: TorchNode) -> Any:
        if isinstance(output, (list, tuple)):
            return [self._one(m, f) for m, f in zip(output, node.meta["val"])]
        return self._one(output, node.meta["val"])

    def _one(self, output: Any, fake: Any) -> TorchValue | None:
        if output is None:
            return None
        dims = dims_of(fake)
        if isinstance(output, TorchValue):
            output = self.builder.cast(output, fake.dtype)
            return self.builder.see(TorchValue(dims, fake.dtype, output.symbol, output.tensor))
        return self.builder.see(TorchValue(dims, fake.dtype, output))

    def _resolved(self, argument: object) -> Any:
        """Return arguments with values in the place of nodes."""
        if isinstance(argument, TorchNode):
            if argument in self.values:
                value = self.values[argument]
                if value is _UNKNOWN or (isinstance(value, list) and _UNKNOWN in value):
                    raise _Missing
                return value
            return self._size(argument)
        if isinstance(argument, (list, tuple)):
            return [self._resolved(item) for item in argument]
        if isinstance(argument, dict):
            return {key: self._resolved(item) for key, item in argument.items()}
        return argument

    def _size(self, node: TorchNode) -> Any:
        """Return the size that a node of torch's graph computes."""
        size = node.meta.get("val")
        if isinstance(size, (torch.SymFloat, torch.SymBool)):
            raise NoCounterpart("takes a number that is computed from sizes")
        return as_size(size)

    def _inlined(self, node: TorchNode) -> Any:
        """Translate a part of forward under `torch.no_grad`, or with gradients again."""
        enabled, inner, *operands = list[Any](node.args)
        graph = getattr(self.program.graph_module, str(inner.target))
        placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
        for placeholder, outer in zip(placeholders, operands):
            self.values[placeholder] = self.values.get(outer, outer)
        self.names.update(_names(graph.graph.nodes))
        self._translate(graph.graph.nodes)
        outputs = next(n for n in graph.graph.nodes if n.op == "output").args[0]
        values = [self.values.get(o) for o in outputs]
        return values if enabled else [self._stopped(v, node) for v in values]

    def _stopped(self, value: object, node: TorchNode) -> Any:
        if not isinstance(value, TorchValue) or value.symbol is None or value is _UNKNOWN:
            return value
        self.builder.begin(self.names[node], _source(node), None)
        stopped = self.builder.op("BlockGrad", value)
        self.builder.finish([stopped])
        return TorchValue(value.dims, value.dtype, stopped)

    # outputs

    def _check_buffers(self) -> None:
        """Report buffers that forward changes, except the statistics of batch normalisation."""
        moved = ("running_mean", "running_var", "num_batches_tracked")
        targets = {s.arg.name: s.target for s in self.program.graph_signature.input_specs}
        changed = [
            s.target for s in self.program.graph_signature.output_specs if s.kind.name == "BUFFER_MUTATION"
        ]
        for node in self.program.graph.nodes:
            schema = getattr(node.target, "_schema", None)
            if schema is not None and schema.is_mutable and node.args[0].op == "placeholder":
                changed.append(targets[node.args[0].name] or "")
        for target in dict.fromkeys(changed):
            if target and not target.endswith(moved):
                self.problems.setdefault(
                    "a buffer that forward changes, while a symbol only reads it", []
                ).append(target)

    def _outputs(self) -> list[tuple[str, Any]]:
        """Return the results of forward with their names, "" for a single tensor."""
        nodes = next(n for n in self.program.graph.nodes if n.op == "output").args[0]
        specs = self.program.graph_signature.output_specs
        leaves = [n for n, s in zip(nodes, specs) if s.kind.name == "USER_OUTPUT"]
        tree = pytree.tree_unflatten(leaves, self.program.call_spec.out_spec)
        return list(zip(leaf_names(tree, first="output"), leaves))

    def _heads(self, outputs: Sequence[tuple[str, Any]]) -> list[Symbol]:
        """Return the named outputs."""
        heads: list[Symbol] = []
        for name, leaf in outputs:
            value = self.values.get(leaf) if isinstance(leaf, TorchNode) else None
            if isinstance(value, TorchValue):
                try:
                    heads.append(self._head(value, name, leaf, heads))
                except NoCounterpart as error:
                    self._problem(f"an output {error}", leaf)
        if not heads and not self.problems:
            raise ArgumentError(f"from_torch: forward of {self.kind} returns no tensor")
        return heads

    def _head(self, value: TorchValue, name: str, node: TorchNode, others: Sequence[Symbol]) -> Symbol:
        builder = self.builder
        builder.begin(name or "output", _source(node), node.meta.get("val"))
        symbol = builder.sym(value)
        head, _ = symbol.entries[0]
        shared = any(head is other.entries[0][0] for other in others)
        copied = head.op is None or shared or bool(name and head.num_outputs > 1)
        if copied:
            symbol = builder.op("identity", symbol)
        builder.finish([])
        if name or copied:  # its name is reserved
            symbol.entries[0][0].name = name or "output"
        return symbol


class _Missing(Exception):
    """An argument could not be translated."""


_UNKNOWN = TorchValue((), torch.float32)

_RANDOM = ("rand", "bernoulli", "normal", "dropout", "multinomial", "empty")


def _known(node: TorchNode, args: Sequence[object], kwargs: Mapping[str, object]) -> Any:
    """Return a node's value if it only depends on constants, else None."""
    leaves, _ = pytree.tree_flatten((args, kwargs))
    if not isinstance(node.target, torch._ops.OpOverload):
        return None
    name = node.target._schema.name.removeprefix("aten::")
    if any(word in name for word in _RANDOM) or not all(map(_is_constant, leaves)):
        return None
    plain = pytree.tree_map(_plain, (args, kwargs))
    with torch.no_grad():
        result = node.target(*plain[0], **{k: v for k, v in plain[1].items() if k != "device"})
    if isinstance(result, torch.Tensor):
        return TorchValue(dims_of(result), result.dtype, None, result.cpu())
    return [TorchValue(dims_of(m), m.dtype, None, m.cpu()) for m in result]


def _plain(leaf: object) -> Any:
    return leaf.tensor.clone() if isinstance(leaf, TorchValue) and leaf.tensor is not None else leaf


def _is_constant(leaf: object) -> bool:
    if isinstance(leaf, TorchValue):
        return leaf.tensor is not None
    return not hasattr(leaf, "free_symbols") or is_number(leaf)


# names and source lines


def _stack(node: TorchNode) -> list[tuple[str, str]]:
    stack = node.meta.get("nn_module_stack") or {}
    pairs = [p for p in stack.values() if isinstance(p, tuple)]
    return [(path, str(kind)) for path, kind in pairs]


def _names(nodes: Reversible[TorchNode]) -> dict[TorchNode, str]:
    """Return the names of the symbol's nodes: that of the module, and of the operator if it has several."""
    calls = [n for n in nodes if n.op == "call_function" and not _is_plumbing(n) and not _counts(n)]
    paths = {n: (_stack(n) or [("", "")])[-1][0] for n in calls}
    counts = Counter(paths.values())
    names = {}
    for node in nodes:
        path = paths.get(node, "")
        schema = getattr(node.target, "_schema", None)
        kind = node.name if schema is None else schema.name.rpartition("::")[2].strip("_")
        names[node] = path if path and counts[path] == 1 else f"{path}.{kind}".lstrip(".")
    return names


def _counts(node: TorchNode) -> bool:
    """Return True if a node increments a counter among the buffers, which is not translated."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable and getattr(node.args[0], "op", "") == "placeholder"


def _source(node: TorchNode) -> str:
    """Return "file:line" of the innermost frame of forward outside torch."""
    lines = [line.strip() for line in (node.meta.get("stack_trace") or "").splitlines()]
    frames = [line for line in lines if line.startswith("File ")]
    frames = [line for line in frames if '"<' not in line]
    mine = [line for line in frames if "/torch/" not in line.replace("\\", "/")] or frames
    if not mine:
        return ""
    fields = mine[-1].split('"')
    number = fields[2].replace(",", " ").split()[1] if len(fields) > 2 else ""
    return f"{fields[1]}:{number}"


def _place(node: TorchNode) -> str:
    """Return the origin of a node: the submodule, its class, and the line."""
    stack = _stack(node)
    path, kind = stack[-1] if stack else ("", "")
    where = f"{path or 'forward'} ({kind.rpartition('.')[2]})" if kind else "forward"
    source = _source(node)
    return f"{where} at {source}" if source else where

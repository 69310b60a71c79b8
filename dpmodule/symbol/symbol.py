"""`Symbol`: the user's face of a graph."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from ..atomic import write_atomically
from ..attribute import BARE_KEYS, stored_key
from ..base import (
    ArgumentError,
    FileFormatError,
    NotImplementedForSymbol,
    Shape,
    dtype_code,
    dtype_name,
    np_dtype,
)
from ..commit import read_settled
from ..graph import Entry, Graph, Node, from_json, infer_shapes, infer_types, to_json
from ..ops import get as get_op
from . import bind as binding
from .compose import apply_op, make_variable, substitute

__all__ = ["Group", "Symbol", "Variable", "load", "load_json", "var"]


class Symbol:
    """One or several outputs of a graph.

    Made by `Variable`, by operator functions such as ``sym.FullyConnected``, by arithmetic, or by `load`. A Symbol
    never changes (`_set_attr` apart); composing makes new ones that share nodes.

    Args:
        entries: (node, output number) of each output.

    Source: MXNet 1.9.1 `Symbol`.
    """

    __array_priority__ = 1000.0

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.entries: tuple[Entry, ...] = tuple(entries)

    @cached_property
    def graph(self) -> Graph:
        """The nodes below this symbol."""
        return Graph(self.entries)

    # names and structure

    @property
    def name(self) -> str | None:
        """Name of the node; None for a group."""
        nodes = {node for node, _ in self.entries}
        return self.entries[0][0].name if len(nodes) == 1 else None

    def list_arguments(self) -> list[str]:
        """Return the names of the arguments: variables that are given or learnt, inputs first."""
        return list(self.graph.argument_names)

    def list_auxiliary_states(self) -> list[str]:
        """Return the names of the auxiliary states, such as moving averages."""
        return list(self.graph.auxiliary_names)

    def list_inputs(self) -> list[str]:
        """Return the names of all variables, arguments and states, in graph order."""
        return [n.name for n in self.graph.nodes if n.op is None]

    def list_outputs(self) -> list[str]:
        """Return the names of the outputs."""
        return list(self.graph.output_names)

    @property
    def num_outputs(self) -> int:
        """Number of outputs."""
        return len(self.entries)

    def get_internals(self) -> Symbol:
        """Return a group of every output in the graph, such as ``internals["fc1_output"]``."""
        return Symbol((node, i) for node in self.graph.nodes for i in range(node.num_outputs))

    def get_children(self) -> Symbol | None:
        """Return the group of direct inputs of the outputs' nodes, None for a variable."""
        nodes = dict.fromkeys(node for node, _ in self.entries)
        entries = [entry for node in nodes for entry in node.inputs]
        return Symbol(entries) if entries else None

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Symbol]:
        return (Symbol([entry]) for entry in self.entries)

    def __getitem__(self, index: int | str | slice) -> Symbol:
        if isinstance(index, slice):
            return Symbol(self.entries[index])
        if isinstance(index, str):
            found = [i for i, name in enumerate(self.graph.output_names) if name == index]
            if len(found) != 1:
                problem = "is no output" if not found else "names several outputs"
                raise ArgumentError(f"{index!r} {problem} of this symbol; outputs: {', '.join(self.list_outputs())}")
            index = found[0]
        if not -len(self.entries) <= index < len(self.entries):
            raise IndexError(f"output {index} of a symbol with {len(self.entries)} outputs")
        return Symbol([self.entries[index]])

    def __repr__(self) -> str:
        if self.name is not None:
            return f"<Symbol {self.name}>"
        return f"<Symbol group [{', '.join(str(s.name) for s in self)}]>"

    def debug_str(self) -> str:
        """Return a listing of every node with its inputs and attributes."""
        index = self.graph.index
        lines = ["Symbol Outputs:"]
        lines += [f"\toutput[{k}]={node.name}({i})" for k, (node, i) in enumerate(self.entries)]
        for node in self.graph.nodes:
            if node.op is None:
                lines.append(f"Variable:{node.name}")
                continue
            lines += ["--------------------", f"Op:{node.op.name}, Name={node.name}", "Inputs:"]
            states = {n for n in self.graph.auxiliary if n in index}
            lines += [
                f"\targ[{k}]={child.name}({i}) version={int(child in states)}"
                for k, (child, i) in enumerate(node.inputs)
            ]
            attributes = {**node.attrs, **node.params}
            if attributes:
                lines += ["Attrs:", *(f"\t{k}={v}" for k, v in sorted(attributes.items()))]
        return "\n".join(lines) + "\n"

    # attributes

    def attr(self, key: str) -> str | None:
        """Return an attribute of this symbol's node, None if it has none of this name."""
        node = self.entries[0][0]
        return {**node.attrs, **node.params}.get(stored_key(key))

    def list_attr(self, recursive: bool = False) -> dict[str, str]:
        """Return all attributes of this symbol's node.

        Raises:
            ArgumentError: `recursive` is set; MXNet dropped it in favour of `attr_dict`.
        """
        if recursive:
            raise ArgumentError("list_attr(recursive=True) no longer exists; use attr_dict()")
        node = self.entries[0][0]
        return _shown({**node.attrs, **node.params})

    def attr_dict(self) -> dict[str, dict[str, str]]:
        """Return the attributes of every node that has some, by node name."""
        found = {}
        for node in self.graph.nodes:
            attributes = {**node.attrs, **node.params}
            if attributes:
                found[node.name] = _shown(attributes)
        return found

    def _set_attr(self, **kwargs: str) -> None:
        """Set attributes of this symbol's node in place.

        Raises:
            ArgumentError: a value is not a string.
        """
        for key, value in kwargs.items():
            if not isinstance(value, str):
                raise ArgumentError(f"_set_attr: {key} is {value!r}, expected a string")
            self.entries[0][0].attrs[stored_key(key)] = value

    # composition

    def __call__(self, *args: Symbol, **kwargs: Any) -> Symbol:
        """Return a copy in which arguments are replaced: by position, or by argument name.

        Raises:
            ArgumentError: a keyword is no argument, or positions and names are mixed.
        """
        name = kwargs.pop("name", None)
        if args and kwargs:
            raise ArgumentError("compose: give symbols by position or by name, not both")
        variables = {n.name: n for n in self.graph.nodes if n.op is None}
        if len(args) > len(self.graph.arguments):
            raise ArgumentError(f"compose: got {len(args)} symbols for {len(self.graph.arguments)} arguments")
        given = dict(zip(self.graph.argument_names, args)) if args else kwargs
        replacements = {}
        for key, value in given.items():
            if key not in variables:
                raise ArgumentError(f"compose: {key!r} is no argument; arguments: {', '.join(variables)}")
            if not isinstance(value, Symbol) or len(value.entries) != 1:
                raise ArgumentError(f"compose: {key} is {value!r}, expected a Symbol with one output")
            replacements[variables[key]] = value.entries[0]
        return Symbol(substitute(self.graph, replacements, name))

    def __copy__(self) -> Symbol:
        return Symbol(substitute(self.graph, {}))

    def __deepcopy__(self, memo: Any) -> Symbol:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        return load_json, (self.tojson(),)

    # inference

    def _given_shapes(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Shape]:
        if args and kwargs:
            raise ArgumentError("infer_shape: give shapes by position or by name, not both")
        names = self.graph.argument_names
        if len(args) > len(names):
            raise ArgumentError(f"infer_shape: got {len(args)} shapes for {len(names)} arguments")
        given = {k: v for k, v in zip(names, args) if v} if args else dict(kwargs)
        for key in given:
            if key not in names and key not in self.graph.auxiliary_names:
                raise ArgumentError(f"infer_shape: {key!r} is no argument; arguments: {', '.join(names)}")
        return {k: tuple(int(d) for d in v) for k, v in given.items()}

    def infer_shape(self, *args: Any, **kwargs: Any) -> tuple[Any, Any, Any]:
        """Infer all shapes from those of some arguments; works in both directions.

        Args:
            args: shapes in the order of `list_arguments`, None or () for unknown ones.
            kwargs: shapes by argument name; 0 = unknown dimension.

        Returns:
            Lists of shapes of arguments, outputs and auxiliary states; three times None, with a warning, when
            something stays unknown.

        Raises:
            ShapeError: the shapes contradict each other.

        Example:
            >>> net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=10, name="fc")
            >>> net.infer_shape(data=(32, 64))
            ([(32, 64), (10, 64), (10,)], [(32, 10)], [])
        """
        found = self.infer_shape_partial(*args, **kwargs)
        unknown = [
            f"{name}: {shape or 'unknown'}"
            for name, shape in zip(self.graph.argument_names, found[0])
            if not shape or 0 in shape
        ]
        if unknown or not all(s and 0 not in s for part in found[1:] for s in part):
            warnings.warn(
                "cannot infer every shape; give more of them: " + ", ".join(unknown[:10]), stacklevel=2
            )
            return None, None, None
        return found

    def infer_shape_partial(self, *args: Any, **kwargs: Any) -> tuple[Any, Any, Any]:
        """Infer what follows from the given shapes; like `infer_shape`, with () for unknown ones."""
        shapes = infer_shapes(self.graph, self._given_shapes(args, kwargs))
        return (
            [shapes[n][0] or () for n in self.graph.arguments],
            [shapes[node][i] or () for node, i in self.entries],
            [shapes[n][0] or () for n in self.graph.auxiliary],
        )

    def infer_type(self, *args: Any, **kwargs: Any) -> tuple[Any, Any, Any]:
        """Infer all element types from those of some arguments.

        Returns:
            Lists of NumPy types of arguments, outputs and auxiliary states; three times None, with a warning,
            when something stays unknown.
        """
        found = self.infer_type_partial(*args, **kwargs)
        if any(t is None for part in found for t in part):
            warnings.warn("cannot infer every type; give the type of more arguments", stacklevel=2)
            return None, None, None
        return found

    def infer_type_partial(self, *args: Any, **kwargs: Any) -> tuple[Any, Any, Any]:
        """Infer what follows from the given types; None for unknown ones."""
        if args and kwargs:
            raise ArgumentError("infer_type: give types by position or by name, not both")
        given = dict(zip(self.graph.argument_names, args)) if args else kwargs
        types = infer_types(self.graph, {k: dtype_name(v) for k, v in given.items() if v is not None})

        def shown(name: str | None) -> Any:
            return None if name is None else np_dtype(name)

        return (
            [shown(types[n][0]) for n in self.graph.arguments],
            [shown(types[node][i]) for node, i in self.entries],
            [shown(types[n][0]) for n in self.graph.auxiliary],
        )

    # files

    def tojson(self, remove_amp_cast: bool = True) -> str:
        """Return the graph as JSON text in MXNet's 1.9 dialect."""
        graph = Graph(_without_casts(self)) if remove_amp_cast else self.graph
        return to_json(graph)

    def save(self, fname: str, remove_amp_cast: bool = True) -> None:
        """Write the graph to a JSON file, atomically."""
        write_atomically(fname, self.tojson(remove_amp_cast).encode("utf-8"))

    # running

    def simple_bind(self, ctx: Any, grad_req: Any = "write", type_dict: Any = None, **kwargs: Any) -> Any:
        """Allocate every array and return an Executor; see `bind.simple_bind`."""
        return binding.simple_bind(self, ctx, grad_req, type_dict, **kwargs)

    def bind(
        self,
        ctx: Any,
        args: Any,
        args_grad: Any = None,
        grad_req: Any = "write",
        aux_states: Any = None,
        group2ctx: Any = None,
        shared_exec: Any = None,
    ) -> Any:
        """Bind given arrays and return an Executor; see `bind.bind`."""
        return binding.bind(self, ctx, args, args_grad, grad_req, aux_states, group2ctx, shared_exec)

    def eval(self, ctx: Any = None, **kwargs: Any) -> list[Any]:
        """Run the graph once on arrays given by argument name and return its outputs."""
        return binding.evaluate(self, ctx, **kwargs)

    # arithmetic

    def _binary(self, alias: str, scalar_alias: str, other: Any) -> Symbol:
        if isinstance(other, Symbol):
            return call(alias, self, other)
        if isinstance(other, (int, float)) or hasattr(other, "item"):
            return call(scalar_alias, self, scalar=other)
        return NotImplemented

    def _reflected(self, alias: str, other: Any) -> Symbol:
        if isinstance(other, (int, float)) or hasattr(other, "item"):
            return call(alias, self, scalar=other)
        return NotImplemented

    def __add__(self, other: Any) -> Symbol:
        return self._binary("_Plus", "_PlusScalar", other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Symbol:
        return self._binary("_Minus", "_MinusScalar", other)

    def __rsub__(self, other: Any) -> Symbol:
        return self._reflected("_RMinusScalar", other)

    def __mul__(self, other: Any) -> Symbol:
        return self._binary("_Mul", "_MulScalar", other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Symbol:
        return self._binary("_Div", "_DivScalar", other)

    def __rtruediv__(self, other: Any) -> Symbol:
        return self._reflected("_RDivScalar", other)

    def __mod__(self, other: Any) -> Symbol:
        return self._binary("_Mod", "_ModScalar", other)

    def __rmod__(self, other: Any) -> Symbol:
        return self._reflected("_RModScalar", other)

    def __pow__(self, other: Any) -> Symbol:
        return self._binary("_Power", "_PowerScalar", other)

    def __rpow__(self, other: Any) -> Symbol:
        return self._reflected("_RPowerScalar", other)

    def __neg__(self) -> Symbol:
        return call("_MulScalar", self, scalar=-1.0)

    def __abs__(self) -> Symbol:
        return call("abs", self)

    def __eq__(self, other: object) -> Any:
        return self._binary("_Equal", "_EqualScalar", other)

    def __ne__(self, other: object) -> Any:
        return self._binary("_Not_Equal", "_NotEqualScalar", other)

    def __gt__(self, other: Any) -> Symbol:
        return self._binary("_Greater", "_GreaterScalar", other)

    def __ge__(self, other: Any) -> Symbol:
        return self._binary("_Greater_Equal", "_GreaterEqualScalar", other)

    def __lt__(self, other: Any) -> Symbol:
        return self._binary("_Lesser", "_LesserScalar", other)

    def __le__(self, other: Any) -> Symbol:
        return self._binary("_Lesser_Equal", "_LesserEqualScalar", other)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise NotImplementedForSymbol("__bool__", "a comparison with `is`")

    def __iadd__(self, other: Any) -> Symbol:
        raise NotImplementedForSymbol("__iadd__", "a = a + b")

    def __isub__(self, other: Any) -> Symbol:
        raise NotImplementedForSymbol("__isub__", "a = a - b")

    def __imul__(self, other: Any) -> Symbol:
        raise NotImplementedForSymbol("__imul__", "a = a * b")

    def __itruediv__(self, other: Any) -> Symbol:
        raise NotImplementedForSymbol("__itruediv__", "a = a / b")


def _shown(attributes: Mapping[str, str]) -> dict[str, str]:
    """Return attributes with the five bare keys shown both ways."""
    shown = dict(attributes)
    shown.update({k: attributes[f"__{k}__"] for k in BARE_KEYS if f"__{k}__" in attributes})
    return shown


def _without_casts(symbol: Symbol) -> tuple[Entry, ...]:
    """Return the heads without `amp_cast` nodes."""
    replaced: dict[Any, Entry] = {}
    heads = symbol.entries
    if not any(node.op is not None and node.op.name == "amp_cast" for node in symbol.graph.nodes):
        return heads
    for node in symbol.graph.nodes:
        inputs = tuple((replaced[child][0], replaced[child][1] or i) for child, i in node.inputs)
        if node.op is not None and node.op.name == "amp_cast":
            replaced[node] = inputs[0]
        else:
            replaced[node] = (Node(node.op, node.name, node.params, node.attrs, inputs, node.source), 0)
    return tuple((replaced[node][0], replaced[node][1] or i) for node, i in heads)


def call(alias: str, *args: Any, name: str | None = None, attr: Mapping[str, str] | None = None, **kwargs: Any) -> Symbol:
    """Apply the operator called `alias` to symbols and attributes."""
    op = get_op(alias)
    node = apply_op(op, alias, args, kwargs, name, attr)
    return Symbol((node, i) for i in range(node.num_outputs))


def Variable(  # noqa: N802
    name: str,
    attr: Mapping[str, str] | None = None,
    shape: Any = None,
    lr_mult: float | None = None,
    wd_mult: float | None = None,
    dtype: Any = None,
    init: Any = None,
    stype: str | None = None,
    **kwargs: str,
) -> Symbol:
    """Make a variable: an input, label, parameter or state that gets its array when the graph is bound.

    Args:
        name: its name.
        attr: further attributes, string to string.
        shape: its shape, 0 for unknown dimensions.
        lr_mult: multiplier of the learning rate for it.
        wd_mult: multiplier of the weight decay for it.
        dtype: its element type.
        init: initializer (an object, or a registered name) used by `init_params` for it alone.
        stype: storage type, "default".
        kwargs: further attributes of the form ``__x__``.

    Raises:
        ArgumentError: a name or value does not fit.
    """
    if not isinstance(name, str) or not name:
        raise ArgumentError(f"Variable: name is {name!r}, expected a non-empty string")
    attributes: dict[str, str] = {stored_key(k): v for k, v in (attr or {}).items()}
    for key, value in attributes.items():
        if not isinstance(value, str):
            raise ArgumentError(f"Variable {name!r}: attribute {key} is {value!r}, expected a string")
    if shape is not None:
        attributes["__shape__"] = str(tuple(int(d) for d in shape))
    if lr_mult is not None:
        attributes["__lr_mult__"] = str(lr_mult)
    if wd_mult is not None:
        attributes["__wd_mult__"] = str(wd_mult)
    if dtype is not None:
        attributes["__dtype__"] = str(dtype_code(dtype_name(dtype)))
    if init is not None:
        attributes["__init__"] = init if isinstance(init, str) else init.dumps()
    if stype is not None:
        attributes["__storage_type__"] = str(_STORAGE[stype])
    for key, value in kwargs.items():
        if not (key.startswith("__") and key.endswith("__")):
            raise ArgumentError(f"Variable {name!r}: attribute {key!r} is not of the form __x__")
        attributes[key] = str(value)
    return Symbol([(make_variable(name, attributes), 0)])


_STORAGE = {"default": 0, "row_sparse": 1, "csr": 2}
var = Variable


def Group(symbols: Iterable[Symbol]) -> Symbol:  # noqa: N802
    """Return one symbol with the outputs of several.

    Raises:
        ArgumentError: the group is empty, or holds something else.
    """
    members = list(symbols)
    if not members or not all(isinstance(s, Symbol) for s in members):
        raise ArgumentError(f"Group: got {members!r}, expected a non-empty list of Symbols")
    return Symbol(entry for member in members for entry in member.entries)


def load_json(json_str: str) -> Symbol:
    """Read a symbol from JSON text of any MXNet version since 0.8.

    Raises:
        FileFormatError: the text is not a symbol.
    """
    if not isinstance(json_str, str):
        raise ArgumentError(f"load_json: got {type(json_str).__name__}, expected a string")
    return Symbol(from_json(json_str))


def load(fname: str) -> Symbol:
    """Read a symbol from a JSON file of any MXNet version since 0.8.

    Raises:
        FileFormatError: the file is not a symbol; the text names the file.
        FileError: it cannot be read.
    """
    raw = read_settled(fname)
    try:
        return Symbol(from_json(raw.decode("utf-8")))
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{fname}: not UTF-8 text at byte {error.start}; not a symbol file") from None
    except FileFormatError as error:
        raise FileFormatError(f"{fname}: {error}") from error

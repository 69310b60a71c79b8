"""`Symbol`: the user's face of a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from .. import later
from ..attribute import stored_key
from ..base import (
    ArgumentError,
    BoundsError,
    DTypeError,
    FileFormatError,
    MXNetError,
    dtype_code,
    dtype_name,
)
from ..graph import Entry, Graph, Node
from ..ops import get as get_op
from ..ops.attrs import real, to_text
from ..ops.attrs import shape as shape_type
from . import bind as binding
from .arithmetic import Arithmetic
from .compose import apply_op, make_variable, substitute

__all__ = ["Group", "Symbol", "Variable", "load", "load_json", "var"]

later.publish(__name__, __all__)


class Symbol(Arithmetic):
    """One or several outputs of a graph.

    Made by `Variable`, by operator functions such as ``sym.FullyConnected``, by arithmetic, or by `load`. A Symbol
    never changes (`_set_attr` apart); composing makes new ones that share nodes.

    Args:
        entries: (node, output number) of each output.

    Source: MXNet 1.9.1 `Symbol`.
    """

    def _apply(self, alias: str, *inputs: Any, **attributes: Any) -> Symbol:
        return call(alias, *inputs, **attributes)

    # parts

    def get_internals(self) -> Symbol:
        """Return a group of every output in the graph, such as ``internals["fc1_output"]``."""
        return Symbol((node, i) for node in self.graph.nodes for i in range(node.num_outputs))

    def get_children(self) -> Symbol | None:
        """Return the group of direct inputs of the outputs' nodes, None for a variable."""
        nodes = dict.fromkeys(node for node, _ in self.entries)
        entries = [entry for node in nodes for entry in node.inputs]
        return Symbol(entries) if entries else None

    def as_nd_ndarray(self) -> Symbol:
        """Return this symbol (MXNet has a second class to convert from)."""
        return self

    def as_np_ndarray(self) -> Symbol:
        """Refuse: MXNet's second array interface, `mx.np`, does not exist here.

        Raises:
            MXNetError: always.
        """
        raise MXNetError("as_np_ndarray: this package has no mx.np; symbols here are those of mx.sym")

    def gradient(self, wrt: Any) -> Symbol:
        """Refuse, as MXNet does: gradients are no symbols.

        Raises:
            MXNetError: always.
        """
        raise MXNetError("gradient is not implemented, nor is it in MXNet; bind, and call Executor.backward")

    def get_backend_symbol(self, backend: str) -> Symbol:
        """Refuse: no backend partitions graphs here.

        Raises:
            MXNetError: always.
        """
        raise MXNetError(f"get_backend_symbol: there is no backend {backend!r}; executors need none")

    def optimize_for(self, backend: str, *args: Any, **kwargs: Any) -> Symbol:
        """Return a copy; no backend partitions graphs here, and MXNet too leaves a graph alone for unknown ones.

        Args:
            backend: its name.
            args: accepted as in MXNet.
            kwargs: accepted as in MXNet.
        """
        return self.__copy__()

    def _gen_atomic_symbol(self) -> Symbol:
        """Return the operator of this symbol's node alone, without inputs and name."""
        node = self.entries[0][0]
        bare = Node(node.op, "", node.params, node.attrs, (), node.source, node.subgraphs)
        return Symbol((bare, i) for i in range(bare.num_outputs))

    def __iter__(self) -> Iterator[Symbol]:
        return (Symbol([entry]) for entry in self.entries)

    def __getitem__(self, index: int | str | slice) -> Symbol:
        if isinstance(index, slice):
            return Symbol(self.entries[index])
        if isinstance(index, str):
            found = [i for i, name in enumerate(self.graph.output_names) if name == index]
            if len(found) != 1:
                problem = "is no output" if not found else "names several outputs"
                raise ArgumentError(
                    f"{index!r} {problem} of this symbol; outputs: {', '.join(self.list_outputs())}"
                )
            return Symbol([self.entries[found[0]]])
        if not hasattr(index, "__index__"):
            raise DTypeError(f"a symbol's output is chosen by number, name or slice, not by {index!r}")
        if not -len(self.entries) <= index < len(self.entries):
            raise BoundsError(f"output {index} of a symbol with {len(self.entries)} outputs")
        return Symbol([self.entries[index]])

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
        return load_json, (self.tojson(remove_amp_cast=False),)

    # files

    def tojson(self, remove_amp_cast: bool = True) -> str:
        """Return the graph as JSON text in MXNet's 1.9 dialect."""
        graph = Graph(_without_casts(self)) if remove_amp_cast else self.graph
        from ..graph import to_json

        return to_json(graph)

    def save(self, fname: str, remove_amp_cast: bool = True) -> None:
        """Write the graph to a JSON file, atomically."""
        from ..atomic import write_atomically

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
            new = Node(node.op, node.name, node.params, node.attrs, inputs, node.source, node.subgraphs)
            replaced[node] = (new, 0)
    return tuple((replaced[node][0], replaced[node][1] or i) for node, i in heads)


def call(
    alias: str, *args: Any, name: str | None = None, attr: Mapping[str, str] | None = None, **kwargs: Any
) -> Symbol:
    """Apply the operator called `alias` to symbols and attributes."""
    op = get_op(alias)
    node = apply_op(op, alias, args, kwargs, name, attr)
    return Symbol((node, i) for i in range(node.num_outputs))


def Variable(
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
    given = {
        "shape": shape,
        "lr_mult": lr_mult,
        "wd_mult": wd_mult,
        "dtype": dtype,
        "init": init,
        "stype": stype,
    }
    for key, value in given.items():
        if value is not None:
            stored, text = _VARIABLE_KEYS[key]
            try:
                attributes[stored] = text(value)
            except (ValueError, TypeError, AttributeError, KeyError) as error:
                expected = _EXPECTED.get(key, str(error))
                raise ArgumentError(f"Variable {name!r}: {key} is {value!r}, expected {expected}") from None
    for key, value in kwargs.items():
        if not (key.startswith("__") and key.endswith("__")):
            raise ArgumentError(f"Variable {name!r}: attribute {key!r} is not of the form __x__")
        attributes[key] = str(value)
    return Symbol([(make_variable(name, attributes), 0)])


var = Variable


def _number_text(value: Any) -> str:
    """Write a number as it was given.

    Raises:
        ValueError: it is no number.
    """
    real.parse(value)
    return str(value)


_STORAGE = {"default": "0", "row_sparse": "1", "csr": "2"}
# how a variable's own arguments are stored: the attribute's name and its text
_VARIABLE_KEYS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "shape": ("__shape__", lambda value: to_text(shape_type.parse(value))),
    "lr_mult": ("__lr_mult__", _number_text),
    "wd_mult": ("__wd_mult__", _number_text),
    "dtype": ("__dtype__", lambda value: str(dtype_code(dtype_name(value)))),
    "init": ("__init__", lambda value: value if isinstance(value, str) else value.dumps()),
    "stype": ("__storage_type__", lambda value: _STORAGE[value]),
}
_EXPECTED = {
    "shape": shape_type.expects,
    "lr_mult": real.expects,
    "wd_mult": real.expects,
    "init": "an initializer or its name",
    "stype": f"one of {', '.join(_STORAGE)}",
}


def Group(symbols: Iterable[Symbol]) -> Symbol:
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
    from ..graph import from_json

    return Symbol(from_json(json_str))


def load(fname: str) -> Symbol:
    """Read a symbol from a JSON file of any MXNet version since 0.8.

    Raises:
        FileFormatError: the file is not a symbol; the text names the file.
        FileError: it cannot be read.
    """
    from ..commit import read_settled

    raw = read_settled(fname)
    try:
        return load_json(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{fname}: not UTF-8 text at byte {error.start}; not a symbol file") from None
    except FileFormatError as error:
        raise FileFormatError(f"{fname}: {error}") from error

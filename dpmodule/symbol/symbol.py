"""`Symbol`: the public interface of a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from .._core import lazy
from .._core.import_paths import find
from ..attribute import stored_key
from ..base import (
    ArgumentError,
    BoundsError,
    DTypeError,
    FileFormatError,
    MXNetError,
    NotImplementedForSymbol,
    SignatureError,
)
from ..graph import Entry, Graph, Node
from ..ndarray.convert import is_number
from ..ndarray.methods import fluent
from ..ops import get as get_op
from ..ops import namespace_of
from ..ops.registry import docstring, signature
from .compose import apply_op, make_variable, substitute, variable_attributes, without_casts
from .inference import (
    InferenceResult,
    check_shapes,
    check_types,
    debug_str,
    partial_shapes,
    partial_types,
    set_attribute,
    shown,
)

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from ..types import DTypeLike, InitLike, Ints, Number, ShapeLike
    from . import bind as binding

__all__ = ["Group", "Symbol", "Variable", "load", "load_json", "var"]

lazy.publish(__name__, __all__)


OpFunction = Callable[..., "Symbol"]
_op_functions: dict[str, OpFunction] = {}


def op_function(alias: str) -> OpFunction:
    """Return the function of an operator's name or alias; it is created at the first use."""
    if alias in _op_functions:
        return _op_functions[alias]
    op = get_op(alias)

    def function(
        *args: Any,
        name: str | None = None,
        attr: Mapping[str, str] | None = None,
        out: object = None,
        **kwargs: Any,
    ) -> Symbol:
        return call(alias, *args, name=name, attr=attr, **kwargs)

    function.__name__ = function.__qualname__ = namespace_of(alias)[1]
    function.__module__ = "dpmodule.symbol"
    function.__doc__ = docstring(op)
    function.__signature__ = signature(op, ("name", "attr", "out"))  # type: ignore[attr-defined]
    _op_functions[alias] = function
    return function


def _with_number(alias: str) -> Callable[[Any, Any], Symbol]:
    """Return a method that applies an operator to a symbol and a number."""

    def method(self: Symbol, other: Symbol | Number) -> Symbol:
        if is_number(other):
            return call(alias, self, scalar=other)
        return NotImplemented  # type: ignore[no-any-return]

    return method


def _binary(alias: str, scalar: str) -> Callable[[Any, Any], Symbol]:
    """Return a method that applies an operator to two symbols, or another to a symbol and a number."""

    def method(self: Symbol, other: Symbol | Number) -> Symbol:
        if isinstance(other, Symbol):
            return call(alias, self, other)
        if is_number(other):
            return call(scalar, self, scalar=other)
        return NotImplemented

    return method


def _refused(name: str, instead: str | None) -> Callable[..., Any]:
    """Return a method that raises, as symbols lack it."""

    def method(self: Symbol, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedForSymbol(name, instead)

    method.__name__ = name
    method.__doc__ = (
        f"Raise NotImplementedForSymbol: a symbol has no values{f'; use {instead}' if instead else ''}.\n\n"
        "Args:\n    *args: ignored.\n    **kwargs: ignored."
    )
    return method


@fluent(op_function)
class Symbol:
    """One or several outputs of a graph.

    Created by `Variable`, by operator functions such as ``sym.FullyConnected``, by arithmetic, or by `load`. A Symbol
    is immutable (except for `_set_attr`); composing creates new ones that share nodes.

    Args:
        entries: (node, output number) of each output.
    Source: MXNet 1.9.1 `Symbol`.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.entries: tuple[Entry, ...] = tuple(entries)

    @cached_property
    def graph(self) -> Graph:
        """Graph of this symbol."""
        return Graph(self.entries)

    # names and structure

    @property
    def name(self) -> str | None:
        """Name of the node; None for a group of several."""
        nodes = {node for node, _ in self.entries}
        return self.entries[0][0].name if len(nodes) == 1 else None

    def list_arguments(self) -> list[str]:
        """Return the names of the arguments: inputs and parameters, in graph order."""
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

    def __len__(self) -> int:
        return len(self.entries)

    def __repr__(self) -> str:
        if self.name is not None:
            return f"<Symbol {self.name}>"
        return f"<Symbol group [{', '.join(node.name for node, _ in self.entries)}]>"

    def _repr_svg_(self) -> str | None:
        """Return a picture of the network for notebooks; None if it is too large."""
        from ..graph.picture import draw

        return draw(self.graph)

    def debug_str(self) -> str:
        """Return a listing of every node with its inputs and attributes."""
        return debug_str(self.graph)

    # attributes

    def attr(self, key: str) -> str | None:
        """Return an attribute of this symbol's node; None if it is missing, or for a group."""
        return None if self.name is None else self.entries[0][0].all_attrs.get(stored_key(key))

    def list_attr(self, recursive: bool = False) -> dict[str, str]:
        """Return all attributes of this symbol's node; empty for a group.

        Args:
            recursive: must be False.

        Raises:
            ArgumentError: `recursive` is set; MXNet replaced it by `attr_dict`.
        """
        if recursive:
            raise ArgumentError("list_attr(recursive=True) no longer exists; use attr_dict()")
        return {} if self.name is None else shown(self.entries[0][0].all_attrs)

    def attr_dict(self) -> dict[str, dict[str, str]]:
        """Return the attributes of every node that has some, by node name."""
        return {node.name: shown(node.all_attrs) for node in self.graph.nodes if node.all_attrs}

    def _set_attr(self, **kwargs: str) -> None:
        """Set attributes of this symbol's node in place, including those of its operator."""
        if self.name is None:
            raise ArgumentError("_set_attr: a group has no attributes; select one of its members")
        for key, value in kwargs.items():
            set_attribute(self.entries[0][0], key, value)

    # shapes and types

    def infer_shape(self, /, *args: Any, **kwargs: Any) -> InferenceResult:
        """Infer all shapes from those of some arguments, in both directions.

        Args:
            args: shapes in the order of `list_arguments`, None or () for unknown ones.
            kwargs: shapes by argument name; 0 is an unknown dimension (inside `util.np_shape`: -1).

        Returns:
            Lists of shapes of arguments, outputs and auxiliary states; three times None, with a warning, if a shape is
            unknown.

        Raises:
            ShapeError: the shapes contradict each other; the message names the node and the line that created it.

        Example:
            >>> net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=10, name="fc")
            >>> net.infer_shape(data=(32, 64))
            ([(32, 64), (10, 64), (10,)], [(32, 10)], [])
        """
        return check_shapes(self.graph, self.infer_shape_partial(*args, **kwargs))

    def infer_shape_partial(self, /, *args: Any, **kwargs: Any) -> InferenceResult:
        """Infer shapes as far as possible; like `infer_shape`, with () for unknown ones.

        Inside `util.np_shape` unknown shapes are None, and () is the shape of a scalar.

        Args:
            *args: shapes in the order of `list_arguments`, None or () for unknown ones.
            **kwargs: shapes by argument name; 0 is an unknown dimension (inside `util.np_shape`: -1).
        """
        return partial_shapes(self.graph, args, kwargs)

    def infer_type(self, /, *args: Any, **kwargs: Any) -> InferenceResult:
        """Infer all element types from those of some arguments.

        Args:
            args: types in the order of `list_arguments`, None for unknown ones.
            kwargs: types by argument name.

        Returns:
            Lists of NumPy types of arguments, outputs and auxiliary states; three times None, with a warning, if a
            type is unknown.

        Raises:
            DTypeError: the types contradict each other, or one does not exist.
        """
        return check_types(self.graph, self.infer_type_partial(*args, **kwargs))

    def infer_type_partial(self, /, *args: Any, **kwargs: Any) -> InferenceResult:
        """Infer types as far as possible; like `infer_type`, with None for unknown ones.

        Args:
            *args: types in the order of `list_arguments`, None for unknown ones.
            **kwargs: types by argument name.
        """
        return partial_types(self.graph, args, kwargs)

    # arithmetic: the called names of operators determine the automatic names of their nodes

    __array_ufunc__ = None
    """NumPy numbers leave operators to this class."""
    __hash__ = object.__hash__

    __add__, __radd__ = _binary("_Plus", "_PlusScalar"), _with_number("_PlusScalar")
    __sub__, __rsub__ = _binary("_Minus", "_MinusScalar"), _with_number("_RMinusScalar")
    __mul__, __rmul__ = _binary("_Mul", "_MulScalar"), _with_number("_MulScalar")
    __truediv__, __rtruediv__ = _binary("_Div", "_DivScalar"), _with_number("_RDivScalar")
    __mod__, __rmod__ = _binary("_Mod", "_ModScalar"), _with_number("_RModScalar")
    __pow__, __rpow__ = _binary("_Power", "_PowerScalar"), _with_number("_rpower_scalar")
    __eq__ = _binary("_Equal", "_equal_scalar")  # type: ignore[assignment]  # a symbol, not a bool
    __ne__ = _binary("_Not_Equal", "_not_equal_scalar")  # type: ignore[assignment]  # a symbol, not a bool
    __gt__ = _binary("_Greater", "_greater_scalar")
    __ge__ = _binary("_Greater_Equal", "_greater_equal_scalar")
    __lt__ = _binary("_Lesser", "_lesser_scalar")
    __le__ = _binary("_Lesser_Equal", "_lesser_equal_scalar")
    __iadd__, __isub__ = _refused("__iadd__", "a = a + b"), _refused("__isub__", "a = a - b")
    __imul__, __itruediv__ = _refused("__imul__", "a = a * b"), _refused("__itruediv__", "a = a / b")
    __bool__ = _refused("__bool__", "a comparison with `is`")

    def __neg__(self) -> Symbol:
        return call("_MulScalar", self, scalar=-1.0)

    def __abs__(self) -> Symbol:
        return call("abs", self)

    # operators with special arguments, and methods that need values

    def reshape(self, *shape: Any, **kwargs: Any) -> Symbol:
        """Return this symbol in another shape.

        Args:
            *shape: lengths, or one tuple; 0 keeps the length of an axis, -1 is inferred, see operator `Reshape`.
            **kwargs: further attributes of the operator, and `name`.
        """
        if shape:
            kwargs["shape"] = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        return call("Reshape", self, **kwargs)

    def astype(self, dtype: DTypeLike, **kwargs: Any) -> Symbol:
        """Return this symbol with another element type.

        Args:
            dtype: the element type, as NumPy type, torch dtype or name.
            **kwargs: `name` and attributes.
        """
        return call("Cast", self, dtype=dtype, **kwargs)

    def split_v2(self, indices_or_sections: Ints, axis: int = 0, squeeze_axis: bool = False) -> Symbol:
        """Split along an axis; see the function `split_v2`.

        Args:
            indices_or_sections: number of equal parts, or a tuple of positions to split at.
            axis: the axis to split.
            squeeze_axis: True to drop the axis, along which every part must have one element.
        """
        return split_v2(self, indices_or_sections, axis, squeeze_axis)

    asnumpy = _refused("asnumpy", "eval() or bind()")
    asscalar = _refused("asscalar", "eval() or bind()")
    as_in_context = _refused("as_in_context", "bind(ctx=...)")
    wait_to_read = _refused("wait_to_read", None)
    copy = _refused("copy", "copy.copy()")
    backward = _refused("backward", "Executor.backward()")
    detach = _refused("detach", "sym.BlockGrad()")

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
        """Return this symbol (for MXNet, which has a second class)."""
        return self

    def as_np_ndarray(self) -> Symbol:
        """Raise: MXNet's second array interface, `mx.np`, does not exist here.

        Raises:
            MXNetError: always.
        """
        raise MXNetError("as_np_ndarray: this package has no mx.np; symbols here are those of mx.sym")

    def gradient(self, wrt: object) -> Symbol:
        """Raise, as in MXNet: gradients are not symbols.

        Args:
            wrt: ignored.

        Raises:
            MXNetError: always.
        """
        raise MXNetError("gradient is not implemented, as in MXNet; bind, and call Executor.backward")

    def get_backend_symbol(self, backend: str) -> Symbol:
        """Raise: there are no backends.

        Args:
            backend: name for the message.

        Raises:
            MXNetError: always.
        """
        raise MXNetError(f"get_backend_symbol: there is no backend {backend!r}; executors need none")

    def optimize_for(self, backend: str, *args: Any, **kwargs: Any) -> Symbol:
        """Return a copy: there are no backends, and MXNet does not change a graph for unknown ones either.

        Args:
            args: accepted as in MXNet.
            kwargs: accepted as in MXNet.
        """
        return self.__copy__()

    def _gen_atomic_symbol(self) -> Symbol:
        """Return the operator of this symbol's node without inputs and name."""
        node = self.entries[0][0]
        bare = Node(node.op, "", node.params, node.attrs, (), node.source, node.subgraphs)
        return Symbol((bare, i) for i in range(bare.num_outputs))

    def __iter__(self) -> Iterator[Symbol]:
        return (Symbol([entry]) for entry in self.entries)

    def __getitem__(self, index: int | str | slice) -> Symbol:
        """Return one output by number or name, or several by a slice."""
        if isinstance(index, slice):
            return Symbol(self.entries[index])
        if isinstance(index, str):
            positions = [i for i, name in enumerate(self.graph.output_names) if name == index]
            if len(positions) != 1:
                problem = "is not an output" if not positions else "names several outputs"
                raise ArgumentError(
                    f"{index!r} {problem} of this symbol; outputs: {', '.join(self.list_outputs())}"
                )
            return Symbol([self.entries[positions[0]]])
        if not hasattr(index, "__index__"):
            raise DTypeError(f"an output of a symbol is selected by number, name or slice, not by {index!r}")
        if not -len(self.entries) <= index < len(self.entries):
            raise BoundsError(f"output {index} of a symbol with {len(self.entries)} outputs")
        return Symbol([self.entries[index]])

    # composition

    def __call__(self, /, *args: Symbol, **kwargs: Any) -> Symbol:
        """Return a copy with replaced arguments, by position or by name."""
        name = kwargs.pop("name", None)
        if args and kwargs:
            raise SignatureError("compose: pass symbols by position or by name, not both")
        variables = {n.name: n for n in self.graph.nodes if n.op is None}
        if len(args) > len(self.graph.arguments):
            raise ArgumentError(f"compose: got {len(args)} symbols for {len(self.graph.arguments)} arguments")
        values = dict(zip(self.graph.argument_names, args)) if args else kwargs
        replacements = {}
        for key, value in values.items():
            if key not in variables:
                raise ArgumentError(f"compose: {key!r} is not an argument; arguments: {', '.join(variables)}")
            if not isinstance(value, Symbol) or len(value.entries) != 1:
                raise SignatureError(f"compose: {key} is {value!r}, expected a Symbol with one output")
            replacements[variables[key]] = value.entries[0]
        return Symbol(substitute(self.graph, replacements, name))

    def __copy__(self) -> Symbol:
        return Symbol(substitute(self.graph, {}))

    def __deepcopy__(self, memo: dict[int, Any]) -> Symbol:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        return load_json, (self.tojson(remove_amp_cast=False),)

    # files

    def tojson(self, remove_amp_cast: bool = True) -> str:
        """Return the graph as JSON text in the format of MXNet 1.9.

        Args:
            remove_amp_cast: True to leave out the casts that `contrib.amp` inserted.
        """
        graph = without_casts(self.graph) if remove_amp_cast else self.graph
        from ..graph import to_json

        return to_json(graph)

    def save(self, fname: str, remove_amp_cast: bool = True) -> None:
        """Write the graph to a JSON file, atomically.

        Args:
            fname: path of the file.
            remove_amp_cast: True to leave out the casts that `contrib.amp` inserted.
        """
        from .._files import write_atomically

        write_atomically(fname, self.tojson(remove_amp_cast).encode("utf-8"))

    # running

    def to_torch(
        self,
        arg_params: Mapping[str, Any] | None = None,
        aux_params: Mapping[str, Any] | None = None,
        share: bool = False,
        *,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
    ) -> GraphModule:
        """Return this symbol as a `torch.nn.Module`, which torch can train, compile and export.

        It is a `torch.fx.GraphModule`: its source, ``module.code``, has one line for each operator. Parameters and
        auxiliary states keep their names in ``state_dict``, even names with dots. ``forward`` takes the other
        arguments by name or in the order of `list_arguments`, and returns the output, or a tuple of several.

        In train mode a loss such as SoftmaxOutput needs its label and ignores the gradient of its output:
        ``module(data, label).sum().backward()`` computes the gradients of `Module.backward`. In eval mode the label is
        optional; without it the output is a prediction with an ordinary gradient. In train mode forward updates the
        moving statistics of BatchNorm, as in torch, while an executor updates them in backward. Random numbers come
        from torch's generators.

        A gamma with fix_gamma is set to 1 and needs no gradient. Created arrays, such as begin states, have the device
        and type of the parameters, even after ``module.to(...)``.

        Args:
            arg_params: parameters by name; names that the symbol lacks are ignored.
            aux_params: auxiliary states by name.
            share: True to share the memory of these arrays until ``module.to(...)`` moves the parameters; False to
                copy.
            shapes: shapes of inputs, for graphs that create an array whose shape depends on them and cannot be
                inferred otherwise.

        Returns:
            The module, in train mode like new torch modules.

        Raises:
            ArgumentError: parameters are missing, or a torch module cannot have their names; the message lists all.
            OpError: the graph has inputs or operators that such a module cannot have, such as sparse inputs; the
                message lists all.
            ShapeError: the parameters do not match the symbol.

        Example:
            >>> net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
            >>> net = mx.sym.SoftmaxOutput(net, name="softmax")
            >>> params = {"fc_weight": mx.nd.ones((2, 3)), "fc_bias": mx.nd.zeros(2)}
            >>> module = net.to_torch(params).eval()
            >>> list(module.state_dict())
            ['fc_weight', 'fc_bias']
            >>> module(mx.nd.ones((1, 3)).torch()).tolist()
            [[0.5, 0.5]]
        """
        from ..executor.to_torch import to_torch

        return to_torch(self.graph, arg_params or {}, aux_params or {}, share, shapes=shapes)

    if TYPE_CHECKING:
        simple_bind = binding.simple_bind
        bind = binding.bind
        eval = binding.evaluate


for _name, _function in {"simple_bind": "simple_bind", "bind": "bind", "eval": "evaluate"}.items():
    # their module imports the executors
    setattr(Symbol, _name, lazy.Method(Symbol, _name, partial(find, f".symbol.bind.{_function}")))


def call(
    alias: str, *args: Any, name: str | None = None, attr: Mapping[str, str] | None = None, **kwargs: Any
) -> Symbol:
    """Apply the operator called `alias` to symbols and attributes."""
    op = get_op(alias)
    node = apply_op(op, alias, args, kwargs, name, attr)
    return Symbol((node, i) for i in range(node.num_outputs))


def split_v2(ary: Symbol, indices_or_sections: Ints, axis: int = 0, squeeze_axis: bool = False) -> Symbol:
    """Split along an axis into equal sections, or at given positions.

    Args:
        ary: symbol to split.
        indices_or_sections: number of equal parts, or a tuple of positions to split at.
        axis: the axis to split.
        squeeze_axis: True to drop the axis, along which every part must have one element.
    """
    if isinstance(indices_or_sections, int):
        return call("_split_v2", ary, [], axis, squeeze_axis, indices_or_sections)
    return call("_split_v2", ary, [0, *indices_or_sections], axis, squeeze_axis, 0)


def Variable(
    name: str,
    attr: Mapping[str, str] | None = None,
    shape: ShapeLike | None = None,
    lr_mult: float | None = None,
    wd_mult: float | None = None,
    dtype: DTypeLike = None,
    init: InitLike | None = None,
    stype: str | None = None,
    **kwargs: str,
) -> Symbol:
    """Return a variable: an input, label, parameter or state, whose array is bound later.

    Args:
        name: name by which it is fed, initialized and saved.
        shape: its shape, 0 for unknown dimensions.
        lr_mult: multiplier of its learning rate.
        wd_mult: multiplier of its weight decay.
        init: initializer (an object, or a registered name) used by `init_params` for it alone.
        stype: storage type: "default", "row_sparse", "csr" or "ragged".
        kwargs: further attributes of the form ``__x__``.

    Raises:
        ArgumentError: a name or value is invalid; SignatureError if `name` is not a string.
    """
    if not isinstance(name, str) or not name:
        raise SignatureError(f"Variable: name is {name!r}, expected a non-empty string")
    known = {
        "shape": shape,
        "lr_mult": lr_mult,
        "wd_mult": wd_mult,
        "dtype": dtype,
        "init": init,
        "stype": stype,
    }
    return Symbol([(make_variable(name, variable_attributes(name, attr or {}, known, kwargs)), 0)])


var = Variable


def Group(symbols: Iterable[Symbol]) -> Symbol:
    """Return one symbol with the outputs of several.

    Args:
        symbols: symbols whose outputs are concatenated.

    Raises:
        SignatureError: the group is empty, or a member is not a Symbol.
    """
    members = list(symbols)
    if not members or not all(isinstance(s, Symbol) for s in members):
        raise SignatureError(f"Group: got {members!r}, expected a non-empty list of Symbols")
    return Symbol(entry for member in members for entry in member.entries)


def load_json(json_str: str) -> Symbol:
    """Read a symbol from JSON text of any MXNet version since 0.8.

    Args:
        json_str: content of a symbol file.

    Raises:
        SignatureError: `json_str` is not a string.
        FileFormatError: the text is not a symbol.
    """
    if not isinstance(json_str, str):
        raise SignatureError(f"load_json: got {type(json_str).__name__}, expected a string")
    from ..graph import from_json

    return Symbol(from_json(json_str))


def load(fname: str) -> Symbol:
    """Read a symbol from a JSON file of any MXNet version since 0.8.

    Args:
        fname: path of the file.

    Raises:
        SignatureError: `fname` is not a path.
        FileFormatError: the file is not a symbol; the message names the file.
        FileError: the file cannot be read.
    """
    from .._files import likely_kind, path_text, read_committed

    raw = read_committed(path_text(fname, "fname"))
    try:
        return load_json(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        what = likely_kind(raw[:64]) or f"not UTF-8 text at byte {error.start}"
        raise FileFormatError(f"{fname}: not a symbol file: {what}") from None
    except FileFormatError as error:
        raise FileFormatError(f"{fname}: {error}") from error

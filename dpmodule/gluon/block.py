"""`SymbolBlock`: a symbol with its parameters, as a function of arrays; exported networks run and train in it."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from .. import symbol as sym
from .._core import lazy
from .._files import path_text
from ..base import ArgumentError, DTypeError, NotSupportedError, dtype_name
from ..checkpoint import save_checkpoint
from ..context import context_of
from ..executor.array_function import ArrayFunction
from ..graph import Graph, Node, infer_shapes, infer_types
from ..graph.infer import variable_dtype
from ..name import current as name_manager
from ..ndarray import NDArray
from ..ops.shapes import known
from ..symbol import Symbol
from .names_left_out import left_out_getattr, names_of_module, register_as
from .parameter import Contexts, ParameterDict, ParameterError, brief, named_arrays

if TYPE_CHECKING:
    from ..types import DTypeLike

__all__ = ["SymbolBlock", *names_of_module("", "block")]

__getattr__, __dir__ = lazy.attributes(__name__, __all__, otherwise=left_out_getattr("gluon"))

Structure = Any
"""Nesting of arguments or results: 0 for one value, or a list of structures."""

_MOST_SHAPES = 256
"""Number of shapes of inputs that are remembered as checked."""

_STATISTICS = ("running_var", "moving_var")
_SIBLINGS = {"running_var": "running_mean", "moving_var": "moving_mean"}


class _HookHandle:
    """A registered hook; `detach` removes it."""

    def __init__(self, hooks: list[Callable[..., Any]], hook: Callable[..., Any]) -> None:
        self._hooks, self._hook = hooks, hook
        hooks.append(hook)

    def detach(self) -> None:
        """Remove the hook."""
        if self._hook in self._hooks:
            self._hooks.remove(self._hook)


class SymbolBlock:
    """A network from a symbol: a function of arrays with parameters, which `Trainer` trains.

    Calls inside `autograd.record` are recorded. The network may be called with batches of any size, and on each context
    of its parameters.

    Args:
        outputs: a symbol, or a list of symbols, for which a list of arrays is returned.
        inputs: variables of `outputs` that a call passes, as a symbol or a list; all other variables are parameters.
        params: parameters of other blocks, which this block shares where the names are equal.

    Raises:
        ArgumentError: an input is not a variable; an AssertionError, too.

    Example:
        >>> hidden = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4, name="hidden")
        >>> net = mx.gluon.SymbolBlock(hidden, mx.sym.Variable("data"))
        >>> net.initialize()
        >>> net(mx.nd.ones((2, 3))).shape
        (2, 4)

    Source: MXNet 1.9.1 `gluon.SymbolBlock`. Here, `initialize` fills parameters by their names, as `Module` does, and
    `load_parameters` reads every file of parameters.
    """

    def __init__(
        self,
        outputs: Symbol | Sequence[Symbol],
        inputs: Symbol | Sequence[Symbol],
        params: ParameterDict | None = None,
    ) -> None:
        self._name = name_manager().get(None, "symbolblock")
        self._params = ParameterDict("", params)
        if isinstance(outputs, (list, tuple)) and len(outputs) == 1:
            outputs = outputs[0]
        if isinstance(inputs, Symbol):
            inputs = list(inputs)
        flat, self._in_format = _flatten(inputs, Symbol, "inputs")
        heads, self._out_format = _flatten(outputs, Symbol, "outputs")
        for each in flat:
            if each.name is None or any(node.op is not None for node in each.graph.nodes):
                raise ParameterError(
                    f"SymbolBlock: input {each.name or each.list_outputs()} is an output of operators, expected a "
                    "variable such as mx.sym.Variable('data')"
                )
        self._symbol = heads[0] if len(heads) == 1 else sym.Group(heads)
        if self._out_format == 0 and len(self._symbol.list_outputs()) > 1:  # a group gives a list
            self._out_format = [0] * len(self._symbol.list_outputs())
        graph = self._symbol.graph
        graph.check_names()
        self._input_names = [str(each.name) for each in flat]
        self._function = ArrayFunction(graph)
        declared = {str(each.name): variable_dtype(each.graph.nodes[0]) for each in flat}
        types = _types_of(graph, {name: dtype for name, dtype in declared.items() if dtype})
        states = set(graph.auxiliary_names)
        for node in (*graph.arguments, *graph.auxiliary):
            if node.name not in declared:
                options: dict[str, Any] = {"grad_req": "null"} if node.name in states else {}
                if params is None or node.name not in params:
                    options |= {"dtype": types.get(node, "float32"), "init": node.attrs.get("__init__")}
                self._params.get(node.name, allow_deferred_init=True, **options)
        # for each variable of the graph the index of an input, or a parameter
        self._sources = [
            self._input_names.index(node.name) if node.name in declared else self._params[node.name]
            for node in graph.inputs
        ]
        self._checked: set[tuple[Any, ...]] = set()
        self._forward_hooks: list[Callable[..., Any]] = []
        self._forward_pre_hooks: list[Callable[..., Any]] = []
        self._warn_unused(graph.argument_names)

    @staticmethod
    def imports(
        symbol_file: str | os.PathLike[str],
        input_names: str | Sequence[str],
        param_file: str | os.PathLike[str] | None = None,
        ctx: Contexts = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
    ) -> SymbolBlock:
        """Return the network of files that `HybridBlock.export` or `Module.save_checkpoint` wrote, here or in MXNet.

        Args:
            symbol_file: path of ``<name>-symbol.json``.
            input_names: names of the inputs, often ``["data"]``.
            param_file: path of ``<name>-0000.params``; None leaves the parameters uninitialized.
            ctx: context, or list of contexts, of the parameters; None for ``cpu()``.
            allow_missing: True to leave parameters that the file lacks.
            ignore_extra: True to ignore other names in the file.

        Raises:
            FileError: a file cannot be read.
            FileFormatError: a file is damaged or has another format.
            ArgumentError: the names of the files do not match; an AssertionError, too.
        """
        symbol = sym.load(path_text(symbol_file, "symbol_file"))
        names = [input_names] if isinstance(input_names, str) else list(input_names)
        dtype = "float32" if param_file is None else None
        block = SymbolBlock(symbol, [sym.Variable(name, dtype=dtype) for name in names])
        if param_file is not None:
            block.collect_params().load(
                param_file, ctx, allow_missing, ignore_extra, cast_dtype=True, dtype_source="saved"
            )
        return block

    def __repr__(self) -> str:
        inputs, outputs = len(self._input_names), len(self._symbol.list_outputs())
        return f"{type(self).__name__}(\n{self._symbol!r} : {inputs} -> {outputs}\n)"

    def _warn_unused(self, used: Sequence[str]) -> None:
        unused = [f"{i}-th" for i, name in enumerate(self._input_names) if name not in used]
        if unused:
            warnings.warn(
                f"The {', '.join(unused)} input to SymbolBlock is not used by any computation. Is this intended? "
                f"The network has the arguments {brief(used)}",
                stacklevel=3,
            )

    # parameters

    @property
    def name(self) -> str:
        """Name of the block."""
        return self._name

    @property
    def prefix(self) -> str:
        """Prefix of the parameters' names: none."""
        return ""

    @property
    def params(self) -> ParameterDict:
        """The parameters by name."""
        return self._params

    def collect_params(self, select: str | None = None) -> ParameterDict:
        """Return the parameters by name.

        Args:
            select: regular expression that the beginning of a name must match, such as ``".*weight|.*bias"``; None for
                all.
        """
        found = ParameterDict("")
        pattern = re.compile(select or "")
        found.update({name: param for name, param in self._params.items() if pattern.match(name)})
        return found

    def initialize(
        self, init: Any = None, ctx: Contexts = None, verbose: bool = False, force_reinit: bool = False
    ) -> None:
        """Initialize the parameters; see `ParameterDict.initialize`.

        Parameters of unknown shape are initialized by the first call.

        Args:
            init: initializer, which fills by name; None for ``Uniform()``.
            ctx: context, or list of contexts; None for the current one.
            verbose: True to log each parameter.
            force_reinit: True to initialize again.
        """
        self.collect_params().initialize(init, ctx, verbose, force_reinit)

    def reset_ctx(self, ctx: Contexts) -> None:
        """Move the parameters to other contexts.

        Args:
            ctx: context, or list of contexts; None for the current one.
        """
        self.collect_params().reset_ctx(ctx)

    def cast(self, dtype: DTypeLike) -> None:
        """Convert the parameters to another type.

        In float16, BatchNorm keeps its parameters in float32.

        Args:
            dtype: the element type.
        """
        self._checked.clear()
        kept = self._batch_norms() if dtype_name(dtype) == "float16" else set()
        for name, param in self._params.items():
            param.cast("float32" if name in kept else dtype)

    def _batch_norms(self) -> set[str]:
        """Return the names of parameters and states of BatchNorm, found by their endings."""
        kept = set()
        for name in self._params:
            for ending in _STATISTICS:
                if name.endswith(ending):
                    start = name.removesuffix(ending)
                    members = {start + last for last in (ending, _SIBLINGS[ending], "gamma", "beta")}
                    kept |= members if all(member in self._params for member in members) else set()
        return kept

    def save_parameters(self, filename: str | os.PathLike[str], deduplicate: bool = False) -> None:
        """Save the parameters by name, without the beginning that all names share, as MXNet does.

        Args:
            filename: path of the file.
            deduplicate: accepted as in MXNet.

        Raises:
            FileError: the file cannot be written.
        """
        self._params.save(filename, os.path.commonprefix(list(self._params)))

    def load_parameters(
        self,
        filename: str | os.PathLike[str],
        ctx: Contexts = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        cast_dtype: bool = False,
        dtype_source: str = "current",
    ) -> None:
        """Load parameters from a file of `save_parameters`, `export`, `ParameterDict.save` or a checkpoint.

        Args:
            filename: path of the file.
            ctx: context, or list of contexts; None for those of the parameters, or ``cpu()``.
            allow_missing: True to leave parameters that the file lacks.
            ignore_extra: True to ignore other names in the file.
            cast_dtype: True to convert values of another type.
            dtype_source: "current" to convert values, "saved" to convert parameters.

        Raises:
            FileError: the file cannot be read.
            FileFormatError: it is damaged or has another format.
            ArgumentError: its names, shapes or types do not match; an AssertionError, too.
        """
        path = path_text(filename, "filename")
        arrays = named_arrays(path)
        names = {key.removeprefix("arg:").removeprefix("aux:") for key in arrays}
        shared = os.path.commonprefix(list(self._params))
        is_short = not names & {*self._params} and {shared + name for name in names} & {*self._params}
        self._params.load_dict(
            arrays,
            ctx,
            allow_missing,
            ignore_extra,
            shared if is_short else "",
            path,
            cast_dtype,
            dtype_source,
        )
        self._checked.clear()

    save_params = save_parameters
    load_params = load_parameters

    def load_dict(
        self,
        param_dict: Mapping[str, NDArray],
        ctx: Contexts = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        cast_dtype: bool = False,
        dtype_source: str = "current",
    ) -> None:
        """Load parameters from a dict of arrays by name; see `load_parameters`.

        Args:
            param_dict: arrays by name, with or without "arg:" and "aux:".
        """
        self._params.load_dict(
            param_dict,
            ctx,
            allow_missing,
            ignore_extra,
            cast_dtype=cast_dtype,
            dtype_source=dtype_source,
        )
        self._checked.clear()

    def export(self, path: str | os.PathLike[str], epoch: int = 0, remove_amp_cast: bool = True) -> None:
        """Save graph and parameters for `imports`, `Module.load` and MXNet 1.9.1.

        The files are ``<path>-symbol.json`` and ``<path>-<epoch>.params``; they are replaced together.

        Args:
            path: path and beginning of the names of the files.
            epoch: number in the name of the second file.
            remove_amp_cast: True to leave out the casts that `contrib.amp` inserted.

        Raises:
            StateError: a parameter is not initialized.
            FileError: a file cannot be written.
        """
        graph = self._symbol.graph
        states = {
            name: self._params[name].reduced() for name in graph.auxiliary_names if name in self._params
        }
        values = {name: self._params[name].reduced() for name in graph.argument_names if name in self._params}
        save_checkpoint(path_text(path, "path"), epoch, self._symbol, values, states, remove_amp_cast)

    # running

    def hybridize(self, active: bool = True, **kwargs: Any) -> None:
        """Do nothing: the network is compiled already.

        Args:
            active: accepted as in MXNet.
            **kwargs: accepted likewise, such as ``static_alloc=True``.
        """

    def optimize_for(self, x: Any, *args: Any, backend: str | None = None, **kwargs: Any) -> None:
        """Run the network once.

        Args:
            x: first input.
            args: other inputs.
            backend: accepted as in MXNet; the network is always optimized.
            kwargs: accepted likewise.
        """
        self(x, *args)

    def register_forward_pre_hook(self, hook: Callable[..., Any]) -> _HookHandle:
        """Call ``hook(block, inputs)`` before each call; `detach` of the result removes it.

        Args:
            hook: the function.
        """
        return _HookHandle(self._forward_pre_hooks, hook)

    def register_forward_hook(self, hook: Callable[..., Any]) -> _HookHandle:
        """Call ``hook(block, inputs, outputs)`` after each call; `detach` of the result removes it.

        Args:
            hook: the function.
        """
        return _HookHandle(self._forward_hooks, hook)

    def apply(self, fn: Callable[[SymbolBlock], Any]) -> SymbolBlock:
        """Call a function with the block, and return the block.

        Args:
            fn: the function.
        """
        fn(self)
        return self

    def register_child(self, block: Any, name: str | None = None) -> None:
        """Raise: a network from a symbol has no blocks inside.

        Args:
            block: ignored.
            name: ignored.

        Raises:
            NotSupportedError: always.
        """
        raise NotSupportedError(
            "SymbolBlock.register_child: a network from a symbol has no blocks inside; compose the symbols instead"
        )

    def __call__(self, *args: Any) -> Any:
        """Return the outputs; see `forward`."""
        for hook in self._forward_pre_hooks:
            hook(self, args)
        results = self.forward(*args)
        for hook in self._forward_hooks:
            hook(self, args, results)
        return results

    def forward(self, x: Any, *args: Any) -> Any:
        """Return the outputs for inputs: arrays or tensors on one context, or symbols.

        Args:
            x: first input.
            args: other inputs, in the order of the block's inputs.

        Returns:
            An array, or a list if the block has several outputs; for symbols a symbol, or a list.

        Raises:
            ArgumentError: the number of inputs differs.
            DTypeError: an input is not an array, or its type contradicts the parameters'.
            ShapeError: shapes contradict each other.
            StateError: a parameter is not initialized, or not on the context of the inputs.
            NodeError: an operator failed; the message names the node.
        """
        given, structure = _flatten([x, *args], (NDArray, torch.Tensor, Symbol), "inputs")
        if structure != self._in_format:
            raise ArgumentError(
                f"SymbolBlock: the structure of inputs is {structure}, expected {self._in_format} for "
                f"{', '.join(self._input_names)}"
            )
        if any(isinstance(each, Symbol) for each in given):
            return self._compose(given)
        arrays = [each if isinstance(each, NDArray) else _array_of(each) for each in given]
        ctx = arrays[0].context
        for name, array in zip(self._input_names, arrays, strict=True):
            if array.context != ctx:
                raise ArgumentError(
                    f"SymbolBlock: {name} is on {array.context}, but {self._input_names[0]} on {ctx}; copy it there "
                    "with as_in_context"
                )
        key = tuple((array.raw.shape, array.raw.dtype) for array in arrays)
        is_new = key not in self._checked
        if is_new:
            self._check(arrays)
        values = [arrays[one] if isinstance(one, int) else one.data(ctx) for one in self._sources]
        if is_new:
            if len(self._checked) >= _MOST_SHAPES:
                self._checked.clear()
            self._checked.add(key)
        return _regroup(iter(self._function(values, ctx)), self._out_format)

    def _compose(self, given: Sequence[Any]) -> Any:
        """Return the outputs as symbols of other symbols."""
        if not all(isinstance(each, Symbol) for each in given):
            raise DTypeError("SymbolBlock: symbols and arrays are given, expected one kind")
        used = set(self._symbol.list_inputs())
        named = {k: v for k, v in zip(self._input_names, given, strict=True) if k in used}
        composed = self._symbol(**named)
        return _regroup(iter(list(composed)), self._out_format)

    def _check(self, arrays: Sequence[NDArray]) -> None:
        """Infer shapes and types, which finds contradictions, and initialize the parameters that waited for it."""
        graph = self._symbol.graph
        shapes: dict[str, Any] = {}
        types: dict[str, str] = {}
        for name, array in zip(self._input_names, arrays, strict=True):
            shapes[name], types[name] = array.shape, dtype_name(array.dtype)
        for name, param in self._params.items():
            types[name] = dtype_name(param.dtype)
            if param.shape is not None:
                shapes[name] = param.shape
        infer_types(graph, types)
        found = infer_shapes(graph, shapes)
        for node in graph.inputs:
            shape = found[node][0]
            if node.name in self._params and shape is not None and known(shape):
                param = self._params[node.name]
                param.shape = shape
                param.finish_deferred_init()

    def infer_shape(self, *args: NDArray) -> None:
        """Set the shapes of the parameters from inputs.

        Args:
            args: inputs as for a call.
        """
        self._check([each if isinstance(each, NDArray) else _array_of(each) for each in args])


def _types_of(graph: Graph, given: Mapping[str, str]) -> dict[Node, str]:
    """Return the types of variables, as far as they follow from those of inputs and from declarations."""
    try:
        found = infer_types(graph, given, default="float32")
    except DTypeError:  # a file of parameters decides
        found = {node: [variable_dtype(node)] for node in graph.inputs}
    return {node: types[0] for node, types in found.items() if node.op is None and types[0]}


def _array_of(tensor: torch.Tensor) -> NDArray:
    return NDArray(tensor.detach(), context_of(tensor.device), pinned=True)


def _flatten(value: Any, kinds: Any, what: str) -> tuple[list[Any], Structure]:
    """Return the values of nested lists as one list, and the nesting."""
    if isinstance(value, kinds):
        return [value], 0
    if not isinstance(value, (list, tuple)):
        raise DTypeError(
            f"SymbolBlock: {what} have a {type(value).__name__}, expected "
            + ("symbols" if kinds is Symbol else "NDArrays or tensors; convert it with mx.nd.array")
        )
    parts = [_flatten(each, kinds, what) for each in value]
    return [one for flat, _ in parts for one in flat], [structure for _, structure in parts]


def _regroup(values: Any, structure: Structure) -> Any:
    """Return values in the nesting that `_flatten` found."""
    return next(values) if structure == 0 else [_regroup(values, each) for each in structure]


register_as(SymbolBlock, "Block", "HybridBlock")

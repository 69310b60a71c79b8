"""`Parameter` and `ParameterDict`: arrays of a network on contexts, with gradients and multipliers."""

from __future__ import annotations

import os
import warnings
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from typing import TYPE_CHECKING, Any, Protocol

from .. import ndarray as nd
from .. import symbol as sym
from .._core import lazy, mode
from .._files import path_text
from ..base import ArgumentError, MXNetError, StateError, UnknownNameError, did_you_mean, dtype_name, np_dtype
from ..context import Context, context_of, cpu, current_context
from ..executor.memory import allocate
from ..initializer import InitDesc, Uniform
from ..initializer import create as create_initializer
from ..initializer.base import has_rule
from ..ndarray import NDArray, tape
from .names_left_out import left_out_getattr, names_of_module

if TYPE_CHECKING:
    from ..types import ContextLike, DTypeLike, ShapeLike

__all__ = [
    "DeferredInitializationError",
    "Parameter",
    "ParameterDict",
    *names_of_module("", "parameter"),
]

__getattr__, __dir__ = lazy.attributes(__name__, __all__, otherwise=left_out_getattr("gluon"))

Contexts = Any
"""A context, a list of them, or None."""

_GRAD_REQS = ("write", "add", "null")
_UNKNOWN = (0, -1)
_FEW = 10


class DeferredInitializationError(MXNetError):
    """A parameter is read whose shape is unknown until the first forward."""


class ParameterError(ArgumentError, AssertionError):
    """Arrays or attributes that do not match a parameter; an AssertionError, too, as in MXNet."""


def _is_known(shape: Sequence[int] | None) -> bool:
    return shape is not None and not any(size in _UNKNOWN for size in shape)


def contexts_of(ctx: Contexts) -> list[Context]:
    """Return a context, or a list of them, as a list; None is the current context.

    Args:
        ctx: a context, a list of them, or None.
    """
    if ctx is None:
        return [current_context()]
    return [context_of(each) for each in (ctx if isinstance(ctx, (list, tuple)) else [ctx])]


def _place(ctx: Context) -> tuple[bool, int]:
    """Return what distinguishes contexts of parameters; pinned CPU memory is as good as other."""
    return ctx.device_type == "gpu", ctx.device_id


class TracksWrites(Protocol):
    """An object that follows writes to parameters, such as a trainer."""

    def note_written(self, param: Parameter) -> None:
        """Note that the values of a parameter are about to change."""


class Parameter:
    """A parameter: an array, and one for its gradient, on each context.

    Args:
        name: name of the parameter.
        grad_req: "write", "add" or "null"; may be changed at any time. "null" frees the gradient.
        shape: lengths of the axes, 0 for unknown ones; None if nothing is known.
        dtype: element type.
        lr_mult: multiplier of the learning rate.
        wd_mult: multiplier of the weight decay.
        init: initializer of this parameter; None for the one that `initialize` gets.
        allow_deferred_init: True if `initialize` may wait for the shape.
        differentiable: False if it never has a gradient.
        stype: storage type; only "default" exists here.
        grad_stype: storage type of the gradient, "default" or "row_sparse".

    Raises:
        ArgumentError: `grad_req` or a storage type is unknown; an AssertionError, too.

    Example:
        >>> weight = mx.gluon.Parameter("weight", shape=(2,))
        >>> weight.initialize(mx.init.One())
        >>> with mx.autograd.record():
        ...     loss = (weight.data() * 3).sum()
        >>> loss.backward()
        >>> weight.grad().asnumpy()
        array([3., 3.], dtype=float32)

    Source: MXNet 1.9.1 `gluon.Parameter`.
    """

    def __init__(
        self,
        name: str,
        grad_req: str = "write",
        shape: ShapeLike | None = None,
        dtype: DTypeLike = "float32",
        lr_mult: float = 1.0,
        wd_mult: float = 1.0,
        init: Any = None,
        allow_deferred_init: bool = False,
        differentiable: bool = True,
        stype: str = "default",
        grad_stype: str = "default",
    ) -> None:
        if stype != "default" or grad_stype not in ("default", "row_sparse"):
            raise ParameterError(
                f"Parameter {name!r}: stype is {stype!r} and grad_stype {grad_stype!r}, expected 'default', and "
                "'default' or 'row_sparse'; a Module has row-sparse parameters"
            )
        self._var: sym.Symbol | None = None
        self._data: list[NDArray] | None = None
        self._grad: list[NDArray] | None = None
        self._deferred_init: tuple[Any, list[Context], NDArray | None] | None = None
        self._trainer: TracksWrites | None = None
        self._differentiable = differentiable
        self._allow_deferred_init = allow_deferred_init
        self._grad_stype = grad_stype
        self._dtype = np_dtype(dtype_name(dtype))
        self._shape = shape if shape is None else _as_shape(shape)
        self._grad_req = "null"
        self.name = name
        self.lr_mult = lr_mult
        self.wd_mult = wd_mult
        self.init = init
        self.grad_req = grad_req

    def __repr__(self) -> str:
        return f"Parameter {self.name} (shape={self.shape}, dtype={self.dtype})"

    @property
    def grad_req(self) -> str:
        """Effect of `backward` on the gradient: "write", "add", or "null" for no gradient."""
        return self._grad_req

    @grad_req.setter
    def grad_req(self, req: str) -> None:
        if req not in _GRAD_REQS:
            raise ParameterError(f"grad_req must be one of 'write', 'add', or 'null', but got {req!r}")
        req = req if self._differentiable else "null"
        if req != self._grad_req:
            self._grad_req = req
            self._make_gradients()

    @property
    def dtype(self) -> Any:
        """Element type as a NumPy scalar type; setting it casts the parameter."""
        return self._dtype

    @dtype.setter
    def dtype(self, dtype: DTypeLike) -> None:
        self.cast(dtype)

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Lengths of the axes, 0 for unknown ones (-1 under `set_np_shape`); None if nothing is known."""
        if self._shape is None or not mode.is_np_shape():
            return self._shape
        return tuple(size or -1 for size in self._shape)

    @shape.setter
    def shape(self, new_shape: ShapeLike) -> None:
        shape, own = _as_shape(new_shape), self._shape
        if own is not None and not (
            len(own) == len(shape)
            and all(size in _UNKNOWN or size == new for size, new in zip(own, shape, strict=True))
        ):
            raise ParameterError(f"Expected shape {own} is incompatible with given shape {shape}.")
        self._shape = shape

    def set_trainer(self, trainer: TracksWrites) -> None:
        """Set the trainer, which follows writes to the parameter.

        Args:
            trainer: the trainer; it replaces another one.
        """
        self._trainer = trainer

    # arrays

    def initialize(
        self,
        init: Any = None,
        ctx: Contexts = None,
        default_init: Any = None,
        force_reinit: bool = False,
    ) -> None:
        """Create the arrays and fill them; later, if the shape is still unknown.

        Args:
            init: initializer; None for the parameter's own, else `default_init`.
            ctx: context, or list of contexts; None for the current one.
            default_init: initializer that fills by the parameter's name (biases with 0, ...); None for ``Uniform()``.
            force_reinit: True to initialize again.

        Raises:
            ArgumentError: the shape is unknown, and the parameter does not allow to wait for it.
        """
        if self._data is not None and not force_reinit:
            warnings.warn(
                f"Parameter '{self.name}' is already initialized, ignoring. Set force_reinit=True to re-initialize.",
                stacklevel=2,
            )
            return
        contexts = contexts_of(ctx)
        self._data = self._grad = None
        chosen = self.init if init is None else init
        fill = (Uniform() if default_init is None else default_init, chosen)
        if not _is_known(self._shape) and not self._allow_deferred_init:
            raise ArgumentError(
                f"Cannot initialize Parameter '{self.name}' because it has invalid shape: {self._shape}."
            )
        self._deferred_init = fill, contexts, None
        if _is_known(self._shape):
            self.finish_deferred_init()

    def finish_deferred_init(self) -> None:
        """Create the arrays of a parameter that waited for its shape; do nothing for others."""
        if self._deferred_init is None:
            return
        (default, chosen), contexts, data = self._deferred_init
        shape = self._shape
        if shape is None or not _is_known(shape):
            raise ParameterError(
                f"Cannot initialize Parameter '{self.name}' because it has invalid shape: {shape}."
            )
        with mode.scope(recording=False):
            if data is None:
                data = nd.zeros(shape, dtype=self._dtype, ctx=cpu())
                if chosen is None and not has_rule(self.name):
                    chosen = default
                attrs = {} if chosen is None else {"__init__": chosen}
                create_initializer(default)(InitDesc(self.name, attrs), data)
            self._deferred_init = None
            self._place(data, contexts)

    def _place(self, data: NDArray, contexts: Iterable[Context]) -> None:
        """Copy values to contexts, and create the gradients."""
        self._data = [data.copyto(ctx) for ctx in contexts]
        self._make_gradients()

    def _make_gradients(self) -> None:
        """Create the arrays of gradients, or remove them, as `grad_req` says."""
        if self._data is None:
            return
        if self._grad_req == "null":
            self._grad = None
            for array in self._data:
                array.trace = None
            return
        self._grad = [  # takes no memory on the CPU before backward writes it
            allocate(a.shape, a.context, dtype_name(a.dtype)).tostype(self._grad_stype) for a in self._data
        ]
        self._mark()

    def _mark(self) -> None:
        for array, grad in zip(self._data or (), self._grad or (), strict=True):
            tape.mark(array, grad, self._grad_req)

    def check_fits(
        self, data: NDArray, ctx: Contexts, cast_dtype: bool = False, dtype_source: str = "current"
    ) -> None:
        """Raise for values that `load_init` would not accept; arguments and errors as there.

        Args:
            data: the values.
        """
        if dtype_source not in ("current", "saved"):
            raise ParameterError(f"dtype_source is {dtype_source!r}, expected 'current' or 'saved'")
        failed = f"Failed loading Parameter '{self.name}' from saved params"
        own = self._shape
        if own and not (
            len(own) == len(data.shape)
            and all(size in _UNKNOWN or size == saved for size, saved in zip(own, data.shape, strict=True))
        ):
            raise ParameterError(f"{failed}: shape incompatible expected {own} vs saved {data.shape}")
        if data.dtype != self._dtype and not cast_dtype:
            raise ParameterError(
                f"{failed}: dtype incompatible expected {self._dtype} vs saved {data.dtype}. "
                "Set cast_dtype=True to cast the dtype of saved params."
            )
        is_placed = self._data is not None or self._deferred_init is not None
        if is_placed and ctx is not None and set(contexts_of(ctx)) != set(self.list_ctx()):
            raise ParameterError(
                f"Failed to load Parameter '{self.name}' on {contexts_of(ctx)} because it was previous initialized on "
                f"{self.list_ctx()}; call reset_ctx first."
            )

    def load_init(
        self, data: NDArray, ctx: Contexts, cast_dtype: bool = False, dtype_source: str = "current"
    ) -> None:
        """Fill the arrays with loaded values, and create them if necessary.

        Args:
            data: the values.
            ctx: context, or list of contexts; None for those of the parameter, or ``cpu()``.
            cast_dtype: True to convert a value of another type; else it is an error.
            dtype_source: "current" converts the value, "saved" the parameter.

        Shape:
            data: that of the parameter.

        Raises:
            ArgumentError: shape, type or contexts do not match; an AssertionError, too.
        """
        self.check_fits(data, ctx, cast_dtype, dtype_source)
        if data.dtype != self._dtype and dtype_source == "saved":
            self.cast(data.dtype)
        elif data.dtype != self._dtype:
            data = data.astype(self._dtype)
        data = data.tostype("default")
        if self._data is not None:
            self.set_data(data)
        else:
            contexts = self._deferred_init[1] if self._deferred_init else contexts_of(ctx or cpu())
            self._shape = data.shape
            with mode.scope(recording=False):
                self._place(data, contexts)
        self._deferred_init = None

    _load_init = load_init  # programs that read checkpoints of modules call MXNet's private methods
    _finish_deferred_init = finish_deferred_init

    def set_data(self, data: NDArray) -> None:
        """Write values to the arrays on all contexts.

        Args:
            data: the values.

        Shape:
            data: that of the parameter.

        Raises:
            StateError: the parameter is not initialized.
            ArgumentError: the shape differs; an AssertionError, too.
        """
        self.shape = data.shape
        if self._data is None:
            if self._deferred_init is None:
                raise StateError(f"Parameter '{self.name}' has not been initialized")
            self._deferred_init = (*self._deferred_init[:2], data)
            return
        if self._trainer is not None:
            self._trainer.note_written(self)
        for array in self._data:
            array[:] = data

    def reset_ctx(self, ctx: Contexts) -> None:
        """Move the parameter to other contexts.

        Args:
            ctx: context, or list of contexts; None for the current one.

        Raises:
            ArgumentError: it is not initialized.
        """
        contexts = contexts_of(ctx)
        if self._data is not None:
            with mode.scope(recording=False):
                self._place(self.reduced(), contexts)
        elif self._deferred_init is not None:
            self._deferred_init = self._deferred_init[0], contexts, self._deferred_init[2]
        else:
            raise ArgumentError(
                f"Cannot reset context for Parameter '{self.name}' because it has not been initialized."
            )

    def cast(self, dtype: DTypeLike) -> None:
        """Convert values and gradients to another type.

        Args:
            dtype: the element type.
        """
        self._dtype = np_dtype(dtype_name(dtype))
        self._var = None
        if self._data is None:
            return
        with mode.scope(recording=False):
            self._data = [array.astype(self._dtype) for array in self._data]
            if self._grad is not None:
                self._grad = [grad.astype(self._dtype) for grad in self._grad]
                self._mark()

    def _get(self, arrays: list[NDArray] | None, ctx: ContextLike | None) -> NDArray:
        """Return the array of a context; None is the only one, or that of the current context."""
        found = self._list(arrays)
        if len(found) == 1 and (ctx is None or ctx == found[0].context):
            return found[0]
        wanted = current_context() if ctx is None else context_of(ctx)
        for array in found:
            if _place(array.context) == _place(wanted):
                return array
        raise StateError(
            f"Parameter '{self.name}' was not initialized on context {wanted}. It was only initialized on "
            f"{self.list_ctx()}."
        )

    def _list(self, arrays: list[NDArray] | None) -> list[NDArray]:
        if arrays is not None:
            return arrays
        if self._deferred_init is not None:
            raise DeferredInitializationError(
                f"Parameter '{self.name}' has not been initialized yet because initialization was deferred. Actual "
                "initialization happens during the first forward pass. Please pass one batch of data through the "
                "network before accessing Parameters."
            )
        raise StateError(
            f"Parameter '{self.name}' has not been initialized: call initialize, or load a file that has it. If it is "
            "an input, such as a label, name it among the inputs"
        )

    def data(self, ctx: ContextLike | None = None) -> NDArray:
        """Return the array on a context; writing to it changes the parameter.

        Args:
            ctx: the context; None for the only one, or the current one.

        Raises:
            DeferredInitializationError: its shape is still unknown.
            StateError: it is not initialized, or not on this context; a RuntimeError.
        """
        return self._get(self._data, ctx)

    def list_data(self) -> list[NDArray]:
        """Return the arrays on all contexts, in the order of `list_ctx`."""
        return self._list(self._data)

    def _check_gradient(self) -> None:
        if self._data is not None and self._grad is None:
            raise StateError(f"Cannot get gradient array for Parameter '{self.name}' because grad_req='null'")

    def grad(self, ctx: ContextLike | None = None) -> NDArray:
        """Return the gradient on a context.

        Args:
            ctx: the context; None for the only one, or the current one.

        Raises:
            StateError: it has no gradient, or see `data`.
        """
        self._check_gradient()
        return self._get(self._grad, ctx)

    def list_grad(self) -> list[NDArray]:
        """Return the gradients on all contexts, in the order of `list_ctx`."""
        self._check_gradient()
        return self._list(self._grad)

    def list_ctx(self) -> list[Context]:
        """Return the contexts of the parameter.

        Raises:
            StateError: it is not initialized.
        """
        if self._data is not None:
            return [array.context for array in self._data]
        if self._deferred_init is not None:
            return self._deferred_init[1]
        raise StateError(f"Parameter '{self.name}' has not been initialized")

    def zero_grad(self) -> None:
        """Fill the gradients with 0."""
        for grad in self._grad or ():
            grad[:] = 0

    def reduced(self) -> NDArray:
        """Return a copy of the values on the CPU, the mean over contexts."""
        first, *others = (array.detach() for array in self.list_data())
        mean: NDArray = first.copyto(cpu())
        for other in others:
            mean += other.as_in_context(cpu())
        if others:
            mean /= len(others) + 1
        return mean

    _reduce = reduced  # MXNet's name of it

    def var(self) -> sym.Symbol:
        """Return a variable of a symbol with the name and attributes of the parameter."""
        if self._var is None:
            self._var = sym.Variable(
                self.name,
                shape=self._shape,
                dtype=self._dtype,
                lr_mult=self.lr_mult,
                wd_mult=self.wd_mult,
                init=self.init,
            )
        return self._var


def _as_shape(shape: ShapeLike) -> tuple[int, ...]:
    return tuple(map(int, shape)) if isinstance(shape, Iterable) else (int(shape),)


def brief(names: Iterable[str]) -> str:
    """Return names as text, without those in the middle if there are many.

    Args:
        names: the names.
    """
    listed = [f"'{name}'" for name in names]
    half = _FEW // 2
    return ", ".join(listed if len(listed) <= _FEW else [*listed[:half], "...", *listed[-half:]])


def named_arrays(path: str) -> dict[str, NDArray]:
    """Return the arrays of a file by name.

    Args:
        path: path of the file.
    """
    arrays = nd.load(path)
    if isinstance(arrays, dict):
        return arrays
    if arrays:
        raise ParameterError(f"{path}: its arrays have no names, expected those of parameters")
    return {}


class ParameterDict:
    """Parameters by name.

    Args:
        prefix: put before the names that `get` takes.
        shared: another one, in which `get` looks before it creates a parameter.

    Source: MXNet 1.9.1 `gluon.ParameterDict`.
    """

    def __init__(self, prefix: str = "", shared: ParameterDict | None = None) -> None:
        self._prefix = prefix
        self._params: dict[str, Parameter] = {}
        self._shared = shared

    def __repr__(self) -> str:
        lines = "\n".join(f"  {param}" for param in self.values())
        return f"{self._prefix + ' ' if self._prefix else ''}(\n{lines}\n)"

    def __getitem__(self, key: str) -> Parameter:
        try:
            return self._params[key]
        except KeyError:
            raise UnknownNameError(f"{key!r} is not a parameter{did_you_mean(key, self._params)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._params)

    def __contains__(self, key: object) -> bool:
        return key in self._params

    def __len__(self) -> int:
        return len(self._params)

    def items(self) -> ItemsView[str, Parameter]:
        """Return names and parameters."""
        return self._params.items()

    def keys(self) -> KeysView[str]:
        """Return the names."""
        return self._params.keys()

    def values(self) -> ValuesView[Parameter]:
        """Return the parameters."""
        return self._params.values()

    @property
    def prefix(self) -> str:
        """Text before the names that `get` takes."""
        return self._prefix

    def get(self, name: str, **kwargs: Any) -> Parameter:
        """Return a parameter by its name without the prefix; create it if there is none.

        Args:
            name: name without the prefix.
            kwargs: arguments of `Parameter`; an existing one must have these attributes.

        Raises:
            ArgumentError: an attribute of the existing parameter differs; an AssertionError, too.
        """
        name = self._prefix + name
        param = self._params.get(name)
        if param is None and self._shared is not None and name in self._shared:
            param = self._params[name] = self._shared[name]
        if param is None:
            param = self._params[name] = Parameter(name, **kwargs)
            return param
        for key, value in kwargs.items():
            if value is None or not hasattr(param, key):
                continue
            existing = getattr(param, key)
            if key == "shape":
                param.shape = value
            elif existing is None:
                setattr(param, key, value)
            elif (np_dtype(dtype_name(value)) if key == "dtype" else value) != existing:
                raise ParameterError(
                    f"Cannot retrieve Parameter '{name}' because desired attribute does not match with stored for "
                    f"attribute '{key}': desired '{value}' vs stored '{existing}'."
                )
        return param

    def update(self, other: ParameterDict | Mapping[str, Parameter]) -> None:
        """Add parameters.

        Args:
            other: parameters by name.

        Raises:
            ArgumentError: another parameter has one of these names; an AssertionError, too.
        """
        for name, param in other.items():
            if self._params.get(name, param) is not param:
                raise ParameterError(
                    f"Cannot update self with other because they have different Parameters with the same name '{name}'"
                )
        self._params.update(other.items())

    def initialize(
        self, init: Any = None, ctx: Contexts = None, verbose: bool = False, force_reinit: bool = False
    ) -> None:
        """Initialize all parameters; see `Parameter.initialize`.

        Args:
            init: initializer of parameters without their own, which fills by name; None for ``Uniform()``.
            ctx: context, or list of contexts; None for the current one.
            verbose: True to log each parameter.
            force_reinit: True to initialize again.
        """
        init = create_initializer(Uniform() if init is None else init)
        if verbose:
            init.set_verbosity(verbose=True)
        for param in self.values():
            param.initialize(None, ctx, init, force_reinit=force_reinit)

    def zero_grad(self) -> None:
        """Fill all gradients with 0."""
        for param in self.values():
            param.zero_grad()

    def reset_ctx(self, ctx: Contexts) -> None:
        """Move all parameters to other contexts.

        Args:
            ctx: context, or list of contexts; None for the current one.
        """
        for param in self.values():
            param.reset_ctx(ctx)

    def list_ctx(self) -> list[Context]:
        """Return the contexts of all parameters."""
        return list(dict.fromkeys(ctx for param in self.values() for ctx in param.list_ctx()))

    def setattr(self, name: str, value: Any) -> None:
        """Set an attribute of all parameters, such as ``params.setattr("grad_req", "null")``.

        Args:
            name: name of the attribute.
            value: its new value.
        """
        for param in self.values():
            setattr(param, name, value)

    def save(self, filename: str | os.PathLike[str], strip_prefix: str = "") -> None:
        """Save the values by name to a file that MXNet 1.9.1 reads; replaced as a whole.

        Args:
            filename: path of the file.
            strip_prefix: text that is removed from the names.

        Raises:
            ArgumentError: a name does not begin with `strip_prefix`.
            FileError: the file cannot be written.
        """
        for name in self.keys():
            if not name.startswith(strip_prefix):
                raise ArgumentError(
                    f"Prefix '{strip_prefix}' is to be striped before saving, but Parameter's name '{name}' does not "
                    "start with it."
                )
        nd.save(
            path_text(filename, "filename"),
            {name[len(strip_prefix) :]: param.reduced() for name, param in self.items()},
        )

    def load(
        self,
        filename: str | os.PathLike[str],
        ctx: Contexts = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        restore_prefix: str = "",
        cast_dtype: bool = False,
        dtype_source: str = "current",
    ) -> None:
        """Load values from a file of `save`, of an export, or of a checkpoint.

        Args:
            filename: path of the file.
            ctx: context, or list of contexts; None for those of the parameters, or ``cpu()``.
            allow_missing: True to leave parameters that the file lacks.
            ignore_extra: True to ignore other names in the file.
            restore_prefix: text that is put before the names of the file.
            cast_dtype: True to convert values of another type.
            dtype_source: "current" or "saved"; see `Parameter.load_init`.

        Raises:
            FileError: the file cannot be read.
            FileFormatError: it is damaged or has another format.
            ArgumentError: its names, shapes or types do not match; an AssertionError, too.
        """
        path = path_text(filename, "filename")
        self.load_dict(
            named_arrays(path),
            ctx,
            allow_missing,
            ignore_extra,
            restore_prefix,
            path,
            cast_dtype,
            dtype_source,
        )

    def load_dict(
        self,
        param_dict: Mapping[str, NDArray],
        ctx: Contexts = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        restore_prefix: str = "",
        filename: str | None = None,
        cast_dtype: bool = False,
        dtype_source: str = "current",
    ) -> None:
        """Load values from a dict.

        Args:
            param_dict: arrays by name, with or without "arg:" and "aux:".
            ctx: see `load`, as for the other arguments.
            filename: name of the file in messages.
        """
        named = {
            restore_prefix + (key[4:] if key.startswith(("arg:", "aux:")) else key): array
            for key, array in param_dict.items()
        }
        where = "param_dict" if filename is None else f"file: {filename}"
        hint = "Please make sure source and target networks have the same prefix."
        for name in [] if allow_missing else self.keys():
            if name not in named:
                shown = name[len(restore_prefix) :]
                raise ParameterError(
                    f"Parameter '{shown}' is missing in {where}, which contains parameters: {brief(named)}. {hint} "
                    "An input of the network belongs to input_names."
                )
        for name in [] if ignore_extra else named:
            if name not in self._params:
                shown = name[len(restore_prefix) :]
                raise ParameterError(
                    f"Parameter '{shown}' loaded from {where} is not present in ParameterDict, choices are: "
                    f"{brief(self._params)}. Set ignore_extra to True to ignore. {hint}"
                )
        known = {name: array for name, array in named.items() if name in self._params}
        for name, array in known.items():  # first, so that an error leaves all parameters as they are
            self._params[name].check_fits(array, ctx, cast_dtype, dtype_source)
        for name, array in known.items():
            self._params[name].load_init(array, ctx, cast_dtype, dtype_source)

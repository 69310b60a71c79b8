"""`InitDesc`, the `Initializer` base class with its rules by name, and the registry of initializers."""

from __future__ import annotations

import json
import logging
import math
import warnings
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from .._devices import generators
from ..base import ArgumentError, DTypeError, SignatureError
from ..ndarray import NDArray
from ..ndarray.convert import jsonable
from ..registry import Registry


class InitDesc(str):
    """The name of a parameter, with attributes for its initialization.

    Args:
        name: name of the parameter, whose ending selects the rule of `Initializer`.
        attrs: attributes of the variable; ``__init__`` selects an initializer.
        global_init: initializer of the whole network, for initializers that delegate to it.
    """

    attrs: dict[str, str]
    global_init: Any

    def __new__(cls, name: str, attrs: Mapping[str, str] | None = None, global_init: Any = None) -> InitDesc:
        """Create the name, a string with additional attributes."""
        desc = super().__new__(cls, name)
        desc.attrs = dict(attrs or {})
        desc.global_init = global_init
        return desc

    def __getnewargs__(self) -> tuple[Any, ...]:
        return str(self), self.attrs, self.global_init


# ending of the name -> method; the first match applies
_RULES = (
    ("weight", "_init_weight"),
    ("bias", "_init_bias"),
    ("gamma", "_init_gamma"),
    ("beta", "_init_beta"),
    ("min", "_init_zero"),
    ("max", "_init_one"),
    ("weight_quantize", "_init_quantized_weight"),
    ("bias_quantize", "_init_quantized_bias"),
)

# prefix and ending of a plain string, for callers that predate InitDesc
_LEGACY_RULES = (
    ("upsampling", "", "_init_bilinear"),
    ("stn_loc", "weight", "_init_zero"),
    ("stn_loc", "bias", "_init_loc_bias"),
    ("", "bias", "_init_bias"),
    ("", "gamma", "_init_gamma"),
    ("", "beta", "_init_beta"),
    ("", "weight", "_init_weight"),
    ("", "moving_mean", "_init_zero"),
    ("", "moving_var", "_init_one"),
    ("", "moving_inv_var", "_init_zero"),
    ("", "moving_avg", "_init_zero"),
    ("", "min", "_init_zero"),
    ("", "max", "_init_one"),
)


def has_rule(name: str) -> bool:
    """Return True if initializers choose a rule by the ending of a name.

    Args:
        name: name of a parameter.
    """
    return name.endswith(tuple(ending for ending, _ in _RULES))


class Initializer:
    """Base of initializers, which choose a rule by the name or the ``__init__`` attribute of a parameter.

    A subclass defines ``_init_weight(name, arr)`` for names that end in "weight", and passes its constructor's
    arguments to this one for `dumps`. "bias", "beta" and "min" become 0, "gamma" and "max" 1; any other name is an
    error. A variable's ``__init__`` attribute takes precedence over its name, and always uses the weight rule of its
    initializer. Each rule is a method that may be overridden: ``_init_bias``, ``_init_gamma``, ``_init_beta``,
    ``_init_zero``, ``_init_one``, ``_init_default``.

    Args:
        kwargs: arguments of the subclass's constructor.

    Example:
        >>> @mx.init.register
        ... class Half(mx.init.Initializer):
        ...     def _init_weight(self, name, arr):
        ...         arr[:] = 0.5
        >>> weight = mx.nd.zeros((2,))
        >>> Half()(mx.init.InitDesc("fc_weight"), weight)
        >>> weight.asnumpy()
        array([0.5, 0.5], dtype=float32)
    """

    # defaults for subclasses that do not call this constructor
    _kwargs: Mapping[str, Any] = MappingProxyType({})
    _verbose = False
    _print_func: Callable[[NDArray], Any] | None = None

    def __init__(self, **kwargs: Any) -> None:
        self._kwargs = kwargs

    def set_verbosity(
        self, verbose: bool = False, print_func: Callable[[NDArray], Any] | None = None
    ) -> Initializer:
        """Switch logging of initialized parameters on or off.

        Args:
            verbose: True to log every parameter.
            print_func: formats the array for the log; by default the norm divided by the root of the size.

        Returns:
            this initializer.
        """
        self._verbose = verbose
        self._print_func = print_func
        return self

    def dumps(self) -> str:
        """Return name and arguments as JSON, from which `create` restores the initializer.

        Arrays become lists, and nested initializers their own JSON.

        Raises:
            DTypeError: an argument cannot be written as JSON.
        """
        name = type(self).__name__
        try:
            return json.dumps([name.lower(), jsonable(self._kwargs)])
        except (TypeError, ValueError) as error:
            raise DTypeError(
                f"{name}.dumps: cannot write the arguments of {self!r} as JSON: {error}; expected numbers, strings, "
                "arrays, initializers, or lists and dicts of them"
            ) from None

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other) or not isinstance(other, Initializer):
            return NotImplemented
        return bool(jsonable(self._kwargs) == jsonable(other._kwargs))

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self._kwargs.items())
        return f"{type(self).__name__}({arguments})"

    def __call__(self, desc: str, arr: NDArray) -> None:
        """Fill `arr`.

        Args:
            desc: name of the parameter; a plain string is deprecated and uses older rules.
            arr: the array to fill, of any shape.
        """
        if not isinstance(arr, NDArray):
            raise ArgumentError(f"{type(self).__name__}: arr is {type(arr).__name__}, expected an NDArray")
        if arr.stype != "default":  # the rules need a dense array
            dense = NDArray(arr.raw, arr.context)
            self(desc, dense)
            arr.raw = dense.raw
            return
        if not isinstance(desc, InitDesc):
            self._legacy_init(desc, arr)
            return
        if desc.global_init is None:
            desc.global_init = self
        chosen = desc.attrs.get("__init__")
        if chosen:
            create(chosen)._init_weight(desc, arr)
            self._log(desc, chosen, arr)
            return
        for ending, method in _RULES:
            if desc.endswith(ending):
                getattr(self, method)(desc, arr)
                self._log(desc, ending, arr)
                return
        self._init_default(desc, arr)

    def _legacy_init(self, name: str, arr: NDArray) -> None:
        if not isinstance(name, str):
            raise SignatureError(f"{type(self).__name__}: desc is {name!r}, expected an InitDesc")
        warnings.warn(
            f"initializing {name!r} by a plain string is deprecated; call init(InitDesc(name), arr)",
            DeprecationWarning,
            stacklevel=3,
        )
        for start, ending, method in _LEGACY_RULES:
            if name.startswith(start) and name.endswith(ending):
                getattr(self, method)(name, arr)
                return
        self._init_default(name, arr)

    def _log(self, desc: InitDesc, rule: str, arr: NDArray) -> None:
        if self._verbose:
            text = self._print_func(arr) if self._print_func else _magnitude(arr)
            logging.info("Initialized %s as %s: %s", desc, rule, text)

    def _init_weight(self, name: str, arr: NDArray) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not define _init_weight")

    def _init_bias(self, name: str, arr: NDArray) -> None:
        arr.raw.zero_()

    def _init_gamma(self, name: str, arr: NDArray) -> None:
        arr.raw.fill_(1.0)

    def _init_beta(self, name: str, arr: NDArray) -> None:
        arr.raw.zero_()

    def _init_zero(self, name: str, arr: NDArray) -> None:
        arr.raw.zero_()

    def _init_one(self, name: str, arr: NDArray) -> None:
        arr.raw.fill_(1.0)

    def _init_bilinear(self, name: str, arr: NDArray) -> None:
        create("bilinear")._init_weight(name, arr)

    def _init_loc_bias(self, name: str, arr: NDArray) -> None:
        """Write the identity map, for the last layer of a spatial transformer."""
        if arr.shape != (6,):
            raise ArgumentError(f"{name} has shape {arr.shape}, expected (6,): the bias of an affine map")
        arr[:] = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]

    def _init_quantized_weight(self, name: str, arr: NDArray) -> None:
        arr.raw.random_(-127, 128, generator=generators.generator(arr.context))

    def _init_quantized_bias(self, name: str, arr: NDArray) -> None:
        arr.raw.zero_()

    def _init_default(self, name: str, arr: NDArray) -> None:
        raise ArgumentError(
            f"no initialization rule for the name {name!r}: expected an ending weight, bias (0), gamma (1), "
            "beta (0), min (0) or max (1); choose an initializer with mx.sym.Variable(name, init=...), or "
            "give the array in arg_params"
        )


registry: Registry[Initializer] = Registry(Initializer, "initializer", unlisted=["torchmodulevalue"])


def register(klass: type[Initializer]) -> type[Initializer]:
    """Register an initializer under its lower-case name; usable as a decorator.

    Raises:
        ArgumentError: `klass` is not a subclass of Initializer.
    """
    return registry.register(klass)


def alias(*names: str) -> Callable[[type[Initializer]], type[Initializer]]:
    """Return a class decorator that registers further names, too.

    Args:
        *names: case-insensitive names for `create`.
    """
    return registry.alias(*names)


def create(spec: Any, *args: Any, **kwargs: Any) -> Initializer:
    """Create an initializer from its name or the JSON of `Initializer.dumps`; return instances unchanged.

    Args:
        spec: a name such as "xavier", the JSON text ``["xavier", {"magnitude": 2}]``, or an Initializer.
        kwargs: arguments of the constructor, which override those in the JSON text.

    Raises:
        ArgumentError: the name is not registered, or `spec` has the wrong type.
    """
    return registry.create(spec, *args, **kwargs)


def _magnitude(arr: NDArray) -> np.float32:
    return np.float32(float(arr.raw.float().norm()) / math.sqrt(max(arr.size, 1)))

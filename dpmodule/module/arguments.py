"""The arguments of `bind`, `init_params` and `init_optimizer` as records."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from ..base import ArgumentError, dtype_name
from ..context import cpu
from ..executor import allocate
from ..initializer import InitDesc, create
from ..ndarray import NDArray
from ..params import ParamStore

if TYPE_CHECKING:
    from ..types import GradReqLike
    from .protocol import Trainable
    from .types import InitializerLike, KVStoreLike, OptimizerLike, OptimizerParams, ShapesLike


@dataclass(slots=True, eq=False, repr=False)
class BindArguments:
    """The arguments of `BaseModule.bind`; see there."""

    data_shapes: ShapesLike
    label_shapes: ShapesLike | None = None
    for_training: bool = True
    inputs_need_grad: bool = False
    force_rebind: bool = False
    shared_module: Any = None
    grad_req: GradReqLike = "write"
    store: ParamStore | None = None

    def bind(self, module: Trainable) -> None:
        """Bind a module with these arguments; modules written for MXNet do not accept `store`."""
        values = [getattr(self, field.name) for field in fields(self) if field.name != "store"]
        more: dict[str, Any] = {} if self.store is None else {"store": self.store}
        module.bind(*values, **more)

    def refuse_store(self, module: object) -> None:
        """Raise ArgumentError if there is a store, which this class of module does not accept."""
        if self.store is not None:
            raise ArgumentError(
                f"bind: a {type(module).__name__} does not accept store; Module and BucketingModule do"
            )


@dataclass(slots=True, eq=False, repr=False)
class ParamArguments:
    """The arguments of `BaseModule.init_params`; see there."""

    initializer: InitializerLike
    arg_params: Mapping[str, NDArray] | None
    aux_params: Mapping[str, NDArray] | None
    allow_missing: bool
    force_init: bool
    allow_extra: bool

    def init_params(self, module: Trainable) -> None:
        """Initialize the parameters of a module with these arguments."""
        module.init_params(*(getattr(self, field.name) for field in fields(self)))


@dataclass(slots=True, eq=False, repr=False)
class OptimizerArguments:
    """The arguments of `BaseModule.init_optimizer`; see there."""

    kvstore: KVStoreLike
    optimizer: OptimizerLike
    optimizer_params: OptimizerParams
    force_init: bool

    def init_optimizer(self, module: Trainable) -> None:
        """Install the optimizer of a module with these arguments."""
        module.init_optimizer(*(getattr(self, field.name) for field in fields(self)))


def first_values(
    arrays: Mapping[str, NDArray],
    given: Mapping[str, NDArray] | None,
    initializer: InitializerLike,
    attributes: Mapping[str, Mapping[str, str]],
    allow_missing: bool,
    allow_extra: bool,
    labels: Collection[str] = (),
) -> dict[str, NDArray]:
    """Return a value for every array.

    Initial values are drawn on cpu(0), so that one seed gives the same values on every device.

    Args:
        arrays: the arrays by name.
        given: values by name; None initializes everything.
        initializer: called with a description and an array, or the name of an initializer; None leaves arrays
            unchanged.
        attributes: attributes of the symbol's nodes by name.
        labels: names of variables that operators read as labels, for messages.

    Shape:
        arrays[name], given[name], returns[name]: the shape of the parameter.
    """
    if given is not None and not allow_extra:
        extra = [name for name in given if name not in arrays]
        if extra:
            raise ArgumentError(
                f"set_params: {', '.join(extra)} is given, but the symbol has no such parameter "
                "(allow_extra=True ignores it)"
            )
    if isinstance(initializer, str):
        initializer = create(initializer)
    if isinstance(initializer, type) or not (initializer is None or callable(initializer)):
        raise ArgumentError(
            f"initializer is {initializer!r}, expected an Initializer such as Xavier(), or its name"
        )
    values = {}
    for name in sorted(arrays):
        values[name] = arrays[name]
        hint = (
            f"it is a label of the network, not a parameter; give the module label_names=[{name!r}]"
            if name in labels
            else ""
        )
        if given is not None and name in given:
            values[name] = given[name]
            if not isinstance(values[name], NDArray):
                kind = type(values[name]).__name__
                raise ArgumentError(
                    f"the value of {name} is of type {kind}, expected an NDArray; use mx.nd.array"
                )
        elif given is not None and not allow_missing:
            raise ArgumentError(
                f"init_params: no value is given for {name} ({hint or 'allow_missing=True initializes it'})"
            )
        elif initializer is not None:
            values[name] = allocate(arrays[name].shape, cpu(), dtype_name(arrays[name].dtype))
            _initialize(values[name], InitDesc(name, attributes.get(name)), initializer, hint)
    return values


def _initialize(array: NDArray, desc: InitDesc, initializer: Any, hint: str) -> None:
    try:
        initializer(desc, array)
    except ArgumentError as error:
        if not hint:
            raise
        raise ArgumentError(f"init_params: {error} ({hint})") from error

"""The first values of parameters: those given, and for the rest an initializer's."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from ..base import ArgumentError, dtype_name
from ..context import cpu
from ..executor import allocate
from ..initializer import InitDesc, create
from ..ndarray import NDArray

if TYPE_CHECKING:
    from .types import InitializerLike


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

    Initialized ones are drawn on cpu(0), wherever the array lies, so that one seed gives the same start everywhere.

    Args:
        arrays: the arrays by name.
        given: values by name; None = initialize everything.
        initializer: called with a description and an array, or a name of one; None leaves arrays as they are.
        attributes: attributes of the symbol's nodes by name.
        labels: names of variables that operators read as labels, for messages.

    Shape:
        arrays[name], given[name], returns[name]: that of the parameter.
    """
    if given is not None and not allow_extra:
        extra = [name for name in given if name not in arrays]
        if extra:
            raise ArgumentError(
                f"set_params: {', '.join(extra)} is given, but the symbol has no such parameter "
                "(allow_extra=True passes over it)"
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

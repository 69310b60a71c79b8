"""Tensors that are not computed yet."""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Iterator
from typing import Any

import torch

from ... import native
from ..._core import torch_private
from ..errors import StateError, user_line
from .calls import autocast_state, classify
from .cells import CONSTANTS, state_of_module, store_of_module
from .rules import replaced, words

Tensor = torch.Tensor

_SKIPPED = words(
    """__class__ __init__ __new__ __getattribute__ __setattr__ __delattr__ __init_subclass__ __subclasshook__ __dir__
    __torch_function__ __torch_dispatch__ __hash__ __weakref__ __module__ __doc__ __dict__ __sizeof__ __reduce__
    __getstate__ __iter__ __class_getitem__ __str__ as_subclass _make_subclass _make_wrapper_subclass"""
)
_RECORDED = words("T mT H mH real imag data")
_DEVICES = words("cpu cuda ipu maia meta mps mtia vulkan xla xpu")


class NotACell(Exception):
    """A function reads or changes values, so that its calls cannot be recorded as one."""


def _reading(read: Any) -> Any:
    """Return the method of values that answers as a function of a tensor of one number."""
    convert = {torch.Tensor.item: _same, torch.Tensor.__index__: operator.index}.get(read, read)

    def method(self: Any) -> Any:
        core: Any = native.core
        found = core.recorded_number(self)
        return _read(self, read) if found is None else convert(found)

    return method


def _same(number: Any) -> Any:
    return number


def _read(value: Any, read: Callable[[Tensor], Any]) -> Any:
    with torch._C.DisableTorchFunction():
        return read(_owner_of(value).number_of(value))


class RecordedTensor(torch.Tensor):
    """A tensor of a `batching` block that is not computed yet.

    It has a shape and a dtype, but no memory. `_place` is the place of its value in the recording.
    """

    _place: Any

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return _outside(function, args, kwargs)

    layout = torch.strided
    is_sparse = is_sparse_csr = is_nested = is_quantized = is_mkldnn = False

    @property
    def itemsize(self) -> int:  # type: ignore[override]
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:  # type: ignore[override]
        return self.numel() * self.dtype.itemsize

    def __iter__(self) -> Iterator[Any]:
        return iter(self.unbind(0))

    def __await__(self) -> Generator[Any, None, RecordedTensor]:
        owner = self._place.owner
        if owner is not None and owner.driver is not None:
            yield from owner.driver.wait_for(self)
        return self

    def __hash__(self) -> int:
        return id(self)

    item = _reading(torch.Tensor.item)
    __bool__ = _reading(bool)
    __float__ = _reading(float)
    __int__ = _reading(int)
    __index__ = _reading(torch.Tensor.__index__)

    def tolist(self) -> Any:
        core: Any = native.core
        found = core.recorded_list(self)
        return _read(self, torch.Tensor.tolist) if found is None else found


def prepare() -> None:
    """Give the recorder what it needs of torch, once."""
    if "shape" in vars(RecordedTensor):
        return
    core: Any = native.core
    with torch.inference_mode(False):  # later blocks use them, too
        answers = torch.tensor(False), torch.tensor(True)
    core.recording_setup(
        tensor=torch.Tensor,
        parameter=torch.nn.Parameter,
        value=RecordedTensor,
        strided=torch.strided,
        constant_types=CONSTANTS,
        make_value=torch.Tensor._make_subclass,
        stand_in=_stand_in,
        is_wrapped=torch._C._functorch.is_functorch_wrapped_tensor,
        is_grad_enabled=torch.is_grad_enabled,
        is_autocast_enabled=torch._C._is_any_autocast_enabled,
        autocast_state=autocast_state,
        default_dtype=torch.get_default_dtype,
        classify=classify,
        outside=_outside,
        count_modes=torch._C._len_torch_function_stack,
        disabled=torch._C.DisableTorchFunction,
        dtypes=(torch.float32, torch.float64, torch.int64, torch.int32, torch.bool),
        comparisons={
            found: number
            for number, name in enumerate(("lt", "le", "eq", "ne", "gt", "ge"))
            for found in (
                getattr(torch, name),
                getattr(torch.Tensor, name),
                getattr(torch.Tensor, f"__{name}__"),
            )
        },
        answers=answers,
        module=torch.nn.Module,
        state_of_module=state_of_module,
        store_of_module=store_of_module,
        not_a_cell=NotACell,
    )
    for name in dir(torch.Tensor):
        found = getattr(torch.Tensor, name)
        if name in vars(RecordedTensor) or name in _SKIPPED:
            continue
        if name in _RECORDED:
            getter, setter = (core.RecordedMethod(each) for each in (found.__get__, found.__set__))
            setattr(RecordedTensor, name, property(getter, setter))
        elif name.removeprefix("is_") in _DEVICES and not callable(found):
            setattr(RecordedTensor, name, property(_is_on(name.removeprefix("is_"))))
        elif callable(found):
            setattr(RecordedTensor, name, core.RecordedMethod(found))
    for name in ("dtype", "device", "requires_grad", "ndim", "shape"):
        setattr(RecordedTensor, name, property(getattr(core, f"recorded_{name}")))


def _is_on(kind: str) -> Callable[[Tensor], bool]:
    return lambda value: value.device.type == kind


def _stand_in(shape: torch.Size, dtype: torch.dtype) -> Tensor:
    # later blocks use it, too, in which a tensor made in inference mode could not require a gradient
    with torch._C.DisableTorchFunction(), torch.inference_mode(False):
        return torch.empty(shape, dtype=dtype, device="meta")


def is_value(item: Any) -> bool:
    """Return True if a tensor is not computed yet."""
    return type(item) is RecordedTensor


def tensor_of(value: Any) -> Tensor:
    """Return the tensor of a value, which is computed if necessary."""
    found: Tensor = _owner_of(value).tensor_of(value)
    return found


def _owner_of(value: Any) -> Any:
    owner = value._place.owner
    if owner is None:
        raise StateError(
            f"batching: a tensor of a block that was interrupted has no value; run the block again (at {user_line()})"
        )
    return owner


def settle(value: Any, tensor: Tensor) -> None:
    """Make a value an ordinary tensor, with memory and gradient of another one, which is not used otherwise."""
    del value._place
    value.__class__ = torch.Tensor
    torch_private.swap_tensors(value, tensor)


def _outside(function: Callable[..., Any] | None, args: Any, kwargs: dict[str, Any] | None) -> Any:
    """Call a function of torch with values outside of the recorder's mode."""
    found: list[Any] = []
    replaced((args, kwargs), RecordedTensor, found.append)
    if found:
        return _owner_of(found[0]).call(function, args, kwargs)
    raise StateError(f"batching: a tensor of a block is used outside of it (at {user_line()})")

"""Methods and attributes of values that are not computed yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from ...native import core
from ..errors import StateError, user_line
from .calls import autocast_state, classify, is_autocast_enabled

_SKIPPED = frozenset(
    """__class__ __init__ __new__ __getattribute__ __setattr__ __delattr__ __init_subclass__ __subclasshook__ __dir__
    __torch_function__ __torch_dispatch__ __hash__ __weakref__ __module__ __doc__ __dict__ __sizeof__ __reduce__
    __getstate__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __iter__ __class_getitem__ __getitem__ __str__
    as_subclass""".split()
)
_PLAIN = frozenset("is_cuda is_cpu is_sparse is_nested is_quantized layout itemsize is_mps is_xpu is_meta is_mkldnn".split())
_RECORDED = frozenset("T mT H mH real imag".split())

_is_prepared = False


def prepare() -> None:
    """Give the recorder what it needs of torch, once."""
    global _is_prepared
    if _is_prepared:
        return
    core.recording_setup(
        tensor=torch.Tensor,
        parameter=torch.nn.Parameter,
        strided=torch.strided,
        is_wrapped=torch._C._functorch.is_functorch_wrapped_tensor,
        is_grad_enabled=torch.is_grad_enabled,
        is_autocast_enabled=torch._C._is_any_autocast_enabled,
        autocast_state=autocast_state,
        classify=classify,
        outside=outside,
    )
    kind = core.RecordedValue
    own = set(vars(kind))
    for name in dir(torch.Tensor):
        found = getattr(torch.Tensor, name)
        if name in own or name in _SKIPPED:
            continue
        if name in _RECORDED:
            setattr(kind, name, property(core.RecordedMethod(found.__get__)))
        elif callable(found):
            setattr(kind, name, core.RecordedMethod(found))
        else:
            setattr(kind, name, property(_attribute(name)))
    kind.__iter__ = _iterate
    kind.__await__ = _wait
    _is_prepared = True


def _attribute(name: str) -> Callable[[Any], Any]:
    if name in _PLAIN:
        return lambda value: getattr(torch.empty(0, dtype=value.dtype, device=value.device), name)
    if name == "_is_param":
        return lambda value: False
    return lambda value: getattr(value.tensor, name)


def _iterate(value: Any) -> Iterator[Any]:
    return iter(value.unbind(0))


def _wait(value: Any) -> Iterator[Any]:
    return iter(())


def outside(function: Callable[..., Any] | None, args: Any, kwargs: dict[str, Any] | None) -> Any:
    """Call a function of torch with values whose recording has ended, or belongs to another thread."""
    given = [args] if function is None else [*args, *(kwargs or {}).values()]
    for each in _values(given):
        owner = each._owner()
        if owner is not None:
            return owner.call(function, args, kwargs)
        if each._source() is None or each._source()[0] is None:
            raise StateError(
                f"batching: a tensor of a block that was interrupted has no value; run the block again (at {user_line()})"
            )
    return function(*_settled(args), **_settled(kwargs or {}))  # type: ignore[misc]


def _values(items: Any) -> Iterator[Any]:
    for each in items:
        if type(each) is core.RecordedValue:
            yield each
        elif isinstance(each, (tuple, list)):
            yield from _values(each)


def _settled(item: Any) -> Any:
    if type(item) is core.RecordedValue:
        return item.tensor
    if isinstance(item, (tuple, list)) and not isinstance(item, torch.Size):
        return type(item)(_settled(each) for each in item)
    if isinstance(item, dict):
        return {name: _settled(each) for name, each in item.items()}
    return item

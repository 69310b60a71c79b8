"""Calls of torch: how each is treated, what it returns, and which calls may run together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch

from ... import native
from .rules import (
    DIMENSIONS,
    JOINING,
    POINTWISE,
    RANDOM,
    REDUCTIONS,
    ROWWISE,
    RULES,
    CallGroup,
    OperandSlot,
    Shape,
    added_rows,
    along_dims,
    by_vmap,
    chosen_rows,
    direct,
    from_end,
    join,
    nll,
    one_by_one,
    padded_product,
    pointwise,
    product,
    replaced,
    words,
)

Tensor = torch.Tensor

RECORD, EAGER, IN_PLACE, READ, ATTRIBUTE, CONSTANT, LIKE = range(7)
"""How the recorder treats a function.

It is recorded, called immediately, or called as a change of its first argument. Of functions that READ, and of an
ATTRIBUTE, calls with ordinary tensors are left to torch. CONSTANT ones make a tensor of Python's numbers, LIKE ones in
the shape of another.
"""

_CALLED = words(
    """item tolist numpy backward grad register_hook retain_grad data_ptr storage untyped_storage is_shared pin_memory
    record_stream __repr__ __str__ __format__ __reduce_ex__ __deepcopy__ __array__ __bool__ __float__ __int__ __index__
    __contains__ __setstate__ __dlpack__ __dlpack_device__ equal allclose is_set_to _set_grad_enabled manual_seed
    nonzero masked_select unique unique_consecutive bincount tensor as_tensor from_numpy __dir__ __hash__
    register_post_accumulate_grad_hook _set_to_none"""
)
HOOKS = frozenset(
    (torch.Tensor.register_hook, torch.Tensor.retain_grad, torch.Tensor.register_post_accumulate_grad_hook)
)
"""Functions that observe the gradient of a tensor."""

_CHANGES = frozenset(
    f"__{name}__"
    for name in words(
        "setitem delitem iadd isub imul itruediv idiv ifloordiv imod ipow iand ior ixor ilshift irshift"
    )
)
_GETTERS = words("T mT H mH real imag data")
_DESCRIBING = words(
    "size dim ndimension numel nelement __len__ is_floating_point is_complex element_size is_signed is_tensor"
)
_READING = words(
    "item tolist numpy __bool__ __float__ __int__ __index__ __contains__ data_ptr __array__ __format__ __repr__"
)
_CONSTANT = words(
    """zeros ones full empty eye arange linspace tensor scalar_tensor zeros_like ones_like full_like empty_like
    new_zeros new_ones new_full new_empty"""
)
LARGEST_CONSTANT = 4096
"""Number of elements of tensors that several examples share when they make equal ones."""

_LIKE = words(
    """zeros_like ones_like empty_like full_like rand_like randn_like randint_like new_zeros new_ones new_empty new_full
    new_tensor"""
)


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function of torch, without underscores; of an attribute, its own name."""
    name = getattr(function, "__name__", "")
    if name in ("__get__", "__set__"):
        return str(getattr(getattr(function, "__self__", None), "__name__", ""))
    return name if name in _CHANGES or not name.startswith("__") else name.strip("_")


def classify(function: Callable[..., Any]) -> int:
    """Return how the recorder treats a function."""
    name = getattr(function, "__name__", "")
    if name == "__get__":
        return RECORD if name_of(function) in _GETTERS else ATTRIBUTE
    if (
        name in ("__set__", "__delete__")
        or name in _CHANGES
        or (name.endswith("_") and not name.endswith("__"))
    ):
        return IN_PLACE
    if name in _READING:
        return READ
    if name in _CONSTANT:
        return LIKE if name in _LIKE else CONSTANT
    return EAGER if name in _CALLED or name in _LIKE or name.startswith("_foreach") else RECORD


_RESIZING = words("resize_ resize_as_ set_ data")
_REDESCRIBING = _RESIZING | words("squeeze_ unsqueeze_ t_ transpose_ swapaxes_ swapdims_ as_strided_ detach_")
_NORMS = words("batch_norm instance_norm")


def changes_memory(function: Callable[..., Any]) -> bool:
    """Return True if a function gives its first argument other memory."""
    return name_of(function) in _RESIZING


def changes_description(function: Callable[..., Any]) -> bool:
    """Return True if a function changes more of its first argument than numbers; other views stay as they are."""
    return name_of(function) in _REDESCRIBING


def without_change(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]] | None:
    """Return the call whose result a change in place writes into its first argument, or None if there is none."""
    if kwargs.get("inplace"):
        return function, args, {**kwargs, "inplace": False}
    name = getattr(function, "__name__", "")
    plain = f"__{name[3:]}" if name in _CHANGES and name.startswith("__i") else name.removesuffix("_")
    if plain == name or plain.strip("_") not in POINTWISE or not hasattr(torch.Tensor, plain):
        return None
    return getattr(torch.Tensor, plain), args, kwargs


def is_like(function: Callable[..., Any]) -> bool:
    """Return True if a function reads only the shape, dtype and device of its operand."""
    return getattr(function, "__name__", "") in _LIKE


def changed_by(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return the argument that a call changes, or a sequence of them; None if it changes none."""
    if kwargs.get("out") is not None:
        return kwargs["out"]
    if kwargs.get("inplace"):
        return args[0]
    name = name_of(function)
    if name in _NORMS and kwargs.get("training", kwargs.get("use_input_stats")) is not False:
        first = 3 if function in (torch.batch_norm, torch.instance_norm) else 1
        mean, variance = (
            _option(args, kwargs, first, "running_mean"),
            _option(args, kwargs, first + 1, "running_var"),
        )
        return [each for each in (mean, variance) if each is not None] or None
    if name in ("embedding", "embedding_bag") and _option(args, kwargs, 3, "max_norm") is not None:
        return _option(args, kwargs, 1, "weight")
    return None


def _option(args: Sequence[Any], kwargs: dict[str, Any], position: int, name: str) -> Any:
    """Return an argument of a call, or None."""
    return args[position] if len(args) > position else kwargs.get(name)


def autocast_state() -> tuple[tuple[str, torch.dtype], ...]:
    """Return the devices with automatic casts and their dtypes."""
    return tuple(
        (each, torch.get_autocast_dtype(each)) for each in ("cpu", "cuda") if torch.is_autocast_enabled(each)
    )


GROUPS: list[CallGroup] = []
REPEATED: dict[int, tuple[int, ...]] = {}
_numbers: dict[Any, int] = {}


def describe(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None,
    operands: Sequence[Any],
) -> Any:
    """Describe a call for the recorder.

    Args:
        operands: the tensors and values among the arguments, in order.

    Returns:
        None if the call must run immediately; else (True if it returns a constant, the constant, number of the group or
        -1 if all results are ranges of operands, results, True if it returns one tensor, a function that makes the
        result from a tuple or None). A result is (spec, operand that it is a range of or -1, offset, operand that
        shares its memory or -1). A range without such an operand is the operand itself.
    """
    kwargs = kwargs or {}
    if name_of(function) in _NORMS or changed_by(function, args, kwargs) is not None:
        return None
    autocast = autocast_state()
    device = "meta" if not autocast else None
    numbers = iter(range(len(operands)))  # in the recorder's order
    slots, named = replaced((args, kwargs), torch.Tensor, lambda _: OperandSlot(next(numbers)))
    group = CallGroup(
        name_of(function), function, slots, named, [tuple(x.shape) for x in operands], 0, by_vmap,
        torch.is_grad_enabled(), autocast, name_of(function) in RANDOM,
    )  # fmt: skip
    try:
        dummies = [
            torch.zeros(tuple(x.shape), dtype=x.dtype, device=device or x.device).requires_grad_(
                x.requires_grad
            )
            for x in operands
        ]
        result = group.call(dummies)
    except Exception:  # the call itself will raise the error, or needs the numbers
        return None
    if getattr(function, "__name__", "") in _DESCRIBING and not isinstance(result, torch.Tensor):
        return True, result, -1, (), True, None
    is_single = isinstance(result, torch.Tensor)
    outs = [result] if is_single else list(result) if isinstance(result, (tuple, list)) else []
    if not outs or not all(isinstance(each, torch.Tensor) and each.layout == torch.strided for each in outs):
        return None
    where, core = operands[0].device, cast(Any, native.core)
    specs = [core.recording_spec(each.shape, each.dtype, where, each.requires_grad) for each in outs]
    sources = [_source(each, dummies) for each in outs]
    pack = None if is_single or type(result) is tuple else _packer(type(result))
    if all(source is not None for source in sources):
        results = tuple((spec, *source) for spec, source in zip(specs, sources) if source is not None)
        return False, None, -1, results, is_single, pack
    number = _group_number(group, operands, outs)
    results = tuple((spec, -1, 0, _base(each, dummies)) for spec, each in zip(specs, outs))
    return False, None, number, results, is_single, pack


def _packer(kind: type) -> Callable[[tuple[Any, ...]], Any]:
    return (lambda values: kind(*values)) if hasattr(kind, "_fields") else kind


def _source(out: Tensor, dummies: Sequence[Tensor]) -> tuple[int, int, int] | None:
    """Return the operand whose contiguous range a result is, its offset in elements, and again the operand, or -1.

    It is -1 if the result is the operand itself.
    """
    for number, each in enumerate(dummies):
        if out is each:
            return number, 0, -1
        if (
            out._is_view()
            and out._base is each
            and out.dtype == each.dtype
            and out.is_contiguous()
            and out.requires_grad == each.requires_grad
            and not (out.is_conj() or out.is_neg())
        ):
            return number, int(out.storage_offset()), number
    return None


def _base(out: Tensor, dummies: Sequence[Tensor]) -> int:
    """Return the operand that shares the memory of a result, or -1."""
    memory = out.untyped_storage()._cdata
    return next(
        (number for number, each in enumerate(dummies) if each.untyped_storage()._cdata == memory), -1
    )


def _group_number(group: CallGroup, operands: Sequence[Any], outs: Sequence[Tensor]) -> int:
    """Choose the rule of a call; return the number of its group."""
    name, shapes = group.name, group.shapes
    group.dims = outs[0].dim()
    group.rule = _rule(group, operands, outs)
    if group.rule is along_dims and name in JOINING and _joins_rows(group, operands):
        group.rule, group.repeated = join, (-1,)
        return _number(group, operands, ("join", name, outs[0].shape[1:], group.dims), "")
    shape_key: tuple[Any, ...] = tuple(shapes)
    group.ragged = _ragged_rule(group, operands)
    if group.ragged is not None:
        group.repeated = ()
        whole = 1 if group.ragged is padded_product and len(shapes[0]) == 2 else None
        group.tails = [shape if number == whole else shape[1:] for number, shape in enumerate(shapes)]
        shape_key = ("ragged", *group.tails, tuple(map(len, shapes)))
    elif group.rule is pointwise and group.dims > 0:
        shape_key = _rows(group, tuple(outs[0].shape))
    elif group.rule is direct and min(group.dims, len(shapes[0])) > ROWWISE[name]:
        group.repeated, group.tails = (), [shapes[0][1:], *shapes[1:]]
        shape_key = ("rows", len(shapes[0]), *group.tails)
    return _number(group, operands, shape_key, repr((group.args, group.kwargs)))


def _rule(group: CallGroup, operands: Sequence[Any], outs: Sequence[Tensor]) -> Callable[..., Any]:
    """Return the rule for examples of equal shapes."""
    name = group.name
    if name in POINTWISE and len(outs) == 1:
        return pointwise if _may_gain_dims(group, operands) else one_by_one
    if name == "embedding" and _option(group.args, group.kwargs, 5, "scale_grad_by_freq"):
        return one_by_one  # counts the indices of each call
    if name in ROWWISE and len(outs) == 1 and isinstance(next(iter(group.args), None), OperandSlot):
        return direct
    if name in DIMENSIONS and _count_from_end(group, group.shapes):
        return along_dims
    if name in ("nll_loss", "cross_entropy") and _is_plain_loss(group):
        return nll
    return RULES.get(name, by_vmap)


def _may_gain_dims(group: CallGroup, operands: Sequence[Any]) -> bool:
    """Return True if operands without dimensions may get an axis of examples: it can change the dtype of the result."""
    has_dims = {len(shape) > 0 for shape in group.shapes}
    is_mixed = len(has_dims) == 2 and len({x.dtype for x in operands}) > 1
    return not is_mixed and not (group.name == "masked_fill" and len(operands) == 3)


def _number(group: CallGroup, operands: Sequence[Any], shape_key: tuple[Any, ...], arguments: str) -> int:
    """Return the number of a group, which is new if none has its key."""
    operand = operands[0]
    types = (
        tuple((x.dtype, x.requires_grad) for x in operands)
        if arguments
        else (operand.dtype, operand.requires_grad)
    )
    key = (group.function, arguments, shape_key, types, group.needs_grad, group.autocast, str(operand.device))
    number = _numbers.setdefault(key, len(GROUPS))
    if number == len(GROUPS):
        GROUPS.append(group)
        if group.repeated is not None:
            REPEATED[number] = group.repeated
    return number


def _ragged_rule(group: CallGroup, operands: Sequence[Any]) -> Any:
    """Return the rule for examples that differ in their first dimension, or None."""
    shapes = group.shapes
    if group.rule is along_dims and len(shapes) == 1 and group.name in REDUCTIONS and shapes[0]:
        position, name = DIMENSIONS[group.name]
        dim = _option(group.args, group.kwargs, position, name)
        is_first = dim in (-len(shapes[0]), (-len(shapes[0]),), [-len(shapes[0])])
        has_dtype = group.name == "mean" and "dtype" in group.kwargs
        is_plain = len(group.args) <= position + 1 and operands[0].dtype.is_floating_point and not has_dtype
        return REDUCTIONS[group.name] if is_first and is_plain else None
    lengths = [len(shape) for shape in shapes]
    if group.name in ("getitem", "index_select") and lengths[1:] == [1] and lengths[0] and _is_indexed(group):
        return chosen_rows
    if (
        group.name == "index_add"
        and lengths[1:] == [1, lengths[0]]
        and not group.kwargs
        and group.args[1] == 0
    ):
        return added_rows
    if group.rule is product and len(shapes) == 2:
        (a, b) = shapes
        if (len(a) == 1 and len(b) == 2) or (len(a) == 2 and len(b) in (1, 2)):
            return padded_product
    return None


def _is_indexed(group: CallGroup) -> bool:
    """Return True if the first dimension is indexed by one tensor of numbers."""
    if group.name == "index_select":
        return len(group.args) == 3 and group.args[1] in (0, -len(group.shapes[0])) and not group.kwargs
    return len(group.args) == 2 and isinstance(group.args[1], OperandSlot)


def _rows(group: CallGroup, out: Shape) -> tuple[Any, ...]:
    """Let calls share a batch whose results differ only in their first dimension."""
    repeated, tails = [], []
    for number, shape in enumerate(group.shapes):
        padded = (1,) * (len(out) - len(shape)) + shape
        if padded[0] == 1 and out[0] != 1 or len(shape) < len(out):
            repeated.append(number)
        tails.append(padded[1:])
    group.repeated, group.tails = tuple(repeated), tails
    return ("rows", len(out), group.repeated, tuple(map(len, group.shapes)), *tails)


def _joins_rows(group: CallGroup, operands: Sequence[Any]) -> bool:
    """Return True if the result is the operands' memory, one after the other."""
    position, name = DIMENSIONS[group.name]
    dim = group.args[position] if len(group.args) > position else group.kwargs.get(name, 0)
    return dim in (0, -group.dims) and len({x.dtype for x in operands}) == 1 and "out" not in group.kwargs


def _is_plain_loss(group: CallGroup) -> bool:
    shapes = group.shapes
    return (
        len(group.args) == 2
        and len(shapes) == 2
        and len(shapes[0]) in (1, 2)
        and shapes[0][:-1] == shapes[1]
        and all(
            value is None
            or (name, value) in (("reduction", "mean"), ("label_smoothing", 0.0), ("ignore_index", -100))
            for name, value in group.kwargs.items()
        )
    )


def _count_from_end(group: CallGroup, shapes: Sequence[Shape]) -> bool:
    """Count the dims of a call from the end, to allow an axis of examples before them; False if it has none."""
    position, name = DIMENSIONS[group.name]
    if "axis" in group.kwargs or (group.name == "flip" and len(group.args) > 2):
        return False
    dims = len(shapes[0])
    extra = 1 if group.name in ("stack", "unsqueeze") else 0
    given = _option(group.args, group.kwargs, position, name)
    if given is None and group.name in JOINING:
        given = 0
    elif given is None and group.name in ("sum", "mean") and len(shapes) == 1:
        given = tuple(range(dims))
    items = given if isinstance(given, (tuple, list)) else (given,)
    is_dim = items and all(isinstance(each, int) for each in items) and not isinstance(given, bool)
    if not is_dim or dims + extra == 0 or len({len(shape) for shape in shapes}) > 1:
        return False
    counted = from_end(given, dims + extra)
    if len(group.args) > position:
        group.args = (*group.args[:position], counted, *group.args[position + 1 :])
    else:
        group.kwargs = {**group.kwargs, name: counted}
    return True

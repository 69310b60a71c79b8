"""How functions of torch run for many examples together.

A rule takes a batch and its operands, and returns the results of all examples, (examples, *shape) each. Operands that
all examples share have no axis of examples. Functions without a rule run by `torch.vmap`, and those that it does not
support run example by example.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

Tensor = torch.Tensor
Shape = tuple[int, ...]


def words(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


class OperandSlot:
    """Place of an operand in the arguments of a call."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __repr__(self) -> str:
        return f"<{self.number}>"


def filled(item: Any, operands: Sequence[Tensor]) -> Any:
    """Return arguments with operands in place of slots."""
    if isinstance(item, OperandSlot):
        return operands[item.number]
    if isinstance(item, tuple):
        found = [filled(each, operands) for each in item]
        return type(item)(*found) if hasattr(item, "_fields") else tuple(found)
    if isinstance(item, list):
        return [filled(each, operands) for each in item]
    return item


def replaced(item: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """Return arguments with the objects of a class replaced."""
    if isinstance(item, kind):
        return change(item)
    if isinstance(item, (tuple, list)) and not isinstance(item, torch.Size):
        found = [replaced(each, kind, change) for each in item]
        return type(item)(*found) if hasattr(item, "_fields") else type(item)(found)
    if isinstance(item, dict):
        return {name: replaced(each, kind, change) for name, each in item.items()}
    return item


class Lengths:
    """Lengths of the examples of a batch whose rows are one after the other.

    Args:
        sizes: rows of each example, for each operand; padding is that of the first.
    """

    def __init__(self, sizes: Sequence[Sequence[int]], device: torch.device) -> None:
        self.all_sizes = sizes
        self.sizes = torch.tensor(sizes[0], device=device)
        self.count, self.longest = len(sizes[0]), max(sizes[0])
        self.starts = self.sizes.cumsum(0) - self.sizes
        self._places = torch.arange(self.longest, device=device)
        self._is_row = self._places < self.sizes.unsqueeze(1)

    def padded(self, rows: Tensor, fill: float) -> Tensor:
        """Return rows with an axis of examples, padded at the end.

        Shape:
            rows: (rows of all examples, *tail).
            returns: (examples, longest, *tail).
        """
        places = torch.where(self._is_row, self.starts.unsqueeze(1) + self._places, rows.shape[0])
        last = rows.new_full((1, *rows.shape[1:]), fill)
        found = torch.cat([rows, last]).index_select(0, places.flatten())
        return found.view(self.count, self.longest, *rows.shape[1:])

    def rows(self, padded: Tensor) -> Tensor:
        """Return the rows of all examples without padding."""
        return padded[self._is_row]


@dataclass(eq=False)
class CallGroup:
    """Calls that may run together.

    Args:
        function: the function of torch.
        args, kwargs: its arguments, with slots for operands.
        shapes: of each operand, without an axis of examples.
        dims: number of dimensions of the result of one example.
        rule: how it runs for many.
        needs_grad: the grad mode of the calls.
        autocast: dtype, by type of device, of automatic casts that are on.
        repeated: for calls whose results differ in their first dimension: the operands that are equal for all rows of
            an example. None if all shapes agree.
        tails: for such calls, the shape of a row of each operand.
        ragged: how they run if not as rows.
        mapped: the function by `torch.vmap`, by the operands that are shared.
    """

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    shapes: list[Shape]
    dims: int
    rule: Callable[[CallGroup, list[Tensor], list[bool], int], Any]
    needs_grad: bool
    autocast: tuple[tuple[str, torch.dtype], ...]
    is_random: bool
    repeated: tuple[int, ...] | None = None
    tails: list[Shape] = field(default_factory=list)
    ragged: Callable[[CallGroup, list[Tensor], list[bool], Lengths], Any] | None = None
    mapped: dict[tuple[bool, ...], Callable[..., Any]] = field(default_factory=dict)

    def cost(self, count: int, is_ragged: bool) -> float:
        """Return what a batch costs, in calls with one operand for each example."""
        if self.rule is one_by_one:
            return 2.0 * count
        return 4.0 if self.rule is by_vmap or (is_ragged and self.ragged is not None) else 1.0

    def call(self, operands: Sequence[Tensor]) -> Any:
        """Call the function."""
        args = [filled(each, operands) for each in self.args]
        if not self.kwargs:
            return self.function(*args)
        return self.function(*args, **{name: filled(each, operands) for name, each in self.kwargs.items()})


def pointwise(group: CallGroup, operands: list[Tensor], shared: list[bool], count: int) -> Any:
    """Call a function of numbers, with the operands' shapes aligned at the end."""
    found = []
    for operand, is_shared, shape in zip(operands, shared, group.shapes):
        missing = group.dims - len(shape)
        if missing and not is_shared:
            operand = operand.reshape(count, *[1] * missing, *shape)
        elif is_shared and group.dims == 0:  # torch promotes numbers without dimensions less
            operand = operand.expand(count)
        found.append(operand)
    return group.call(found)


def direct(group: CallGroup, operands: list[Tensor], shared: list[bool], count: int) -> Any:
    """Call a function that treats the rows of its first operand alike, with further axes in front."""
    if shared[0] or not all(shared[1:]):
        return by_vmap(group, operands, shared, count)
    return group.call(operands)


def along_dims(group: CallGroup, operands: list[Tensor], shared: list[bool], count: int) -> Any:
    """Call a function whose dims count from the end; every operand has the axis of examples."""
    found = [
        operand.expand(count, *operand.shape) if is_shared else operand
        for operand, is_shared in zip(operands, shared)
    ]
    return group.call(found)


def padded(fill: float) -> Callable[[CallGroup, list[Tensor], list[bool], Lengths], Any]:
    """Return the rule of a reduction of rows that ignores a fill value."""

    def rule(group: CallGroup, operands: list[Tensor], shared: list[bool], lengths: Lengths) -> Any:
        return group.call([lengths.padded(operands[0], fill)])

    return rule


def padded_mean(group: CallGroup, operands: list[Tensor], shared: list[bool], lengths: Lengths) -> Tensor:
    """Compute the mean of the rows of each example."""
    found = lengths.padded(operands[0], 0.0).sum(1)
    return found / lengths.sizes.view(-1, *[1] * (found.dim() - 1)).to(found.dtype)


def padded_softmax(group: CallGroup, operands: list[Tensor], shared: list[bool], lengths: Lengths) -> Tensor:
    """Compute softmax or its logarithm over the rows of each example."""
    return lengths.rows(group.call([lengths.padded(operands[0], -torch.inf)]))


def padded_product(group: CallGroup, operands: list[Tensor], shared: list[bool], lengths: Lengths) -> Tensor:
    """Multiply matrices whose rows are those of an example."""
    (left, right), (a, b) = operands, group.shapes
    if len(a) == 1:
        return (lengths.padded(left, 0.0).unsqueeze(1) @ lengths.padded(right, 0.0)).squeeze(1)
    if shared[1]:
        return left @ right
    left = lengths.padded(left, 0.0)
    right = right.view(lengths.count, *b)
    return lengths.rows((left @ right.unsqueeze(-1)).squeeze(-1) if len(b) == 1 else left @ right)


def chosen_rows(group: CallGroup, operands: list[Tensor], shared: list[bool], lengths: Lengths) -> Tensor:
    """Select rows of each example by its own indices."""
    source, index = operands
    return source.index_select(0, _places(index, lengths))


def added_rows(group: CallGroup, operands: list[Tensor], shared: list[bool], lengths: Lengths) -> Tensor:
    """Add rows to those of each example, by its own indices."""
    target, index, rows = operands
    return target.index_add(0, _places(index, lengths), rows)


def _places(index: Tensor, lengths: Lengths) -> Tensor:
    """Return the indices of all examples as places among all rows."""
    counts = torch.tensor(lengths.all_sizes[1], device=index.device)
    size = lengths.sizes.repeat_interleave(counts)
    if bool(((index >= size) | (index < -size)).any()):
        raise IndexError("index out of range")
    return torch.where(index < 0, index + size, index) + lengths.starts.repeat_interleave(counts)


REDUCTIONS = {
    "sum": padded(0.0),
    "mean": padded_mean,
    "amax": padded(-torch.inf),
    "amin": padded(torch.inf),
    "max": padded(-torch.inf),
    "min": padded(torch.inf),
    "logsumexp": padded(-torch.inf),
    "softmax": padded_softmax,
    "log_softmax": padded_softmax,
}
"""Functions of floating-point numbers along the first dimension, for examples of different lengths."""


def join(group: CallGroup, operands: list[Tensor], shared: list[bool], count: int) -> Any:
    """Return the operands of all examples, joined in memory, as the results."""
    return operands[0]


def product(group: CallGroup, operands: list[Tensor], shared: list[bool], count: int) -> Any:
    """Multiply matrices or vectors."""
    (left, right), (a, b) = operands, group.shapes
    if shared[0] and len(a) == 1:
        return right @ left if len(b) == 1 else left @ right
    if shared[0] and len(b) == 1 and len(a) == 2:
        return right @ left.mT
    if len(a) == 1 and len(b) == 1:
        return (left * right).sum(-1, dtype=left.dtype) if not shared[1] else left @ right
    if shared[1]:
        return left @ right if len(b) <= 2 or len(a) >= len(b) else by_vmap(group, operands, shared, count)
    if len(b) == 1:
        return (left @ right.reshape(count, *[1] * (len(a) - 2), -1, 1)).squeeze(-1)
    if len(a) == 1 and len(b) == 2:
        return (left.unsqueeze(-2) @ right).squeeze(-2)
    if len(a) == len(b) or (shared[0] and len(a) < len(b)):
        return left @ right
    return by_vmap(group, operands, shared, count)


def cell(group: CallGroup, operands: list[Tensor], shared: list[bool], count: int) -> Any:
    """Call a step of a recurrent network, whose rows are independent."""
    states = 3 if group.name == "lstm_cell" else 2  # the input and the states
    if not all(shared[states:]) or any(len(shape) != 2 for shape in group.shapes[:states]):
        return by_vmap(group, operands, shared, count)
    flat = [
        (x.expand(count, *x.shape) if is_shared else x).flatten(0, 1)
        for x, is_shared in zip(operands[:states], shared)
    ]
    found = group.call([*flat, *operands[states:]])
    outs = found if isinstance(found, tuple) else (found,)
    return tuple(each.unflatten(0, (count, -1)) for each in outs)


def set_item(tensor: Tensor, index: Any, item: Any) -> Tensor:
    """Return a copy of a tensor with other elements at an index."""
    found = tensor.clone()
    found[index] = item
    return found


def set_items(group: CallGroup, operands: list[Tensor], shared: list[bool], count: int) -> Any:
    """Set elements of every example."""
    index = _index_of_all(group, operands, shared, count)
    if index is None:
        return by_vmap(group, operands, shared, count)
    found = (operands[0].expand(count, *group.shapes[0]) if shared[0] else operands[0]).clone()
    item = filled(group.args[2], operands)
    if isinstance(group.args[2], OperandSlot) and not shared[group.args[2].number]:
        missing = found[index].dim() - item.dim()
        item = item.reshape(count, *[1] * missing, *item.shape[1:]) if missing > 0 else item
    found[index] = item
    return found


def items(group: CallGroup, operands: list[Tensor], shared: list[bool], count: int) -> Any:
    """Read elements of every example."""
    index = None if shared[0] else _index_of_all(group, operands, shared, count)
    return by_vmap(group, operands, shared, count) if index is None else operands[0][index]


def _index_of_all(
    group: CallGroup, operands: list[Tensor], shared: list[bool], count: int
) -> tuple[Any, ...] | None:
    """Return an index of tensors with an axis of examples for an index of one; None for masks and mixed ones."""
    given = group.args[1] if isinstance(group.args[1], tuple) else (group.args[1],)
    if all(each is None or each is Ellipsis or type(each) in (int, slice) for each in given):
        return slice(None), *given
    if not all(isinstance(each, OperandSlot) for each in given):
        return None
    found, dims = [], max(len(group.shapes[each.number]) for each in given)
    for each in given:
        operand, missing = operands[each.number], dims - len(group.shapes[each.number])
        if operand.dtype not in (torch.int64, torch.int32):
            return None
        found.append(
            operand if shared[each.number] else operand.reshape(count, *[1] * missing, *operand.shape[1:])
        )
    return torch.arange(count, device=operands[0].device).view(count, *[1] * dims), *found


def permuted(group: CallGroup, operands: list[Tensor], shared: list[bool], count: int) -> Any:
    """Exchange dimensions of every example."""
    (operand,), (shape,), given = operands, group.shapes, group.args[1:]
    dims, name = len(shape), group.name
    if shared[0] or group.kwargs:
        return by_vmap(group, operands, shared, count)
    if name in ("transpose", "swapaxes", "swapdims"):
        return operand.transpose(*from_end(given, dims))
    if name == "permute":
        order: Sequence[int] = given[0] if isinstance(given[0], (tuple, list)) else given
    elif name in ("mT", "t"):
        order = (*range(dims - 2), dims - 1, dims - 2) if dims > 1 else range(dims)
    else:
        order = range(dims)[::-1]
    return operand.permute(0, *(1 + each % dims for each in order))


def folded(group: CallGroup, operands: list[Tensor], shared: list[bool], count: int) -> Any:
    """Call a function of a batch, with the examples as a batch or as a part of it."""
    if shared[0] or not all(shared[1:]):
        return by_vmap(group, operands, shared, count)
    if len(group.shapes[0]) < FOLDED[group.name]:
        return group.call(operands)
    found = group.call([operands[0].flatten(0, 1), *operands[1:]])
    if isinstance(found, tuple):
        return tuple(each.unflatten(0, (count, -1)) for each in found)
    return found.unflatten(0, (count, -1))


def by_vmap(group: CallGroup, operands: list[Tensor], shared: list[bool], count: int) -> Any:
    """Call a function by `torch.vmap`, or example by example."""
    key = tuple(shared)
    try:
        if key not in group.mapped:
            axes = tuple(None if each else 0 for each in shared)
            group.mapped[key] = torch.vmap(
                lambda *given: group.call(given), in_dims=axes, randomness="different"
            )
        return group.mapped[key](*operands)
    except Exception:  # any function of torch may refuse vmap in its own way
        group.rule = one_by_one
        return one_by_one(group, operands, shared, count)


def one_by_one(group: CallGroup, operands: list[Tensor], shared: list[bool], count: int) -> Any:
    """Call a function for one example after the other."""
    columns = [
        [operand] * count if is_shared else operand.unbind(0) for operand, is_shared in zip(operands, shared)
    ]
    found = [group.call(example) for example in zip(*columns)]
    if isinstance(found[0], torch.Tensor):
        return torch.stack(found)
    return tuple(torch.stack(column) for column in zip(*found))


POINTWISE = words(
    """abs absolute acos acosh add addcdiv addcmul asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or
    bitwise_xor bool ceil celu clamp clamp_max clamp_min clip copysign cos cosh deg2rad digamma div divide
    double elu eq erf erfc erfinv exp exp2 expit expm1 fix float floor floor_divide floordiv fmod frac ge
    gelu greater greater_equal gt half hardsigmoid hardswish hardtanh heaviside hypot int invert isfinite
    isinf isnan ldexp le leaky_relu lerp less less_equal lgamma log log10 log1p log2 logaddexp logaddexp2
    logical_and logical_not logical_or logical_xor logit logsigmoid long lt masked_fill maximum minimum mish
    mod mul multiply nan_to_num ne neg negative not_equal pos positive pow radd rand rdiv reciprocal relu
    relu6 remainder rmul ror round rpow rsqrt rsub rtruediv rxor selu sgn sigmoid sign silu sin sinc sinh
    softplus softshrink softsign sqrt square sub subtract tan tanh tanhshrink threshold true_divide truediv
    trunc where xlogy and or xor clone"""
)
"""Functions of numbers, by name without underscores."""

ROWWISE = {"linear": 1, "embedding": 0, "layer_norm": 1, "rms_norm": 1, "dropout": 0, "alpha_dropout": 0}
"""Functions of rows of their first operand, with the number of dimensions of a row."""

DIMENSIONS: dict[str, tuple[int, str]] = dict.fromkeys(
    words(
        "sum mean softmax log_softmax logsumexp max min argmax argmin amax amin cumsum std var prod any all"
        " cat stack concat concatenate flip sort argsort narrow gather unsqueeze softmin"
    ),
    (1, "dim"),
) | {"norm": (2, "dim"), "normalize": (2, "dim")}
"""Functions along dimensions: position and name of the argument."""

JOINING = words("cat stack concat concatenate")
"""Functions that join their operands."""

RANDOM = words(
    "dropout alpha_dropout feature_dropout bernoulli multinomial normal rrelu gumbel_softmax poisson"
)

FOLDED = {
    "conv1d": 3,
    "conv2d": 4,
    "conv3d": 5,
    "conv_transpose1d": 3,
    "conv_transpose2d": 4,
    "max_pool1d": 3,
    "max_pool2d": 4,
    "avg_pool1d": 3,
    "avg_pool2d": 4,
    "adaptive_avg_pool1d": 3,
    "adaptive_avg_pool2d": 4,
    "adaptive_max_pool1d": 3,
    "adaptive_max_pool2d": 4,
}
"""Functions of a batch, with the number of dimensions of their first operand if it is one."""

RULES: dict[str, Callable[[CallGroup, list[Tensor], list[bool], int], Any]] = {
    "matmul": product,
    "mm": product,
    "mv": product,
    "dot": product,
    "set_item": set_items,
    "getitem": items,
    **dict.fromkeys(words("T mT t transpose swapaxes swapdims permute"), permuted),
    **dict.fromkeys(FOLDED, folded),
    "lstm_cell": cell,
    "gru_cell": cell,
    "rnn_tanh_cell": cell,
    "rnn_relu_cell": cell,
}


def from_end(dim: Any, dims: int) -> Any:
    """Return dimensions counted from the end."""
    if isinstance(dim, (tuple, list)):
        return type(dim)(from_end(each, dims) for each in dim)
    return dim - dims if isinstance(dim, int) and not isinstance(dim, bool) and dim >= 0 else dim


def nll(group: CallGroup, operands: list[Tensor], shared: list[bool], count: int) -> Any:
    """Compute the mean loss of every example from the losses of its rows."""
    scores, labels = (x.expand(count, *x.shape) if is_shared else x for x, is_shared in zip(operands, shared))
    rows = F.log_softmax(scores, -1) if group.name == "cross_entropy" else scores
    found = F.nll_loss(rows.flatten(0, -2), labels.flatten(), reduction="none").view(count, -1)
    counted = (labels.view(count, -1) != -100).sum(-1)  # torch ignores this label by default
    return found.sum(-1) / counted

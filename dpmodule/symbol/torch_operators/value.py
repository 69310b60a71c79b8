"""Values of torch's graph: symbols, or tensors that are known already; and their sizes, some known by name only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from ...ops.dtypes import name_of
from ..symbol import Symbol

if TYPE_CHECKING:
    import sympy
    from typing_extensions import TypeIs


Dims = tuple[Any, ...]
"""A shape: integers, and expressions of SymPy where a size is known by name only."""

Size: TypeAlias = "int | sympy.Expr"
"""One size of a shape."""


def as_size(value: Size | torch.SymInt) -> Any:
    """Return a size as an integer where it is one, else as an expression."""
    if isinstance(value, torch.SymInt):
        value = value.node.expr
    if isinstance(value, int):
        return int(value)
    return int(value) if getattr(value, "is_Integer", False) else value


def dims_of(tensor: torch.Tensor) -> Dims:
    """Return the shape of a tensor, real or fake."""
    return tuple(as_size(d) for d in tensor.shape)


def is_number(size: object) -> TypeIs[int]:
    """Return True if a size is an integer."""
    return isinstance(size, int)


def difference(left: Size, right: Size) -> int | None:
    """Return how much two sizes differ; None where that depends on what is not known."""
    gap: Any = left - right
    rest = as_size(gap if is_number(gap) else gap.expand())
    return rest if is_number(rest) else None


def same(left: Size, right: Size) -> bool:
    """Return True if two sizes are equal whatever the unknown ones are."""
    return left is right or difference(left, right) == 0


def broadcast_dims(left: Dims, right: Dims) -> Dims:
    """Return the shape of two arrays after broadcasting."""
    rank = max(len(left), len(right))
    padded = [(1,) * (rank - len(dims)) + dims for dims in (left, right)]
    return tuple(q if same(p, 1) else p for p, q in zip(*padded))


def product(dims: Sequence[Any]) -> Any:
    """Return the number of elements of a shape."""
    total: Any = 1
    for each in dims:
        total = total * each
    return as_size(total)


def spans(source: Dims, target: Dims) -> list[tuple[int, int]]:
    """Divide two shapes of as many elements into the shortest runs of axes that hold equally many.

    Returns:
        For each run the number of axes of the source and of the target.

    Example:
        >>> spans((2, 3, 4), (6, 2, 2))
        [(2, 1), (1, 2)]
    """
    found, i, j = [], 0, 0
    while i < len(source) or j < len(target):
        p, q = _first_span(source[i:], target[j:])
        found.append((p, q))
        i, j = i + p, j + q
    return found


def _first_span(source: Dims, target: Dims) -> tuple[int, int]:
    for total in range(2, len(source) + len(target) + 1):
        for p in range(max(1, total - len(target)), min(total - 1, len(source)) + 1):
            if same(product(source[:p]), product(target[: total - p])):
                return p, total - p
    return len(source), len(target)


def reshape_codes(source: Dims, target: Dims) -> tuple[int, ...] | None:
    """Return codes of `Reshape` that hold for every value of the unknown sizes; None where there are none.

    Axes that stay where they are copied, so that the codes serve other known sizes, too, where they can.

    Example:
        >>> reshape_codes((2, 3, 4), (2, 12))
        (0, -3)
    """
    by_runs = _codes_of_runs(source, target)
    if by_runs is not None:
        return by_runs
    kept = 0
    while kept < min(len(source), len(target)) and same(source[kept], target[kept]):
        kept += 1
    rest = target[kept:]
    unknown = [i for i, d in enumerate(rest) if not is_number(d)]
    if len(unknown) > 1:
        return None
    worked_out = unknown[0] if unknown else len(rest) - 1
    return (*[0] * kept, *(-1 if i == worked_out else d for i, d in enumerate(rest)))


def _codes_of_runs(source: Dims, target: Dims) -> tuple[int, ...] | None:
    """Return codes that copy, merge and split; None where a run needs more than one of these."""
    codes: list[int] = []
    i = j = 0
    for p, q in spans(source, target):
        if (p, q) == (1, 1):
            codes.append(0)
        elif (p, q) == (2, 1):
            codes.append(-3)
        elif (p, q) == (1, 2):
            pair = _split_codes(target[j : j + 2])
            if pair is None:
                return None
            codes += (-4, *pair)
        else:
            return None
        i, j = i + p, j + q
    return tuple(codes)


def _split_codes(pair: Dims) -> tuple[int, int] | None:
    known = [is_number(d) for d in pair]
    if not any(known):
        return None
    return (-1, pair[1]) if known[1] else (pair[0], -1)


def places(dims: Dims, wanted: Dims) -> Iterator[int]:
    """Yield where a shape holds a run of wanted sizes."""
    for start in range(len(dims) - len(wanted) + 1):
        if all(same(a, b) for a, b in zip(dims[start:], wanted, strict=False)):
            yield start


class NoCounterpart(Exception):
    """Something that has no counterpart; the text is half a sentence that says what."""


def type_name(dtype: torch.dtype) -> str:
    """Return the element type that symbols have for one of torch's; truth values are 0 and 1 in float32."""
    return "float32" if dtype is torch.bool else name_of(dtype)


class TorchValue:
    """One tensor of torch's graph.

    Attributes:
        dims: its shape in torch; where that is (), the symbol's is (1,).
        symbol: what stands for it; None until somebody needs one.
        tensor: its elements where they depend on neither inputs nor parameters, else None.
        name: what a variable that holds these elements is to be called, "" for a name made of the reader's.
    """

    __slots__ = ("dims", "dtype", "name", "symbol", "tensor")

    def __init__(
        self,
        dims: Dims,
        dtype: torch.dtype,
        symbol: Symbol | None = None,
        tensor: torch.Tensor | None = None,
        name: str = "",
    ) -> None:
        self.dims, self.dtype, self.symbol, self.tensor = dims, dtype, symbol, tensor
        self.name = name

    @property
    def rank(self) -> int:
        """Number of axes in torch."""
        return len(self.dims)

    @property
    def type(self) -> str:
        """Element type of the symbol."""
        return type_name(self.dtype)

    @property
    def is_bool(self) -> bool:
        """True if torch has truth values here."""
        return self.dtype is torch.bool

    @property
    def is_float(self) -> bool:
        """True if torch has floating-point numbers here."""
        return self.dtype.is_floating_point

    @property
    def number(self) -> Any:
        """The only element, if it is known and stands alone or is the same everywhere; None otherwise."""
        if self.tensor is None or not self.tensor.numel():
            return None
        first = self.tensor.reshape(-1)[0]
        uniform = self.tensor.numel() == 1 or bool((self.tensor == first).all())
        return first.item() if uniform else None

    def axis(self, axis: int) -> int:
        """Return the number of an axis counted from the front."""
        return axis % max(self.rank, 1)


Operand: TypeAlias = "TorchValue | Size | float"
"""A value, a number, or a size that is known by name only."""

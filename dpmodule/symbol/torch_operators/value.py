"""Values of torch's graph: symbols or constant tensors, and their sizes, which may be symbolic."""

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
"""A shape: integers, and SymPy expressions for symbolic sizes."""

Size: TypeAlias = "int | sympy.Expr"
"""A size of a shape."""


def as_size(value: Size | torch.SymInt) -> Any:
    """Return a size as an integer if possible, else as an expression."""
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
    """Return the difference of two sizes; None if it is not constant."""
    gap: Any = left - right
    rest = as_size(gap if is_number(gap) else gap.expand())
    return rest if is_number(rest) else None


def same(left: Size, right: Size) -> bool:
    """Return True if two sizes are always equal."""
    return left is right or difference(left, right) == 0


def broadcast_dims(left: Dims, right: Dims) -> Dims:
    """Return the shape of two arrays after broadcasting."""
    rank = max(len(left), len(right))
    padded = [(1,) * (rank - len(dims)) + dims for dims in (left, right)]
    return tuple(q if same(p, 1) else p for p, q in zip(*padded))


def product(dims: Sequence[Any]) -> Any:
    """Return the number of elements of a shape."""
    total: Any = 1
    for size in dims:
        total = total * size
    return as_size(total)


def spans(source: Dims, target: Dims) -> list[tuple[int, int]]:
    """Split two shapes of equal size into the shortest runs of axes with equal numbers of elements.

    Returns:
        For each run the number of axes of the source and of the target.

    Example:
        >>> spans((2, 3, 4), (6, 2, 2))
        [(2, 1), (1, 2)]
    """
    runs, i, j = [], 0, 0
    while i < len(source) or j < len(target):
        p, q = _first_span(source[i:], target[j:])
        runs.append((p, q))
        i, j = i + p, j + q
    return runs


def _first_span(source: Dims, target: Dims) -> tuple[int, int]:
    for total in range(2, len(source) + len(target) + 1):
        for p in range(max(1, total - len(target)), min(total - 1, len(source)) + 1):
            if same(product(source[:p]), product(target[: total - p])):
                return p, total - p
    return len(source), len(target)


def reshape_codes(source: Dims, target: Dims) -> tuple[int, ...] | None:
    """Return codes of `Reshape` that are valid for all symbolic sizes; None if there are none.

    Unchanged axes are copied, so that the codes also work for other sizes if possible.

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
    tail = target[kept:]
    unknown = [i for i, d in enumerate(tail) if not is_number(d)]
    if len(unknown) > 1:
        return None
    inferred = unknown[0] if unknown else len(tail) - 1
    return (*[0] * kept, *(-1 if i == inferred else d for i, d in enumerate(tail)))


def _codes_of_runs(source: Dims, target: Dims) -> tuple[int, ...] | None:
    """Return codes that copy, merge and split; None if a run needs more than one of these."""
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
    """Yield the positions of a run of sizes in a shape."""
    for start in range(len(dims) - len(wanted) + 1):
        if all(same(a, b) for a, b in zip(dims[start:], wanted, strict=False)):
            yield start


class NoCounterpart(Exception):
    """A torch operation without counterpart; the text is a predicate that describes it."""


def type_name(dtype: torch.dtype) -> str:
    """Return the element type in symbols of a torch type; bools are 0 and 1 in float32."""
    return "float32" if dtype is torch.bool else name_of(dtype)


class TorchValue:
    """A tensor of torch's graph.

    Attributes:
        dims: its shape in torch; for (), the symbol's shape is (1,).
        symbol: its symbol; None until it is needed.
        tensor: its elements if they are constant, else None.
        name: name of a variable for these elements, "" to derive it from the reader's name.
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
        """True if torch's type is bool."""
        return self.dtype is torch.bool

    @property
    def is_float(self) -> bool:
        """True if torch's type is a floating-point type."""
        return self.dtype.is_floating_point

    @property
    def number(self) -> Any:
        """The only element, or the value of all elements, if constant; None otherwise."""
        if self.tensor is None or not self.tensor.numel():
            return None
        first = self.tensor.reshape(-1)[0]
        uniform = self.tensor.numel() == 1 or bool((self.tensor == first).all())
        return first.item() if uniform else None

    def axis(self, axis: int) -> int:
        """Return a non-negative axis."""
        return axis % max(self.rank, 1)


Operand: TypeAlias = "TorchValue | Size | float"
"""A value, a number, or a symbolic size."""

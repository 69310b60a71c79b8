"""MXNet's reshape codes, applied to shapes."""

from __future__ import annotations

from functools import lru_cache

from ...base import ShapeError
from ..shapes import prod

Dims = tuple[int, ...]

_SKIP, _NONE = -5, -6
"""Further codes of `resolve_numpy`: leave out an axis of size 1; an axis without elements."""

_NUMPY_CODES = {0: _NONE, -2: 0, -3: _SKIP, -4: -2, -5: -3, -6: -4}
"""Codes of `resolve` by those of `resolve_numpy`."""


class _CodeReader:
    """Reader of the codes and the data's dimensions in parallel; 0 is an unknown dimension."""

    def __init__(self, dims: Dims, codes: Dims) -> None:
        self.dims, self.codes = dims, codes
        self.at = 0
        self.out: list[int] = []
        self.inferred: int | None = None
        self.lost = 0
        """Number of unknown dimensions that the result has only as a factor of a product, and of empty axes."""

    def fail(self, why: str) -> ShapeError:
        return ShapeError(f"reshape codes {self.codes} do not fit data of shape {self.dims}: {why}")

    def take(self) -> int:
        """Return the next dimension of the data."""
        if self.at >= len(self.dims):
            raise self.fail("they refer to more dimensions than the data has")
        self.at += 1
        return self.dims[self.at - 1]

    def infer_next(self) -> None:
        """Mark the next dimension of the result as inferred."""
        if self.inferred is not None:
            raise self.fail("-1 may occur only once")
        self.inferred = len(self.out)
        self.out.append(0)

    def split(self, left: int, right: int) -> None:
        """Apply code -4, which splits one dimension into two; one of the two may be -1."""
        whole = self.take()
        if left == -1 and right == -1 or left < -1 or right < -1:
            raise self.fail(f"-4 needs two sizes, of which one may be -1, not {left} and {right}")
        factor = (left if right == -1 else right) or 1
        if -1 in (left, right) and whole % factor == 0:
            left, right = (whole // factor if n == -1 else n for n in (left, right))
        if whole and left * right != whole:
            raise self.fail(f"-4 cannot split {whole} into {left} and {right}")
        self.lost += not whole
        self.out += [max(left, 0), max(right, 0)]

    def read(self) -> None:
        """Apply all codes."""
        codes = iter(self.codes)
        for code in codes:
            if code == -4:
                try:
                    self.split(next(codes), next(codes))
                except StopIteration:
                    raise self.fail("-4 needs two sizes") from None
            else:
                self.apply(code)

    def apply(self, code: int) -> None:
        """Apply a code that stands alone."""
        if code > 0 or code == _NONE:
            self.out.append(max(code, 0))
            self.at += 1
            self.lost += code == _NONE
        elif code == 0:
            self.out.append(self.take())
        elif code == -1:
            self.infer_next()
            self.at += 1
        elif code == -2:
            self.out += self.dims[self.at :]
            self.at = max(self.at, len(self.dims))
        elif code == -3:
            pair = self.take(), self.take()
            self.lost += pair.count(0)
            self.out.append(pair[0] * pair[1])
        elif code != _SKIP:
            raise self.fail(f"{code} is not a code")
        elif self.take() > 1:
            raise self.fail("only an axis of size 1 can be left out")


@lru_cache(maxsize=4096)
def resolve(dims: Dims, codes: Dims, reverse: bool = False) -> Dims:
    """Return the shape described by reshape codes.

    A positive number is a size, 0 copies the data's next dimension, -1 is inferred, -2 copies all remaining
    dimensions, -3 merges two, -4 splits one into the two numbers that follow.

    Args:
        dims: shape of the data; 0 = unknown.
        codes: one or more codes for each dimension of the result.
        reverse: match data and codes from the right; -4 then follows its two numbers.

    Returns:
        The shape, with 0 where it depends on unknown dimensions.

    Raises:
        ShapeError: the codes do not fit the shape.

    Source: MXNet 1.9.1 `Reshape`, which accepts some wrong numbers of elements.
    """
    reader = _CodeReader(dims[::-1], codes[::-1]) if reverse else _CodeReader(dims, codes)
    reader.read()
    out = reader.out
    known_in, known_out = prod([d for d in dims if d]), prod([d for d in out if d])
    unknown_out = out.count(0) - (reader.inferred is not None)
    if dims.count(0) - unknown_out == 0 and not reader.lost:
        # unknown dimensions are copied unchanged, so the known ones must match on their own
        if reader.inferred is not None and known_in % known_out == 0:
            out[reader.inferred] = known_in // known_out
        elif known_in != known_out:
            raise reader.fail(f"{known_in} elements do not fill {tuple(out)}")
    return tuple(out[::-1] if reverse else out)


@lru_cache(maxsize=4096)
def resolve_numpy(dims: Dims, codes: Dims, reverse: bool = False) -> Dims:
    """Return the shape described by the reshape codes of the NumPy interface.

    A number from 0 is a size, -1 is inferred, -2 copies the data's next dimension, -3 leaves it out if it is 1, -4
    copies all remaining dimensions, -5 merges two, -6 splits one into the two numbers that follow.

    Args:
        dims: shape of the data; 0 = unknown, or no elements.
        codes: one or more codes for each dimension of the result.
        reverse: match data and codes from the right; -6 then follows its two numbers.

    Raises:
        ShapeError: the codes do not fit the shape.

    Source: MXNet 1.9.1 `_npx_reshape`.
    """
    try:
        if min(codes, default=0) < min(_NUMPY_CODES):
            raise ShapeError(f"{min(codes)} is not a code")
        return resolve.__wrapped__(dims, tuple(_NUMPY_CODES.get(code, code) for code in codes), reverse)
    except ShapeError as error:
        why = str(error).rpartition(": ")[2]
        raise ShapeError(f"newshape {codes} does not fit data of shape {dims}: {why}") from None


def resolve_target(dims: Dims, target: Dims, keep_highest: bool) -> Dims:
    """Return the shape given by the attribute `target_shape` of old graphs.

    Args:
        dims: shape of the data; 0 = unknown.
        target: the shape; one dimension may be 0 and is inferred.
        keep_highest: take the first dimension from the data.
    """
    sizes = (-1 if d == 0 else d for d in target)
    codes = tuple(0 if keep_highest and i == 0 else d for i, d in enumerate(sizes))
    return resolve(dims, codes)

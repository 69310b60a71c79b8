"""MXNet's reshape codes, worked out on shapes."""

from __future__ import annotations

from functools import lru_cache

from ...base import ShapeError
from ..shapes import prod

Dims = tuple[int, ...]


class _CodeReader:
    """Walks the codes and the data's dimensions side by side; 0 is a dimension not known yet."""

    def __init__(self, dims: Dims, codes: Dims) -> None:
        self.dims, self.codes = dims, codes
        self.at = 0
        self.out: list[int] = []
        self.inferred: int | None = None
        self.lost = 0
        """Unknown dimensions of the data that the result holds only inside a product."""

    def fail(self, why: str) -> ShapeError:
        return ShapeError(f"reshape codes {self.codes} do not fit data of shape {self.dims}: {why}")

    def take(self) -> int:
        """Return the next dimension of the data."""
        if self.at >= len(self.dims):
            raise self.fail("they name more dimensions than there are")
        self.at += 1
        return self.dims[self.at - 1]

    def infer_next(self) -> None:
        """Leave the next dimension of the result to be worked out."""
        if self.inferred is not None:
            raise self.fail("-1 may stand only once")
        self.inferred = len(self.out)
        self.out.append(0)

    def split(self, left: int, right: int) -> None:
        """Code -4: one dimension becomes two, of which one may be -1."""
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
        """Work through the codes."""
        codes = iter(self.codes)
        for code in codes:
            if code > 0:
                self.out.append(code)
                self.at += 1
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
            elif code == -4:
                try:
                    self.split(next(codes), next(codes))
                except StopIteration:
                    raise self.fail("-4 needs two sizes") from None
            else:
                raise self.fail(f"there is no code {code}")


@lru_cache(maxsize=4096)
def resolve(dims: Dims, codes: Dims, reverse: bool = False) -> Dims:
    """Return the shape that reshape codes give.

    A positive number stands for itself, 0 copies the data's next dimension, -1 is worked out, -2 copies all
    that remain, -3 merges two, -4 splits one into the two numbers that follow.

    Args:
        dims: shape of the data; 0 = unknown.
        codes: one or more codes for each dimension of the result.
        reverse: read data and codes from the right; -4 then stands after its two numbers.

    Returns:
        The shape, with 0 where it depends on what is unknown.

    Raises:
        ShapeError: the codes do not fit the shape.

    Source: MXNet 1.9.1 `Reshape`, which lets some counts of elements that do not fit pass.
    """
    reader = _CodeReader(dims[::-1], codes[::-1]) if reverse else _CodeReader(dims, codes)
    reader.read()
    out = reader.out
    known_in, known_out = prod([d for d in dims if d]), prod([d for d in out if d])
    unknown_out = out.count(0) - (reader.inferred is not None)
    if dims.count(0) - unknown_out == 0 and not reader.lost:
        # what is unknown is copied as it stands, so the rest must match by itself
        if reader.inferred is not None and known_in % known_out == 0:
            out[reader.inferred] = known_in // known_out
        elif known_in != known_out:
            raise reader.fail(f"{known_in} elements do not make {tuple(out)}")
    return tuple(out[::-1] if reverse else out)


def resolve_target(dims: Dims, target: Dims, keep_highest: bool) -> Dims:
    """Return the shape that the attribute `target_shape` of old graphs gives.

    Args:
        dims: shape of the data; 0 = unknown.
        target: the shape, of which one dimension may be 0, to be worked out.
        keep_highest: take the first dimension from the data.
    """
    wanted = (-1 if d == 0 else d for d in target)
    codes = tuple(0 if keep_highest and i == 0 else d for i, d in enumerate(wanted))
    return resolve(dims, codes)

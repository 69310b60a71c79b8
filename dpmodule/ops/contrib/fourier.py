"""Fourier transforms of real rows, and projections onto few numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...base import BoundsError, Shape, ShapeError
from ..attrs import integer
from ..bound import bound
from ..shapes import output_shape, unify
from ..spec import ROWS, SHARE, Attr, Onnx, Shapes, arg

Tensors = Callable[..., torch.Tensor]

_SIZE = {"compute_size": Attr(integer(low=1), "accepted; all rows are transformed at once", 128)}


def _infer_fft(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data = ins[0]
    return ins, [outs[0] if data is None else output_shape(outs[0], (*data[:-1], 2 * data[-1]))]


@bound(
    "_contrib_fft",
    [arg("data", ROWS)],
    _SIZE,
    infer=_infer_fft,
    onnx=Onnx(builder="fft"),
)
def fft(a: Any) -> Tensors:
    """Return the discrete Fourier transform of the last axis, real and imaginary parts in turn.

    Shape:
        data: (..., D), real.
        returns: (..., 2 * D).

    Source: MXNet 1.9.1 `_contrib_fft`, which runs on GPUs only.
    """

    def fft(x: torch.Tensor) -> torch.Tensor:
        return torch.view_as_real(torch.fft.fft(x)).flatten(-2)

    return fft


def _infer_ifft(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data = ins[0]
    if data is None:
        return ins, outs
    if data[-1] % 2:
        raise ShapeError(
            f"_contrib_ifft: data has shape {data}, expected an even last axis: pairs of numbers"
        )
    return ins, [output_shape(outs[0], (*data[:-1], data[-1] // 2))]


@bound(
    "_contrib_ifft",
    [arg("data", ROWS)],
    _SIZE,
    infer=_infer_ifft,
    onnx=Onnx(builder="ifft"),
)
def ifft(a: Any) -> Tensors:
    """Return the real part of the inverse Fourier transform of the last axis, times its length.

    Shape:
        data: (..., 2 * D): real and imaginary parts in turn.
        returns: (..., D). To undo `fft`, divide by D.

    Source: MXNet 1.9.1 `_contrib_ifft`, which runs on GPUs only.
    """

    def ifft(x: torch.Tensor) -> torch.Tensor:
        real, imaginary = x.reshape(*x.shape[:-1], -1, 2).unbind(-1)
        found: torch.Tensor = torch.fft.ifft(torch.complex(real, imaginary), norm="forward")
        return found.real

    return ifft


def _infer_sketch(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data, hashes, signs = ins
    if data is None:
        return ins, outs
    one = (1, data[-1])
    what = "h or s of _contrib_count_sketch"
    found = output_shape(outs[0], (*data[:-1], a.out_dim))
    return [data, unify(hashes, one, what), unify(signs, one, what)], [found]


@bound(
    "_contrib_count_sketch",
    [arg("data", ROWS), arg("h", SHARE), arg("s", SHARE)],
    {
        "out_dim": Attr(integer(low=1), "length of the result's last axis"),
        "processing_batch_size": Attr(integer(low=1), "accepted; all rows are computed at once", 32),
    },
    infer=_infer_sketch,
    onnx=Onnx(builder="count_sketch"),
)
def count_sketch(a: Any) -> Tensors:
    """Add each column, with its sign, to the column of the result that its hash names.

    Shape:
        data: (..., D).
        h: (1, D): whole numbers from 0 to out_dim - 1; no gradient.
        s: (1, D): 1 or -1; no gradient.
        returns: (..., out_dim).

    Source: MXNet 1.9.1 `_contrib_count_sketch`, which runs on GPUs only; Charikar et al. (2002).
    """
    size = a.out_dim

    def count_sketch(data: torch.Tensor, hashes: torch.Tensor, signs: torch.Tensor) -> torch.Tensor:
        places = hashes.detach().reshape(-1).long()
        if places.numel() != data.shape[-1] or signs.numel() != data.shape[-1]:
            raise ShapeError(
                f"_contrib_count_sketch: data is {tuple(data.shape)}, h {tuple(hashes.shape)} and s "
                f"{tuple(signs.shape)}, expected one hash and sign per column"
            )
        if places.numel() and (int(places.min()) < 0 or int(places.max()) >= size):
            raise BoundsError(
                f"_contrib_count_sketch: h runs from {int(places.min())} to {int(places.max())}, "
                f"expected 0 to {size - 1}"
            )
        signed = data * signs.detach().reshape(-1)
        return data.new_zeros((*data.shape[:-1], size)).index_add(-1, places, signed)

    return count_sketch

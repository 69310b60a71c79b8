"""Normalization of vectors and weights."""

from __future__ import annotations

import math
from typing import Any

import torch

from .binary import CDIV, CMULT, MINUS, SUM, equal, reduced
from .kernels import chain, fits, seen_as
from .kernels import reduced as along_dimensions
from .native_numbers import BINARY, OP, Attrs, Machine, Nodes
from .spec import BatchCall, Dim, Dims, Grads, declare, fail, same_batch, wide
from .unary import UNARY

Tensor = torch.Tensor


def _centred(x: Tensor) -> tuple[Tensor, Tensor]:
    axes = list(range(2, x.dim()))
    centred = x - x.mean(axes, keepdim=True)
    size = centred.square().mean(axes, keepdim=True).sqrt()
    return centred / size, size


def _layer(call: BatchCall, x: Tensor, g: Tensor, b: Tensor) -> Tensor:
    call.saved = _centred(x)
    answer: Tensor = call.saved[0] * g + b
    return answer


def _layer_grad(call: BatchCall, grad: Tensor, x: Tensor, g: Tensor, b: Tensor) -> Grads:
    normal, size = call.saved
    axes = list(range(2, x.dim()))
    part = grad * g
    inner = part - part.mean(axes, keepdim=True) - normal * (part * normal).mean(axes, keepdim=True)
    return [reduced(inner / size, x), reduced(grad * normal, g), reduced(grad, b)]


def _weight_shape(attrs: Attrs, dims: Dims) -> Dim:
    if dims[1].size != 1:
        fail("weight_norm", dims, "the length needs to be one number")
    return Dim(dims[0].d, same_batch("weight_norm", dims))


def _weight(call: BatchCall, w: Tensor, g: Tensor) -> Tensor:
    return w * (wide(g, w) / wide(w.flatten(2).square().sum(2).sqrt(), w))


def _layer_kernel(engine: Machine, attrs: Attrs, args: Nodes, aux: Any) -> int:
    x, gains, biases = args
    dims = [engine.dim(arg)[0] for arg in args]
    if len(dims[0]) > 1 or dims[1:] != dims[:1] * 2:
        return -1
    centred = chain(engine, x, (MINUS, along_dimensions(engine, "mean_dim", x, (0,), False)))
    squares = chain(engine, centred, (UNARY["square"], None))
    deviation = chain(
        engine, along_dimensions(engine, "mean_dim", squares, (0,), False), (UNARY["sqrt"], None)
    )
    return chain(engine, centred, (CDIV, deviation), (CMULT, gains), (SUM, biases))


def _weight_kernel(engine: Machine, attrs: Attrs, args: Nodes, aux: Any) -> int:
    w, length = args
    if math.prod(engine.dim(length)[0]) != 1 or not fits(engine, w, length):
        return -1
    norm = along_dimensions(engine, "l2_norm", w, range(len(engine.dim(w)[0])), False)
    factor = engine.kernel(OP["binary"], BINARY["div"], (seen_as(engine, length, (1,)), norm))
    return engine.kernel(OP["binary"], BINARY["mul"], (w, factor))


LAYER_NORM = declare(
    "layer_norm", equal("layer_norm", "input, gains and biases"), _layer, _layer_grad, kernel=_layer_kernel
)
WEIGHT_NORM = declare("weight_norm", _weight_shape, _weight, kernel=_weight_kernel)

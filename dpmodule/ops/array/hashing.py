"""Hashes of rows of integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ...base import Shape
from ..attrs import integer
from ..registry import op
from ..shapes import output_shape
from ..spec import ROWS, Attr, Env, Onnx, Shapes, Types, arg

_PRIMES = [
    np.uint64(prime)
    for prime in (
        11400714785074694791,
        14029467366897019727,
        1609587929392839161,
        9650029242287828579,
        2870177450012600261,
    )
]
"""Factors of XXH64."""


def _turned(numbers: Any, bits: int) -> Any:
    return (numbers << np.uint64(bits)) | (numbers >> np.uint64(64 - bits))


def _mixed(total: Any, lane: Any) -> Any:
    return _turned(total + lane * _PRIMES[1], 31) * _PRIMES[0]


def xxh64(rows: Any, seed: int) -> Any:
    """Return the hash of each row of 64-bit numbers, whose bytes are in little-endian order.

    Args:
        rows: (N, k) uint64.

    Returns:
        (N,) uint64.

    Source: Collet, "xxHash fast digest algorithm", XXH64.
    """
    one, two, _, four, five = _PRIMES
    start, lanes = np.uint64(seed), list(rows.T)
    with np.errstate(over="ignore"):
        total = np.full(len(rows), start + five)
        if len(lanes) >= 4:
            parts = [
                np.full(len(rows), each) for each in (start + one + two, start + two, start, start - one)
            ]
            while len(lanes) >= 4:
                parts = [_mixed(part, lane) for part, lane in zip(parts, lanes)]
                lanes = lanes[4:]
            total = sum(_turned(part, bits) for part, bits in zip(parts, (1, 7, 12, 18)))
            for part in parts:
                total = (total ^ _mixed(np.uint64(0), part)) * one + four
        total = total + np.uint64(8 * rows.shape[1])
        for lane in lanes:
            total = _turned(total ^ _mixed(np.uint64(0), lane), 27) * one + four
        for bits, factor in ((33, two), (29, _PRIMES[2])):
            total = (total ^ (total >> np.uint64(bits))) * factor
        return total ^ (total >> np.uint64(32))


def _infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data = ins[0]
    if data is None:
        return ins, outs
    return [data], [output_shape(outs[0], (*data[:-1], a.num_hash, 1))]


def _infer_type(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    return ins, ["int64"]


@op(
    "_xxhash",
    [arg("data", ROWS)],
    {
        "hash_size": Attr(integer(low=1), "number of values"),
        "num_hash": Attr(integer(low=1), "number of hashes of each row", 1),
    },
    infer=_infer,
    infer_type=_infer_type,
    onnx=Onnx(missing="ONNX has no hash functions"),
)
def xxhash(a: Any, env: Env, data: torch.Tensor) -> torch.Tensor:
    """Return XXH64 of the numbers of the last axis, as int64, modulo hash_size; the seeds are 0, 1, ...

    Shape:
        data: (N, ..., k), integers.
        output: (N, ..., num_hash, 1) int64.

    Source: Collet, "xxHash fast digest algorithm", XXH64; Paddle 1.8 `fluid.layers.hash`.
    """
    numbers = data.detach().long().cpu().numpy().astype("<i8").view(np.uint64)
    rows = numbers.reshape(-1, numbers.shape[-1])
    size = np.uint64(a.hash_size)
    hashes = np.stack([xxh64(rows, seed) % size for seed in range(a.num_hash)], 1)
    found = torch.from_numpy(hashes.astype(np.int64)).to(data.device)
    return found.reshape(*data.shape[:-1], a.num_hash, 1)

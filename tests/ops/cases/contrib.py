"""Operators of ``contrib`` that no recorded call covers, or not in float64, against NumPy."""

import numpy as np

from helpers.op_case import OpCase

RANDOM = np.random.RandomState(2)
X = RANDOM.uniform(-2, 2, (2, 6))
HASHES, SIGNS = np.array([[0.0, 3, 1, 3, 2, 0]]), np.array([[1.0, -1, 1, 1, -1, -1]])
PACKED = RANDOM.uniform(-1, 1, (3, 2, 2 * 3 * 2))
QUERIES, BOTH = RANDOM.uniform(-1, 1, (3, 2, 4)), RANDOM.uniform(-1, 1, (4, 2, 2 * 2 * 2))
ATTENTION, ACROSS = RANDOM.uniform(-1, 1, (4, 3, 3)), RANDOM.uniform(-1, 1, (4, 3, 4))
GRAPH = np.array([[0.0, 5.0], [7.0, 0.0]])
NO_FRACTIONS = "positions and counts have none"


def fft(x):
    found = np.fft.fft(x)
    return np.stack([found.real, found.imag], -1).reshape(*x.shape[:-1], -1)


def ifft(x):
    pairs = x[..., ::2] + 1j * x[..., 1::2]
    return np.fft.ifft(pairs).real * pairs.shape[-1]


def sketch(x, h, s):
    out = np.zeros((len(x), 4))
    for column, (place, sign) in enumerate(zip(h[0].astype(int), s[0])):
        out[:, place] += sign * x[:, column]
    return out


def heads(x, parts):
    """Return (parts, N * 2 heads, L, D)."""
    length, batch, _ = x.shape
    return (
        x.reshape(length, batch, 2, parts, -1).transpose(3, 1, 2, 0, 4).reshape(parts, batch * 2, length, -1)
    )


def scores(queries, keys):
    return queries @ keys.swapaxes(1, 2) / np.sqrt(queries.shape[-1])


def weighted(values, attention):
    found = attention @ values
    count, length, size = found.shape
    return found.reshape(count // 2, 2, length, size).transpose(2, 0, 1, 3).reshape(length, count // 2, -1)


CASES = [
    OpCase("_contrib_fft", (X,), {}, fft),
    OpCase("_contrib_ifft", (X,), {}, ifft),
    OpCase("_contrib_count_sketch", (X, HASHES, SIGNS), {"out_dim": 4}, sketch, grad=(0,)),
    OpCase("_contrib_getnnz", (GRAPH,), {"axis": 1}, lambda x: (x != 0).sum(1), no_grad=NO_FRACTIONS),
    OpCase(
        "_contrib_edge_id",
        (GRAPH, np.array([0, 0]), np.array([1, 0])),
        {},
        lambda x, u, v: np.array([5.0, -1.0]),
        no_grad=NO_FRACTIONS,
    ),
    OpCase(
        "_contrib_interleaved_matmul_selfatt_qk", (PACKED,), {"heads": 2}, lambda x: scores(*heads(x, 3)[:2])
    ),
    OpCase(
        "_contrib_interleaved_matmul_selfatt_valatt",
        (PACKED, ATTENTION),
        {"heads": 2},
        lambda x, att: weighted(heads(x, 3)[2], att),
    ),
    OpCase(
        "_contrib_interleaved_matmul_encdec_qk",
        (QUERIES, BOTH),
        {"heads": 2},
        lambda q, kv: scores(heads(q, 1)[0], heads(kv, 2)[0]),
    ),
    OpCase(
        "_contrib_interleaved_matmul_encdec_valatt",
        (BOTH, ACROSS),
        {"heads": 2},
        lambda kv, att: weighted(heads(kv, 2)[1], att),
    ),
    OpCase("_contrib_quadratic", (X,), {"a": 2.0, "b": -1.0, "c": 0.5}, lambda x: 2 * x * x - x + 0.5),
    OpCase("_contrib_div_sqrt_dim", (X,), {}, lambda x: x / np.sqrt(6)),
    OpCase(
        "_contrib_index_copy",
        (X, np.array([1]), X[:1] * 3),
        {},
        lambda old, index, new: np.stack([old[0], new[0]]),
        grad=(0, 2),
    ),
    OpCase(
        "_contrib_hawkesll",
        (
            np.full((1, 2), 0.7),
            np.array([0.3, 0.5]),
            np.array([1.0, 2.0]),
            np.zeros((1, 2)),
            np.array([[0.5, 0.25, 1.0]]),
            np.array([[0, 0, 1]], dtype="int32"),
            np.array([3.0]),
            np.array([2.0]),
        ),
        {},
        grad=(0, 1, 2),
    ),
]

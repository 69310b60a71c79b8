"""Operators of ``mx.npx``, against NumPy."""

import numpy as np

from helpers.arrays import f8
from helpers.op_case import OpCase

SOURCE = np.random.RandomState(3)
X = SOURCE.uniform(-2, 2, (2, 3, 4))
MASK = SOURCE.randint(0, 2, (2, 1, 4)).astype(bool)
MASK[0] = [True, False, True, True]
MASK[1] = False
ROWS, VALUES = np.array([[0, 1, 1], [2, 0, 0]], "i4"), SOURCE.uniform(-1, 1, (3, 4))
TRUTHS = "truth values have none"


def reshaped(codes, after, **more):
    return OpCase("_npx_reshape", (X,), {"newshape": codes, **more}, lambda x: x.reshape(after))


def masked_softmax(x, mask, temperature=1.0):
    kept = np.exp(x / temperature) * mask
    total = kept.sum(-1, keepdims=True)
    return kept / np.where(total == 0, 1, total)


def masked_logs(x, mask):
    with np.errstate(divide="ignore"):
        return np.log(masked_softmax(x, mask))


def added(x, rows, values):
    out = x.copy()
    np.add.at(out, tuple(rows), values)
    return out


def updated(x, rows, values):
    out = x.copy()
    out[tuple(rows)] = values
    return out


CASES = [
    reshaped((-2, -5), (2, 12)),
    reshaped((-2, -2, -6, -1, 2), (2, 3, 2, 2)),
    reshaped((-1, -4), (2, 3, 4)),
    reshaped((-5, -2), (6, 4), reverse=True),
    OpCase("_npx_constraint_check", (~MASK[1],), {}, lambda x: np.bool_(x.all()), no_grad=TRUTHS),
    OpCase("_npx_masked_softmax", (X, MASK), {}, masked_softmax, grad=(0,)),
    OpCase(
        "_npx_masked_softmax",
        (X, MASK),
        {"temperature": 2.0},
        lambda x, m: masked_softmax(x, m, 2),
        grad=(0,),
    ),
    OpCase(
        "_npx_masked_softmax",
        (X, np.swapaxes(MASK, 1, 2)[:, :3]),
        {"axis": 1},
        lambda x, m: np.swapaxes(masked_softmax(np.swapaxes(x, 1, 2), np.swapaxes(m, 1, 2)), 1, 2),
        grad=(0,),
    ),
    OpCase("_npx_masked_log_softmax", (X[:1], np.ones((1, 1, 4), bool)), {}, masked_logs, grad=(0,)),
    OpCase("_npx_masked_log_softmax", (X, MASK), {}, masked_logs, no_grad="infinite differences"),
    OpCase("_npx_index_add", (X, ROWS, VALUES), {}, added, grad=(0, 2)),
    OpCase("_npx_index_add", (X, ROWS[:1], f8(1.5)), {}, added, grad=(0,)),
    OpCase("_npx_index_update", (X, ROWS[:, :2], VALUES[:2]), {}, updated, grad=(0, 2)),
    OpCase("_npx_index_update", (X, ROWS[:, :2], VALUES[:1, :1]), {}, updated, grad=(0, 2)),
    OpCase("_npx_log_sigmoid", (X,), {}, lambda x: -np.log1p(np.exp(-x))),
    OpCase(
        "_npx_gelu_tanh",
        (X,),
        {},
        lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    ),
    OpCase("_npx_mish", (X,), {}, lambda x: x * np.tanh(np.log1p(np.exp(x)))),
]

"""Linear algebra, against NumPy."""

import numpy as np

from helpers.op_case import OpCase

RANDOM = np.random.RandomState(0)


def real(*shape):
    return RANDOM.uniform(-1, 1, shape)


def swap(x):
    return np.swapaxes(x, -1, -2)


A, B, C = real(2, 3, 4), real(2, 4, 2), real(2, 3, 2)
SQUARE = real(2, 3, 3) + 2 * np.eye(3)
WIDE = real(2, 2, 4)


def khatri_rao(x, y):
    return np.stack([np.kron(x[:, i], y[:, i]) for i in range(x.shape[1])], 1)


def lq(x):
    found = [np.linalg.qr(each.T) for each in x]
    return np.stack([q.T for q, _ in found]), np.stack([r.T for _, r in found])


CASES = [
    OpCase("_linalg_gemm2", (A, B), {"alpha": 2.0}, lambda a, b: 2 * a @ b),
    OpCase("_linalg_gemm", (A, B, C), {"beta": 0.5}, lambda a, b, c: a @ b + 0.5 * c),
    OpCase("_linalg_syrk", (A,), {"transpose": True}, lambda a: swap(a) @ a),
    OpCase("_linalg_trmm", (SQUARE, C), {}, lambda a, b: np.tril(a) @ b),
    OpCase(
        "_linalg_trsm", (SQUARE, C), {"transpose": True}, lambda a, b: np.linalg.solve(swap(np.tril(a)), b)
    ),
    OpCase(
        "_linalg_trsm",
        (SQUARE, swap(C)),
        {"rightside": True, "lower": False},
        lambda a, b: b @ np.linalg.inv(np.triu(a)),
    ),
    OpCase("_linalg_potri", (SQUARE,), {}, lambda a: np.linalg.inv(np.tril(a) @ swap(np.tril(a)))),
    OpCase(
        "_linalg_potrf",
        (SQUARE @ swap(SQUARE),),
        {},
        np.linalg.cholesky,
        no_grad="symmetric input: the recorded gradient is the symmetric one",
    ),
    OpCase(
        "_linalg_syevd",
        (SQUARE @ swap(SQUARE),),
        {},
        no_grad="symmetric input: the recorded gradient is the symmetric one",
    ),
    OpCase("_linalg_gelqf", (WIDE,), {}, lq),
    OpCase("_linalg_inverse", (SQUARE,), {}, np.linalg.inv),
    OpCase("_linalg_det", (SQUARE,), {}, np.linalg.det),
    OpCase(
        "_linalg_slogdet",
        (SQUARE,),
        {},
        lambda a: tuple(np.linalg.slogdet(a)),
        no_grad="the first output is a sign",
    ),
    OpCase("_linalg_sumlogdiag", (SQUARE,), {}, lambda a: np.log(np.diagonal(a, axis1=1, axis2=2)).sum(1)),
    OpCase("_linalg_extractdiag", (SQUARE,), {"offset": 1}, lambda a: np.diagonal(a, 1, 1, 2).copy()),
    OpCase("_linalg_makediag", (A[0],), {"offset": -1}, lambda a: np.stack([np.diag(row, -1) for row in a])),
    OpCase("_linalg_extracttrian", (SQUARE,), {}, lambda a: a[:, [0, 1, 1, 2, 2, 2], [0, 0, 1, 0, 1, 2]]),
    OpCase("_linalg_maketrian", (real(2, 3),), {}, lambda a: np.stack([[[x, 0], [y, z]] for x, y, z in a])),
    OpCase("khatri_rao", (real(2, 3), real(4, 3)), {}, khatri_rao),
]

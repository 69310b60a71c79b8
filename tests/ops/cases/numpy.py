"""Operators of MXNet's NumPy interface that no recorded call covers, against NumPy."""

import numpy as np

from helpers.arrays import f4, f8
from helpers.op_case import OpCase

SOURCE = np.random.RandomState(2)
X, Y = SOURCE.uniform(0.3, 2, (2, 3)), SOURCE.uniform(0.3, 2, (3,))
M = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, -0.25], [0.5, -0.25, 2.0]])
WHOLE, POSITIVE = np.array([[5, -7, 6], [12, 9, -8]], "i4"), np.array([3, 2, 4], "i4")
MASK = np.array([[True, False, True], [False, False, True]])
INTEGERS, TRUTHS, WHERE = "of integers", "truth values have none", "where it is 0 or the values jump"
UNSIGNED = "signs are arbitrary"


def assigned(data, mask, value):
    out = data.copy()
    out[mask] = value
    return out


def chosen(data, mask):
    return assigned(data, mask, 7)


def least_squares(a, b):
    solution, residuals, rank, values = np.linalg.lstsq(a, b, rcond=None)
    return solution, residuals, np.int32(rank), values


def with_diagonal(x):
    out = x.copy()
    np.fill_diagonal(out, [1, 2])
    return out


def number(name, scalar, function, reverse=False, **more):
    def expect(x):
        return function(scalar, x) if reverse else function(x, scalar)

    return OpCase(name, (more.pop("x", X),), {"scalar": scalar, "is_int": False}, expect, **more)


def shift(name, function, reverse=False):
    def expect(x):
        return function(np.int32(2), x) if reverse else function(x, 2)

    return OpCase(name, (POSITIVE,), {"scalar": 2}, expect, no_grad=INTEGERS)


CASES = [
    OpCase("_npi_advanced_indexing", (X, np.array([1, 0, 1])), {}, lambda x, i: x[i], grad=(0,)),
    OpCase("_npi_advanced_indexing", (X, MASK), {}, lambda x, m: x[m], grad=(0,)),
    OpCase(
        "_npi_array_split", (X,), {"indices": (), "axis": 1, "sections": 2}, lambda x: (x[:, :2], x[:, 2:])
    ),
    OpCase("_npi_array_split", (X,), {"indices": (0, 1), "axis": 0}, lambda x: (x[:1], x[1:])),
    OpCase(
        "_npi_bincount",
        (POSITIVE,),
        {"minlength": 7},
        lambda x: np.bincount(x, minlength=7).astype("i4"),
        no_grad=INTEGERS,
    ),
    OpCase("_npi_bincount", (POSITIVE, Y), {"has_weights": True}, np.bincount, grad=(1,)),
    OpCase("_npi_bitwise_left_shift", (WHOLE, POSITIVE), {}, np.left_shift, no_grad=INTEGERS),
    OpCase("_npi_bitwise_right_shift", (WHOLE, POSITIVE), {}, np.right_shift, no_grad=INTEGERS),
    shift("_npi_bitwise_left_shift_scalar", np.left_shift),
    shift("_npi_bitwise_right_shift_scalar", np.right_shift),
    shift("_npi_rbitwise_left_shift_scalar", np.left_shift, True),
    shift("_npi_rbitwise_right_shift_scalar", np.right_shift, True),
    shift("_npi_gcd_scalar", np.gcd),
    OpCase("_npi_gcd", (WHOLE, POSITIVE), {}, np.gcd, no_grad=INTEGERS),
    OpCase("_npi_boolean_mask_assign_scalar", (X, MASK), {"value": 7}, chosen, grad=(0,)),
    OpCase("_npi_boolean_mask_assign_tensor", (X, MASK, f8([1, 2, 3])), {}, assigned, grad=(0, 2)),
    OpCase("_npi_boolean_mask_assign_tensor", (X, MASK, f8([5])), {}, assigned, grad=(0, 2)),
    OpCase("_npi_cross", (X, X[::-1].copy()), {}, np.cross),
    OpCase("_npi_cross", (X[:, :2].copy(), Y[:2].copy()), {}, lambda x, y: x[:, 0] * y[1] - x[:, 1] * y[0]),
    OpCase("_npi_cross", (X.T.copy(), X), {"axisa": 0, "axisc": 0}, lambda x, y: np.cross(x, y, 0, -1, 0)),
    OpCase("_npi_delete", (X,), {"int_ind": 1, "axis": 1}, lambda x: np.delete(x, 1, 1)),
    OpCase("_npi_delete", (X,), {"start": 0, "stop": 2, "axis": 1}, lambda x: np.delete(x, slice(0, 2), 1)),
    OpCase("_npi_delete", (X,), {"int_ind": -1}, lambda x: np.delete(x, -1)),
    OpCase("_npi_delete", (X, np.array([0, 2])), {"axis": 1}, lambda x, i: np.delete(x, i, 1), grad=(0,)),
    OpCase("_npi_eig", (np.diag([3.0, 2.0]),), {}, np.linalg.eig, no_grad="MXNet's is 0"),
    OpCase("_npi_eigh", (np.diag([1.0, 2.0, 4.0]),), {}, np.linalg.eigh, no_grad=UNSIGNED),
    OpCase("_npi_fill_diagonal", (X,), {"val": (1, 2)}, with_diagonal),
    OpCase("_npi_floor_divide", (X, Y), {}, np.floor_divide, no_grad=WHERE),
    OpCase("_npi_floor_divide", (WHOLE, POSITIVE), {}, np.floor_divide, no_grad=INTEGERS),
    number("_npi_floor_divide_scalar", 0.7, np.floor_divide, no_grad=WHERE),
    number("_npi_rfloor_divide_scalar", 2.5, np.floor_divide, True, no_grad=WHERE),
    OpCase("_npi_fmod", (X - 1, Y), {}, np.fmod),
    OpCase("_npi_fmod", (WHOLE, POSITIVE), {}, np.fmod, no_grad=INTEGERS),
    number("_npi_fmod_scalar", 0.7, np.fmod),
    number("_npi_rfmod_scalar", 2.5, np.fmod, True),
    OpCase("_npi_fmax", (X, Y), {}, np.fmax),
    OpCase("_npi_fmax", (f8([1, np.nan]), f8([np.nan, 2])), {}, np.fmax, no_grad=WHERE),
    number("_npi_fmax_scalar", 1.1, np.fmax),
    OpCase("_npi_fmin", (X, Y), {}, np.fmin),
    number("_npi_fmin_scalar", 1.1, np.fmin),
    OpCase(
        "_npi_interp",
        (f8([0, 1, 3]), f8([1, 5, 2]), f8([-1, 0.5, 2, 4])),
        {},
        lambda p, f, x: np.interp(x, p, f),
        grad=(1,),
    ),
    OpCase(
        "_npi_interp",
        (f8([0, 1, 3]), f8([1, 5, 2])),
        {"x_scalar": 2.5, "x_is_scalar": True, "left": 0},
        lambda p, f: np.interp(2.5, p, f),
        grad=(1,),
    ),
    OpCase("_npi_kron", (X, Y), {}, np.kron),
    OpCase("_npi_laplace", (), {"loc": 1, "scale": 0, "size": (2,)}, lambda: f4([1, 1]), no_grad="no inputs"),
    OpCase("_npi_logaddexp", (X, Y), {}, np.logaddexp),
    number("_npi_logaddexp_scalar", 0.7, np.logaddexp),
    OpCase("_npi_logical_and", (WHOLE * MASK, POSITIVE), {}, np.logical_and, no_grad=TRUTHS),
    OpCase("_npi_logical_or", (WHOLE * MASK, POSITIVE), {}, np.logical_or, no_grad=TRUTHS),
    OpCase("_npi_logical_xor", (WHOLE * MASK, POSITIVE), {}, np.logical_xor, no_grad=TRUTHS),
    number("_npi_logical_and_scalar", 0.5, np.logical_and, x=X * MASK, no_grad=TRUTHS),
    number("_npi_logical_or_scalar", 0.0, np.logical_or, x=X * MASK, no_grad=TRUTHS),
    number("_npi_logical_xor_scalar", 0.5, np.logical_xor, x=X * MASK, no_grad=TRUTHS),
    OpCase("_npi_matrix_rank_none_tol", (np.outer(Y, Y),), {}, lambda m: np.int64(1), no_grad=INTEGERS),
    OpCase("_npi_lstsq", (X.T.copy(), Y), {}, least_squares, grad=(0, 1)),
    OpCase(
        "_npi_lstsq", (X, X[:, :1].copy()), {"new_default": True}, least_squares, no_grad="of the line above"
    ),
    OpCase(
        "_npi_matrix_rank",
        (np.diag([1.0, 0.1]), f8([0.2])[0]),
        {},
        lambda m, t: np.int64(1),
        no_grad=INTEGERS,
    ),
    OpCase("_npi_qr", (np.triu(M),), {}, lambda m: (np.eye(3), m), no_grad=UNSIGNED),
    OpCase("_npi_repeats", (X,), {"repeats": (1, 0, 2), "axis": 1}, lambda x: np.repeat(x, [1, 0, 2], 1)),
    OpCase("_npi_repeats", (X,), {"repeats": 2}, lambda x: np.repeat(x, 2)),
    OpCase("_npi_rollaxis", (X[None],), {"axis": 2, "start": 0}, lambda x: np.rollaxis(x, 2)),
    OpCase(
        "_npi_svd", (np.diag([3.0, 2.0]),), {}, lambda m: (np.eye(2), f8([3, 2]), np.eye(2)), no_grad=UNSIGNED
    ),
    OpCase("_npi_tri", (), {"N": 2, "M": 3, "k": 1}, lambda: np.tri(2, 3, 1, "f4"), no_grad="no inputs"),
    OpCase("_npi_tril_indices", (), {"n": 3, "k": -1}, lambda: np.tril_indices(3, -1), no_grad="no inputs"),
    OpCase("_npi_triu", (X,), {"k": 1}, lambda x: np.triu(x, 1)),
    OpCase("_npi_unique", (f8([3, 1, 1]),), {}, np.unique, no_grad="MXNet has none"),
    OpCase(
        "_npi_unique",
        (f8([3, 1, 1]),),
        {"return_index": True, "return_inverse": True, "return_counts": True},
        lambda x: np.unique(x, True, True, True),
        no_grad="MXNet has none",
    ),
    # whose gradients are wrong or missing in MXNet
    OpCase("_np_atleast_2d", (Y,), {}, np.atleast_2d),
    OpCase(
        "_npi_average",
        (X, X[::-1].copy()),
        {"returned": True},
        lambda x, w: ((x * w).sum() / w.sum(), w.sum()),
    ),
    OpCase("_npi_eigvalsh", (np.diag([1.0, 2.0, 4.0]),), {}, np.linalg.eigvalsh),
    OpCase("_npi_matmul", (X, np.stack([X.T, 2 * X.T])), {}, np.matmul),
    OpCase("_npi_norm", (X,), {"ord": 1.0, "axis": (0, 1)}, lambda x: np.linalg.norm(x, 1)),
    OpCase("_npi_norm", (X,), {"flag": 2}, lambda x: np.linalg.norm(x, "nuc")),
    OpCase("_npi_percentile", (X,), {"q_scalar": 30.0}, lambda x: f8(np.percentile(x, 30))),
    OpCase("_npi_pinv", (X, f8([1e-9])[0]), {}, lambda x, r: np.linalg.pinv(x), grad=(0,)),
    OpCase("_npi_pinv_scalar_rcond", (X,), {}, np.linalg.pinv),
    OpCase("_npi_rarctan2_scalar", (X,), {"scalar": 1.5, "is_int": False}, lambda x: np.arctan2(1.5, x)),
    OpCase("_npi_rot90", (X,), {}, np.rot90),
    OpCase("_npi_std", (X,), {"axis": 1}, lambda x: x.std(1)),
    OpCase("_npi_var", (X,), {"ddof": 1}, lambda x: x.var(ddof=1)),
    OpCase("_npi_where_lscalar", (MASK, X), {"scalar": 1.5}, lambda m, x: np.where(m, 1.5, x), grad=(1,)),
    OpCase("_npi_where_rscalar", (MASK, X), {"scalar": 1.5}, lambda m, x: np.where(m, x, 1.5), grad=(1,)),
    # where MXNet gives 0
    OpCase("_np_prod", (np.zeros((0, 2)),), {"axis": 0}, lambda x: x.prod(0), no_grad="it is empty"),
    OpCase("_npi_mean", (np.zeros((2, 0)),), {"axis": 0}, lambda x: x.mean(0), no_grad="it is empty"),
]

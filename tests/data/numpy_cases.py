"""Calls of the operators with ``_np_`` and ``_npi_`` that `record_mxnet.py numpy_ops` runs in MXNet 1.9.1.

A row is a name, an operator, attributes as text, and inputs. `GROUPS` has the rows of each file in ``goldens/ops``.
Operators with numbers from a generator are not here, nor those of MXNet 2.0.
"""

import numpy as np

_SOURCE = np.random.RandomState(7)


def real(*shape, low=-2.0, high=2.0, dtype="f4"):
    """Return numbers away from 0 and from each other."""
    count = int(np.prod(shape))
    values = np.linspace(low, high, count + 1)[1:] - (high - low) / (2.3 * (count + 1))
    return _SOURCE.permutation(values).reshape(shape).astype(dtype)


def whole(*shape, low=-3, high=5, dtype="i4"):
    return _SOURCE.randint(low, high, shape).astype(dtype)


def truth(*shape):
    return _SOURCE.randint(0, 2, shape).astype("bool")


def rows_of(*rows):
    return [(name, op, attrs, inputs) for name, op, attrs, *inputs in rows]


M = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, -0.25], [0.5, -0.25, 2.0]], "f4")
"""Symmetric and positive definite."""

DOMAIN = {
    "arccos": (-0.9, 0.9),
    "arccosh": (1.1, 3.0),
    "arcsin": (-0.9, 0.9),
    "arctanh": (-0.9, 0.9),
    "log": (0.2, 3.0),
    "log10": (0.2, 3.0),
    "log1p": (-0.8, 3.0),
    "log2": (0.2, 3.0),
    "sqrt": (0.2, 3.0),
    "tan": (-1.0, 1.0),
    "cbrt": (0.2, 3.0),
    "reciprocal": (0.3, 3.0),
}
UNARY = """
absolute arccos arccosh arcsin arcsinh arctan arctanh cbrt ceil cos cosh degrees exp expm1 fix floor log log10 log1p
log2 negative radians reciprocal rint sign sin sinh sqrt square tan tanh trunc
"""
SPECIAL = np.array([0.0, 1.5, np.nan, np.inf, -np.inf, -0.0], "f4")

unary = [
    (f"u_{op}", f"_npi_{op}", {}, [real(2, 3, low=low, high=high)])
    for op in UNARY.split()
    for low, high in [DOMAIN.get(op, (-2.0, 2.0))]
]
unary += rows_of(
    ("u_exp_int", "_npi_exp", {}, whole(4)),
    ("u_sqrt_scalar", "_npi_sqrt", {}, np.array(2.25, "f4")),
    ("u_tanh_empty", "_npi_tanh", {}, np.zeros((0, 3), "f4")),
    ("u_square_f64", "_npi_square", {}, real(3, dtype="f8")),
    ("u_sin_f16", "_npi_sin", {}, real(3, dtype="f2")),
    ("u_around", "_npi_around", {}, np.array([0.5, 1.5, -0.6, 2.5], "f4")),
    ("u_around_1", "_npi_around", {"decimals": "1"}, real(5)),
    ("u_around_int", "_npi_around", {"decimals": "-1"}, np.array([15, 24, -37], "i4")),
    ("u_bitwise_not", "_npi_bitwise_not", {}, whole(4)),
    ("u_bitwise_not_bool", "_npi_bitwise_not", {}, truth(4)),
    ("u_nan_to_num", "_npi_nan_to_num", {}, SPECIAL),
    ("u_nan_to_num_given", "_npi_nan_to_num", {"nan": "2", "posinf": "7", "neginf": "-7"}, SPECIAL),
)
unary += [
    (f"u_{op}", f"_npi_{op}", {}, [SPECIAL])
    for op in ["logical_not", "isnan", "isinf", "isposinf", "isneginf", "isfinite"]
]
unary += [("u_logical_not_int", "_npi_logical_not", {}, [whole(5)])]

PAIRS = ["add", "subtract", "multiply", "true_divide", "mod", "power", "copysign", "ldexp", "arctan2", "hypot"]
COMPARED = ["equal", "not_equal", "greater", "greater_equal", "less", "less_equal"]
binary = [(f"b_{op}", f"_npi_{op}", {}, [real(2, 3, low=0.3), real(3, low=0.4, high=3)]) for op in PAIRS]
binary += [
    (f"b_{op}_int", f"_npi_{op}", {}, [whole(2, 3, low=1), whole(2, 1, low=1)])
    for op in ["add", "subtract", "multiply", "true_divide", "mod", "power", "copysign"]
]
binary += [
    (f"b_{op}_mixed", f"_npi_{op}", {}, [real(2, 3, low=0.5, high=3), whole(3, low=1)])
    for op in ["add", "subtract", "multiply", "true_divide", "mod", "power"]
]
binary += [
    (f"b_{op}_wide", f"_npi_{op}", {}, [real(2, 1, low=0.5, high=3), real(2, 2, low=0.5, dtype="f8")])
    for op in ["add", "subtract", "multiply", "mod", "power"]
]
binary += rows_of(
    ("b_add_int_types", "_npi_add", {}, whole(3), whole(3, dtype="i8")),
    ("b_multiply_bool", "_npi_multiply", {}, truth(3), whole(3)),
    ("b_add_half", "_npi_add", {}, real(3, dtype="f2"), whole(3, dtype="i8")),
    ("b_add_scalars", "_npi_add", {}, np.array(2, "f4"), np.array(3.5, "f4")),
    ("b_add_empty", "_npi_add", {}, np.zeros((0, 3), "f4"), real(1, 3)),
    ("b_mod_zero", "_npi_mod", {}, real(3), np.array([0, 1, -1], "f4")),
    ("b_power_negative", "_npi_power", {}, np.array([2, -2, 3], "i4"), np.array([-1, 3, 2], "i4")),
    ("b_lcm", "_npi_lcm", {}, whole(4, low=1), whole(4, low=1)),
    ("b_maximum", "broadcast_maximum", {}, real(2, 3), real(3)),
)
binary += [
    (f"b_{op}", f"_npi_{op}", {}, [np.array([[1.0, 2], [3, 4]], "f4"), np.array([1.0, 3], "f4")])
    for op in COMPARED
]
binary += [
    (f"b_bitwise_{op}", f"_npi_bitwise_{op}", {}, [whole(2, 3), whole(3)]) for op in ("and", "or", "xor")
]
binary += [
    (f"b_bitwise_{op}_bool", f"_npi_bitwise_{op}", {}, [truth(4), truth(4)]) for op in ("and", "or", "xor")
]

NUMBERED = """
add subtract rsubtract multiply true_divide rtrue_divide mod rmod power rpower copysign rcopysign arctan2 rarctan2
ldexp rldexp
"""
scalar = []
for op in NUMBERED.split():
    name = f"_npi_{op}_scalar"
    scalar.append((f"s_{op}", name, {"scalar": "1.5", "is_int": "False"}, [real(2, 3, low=0.3)]))
    if "ldexp" not in op:
        scalar.append((f"s_{op}_int", name, {"scalar": "2.0", "is_int": "True"}, [whole(4, low=1)]))
        scalar.append((f"s_{op}_int_float", name, {"scalar": "2.5", "is_int": "False"}, [whole(4, low=1)]))
        scalar.append((f"s_{op}_bool", name, {"scalar": "2.0", "is_int": "True"}, [np.array([True, True])]))
for op in COMPARED:
    values = np.array([[1.0, 1.5], [2, 2.5]], "f4")
    scalar.append((f"s_{op}", f"_npi_{op}_scalar", {"scalar": "1.5", "is_int": "False"}, [values]))
    scalar.append((f"s_{op}_int", f"_npi_{op}_scalar", {"scalar": "1.5", "is_int": "False"}, [whole(5)]))
    scalar.append((f"s_{op}_bool", f"_npi_{op}_scalar", {"scalar": "2.0", "is_int": "True"}, [truth(4)]))
for op in ("bitwise_and", "bitwise_or", "bitwise_xor", "lcm"):
    scalar.append((f"s_{op}", f"_npi_{op}_scalar", {"scalar": "6.0", "is_int": "True"}, [whole(4, low=1)]))
scalar += rows_of(
    ("s_add_scalar", "_npi_add_scalar", {"scalar": "2.0"}, np.array(3, "f4")),
    ("s_mod_zero", "_npi_mod_scalar", {"scalar": "0.0", "is_int": "False"}, real(3)),
)

reduce = []
for op in ("_np_sum", "_np_prod", "_np_max", "_np_min", "_npi_mean", "_npi_std", "_npi_var"):
    short = op.rpartition("_")[2]
    reduce.append((f"r_{short}", op, {}, [real(2, 3)]))
    reduce.append((f"r_{short}_axis", op, {"axis": "-1", "keepdims": "True"}, [real(2, 3)]))
    reduce.append((f"r_{short}_axes", op, {"axis": "(0, 2)"}, [real(2, 3, 2)]))
    reduce.append((f"r_{short}_int", op, {"axis": "0"}, [whole(2, 3, low=1)]))
    if short not in ("max", "min"):
        reduce.append((f"r_{short}_dtype", op, {"dtype": "float64"}, [real(2, 3)]))
for op in ("_np_any", "_np_all"):
    reduce.append((f"r{op[3:]}", op, {}, [whole(2, 3, low=0, high=2)]))
    reduce.append((f"r{op[3:]}_axis", op, {"axis": "1", "keepdims": "True"}, [truth(2, 3)]))
for op in ("argmax", "argmin"):
    reduce.append((f"r_{op}", f"_npi_{op}", {}, [real(2, 3)]))
    reduce.append((f"r_{op}_axis", f"_npi_{op}", {"axis": "-1"}, [real(2, 3)]))
    reduce.append((f"r_{op}_keep", f"_npi_{op}", {"axis": "0", "keepdims": "True"}, [real(2, 3)]))
    reduce.append((f"r_{op}_all", f"_npi_{op}", {"keepdims": "True"}, [real(2, 3)]))
for number, attrs in enumerate(
    (
        {"flag": "-2"},
        {"ord": "1", "flag": "-1"},
        {"ord": "2", "flag": "-1"},
        {"ord": "2", "flag": "1"},
        {"ord": "2", "flag": "2"},
        {"ord": "inf", "flag": "-1"},
        {"ord": "2", "axis": "(0,)", "flag": "1"},
        {"ord": "1", "axis": "(1,)", "flag": "-1"},
        {"ord": "3", "axis": "(0,)", "flag": "-1"},
        {"ord": "2", "axis": "(0, 1)", "flag": "0"},
        {"ord": "2", "axis": "(0, 1)", "keepdims": "True", "flag": "1"},
    )
):
    reduce.append((f"r_norm_{number}", "_npi_norm", attrs, [real(2, 3)]))
reduce += rows_of(
    ("r_sum_bool", "_np_sum", {}, truth(5)),
    ("r_sum_scalar", "_np_sum", {}, np.array(3, "f4")),
    ("r_sum_empty", "_np_sum", {"axis": "0"}, np.zeros((0, 3), "f4")),
    ("r_sum_no_axes", "_np_sum", {"axis": "()"}, real(2, 3)),
    ("r_mean_bool", "_npi_mean", {}, truth(5)),
    ("r_var_ddof", "_npi_var", {"axis": "0", "ddof": "1"}, real(3, 2)),
    ("r_average", "_npi_average", {"axis": "1", "weighted": "False"}, real(2, 3)),
    ("r_average_weights", "_npi_average", {"returned": "True"}, real(2, 3), real(2, 3, low=0.5)),
    ("r_average_vector", "_npi_average", {"axis": "1"}, real(2, 3), real(3, low=0.5)),
    ("r_percentile", "_npi_percentile", {"q_scalar": "30"}, real(2, 5)),
    ("r_percentile_many", "_npi_percentile", {"axis": "1"}, real(2, 5), np.array([10, 50, 95], "f4")),
    ("r_percentile_kept", "_npi_percentile", {"axis": "0", "keepdims": "True", "q_scalar": "50"}, real(4, 3)),
    ("r_cumsum", "_np_cumsum", {"axis": "1"}, real(2, 3)),
    ("r_trace", "_np_trace", {}, real(3, 3)),
    ("r_trace_offset", "_np_trace", {"offset": "1", "axis1": "0", "axis2": "2"}, real(2, 3, 4)),
)
for kind in ("lower", "higher", "midpoint", "nearest"):
    attrs = {"interpolation": kind, "q_scalar": "40", "axis": "1"}
    reduce.append((f"r_percentile_{kind}", "_npi_percentile", attrs, [real(2, 5)]))

two = {"num_args": "2"}
shape = rows_of(
    ("m_reshape", "_np_reshape", {"newshape": "(-1, 2)"}, real(2, 3)),
    ("m_reshape_scalar", "_np_reshape", {"newshape": "()"}, real(1, 1)),
    ("m_reshape_empty", "_np_reshape", {"newshape": "(3, 0)"}, np.zeros((0, 2), "f4")),
    ("m_transpose", "_np_transpose", {}, real(2, 3)),
    ("m_transpose_axes", "_np_transpose", {"axes": "(1, 2, 0)"}, real(2, 3, 2)),
    ("m_squeeze", "_np_squeeze", {}, real(1, 1)),
    ("m_squeeze_axis", "_np_squeeze", {"axis": "(0, -1)"}, real(1, 3, 1)),
    ("m_concatenate", "_npi_concatenate", {**two, "axis": "-1"}, real(2, 3), real(2, 1)),
    ("m_concatenate_flat", "_npi_concatenate", {**two, "axis": "None"}, real(2, 2), real(3)),
    ("m_concatenate_empty", "_npi_concatenate", {**two, "axis": "0"}, np.zeros((0, 2), "f4"), real(2, 2)),
    ("m_stack", "_npi_stack", {**two, "axis": "1"}, real(2, 3), real(2, 3)),
    ("m_stack_scalars", "_npi_stack", {**two, "axis": "0"}, np.array(1, "f4"), np.array(2, "f4")),
    ("m_vstack", "_npi_vstack", two, real(3), real(3)),
    ("m_hstack", "_npi_hstack", two, real(3), real(2)),
    ("m_hstack_2d", "_npi_hstack", two, real(2, 1), real(2, 2)),
    ("m_dstack", "_npi_dstack", two, real(2, 2), real(2, 2)),
    ("m_column_stack", "_npi_column_stack", two, real(3), real(3)),
    ("m_atleast_1d", "_np_atleast_1d", two, np.array(2, "f4"), real(2)),
    ("m_atleast_2d", "_np_atleast_2d", {"num_args": "1"}, real(3)),
    ("m_atleast_3d", "_np_atleast_3d", two, real(3), real(2, 2)),
    ("m_copy", "_np_copy", {}, real(3)),
    ("m_moveaxis", "_np_moveaxis", {"source": "(0,)", "destination": "(-1,)"}, real(2, 3, 2)),
    ("m_roll", "_np_roll", {"shift": "(1,)"}, real(2, 3)),
    ("m_roll_axes", "_np_roll", {"shift": "(1, -1)", "axis": "(0, 1)"}, real(2, 3)),
    ("m_flip", "_npi_flip", {"axis": "(0, 1)"}, real(2, 3)),
    ("m_flip_axis", "_npi_flip", {"axis": "(1,)"}, real(2, 3)),
    ("m_rot90", "_npi_rot90", {"k": "1", "axes": "(0, 1)"}, real(2, 3)),
    ("m_rot90_three", "_npi_rot90", {"k": "3", "axes": "(1, 2)"}, real(2, 3, 2)),
    ("m_broadcast_to", "_npi_broadcast_to", {"shape": "(2, 4, 3)"}, real(4, 1)),
    ("m_diag", "_np_diag", {"k": "1"}, real(3)),
    ("m_diag_of", "_np_diag", {"k": "-1"}, real(3, 4)),
    ("m_diagflat", "_np_diagflat", {"k": "-1"}, real(2, 2)),
    ("m_diagonal", "_np_diagonal", {"offset": "1"}, real(2, 3)),
    ("m_diagonal_axes", "_np_diagonal", {"axis1": "0", "axis2": "2"}, real(2, 3, 2)),
    ("m_tril", "_npi_tril", {"k": "1"}, real(2, 3, 3)),
    ("m_tril_vector", "_npi_tril", {}, real(3)),
    ("m_hsplit", "_npi_hsplit", {"indices": "()", "sections": "2"}, real(2, 4)),
    ("m_hsplit_at", "_npi_hsplit", {"indices": "(0, 1, 3)"}, real(5)),
    ("m_dsplit", "_npi_dsplit", {"indices": "(0, 1)", "axis": "2"}, real(2, 1, 3)),
    ("m_split", "_split_v2", {"indices": "(0, 1)", "axis": "1"}, real(2, 3)),
    ("m_diff", "_npi_diff", {"n": "2", "axis": "0"}, real(4, 2)),
    ("m_diff_one", "_npi_diff", {}, real(2, 3)),
    ("m_expand_dims", "expand_dims", {"axis": "0"}, np.array(2, "f4")),
)

index = rows_of(
    ("i_where", "_npi_where", {}, truth(2, 3), real(2, 3), real(3)),
    ("i_where_float", "_npi_where", {}, np.array([0, 1, 2], "f4"), real(2, 1), real(3)),
    ("i_where_lscalar", "_npi_where_lscalar", {"scalar": "1.5"}, truth(2, 3), real(2, 3)),
    ("i_where_rscalar", "_npi_where_rscalar", {"scalar": "1.5"}, truth(2, 3), real(2, 3)),
    ("i_where_scalar2", "_npi_where_scalar2", {"x": "1.5", "y": "-1"}, truth(4)),
    ("i_pad", "_npi_pad", {"pad_width": "((1, 0), (2, 1))", "constant_value": "1.5"}, real(2, 3)),
    ("i_insert", "_npi_insert_scalar", {"int_ind": "1", "axis": "1"}, real(2, 3), real(2)),
    ("i_insert_number", "_npi_insert_scalar", {"int_ind": "2", "val": "5"}, real(2, 3)),
    (
        "i_insert_range",
        "_npi_insert_slice",
        {"start": "0", "stop": "2", "step": "1", "axis": "1"},
        real(2, 3),
        real(2, 1),
    ),
    ("i_insert_many", "_npi_insert_tensor", {"axis": "1"}, real(2, 3), real(2), np.array([0, 2], "i8")),
    ("i_ediff1d", "_npi_ediff1d", {"to_begin_scalar": "9"}, real(2, 3)),
    ("i_ediff1d_ends", "_npi_ediff1d", {"to_end_arr_given": "True"}, real(4), real(2)),
    ("i_share_memory", "_npi_share_memory", {}, real(2), real(3)),
    ("i_polyval", "_npi_polyval", {}, real(3), real(2, 2)),
    ("i_diag_indices_from", "_npi_diag_indices_from", {}, real(3, 3)),
    ("i_full_like", "_npi_full_like", {"fill_value": "2.5"}, real(2, 2)),
    ("i_full_like_type", "_npi_full_like", {"fill_value": "2.5", "dtype": "int32"}, real(2)),
    ("i_take", "take", {"axis": "1"}, real(2, 3), np.array(1, "i4")),
)
for mode in ("edge", "reflect", "symmetric", "maximum", "minimum"):
    index.append((f"i_pad_{mode}", "_npi_pad", {"pad_width": "((1, 1), (2, 0))", "mode": mode}, [real(2, 3)]))

create = rows_of(
    ("c_zeros", "_npi_zeros", {"shape": "(2, 0)"}),
    ("c_zeros_scalar", "_npi_zeros", {"shape": "()", "dtype": "int32"}),
    ("c_ones", "_npi_ones", {"shape": "(2, 3)", "dtype": "bool"}),
    ("c_full", "_full", {"shape": "(2, 3)", "value": "2.5"}),
    ("c_arange", "_npi_arange", {"start": "1", "stop": "2", "step": "0.25"}),
    ("c_arange_end", "_npi_arange", {"start": "0", "stop": "4", "step": "1", "dtype": "int32"}),
    ("c_linspace", "_linspace", {"start": "0", "stop": "1", "num": "5"}),
    ("c_logspace", "_npi_logspace", {"start": "0", "stop": "2", "num": "3"}),
    (
        "c_logspace_open",
        "_npi_logspace",
        {"start": "0", "stop": "3", "num": "3", "endpoint": "False", "base": "2"},
    ),
    ("c_eye", "_npi_eye", {"N": "3", "M": "2", "k": "-1"}),
    ("c_eye_square", "_npi_eye", {"N": "2"}),
    ("c_identity", "_npi_identity", {"shape": "(2, 2)"}),
    ("c_indices", "_npi_indices", {"dimensions": "(2, 3)"}),
    ("c_hanning", "_npi_hanning", {"M": "5"}),
    ("c_hamming", "_npi_hamming", {"M": "4"}),
    ("c_hamming_one", "_npi_hamming", {"M": "1"}),
    ("c_blackman", "_npi_blackman", {"M": "6", "dtype": "float64"}),
)

linalg = rows_of(
    ("l_matmul", "_npi_matmul", {}, real(2, 3), real(3, 2)),
    ("l_matmul_batch", "_npi_matmul", {}, real(2, 1, 2, 3), real(2, 3, 2)),
    ("l_matmul_vectors", "_npi_matmul", {}, real(3), real(3)),
    ("l_matmul_vector", "_npi_matmul", {}, real(2, 2, 3), real(3)),
    ("l_dot", "_np_dot", {}, real(2, 3), real(3, 2)),
    ("l_dot_vectors", "_np_dot", {}, real(3), real(3)),
    ("l_dot_scalar", "_np_dot", {}, real(2, 3), np.array(2, "f4")),
    ("l_dot_many", "_np_dot", {}, real(2, 1, 3), real(2, 3, 2)),
    (
        "l_tensordot",
        "_npi_tensordot",
        {"a_axes_summed": "(1, 0)", "b_axes_summed": "(0, 1)"},
        real(2, 3, 2),
        real(3, 2),
    ),
    ("l_tensordot_int", "_npi_tensordot_int_axes", {"axes": "1"}, real(2, 3), real(3, 2)),
    ("l_tensordot_outer", "_npi_tensordot_int_axes", {"axes": "0"}, real(2), real(3)),
    ("l_einsum", "_npi_einsum", {**two, "subscripts": "ij,jk->ik", "optimize": "0"}, real(2, 3), real(3, 2)),
    (
        "l_einsum_implicit",
        "_npi_einsum",
        {**two, "subscripts": "bij,bjk", "optimize": "1"},
        real(2, 2, 3),
        real(2, 3, 1),
    ),
    ("l_einsum_trace", "_npi_einsum", {"num_args": "1", "subscripts": "ii", "optimize": "0"}, real(3, 3)),
    (
        "l_einsum_dots",
        "_npi_einsum",
        {**two, "subscripts": "...i,...i->...", "optimize": "0"},
        real(2, 3),
        real(3),
    ),
    ("l_einsum_int", "_npi_einsum", {**two, "subscripts": "ij,j->i", "optimize": "0"}, whole(2, 3), whole(3)),
    ("l_cholesky", "_npi_cholesky", {}, M),
    ("l_solve", "_npi_solve", {}, M, real(3, 2)),
    ("l_solve_vector", "_npi_solve", {}, M, real(3)),
    ("l_eigvalsh", "_npi_eigvalsh", {}, M),
    ("l_eigvals", "_npi_eigvals", {}, np.array([[2, 1], [0, 3]], "f4")),
    ("l_det", "_npi_det", {}, M),
    ("l_slogdet", "_npi_slogdet", {}, M),
    ("l_tensorinv", "_npi_tensorinv", {"ind": "1"}, real(4, 2, 2)),
    ("l_tensorsolve", "_npi_tensorsolve", {}, real(2, 2, 4), real(2, 2)),
    ("l_pinv", "_npi_pinv", {}, real(2, 3), np.array(1e-6, "f4")),
    ("l_pinv_number", "_npi_pinv_scalar_rcond", {"rcond": "1e-6"}, real(2, 3)),
)

WITHOUT_GRADIENT = {
    "b_mod_zero": "1 at a divisor of 0, where the function is 0",
    "s_mod_zero": "1 at a divisor of 0, where the function is 0",
    "s_rarctan2": "wrong in MXNet",
    "m_rot90": "wrong in MXNet",
    "m_rot90_three": "wrong in MXNet",
    "m_atleast_1d": "0 in MXNet",
    "m_atleast_2d": "0 in MXNet",
    "m_atleast_3d": "0 in MXNet",
    "l_eigvalsh": "0 in MXNet",
    "l_pinv": "0 in MXNet",
    "l_pinv_number": "0 in MXNet",
    "i_where_lscalar": "wrong in MXNet",
    "i_where_rscalar": "wrong in MXNet",
    "l_matmul_batch": "wrong in MXNet for axes that broadcast",
    **{f"r_norm_{number}": "wrong in MXNet for norms of matrices" for number in (1, 2, 5, 9)},
    **{name: "0 in MXNet" for name, *_ in reduce if name.startswith(("r_std", "r_var", "r_percentile"))},
    "r_average_weights": "that of the sum of the weights is missing in MXNet",
}
"""Calls whose gradient is not recorded, since it is not the derivative."""

GROUPS = {
    "numpy_unary": unary,
    "numpy_binary": binary,
    "numpy_scalar": scalar,
    "numpy_reduce": reduce,
    "numpy_shape": shape,
    "numpy_index": index,
    "numpy_create": create,
    "numpy_linalg": linalg,
}

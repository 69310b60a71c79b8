"""Every operator that has a counterpart in ONNX computes the same there; the others say why not."""

import re
from contextlib import contextmanager

import numpy as np
import pytest

import dpmodule as mx
from dpmodule import ops
from dpmodule.base import ArgumentError
from dpmodule.ops.spec import AUX, PARAM
from helpers.onnx_runs import check_same, compare, exported, in_single, our_outputs, symbol_of
from helpers.op_tables import arrays_of, recorded_calls, table_rows
from helpers.walk import family_of, walks

EVERY = sorted({ops.get(name).name for name in ops.names()})
MAPPED = [name for name in EVERY if not ops.get(name).onnx.missing]

NOT_COMPARED = {
    "_onnx_bitwise(kind=left_shift)": "ONNX shifts only unsigned integers",
    "_onnx_bitwise(kind=right_shift)": "ONNX shifts only unsigned integers",
    "_npi_advanced_indexing": "the number of chosen elements depends on the mask",
    "_npi_delete(axis=1)": "the positions must be a parameter",
    **dict.fromkeys(("_npi_norm(flag=2)", "r_norm_2", "r_norm_4", "r_norm_9"), "ONNX has no singular values"),
    "i_insert_many": "the positions must be a parameter",
    **dict.fromkeys(
        (
            "_np_prod(axis=0)",
            "_npi_mean(axis=0)",
            "b_add_empty",
            "c_zeros",
            "m_concatenate_empty",
            "m_reshape_empty",
            "r_sum_empty",
            "u_tanh_empty",
        ),
        "axes of ONNX models have at least one element",
    ),
}
"""Rows of the tables, or recorded calls, that ONNX refuses or rounds otherwise: a reason for each."""


def head_of(case):
    return mx.sym.load_json(case["symbol_json"]).graph.heads[0][0]


ROWS = [row for row in table_rows() if ops.get(row.name).name in MAPPED and not ops.get(row.name).random]
RECORDED = [
    (group, case)
    for group, case in recorded_calls()
    if head_of(case).op.name in MAPPED and not head_of(case).op.random
]


def params_of(node, names):
    """Return which of an operator's inputs are parameters."""
    if node.op.variadic is not None:
        return []
    kinds = [each.kind for each in node.op.active_inputs(node.a, len(node.inputs))]
    return [name for name, kind in zip(names, kinds, strict=True) if kind in (PARAM, AUX)]


@contextmanager
def unless_too_old(opset):
    """Let an operator pass that is refused since a newer version than this brings what it needs."""
    try:
        yield
    except ArgumentError as error:
        found = re.search(r"from opset (\d+) on", str(error))
        if found is None or int(found[1]) <= opset:
            raise


OPSETS = pytest.mark.parametrize(
    "opset", [17, *(pytest.param(n, marks=pytest.mark.slow) for n in (13, 15, 18, 21))]
)


def check(symbol, names, arrays, opset):
    """Compare an operator, whose inputs have these names."""
    arrays = {name: in_single(value) for name, value in arrays.items()}
    params = [name for name in params_of(symbol.graph.heads[0][0], names) if name in arrays]
    with unless_too_old(opset):
        check_same(symbol, arrays, params, opset=opset)


def of_row(row):
    """Return what `check` takes, of a row of the tables."""
    names = [f"x{i}" for i in range(len(row.inputs))]
    return symbol_of(row.name, len(names), row.attrs), names, dict(zip(names, row.inputs))


def of_record(group, case):
    data, name, symbol = arrays_of(group), case["name"], mx.sym.load_json(case["symbol_json"])
    arrays = {key: data[f"{name}/in/{key}"] for key in case["arguments"]}
    arrays |= {key: data[f"{name}/aux_in/{key}"] for key in case["aux"]}
    return symbol, [child.name for child, _ in symbol.graph.heads[0][0].inputs], arrays


@OPSETS
@walks(ROWS, family=lambda row: family_of(row.name))
def test_rows_of_the_tables(row, opset):
    if str(row) not in NOT_COMPARED:
        check(*of_row(row), opset)


@OPSETS
@walks(RECORDED, family=lambda group, case: group)
@pytest.mark.filterwarnings("ignore:.*lstm_state_clip")
def test_recorded_calls(group, case, opset):
    if case["name"] not in NOT_COMPARED:
        check(*of_record(group, case), opset)


FIXED = """LinearRegressionOutput LogisticRegressionOutput MAERegressionOutput Reshape SVMOutput SoftmaxOutput diag
_backward_gather_nd _contrib_Proposal _contrib_interleaved_matmul_encdec_valatt _contrib_quantized_conv squeeze
_contrib_interleaved_matmul_selfatt_valatt _cvcopyMakeBorder _cvimresize _image_normalize _image_resize _linalg_det
_linalg_extractdiag _linalg_extracttrian _linalg_gelqf _linalg_inverse _linalg_makediag _linalg_maketrian scatter_nd
_linalg_potrf _linalg_potri _linalg_slogdet _linalg_sumlogdiag _onnx_round _ravel_multi_index _scatter_set_nd
broadcast_axis broadcast_like broadcast_to reshape_like softmax_cross_entropy
_np_diag _np_diagflat _np_diagonal _np_reshape _np_roll _np_squeeze _np_trace _npi_array_split
_npi_broadcast_to _npi_delete _npi_det _npi_einsum _npi_equal _npi_greater _npi_greater_equal _npi_hsplit
_npi_insert_scalar _npi_insert_slice _npi_kron _npi_less _npi_less_equal _npi_not_equal _npi_pad _npi_polyval
_npi_repeats _npi_rot90 _npi_slogdet _npi_tensordot _npi_var _npx_index_add _npx_index_update"""
"""Operators that refuse, in some rows, an axis 0 of any length, or need other inputs to grow as well."""


def any_batch(symbol, names, arrays):
    """Compare a model at another length of axis 0, that of all inputs with as many rows; say whether this is done."""
    arrays = {name: in_single(value) for name, value in arrays.items()}
    params = [name for name in params_of(symbol.graph.heads[0][0], names) if name in arrays]
    inputs = [name for name in arrays if name not in params and arrays[name].ndim]
    rows = [name for name in inputs if len(arrays[name]) == len(arrays[inputs[0]])]
    longer = arrays | {name: np.concatenate([arrays[name]] * 3) for name in rows}
    try:
        model = exported(symbol, arrays, params, 21, {name: {0: "batch"} for name in rows})
        our_outputs(symbol, longer)
    except mx.MXNetError:
        return False
    compare(symbol, model, longer)
    return True


EVERY_ROW = [(of_row, row) for row in ROWS] + [(of_record, *each) for each in RECORDED]


@walks(EVERY_ROW, family=lambda of, row, *_: row if of is of_record else family_of(row.name))
@pytest.mark.filterwarnings("ignore:.*lstm_state_clip")
def test_any_batch(of, *row):
    symbol, names, arrays = of(*row)
    done = str(row[0] if of is of_row else row[1]["name"]) in NOT_COMPARED or any_batch(symbol, names, arrays)
    assert done or symbol.graph.heads[0][0].op.name in FIXED.split()


def test_most_operators_are_mapped_and_plain_records_say_what_becomes_of_every_attribute():
    assert len(MAPPED) >= 340
    for name in MAPPED:
        op = ops.get(name)
        if op.onnx.builder:
            continue
        said = {*op.onnx.rename, *op.onnx.drop, *(["scalar"] if op.onnx.scalar else [])}
        assert set(op.attrs) == said, name

"""Every operator of MXNet 1.9.1 is declared with its names, attributes, defaults, inputs and outputs, or left out.

`mxnet_ops.json` holds what MXNet 1.9.1 tells about its operators; ``null`` stands for what it does not tell, and
"<required>" for an attribute without default. `operators_left_out.json` gives a reason for each that is missing.
`any_keyword.json` holds the operators that take any keyword, and what a symbol keeps of it.
"""

import json
from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx
from dpmodule import ops
from dpmodule.base import OpError
from dpmodule.ops.attrs import to_text
from dpmodule.ops.shapes import OF_HASHED_ROWS
from dpmodule.ops.spec import AUX, REQUIRED
from dpmodule.symbol.symbol import op_function
from helpers.walk import family_of, walks

DATA = Path(__file__).parents[1] / "data"
ANY_KEYWORD = json.loads((DATA / "any_keyword.json").read_text())
KEPT = json.loads((DATA / "mxnet_ops.json").read_text())
LEFT_OUT = json.loads((DATA / "operators_left_out.json").read_text())
REGISTERED = 611
RUN_BY = {"Convolution_v1": "Convolution", "_npx_relu": "relu", "_npx_sigmoid": "sigmoid"}
"""Operators that another one stands for: the same computation, saved under the other's name."""

NAMES_OF_2 = """
_np__linalg_svd
_np_broadcast_to _np_ones_like _np_zeros_like _npi_advanced_indexing _npi_advanced_indexing_multiple _npi_all
_npi_amax _npi_amin _npi_any _npi_array_split _npi_atleast_1d _npi_atleast_2d _npi_atleast_3d
_npi_bitwise_left_shift _npi_bitwise_left_shift_scalar _npi_bitwise_right_shift
_npi_bitwise_right_shift_scalar _npi_copy _npi_cross _npi_deg2rad _npi_diag _npi_diagflat _npi_diagonal
_npi_dot _npi_fill_diagonal _npi_floor_divide _npi_floor_divide_scalar _npi_fmax _npi_fmax_scalar _npi_fmin
_npi_fmin_scalar _npi_fmod _npi_fmod_scalar _npi_gcd _npi_gcd_scalar _npi_interp _npi_kron _npi_laplace
_npi_logaddexp _npi_logaddexp_scalar _npi_logical_and _npi_logical_and_scalar _npi_logical_or
_npi_logical_or_scalar _npi_logical_xor _npi_logical_xor_scalar _npi_lstsq _npi_matrix_rank
_npi_matrix_rank_none_tol _npi_max _npi_min _npi_moveaxis _npi_prod _npi_qr _npi_rad2deg
_npi_rbitwise_left_shift_scalar _npi_rbitwise_right_shift_scalar _npi_repeats _npi_rfloor_divide_scalar
_npi_rfmod_scalar _npi_roll _npi_rollaxis _npi_squeeze _npi_sum _npi_trace _npi_transpose _npi_tri
_npi_tril_indices _npi_triu
_npx_cond _npx_foreach _npx_gelu_tanh _npx_group_norm _npx_index_add _npx_index_update _npx_instance_norm
_npx_interleaved_matmul_encdec_qk _npx_interleaved_matmul_encdec_valatt
_npx_interleaved_matmul_selfatt_qk _npx_interleaved_matmul_selfatt_valatt _npx_log_sigmoid
_npx_masked_log_softmax _npx_masked_softmax _npx_mish _npx_norm _npx_while_loop
"""
"""Operators and names of MXNet 1.6 and 2.0 that 1.9.1 lacks."""


def test_every_operator_is_kept_or_left_out_with_a_reason():
    assert not KEPT.keys() & LEFT_OUT.keys()
    assert len(KEPT) + len(LEFT_OUT) == REGISTERED
    assert all(len(reason) > 20 for reason in LEFT_OUT.values())
    assert [name for name in LEFT_OUT if ops.find(name) is not None] == []
    assert {name for name in KEPT if ops.find(name) is None} == set()
    assert {name: ops.get(name).name for name in KEPT if ops.get(name).name != name} == RUN_BY


def test_no_operator_or_alias_is_unknown_to_mxnet():
    known = {alias for facts in KEPT.values() for alias in facts["aliases"]} | KEPT.keys()
    paddle = "concat conv crf crf_decode ctc enumerate erase expand gru lstm pad pool reshape reverse slice"
    ours = {f"sequence_{kind}" for kind in f"{paddle} softmax unpad".split()}
    ours |= {"_running_auc", "_sequence_chunks", "_sequence_rows", "_tree_path", "_xxhash"}
    ours |= {"_backward_gather_nd"}  # the one of MXNet's gradients that users call
    ours |= {f"_{name}" for name in ("scale_gradient", "onnx_bitwise", "onnx_mod", "onnx_round")}
    ours |= {"_grid_sample", "_scatter_add_nd"}
    ours |= {"_npi_det", "_npi_slogdet"}  # of MXNet's aliases, since they give scalars
    assert set(ops.names()) - known == ours | set(NAMES_OF_2.split())


def same_default(attr, text):
    told = () if text == "[]" else attr.type.parse(text)
    return attr.default == (pytest.approx(told, rel=1e-6) if isinstance(told, float) else told)


@walks([name for name in sorted(KEPT) if name not in RUN_BY], family=family_of)
def test_declaration(name):
    op, facts = ops.get(name), KEPT[name]
    assert [alias for alias in facts["aliases"] if ops.find(alias) is not op] == []
    counted = op.variadic.count if op.variadic is not None else None  # a call fills it in
    if name != "Custom":  # MXNet lists none of the attributes that it hands to the user's class
        own = OF_HASHED_ROWS if name == "Embedding" else ()  # with which input_dim is left out
        found = [key for key in op.attrs if key in facts["attrs"] or key != counted and key not in own]
        assert found == list(facts["attrs"])
        for key, text in facts["attrs"].items():
            if text == "<required>":
                may_miss = (counted, "num_args", "input_dim" if own else None)
                assert op.attrs[key].default is REQUIRED or key in may_miss, key
            else:
                assert text is None or same_default(op.attrs[key], text), key
    for key, attr in op.attrs.items():  # defaults survive as text
        assert attr.default is REQUIRED or attr.type.parse(to_text(attr.default)) == attr.default, key
    if op.variadic is None and isinstance(op.inputs, tuple):
        names, states = [i.name for i in op.inputs], [i.name for i in op.inputs if i.kind == AUX]
        assert names in (facts["args"], facts["inputs"])
        assert states == (facts["aux"] or states)
    if isinstance(op.outputs, tuple):
        assert list(op.outputs) == (facts["outputs"] or list(op.outputs))


def test_any_keyword():
    of_mxnet = [name for kept, facts in KEPT.items() for name in (kept, *facts["aliases"])]
    takes = {name for name in of_mxnet if ops.get(name).accepts_any_keyword}
    assert takes == set(of_mxnet) & set(ANY_KEYWORD["takes"])
    for name in takes:  # every one keeps it, and hands it to the variables that it makes
        symbol = op_function(name)(name="node", foreign=1)
        assert symbol.attr("foreign") == "1", name
        assert {"foreign"} <= {key for one in symbol.attr_dict().values() for key in one}, name
        assert mx.sym.load_json(symbol.tojson()).attr_dict() == symbol.attr_dict(), name
    refusing = [name for name in of_mxnet if name not in takes and ops.get(name).read_attrs is None]
    for name in refusing:
        with pytest.raises(OpError, match="foreign"):
            op_function(name)(foreign=1)


def test_text_that_is_kept_of_any_keyword():
    values = eval(f"[{ANY_KEYWORD['values']}]", {"mx": mx, "np": np})
    x, array = mx.sym.Variable("x"), mx.nd.array([-1, 2])
    assert [mx.sym.relu(x, foreign=value).attr("foreign") for value in values] == ANY_KEYWORD["kept"]
    for value in values:
        assert mx.nd.relu(array, foreign=value).asnumpy().tolist() == [0, 2]

"""Every operator in bfloat16, which MXNet's CPU build hardly has: near what it gives in float32, with gradients."""

import numpy as np
import pytest

import dpmodule as mx
from helpers.op_tables import arrays_of, bound_call, recorded_calls
from helpers.walk import walks

NOT_IN_BFLOAT16 = {
    "IdentityAttachKLSparseReg": "its moving average is in the type of the data",
    "_contrib_quantize": "quantizes float32",
    "_contrib_quantize_v2": "quantizes float32",
}
JUMPS = {"ROIPooling", "argsort"} | {
    f"_contrib_{name}"
    for name in ("DeformableConvolution", "DeformablePSROIPooling", "MultiBoxDetection", "Proposal", "MultiProposal")
} | {"_contrib_RROIAlign"}  # fmt: skip
"""Operators that choose places or boxes by comparing numbers, so that rounding changes their answer altogether."""

TOLERANCE = {"sum": 0.15, "_contrib_MultiBoxTarget": 0.1}
"""Largest error of an operator as a share of its largest output, where that is not 5 %."""


def cases():
    for group, case in recorded_calls():
        data = arrays_of(group)
        kinds = {data[f"{case['name']}/in/{key}"].dtype for key in case["arguments"]}
        floats = {kind for kind in kinds if kind.kind == "f"}
        op = mx.sym.load_json(case["symbol_json"]).graph.heads[0][0].op.name
        if floats == {np.dtype("f4")} and op not in NOT_IN_BFLOAT16:
            yield group, case, op


@walks(cases(), family=lambda group, case, op: group)
@pytest.mark.filterwarnings("ignore:.*lstm_state_clip")
def test_operator_in_bfloat16(group, case, op):
    data, name = arrays_of(group), case["name"]
    symbol = mx.sym.load_json(case["symbol_json"])
    bound, heads = bound_call(group, case, symbol, mx.cpu(), {np.dtype("f4"): "bfloat16"})
    outputs = bound.forward(is_train=case["is_train"])
    for i, output in enumerate(outputs):
        recorded = data.get(f"{name}/out/{i}")
        if recorded is None or not recorded.size:
            continue
        assert output.shape == recorded.shape
        found, expected = output.astype("float32").asnumpy().astype("f8"), recorded.astype("f8")
        if op in JUMPS or not np.isfinite(expected).all():
            continue
        scale = max(np.abs(expected).max(), 1e-3)
        assert np.abs(found - expected).max() <= TOLERANCE.get(op, 0.05) * scale
    if case["backward"]:
        bound.backward(heads)
        for key in case["grads"]:
            assert bound.grad_dict[key].dtype == bound.arg_dict[key].dtype, key

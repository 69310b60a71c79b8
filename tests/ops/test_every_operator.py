"""What holds for every operator of the registry: documented, checked from outside torch, differentiated, mapped.

Evidence comes from two places: recorded calls of MXNet 1.9.1 (data/goldens/ops, whose values and gradients are compared
in parity/test_ops_goldens.py), and the tables in `cases`, whose rows are formulas or recorded values. Here every
row is run, and every gradient is compared with central differences in float64.
"""

import json

import numpy as np
import pytest

import dpmodule as mx
from dpmodule import ops
from helpers.op_case import check_gradient, check_value
from helpers.op_tables import GOLDENS, arrays_of, recorded_calls, table_rows
from helpers.walk import family_of, walks

EVERY = sorted({ops.get(name).name for name in ops.names()})

NOT_THE_DERIVATIVE = {
    "BlockGrad": "lets no gradient through",
    "Custom": "its gradient is whatever the user writes",
    "IdentityAttachKLSparseReg": "adds a penalty's gradient",
    "LeakyReLU": "selu has MXNet's gradient below zero (other kinds: nn/test_activation.py)",
    "_contrib_gradientmultiplier": "scales the gradient",
    "_contrib_hawkesll": "its second output, the state, has no gradient (first output: cases/contrib.py)",
    "_contrib_round_ste": "passes the gradient straight through",
    "_contrib_sign_ste": "passes the gradient straight through",
    "_scale_gradient": "scales the gradient",
    "_npi_cholesky": "reads one triangle of a symmetric matrix and has a symmetric gradient",
    "_npi_eigvals": "has none in MXNet",
    "_linalg_potrf": "reads one triangle of a symmetric matrix and has a symmetric gradient",
    "_linalg_syevd": "reads one triangle of a symmetric matrix and has a symmetric gradient",
}

AT_A_KINK = {"correlation_ties", "i_where_float", "max_ties", "u_around", "u_nan_to_num", "u_relu_at_zero"}
"""Recorded calls at points where there is no derivative."""


def last_op(case):
    heads = mx.sym.load_json(case["symbol_json"]).graph.heads
    return heads[0][0].op


ROWS_OF_TABLES = table_rows()
RECORDED = [(group, case, last_op(case)) for group, case in recorded_calls()]
UPDATES = json.loads((GOLDENS.parent / "update" / "update.json").read_text())
WITH_VALUES = {op.name for _, _, op in RECORDED} | {ops.get(call["op"]).name for call in UPDATES}
WITH_VALUES |= {ops.get(row.name).name for row in ROWS_OF_TABLES if row.expect is not None}


def family_of_row(row):
    return family_of(row.name)


@walks(ROWS_OF_TABLES, family=family_of_row)
def test_values_of_the_tables(row):
    check_value(row)


DIFFERENTIATED = [row for row in ROWS_OF_TABLES if not row.no_grad]


@walks(DIFFERENTIATED, family=family_of_row)
def test_gradients_of_the_tables(row):
    inputs = row.grad
    if inputs is None:
        inputs = tuple(i for i, x in enumerate(row.inputs) if x.dtype == np.float64)
    assert inputs, f"{row} checks no gradient and gives no reason (no_grad)"
    check_gradient(row, inputs)


def differentiable(group, case, op):
    node = mx.sym.load_json(case["symbol_json"]).graph.heads[0][0]
    prefixes = f"{case['name']}/in/", f"{case['name']}/out/"
    return (
        case["backward"]
        and case["grads"]
        and not (op.draws(node.a) or op.name in NOT_THE_DERIVATIVE or case["name"] in AT_A_KINK)
        and not op.is_loss(op.parse(node.params))
        and all(v.dtype != np.float16 for key, v in arrays_of(group).items() if key.startswith(prefixes))
    )


RECORDED_GRADIENTS = [(group, case) for group, case, op in RECORDED if differentiable(group, case, op)]


@walks(RECORDED_GRADIENTS, family=lambda group, case: group)
@pytest.mark.filterwarnings("ignore:.*lstm_state_clip")
def test_gradients_of_recorded_calls(group, case):
    with mx.np_shape(group.startswith("numpy")):
        check_recorded_gradient(group, case)


def check_recorded_gradient(group, case):
    data, name = arrays_of(group), case["name"]
    symbol = mx.sym.load_json(case["symbol_json"])
    args = {key: data[f"{name}/in/{key}"] for key in case["arguments"]}
    args = {k: v.astype("f8") if v.dtype.kind == "f" else v for k, v in args.items()}
    aux = {key: data[f"{name}/aux_in/{key}"].astype("f8") for key in case["aux"]}
    moving = [key for key in case["grads"] if args[key].dtype.kind == "f"]
    random = np.random.RandomState(3)
    directions = {key: random.standard_normal(args[key].shape) for key in moving}

    def run(step):
        at = {k: v + step * directions[k] if k in directions else v for k, v in args.items()}
        bound = symbol.bind(
            mx.cpu(),
            {k: mx.nd.array(v, dtype=v.dtype) for k, v in at.items()},
            args_grad={k: mx.nd.zeros(args[k].shape, dtype="float64") for k in moving},
            grad_req={k: "write" if k in moving else "null" for k in args},
            aux_states={k: mx.nd.array(v, dtype=v.dtype) for k, v in aux.items()} or None,
        )
        outputs = bound.forward(is_train=case["is_train"])
        return bound, outputs, sum(float((o.asnumpy() * h).sum()) for o, h in zip(outputs, weights(outputs)))

    def weights(outputs):
        source = np.random.RandomState(5)
        drawn = [source.standard_normal(o.shape) for o in outputs]
        return [h if np.dtype(o.dtype).kind == "f" else 0 * h for h, o in zip(drawn, outputs)]

    bound, outputs, _ = run(0.0)
    bound.backward([mx.nd.array(h, dtype=o.dtype) for h, o in zip(weights(outputs), outputs)])
    exact = sum(float((bound.grad_dict[k].asnumpy() * directions[k]).sum()) for k in moving)
    eps = 1e-6
    numeric = (run(eps)[2] - run(-eps)[2]) / (2 * eps)
    assert exact == pytest.approx(numeric, rel=2e-5, abs=2e-6)


@walks(EVERY, family=family_of)
def test_has_evidence_from_outside_torch(name):
    # what random operators draw is tested as distributions in test_random.py and nn/test_dropout.py
    # loops and users' operators: symbol/test_control_flow.py and test_operator.py
    # those on ragged values: tests/ops/sparse/test_sequences.py
    op = ops.get(name)
    if name.lstrip("_").startswith("sequence_"):
        return
    runs_others_code = op.num_subgraphs or op.read_attrs is not None
    assert name in WITH_VALUES or op.random or runs_others_code, f"{name} has neither a golden nor a formula"


@walks(EVERY, family=family_of)
def test_is_mapped_to_onnx_or_says_why_not(name):
    onnx = ops.get(name).onnx
    assert onnx is not None
    assert bool(onnx.missing) != bool(onnx.type or onnx.builder), name

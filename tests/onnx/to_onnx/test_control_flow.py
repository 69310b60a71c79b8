"""Loops and branches go out as Scan, Loop and If, with the outputs recorded from MXNet 1.9.1."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.onnx.to_onnx.call import Untranslatable
from helpers.control_flow_goldens import BUILDERS, RUN, fresh_names, recorded  # noqa: F401
from helpers.onnx_runs import check_dynamic, check_same, exported, runtime_outputs

rng = np.random.RandomState(8)


def floats(*shape):
    return rng.standard_normal(shape).astype("f4")


@pytest.mark.parametrize("opset", [13, 17, 21])
@pytest.mark.parametrize("name", RUN)
def test_loops_and_branches_give_what_mxnet_gives(name, opset):
    symbol = BUILDERS[name][0](mx)
    arrays = recorded(name, "in")
    params = [key for key in arrays if key.endswith(("weight", "bias"))]
    model = check_same(symbol, arrays, params, opset=opset)
    for i, found in enumerate(runtime_outputs(model, arrays)):
        np.testing.assert_allclose(found, recorded(name, "out")[str(i)], rtol=1e-5, atol=1e-6)


def test_loops_over_any_number_of_steps():
    out, state = mx.sym.contrib.foreach(
        lambda x, s: (x * 2 + s, s + x), mx.sym.Variable("x"), mx.sym.Variable("s")
    )
    first, other = ({"x": floats(t, n, 4), "s": floats(n, 4)} for t, n in ((3, 2), (6, 5)))
    marks = {"x": {0: "time", 1: "batch"}, "s": {0: "batch"}}
    model = check_dynamic(mx.sym.Group([out, state]), first, other, marks)
    assert "Scan" in {node.op_type for node in model.graph.node}


def test_rows_behind_the_last_step_are_zeros():
    outputs, states = mx.sym.contrib.while_loop(
        lambda i, s: i < 4,
        lambda i, s: ([s * 2], [i + 1, s + 1]),
        [mx.sym.Variable("i"), mx.sym.Variable("s")],
        6,
    )
    symbol = mx.sym.Group([*outputs, *states])
    for start in (0, 3, 4, -9):
        first = {"i": np.full(1, start, "f4"), "s": floats(2, 4)}
        check_dynamic(symbol, first, {"s": floats(5, 4)}, {"s": {0: "batch"}})


def test_names_inside_bodies_take_none_from_the_graph():
    def step(x, s):
        made = mx.sym.FullyConnected(x, num_hidden=3, name="fc")
        return made, made + s

    out, _ = mx.sym.contrib.foreach(step, mx.sym.Variable("x"), mx.sym.Variable("s"))
    symbol = mx.sym.Group(
        [mx.sym.FullyConnected(out, num_hidden=2, name="fc_output"), mx.sym.relu(out, name="fc")]
    )
    arrays = {"x": floats(4, 2, 5), "s": floats(2, 3), "fc_weight": floats(3, 5), "fc_bias": floats(3)}
    arrays.update(fc_output_weight=floats(2, 6), fc_output_bias=floats(2))
    params = [name for name in arrays if name.startswith("fc")]
    check_same(symbol, arrays, params)


def test_what_a_body_lacks_is_named():
    out, _ = mx.sym.contrib.foreach(
        lambda x, s: (mx.sym.Correlation(x, x, name="corr"), s), mx.sym.Variable("x"), []
    )
    with pytest.raises(Untranslatable, match="Correlation 'corr'"):
        exported(out, {"x": floats(2, 1, 3, 4, 4)})

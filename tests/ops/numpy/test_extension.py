"""Operators of ``mx.npx``: reshape codes as MXNet reads them, and errors; values: cases/numpy_extension.py."""

import json

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import MXNetError, OpError, ShapeError
from helpers.arrays import count
from helpers.op_case import rules_test, run

RESHAPED = [  # shape, codes, reverse, answer of MXNet 1.9.1, or None for an error
    ((2, 3, 4), (-6, -1, 2, -4), True, None),
    ((8, 3, 4), (-6, 2, -1, -4), False, (2, 4, 3, 4)),
    ((2, 3, 4), (-5, -4), True, None),
    ((2, 3, 4), (-1, -5), True, (2, 12)),
    ((8, 3, 1, 1), (-2, -2, -3, -1), False, (8, 3, 1)),
    ((8, 3), (-6, -1, -1, -4), False, None),
    ((2, 3), (-3, -2), False, None),
    ((2, 3), (-2, -2, 1), False, (2, 3, 1)),
    ((2, 3), (-2, -2, -2), False, None),
    ((2, 3), (-2,), False, None),
    ((6,), (-6, 2, 3), False, (2, 3)),
    ((2, 3), (), False, None),
    ((1,), (), False, ()),
    ((1, 1), (-3, -3), False, ()),
    ((2, 3, 4, 5), (-4, 2), False, None),
    ((2, 3, 4, 5), (-2, -5, -2), True, (2, 12, 5)),
    ((2, 3, 4), (-4, -4), False, (2, 3, 4)),
    ((2, 3, 4), (-7,), False, None),
    ((2, 3, 4), (6, -2), False, None),
    ((2, 3, 4), (-1, -2), False, (8, 3)),
    ((6, 4), (2, 3, -2), False, None),
    ((2, 3, 4), (2, -5), False, (2, 12)),
    ((0, 3), (-2, -2), False, (0, 3)),
    ((0, 3), (-5, 4), False, (0, 4)),
    ((0, 3), (-6, -1, 2, -2), False, (0, 2, 3)),
    ((0, 3), (-1, 3), False, (0, 3)),
    ((0, 3), (0, 5), False, (0, 5)),
    ((0, 3), (-1,), False, (0,)),
    ((1, 3, 1), (-3, -4), False, (3, 1)),
]


@pytest.mark.parametrize(("dims", "codes", "reverse", "wanted"), RESHAPED)
def test_reshape_codes(dims, codes, reverse, wanted):
    net = mx.sym._internal._npx_reshape(mx.sym.Variable("a"), newshape=codes, reverse=reverse)
    if wanted is None:
        with pytest.raises(ShapeError, match=r"newshape .* does not fit data of shape|the graph"):
            net.infer_shape(a=dims)
        return
    assert net.infer_shape(a=dims)[1] == [wanted]
    data = count(*dims)
    np.testing.assert_array_equal(
        run("_npx_reshape", data, newshape=codes, reverse=reverse), data.reshape(wanted)
    )


test_shapes = rules_test(
    ("_npx_reshape", [(0, 4)], {"newshape": (-1,)}, [(6, 4)], [(24,)], [(24,)]),
    ("_npx_reshape", [(0, 3, 4)], {"newshape": (-2, -5)}, None, [(0, 12)]),
    ("_np_reshape", [(5, 0)], {"newshape": (-1,)}, [(5, 4)], [(20,)], [(20,)]),
)


def test_a_constraint_that_does_not_hold():
    with pytest.raises(OpError, match=r"_npx_constraint_check: sigma is negative"):
        run("_npx_constraint_check", np.array([True, False]), msg="sigma is negative")


def test_an_index_outside_of_the_array():
    with pytest.raises(IndexError):
        run("_npx_index_update", np.zeros((2, 3)), np.array([[2]]), np.ones(1))


def load(*nodes, version=20000, inputs=1):
    """Return the symbol of a file of MXNet 2.0 with variables x0, x1, ... and operators."""
    variables = [{"op": "null", "name": f"x{i}", "inputs": []} for i in range(inputs)]
    rows = [*variables, *nodes]
    heads = [[len(rows) - 1, 0, 0]]
    about = {"mxnet_version": ["int", version]}
    file = {"nodes": rows, "arg_nodes": list(range(inputs)), "heads": heads, "attrs": about}
    return mx.sym.load_json(json.dumps(file))


def node(op, *inputs, **attrs):
    return {"op": op, "name": "node", "attrs": attrs, "inputs": [[i, 0, 0] for i in inputs]}


def test_names_of_version_2():
    net = load(node("masked_softmax", 0, 1, axis="-1"), inputs=2)
    values = [mx.nd.array([[1, 2, 3]]), mx.nd.array([[1, 0, 1]])]
    found = net.eval(x0=values[0], x1=values[1])[0].asnumpy()
    np.testing.assert_allclose(found, [[1 / (1 + np.e**2), 0, 1 / (1 + np.e**-2)]], rtol=1e-5)
    total = load(node("_npi_sum", 0))  # without is_np_shape: a scalar
    assert total.infer_shape(x0=(2, 3))[1] == [()]


@pytest.mark.parametrize(
    ("operator", "kind", "expected"),
    [
        ("Activation", "mish", 0.8650984),
        ("Activation", "log_sigmoid", -0.3132617),
        ("LeakyReLU", "gelu_erf", 0.8413447),
        ("LeakyReLU", "gelu_tanh", 0.8411920),
    ],
)
def test_activations_of_version_2(operator, kind, expected):
    net = load(node(operator, 0, act_type=kind))
    assert net.eval(x0=mx.nd.array([1.0]))[0].asscalar() == pytest.approx(expected, rel=1e-5)


def test_a_refused_operator_has_a_reason():
    with pytest.raises(MXNetError, match=r"_npx_nonzero \(node 'node'.*depends on the values"):
        load(node("_npx_nonzero", 0))


def loop(order):
    """Return a loop of MXNet 2.0 whose body returns its two states in another order than it gets them."""
    names = ("row", "a", "b")
    rows = [{"op": "null", "name": name, "inputs": []} for name in names]
    rows += [
        {"op": "_npi_add", "name": "sum", "inputs": [[0, 0, 0], [1, 0, 0]]},
        {"op": "_npi_multiply", "name": "product", "inputs": [[0, 0, 0], [2, 0, 0]]},
    ]
    body = {"nodes": rows, "arg_nodes": [0, 1, 2], "heads": [[3, 0, 0], [4, 0, 0], [3, 0, 0]]}
    attrs = {"num_args": "4", "num_outputs": "3", "num_out_data": "1", "in_data_locs": "(0,)"}
    attrs |= {"in_state_locs": "(1, 2)", "remain_locs": "()", "in_state_index": order}
    return load({**node("_npx_foreach", 0, 1, 2, **attrs), "subgraphs": [body]}, inputs=3)


def test_a_loop_of_version_2():
    net = loop("(1, 0)").get_internals()
    net = mx.sym.Group([net[f"node_output{i}"] for i in range(3)])
    values = {"x0": mx.nd.array([[1, 2], [3, 4]]), "x1": mx.nd.array([10, 20]), "x2": mx.nd.array([1, 1])}
    sums, product, total = (each.asnumpy().tolist() for each in net.eval(**values))
    assert (sums, product, total) == ([[11, 22], [14, 26]], [3, 8], [14, 26])
    with pytest.raises(MXNetError, match="in_state_index"):
        loop("(1, 1)")

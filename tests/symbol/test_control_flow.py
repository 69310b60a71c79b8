"""Loops and branches in graphs, against graphs and numbers recorded from MXNet 1.9.1."""

import json

import numpy as np
import pytest

import dpmodule as mx
from helpers.control_flow_goldens import BUILDERS, CASES, RUN, fresh_names, recorded  # noqa: F401

X = mx.sym.var("x")


def run(symbol, name, grad_req="write", rounds=1):
    args = {k: mx.nd.array(v) for k, v in recorded(name, "in").items()}
    grads = {k: mx.nd.ones(v.shape) for k, v in args.items()}
    executor = symbol.bind(mx.cpu(), args, grads, grad_req)
    heads = [mx.nd.array(recorded(name, "head")[str(i)]) for i in range(len(symbol.list_outputs()))]
    for _ in range(rounds):
        executor.forward(is_train=True)
        executor.backward(heads)
    return executor


def check(executor, name, rounds=1, start=0):
    for i, out in enumerate(executor.outputs):
        np.testing.assert_allclose(out.asnumpy(), recorded(name, "out")[str(i)], rtol=1e-5, atol=1e-6)
    for key, grad in recorded(name, "grad").items():
        found = executor.grad_dict[key].asnumpy()
        np.testing.assert_allclose(found, start + rounds * grad, rtol=1e-4, atol=1e-5, err_msg=key)


@pytest.mark.parametrize("name", RUN)
def test_shapes_outputs_and_gradients_are_mxnets(name):
    symbol = BUILDERS[name][0](mx)
    found = symbol.infer_shape(**{k: tuple(v) for k, v in CASES[name]["shapes"].items()})
    for part, recorded_part in zip(found, CASES[name]["inferred"]):
        for shape, known in zip(part, recorded_part):
            assert known in ([], list(shape))  # MXNet infers nothing through while_loop and cond
    check(run(symbol, name), name)


@pytest.mark.parametrize("name", BUILDERS)
def test_graphs_and_files_are_mxnets(name):
    """MXNet's file of the graph is written, read, and runs."""
    symbol, case = BUILDERS[name][0](mx), CASES[name]
    assert (json.loads(symbol.tojson()), symbol.list_arguments()) == (case["symbol"], case["arguments"])
    assert symbol.list_outputs() == case["outputs"]
    assert symbol.get_internals().list_outputs() == case["internals"]
    if name not in RUN:
        return
    symbol = mx.sym.load_json(json.dumps(case["symbol"]))
    assert json.loads(symbol.tojson()) == case["symbol"]
    check(run(symbol, name, "add", rounds=2), name, 2, 1)


# what MXNet cannot run, or gives no numbers for


def test_branch_inside_a_loop():
    symbol = BUILDERS["cond_in_foreach"][0](mx)
    x, s = np.array([[1.0, 2.0], [-1.0, -2.0], [3.0, 1.0]], np.float32), np.array([2.0, 1.0], np.float32)
    args = {"x": mx.nd.array(x), "s": mx.nd.array(s)}
    grads = {k: mx.nd.zeros(v.shape) for k, v in args.items()}
    executor = symbol.bind(mx.cpu(), args, grads)
    out, state = (o.asnumpy() for o in executor.forward(is_train=True))
    expected = []
    for row in x:
        expected.append(row * s if row.sum() > 0 else row - s)
        s = s + expected[-1]
    np.testing.assert_allclose(out, expected)
    np.testing.assert_allclose(state, s)
    executor.backward([mx.nd.zeros(out.shape), mx.nd.ones(state.shape)])
    # after the steps: s(1 + x0), then x1, then x1 (1 + x2)
    np.testing.assert_allclose(executor.grad_dict["x"].asnumpy(), [[0, 0], 1 + x[2], x[1]])
    np.testing.assert_allclose(executor.grad_dict["s"].asnumpy(), [0, 0])


# inference


def test_shapes_are_inferred_backwards_from_states_and_with_an_unknown_length():
    out, state = mx.sym.contrib.foreach(lambda x, s: (x + s, s * x), mx.sym.var("x"), mx.sym.var("s"))
    symbol = mx.sym.Group([out, state])
    assert symbol.infer_shape_partial(s=(3, 2)) == ([(0, 3, 2), (3, 2)], [(0, 3, 2), (3, 2)], [])
    assert symbol.infer_shape(x=(4, 0, 0), s=(3, 2))[0] == [(4, 3, 2), (3, 2)]
    assert mx.sym.Group([out * mx.sym.var("y"), state]).infer_shape(y=(4, 3, 2))[0][0] == (4, 3, 2)


def test_the_type_of_a_condition_is_float32_unless_given():
    net = mx.sym.contrib.cond(mx.sym.var("c") > 0, lambda: X * 2, lambda: X - 1)
    assert net.infer_type(x="float64") == ([np.float32, np.float64], [np.float64], [])
    assert net.infer_type(c="int32", x="float32")[0] == [np.int32, np.float32]


def test_error_of_users_code_inside_arrives_as_it_is():
    @mx.operator.register("control_flow_bad")
    class BadProp(mx.operator.CustomOpProp):
        def create_operator(self, ctx, in_shapes, in_dtypes):
            return 1 / 0

    out, _ = mx.sym.contrib.foreach(lambda x, s: (mx.sym.Custom(x, op_type="control_flow_bad"), s), X, [])
    with pytest.raises(ZeroDivisionError):
        out.simple_bind(mx.cpu(), x=(2, 2)).forward()


def test_dropout_in_a_loop_draws_anew_in_each_step_and_backward_knows_what():
    out, _ = mx.sym.contrib.foreach(lambda x, s: (mx.sym.Dropout(x, p=0.5), s), X, [])
    executor = out.simple_bind(mx.cpu(), x=(2, 100))
    mx.random.seed(3)
    made = executor.forward(is_train=True, x=mx.nd.ones((2, 100)))[0].asnumpy()
    assert set(np.unique(made)) == {0.0, 2.0}
    assert (made[0] != made[1]).any()
    for _ in range(2):  # the second one runs the graph again
        executor.backward(mx.nd.ones((2, 100)))
        np.testing.assert_array_equal(executor.grad_dict["x"].asnumpy(), made)


def test_batch_norm_in_the_body_keeps_its_averages():
    out, _ = mx.sym.contrib.foreach(lambda x, s: (mx.sym.BatchNorm(x, name="bn", momentum=0.5), s), X, [])
    assert "bn_moving_mean" in out.list_arguments()
    assert out.list_auxiliary_states() == []
    executor = out.simple_bind(mx.cpu(), grad_req="null", x=(2, 4, 1))
    executor.arg_dict["x"][:] = mx.nd.array([[[2]] * 4, [[4]] * 4])
    executor.forward(is_train=True)
    assert executor.arg_dict["bn_moving_mean"].asscalar() == (0.5 * 2) * 0.5 + 0.5 * 4


def test_batch_norm_in_the_body_is_trained():
    out, _ = mx.sym.contrib.foreach(lambda x, s: (mx.sym.BatchNorm(x, fix_gamma=False, name="bn"), s), X, [])
    executor = out.simple_bind(mx.cpu(), x=(2, 4, 1))  # asks for gradients of the averages, too
    executor.arg_dict["x"][:] = mx.nd.array([[[-1], [-1], [1], [1]], [[1], [3], [3], [1]]])
    executor.arg_dict["bn_gamma"][:] = 1
    executor.forward(is_train=True)
    executor.backward(mx.nd.array(np.arange(8).reshape(2, 4, 1)))
    grads = {name: grad.asnumpy() for name, grad in executor.grad_dict.items()}
    np.testing.assert_allclose(grads["bn_beta"], [28])
    np.testing.assert_allclose(grads["bn_gamma"], [(-0 - 1 + 2 + 3) + (-4 + 5 + 6 - 7)], rtol=1e-2)
    assert grads["bn_moving_mean"].tolist() == grads["bn_moving_var"].tolist() == [0]


def test_while_loop_without_a_step_gives_zeros():
    def step(x):
        return x.astype("float64"), x + 1

    outputs, state = mx.sym.contrib.while_loop(lambda x: mx.sym.sum(x) < 0, step, X, 4)
    symbol = mx.sym.Group([outputs, state])
    assert symbol.infer_shape(x=(2, 3))[1] == [(4, 2, 3), (2, 3)]
    out, last = symbol.bind(mx.cpu(), {"x": mx.nd.ones((2, 3))}).forward()
    assert out.dtype == np.float64
    assert not out.asnumpy().any()
    assert out.shape == (4, 2, 3)
    assert last.asnumpy().all()

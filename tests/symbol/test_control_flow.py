"""Loops and branches in graphs, against graphs and numbers recorded from MXNet 1.9.1."""

import json

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.attribute import AttrScope
from helpers.control_flow_goldens import BUILDERS, CASES, RUN, fresh_names, recorded  # noqa: F401


def run(symbol, name, grad_req="write", rounds=1):
    args = {k: mx.nd.array(v) for k, v in recorded(name, "in").items()}
    grads = {k: mx.nd.ones(v.shape) for k, v in args.items()}
    executor = symbol.bind(mx.cpu(), args, grads, grad_req)
    heads = [mx.nd.array(recorded(name, "head")[str(i)]) for i in range(len(symbol.list_outputs()))]
    for _ in range(rounds):
        executor.forward(is_train=True)
        executor.backward(heads)
    return executor


def check_outputs(executor, name):
    for i, out in enumerate(executor.outputs):
        np.testing.assert_allclose(out.asnumpy(), recorded(name, "out")[str(i)], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", BUILDERS)
def test_graph_is_written_as_mxnet_writes_it(name):
    symbol = BUILDERS[name][0](mx)
    assert json.loads(symbol.tojson()) == CASES[name]["symbol"]
    assert symbol.list_arguments() == CASES[name]["arguments"]
    assert symbol.list_outputs() == CASES[name]["outputs"]
    assert symbol.get_internals().list_outputs() == CASES[name]["internals"]


@pytest.mark.parametrize("name", RUN)
def test_shapes_outputs_and_gradients_are_mxnets(name):
    symbol = BUILDERS[name][0](mx)
    found = symbol.infer_shape(**{k: tuple(v) for k, v in CASES[name]["shapes"].items()})
    for part, recorded_part in zip(found, CASES[name]["inferred"]):
        for shape, known in zip(part, recorded_part):
            assert known in ([], list(shape))  # MXNet infers nothing through while_loop and cond
    executor = run(symbol, name)
    check_outputs(executor, name)
    for key, grad in recorded(name, "grad").items():
        np.testing.assert_allclose(executor.grad_dict[key].asnumpy(), grad, rtol=1e-4, atol=1e-5, err_msg=key)


@pytest.mark.parametrize("name", RUN)
def test_mxnets_file_is_read_and_runs(name):
    symbol = mx.sym.load_json(json.dumps(CASES[name]["symbol"]))
    assert json.loads(symbol.tojson()) == CASES[name]["symbol"]
    executor = run(symbol, name, "add", rounds=2)
    check_outputs(executor, name)
    for key, grad in recorded(name, "grad").items():
        np.testing.assert_allclose(
            executor.grad_dict[key].asnumpy(), 1 + 2 * grad, rtol=1e-4, atol=1e-4, err_msg=key
        )


# what MXNet cannot run, or gives no numbers for


def test_branch_inside_a_loop():
    symbol = BUILDERS["cond_in_foreach"][0](mx)
    x = np.array([[1.0, 2.0], [-1.0, -2.0], [3.0, 1.0]], np.float32)
    s = np.array([2.0, 1.0], np.float32)
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


def test_gradient_of_a_while_loop_is_that_of_the_steps_taken():
    symbol = BUILDERS["while_sum"][0](mx)
    args = {"i": mx.nd.array([0.0]), "s": mx.nd.array([1.0]), "k": mx.nd.array([1.5])}
    grads = {k: mx.nd.zeros((1,)) for k in args}
    executor = symbol.bind(mx.cpu(), args, grads)
    outs = [o.asnumpy().ravel().tolist() for o in executor.forward(is_train=True)]
    assert outs == [[1.0, 3.5, 0, 0, 0], [2.0], [5.0]]  # i + s in steps 1 and 2; then i and s
    executor.backward([mx.nd.array([[1], [1], [100], [100], [100]]), mx.nd.array([0]), mx.nd.array([1])])
    # s2 = s + i + k + (i + 1) + k
    assert {k: g.asscalar() for k, g in grads.items()} == {"i": 1 + 2 + 2, "s": 1 + 1 + 1, "k": 1 + 2}


def test_while_loop_without_a_step_gives_zeros():
    outputs, state = mx.sym.contrib.while_loop(
        lambda x: mx.sym.sum(x) < 0, lambda x: (x.astype("float64"), x + 1), mx.sym.var("x"), 4
    )
    symbol = mx.sym.Group([outputs, state])
    assert symbol.infer_shape(x=(2, 3))[1] == [(4, 2, 3), (2, 3)]
    out, last = symbol.bind(mx.cpu(), {"x": mx.nd.ones((2, 3))}).forward()
    assert out.dtype == np.float64
    assert not out.asnumpy().any()
    assert out.shape == (4, 2, 3)
    assert last.asnumpy().all()


@pytest.mark.parametrize("pred", [0.0, 3.0])
def test_only_the_branch_taken_has_a_gradient(pred):
    p, a, b = (mx.sym.var(n) for n in "pab")
    out = mx.sym.contrib.cond(p, lambda: a * 2, lambda: b * 3)
    executor = out.simple_bind(mx.cpu(), p=(1,), a=(2,), b=(2,))
    executor.forward(is_train=True, p=mx.nd.array([pred]), a=mx.nd.ones((2,)), b=mx.nd.ones((2,)))
    executor.backward(mx.nd.ones((2,)))
    found = {k: executor.grad_dict[k].asnumpy().tolist() for k in "pab"}
    assert found == {"p": [0.0], "a": [2.0 * (pred > 0)] * 2, "b": [3.0 * (pred == 0)] * 2}


def test_test_of_several_numbers_is_refused():
    out = mx.sym.contrib.cond(mx.sym.var("p"), lambda: mx.sym.var("a") + 1, lambda: mx.sym.var("a") - 1)
    executor = out.simple_bind(mx.cpu(), p=(2,), a=(2,))
    with pytest.raises(
        mx.MXNetError, match=r"the condition of cond returned an array of shape \(2,\), expected one number"
    ):
        executor.forward()


# inference


def test_shapes_are_inferred_backwards_from_states_and_with_an_unknown_length():
    out, state = mx.sym.contrib.foreach(lambda x, s: (x + s, s * x), mx.sym.var("x"), mx.sym.var("s"))
    symbol = mx.sym.Group([out, state])
    assert symbol.infer_shape_partial(s=(3, 2)) == ([(0, 3, 2), (3, 2)], [(0, 3, 2), (3, 2)], [])
    assert symbol.infer_shape(x=(4, 0, 0), s=(3, 2))[0] == [(4, 3, 2), (3, 2)]
    assert mx.sym.Group([out * mx.sym.var("y"), state]).infer_shape(y=(4, 3, 2))[0][0] == (4, 3, 2)


def test_types_go_through_subgraphs():
    out, _ = mx.sym.contrib.foreach(
        lambda x, s: (mx.sym.FullyConnected(x, num_hidden=2, name="fc"), s), mx.sym.var("x"), []
    )
    assert out.infer_type(x="float16") == ([np.float16] * 3, [np.float16], [])
    executor = out.simple_bind(mx.cpu(), type_dict={"x": "float64"}, x=(2, 3, 4))
    assert executor.forward()[0].dtype == np.float64


def test_contradiction_inside_names_the_inner_node():
    out, _ = mx.sym.contrib.foreach(lambda x, s: (x + s, s), mx.sym.var("x"), mx.sym.var("s"))
    with pytest.raises(mx.base.ShapeError, match=r"_foreach0.*elemwise_add.*test_control_flow"):
        out.infer_shape(x=(4, 3), s=(2,))


def test_lengths_that_differ_are_refused():
    out, _ = mx.sym.contrib.foreach(lambda xs, s: (xs[0] + xs[1], s), [mx.sym.var("x"), mx.sym.var("y")], [])
    with pytest.raises(mx.base.ShapeError, match=r"lengths differ: \[3, 4\]"):
        out.infer_shape(x=(4, 3), y=(3, 3))


# running


def test_failure_inside_names_both_nodes():
    out, _ = mx.sym.contrib.foreach(
        lambda x, s: (mx.sym.linalg.potrf(x, name="root"), s), mx.sym.var("x"), []
    )
    executor = out.simple_bind(mx.cpu(), x=(2, 3, 3))
    with pytest.raises(mx.base.NodeError, match=r"_foreach0.*_linalg_potrf 'root' made at .*\(3, 3\)"):
        executor.forward(x=mx.nd.ones((2, 3, 3)) * -1)


def test_sparse_data_is_looped_over_as_dense():
    out, _ = mx.sym.contrib.foreach(lambda x, s: (x * 2, s), mx.sym.var("x", stype="csr"), [])
    x = mx.nd.array([[0, 1], [2, 0], [0, 0]]).tostype("csr")
    assert out.bind(mx.cpu(), {"x": x}).forward()[0].asnumpy().tolist() == [[0, 2], [4, 0], [0, 0]]


def test_error_of_users_code_inside_arrives_as_it_is():
    out, _ = mx.sym.contrib.foreach(
        lambda x, s: (mx.sym.Custom(x, op_type="control_flow_bad"), s), mx.sym.var("x"), []
    )
    executor = out.simple_bind(mx.cpu(), x=(2, 2))
    with pytest.raises(ZeroDivisionError):
        executor.forward()


class Bad(mx.operator.CustomOp):
    """Fails."""

    def forward(self, is_train, req, in_data, out_data, aux):
        """Divide by zero."""
        return 1 / 0


@mx.operator.register("control_flow_bad")
class BadProp(mx.operator.CustomOpProp):
    """Describes `Bad`."""

    def create_operator(self, ctx, in_shapes, in_dtypes):
        """Return one."""
        return Bad()


def test_dropout_in_a_loop_draws_anew_in_each_step_and_backward_knows_what():
    out, _ = mx.sym.contrib.foreach(lambda x, s: (mx.sym.Dropout(x, p=0.5), s), mx.sym.var("x"), [])
    executor = out.simple_bind(mx.cpu(), x=(2, 100))
    mx.random.seed(3)
    made = executor.forward(is_train=True, x=mx.nd.ones((2, 100)))[0].asnumpy()
    assert set(np.unique(made)) == {0.0, 2.0}
    assert (made[0] != made[1]).any()
    for _ in range(2):  # the second one runs the graph again
        executor.backward(mx.nd.ones((2, 100)))
        np.testing.assert_array_equal(executor.grad_dict["x"].asnumpy(), made)


def test_loss_in_the_body_ignores_its_head_gradient():
    out, _ = mx.sym.contrib.foreach(
        lambda x, s: (mx.sym.LinearRegressionOutput(x[0], x[1], name="lro"), s),
        [mx.sym.var("x"), mx.sym.var("y")],
        [],
    )
    executor = out.simple_bind(mx.cpu(), x=(3, 2, 1), y=(3, 2, 1))
    executor.forward(is_train=True, x=mx.nd.ones((3, 2, 1)) * 5, y=mx.nd.ones((3, 2, 1)))
    executor.backward(mx.nd.zeros((3, 2, 1)))
    np.testing.assert_allclose(executor.grad_dict["x"].asnumpy(), np.full((3, 2, 1), 4.0))


def test_batch_norm_in_the_body_keeps_its_averages():
    def body(x, s):
        return mx.sym.BatchNorm(x, name="bn", momentum=0.5), s

    out, _ = mx.sym.contrib.foreach(body, mx.sym.var("x"), [])
    assert "bn_moving_mean" in out.list_arguments()
    assert out.list_auxiliary_states() == []
    executor = out.simple_bind(mx.cpu(), grad_req="null", x=(2, 4, 1))
    executor.arg_dict["x"][:] = mx.nd.array([[[2]] * 4, [[4]] * 4])
    executor.forward(is_train=True)
    assert executor.arg_dict["bn_moving_mean"].asscalar() == (0.5 * 2) * 0.5 + 0.5 * 4


def test_batch_norm_in_the_body_is_trained():
    out, _ = mx.sym.contrib.foreach(
        lambda x, s: (mx.sym.BatchNorm(x, fix_gamma=False, name="bn"), s), mx.sym.var("x"), []
    )
    executor = out.simple_bind(mx.cpu(), x=(2, 4, 1))  # asks for gradients of the averages, too
    executor.arg_dict["x"][:] = mx.nd.array([[[-1], [-1], [1], [1]], [[1], [3], [3], [1]]])
    executor.arg_dict["bn_gamma"][:] = 1
    executor.forward(is_train=True)
    executor.backward(mx.nd.array(np.arange(8).reshape(2, 4, 1)))
    grads = {name: grad.asnumpy() for name, grad in executor.grad_dict.items()}
    np.testing.assert_allclose(grads["bn_beta"], [28])
    np.testing.assert_allclose(grads["bn_gamma"], [(-0 - 1 + 2 + 3) + (-4 + 5 + 6 - 7)], rtol=1e-2)
    assert grads["bn_moving_mean"].tolist() == grads["bn_moving_var"].tolist() == [0]


def test_monitor_sees_the_loop_and_its_gradients():
    out, _ = mx.sym.contrib.foreach(lambda x, s: (x * 2, s), mx.sym.var("x"), [])
    executor = out.simple_bind(mx.cpu(), x=(2, 2))
    seen = {}
    executor.set_monitor_callback(lambda name, array: seen.update({name: array.asnumpy()}))
    executor.forward(is_train=True, x=mx.nd.ones((2, 2)))
    executor.backward(mx.nd.ones((2, 2)))
    assert seen["_foreach0_output"].tolist() == [[2, 2], [2, 2]]
    assert seen["_foreach0_backward_output"].tolist() == [[2, 2], [2, 2]]


def test_equal_loops_share_a_program_and_others_do_not():
    def made(factor):
        AttrScope._subgraph_names.clear()
        with mx.name.NameManager():
            return mx.sym.contrib.foreach(lambda x, s: (x * factor, s), mx.sym.var("x"), [])[0]

    assert made(2).graph.key == made(2).graph.key
    assert made(2).graph.key != made(3).graph.key


def test_copies_pickles_and_compositions_keep_the_subgraph():
    import copy
    import pickle

    out, _ = mx.sym.contrib.foreach(lambda x, s: (x * 2, s), mx.sym.var("x"), [])
    y = mx.sym.var("y")
    for symbol in (copy.copy(out), pickle.loads(pickle.dumps(out)), out(x=y + 0)):
        (name,) = symbol.list_arguments()
        assert symbol.eval(**{name: mx.nd.ones((2, 1))})[0].asnumpy().tolist() == [[2.0], [2.0]]


def test_module_trains_through_a_loop_on_two_contexts():
    draw = np.random.RandomState(0)
    x = draw.randn(64, 5, 3).astype(np.float32)
    target = x.sum(axis=(1, 2))
    cell = mx.rnn.RNNCell(8, prefix="rnn_")
    data = mx.sym.SwapAxis(mx.sym.var("data"), dim1=0, dim2=1)
    begin = mx.sym.zeros((0, 8))
    _, last = mx.sym.contrib.foreach(lambda x, s: cell(x, s), data, [begin])
    net = mx.sym.FullyConnected(last[0], num_hidden=1, name="fc")
    net = mx.sym.LinearRegressionOutput(net, mx.sym.var("label"), name="out")
    batches = mx.io.NDArrayIter({"data": x}, {"label": target[:, None]}, 32)
    module = mx.mod.Module(net, data_names=["data"], label_names=["label"], context=[mx.cpu(0), mx.cpu(1)])
    mx.random.seed(0)
    module.fit(
        batches,
        eval_metric="mse",
        optimizer="adam",
        optimizer_params={"learning_rate": 0.03},
        initializer=mx.init.Xavier(),
        num_epoch=25,
    )
    assert dict(module.score(batches, "mse"))["mse"] < 0.1 * target.var()


# what users get wrong


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda f, x, s: f.foreach(lambda x, s: (x, s), 3, []), "data must be one array or symbol"),
        (lambda f, x, s: f.foreach(lambda x, s: (x, s), [], []), "data is empty"),
        (lambda f, x, s: f.foreach(lambda x, s: (s + 1, s), x, s), "'x' has to be used in the loop body"),
        (
            lambda f, x, s: f.foreach(lambda x, s: (x, x), x, [s]),
            "states of another structure than init_states",
        ),
        (lambda f, x, s: f.foreach(lambda x, s: ([], []), x, []), "neither outputs nor states"),
        (
            lambda f, x, s: f.while_loop(lambda s: s, lambda s: (s, s), [s]),
            "max_iterations should be specified",
        ),
        (lambda f, x, s: f.while_loop(lambda s: s, lambda s: (s, s), [], 3), "at least one symbol"),
        (lambda f, x, s: f.while_loop(lambda s: 3, lambda s: (s, s), [s], 3), "cond returned 3"),
        (
            lambda f, x, s: f.while_loop(lambda s: s, lambda s: (s, [s, s]), [s], 3),
            "returned 2 loop variables",
        ),
        (
            lambda f, x, s: f.while_loop(lambda s: s, lambda s: (s, s), [s], "many"),
            "max_iterations is 'many'",
        ),
        (lambda f, x, s: f.cond(s, lambda: x, lambda: [x, x]), "then_func returned 1 outputs, else_func 2"),
        (lambda f, x, s: f.cond(s, lambda: [], lambda: []), "then returned no outputs"),
    ],
)
def test_wrong_use_is_explained(make, message):
    with pytest.raises(ValueError, match=message):
        make(mx.sym.contrib, mx.sym.var("x"), mx.sym.var("s"))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda node: node.pop("subgraphs"), "has no list of 1 'subgraphs'"),
        (lambda node: node["subgraphs"].append({}), "has no list of 1 'subgraphs'"),
        (lambda node: node["subgraphs"][0].pop("nodes"), "subgraph 0 of node"),
        (lambda node: node["subgraphs"][0]["nodes"][0].pop("name"), "subgraph 0 of node .*: node 0"),
        (lambda node: node["attrs"].update(in_data_locs="[99]"), "do not match"),
        (lambda node: node["attrs"].update(in_data_locs="[-5]"), "do not match"),
        (lambda node: node["attrs"].update(num_out_data="9"), "do not match"),
        (lambda node: node["attrs"].update(num_outputs="1000000000000"), "its last subgraph 2"),
        (lambda node: node["attrs"].update(in_data_locs="nonsense"), "in_data_locs"),
    ],
)
def test_damaged_files_are_refused(spoil, message):
    rows = json.loads(json.dumps(CASES["foreach_dense"]["symbol"]))
    spoil(next(node for node in rows["nodes"] if node["op"] == "_foreach"))
    with pytest.raises(mx.MXNetError, match=message):
        mx.sym.load_json(json.dumps(rows)).infer_shape(data=(5, 2, 4))

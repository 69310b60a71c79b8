"""What an executor keeps between forward and backward, compared with MXNet 1.9.1 where that is not a bug."""

import copy
import pickle
import re

import numpy as np
import pytest

import dpmodule as mx
from dpmodule._devices import generators
from dpmodule.base import StateError

S = mx.sym
X, Y = S.Variable("x"), S.Variable("y")


def ones(*shape):
    return mx.nd.ones(shape)


def bound(symbol, req="write", **arrays):
    given = {k: mx.nd.array(v) for k, v in arrays.items()}
    grads = {k: mx.nd.zeros(v.shape, dtype=v.dtype) for k, v in given.items()}
    names = symbol.list_arguments()
    states = {k: v for k, v in given.items() if k not in names}
    args = {k: given[k] for k in names}
    return symbol.bind(mx.cpu(), args, {k: grads[k] for k in names}, req, states)


def grad(executor, name="x"):
    return executor.grad_dict[name].asnumpy().tolist()


# gradients


LOSS, TWICE = S.MakeLoss(X), X * 2
SCALED = S.MakeLoss(X * 5)
NO_GRADIENT = (S.BlockGrad(X * 2), S.argmax(X, axis=0), S.zeros_like(X), X > 0)
A, B = S.identity(TWICE, name="a"), S.identity(X * 3, name="b")
BEHIND = S.Group([A, S.MakeLoss(X * 3), S.BlockGrad(X)])
OF_Y = S.Group([TWICE, S.BlockGrad(Y)])
ONE, PAIR, STALE = [1.0], [1.0, 2.0], {"x": [1.0], "y": [1.0]}
REGRESSION, SCORED = S.LinearRegressionOutput, S.SoftmaxOutput(X, Y, out_grad=True)
CASES = {  # net, values, head gradients, gradients; these start as 7
    "shape not read": (S.shape_array(X), PAIR, [[1] * 5], [0, 0]),  # as in MXNet, where no gradient flows
    "more than outputs": (X * 2, ONE, [1, [1] * 7], [2]),
    "made label": (REGRESSION(X, Y * 2), {"x": [[1.0]], "y": [[3.0]]}, None, {"x": [[-5]], "y": [[0]]}),
    "regression": (
        REGRESSION(X, Y),
        {"x": [[1.0, 2.0]], "y": [[0.0, 0.0]]},
        None,
        {"x": [[0.5, 1]], "y": [[0, 0]]},
    ),
    "no gradient": (S.Group([S.MakeLoss(X), *NO_GRADIENT]), PAIR, None, [1, 1]),
    "nothing to differentiate": (S.BlockGrad(X), ONE, None, [0]),
    "loss": (S.MakeLoss(TWICE), ONE, [100], [2]),
    "loss at the end": (BEHIND, ONE, [1], [5]),
    "loss beside": (S.Group([LOSS, TWICE]), ONE, [None, 1], [3]),
    "part of a loss": (S.slice_axis(S.MakeLoss(X * X), axis=0, begin=0, end=1), PAIR, None, [2, 4]),
    "function of a loss": (S.log(S.transpose(SCALED)), ONE, None, [5]),
    "a loss beside no gradient": (S.Concat(SCALED, S.BlockGrad(X), dim=0), ONE, None, [5]),
    "dict": (S.Group([A, B]), ONE, {"a_output": 1, "b_output": 1}, [5]),
    "variable": (X, ONE, [4], [4]),
    "loss of a variable": (S.MakeLoss(X, grad_scale=3), ONE, None, [3]),
    "head twice": (S.Group([TWICE, TWICE]), ONE, [1, 1], [4]),
    "loss twice": (S.Group([LOSS, LOSS]), ONE, None, [1]),
    "two losses": (S.Group([S.MakeLoss(TWICE), S.MakeLoss(TWICE, grad_scale=3)]), ONE, None, [8]),
    "loss of a loss": (S.MakeLoss(SCALED * 3), ONE, None, [5]),
    "read loss": (S.Group([SCALED, S.BlockGrad(SCALED) * X]), [2.0], [None, 1], [15]),
    "loss below no gradient": (S.BlockGrad(SCALED), ONE, None, [5]),
    "loss below argmax": (
        S.Group([S.argmax(SCALED, axis=0), S.zeros_like(LOSS), S.shape_array(X)]),
        PAIR,
        None,
        [6, 6],
    ),
    "loss below a loss, no gradient between": (S.MakeLoss(SCALED > 0), ONE, None, [5]),
    "loss below no gradient, head beside": (S.Group([S.BlockGrad(SCALED), TWICE]), ONE, [None, 1], [7]),
    "out_grad": (SCORED, {"x": [[0.0, 0.0]], "y": ONE}, [[[8, 8]]], {"x": [[0.25, -0.25]]}),
    "unreachable": (OF_Y, STALE, [1, 1], {"x": [2], "y": [0]}),
}


@pytest.mark.parametrize("req", ["write", "add"])
@pytest.mark.parametrize(("net", "values", "heads", "expected"), CASES.values(), ids=CASES)
def test_gradients(net, values, heads, expected, req):
    executor = bound(net, req, **(values if isinstance(values, dict) else {"x": values}))
    for array in executor.grad_dict.values():
        array[:] = 7
    if isinstance(heads, dict):
        heads = {k: mx.nd.array([v]) for k, v in heads.items()}
    elif heads is not None:
        heads = [None if v is None else mx.nd.array(v if isinstance(v, list) else [v]) for v in heads]
    executor.forward(is_train=True)
    for turn in (1, 2):
        executor.backward(heads)
        for name, value in (expected if isinstance(expected, dict) else {"x": expected}).items():
            value = np.array(value) if req == "write" else 7 + turn * np.array(value)
            assert grad(executor, name) == value.tolist()


@pytest.mark.parametrize(("source", "target"), [("int32", "float16"), ("float16", "int32")])
def test_gradients_pass_casts_to_and_from_integers(source, target):
    executor = S.Cast(S.Variable("x", dtype=source), dtype=target).simple_bind(mx.cpu(), x=(4,))
    values = np.array([-3.7, -0.2, 1.5, 8.9])
    executor.arg_arrays[0][:] = values
    out = executor.forward(is_train=True)[0]
    executor.backward(mx.nd.array(values, dtype=target))
    np.testing.assert_array_equal(out.asnumpy(), values.astype(source).astype(target))
    np.testing.assert_array_equal(executor.grad_arrays[0].asnumpy(), values.astype(target).astype(source))


def test_gradients_of_integers_that_an_operator_does_not_take_as_reals():
    root = S.Cast(S.sqrt(S.Variable("x", dtype="int32")), "int32")
    executor = S.dot(root, S.ones((2,), dtype="int32")).simple_bind(mx.cpu(), x=(2,))
    executor.arg_arrays[0][:] = [4, 9]
    assert executor.forward(is_train=True)[0].asnumpy().tolist() == [5]
    executor.backward(mx.nd.array([1], dtype="int32"))
    assert grad(executor) == [0, 0]


# orders of calls


NORM = S.BatchNorm(X, fix_gamma=False, eps=0, name="bn")


def norm(net=NORM, x=((1.0,), (3.0,)), mean=0, var=1, **options):
    count = np.shape(x)[1]
    each = {"bn_gamma": 1, "bn_beta": 0, "bn_moving_mean": mean, "bn_moving_var": var}
    return bound(net, x=x, **{k: [v] * count for k, v in each.items()}, **options)


def test_a_second_backward_changes_neither_states_nor_outputs_nor_the_generator():
    executor = norm(S.Dropout(NORM, p=0.5), np.arange(12).reshape(6, 2))
    executor.forward(is_train=True)
    found = []
    for _ in range(2):
        executor.backward(ones(6, 2))
        state = generators.get_state()["contexts"][mx.cpu()].tolist()
        arrays = [*executor.outputs, *executor.aux_arrays, executor.grad_dict["x"]]
        found.append([state, *(array.asnumpy().tolist() for array in arrays)])
    assert found[0] == found[1]


def test_backward_without_a_forward_runs_one():
    executor = bound(X**2, x=[3.0])
    executor.backward(ones(1))
    assert grad(executor) == [6]
    assert executor.outputs[0].asnumpy().tolist() == [9]


def test_backward_after_predict_differentiates_what_was_computed():
    executor = bound(S.Dropout(X * 3, p=0.5), x=np.ones(20))
    executor.forward(is_train=True)
    executor.forward(is_train=False)
    executor.backward(ones(20))
    assert set(grad(executor)) == set(executor.outputs[0].asnumpy()) == {3}


def test_backward_after_predict_uses_moving_statistics_and_leaves_them():
    executor = norm(mean=5, var=4)
    executor.forward(is_train=False)
    executor.backward(ones(2, 1))
    assert grad(executor) == [[0.5], [0.5]]
    assert [a.asscalar() for a in executor.aux_arrays] == [5, 4]


def test_other_arrays_written_between_forward_and_backward():
    label = bound(REGRESSION(X, Y), x=[[1.0], [2.0]], y=[[0.0], [0.0]])
    state = norm(S.BatchNorm(X, use_global_stats=True, fix_gamma=False, eps=0, name="bn"))
    output, product = bound(S.sigmoid(X), x=[0.0]), bound(X * Y, x=[2.0], y=[3.0])
    for executor in (label, state, output, product):
        executor.forward(is_train=True)
    label.arg_dict["y"][:], state.aux_dict["bn_moving_var"][:], output.outputs[0][:] = 5, 4, 0.25
    product.arg_dict["x"][:], product.arg_dict["y"][:] = 20, 30
    label.backward()
    state.backward(ones(2, 1))
    output.backward(ones(1))
    product.backward(ones(1))
    assert [grad(product, name) for name in "xy"] == [[30], [20]]
    assert [grad(each) for each in (label, state, output)] == [[[-4], [-3]], [[0.5], [0.5]], [0.25 * 0.75]]


def test_outputs_are_the_same_arrays_with_the_newest_values():
    executor = bound(X + 1, x=ONE)
    outputs = executor.outputs
    first = executor.forward()[0]
    tensor, view = first.torch(), first[0:1]
    second = executor.forward(is_train=True, x=mx.nd.array([5]))[0]
    assert all(each is first for each in (*outputs, second, *executor.output_dict.values()))
    assert first.asnumpy().tolist() == [6]
    assert (tensor.tolist(), view.asnumpy().tolist()) == ([2], [2])  # what has been taken stays


@pytest.mark.parametrize("heads", [3, [ones(1)], [ones(1), np.ones(1)], [ones(1), ones(2)], {"c": ones(1)}])
def test_wrong_head_gradients_use_nothing_up(heads):
    net = S.BatchNorm(X, fix_gamma=False, momentum=0, name="bn")
    both = S.Group([S.identity(S.sum(net, axis=1), name=name) for name in "ab"])
    executor = norm(both, [[3.0]])
    executor.forward(is_train=True)
    with pytest.raises(mx.base.MXNetError):
        executor.backward(heads)
    executor.backward([ones(1), ones(1)])
    assert executor.aux_dict["bn_moving_mean"].asscalar() == 3  # written by the backward that succeeded


def test_two_steps_of_batchnorm_commit_once_each_in_backward():
    executor = norm()
    mean, var = executor.aux_arrays
    for _ in range(3):
        executor.forward(is_train=True)
        assert (mean.asscalar(), var.asscalar()) == (0, 1)
    executor.backward(ones(2, 1))
    assert mean.asscalar() == pytest.approx(0.2)
    assert var.asscalar() == pytest.approx(0.9 + 0.1 * 1)  # of the batch: 1, not 2


def test_inputs_may_be_read_where_they_lie():
    executor = bound(REGRESSION(X * S.Variable("w"), Y), x=[[1]], w=[[1]], y=[[1]])
    lent = {"x": mx.nd.array([[4]]).torch(), "y": mx.nd.array([[1]]).torch()}
    executor.run(True, lent)
    assert [a.asscalar() for a in (executor.input_array("x"), executor.outputs[0])] == [1, 4]
    assert executor.arg_dict["x"].asscalar() == 4  # looking brings them up to date
    executor.arg_dict["y"][:] = 2
    for _ in range(2):
        executor.backward()
        assert grad(executor, "w") == [[8]]
    assert lent["y"].tolist() == [[1]]


def steps(x):
    """Return networks whose backward reads all, some or none of their inputs."""
    fc, two = S.FullyConnected(x, num_hidden=3), S.Reshape(x, shape=(4, 2, 2, 1))
    yield from (S.tanh(x), S.relu(x), x * x, x + 1, S.sum(x, axis=1), S.Concat(x, x * 2), S.exp(x), fc)
    yield from (
        S.transpose(x),
        S.LayerNorm(x),
        S.BatchNorm(x),
        S.softmax(x),
        S.Dropout(x),
        S.SliceChannel(x, 2),
    )
    yield from (
        S.Convolution(two, kernel=(1, 1), num_filter=2),
        S.Pooling(two, kernel=(2, 1)),
        S.Flatten(two),
    )
    yield from (S.Embedding(x, input_dim=4, output_dim=3), S.LinearRegressionOutput(fc, name="y"))
    yield from (
        S.SoftmaxOutput(x, name="y"),
        S.BlockGrad(x) * x,
        S.contrib.foreach(lambda a, s: (a * a, s), x, [])[0],
    )


@pytest.mark.parametrize("number", range(22))
def test_a_batch_may_be_changed_between_forward_and_backward(number):
    net = list(steps(S.Variable("x")))[number]
    values, other = np.random.RandomState(number).randint(0, 4, (4, 4)), np.full((4, 4), 3.0)
    labels = [("y_label", net.infer_shape(x=(4, 4))[0][-1])] if "y_label" in net.list_arguments() else []
    modules = [mx.mod.Module(net, ["x"], [name for name, _ in labels]) for _ in range(2)]
    for module in modules:
        module.bind([("x", (4, 4))], labels or None, inputs_need_grad=True)
        module.init_params(mx.init.One())
    for turn in range(3):  # the first run finds out what backward reads
        found = []
        for module, changes in zip(modules, (False, True)):
            mx.random.seed(turn)
            batch = mx.io.DataBatch(
                [mx.nd.array(values + turn)], [mx.nd.array(np.ones(shape)) for _, shape in labels]
            )
            module.forward(batch, is_train=True)
            heads = [mx.nd.array(np.arange(out.size).reshape(out.shape)) for out in module.get_outputs()]
            if changes:
                for array in (*batch.data, *batch.label):
                    array[:] = other[: len(array)].reshape(-1)[: array.size].reshape(array.shape)
            module.backward(heads)
            grads = [grad for (grad,) in module.group.grad_arrays if grad is not None]
            found.append([array.asnumpy() for array in (*module.get_input_grads(), *grads)])
        for right, changed in zip(*found, strict=True):
            np.testing.assert_array_equal(changed, right)


@pytest.mark.parametrize("read", [S.identity, S.Flatten, S.transpose], ids=["itself", "view", "transposed"])
def test_an_input_changed_before_backward_counts_with_its_old_or_new_value(read):
    executor = bound(S.dot(read(X), Y), x=[[1.0, 2.0]] * 2, y=[[3.0], [4.0]])
    executor.forward(is_train=True)
    old = read(X).eval(ctx=mx.cpu(), x=executor.arg_dict["x"])[0].asnumpy().sum(0)
    executor.arg_dict["x"][:] = 5
    executor.backward(ones(2, 1))
    assert np.ravel(grad(executor, "y")).tolist() in (old.tolist(), [10, 10])


def test_a_repeated_backward_refuses_a_changed_batch():
    module = mx.mod.Module(S.tanh(S.Variable("x")), ["x"], None)
    module.bind([("x", (4, 4))], inputs_need_grad=True)
    module.init_params()
    batch, head = mx.io.DataBatch([mx.nd.ones((4, 4))]), [mx.nd.ones((4, 4))]
    for _ in range(3):
        module.forward(batch)
        module.backward(head)
        module.backward(head)
    assert module.get_input_grads()[0].asnumpy().max() == pytest.approx(1 - np.tanh(1) ** 2)
    batch.data[0][:] = 2
    with pytest.raises(StateError, match="x of the batch was changed since forward"):
        module.backward(head)
    module.forward(batch)
    module.backward(head)
    assert module.get_input_grads()[0].asnumpy().max() == pytest.approx(1 - np.tanh(2) ** 2, rel=1e-5)


def test_release_gives_up_what_was_kept():
    executor = bound(TWICE, x=ONE)
    out = executor.forward(is_train=True)[0]
    assert [executor.release(), executor.release()] == [True, False]
    assert out.asnumpy().tolist() == [2]
    with pytest.raises(StateError):
        executor.backward(ones(1))
    executor.forward(is_train=True)
    executor.backward(ones(1))
    assert grad(executor) == [2]


# arrays by name, copies


def normed():
    return S.BatchNorm(S.FullyConnected(X, num_hidden=2, name="fc"), name="bn")


def test_dicts_and_lists_agree():
    net = normed()
    executor = net.simple_bind(mx.cpu(), x=(2, 3), grad_req={"fc_weight": "write"})
    assert list(executor.arg_dict) == net.list_arguments()
    assert list(executor.aux_dict) == net.list_auxiliary_states()
    assert list(executor.output_dict) == net.list_outputs()
    assert executor.arg_arrays == list(executor.arg_dict.values())
    assert [g is not None for g in executor.grad_arrays] == [n == "fc_weight" for n in net.list_arguments()]
    assert executor.outputs[0].shape == (2, 2)
    assert executor._ctx == mx.cpu()  # MXNet's name
    assert executor.debug_str().count("def forward(values, env, shaped):") == 2


def test_copy_params_from():
    executor = normed().simple_bind(mx.cpu(), x=(2, 3))
    bias = executor.arg_dict["fc_bias"]
    args, states = {"fc_bias": mx.nd.array([1, 2], dtype="float64")}, {"bn_moving_var": ones(2) * 3}
    executor.copy_params_from(args, states)
    assert bias.asnumpy().tolist() == [1, 2]
    assert executor.aux_dict["bn_moving_var"].asnumpy().tolist() == [3, 3]
    extra = {"zz": ones(1)}
    executor.copy_params_from({**extra, "fc_bias": ones(2)}, extra, allow_extra_params=True)
    assert bias.asnumpy().tolist() == [1, 1]
    for given in ((extra,), ({}, extra), ({"fc_bias": ones(3)},)):
        with pytest.raises(mx.base.MXNetError):
            executor.copy_params_from(*given)


def test_an_executor_is_not_copied():
    executor = TWICE.simple_bind(mx.cpu(), x=(2,))
    for way in (copy.deepcopy, pickle.dumps):
        with pytest.raises(StateError, match="cannot be copied or pickled; copy or pickle the symbol and"):
            way(executor)
    assert copy.copy(executor).arg_dict is executor.arg_dict


# layers that are not trained: which moving statistics stay was tried with MXNet 1.9.1


def three_layers(blocked=False):
    net = X
    for i in range(2 if blocked else 3):
        net = S.FullyConnected(net, num_hidden=4, name=f"fc{i}")
        net = S.BatchNorm(net, fix_gamma=i == 1, momentum=0.5, name=f"bn{i}")
    net = S.FullyConnected(S.BlockGrad(net), num_hidden=3, name="last") if blocked else net
    return S.SoftmaxOutput(net, name="softmax")


STATES = {"fc|bn": [0, 1, 2], "(fc|bn)[12]": [1, 2], "bn1_gamma": [1, 2], "x": [0, 1, 2], "nothing": []}
STATES["fc|bn|last"] = [0, 1]


@pytest.mark.parametrize(("trained", "expected"), STATES.items())
def test_states_move_in_backward_from_the_first_trained_layer_on(trained, expected):
    net = three_layers("last" in trained)
    req = {name: "write" if re.match(trained, name) else "null" for name in net.list_arguments()}
    executor, rng = net.simple_bind(mx.cpu(), x=(5, 3), grad_req=req), np.random.RandomState(0)
    for _, array in sorted(executor.arg_dict.items()):
        array[:] = rng.rand(*array.shape)
    means = [state for name, state in executor.aux_dict.items() if "mean" in name]
    for run, moved in ((lambda: executor.forward(is_train=True), []), (executor.backward, expected)):
        run()
        assert [i for i, state in enumerate(means) if state.asnumpy().any()] == moved


@pytest.mark.parametrize(("trained", "moved"), [("x", 0), ("bn_gamma", 1.5)])
def test_states_above_an_operator_without_gradient_move_only_with_a_trained_parameter(trained, moved):
    net = S.BatchNorm(S.BlockGrad(X), name="bn", momentum=0.5, fix_gamma=False)
    req = {name: "write" if name == trained else "null" for name in net.list_arguments()}
    executor = net.simple_bind(mx.cpu(), x=(4, 1), grad_req=req)
    executor.arg_dict["x"][:] = np.array([[1], [2], [3], [6]])
    executor.forward(is_train=True)
    executor.backward(mx.nd.ones((4, 1)))
    assert executor.aux_dict["bn_moving_mean"].asscalar() == moved


@pytest.mark.parametrize("native", [True, False])
def test_prediction_leaves_a_fixed_gamma_and_training_sets_it(native):
    net = S.Convolution(X, num_filter=8, kernel=(1, 1), name="conv") if native else X
    executor = S.BatchNorm(net, name="bn", fix_gamma=True).simple_bind(mx.cpu(), x=(2, 8, 5, 5))
    executor.arg_dict["bn_gamma"][:] = 0.25
    for is_train, gamma in ((False, 0.25), (True, 1)):
        executor.forward(is_train=is_train)
        assert executor.arg_dict["bn_gamma"].asnumpy().tolist() == [gamma] * 8

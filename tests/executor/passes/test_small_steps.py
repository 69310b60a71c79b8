import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule import native

S = mx.sym
NAME = "small_steps"
pytestmark = pytest.mark.skipif(not hasattr(native.core, "run_steps"), reason="there is no extension")


def recommender():
    ids, x = S.Variable("ids"), S.Variable("x")
    low = S.Activation(S.FullyConnected(x, num_hidden=8, name="low"), act_type="relu")
    rows = S.Embedding(ids, input_dim=20, output_dim=8, name="rows")
    rows = S.Concat(S.expand_dims(low, axis=1), rows, dim=1)
    pairs = S.batch_dot(rows, S.transpose(rows, axes=(0, 2, 1)))
    top = S.Concat(low, S.Flatten(pairs), dim=1)
    top = S.FullyConnected(S.relu(S.FullyConnected(top, num_hidden=7, name="top")), num_hidden=2, name="last")
    return S.sigmoid(top), {"ids": (5, 3), "x": (5, 13)}


def arithmetic():
    x, y, z = S.Variable("x"), S.Variable("y"), S.Variable("z")
    parts = S.SliceChannel(S.broadcast_add(x, y), num_outputs=2, axis=2)
    net = S.tanh(parts[0] * 0.5 - parts[1] / 3.0) + S.transpose(z, axes=(2, 0, 1))
    total = S.sum(S.square(net), axis=1, keepdims=True)
    mean = S.mean(S.broadcast_mul(net, total), axis=(1, 2))
    last = S.broadcast_div(S.slice_axis(net, axis=2, begin=1, end=3), 2 + S.Reshape(mean, shape=(-1, 1, 1)))
    return S.Group([last, S.Reshape(x, shape=(4, -1)), mean]), {
        "x": (4, 5, 6),
        "y": (1, 5, 1),
        "z": (5, 3, 4),
    }


def activations():
    net = S.Variable("x")
    for i, kind in enumerate(("relu", "sigmoid", "tanh", "gelu")):
        of = S.LeakyReLU if kind == "gelu" else S.Activation
        net = of(S.FullyConnected(net, num_hidden=9, name=f"fc{i}"), act_type=kind)
        net = S.concat(net, of(net * 3.0, act_type=kind), dim=1)
    return net, {"x": (4, 11)}


def bind(net, arrays):
    return net.bind(mx.cpu(), {name: mx.nd.array(value, dtype=value.dtype) for name, value in arrays.items()})


def drawn(net, shapes):
    random = np.random.RandomState(3)
    names, sizes = net.list_arguments(), net.infer_shape(**shapes)[0]
    arrays = {name: random.randn(*size).astype("f4") for name, size in zip(names, sizes)}
    return {n: random.randint(0, 20, v.shape).astype("f4") if n == "ids" else v for n, v in arrays.items()}


def outputs(bound, **given):
    return [each.asnumpy().copy() for each in bound.forward(is_train=False, **given)]


def plain_outputs(net, arrays):
    with mx.executor.disabled(NAME):
        return outputs(bind(net, arrays))


def assert_same(found, want):
    for one, other in zip(found, want, strict=True):
        np.testing.assert_allclose(one, other, 1e-5, 1e-6)


@pytest.mark.parametrize("make", [recommender, arithmetic, activations])
def test_a_run_gives_the_results_of_its_steps(make):
    net, shapes = make()
    for rows in (1, 4, 9, 40):
        shapes = {
            n: size if n in ("y", "z") or "z" in shapes else (rows, *size[1:]) for n, size in shapes.items()
        }
        arrays = drawn(net, shapes)
        bound = bind(net, arrays)
        for _ in range(3):  # weights are packed from the second call on
            assert_same(outputs(bound), plain_outputs(net, arrays))
        assert bound.program(False).low.fired[NAME] == 1
        assert "layers(env" in bound.program(False).source


def test_a_run_ends_at_an_activation_that_the_extension_lacks():
    x = S.Variable("x")
    net = S.LeakyReLU(S.tanh(x) * 2.0 + x, act_type="elu", name="elu")
    for i in range(6):
        net = S.tanh(net * (1.0 + i))
    arrays = drawn(net, {"x": (3, 4)})
    bound = bind(net, arrays)
    assert_same(outputs(bound), plain_outputs(net, arrays))
    assert bound.program(False).low.fired[NAME] == 1
    assert "= layers(env, elu)" in bound.program(False).source


def test_new_parameters_and_values_that_need_the_steps_themselves():
    net, shapes = recommender()
    arrays = drawn(net, shapes)
    bound = bind(net, arrays)
    outputs(bound)
    for name in ("top_weight", "rows_weight", "low_bias"):
        arrays[name] = arrays[name] * 2 + 1
        bound.arg_dict[name][:] = arrays[name]
        assert_same(outputs(bound), plain_outputs(net, arrays))
    for ids in ([-1e30, -2.0, 0.9], [19.0, 20.0, 2e9], [np.nan, np.inf, 5.5]):
        arrays["ids"] = np.tile(np.array(ids, "f4"), (5, 1))
        assert_same(outputs(bound, ids=mx.nd.array(arrays["ids"])), plain_outputs(net, arrays))
    for dtype in ("int32", "int64", "float64"):
        arrays["ids"] = np.array([[0, 19, 25], [-3, 2, 1]] * 2 + [[1, 1, 1]], dtype)
        assert_same(outputs(bind(net, arrays)), plain_outputs(net, arrays))


def test_not_a_number_and_large_arrays():
    x = S.Variable("x")
    net = S.sigmoid(S.relu(x + 1.0) * 2.0) * S.Activation(x, act_type="relu") / 2.0
    values = np.array([[np.nan, np.inf, -np.inf, -2, 3]], "f4")
    assert_same(outputs(bind(net, {"x": values})), plain_outputs(net, {"x": values}))
    for values in (np.ones((300, 301), "f4"), np.ones((0, 3), "f4"), np.ones((3, 2)), np.ones((2, 2), "f2")):
        found, want = outputs(bind(net, {"x": values})), plain_outputs(net, {"x": values})
        assert found[0].dtype == want[0].dtype
        assert_same(found, want)


def test_a_run_records_no_gradient_and_errors_are_the_same():
    net, shapes = arithmetic()
    arrays = drawn(net, shapes)
    bound = net.bind(mx.cpu(), {n: mx.nd.array(v) for n, v in arrays.items()}, {"y": mx.nd.zeros((1, 5, 1))})
    outputs(bound)
    bound.forward(is_train=True)
    bound.backward([mx.nd.ones(each.shape) for each in bound.outputs])
    assert np.abs(bound.grad_dict["y"].asnumpy()).min() > 0
    assert NAME not in bound.program(True).low.fired


def test_no_rows_have_no_results():
    net, shapes = activations()
    with mx.util.np_shape(True):
        bound = bind(net, drawn(net, {**shapes, "x": (0, 11)}))
        assert [each.shape for each in outputs(bound)] == [(0, 18)]


def test_executors_of_other_shapes_share_a_program():
    net, shapes = recommender()
    given = [drawn(net, {**shapes, "x": (5, width)}) for width in (13, 29)]
    bound = [bind(net, arrays) for arrays in given]
    for _ in range(3):
        for each, arrays in zip(bound, given):
            assert_same(outputs(each), plain_outputs(net, arrays))
    assert bound[0].program(False) is bound[1].program(False)


def test_the_number_of_threads_changes_no_bit():
    net, shapes = recommender()
    bound, threads, found = bind(net, drawn(net, shapes)), torch.get_num_threads(), []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            found.append(outputs(bound)[0])
    finally:
        torch.set_num_threads(threads)
    np.testing.assert_array_equal(*found)

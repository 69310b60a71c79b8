"""The parts of Gluon that language models of the Module interface use, against NumPy."""

import hashlib

import numpy as np
import pytest

import dpmodule as mx


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_clipping_by_the_global_norm():
    arrays = [mx.nd.array([3.0, 0.0]), mx.nd.array([[4.0]], ctx=mx.cpu(1))]
    assert mx.gluon.utils.clip_global_norm(arrays, 1.0) == pytest.approx(5)
    np.testing.assert_allclose(arrays[0].asnumpy(), [0.6, 0], rtol=1e-6)
    np.testing.assert_allclose(arrays[1].asnumpy(), [[0.8]], rtol=1e-6)
    norm = mx.gluon.utils.clip_global_norm(arrays, 10, check_isfinite=False)
    assert norm.asnumpy() == pytest.approx([1], rel=1e-6)
    np.testing.assert_allclose(arrays[0].asnumpy(), [0.6, 0], rtol=1e-6)


def test_clipping_sparse_and_infinite_gradients():
    grad = mx.nd.sparse.row_sparse_array(([[3.0, 4.0]], [1]), shape=(3, 2))
    assert mx.gluon.utils.clip_global_norm([grad], 1.0) == pytest.approx(5)
    np.testing.assert_allclose(grad.asnumpy(), [[0, 0], [0.6, 0.8], [0, 0]], rtol=1e-6)
    with pytest.warns(UserWarning, match="the norm is inf"):
        mx.gluon.utils.clip_global_norm([mx.nd.array([np.inf])], 1.0)


def test_batches_are_cut_for_contexts():
    data = np.arange(10).reshape(5, 2)
    parts = mx.gluon.utils.split_and_load(data, [mx.cpu(0), mx.cpu(1)], even_split=False)
    assert [part.asnumpy().tolist() for part in parts] == [data[:3].tolist(), data[3:].tolist()]
    assert [part.context for part in parts] == [mx.cpu(0), mx.cpu(1)]
    columns = mx.gluon.utils.split_data(mx.nd.array(data), 2, batch_axis=1)
    assert [part.shape for part in columns] == [(5, 1), (5, 1)]
    lengths = [part.shape[0] for part in mx.gluon.utils.split_data(mx.nd.array(data), 7, even_split=False)]
    assert lengths == [1] * 5 + [0] * 2


def test_shapes_are_known_with_and_without_np_shape():
    shapes = [None, (), (2, 3), (0, 3), (-1, 3)]
    assert [mx.gluon.utils.shape_is_known(shape) for shape in shapes] == [False, False, True, False, True]
    with mx.util.np_shape(True):
        assert [mx.gluon.utils.shape_is_known(shape) for shape in shapes] == [False, True, True, True, False]


def test_a_files_sum(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"content")
    assert mx.gluon.utils.check_sha1(str(path), hashlib.sha1(b"content").hexdigest())
    assert not mx.gluon.utils.check_sha1(str(path), "0" * 40)


@pytest.mark.parametrize("symbolic", [True, False])
def test_cross_entropy(symbolic):
    rng = np.random.RandomState(0)
    scores, label, weight = rng.randn(3, 4, 5), rng.randint(0, 5, (3, 4)), rng.rand(3, 4, 1)
    logs = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    expected = -np.take_along_axis(logs, label[..., None], -1) * weight * 2
    criterion = mx.gluon.loss.SoftmaxCrossEntropyLoss(weight=2)
    values = {"p": mx.nd.array(scores), "l": mx.nd.array(label), "w": mx.nd.array(weight)}
    if symbolic:
        loss = criterion.hybrid_forward(mx.sym, *(mx.sym.Variable(name) for name in values))
        found = loss.eval(**values)[0]
    else:
        found = criterion(*values.values())
    np.testing.assert_allclose(found.asnumpy(), expected.mean((1, 2)), rtol=1e-5)
    probabilities = np.eye(5)[label]
    dense = mx.gluon.loss.SoftmaxCELoss(sparse_label=False, from_logits=True)
    found = dense(mx.nd.array(logs), mx.nd.array(probabilities))
    np.testing.assert_allclose(found.asnumpy(), (expected / weight / 2).mean((1, 2)), rtol=1e-5)


def test_the_projected_lstm_unrolls_into_a_symbol():
    rng = np.random.RandomState(1)
    n, steps, c, hidden, projected = 2, 3, 4, 5, 3
    cell = mx.gluon.contrib.rnn.LSTMPCell(hidden, projected, prefix="a_")
    x, *begin = (mx.sym.Variable(name) for name in "xrc")
    output, states = cell.unroll(steps, x, begin_state=begin, layout="NTC", merge_outputs=True)
    net = mx.sym.Group([output, *states])
    sizes = {"x": (n, steps, c), "r": (n, projected), "c": (n, hidden), "a_h2r_weight": (projected, hidden)}
    sizes |= {"a_i2h_weight": (4 * hidden, c), "a_h2h_weight": (4 * hidden, projected)}
    sizes |= dict.fromkeys(("a_i2h_bias", "a_h2h_bias"), (4 * hidden,))
    assert sorted(net.list_arguments()) == sorted(sizes)
    v = {name: rng.randn(*shape).astype("f4") for name, shape in sizes.items()}
    r, state, rows = v["r"], v["c"], []
    for t in range(steps):
        gates = v["x"][:, t] @ v["a_i2h_weight"].T + r @ v["a_h2h_weight"].T
        i, f, g, o = np.split(gates + v["a_i2h_bias"] + v["a_h2h_bias"], 4, axis=1)
        state = sigmoid(f) * state + sigmoid(i) * np.tanh(g)
        r = (sigmoid(o) * np.tanh(state)) @ v["a_h2r_weight"].T
        rows.append(r)
    found = net.eval(**{name: mx.nd.array(value) for name, value in v.items()})
    for have, expected in zip(found, (np.stack(rows, 1), r, state)):
        np.testing.assert_allclose(have.asnumpy(), expected, rtol=1e-4, atol=1e-5)
    assert "__init__" not in net.attr_dict().get("a_i2h_weight", {})
    assert "zero" in net.attr_dict()["a_h2h_bias"]["__init__"]

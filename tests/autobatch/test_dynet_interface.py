"""What DyNet's own Python tests ask of its interface, in our words, on both engines."""

import numpy as np
import pytest

import dpmodule.autobatch as dy
from helpers.walk import walks

pytestmark = pytest.mark.usefixtures("setting")


def test_initializers():
    m, array = dy.ParameterCollection(), np.arange(15.0).reshape(3, 5)
    for make in (m.add_parameters, m.add_lookup_parameters):
        assert not make((3, 5), init=0).as_array().any()
        assert 1 < np.abs(make((3, 5), init="uniform", scale=2.0).as_array()).max() <= 2
        drawn = make((100, 50), init="normal", mean=-1.0, std=2.5).as_array()
        np.testing.assert_allclose([drawn.mean(), drawn.std()], [-1.0, 2.5], atol=0.1)
        assert np.abs(make((3, 5), init="glorot").as_array()).max() <= np.sqrt(6 / 8)
        assert make((3, 5), init="he").as_array().any()
        assert (make((3, 5), init=dy.ConstInitializer(2.0)).as_array() == 2).all()
        np.testing.assert_array_equal(make(array.shape, init=array).as_array(), array)
    np.testing.assert_array_equal(m.add_parameters((5, 5), init="identity").as_array(), np.eye(5))
    saxe = m.add_parameters((4, 4), init=dy.SaxeInitializer()).as_array()
    np.testing.assert_allclose(saxe @ saxe.T, np.eye(4), atol=1e-5)
    table = m.lookup_parameters_from_numpy(np.arange(50).reshape(10, 5))
    np.testing.assert_array_equal(table.batch([8]).npvalue(), np.arange(40, 45))
    assert (len(table), len(list(table)), table.rows_as_array([5, 6, 9]).shape) == (10, 10, (3, 5))
    matrices = m.lookup_parameters_from_numpy(np.arange(12).reshape(3, 2, 2))
    np.testing.assert_array_equal(matrices[1].npvalue(), [[4, 5], [6, 7]])


BUILDERS = ["SimpleRNNBuilder", "GRUBuilder", "VanillaLSTMBuilder", "CoupledLSTMBuilder", "FastLSTMBuilder"]


@walks(BUILDERS)
def test_bidirectional(name):
    both = dy.BiRNNBuilder(2, 4, 6, dy.ParameterCollection(), getattr(dy, name))
    xs = [dy.inputTensor(np.full(4, float(i))) for i in range(3)]
    for y, (ahead, behind) in zip(both.transduce(xs), both.add_inputs(xs), strict=True):
        assert y.dim() == ((6,), 1)
        joined = dy.concatenate([ahead.output(), behind.output()])
        np.testing.assert_allclose(y.npvalue(), joined.npvalue(), rtol=1e-6)


def test_the_smallest_weights_of_each_layer_are_pruned():
    builder, rng = dy.SparseLSTMBuilder(1, 3, 4, dy.ParameterCollection(), False), np.random.RandomState(4)
    (*weights, bias, mask_x, mask_h), *_ = builder.get_parameters()
    for each in (*weights, bias):
        each.set_value(rng.normal(size=each.shape()))
    builder.set_sparsity(0.5)
    assert [each.as_array().sum() for each in (mask_x, mask_h)] == [27, 29]  # as in DyNet 2.1


def test_softmax_layers(tmp_path):
    m, x = dy.ParameterCollection(), dy.inputTensor(np.arange(3))
    (tmp_path / "clusters").write_text("".join(f"{i // 2} {i}\n" for i in range(10)))
    (tmp_path / "tree").write_text("".join(f"{i % 2} {i % 3} {i}\n" for i in range(10)))
    words = {str(i): i for i in range(10)}
    for layer in (
        dy.StandardSoftmaxBuilder(3, 10, m, True),
        dy.ClassFactoredSoftmaxBuilder(3, str(tmp_path / "clusters"), words, m, True),
        dy.HierarchicalSoftmaxBuilder(3, str(tmp_path / "tree"), words, m),
    ):
        logs = layer.full_log_distribution(x).npvalue()
        assert np.exp(logs).sum() == pytest.approx(1.0, rel=1e-5)
        for update in (True, False):
            found = [layer.neg_log_softmax(x, k, update=update).scalar_value() for k in range(10)]
            np.testing.assert_allclose(found, -logs, rtol=1e-4)
        assert {layer.sample(x) for _ in range(20)} <= set(range(10))
        losses = layer.neg_log_softmax_batch(dy.concatenate_to_batch([x, x * 2.0]), [4, 7]).npvalue()
        wanted = [-logs[4], layer.neg_log_softmax(x * 2.0, 7).scalar_value()]
        np.testing.assert_allclose(losses.ravel(), wanted, rtol=1e-4)
        with pytest.raises(dy.ShapeError):
            layer.neg_log_softmax_batch(dy.zeros(3, 3), [4, 7]).value()

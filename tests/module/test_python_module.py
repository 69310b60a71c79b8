"""Modules written in Python: alone, and as the loss of a chain."""

import logging

import numpy as np
import pytest
import torch

import dpmodule as mx
from helpers.small_fits import blobs, same

SHAPES = [("data", (3, 2))], [("softmax_label", (3,))]
SCORES = np.arange(6.0).reshape(3, 2)


class Same(mx.mod.PythonModule):
    """Hands its input on."""

    def __init__(self):
        super().__init__(("data",), ("softmax_label",), ["same_output"])

    def _compute_output_shapes(self):
        return [("same_output", self.data_shapes[0][1])]

    def forward(self, data_batch, is_train=None):
        self.out = data_batch.data[0]

    def get_outputs(self, merge_multi_context=True):
        return [self.out]


def scores(labels=True):
    return mx.io.DataBatch([mx.nd.array(SCORES)], [mx.nd.array(np.ones(3))] if labels else None)


def test_metric_sees_outputs_without_padding_and_only_with_labels():
    mod, found = Same(), []
    for shapes, options in ((SHAPES, {}), (SHAPES, {"pad": 1}), (SHAPES[:1], {})):
        mod.bind(*shapes, force_rebind=True)
        mod.forward(scores())
        metric = mx.metric.create("acc")
        mod.update_metric(metric, [mx.nd.array([1, 1, 0])], **options)
        found.append((metric.num_inst, metric.sum_metric))
    assert found == [(3, 2), (2, 2), (0, 0)]


def test_binding_twice_is_logged(caplog):
    mod = Same()
    mod.bind([("data", (3, 2))])
    with caplog.at_level(logging.WARNING):
        mod.bind([("data", (4, 2))])
    assert "Already bound" in caplog.text
    assert mod.output_shapes == [("same_output", (3, 2))]
    mod.bind([("data", (4, 2))], force_rebind=True)
    assert mod.output_shapes == [("same_output", (4, 2))]


@pytest.mark.parametrize(
    "gradient",
    [
        lambda s, t: s - t.reshape((-1, 1)),
        lambda s, t: s.tensor.double() - t.tensor[:, None],
        lambda s, t: (s.asnumpy() - t.asnumpy()[:, None]).tolist(),
    ],
    ids=["ndarray", "torch", "list"],
)
def test_loss_hands_scores_through_and_returns_the_gradient(gradient):
    mod, one = mx.mod.PythonLossModule("own", grad_func=gradient), scores()
    mod.bind(*SHAPES)
    mod.forward(one)
    assert mod.get_outputs(merge_multi_context=False) == [[one.data[0]]]
    mod.backward()
    (found,) = mod.get_input_grads()
    assert (found.dtype, found.context) == (np.float32, mx.cpu())
    np.testing.assert_array_equal(found.asnumpy(), SCORES - 1)
    assert mod.get_input_grads(merge_multi_context=False) == [[found]]
    assert (mod.output_shapes, mod.label_names) == ([("own_output", (3, 2))], ["softmax_label"])
    mod.bind(*SHAPES, for_training=False, force_rebind=True)
    mod.forward(scores(labels=False))  # prediction needs no label
    assert mod.get_outputs()[0].shape == (3, 2)


def test_chain_with_a_python_loss_learns_as_with_the_symbols_own():
    def cross_entropy(scores, labels):
        return torch.softmax(scores.tensor, 1) - torch.nn.functional.one_hot(labels.tensor.long(), 3)

    dense = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc")
    chain = mx.mod.SequentialModule().add(mx.mod.Module(dense, label_names=None))
    chain.add(mx.mod.PythonLossModule(grad_func=cross_entropy), take_labels=True, auto_wiring=True)
    mods = chain, mx.mod.Module(mx.sym.SoftmaxOutput(dense, name="softmax"))
    for mod in mods:
        mod.fit(blobs(), num_epoch=3, initializer=mx.init.Constant(0.1))
    same(*mods, 1e-5)

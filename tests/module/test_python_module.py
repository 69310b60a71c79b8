"""Modules written in Python: alone, and as the loss of a chain."""

import logging

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.base import ArgumentError, ShapeError, StateError


class Scale(mx.mod.PythonModule):
    """Multiplies its input by a number."""

    def __init__(self, factor, labels=("softmax_label",)):
        super().__init__(("data",), labels, ["scale_output"])
        self.factor = factor

    def _compute_output_shapes(self):
        return [("scale_output", self.data_shapes[0][1])]

    def forward(self, data_batch, is_train=None):
        self.out = data_batch.data[0] * self.factor

    def backward(self, out_grads=None):
        self.grad = out_grads[0] * self.factor

    def get_outputs(self, merge_multi_context=True):
        return [self.out]

    def get_input_grads(self, merge_multi_context=True):
        return [self.grad]


def scores(rows=3):
    return mx.io.DataBatch([mx.nd.array(np.arange(rows * 2).reshape(rows, 2))], [mx.nd.array(np.ones(rows))])


def bound_loss(grad_func=lambda scores, labels: scores, **bind):
    mod = mx.mod.PythonLossModule("own", grad_func=grad_func)
    mod.bind([("data", (3, 2))], [("softmax_label", (3,))], **bind)
    return mod


def test_a_subclass_runs_alone():
    mod = Scale(3)
    mod.bind([("data", (3, 2))], [("softmax_label", (3,))], inputs_need_grad=True)
    mod.init_params()
    mod.init_optimizer()
    assert (mod.binded, mod.params_initialized, mod.optimizer_initialized) == (True, True, True)
    assert (mod.for_training, mod.inputs_need_grad) == (True, True)
    assert mod.output_shapes == [("scale_output", (3, 2))]
    assert (mod.data_shapes, mod.label_shapes) == ([("data", (3, 2))], [("softmax_label", (3,))])
    mod.forward(scores())
    mod.backward([mx.nd.ones((3, 2))])
    mod.update()
    np.testing.assert_array_equal(mod.get_outputs()[0].asnumpy(), 3 * np.arange(6).reshape(3, 2))
    np.testing.assert_array_equal(mod.get_input_grads()[0].asnumpy(), np.full((3, 2), 3))
    assert mod.get_params() == ({}, {})
    found = mod.predict(mx.io.NDArrayIter(np.ones((7, 2)), batch_size=3))
    np.testing.assert_array_equal(found.asnumpy(), np.full((7, 2), 3))


def test_metric_sees_outputs_without_padding_and_only_with_labels():
    mod = Scale(1)
    mod.bind([("data", (3, 2))], [("softmax_label", (3,))])
    mod.forward(scores())
    metric = mx.metric.create("acc")
    mod.update_metric(metric, [mx.nd.array([1, 1, 0])])
    assert (metric.num_inst, metric.sum_metric) == (3, 2)
    metric.reset()
    mod.update_metric(metric, [mx.nd.array([1, 1, 0])], pad=1)
    assert (metric.num_inst, metric.sum_metric) == (2, 2)
    with pytest.raises(ArgumentError, match="whole batches"):
        mod.update_metric(metric, [[mx.nd.ones((3,))]], pre_sliced=True)
    mod.bind([("data", (3, 2))], force_rebind=True)
    metric.reset()
    mod.update_metric(metric, [mx.nd.array([1, 1, 0])])
    assert metric.num_inst == 0


def test_binding_twice_is_logged(caplog):
    mod = Scale(1)
    mod.bind([("data", (3, 2))])
    with caplog.at_level(logging.WARNING):
        mod.bind([("data", (4, 2))])
    assert "Already bound" in caplog.text
    assert mod.output_shapes == [("scale_output", (3, 2))]
    mod.bind([("data", (4, 2))], force_rebind=True)
    assert mod.output_shapes == [("scale_output", (4, 2))]


@pytest.mark.parametrize(
    ("shapes", "options", "message"),
    [
        ([("other", (3, 2))], {}, r"data_shapes names \['other'\], the module's data_names are \['data'\]"),
        ([("data", (3, 2)), ("more", (3,))], {}, "data_shapes names"),
        ([("data", (3, 2))], {"label_shapes": [("kind", (3,))]}, r"label_shapes names \['kind'\]"),
        ([("data", (3, 2))], {"grad_req": "add"}, "grad_req is 'add', a Scale supports only 'write'"),
    ],
)
def test_bind_refuses_what_does_not_fit(shapes, options, message):
    with pytest.raises(ArgumentError, match=message):
        Scale(1).bind(shapes, **options)
    with pytest.raises(ArgumentError, match="label_names are"):
        Scale(1, None).bind([("data", (3, 2))], [("softmax_label", (3,))])


@pytest.mark.parametrize("call", ["forward", "backward", "get_outputs", "get_input_grads", "bind"])
def test_what_a_subclass_must_define_is_named(call):
    mod = mx.mod.PythonModule(["data"], None, ["out"])
    arguments = {"forward": [scores()], "bind": [[("data", (3, 2))]]}.get(call, [])
    with pytest.raises(
        NotImplementedError, match="PythonModule does not define " + call.replace("bind", "_compute")
    ):
        getattr(mod, call)(*arguments)


# losses


@pytest.mark.parametrize(
    "gradient",
    [
        lambda s, t: s - t.reshape((-1, 1)),
        lambda s, t: s.asnumpy() - t.asnumpy()[:, None],
        lambda s, t: s.tensor.double() - t.tensor[:, None],
        lambda s, t: (s.asnumpy() - t.asnumpy()[:, None]).tolist(),
    ],
    ids=["ndarray", "numpy", "torch", "list"],
)
def test_loss_hands_scores_through_and_returns_the_gradient(gradient):
    mod, one = bound_loss(gradient), scores()
    mod.forward(one)
    assert mod.get_outputs() == [one.data[0]]
    assert mod.get_outputs(merge_multi_context=False) == [[one.data[0]]]
    mod.backward()
    found = mod.get_input_grads()[0]
    assert (found.dtype, found.context) == (np.float32, mx.cpu())
    np.testing.assert_array_equal(found.asnumpy(), np.arange(6).reshape(3, 2) - 1)
    assert mod.get_input_grads(merge_multi_context=False) == [[found]]
    assert mod.output_shapes == [("own_output", (3, 2))]
    assert mod.label_names == ["softmax_label"]


def test_own_backward_in_a_subclass():
    class Own(mx.mod.PythonLossModule):
        def _backward_impl(self):
            self._scores_grad = self._scores * 2 + self._labels.reshape((-1, 1))

    mod = Own()
    mod.bind([("data", (3, 2))], [("softmax_label", (3,))])
    mod.forward(scores())
    mod.backward()
    np.testing.assert_array_equal(mod.get_input_grads()[0].asnumpy(), 2 * np.arange(6).reshape(3, 2) + 1)


def test_chain_with_a_python_loss_learns_as_with_the_symbols_own():
    data, label = np.random.RandomState(0).randn(12, 4), np.arange(12) % 3
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc")

    def cross_entropy(scores, labels):
        chances = torch.softmax(scores.tensor, 1)
        return chances - torch.nn.functional.one_hot(labels.tensor.long(), 3)

    chain = mx.mod.SequentialModule().add(mx.mod.Module(net, label_names=None))
    chain.add(mx.mod.PythonLossModule(grad_func=cross_entropy), take_labels=True, auto_wiring=True)
    found = []
    for mod in (chain, mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"))):
        train = mx.io.NDArrayIter(data, label, 4)
        start = {"fc_weight": mx.nd.ones((3, 4)) * 0.1, "fc_bias": mx.nd.zeros((3,))}
        mod.fit(train, num_epoch=3, optimizer_params={"learning_rate": 0.5}, arg_params=start)
        found.append(mod.get_params()[0])
    for name in found[0]:
        np.testing.assert_allclose(found[0][name].asnumpy(), found[1][name].asnumpy(), rtol=1e-5, atol=1e-6)


def test_a_monitor_sees_what_stands_before_a_python_loss():
    chain = mx.mod.SequentialModule()
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc")
    chain.add(mx.mod.Module(net, label_names=None)).add(
        mx.mod.PythonLossModule(), take_labels=True, auto_wiring=True
    )
    chain.bind([("data", (4, 2))], [("softmax_label", (4,))])
    chain.init_params()
    monitor = mx.mon.Monitor(1, pattern="fc_output")
    chain.install_monitor(monitor)
    monitor.tic()
    chain.forward(mx.io.DataBatch([mx.nd.ones((4, 2))], [mx.nd.zeros(4)]), is_train=True)
    assert [name for _, name, _ in monitor.toc()] == ["fc_output"]


def test_prediction_needs_no_label():
    mod = bound_loss(for_training=False)
    mod.forward(mx.io.DataBatch(scores().data))
    assert mod.get_outputs()[0].shape == (3, 2)
    with pytest.raises(StateError, match="for_training=False"):
        mod.backward()


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: mx.mod.PythonLossModule(data_names=["a", "b"]), ArgumentError, "expected one name each"),
        (lambda: mx.mod.PythonLossModule(grad_func=3), ArgumentError, "expected a function"),
        (
            lambda: bound_loss().forward(mx.io.DataBatch(scores().data)),
            ArgumentError,
            "own: the batch has no label",
        ),
        (lambda: bound_loss().get_outputs(), StateError, r"call forward\(\)"),
        (lambda: bound_loss().get_input_grads(), StateError, r"call backward\(\)"),
        (lambda: bound_loss().backward(), StateError, r"call forward\(is_train=True\)"),
        (lambda: bound_loss().backward([mx.nd.ones((3, 2))]), ArgumentError, "takes no out_grads"),
        (
            lambda: stepped(bound_loss(lambda s, t: t)),
            ShapeError,
            r"shape \(3,\), expected the scores' \(3, 2\)",
        ),
        (lambda: stepped(bound_loss(None)), NotImplementedError, "give grad_func"),
    ],
)
def test_bad_calls(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def stepped(mod):
    mod.forward(scores())
    mod.backward()

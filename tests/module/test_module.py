import logging

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError, DeviceError, ShapeError, StateError
from dpmodule.contrib.svrg_optimization.svrg_module import SVRGModule
from helpers.nets import blobs, mlp

TWO = [mx.cpu(0), mx.cpu(1)]
SHAPES = [("data", (8, 6))], [("softmax_label", (8,))]


def ready(net=None, contexts=None, **bind):
    mod = mx.mod.Module(net if net is not None else mlp(), context=contexts)
    mod.bind(*SHAPES, **bind)
    mod.init_params(mx.init.Xavier())
    return mod


def batch(count=8, seed=0):
    data, label = blobs(count, seed=seed)
    return mx.io.DataBatch([mx.nd.array(data)], [mx.nd.array(label)])


# life cycle


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda m: m.forward(batch()),
            r"Module\.forward: call bind\(data_shapes=\.\.\., label_shapes=\.\.\.\) first",
        ),
        (lambda m: m.get_outputs(), r"Module\.get_outputs: call bind"),
        (lambda m: m.init_params(), r"Module\.init_params: call bind"),
        (lambda m: m.update(), r"Module\.update: call bind"),
        (lambda m: m.save_checkpoint("x", 1), r"Module\.save_checkpoint: call bind"),
        (lambda m: m.data_shapes, "call bind"),
    ],
)
def test_calls_before_bind_say_what_is_missing(call, message):
    with pytest.raises(StateError, match=message):
        call(mx.mod.Module(mlp()))


MISTAKEN = {
    "data_names is 'data', expected a list": lambda: mx.mod.Module(mlp(), data_names="data"),
    "label_names is 'softmax_label', expected": lambda: mx.mod.Module(mlp(), label_names="softmax_label"),
    "fixed_param_names is 'fc1_weight', expe": lambda: mx.mod.Module(mlp(), fixed_param_names="fc1_weight"),
    "output_names is 'out', expected": lambda: mx.mod.PythonModule(["data"], None, "out"),
    "symbol is of type list, expected a Symbol": lambda: mx.mod.Module([mlp()]),
    "type str, expected a Symbol; sym.load_json": lambda: mx.mod.Module(mlp().tojson()),
    r"data_shapes is \('data', \(8, 6\)\), expected a list": lambda: mx.mod.Module(mlp()).bind(
        ("data", (8, 6))
    ),
    "data_shapes is {'data'.*, expected a list": lambda: mx.mod.Module(mlp()).bind({"data": (8, 6)}),
    "label_shapes is {'softmax_.*, expected a list": lambda: mx.mod.Module(mlp()).bind(
        SHAPES[0], {"softmax_label": (8,)}
    ),
    "batch is of type ndarray, expected a DataBatch": lambda: ready().forward(np.ones((8, 6))),
    "batch is of type NDArray, expected a DataBatch": lambda: ready().forward(mx.nd.ones((8, 6))),
    "value of fc1_bias is of type ndarray, expected an": lambda: ready().set_params(
        {"fc1_bias": np.ones(16)}, {}, True
    ),
    "initializer is <class .*, expected an Init": lambda: ready().init_params(
        mx.init.Xavier, force_init=True
    ),
    "optimizer is the class SGD; pass its name": lambda: ready().init_optimizer(optimizer=mx.optimizer.SGD),
    "optimizer_params is 0.1, expected a dict": lambda: ready().init_optimizer(optimizer_params=0.1),
    "lr_scheduler is 'factor', expected an LRS": lambda: mx.optimizer.SGD(lr_scheduler="factor"),
    "lr_scheduler is <class .*, expected an LRS": lambda: mx.optimizer.SGD(
        lr_scheduler=mx.lr_scheduler.FactorScheduler
    ),
    "has no base_lr that learning_rate could replace": lambda: mx.optimizer.SGD(
        learning_rate=1, lr_scheduler=abs
    ),
    "num_epoch is 2.0, expected a whole number": lambda: ready().fit(
        mx.io.NDArrayIter(*blobs(8), 8), num_epoch=2.0
    ),
    "begin_epoch is '1', expected a whole number": lambda: ready().fit(
        mx.io.NDArrayIter(*blobs(8), 8), begin_epoch="1", num_epoch=2
    ),
}


@pytest.mark.parametrize(("text", "call"), MISTAKEN.items())
def test_arguments_of_another_kind_are_named(text, call):
    with pytest.raises(ArgumentError, match=text):
        call()


def test_calls_before_init_say_what_is_missing():
    mod = mx.mod.Module(mlp())
    mod.bind(*SHAPES)
    with pytest.raises(StateError, match=r"Module\.forward: call init_params\(\) first"):
        mod.forward(batch())
    mod.init_params()
    with pytest.raises(StateError, match=r"Module\.update: call init_optimizer\(\) first"):
        mod.update()
    with pytest.raises(AssertionError):  # what MXNet raises there
        mod.update()


def test_stages_show_in_mxnets_booleans():
    mod = mx.mod.Module(mlp())
    assert (mod.binded, mod.params_initialized, mod.optimizer_initialized) == (False, False, False)
    mod.bind(*SHAPES)
    assert (mod.binded, mod.params_initialized, mod.optimizer_initialized) == (True, False, False)
    mod.init_params()
    mod.init_optimizer()
    assert (mod.binded, mod.params_initialized, mod.optimizer_initialized) == (True, True, True)


def test_names_and_shapes():
    mod = ready(contexts=TWO)
    assert mod.data_names == ["data"]
    assert mod.label_names == ["softmax_label"]
    assert mod.output_names == ["softmax_output"]
    assert mod.data_shapes == [("data", (8, 6))]
    assert mod.label_shapes == [("softmax_label", (8,))]
    assert mod.output_shapes == [("softmax_output", (8, 4))]
    assert mod.symbol.list_arguments()[0] == "data"


def test_binding_twice_is_ignored_with_a_warning(caplog):
    mod = ready()
    before = mod.group
    with caplog.at_level(logging.WARNING):
        mod.bind(*SHAPES)
    assert "Already bound" in caplog.text
    assert mod.group is before


def test_force_rebind_keeps_parameters():
    mod = ready()
    before = mod.get_params()[0]["fc1_weight"].asnumpy()
    mod.bind([("data", (3, 6))], [("softmax_label", (3,))], force_rebind=True)
    np.testing.assert_array_equal(mod.get_params()[0]["fc1_weight"].asnumpy(), before)
    assert mod.output_shapes == [("softmax_output", (3, 4))]


# bad input


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        (
            {"data_names": ["image"]},
            "data_names holds 'image', which is not an argument of the symbol; it has data, softmax_label",
        ),
        ({"fixed_param_names": ["fc1_weigth"]}, r"'fc1_weigth', .*; did you mean fc1_weight, fc2_weight\?$"),
        (
            {"fixed_param_names": ["nothing"]},
            "'nothing', .*; it has fc1_weight, fc1_bias, fc2_weight, fc2_bias$",
        ),
        ({"state_names": ["dta"]}, r"state_names holds 'dta', .*; did you mean data\?$"),
        ({"context": "gpu"}, r"context is 'gpu', expected a Context"),
        ({"compression_params": {"type": "3bit"}}, "compression '3bit' is unknown"),
    ],
)
def test_constructor_refuses(kwargs, message):
    with pytest.raises(ArgumentError, match=message):
        mx.mod.Module(mlp(), **kwargs)


def test_unknown_label_name_warns():
    with pytest.warns(UserWarning, match="label_names holds 'target'"):
        mx.mod.Module(mlp(), label_names=["target"])


@pytest.mark.parametrize(
    ("shapes", "error", "message"),
    [
        (([("image", (8, 6))], SHAPES[1]), ArgumentError, r"data_shapes names \['image'\]"),
        ((SHAPES[0], [("target", (8,))]), ArgumentError, r"label_shapes names \['target'\]"),
        (
            (SHAPES[0], [("softmax_label", (7,))]),
            ShapeError,
            "all data must have the same batch size: it is 8",
        ),
        (([("data", (8, 6, 2, 2, 0))], SHAPES[1]), ShapeError, "cannot infer the shape of .*fc1_weight"),
    ],
)
def test_bind_refuses(shapes, error, message):
    with pytest.raises(error, match=message):
        mx.mod.Module(mlp()).bind(*shapes)


def test_a_device_that_does_not_exist_is_named():
    mod = mx.mod.Module(mlp(), context=mx.gpu(99))
    with pytest.raises(DeviceError, match=r"gpu\(99\) does not exist"):
        mod.bind(*SHAPES)


def test_the_cpu_named_twice_is_two_places():
    """Programs written for GPUs are tried with ``[mx.cpu()] * n``."""
    results = []
    for contexts in ([mx.cpu(1), mx.cpu(1), mx.cpu(0)], [mx.cpu(0), mx.cpu(1), mx.cpu(2)]):
        mod = mx.mod.Module(mlp(), context=contexts)
        mod.bind(*SHAPES)
        mod.init_params(mx.init.One())
        mod.init_optimizer()
        mod.forward_backward(batch())
        mod.update()
        assert len(set(mod.group.contexts)) == 3
        results.append(mod.get_params()[0][mod.param_names[0]])
    np.testing.assert_array_equal(results[0].asnumpy(), results[1].asnumpy())


@pytest.mark.parametrize("kvstore", ["local", "device", None])
def test_a_device_named_twice_runs_two_executors(kvstore, monkeypatch):
    """As on a GPU named twice; CPU contexts are else given numbers of their own."""
    monkeypatch.setattr("dpmodule.module.executor_group.distinct", list)
    results = []
    for contexts in ([mx.cpu(0)], [mx.cpu(0), mx.cpu(0)]):
        mod = mx.mod.Module(mlp(), context=contexts)
        mod.bind(*SHAPES)
        np.random.seed(3)
        mx.random.seed(3)
        mod.init_params()
        mod.init_optimizer(kvstore=kvstore, optimizer_params={"learning_rate": 0.1, "momentum": 0.9})
        for _ in range(3):
            mod.forward_backward(batch())
            mod.update()
        assert [e.context for e in mod.group.execs] == contexts
        results.append(mod.group.store.array("fc1_weight", 0).asnumpy())
    if kvstore is not None:  # without one, each device follows its own part of the batch
        np.testing.assert_allclose(results[1], results[0], rtol=1e-5, atol=1e-6)


def test_workload_must_fit_the_contexts():
    with pytest.raises(ArgumentError, match="workload has 1 entries for 2 contexts"):
        mx.mod.Module(mlp(), context=TWO, work_load_list=[1]).bind(*SHAPES)


def test_a_batch_without_label_cannot_train_but_predict():
    mod = ready()
    unlabelled = mx.io.DataBatch([mx.nd.zeros((8, 6))])
    with pytest.raises(ArgumentError, match="the batch has no label, but softmax_label is needed"):
        mod.forward(unlabelled, is_train=True)
    mod.forward(unlabelled, is_train=False)
    assert mod.get_outputs()[0].shape == (8, 4)


def test_a_batch_that_contradicts_the_network_names_the_parameter():
    mod = ready()
    with pytest.raises(ShapeError, match="fc1_weight"):
        mod.forward(mx.io.DataBatch([mx.nd.zeros((8, 7))], [mx.nd.zeros((8,))]))
    mod.forward(batch())
    assert mod.get_outputs()[0].shape == (8, 4)


@pytest.mark.parametrize("kind", ["module", "buckets", "chain"])
def test_values_of_other_parameters_are_passed_over(kind):
    """Programs take features out of a network and set all its parameters, as MXNet lets them."""
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
    values = {"fc_weight": mx.nd.ones((2, 3)), "fc_bias": mx.nd.ones((2,)), "other": mx.nd.ones((1,))}
    one = mx.mod.Module(net, label_names=None)
    if kind == "buckets":
        one = mx.mod.BucketingModule(lambda key: (net, ["data"], None), 1)
    mod = mx.mod.SequentialModule().add(one) if kind == "chain" else one
    mod.bind([("data", (1, 3))], for_training=False)
    mod.init_params(mx.init.Zero(), {"fc_weight": values["fc_weight"], "more": values["other"]}, {}, True)
    assert mod.get_params()[0]["fc_bias"].asnumpy().sum() == 0
    mod.set_params(values, {"state": mx.nd.ones((1,))})
    assert {n: v.asnumpy().sum() for n, v in mod.get_params()[0].items()} == {"fc_weight": 6, "fc_bias": 2}
    if kind == "chain":
        mod.set_params(values, {}, allow_missing=True)
        return
    with pytest.raises(ArgumentError, match="other is given, but the symbol has no such"):
        mod.set_params(values, {}, allow_missing=True)
    mod.set_params(values, {}, allow_missing=True, allow_extra=True)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda p: p.pop("fc1_bias"), ArgumentError, "no value is given for fc1_bias"),
        (
            lambda p: p.update(fc1_bias=mx.nd.zeros((3,))),
            ShapeError,
            r"fc1_bias has shape \(3,\), expected \(16,\)",
        ),
    ],
)
def test_set_params_refuses(change, error, message):
    mod = ready()
    params = mod.get_params()[0]
    change(params)
    with pytest.raises(error, match=message):
        mod.set_params(params, {})


@pytest.mark.filterwarnings("ignore:label_names holds 'label'")
@pytest.mark.parametrize("label_names", [None, ["label"]])
def test_a_label_that_is_not_in_label_names_is_no_missing_parameter(label_names, tmp_path):
    ready().save_checkpoint(tmp_path / "net", 1)
    mod = mx.mod.Module.load(tmp_path / "net", 1, label_names=label_names)
    mod.bind([("data", (4, 8))], for_training=False)
    text = (
        r"softmax_label.* is a label of the network, not a parameter; give .* label_names=\['softmax_label'\]"
    )
    with pytest.raises(ArgumentError, match=f"no value is given for {text}"):
        mod.init_params()
    with pytest.raises(ArgumentError, match=f"no initialization rule for the name '{text}"):
        mod.init_params(arg_params={}, allow_missing=True)


def test_set_params_may_leave_out_and_pass_over():
    mod = ready()
    before = mod.get_params()[0]
    mod.set_params(
        {"fc1_bias": mx.nd.ones((16,)), "other": mx.nd.ones((1,))}, {}, allow_missing=True, allow_extra=True
    )
    after = mod.get_params()[0]
    assert (after["fc1_bias"].asnumpy() == 1).all()
    np.testing.assert_array_equal(after["fc1_weight"].asnumpy(), before["fc1_weight"].asnumpy())


# computing


def test_forward_accepts_another_batch_size_and_comes_back():
    mod = ready(contexts=TWO)
    first = mod.group.execs[0]
    for count in (8, 3, 20, 1, 8):
        mod.forward(batch(count), is_train=False)
        assert mod.get_outputs()[0].shape == (count, 4)
    assert mod.group.execs[0] is first


def test_outputs_do_not_depend_on_the_contexts():
    alone, spread = ready(), ready(contexts=[mx.cpu(i) for i in range(3)])
    spread.set_params(*alone.get_params())
    for count in (8, 7, 2, 1):
        one = batch(count)
        alone.forward(one, is_train=False)
        spread.forward(one, is_train=False)
        np.testing.assert_allclose(
            spread.get_outputs()[0].asnumpy(), alone.get_outputs()[0].asnumpy(), rtol=1e-5, atol=1e-7
        )


def test_outputs_can_stay_apart():
    mod = ready(contexts=TWO)
    mod.forward(batch())
    parts = mod.get_outputs(merge_multi_context=False)
    assert [[p.shape for p in row] for row in parts] == [[(4, 4), (4, 4)]]
    assert parts[0][1].context == mx.cpu(1)


@pytest.mark.parametrize("contexts", [None, TWO])
def test_fewer_samples_than_contexts(contexts):
    mod = mx.mod.Module(mlp(), context=[mx.cpu(i) for i in range(4)])
    mod.bind([("data", (4, 6))], [("softmax_label", (4,))])
    mod.init_params(mx.init.Xavier())
    mod.init_optimizer(optimizer_params={"learning_rate": 0.1, "rescale_grad": 1.0})
    single = ready()
    single.set_params(*mod.get_params())
    single.init_optimizer(optimizer_params={"learning_rate": 0.1, "rescale_grad": 1.0})
    for count in (2, 4, 1):
        one = batch(count)
        for each in (mod, single):
            each.forward_backward(one)
            each.update()
    for name, value in single.get_params()[0].items():
        np.testing.assert_allclose(mod.get_params()[0][name].asnumpy(), value.asnumpy(), atol=1e-6)


def test_out_grads_are_sliced_over_contexts():
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4, name="fc")
    grads = {}
    for key, contexts in (("one", [mx.cpu(0)]), ("two", TWO)):
        mod = mx.mod.Module(net, label_names=None, context=contexts)
        mod.bind(SHAPES[0], inputs_need_grad=True)
        mod.init_params(mx.init.One())
        mod.forward(mx.io.DataBatch(batch().data))
        mod.backward([mx.nd.array(np.arange(32).reshape(8, 4))])
        grads[key] = mod.get_input_grads()[0].asnumpy()
    np.testing.assert_allclose(grads["one"], np.repeat(np.arange(32).reshape(8, 4).sum(1)[:, None], 6, 1))
    np.testing.assert_array_equal(grads["two"], grads["one"])


def test_input_gradients_need_to_be_asked_for():
    mod = ready()
    mod.forward_backward(batch())
    with pytest.raises(StateError, match="inputs_need_grad=True"):
        mod.get_input_grads()


def test_backward_after_binding_for_prediction_is_refused():
    mod = ready(for_training=False)
    mod.forward(batch())
    with pytest.raises(StateError, match="for_training=True"):
        mod.backward()


def test_the_users_batch_is_neither_changed_nor_kept():
    mod, one = ready(), batch()
    mod.init_optimizer()
    before = one.data[0].asnumpy()
    mod.forward_backward(one)
    own = mod.group.execs[0].arg_dict["data"]
    own[:] = 5
    np.testing.assert_array_equal(one.data[0].asnumpy(), before)
    mod.forward(one)
    one.data[0][:] = 9
    np.testing.assert_array_equal(mod.group.execs[0].arg_dict["data"].asnumpy(), before)


def test_a_batch_changed_between_forward_and_backward_does_not_matter():
    grads = []
    for change in (False, True):
        mod, one = ready(), batch()
        mod.init_params(mx.init.One(), force_init=True)
        mod.forward(one, is_train=True)
        if change:
            one.data[0][:] = 100
            one.label[0][:] = 0
        mod.backward()
        grads.append(mod.group.grad_arrays[0][0].asnumpy())
    np.testing.assert_array_equal(grads[0], grads[1])


def test_fixed_parameters_stay_and_have_no_gradient():
    mod = mx.mod.Module(mlp(), fixed_param_names=["fc1_weight", "fc1_bias"])
    mod.bind(*SHAPES)
    mod.init_params(mx.init.Xavier())
    mod.init_optimizer(optimizer_params={"learning_rate": 1.0})
    before = mod.get_params()[0]
    mod.forward_backward(batch())
    mod.update()
    after = mod.get_params()[0]
    assert mod.group.grad_arrays[0] == [None]
    np.testing.assert_array_equal(after["fc1_weight"].asnumpy(), before["fc1_weight"].asnumpy())
    assert not np.array_equal(after["fc2_weight"].asnumpy(), before["fc2_weight"].asnumpy())


def test_grad_req_add_accumulates_over_batches():
    mod = ready(grad_req="add")
    for array in mod.group.grad_arrays:
        array[0][:] = 0
    mod.forward_backward(batch())
    once = mod.group.grad_arrays[0][0].asnumpy()
    mod.forward_backward(batch())
    np.testing.assert_allclose(mod.group.grad_arrays[0][0].asnumpy(), 2 * once, rtol=1e-6)


def test_states_are_set_read_and_fed_back():
    data, state = mx.sym.Variable("data"), mx.sym.Variable("h")
    new = mx.sym.Activation(
        mx.sym.FullyConnected(data, num_hidden=3, name="i2h") + state, act_type="tanh", name="new"
    )
    mod = mx.mod.Module(new, label_names=None, state_names=["h"], context=TWO)
    mod.bind([("data", (4, 3))], for_training=False)
    mod.init_params(mx.init.One())
    mod.set_states(value=0.5)
    assert [[s.shape for s in row] for row in mod.get_states(merge_multi_context=False)] == [[(2, 3), (2, 3)]]
    mod.forward(mx.io.DataBatch([mx.nd.zeros((4, 3))]))
    np.testing.assert_allclose(mod.get_outputs()[0].asnumpy(), np.tanh(0.5) * np.ones((4, 3)), rtol=1e-6)
    mod.set_states(states=mod.get_outputs(merge_multi_context=False))
    mod.forward(mx.io.DataBatch([mx.nd.zeros((4, 3))]))
    np.testing.assert_allclose(
        mod.get_outputs()[0].asnumpy(), np.tanh(np.tanh(0.5)) * np.ones((4, 3)), rtol=1e-6
    )
    with pytest.raises(ArgumentError, match="either states or value"):
        mod.set_states()
    with pytest.raises(ArgumentError, match="merge_multi_context"):
        mod.get_states()


def test_shared_module_uses_the_same_arrays():
    mod = ready()
    mod.init_optimizer(optimizer_params={"learning_rate": 0.5})
    other = mx.mod.Module(mlp())
    other.bind([("data", (3, 6))], [("softmax_label", (3,))], shared_module=mod)
    assert other.optimizer_initialized
    assert other.group.param_arrays[0][0] is mod.group.param_arrays[0][0]
    before = mod.get_params()[0]["fc1_weight"].asnumpy()
    other.forward_backward(batch(3))
    other.update()
    after = mod.get_params()[0]["fc1_weight"].asnumpy()
    assert not np.array_equal(before, after)
    np.testing.assert_array_equal(after, other.get_params()[0]["fc1_weight"].asnumpy())


def test_sharing_with_an_unbound_module_is_refused():
    with pytest.raises(StateError, match="shared_module must be bound"):
        mx.mod.Module(mlp()).bind(*SHAPES, shared_module=mx.mod.Module(mlp()))


def test_borrowed_optimizer_shares_states():
    mod, other = ready(), ready()
    mod.init_optimizer(optimizer_params={"momentum": 0.9})
    with pytest.raises(StateError, match="other module"):
        mod.borrow_optimizer(ready())
    other.borrow_optimizer(mod)
    assert other.optimizer is mod.optimizer
    mod.forward_backward(batch())
    mod.update()
    other.forward_backward(batch())
    other.update()
    assert mod.optimizer.num_update == 2


def test_reshape_keeps_parameters():
    mod = ready()
    before = mod.get_params()[0]["fc2_weight"].asnumpy()
    mod.reshape([("data", (2, 6))], [("softmax_label", (2,))])
    assert mod.data_shapes == [("data", (2, 6))]
    mod.forward(batch(2))
    np.testing.assert_array_equal(mod.get_params()[0]["fc2_weight"].asnumpy(), before)


def test_a_layout_puts_the_batch_on_another_axis():
    data = mx.sym.Variable("data")
    net = mx.sym.MakeLoss(mx.sym.sum(data, axis=2), name="loss")
    net._set_attr(__layout__="TN")
    mod = mx.mod.Module(net, label_names=None, context=TWO)
    mod.bind([mx.io.DataDesc("data", (3, 8, 2), layout="TNC")])
    mod.init_params()
    values = np.arange(48).reshape(3, 8, 2)
    mod.forward(mx.io.DataBatch([mx.nd.array(values)]))
    assert [e.arg_dict["data"].shape for e in mod.group.execs] == [(3, 4, 2), (3, 4, 2)]
    np.testing.assert_array_equal(mod.get_outputs()[0].asnumpy(), values.sum(2))


def test_a_list_of_batches_feeds_the_contexts_one_by_one():
    mod, whole = ready(contexts=TWO), batch()
    mod.forward(whole, is_train=True)
    want = mod.get_outputs()[0].asnumpy()
    halves = [mx.io.DataBatch([whole.data[0][s]], [whole.label[0][s]]) for s in (slice(0, 4), slice(4, 8))]
    mod.forward(halves, is_train=True)
    np.testing.assert_array_equal(mod.get_outputs()[0].asnumpy(), want)
    metric = mx.metric.create("acc")
    mod.update_metric(metric, [b.label for b in halves], pre_sliced=True)
    assert metric.get()[1] == (want.argmax(1) == whole.label[0].asnumpy()).mean()


def test_fit_and_score_count_all_of_a_list_of_batches():
    class Halves(mx.io.NDArrayIter):
        def next(self):
            whole = super().next()
            return [
                mx.io.DataBatch([whole.data[0][s]], [whole.label[0][s]]) for s in (slice(0, 4), slice(4, 8))
            ]

    mod, counts = ready(contexts=TWO), []
    halves = Halves(*blobs(16), batch_size=8)
    mod.fit(halves, num_epoch=1, batch_end_callback=lambda param: counts.append(param.eval_metric.num_inst))
    assert counts == [8, 16]
    metric = mx.metric.create("acc")
    mod.score(halves, metric)
    assert metric.num_inst == 16


# prediction


def test_predict_forms():
    mod = ready()
    data, label = blobs(20)
    it = mx.io.NDArrayIter(data, label, batch_size=8)
    merged = mod.predict(it)
    assert merged.shape == (20, 4)
    assert [o.shape for o in mod.predict(it, always_output_list=True)] == [(20, 4)]
    rows = mod.predict(it, merge_batches=False)
    assert [[o.shape for o in row] for row in rows] == [[(8, 4)], [(8, 4)], [(4, 4)]]
    assert mod.predict(it, num_batch=2).shape == (16, 4)
    np.testing.assert_array_equal(np.concatenate([r[0].asnumpy() for r in rows]), merged.asnumpy())
    np.testing.assert_allclose(mod.predict(data).asnumpy(), merged.asnumpy(), rtol=1e-6)
    numbers = [n for _, n, _ in mod.iter_predict(it)]
    assert numbers == [0, 1, 2]


# optimizer and checkpoints


def test_rescale_grad_is_one_over_the_batch_size_unless_given():
    mod = ready(contexts=TWO)
    mod.init_optimizer()
    assert mod.optimizer.rescale_grad == 1 / 8
    mod.init_optimizer(optimizer_params={"rescale_grad": 2.0}, force_init=True)
    assert mod.optimizer.rescale_grad == 2.0
    with pytest.warns(UserWarning, match="rescale_grad=1"):
        mod.init_optimizer(optimizer=mx.optimizer.SGD(), force_init=True)


def test_unknown_optimizer_and_kvstore_are_named():
    mod = ready(contexts=TWO)
    with pytest.raises(ArgumentError, match="unknown optimizer 'sdg'"):
        mod.init_optimizer(optimizer="sdg")
    with pytest.raises(ArgumentError, match="kvstore 'dist_magic' is not available"):
        mod.init_optimizer(kvstore="dist_magic")


def test_one_device_needs_no_store_of_the_given_name():
    mod = ready()
    with pytest.warns(
        UserWarning, match="kvstore 'adam' is not available.*One device needs no store"
    ) as said:
        mod.init_optimizer("adam")  # as in MXNet, the first argument is the store
    assert said[0].filename == __file__
    before = {name: weight.asnumpy() for name, weight in mod.get_params()[0].items()}
    mod.forward_backward(batch())
    mod.update()
    after = mod.get_params()[0]
    assert any((after[name].asnumpy() != weight).any() for name, weight in before.items())
    with pytest.raises(ArgumentError, match="kvstore 'dist_adam' is not available"):
        mod.init_optimizer("dist_adam", force_init=True)
    with pytest.raises(ArgumentError, match="kvstore 'adam' is not available"):
        ready(contexts=TWO).init_optimizer("adam")


def test_multipliers_of_variables_reach_the_optimizer():
    weight = mx.sym.Variable("my_weight", lr_mult=0.0)
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), weight=weight, num_hidden=4, name="fc")
    mod = ready(mx.sym.SoftmaxOutput(net, name="softmax"))
    mod.init_optimizer(optimizer_params={"learning_rate": 1.0})
    before = mod.get_params()[0]
    mod.forward_backward(batch())
    mod.update()
    after = mod.get_params()[0]
    np.testing.assert_array_equal(after["my_weight"].asnumpy(), before["my_weight"].asnumpy())
    assert not np.array_equal(after["fc_bias"].asnumpy(), before["fc_bias"].asnumpy())


@pytest.mark.parametrize("contexts", [None, TWO], ids=["one", "two"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_training_goes_on_from_a_checkpoint(tmp_path, contexts, optimizer):
    params = {"learning_rate": 0.05, "wd": 0.01, **({"momentum": 0.9} if optimizer == "sgd" else {})}
    prefix = str(tmp_path / "net")
    mod = ready(contexts=contexts)
    mod.init_optimizer(optimizer=optimizer, optimizer_params=params)
    for seed in range(3):
        mod.forward_backward(batch(seed=seed))
        mod.update()
    mod.save_checkpoint(prefix, 3, save_optimizer_states=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "net-0003.params",
        "net-0003.states",
        "net-symbol.json",
    ]
    again = mx.mod.Module.load(prefix, 3, load_optimizer_states=True, context=contexts)
    again.bind(*SHAPES)
    again.init_params()
    again.init_optimizer(optimizer=optimizer, optimizer_params={**params, "begin_num_update": 3})
    for each in (mod, again):
        each.forward_backward(batch(seed=9))
        each.update()
    for name, value in mod.get_params()[0].items():
        np.testing.assert_allclose(
            again.get_params()[0][name].asnumpy(), value.asnumpy(), rtol=1e-5, atol=1e-7
        )


def test_a_loaded_module_predicts_without_init_params(tmp_path):
    mod = ready()
    mod.save_checkpoint(str(tmp_path / "net"), 1)
    again = mx.mod.Module.load(str(tmp_path / "net"), 1)
    again.bind(SHAPES[0], for_training=False)
    again.forward(mx.io.DataBatch(batch().data), is_train=False)
    mod.forward(batch(), is_train=False)
    np.testing.assert_array_equal(again.get_outputs()[0].asnumpy(), mod.get_outputs()[0].asnumpy())


def test_params_files(tmp_path):
    mod, other = ready(), ready()
    mod.save_params(str(tmp_path / "p"))
    other.load_params(str(tmp_path / "p"))
    np.testing.assert_array_equal(
        mod.get_params()[0]["fc1_weight"].asnumpy(), other.get_params()[0]["fc1_weight"].asnumpy()
    )
    mx.nd.save(str(tmp_path / "bad"), {"weights": mx.nd.zeros((1,))})
    with pytest.raises(ArgumentError, match=r"holds 'weights', expected the names of this network's"):
        mod.load_params(str(tmp_path / "bad"))


def test_states_without_an_optimizer_are_refused(tmp_path):
    with pytest.raises(StateError, match="init_optimizer"):
        ready().save_checkpoint(str(tmp_path / "x"), 1, save_optimizer_states=True)
    assert list(tmp_path.iterdir()) == []


def test_summary_counts_parameters():
    text = mx.mod.Module(mlp(), fixed_param_names=["fc1_bias"])
    text.bind(*SHAPES)
    table = text.summary()
    assert "fc1 (FullyConnected)" in table
    assert "(8, 4)" in table
    assert "parameters: 180 (164 trained)" in table


@pytest.mark.parametrize("context", [[mx.cpu(0)], [mx.cpu(0), mx.cpu(1)]], ids=len)
@pytest.mark.parametrize("kind", [mx.mod.Module, SVRGModule])
def test_parameters_declared_row_sparse_come_and_are_saved_row_sparse(kind, context, tmp_path):
    def trained(stype):
        weight = mx.sym.var("v", shape=(6, 1), init=mx.init.Uniform(0.1), stype=stype)
        net = mx.sym.dot(mx.sym.var("data", stype="csr"), weight)
        net = mx.sym.LinearRegressionOutput(net, mx.sym.var("label"), name="out")
        data = mx.nd.array(np.eye(4, 6)).tostype("csr")
        it = mx.io.NDArrayIter(data, {"label": mx.nd.ones((4, 1))}, 4, last_batch_handle="discard")
        extra = {"update_freq": 2} if kind is SVRGModule else {}
        module = kind(net, label_names=["label"], context=context, **extra)
        module.bind(it.provide_data, it.provide_label)
        mx.random.seed(0)
        module.init_params()
        first = module._arg_params["v"]
        assert first.stype == stype
        assert np.abs(first.asnumpy()).min() > 0
        module.fit(it, num_epoch=5, optimizer_params={"learning_rate": 0.5}, eval_metric="mse")
        assert (module.get_params()[0]["v"].asnumpy() != first.asnumpy()).sum() == 4
        return module

    module = trained("row_sparse")
    found = module.get_params()[0]["v"]
    assert found.stype == "row_sparse"
    np.testing.assert_array_equal(found.asnumpy(), trained("default").get_params()[0]["v"].asnumpy())

    module.save_params(str(tmp_path / "v.params"))
    assert mx.nd.load(str(tmp_path / "v.params"))["arg:v"].stype == "row_sparse"
    module.set_params({"v": mx.nd.zeros((6, 1))}, {})
    assert module.get_params()[0]["v"].asnumpy().sum() == 0
    module.load_params(str(tmp_path / "v.params"))
    np.testing.assert_array_equal(module.get_params()[0]["v"].asnumpy(), found.asnumpy())


def test_repr_says_how_far_a_module_has_come():
    mod = mx.mod.Module(mlp(), context=[mx.cpu(0), mx.cpu(1)])
    assert repr(mod) == (
        "<Module: not bound; data, softmax_label -> softmax_output; 4 parameters; on cpu(0), cpu(1)>"
    )
    mod.bind([("data", (4, 6))], [("softmax_label", (4,))])
    flow = "data (4, 6), softmax_label (4,) -> softmax_output (4, 4); 4 parameters of"
    assert repr(mod).startswith(f"<Module: bound, without parameters; {flow} ")
    mod.init_params()
    mod.init_optimizer()
    size = sum(array.size for array in mod.get_params()[0].values())
    assert repr(mod) == f"<Module: ready for updates; {flow} {size} numbers; on cpu(0), cpu(1)>"
    bucketing = mx.mod.BucketingModule(lambda key: (mlp(), ["data"], ["softmax_label"]), default_bucket_key=1)
    assert repr(bucketing) == "<BucketingModule: not bound; data, softmax_label -> softmax_output>"
    assert repr(mx.mod.SequentialModule()) == "<SequentialModule: not bound>"
    assert repr(type("Mine", (mx.mod.BaseModule,), {})()) == "<Mine: not bound>"


def test_repr_of_an_executor():
    executor = mlp().simple_bind(mx.cpu(), data=(2, 6), grad_req={"fc1_weight": "write"})
    assert repr(executor).startswith("<Executor on cpu(0): data (2, 6), fc1_weight (")
    assert repr(executor).endswith("-> softmax_output (2, 4); gradients for 1 of 6>")
    many = mx.sym.add_n(*[mx.sym.Variable(f"x{k}") for k in range(9)], name="sum")
    shapes = {f"x{k}": (1,) for k in range(9)}
    assert "x5 (1,) and 3 more -> sum_output (1,); gradients for 9 of 9>" in repr(
        many.simple_bind(mx.cpu(), **shapes)
    )

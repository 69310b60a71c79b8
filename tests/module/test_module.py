import logging

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError, ShapeError, StateError
from dpmodule.contrib.svrg_optimization.svrg_module import SVRGModule
from helpers.nets import blobs, mlp
from helpers.small_fits import CONTEXTS, SHAPES, TWO, batch, both_contexts, parameters, ready, same, step

PLAIN = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4, name="fc")
SGD = {"learning_rate": 0.1, "momentum": 0.9}


def output(mod, *given, **options):
    mod.forward(*given, **{"is_train": False, **options})
    return mod.get_outputs()[0].asnumpy()


# life cycle


def test_stages_show_in_mxnets_booleans():
    mod, seen = mx.mod.Module(mlp()), []
    for call in (lambda: None, lambda: mod.bind(*SHAPES), mod.init_params, mod.init_optimizer):
        call()
        seen.append((mod.binded, mod.params_initialized, mod.optimizer_initialized))
    assert seen == [(n > 0, n > 1, n > 2) for n in range(4)]
    with pytest.raises(AssertionError):  # what MXNet raises there
        mx.mod.Module(mlp()).update()


@both_contexts
def test_names_and_shapes(contexts):
    mod = ready(contexts=contexts)
    assert (mod.data_names, mod.label_names, mod.output_names) == (
        ["data"],
        ["softmax_label"],
        ["softmax_output"],
    )
    assert (mod.data_shapes, mod.label_shapes, mod.output_shapes) == (*SHAPES, [("softmax_output", (8, 4))])


def test_binding_twice_is_ignored_with_a_warning_unless_forced(caplog):
    mod = ready()
    before, group = parameters(mod), mod.group
    with caplog.at_level(logging.WARNING):
        mod.bind(*SHAPES)
    assert "Already bound" in caplog.text
    assert mod.group is group
    mod.bind([("data", (3, 6))], [("softmax_label", (3,))], force_rebind=True)
    same(parameters(mod), before)
    assert mod.output_shapes == [("softmax_output", (3, 4))]
    mod.reshape([("data", (2, 6))], [("softmax_label", (2,))])
    assert (mod.data_shapes, output(mod, batch(2)).shape) == ([("data", (2, 6))], (2, 4))
    same(parameters(mod), before)


def test_unknown_label_name_warns():
    with pytest.warns(UserWarning, match="label_names holds 'target'"):
        mx.mod.Module(mlp(), label_names=["target"])


def test_the_cpu_named_twice_is_two_places():
    """Programs written for GPUs are tried with ``[mx.cpu()] * n``."""
    mods = [
        ready(contexts=[mx.cpu(i) for i in ids], init="ones", optimizer={}) for ids in ((1, 1, 0), (0, 1, 2))
    ]
    for mod in mods:
        step(mod, batch())
        assert len(set(mod.group.contexts)) == 3
    same(*mods)


@pytest.mark.parametrize("kvstore", ["local", "device", None])
def test_a_device_named_twice_runs_two_executors(kvstore, monkeypatch):
    """As on a GPU named twice; CPU contexts are else given numbers of their own."""
    monkeypatch.setattr("dpmodule.module.executor_group.distinct", list)
    results = []
    for contexts in ([mx.cpu(0)], [mx.cpu(0), mx.cpu(0)]):
        mx.random.seed(3)
        mod = ready(contexts=contexts)
        mod.init_optimizer(kvstore=kvstore, optimizer_params=SGD)
        for _ in range(3):
            step(mod, batch())
        assert [e.context for e in mod.group.execs] == contexts
        results.append(mod.group.store.array("fc1_weight", 0).asnumpy())
    if kvstore is not None:  # without one, each device follows its own part of the batch
        np.testing.assert_allclose(results[1], results[0], rtol=1e-5, atol=1e-6)


def test_a_module_goes_on_after_a_batch_that_was_refused():
    mod = ready()
    unlabelled = mx.io.DataBatch([mx.nd.zeros((8, 6))])
    with pytest.raises(ArgumentError, match="the batch has no label"):
        mod.forward(unlabelled, is_train=True)
    assert output(mod, unlabelled).shape == (8, 4)
    with pytest.raises(ShapeError, match="fc1_weight"):
        mod.forward(mx.io.DataBatch([mx.nd.zeros((8, 7))], [mx.nd.zeros((8,))]))
    assert output(mod, batch()).shape == (8, 4)


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
    assert {name: value.sum() for name, value in parameters(mod).items()} == {"fc_weight": 6, "fc_bias": 2}
    if kind != "chain":
        with pytest.raises(ArgumentError, match="other is given, but the symbol has no such"):
            mod.set_params(values, {}, allow_missing=True)
    mod.set_params(values, {}, allow_missing=True, allow_extra=kind != "chain")
    mod.set_params({"fc_bias": mx.nd.zeros((2,))}, {}, allow_missing=True)
    assert {name: value.sum() for name, value in parameters(mod).items()} == {"fc_weight": 6, "fc_bias": 0}


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


# computing


def test_forward_accepts_another_batch_size_and_comes_back():
    mod = ready(contexts=TWO)
    first = mod.group.execs[0]
    assert [output(mod, batch(count)).shape[0] for count in (8, 3, 20, 1, 8)] == [8, 3, 20, 1, 8]
    assert mod.group.execs[0] is first


def test_outputs_can_stay_apart():
    mod = ready(contexts=TWO)
    mod.forward(batch())
    ((first, second),) = mod.get_outputs(merge_multi_context=False)
    assert (first.shape, second.shape, second.context) == ((4, 4), (4, 4), mx.cpu(1))


def test_fewer_samples_than_contexts():
    options = {"optimizer": {"learning_rate": 0.1, "rescale_grad": 1.0}}
    mod, single = ready(contexts=[mx.cpu(i) for i in range(4)], **options), ready(**options)
    single.set_params(*mod.get_params())
    for count in (2, 4, 1, 7):
        for each in (mod, single):
            step(each, batch(count))
        np.testing.assert_allclose(
            output(mod, batch(count)), output(single, batch(count)), rtol=1e-4, atol=1e-6
        )
    same(mod, single, 1e-5)


@both_contexts
def test_out_grads_are_sliced_over_contexts(contexts):
    mod = ready(PLAIN, contexts, shapes=SHAPES[:1], init="ones", inputs_need_grad=True)
    mod.forward(batch())
    head = np.arange(32.0).reshape(8, 4)
    mod.backward([mx.nd.array(head)])
    np.testing.assert_array_equal(mod.get_input_grads()[0].asnumpy(), np.repeat(head.sum(1)[:, None], 6, 1))


def test_the_users_batch_is_neither_changed_nor_kept():
    mod, one = ready(optimizer={}), batch()
    before = one.data[0].asnumpy()
    mod.forward_backward(one)
    own = mod.group.execs[0].arg_dict["data"]
    own[:] = 5
    np.testing.assert_array_equal(one.data[0].asnumpy(), before)
    mod.forward(one)
    one.data[0][:] = 9
    np.testing.assert_array_equal(mod.group.execs[0].arg_dict["data"].asnumpy(), before)


def test_a_batch_changed_between_forward_and_backward_does_not_matter():
    mods = [ready(init="ones", optimizer={}) for _ in range(2)]
    for mod in mods:
        one = batch()
        mod.forward(one, is_train=True)
        if mod is mods[1]:
            one.data[0][:] = 100
            one.label[0][:] = 0
        mod.backward()
        mod.update()
    same(*mods)


def test_fixed_parameters_stay_and_have_no_gradient():
    mod = ready(
        mx.mod.Module(mlp(), fixed_param_names=["fc1_weight", "fc1_bias"]), optimizer={"learning_rate": 1.0}
    )
    before = parameters(mod)
    step(mod, batch())
    assert mod.group.grad_arrays[0] == [None]
    changed = {name for name, value in parameters(mod).items() if not np.array_equal(value, before[name])}
    assert changed == {"fc2_weight", "fc2_bias"}


def test_grad_req_add_accumulates_over_batches():
    mod = ready(grad_req="add")
    for (grad,) in mod.group.grad_arrays:
        grad[:] = 0
    mod.forward_backward(batch())
    once = mod.group.grad_arrays[0][0].asnumpy()
    mod.forward_backward(batch())
    np.testing.assert_allclose(mod.group.grad_arrays[0][0].asnumpy(), 2 * once, rtol=1e-6)


def test_shared_module_uses_the_same_arrays():
    mod = ready(optimizer={"learning_rate": 0.5})
    other = mx.mod.Module(mlp())
    other.bind([("data", (3, 6))], [("softmax_label", (3,))], shared_module=mod)
    assert other.optimizer_initialized
    before = parameters(mod)
    step(other, batch(3))
    same(mod, other)
    assert not np.array_equal(before["fc1_weight"], parameters(mod)["fc1_weight"])


def test_borrowed_optimizer_shares_states():
    mod, other = ready(optimizer={"momentum": 0.9}), ready()
    other.borrow_optimizer(mod)
    assert other.optimizer is mod.optimizer
    step(mod, batch())
    step(other, batch())
    assert mod.optimizer.num_update == 2


def test_a_layout_puts_the_batch_on_another_axis():
    net = mx.sym.MakeLoss(mx.sym.sum(mx.sym.Variable("data"), axis=2), name="loss")
    net._set_attr(__layout__="TN")
    mod = ready(net, TWO, shapes=[[mx.io.DataDesc("data", (3, 8, 2), layout="TNC")]])
    values = np.arange(48.0).reshape(3, 8, 2)
    np.testing.assert_array_equal(output(mod, mx.io.DataBatch([mx.nd.array(values)])), values.sum(2))
    assert [e.arg_dict["data"].shape for e in mod.group.execs] == [(3, 4, 2), (3, 4, 2)]


def halved(whole):
    return [mx.io.DataBatch([whole.data[0][s]], [whole.label[0][s]]) for s in (slice(0, 4), slice(4, 8))]


def test_a_list_of_batches_feeds_the_contexts_one_by_one():
    mod, whole = ready(contexts=TWO), batch()
    want = output(mod, whole, is_train=True)
    np.testing.assert_array_equal(output(mod, halved(whole), is_train=True), want)
    metric = mx.metric.create("acc")
    mod.update_metric(metric, [b.label for b in halved(whole)], pre_sliced=True)
    assert metric.get()[1] == (want.argmax(1) == whole.label[0].asnumpy()).mean()


def test_fit_and_score_count_all_of_a_list_of_batches():
    class Halves(mx.io.NDArrayIter):
        def next(self):
            return halved(super().next())

    mod, counts, halves = ready(contexts=TWO), [], Halves(*blobs(16), batch_size=8)
    mod.fit(halves, num_epoch=1, batch_end_callback=lambda param: counts.append(param.eval_metric.num_inst))
    assert counts == [8, 16]
    metric = mx.metric.create("acc")
    mod.score(halves, metric)
    assert metric.num_inst == 16


def test_predict_forms():
    mod, (data, label) = ready(), blobs(20)
    it = mx.io.NDArrayIter(data, label, batch_size=8)
    merged = mod.predict(it)
    assert merged.shape == (20, 4)
    assert [o.shape for o in mod.predict(it, always_output_list=True)] == [(20, 4)]
    rows = mod.predict(it, merge_batches=False)
    assert [[o.shape for o in row] for row in rows] == [[(8, 4)], [(8, 4)], [(4, 4)]]
    assert mod.predict(it, num_batch=2).shape == (16, 4)
    np.testing.assert_array_equal(np.concatenate([r[0].asnumpy() for r in rows]), merged.asnumpy())
    np.testing.assert_allclose(mod.predict(data).asnumpy(), merged.asnumpy(), rtol=1e-6)
    assert [n for _, n, _ in mod.iter_predict(it)] == [0, 1, 2]


# optimizer and checkpoints


def test_rescale_grad_is_one_over_the_batch_size_unless_given():
    mod = ready(contexts=TWO, optimizer={})
    assert mod.optimizer.rescale_grad == 1 / 8
    mod.init_optimizer(optimizer_params={"rescale_grad": 2.0}, force_init=True)
    assert mod.optimizer.rescale_grad == 2.0
    with pytest.warns(UserWarning, match="rescale_grad=1"):
        mod.init_optimizer(optimizer=mx.optimizer.SGD(), force_init=True)


def test_one_device_needs_no_store_of_the_given_name():
    mod = ready()
    with pytest.warns(
        UserWarning, match="kvstore 'adam' is not available.*One device needs no store"
    ) as said:
        mod.init_optimizer("adam")  # as in MXNet, the first argument is the store
    assert said[0].filename == __file__
    before = parameters(mod)
    step(mod, batch())
    assert any((value != before[name]).any() for name, value in parameters(mod).items())


def test_multipliers_of_variables_reach_the_optimizer():
    net = mx.sym.FullyConnected(
        mx.sym.Variable("data"), mx.sym.Variable("my_weight", lr_mult=0.0), num_hidden=4, name="fc"
    )
    mod = ready(mx.sym.SoftmaxOutput(net, name="softmax"), optimizer={"learning_rate": 1.0}, init="ones")
    step(mod, batch())
    assert (parameters(mod)["my_weight"] == 1).all()
    assert (parameters(mod)["fc_bias"] != 1).any()


@both_contexts
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_training_goes_on_from_a_checkpoint(tmp_path, contexts, optimizer):
    params = {"learning_rate": 0.05, "wd": 0.01, **({"momentum": 0.9} if optimizer == "sgd" else {})}
    mod, prefix = ready(contexts=contexts), str(tmp_path / "net")
    mod.init_optimizer(optimizer=optimizer, optimizer_params=params)
    for seed in range(3):
        step(mod, batch(seed=seed))
    mod.save_checkpoint(prefix, 3, save_optimizer_states=True)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["net-0003.params", "net-0003.states", "net-symbol.json"]
    again = mx.mod.Module.load(prefix, 3, load_optimizer_states=True, context=contexts)
    again.bind(*SHAPES)
    np.testing.assert_array_equal(output(again, batch()), output(mod, batch()))  # it needs no init_params
    again.init_optimizer(optimizer=optimizer, optimizer_params={**params, "begin_num_update": 3})
    for each in (mod, again):
        step(each, batch(seed=9))
    same(again, mod, 1e-5)


def test_params_files_and_states_without_an_optimizer(tmp_path):
    mod, other = ready(), ready()
    with pytest.raises(StateError, match="init_optimizer"):
        mod.save_checkpoint(str(tmp_path / "x"), 1, save_optimizer_states=True)
    assert list(tmp_path.iterdir()) == []
    mod.save_params(str(tmp_path / "p"))
    other.load_params(str(tmp_path / "p"))
    same(mod, other)


@pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS)
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

    module, path = trained("row_sparse"), str(tmp_path / "v.params")
    found = module.get_params()[0]["v"]
    assert found.stype == "row_sparse"
    same(module, trained("default"))
    module.save_params(path)
    assert mx.nd.load(path)["arg:v"].stype == "row_sparse"
    module.set_params({"v": mx.nd.zeros((6, 1))}, {})
    assert module.get_params()[0]["v"].asnumpy().sum() == 0
    module.load_params(path)
    np.testing.assert_array_equal(module.get_params()[0]["v"].asnumpy(), found.asnumpy())


# what it says of itself


def test_summary_counts_parameters_operations_and_memory():
    mod = ready(mx.mod.Module(mlp(), fixed_param_names=["fc1_bias"], context=TWO))
    text = mod.summary()
    for part in (
        "fc1 (FullyConnected)",
        "(8, 4)",
        "parameters: 180 (164 trained)",
        "FLOPs of a batch: ",
        "gradients 656 B",
    ):
        assert part in text, text
    line = next(line for line in text.splitlines() if line.startswith("fc1 "))
    assert line.split()[-3:] == [f"{2 * 8 * 6 * 16:,}", f"{8 * 16 * 4}", "B"]


def test_repr_says_how_far_a_module_has_come():
    mod = mx.mod.Module(mlp(), context=TWO)
    assert (
        repr(mod)
        == "<Module: not bound; data, softmax_label -> softmax_output; 4 parameters; on cpu(0), cpu(1)>"
    )
    mod.bind(*SHAPES)
    assert repr(mod).startswith(
        "<Module: bound, without parameters; data (8, 6), softmax_label (8,) -> softmax_output"
    )
    mod.init_params()
    mod.init_optimizer()
    assert repr(mod).startswith("<Module: ready for updates; ")
    assert "4 parameters of 180 numbers" in repr(mod)
    assert repr(mx.mod.SequentialModule()) == "<SequentialModule: not bound>"
    assert repr(type("Mine", (mx.mod.BaseModule,), {})()) == "<Mine: not bound>"


def test_repr_of_an_executor():
    executor = mlp().simple_bind(mx.cpu(), data=(2, 6), grad_req={"fc1_weight": "write"})
    assert repr(executor).startswith("<Executor on cpu(0): data (2, 6), fc1_weight (")
    assert repr(executor).endswith("-> softmax_output (2, 4); gradients for 1 of 6>")
    many = mx.sym.add_n(*[mx.sym.Variable(f"x{k}") for k in range(9)], name="sum")
    executor = many.simple_bind(mx.cpu(), **{f"x{k}": (1,) for k in range(9)})
    assert "x5 (1,) and 3 more -> sum_output (1,); gradients for 9 of 9>" in repr(executor)

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError, StateError
from helpers.nets import blobs, mlp
from helpers.small_fits import SHAPES, TWO, batch, parameters, ready, same, step


def output(mod, *given, **options):
    mod.forward(*given, **{"is_train": False, **options})
    return mod.get_outputs()[0].asnumpy()


# life cycle


def test_the_cpu_named_twice_is_two_places():
    """Programs written for GPUs are tried with ``[mx.cpu()] * n``."""
    mods = [ready(contexts=[*map(mx.cpu, n)], init="ones", optimizer={}) for n in ((1, 1, 0), (0, 1, 2))]
    for mod in mods:
        step(mod, batch())
        assert len(set(mod.group.contexts)) == 3
    same(*mods)


@pytest.mark.parametrize("kind", ["module", "buckets", "chain"])
def test_values_of_other_parameters_are_passed_over(kind):
    """Programs take features out of a network and set all its parameters, as MXNet lets them."""
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
    values = {"fc_weight": mx.nd.ones((2, 3)), "fc_bias": mx.nd.ones((2,)), "other": mx.nd.ones((1,))}
    mod = mx.mod.Module(net, label_names=None)
    if kind == "buckets":
        mod = mx.mod.BucketingModule(lambda key: (net, ["data"], None), 1)
    if kind == "chain":
        mod = mx.mod.SequentialModule().add(mod)
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
    text = r"softmax_label.* is a label of the network, not a parameter; .* label_names=\['softmax_label'\]"
    with pytest.raises(ArgumentError, match=f"no value is given for {text}"):
        mod.init_params()
    with pytest.raises(ArgumentError, match=f"no initialization rule for the name '{text}"):
        mod.init_params(arg_params={}, allow_missing=True)


# computing


def test_fewer_samples_than_contexts():
    options = {"optimizer": {"learning_rate": 0.1, "rescale_grad": 1.0}}
    mod, single = ready(contexts=[mx.cpu(i) for i in range(4)], **options), ready(**options)
    single.set_params(*mod.get_params())
    for count in (2, 4, 1, 7):
        for each in (mod, single):
            step(each, batch(count))
        found, wanted = (output(each, batch(count)) for each in (mod, single))
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)
    same(mod, single, 1e-5)


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


def halved(whole):
    return [mx.io.DataBatch([whole.data[0][s]], [whole.label[0][s]]) for s in (slice(0, 4), slice(4, 8))]


def test_fit_and_score_count_all_of_a_list_of_batches():
    class Halves(mx.io.NDArrayIter):
        def next(self):
            return halved(super().next())

    mod, counts, halves = ready(contexts=TWO), [], Halves(*blobs(16), batch_size=8)
    np.testing.assert_array_equal(output(mod, halved(batch())), output(mod, batch()))
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
    mod, words = ready(), "kvstore 'adam' is not available.*One device needs no store"
    with pytest.warns(UserWarning, match=words) as said:
        mod.init_optimizer("adam")  # as in MXNet, the first argument is the store
    assert said[0].filename == __file__


def test_params_files_and_states_without_an_optimizer(tmp_path):
    mod, other = ready(), ready()
    with pytest.raises(StateError, match="init_optimizer"):
        mod.save_checkpoint(str(tmp_path / "x"), 1, save_optimizer_states=True)
    assert list(tmp_path.iterdir()) == []
    mod.save_params(str(tmp_path / "p"))
    other.load_params(str(tmp_path / "p"))
    same(mod, other)


def test_repr_says_how_far_a_module_has_come():
    mod = mx.mod.Module(mlp(), context=TWO)
    before = "<Module: not bound; data, softmax_label -> softmax_output; 4 parameters; on cpu(0), cpu(1)>"
    assert repr(mod) == before
    mod.bind(*SHAPES)
    assert repr(mod).startswith("<Module: bound, without parameters; data (8, 6), softmax_label (8,) -> soft")
    mod.init_params()
    mod.init_optimizer()
    assert "ready for updates; " in repr(mod)
    assert "4 parameters of 180 numbers" in repr(mod)
    assert repr(type("Mine", (mx.mod.BaseModule,), {})()) == "<Mine: not bound>"


def test_a_bias_is_trained_beside_a_fixed_weight():
    mod = mx.mod.Module(mlp(), fixed_param_names=["fc1_weight"])
    ready(mod, optimizer={"learning_rate": 0.1})
    before = parameters(mod)
    step(mod, batch())
    after = parameters(mod)
    np.testing.assert_array_equal(after["fc1_weight"], before["fc1_weight"])
    assert (after["fc1_bias"] != before["fc1_bias"]).any()


def test_values_handed_out_stay_as_they_are():
    mod = ready(optimizer={"learning_rate": 0.1})
    given = mod.get_params()[0]
    before = {name: value.asnumpy() for name, value in given.items()}
    step(mod, batch())
    for name, value in given.items():
        np.testing.assert_array_equal(value.asnumpy(), before[name])
    it = mx.io.NDArrayIter(np.random.RandomState(0).rand(24, 6), np.zeros(24), 8)
    outputs = [out[0] for out, _, _ in mod.iter_predict(it)]
    np.testing.assert_array_equal(mx.nd.concat(*outputs, dim=0).asnumpy(), mod.predict(it).asnumpy())


def test_predictions_of_an_epoch_that_begins_with_rows_of_the_one_before():
    mod, x = ready(), np.random.RandomState(0).rand(12, 6).astype("f4")
    it = mx.io.NDArrayIter(x, np.zeros(12), 8, last_batch_handle="roll_over")
    assert mod.predict(it).shape == (8, 4)
    found = mod.predict(it)
    whole = mx.io.NDArrayIter(np.concatenate([x[8:], x]), np.zeros(16), 8)
    np.testing.assert_allclose(found.asnumpy(), mod.predict(whole).asnumpy(), rtol=1e-5)

import logging

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError, FileFormatError, ShapeError, StateError

TWO = [mx.cpu(0), mx.cpu(1)]
VOCABULARY, WIDTH, CLASSES = 11, 6, 3


def sym_gen(length):
    """A sentence classifier whose graph depends on the length: one dense layer per position."""
    data = mx.sym.Variable("data")
    embedded = mx.sym.Embedding(data, input_dim=VOCABULARY, output_dim=WIDTH, name="embed")
    weight, bias = mx.sym.Variable("step_weight"), mx.sym.Variable("step_bias")
    state = None
    for t, x in enumerate(mx.sym.SliceChannel(embedded, num_outputs=length, axis=1, squeeze_axis=True)):
        step = mx.sym.FullyConnected(x, weight=weight, bias=bias, num_hidden=WIDTH, name=f"t{t}")
        state = mx.sym.Activation(step if state is None else step + state, act_type="tanh")
    out = mx.sym.FullyConnected(state, num_hidden=CLASSES, name="out")
    return mx.sym.SoftmaxOutput(out, name="softmax"), ("data",), ("softmax_label",)


def batch(length, count=8, seed=0, **more):
    rng = np.random.RandomState(seed + length)
    return mx.io.DataBatch(
        [mx.nd.array(rng.randint(0, VOCABULARY, (count, length)))],
        [mx.nd.array(rng.randint(0, CLASSES, count))],
        bucket_key=length,
        provide_data=[mx.io.DataDesc("data", (count, length))],
        provide_label=[mx.io.DataDesc("softmax_label", (count,))],
        **more,
    )


def ready(default=10, count=8, contexts=None, optimizer=True, **options):
    mod = mx.mod.BucketingModule(sym_gen, default, context=contexts, **options)
    mod.bind([("data", (count, default))], [("softmax_label", (count,))])
    mx.random.seed(3)
    mod.init_params(mx.init.Xavier())
    if optimizer:
        mod.init_optimizer(optimizer_params={"learning_rate": 0.2, "momentum": 0.9})
    return mod


def step(mod, one):
    mod.forward_backward(one)
    mod.update()


LENGTHS = [10, 4, 7, 4, 10, 2, 7]


@pytest.mark.parametrize("contexts", [None, TWO], ids=["one", "two"])
def test_buckets_train_one_set_of_parameters_like_one_module_each_time(contexts):
    """The reference binds a fresh Module for every batch and carries parameters and states over by hand."""
    mod = ready(contexts=contexts)
    values = mod.get_params()[0]
    momentum = {k: np.zeros(v.shape) for k, v in values.items()}
    values = {k: v.asnumpy().astype("f8") for k, v in values.items()}
    for seed, length in enumerate(LENGTHS):
        one = batch(length, seed=seed)
        step(mod, one)
        single = mx.mod.Module(sym_gen(length)[0])
        single.bind(one.provide_data, one.provide_label)
        single.init_params(arg_params={k: mx.nd.array(v) for k, v in values.items()})
        single.forward_backward(one)
        np.testing.assert_allclose(
            mod.get_outputs()[0].asnumpy(), single.get_outputs()[0].asnumpy(), rtol=1e-4, atol=1e-6
        )
        for (grad,), name in zip(single.group.grad_arrays, single.param_names):
            momentum[name] = 0.9 * momentum[name] - 0.2 * grad.asnumpy() / 8
            values[name] += momentum[name]
    for name, value in mod.get_params()[0].items():
        np.testing.assert_allclose(value.asnumpy(), values[name], rtol=1e-4, atol=1e-5)


def test_buckets_use_the_same_arrays():
    mod = ready()
    for length in (4, 7):
        step(mod, batch(length))
    groups = [m.group for m in mod._buckets.values()]
    assert len({id(g.store) for g in groups}) == 1
    assert len({g.shared_data_arrays[0]["data"].tensor.data_ptr() for g in groups}) == 1
    pointers = {g.execs[0].arg_dict["data"].tensor.data_ptr() for g in groups}
    assert len(pointers) == 1


def test_a_default_bucket_that_is_not_the_largest_reallocates_once(caplog):
    mod = ready(default=4)
    with caplog.at_level(logging.WARNING):
        step(mod, batch(10))
        step(mod, batch(7))
        step(mod, batch(4))
        step(mod, batch(10))
    warnings = [r.getMessage() for r in caplog.records if "gets new memory" in r.getMessage()]
    assert len(warnings) == 1
    assert '"data" of shape (8, 10) does not fit into the memory of shape (8, 4)' in warnings[0]
    pointers = {m.group.execs[0].arg_dict["data"].tensor.data_ptr() for m in mod._buckets.values()}
    assert len(pointers) == 1


def test_switching_back_finds_the_same_executors():
    mod = ready()
    step(mod, batch(4))
    first = mod._curr_module.group.execs[0]
    step(mod, batch(10))
    step(mod, batch(4))
    assert mod._curr_module.group.execs[0] is first
    assert mod.bucket_key == 4
    assert mod.data_shapes == [("data", (8, 4))]


def test_outputs_of_a_bucket_left_behind_are_given_up_but_handles_stay_valid():
    mod = ready()
    mod.forward(batch(4), is_train=False)
    kept = mod.get_outputs()[0]
    before = kept.asnumpy()
    mod.forward(batch(7), is_train=False)
    np.testing.assert_array_equal(kept.asnumpy(), before)
    assert not mod._buckets[4].group.execs[0].outputs[0].asnumpy().any()


def test_max_buckets_drops_the_one_used_longest_ago():
    mod = ready(max_buckets=3)
    for length in (4, 7, 2):
        step(mod, batch(length))
    assert set(mod.bucket_keys) == {10, 7, 2}
    before = mod.get_params()[0]["step_weight"].asnumpy()
    step(mod, batch(4))
    assert set(mod.bucket_keys) == {10, 2, 4}
    assert not np.array_equal(before, mod.get_params()[0]["step_weight"].asnumpy())


def test_prepare_binds_the_next_bucket_without_leaving_this_one():
    mod = ready()
    mod.forward(batch(4), is_train=False)
    outputs = mod.get_outputs()[0].asnumpy()
    mod.prepare(batch(7))
    assert mod.bucket_key == 4
    assert 7 in mod.bucket_keys
    np.testing.assert_array_equal(mod.get_outputs()[0].asnumpy(), outputs)


def test_another_batch_size_within_a_bucket():
    mod = ready()
    for count in (8, 5, 8, 20):
        mod.forward(batch(4, count), is_train=False)
        assert mod.get_outputs()[0].shape == (count, CLASSES)


class Sentences(mx.io.DataIter):
    """Batches of several lengths, the same ones every epoch."""

    def __init__(self, lengths):
        super().__init__(8)
        self.batches = [batch(n, seed=i) for i, n in enumerate(lengths)]
        self.default_bucket_key = max(lengths)
        self.provide_data = [mx.io.DataDesc("data", (8, self.default_bucket_key))]
        self.provide_label = [mx.io.DataDesc("softmax_label", (8,))]
        self.reset()

    def reset(self):
        self.rest = list(self.batches)

    def next(self):
        if not self.rest:
            raise StopIteration
        return self.rest.pop(0)


def test_fit_score_and_predict_over_buckets_and_contexts():
    data = Sentences([4, 7, 10, 4, 7, 2])
    results = []
    for contexts in ([mx.cpu(0)], TWO):
        mx.random.seed(5)
        mod = mx.mod.BucketingModule(sym_gen, data.default_bucket_key, context=contexts)
        mod.fit(
            data,
            eval_data=data,
            num_epoch=80,
            initializer=mx.init.Xavier(),
            optimizer="adam",
            optimizer_params={"learning_rate": 0.02},
        )
        data.reset()
        results.append(dict(mod.score(data, ["acc", "ce"])))
    assert results[0]["accuracy"] > 0.9
    assert results[0]["cross-entropy"] == pytest.approx(results[1]["cross-entropy"], abs=2e-3)
    rows = mod.predict(data, merge_batches=False)
    assert [row[0].shape for row in rows] == [(8, CLASSES)] * 6


def test_fit_over_other_contexts_keeps_parameters():
    data, mod = Sentences([4, 7]), mx.mod.BucketingModule(sym_gen, 7)
    mod.fit(data, num_epoch=1)
    before = mod.get_params()[0]
    mod.fit(data, contexts=TWO, num_epoch=0)
    for name, value in mod.get_params()[0].items():
        np.testing.assert_array_equal(value.asnumpy(), before[name].asnumpy())
    mod.fit(data, num_epoch=1)
    assert mod._curr_module.group.contexts == TWO


# files


@pytest.mark.parametrize("contexts", [None, TWO], ids=["one", "two"])
def test_all_buckets_load_without_sym_gen_and_go_on(tmp_path, contexts):
    prefix = str(tmp_path / "lm")
    mod = ready(contexts=contexts)
    for length in (4, 7):
        step(mod, batch(length))
    mod.save_checkpoint(prefix, 2, save_optimizer_states=True)
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == [
        "lm-0002.params",
        "lm-0002.states",
        "lm-10-symbol.json",
        "lm-4-symbol.json",
        "lm-7-symbol.json",
        "lm-buckets.json",
        "lm.buckets",
    ]
    again = mx.mod.BucketingModule.load(prefix, 2, load_optimizer_states=True, context=contexts)
    again.bind([("data", (8, 10))], [("softmax_label", (8,))])
    again.init_optimizer(optimizer_params={"learning_rate": 0.2, "momentum": 0.9})
    for each in (mod, again):
        for length in (7, 10, 4):
            step(each, batch(length, seed=9))
    for name, value in mod.get_params()[0].items():
        np.testing.assert_allclose(
            again.get_params()[0][name].asnumpy(), value.asnumpy(), rtol=1e-5, atol=1e-7
        )
    with pytest.raises(
        ArgumentError, match=r"bucket key 5 is not in the checkpoint, which has 10, 4, 7|4, 7, 10"
    ):
        again.forward(batch(5))


def test_a_checkpoint_is_completed_by_sym_gen(tmp_path):
    mod = ready()
    mod.save_checkpoint(str(tmp_path / "lm"), 0)
    again = mx.mod.BucketingModule.load(str(tmp_path / "lm"), 0, sym_gen=sym_gen)
    again.bind([("data", (8, 10))], [("softmax_label", (8,))], for_training=False)
    again.forward(batch(5), is_train=False)
    mod.forward(batch(5), is_train=False)
    np.testing.assert_array_equal(again.get_outputs()[0].asnumpy(), mod.get_outputs()[0].asnumpy())


def test_keys_may_be_tuples_but_must_be_plain(tmp_path):
    def pairs(key):
        return sym_gen(key[0]) if isinstance(key, tuple) else sym_gen(key.length)

    class Odd:
        length = 4

    mod = mx.mod.BucketingModule(pairs, (4, "a"))
    mod.bind([("data", (8, 4))], [("softmax_label", (8,))])
    mod.init_params()
    mod.save_checkpoint(str(tmp_path / "x"), 0)
    assert mx.mod.BucketingModule.load(str(tmp_path / "x"), 0).bucket_keys == [(4, "a")]
    mod.switch_bucket(Odd(), [("data", (8, 4))], [("softmax_label", (8,))])
    with pytest.raises(ArgumentError, match="cannot be saved"):
        mod.save_checkpoint(str(tmp_path / "y"), 0)


def test_load_dict_takes_symbols_and_parameters():
    mod = ready()
    params = mod.get_params()[0]
    again = mx.mod.BucketingModule.load_dict({10: sym_gen(10)[0]}, sym_gen, 10, params, {})
    again.bind([("data", (8, 10))], [("softmax_label", (8,))])
    np.testing.assert_array_equal(again.get_params()[0]["out_bias"].asnumpy(), params["out_bias"].asnumpy())
    with pytest.raises(ArgumentError, match="load_dict"):
        mx.mod.BucketingModule.load_dict({10: sym_gen(10)[0]})


def test_a_damaged_list_of_buckets_is_named(tmp_path):
    mod = ready()
    mod.save_checkpoint(str(tmp_path / "lm"), 0)
    (tmp_path / "lm-buckets.json").write_text('{"buckets": 3}')
    with pytest.raises(FileFormatError, match=r"lm-buckets\.json"):
        mx.mod.BucketingModule.load(str(tmp_path / "lm"), 0)


def test_mxnets_own_bucket_files_need_sym_gen(tmp_path):
    mod = ready()
    mod.save_checkpoint(str(tmp_path / "lm"), 0)
    (tmp_path / "lm-buckets.json").unlink()
    with pytest.raises(ArgumentError, match="pass sym_gen and default_bucket_key"):
        mx.mod.BucketingModule.load(str(tmp_path / "lm"), 0)
    again = mx.mod.BucketingModule.load(str(tmp_path / "lm"), 0, sym_gen, 10)
    again.bind([("data", (8, 10))], [("softmax_label", (8,))])
    assert again.params_initialized


# bad input


def test_a_bucket_key_without_symbol():
    symbols = {10: sym_gen(10), 4: sym_gen(4)}
    mod = mx.mod.BucketingModule(lambda key: symbols[key], 10)
    mod.bind([("data", (8, 10))], [("softmax_label", (8,))])
    mod.init_params()
    with pytest.raises(ArgumentError, match="bucket key 7: sym_gen has no symbol for it"):
        mod.forward(batch(7))
    mod.forward(batch(4))
    assert mod.bucket_keys == [10, 4]


def test_sym_gen_must_return_three_things():
    with pytest.raises(ArgumentError, match=r"expected \(symbol, data_names, label_names\)"):
        mx.mod.BucketingModule(lambda key: sym_gen(key)[0], 10)


def test_a_batch_whose_key_and_shapes_disagree():
    mod, wrong = ready(), batch(4)
    wrong.bucket_key = 7
    with pytest.raises(ShapeError, match="bucket 7"):
        mod.forward(wrong)
    step(mod, batch(7))
    with pytest.raises(ShapeError, match="bucket 7"):
        mod.forward(wrong)
    step(mod, batch(4))


def test_a_batch_whose_description_and_arrays_disagree():
    mod, wrong = ready(), batch(4)
    wrong.provide_data = [mx.io.DataDesc("data", (8, 7))]
    with pytest.raises(
        ShapeError, match=r"bucket 4: the batch describes data as \(8, 7\), but its array has"
    ):
        mod.forward(wrong)


def test_a_batch_without_key():
    mod, wrong = ready(), batch(4)
    wrong.bucket_key = None
    with pytest.raises(ArgumentError, match="the batch has no bucket_key"):
        mod.forward(wrong)


def test_buckets_with_other_parameters_or_shapes():
    def differing(key):
        symbol, data, label = sym_gen(10 if key == "default" else 4)
        if key == "renamed":
            out = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="new")
            symbol = mx.sym.SoftmaxOutput(out, name="softmax")
        if key == "resized":
            out = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="out")
            symbol = mx.sym.SoftmaxOutput(out, name="softmax")
        return symbol, data, label

    mod = mx.mod.BucketingModule(differing, "default")
    mod.bind([("data", (8, 10))], [("softmax_label", (8,))])
    mod.init_params()
    shapes = [("data", (8, 4))], [("softmax_label", (8,))]
    with pytest.raises(ArgumentError, match="bucket 'renamed': it has the parameter new_weight, new_bias"):
        mod.switch_bucket("renamed", *shapes)
    with pytest.raises(ShapeError, match=r"bucket 'resized': .*out_weight"):
        mod.switch_bucket("resized", *shapes)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mx.mod.BucketingModule(sym_gen), "default_bucket_key is missing"),
        (lambda: mx.mod.BucketingModule(3, 4), "expected a function"),
        (lambda: mx.mod.BucketingModule(sym_gen, 4, max_buckets=0), "max_buckets is 0"),
        (
            lambda: ready(optimizer=False).bind([], shared_module=ready(), force_rebind=True),
            "does not accept shared_module",
        ),
    ],
)
def test_misuse(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()


def test_order_of_calls():
    mod = mx.mod.BucketingModule(sym_gen, 10)
    with pytest.raises(StateError, match=r"BucketingModule\.switch_bucket: call bind"):
        mod.switch_bucket(4, [("data", (8, 4))])
    with pytest.raises(StateError, match=r"BucketingModule\.forward: call bind"):
        mod.forward(batch(4))


def test_names_of_mxnets_attributes():
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), mx.sym.Variable("w"), num_hidden=2)
    mod = mx.mod.BucketingModule(
        lambda key: (net, ["data"], None), 3, context=mx.cpu(1), fixed_param_names=["w"]
    )
    assert (mod._default_bucket_key, mod._curr_bucket_key, mod._grad_req) == (3, 3, None)
    assert (mod._context, mod._fixed_param_names, mod._state_names) == (mx.cpu(1), ["w"], [])
    assert (mod._work_load_list, mod._group2ctxs, mod._compression_params) == (None, None, None)
    assert (mod._params_dirty, mod._total_exec_bytes) == (False, 0)
    assert mx.mod.BucketingModule(lambda key: (net, ["data"], None), 3)._context == mx.cpu(0)


def unnamed(length):
    data = mx.sym.sum(mx.sym.Variable("data"), axis=1)
    hidden = mx.sym.FullyConnected(data, num_hidden=4)
    scores = mx.sym.FullyConnected(hidden, num_hidden=2)
    return mx.sym.SoftmaxOutput(scores, name="softmax"), ("data",), ("softmax_label",)


def test_layers_without_names_have_the_same_parameters_in_every_bucket():
    mx.sym.FullyConnected(mx.sym.Variable("before"), num_hidden=1)  # takes a name of the program's own count
    mod = mx.mod.BucketingModule(unnamed, default_bucket_key=10)
    found = []
    for length in (10, 5, 10, 5):
        rng = np.random.RandomState(length)
        data, label = mx.nd.array(rng.rand(4, length, 3)), mx.nd.array(rng.randint(0, 2, 4))
        shapes = [mx.io.DataDesc("data", data.shape)], [mx.io.DataDesc("softmax_label", (4,))]
        one = mx.io.DataBatch(
            [data], [label], bucket_key=length, provide_data=shapes[0], provide_label=shapes[1]
        )
        if not mod.binded:
            mod.bind(*shapes)
            mod.init_params(mx.init.One())
            mod.init_optimizer()
        mod.forward(one)
        found.append(mod.get_outputs()[0].asnumpy()[0, 0])
        mod.backward()
        mod.update()
    assert mod.symbol.list_arguments()[1] == "fullyconnected0_weight"
    # what MXNet 1.9.1 printed for the same program
    np.testing.assert_allclose(found, [0.5, 0.98562664, 0.9998647, 0.98660326], rtol=1e-5)

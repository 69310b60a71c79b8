import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError, FileFormatError, ShapeError
from helpers.small_fits import TWO, both_contexts, bucket_batch, parameters, ready, same, step

VOCABULARY, WIDTH, CLASSES = 11, 6, 3
MOMENTUM = {"learning_rate": 0.2, "momentum": 0.9}


def sym_gen(length):
    """A sentence classifier whose graph depends on the length: one dense layer per position."""
    data = mx.sym.Variable("data")
    embedded = mx.sym.Embedding(data, input_dim=VOCABULARY, output_dim=WIDTH, name="embed")
    weight, bias = mx.sym.Variable("step_weight"), mx.sym.Variable("step_bias")
    state = None
    for t, x in enumerate(mx.sym.SliceChannel(embedded, num_outputs=length, axis=1, squeeze_axis=True)):
        one = mx.sym.FullyConnected(x, weight=weight, bias=bias, num_hidden=WIDTH, name=f"t{t}")
        state = mx.sym.Activation(one if state is None else one + state, act_type="tanh")
    out = mx.sym.FullyConnected(state, num_hidden=CLASSES, name="out")
    return mx.sym.SoftmaxOutput(out, name="softmax"), ("data",), ("softmax_label",)


def batch(length, count=8, seed=0):
    rng = np.random.RandomState(seed + length)
    return bucket_batch(length, rng.randint(0, VOCABULARY, (count, length)), rng.randint(0, CLASSES, count))


def shapes(length):
    return [("data", (8, length))], [("softmax_label", (8,))]


def buckets(default=10, contexts=None, **options):
    mod = mx.mod.BucketingModule(sym_gen, default, context=contexts, **options)
    mx.random.seed(3)
    return ready(mod, shapes=shapes(default), optimizer=MOMENTUM)


def output(mod, one, **options):
    mod.forward(one, **{"is_train": False, **options})
    return mod.get_outputs()[0].asnumpy()


def test_max_buckets_drops_the_one_used_longest_ago():
    mod = buckets(max_buckets=3)
    for length in (4, 7, 2):
        step(mod, batch(length))
    assert set(mod.bucket_keys) == {10, 7, 2}
    before = parameters(mod)
    step(mod, batch(4))
    assert set(mod.bucket_keys) == {10, 2, 4}
    assert not np.array_equal(before["step_weight"], parameters(mod)["step_weight"])


class Sentences(mx.io.DataIter):
    """Batches of several lengths, the same ones every epoch."""

    def __init__(self):
        super().__init__(8)
        self.provide_data, self.provide_label = shapes(10)
        self.reset()

    def reset(self):
        self.rest = iter([batch(n, seed=i) for i, n in enumerate((4, 7, 10, 4, 7, 2))])

    def next(self):
        return next(self.rest)


def test_fit_score_and_predict_over_buckets_and_contexts():
    data, results = Sentences(), []
    for contexts in ([mx.cpu(0)], TWO):
        mx.random.seed(5)
        mod = mx.mod.BucketingModule(sym_gen, 10, context=contexts)
        rule = {"optimizer": "adam", "optimizer_params": {"learning_rate": 0.02}}
        mod.fit(data, eval_data=data, num_epoch=10, initializer=mx.init.Xavier(), **rule)
        results.append(mod.score(data, "ce")[0][1])
    assert results[0] == pytest.approx(results[1], abs=2e-3)
    assert results[0] < 1
    rows = mod.predict(data, merge_batches=False)
    assert [row[0].shape for row in rows] == [(8, CLASSES)] * 6
    before = parameters(mod)
    mod.fit(data, contexts=[mx.cpu(0)], num_epoch=0)
    same(parameters(mod), before)
    mod.fit(data, num_epoch=1)
    assert mod._curr_module.group.contexts == [mx.cpu(0)]


# files


@both_contexts
def test_all_buckets_load_without_sym_gen_and_go_on(tmp_path, contexts):
    mod, prefix = buckets(contexts=contexts), str(tmp_path / "lm")
    for length in (4, 7):
        step(mod, batch(length))
    mod.save_checkpoint(prefix, 2, save_optimizer_states=True)
    names = ["0002.params", "0002.states", "10-symbol.json", "4-symbol.json", "7-symbol.json", "buckets.json"]
    assert sorted(p.name for p in tmp_path.iterdir()) == [*(f"lm-{name}" for name in names), "lm.buckets"]
    again = mx.mod.BucketingModule.load(prefix, 2, load_optimizer_states=True, context=contexts)
    again.bind(*shapes(10))
    again.init_optimizer(optimizer_params=MOMENTUM)
    for each in (mod, again):
        for length in (7, 10, 4):
            step(each, batch(length, seed=9))
    same(again, mod, 1e-5)
    with pytest.raises(ArgumentError, match="bucket key 5 is not in the checkpoint, which has 10, 4, 7"):
        again.forward(batch(5))


def test_a_checkpoint_is_completed_by_sym_gen(tmp_path):
    mod = buckets()
    mod.save_checkpoint(str(tmp_path / "lm"), 0)
    args = mod.get_params()[0]
    for again in (
        mx.mod.BucketingModule.load(str(tmp_path / "lm"), 0, sym_gen=sym_gen),
        mx.mod.BucketingModule.load_dict({10: sym_gen(10)[0]}, sym_gen, 10, args, {}),
    ):
        again.bind(*shapes(10), for_training=False)
        np.testing.assert_array_equal(output(again, batch(5)), output(mod, batch(5)))
    (tmp_path / "lm-buckets.json").unlink()  # as MXNet's own files are
    with pytest.raises(ArgumentError, match="pass sym_gen and default_bucket_key"):
        mx.mod.BucketingModule.load(str(tmp_path / "lm"), 0)
    again = mx.mod.BucketingModule.load(str(tmp_path / "lm"), 0, sym_gen, 10)
    again.bind(*shapes(10))
    assert again.params_initialized
    (tmp_path / "lm-buckets.json").write_text('{"buckets": 3}')
    with pytest.raises(FileFormatError, match=r"lm-buckets\.json"):
        mx.mod.BucketingModule.load(str(tmp_path / "lm"), 0)


def test_keys_may_be_tuples_but_must_be_plain(tmp_path):
    mod = ready(mx.mod.BucketingModule(lambda key: sym_gen(4), (4, "a")), shapes=shapes(4))
    mod.save_checkpoint(str(tmp_path / "x"), 0)
    assert mx.mod.BucketingModule.load(str(tmp_path / "x"), 0).bucket_keys == [(4, "a")]
    mod.switch_bucket(object(), *shapes(4))
    with pytest.raises(ArgumentError, match="cannot be saved"):
        mod.save_checkpoint(str(tmp_path / "y"), 0)


def test_a_module_goes_on_after_a_batch_that_was_refused():
    symbols = {length: sym_gen(length) for length in (10, 4)}
    mod = ready(mx.mod.BucketingModule(lambda key: symbols[key], 10), shapes=shapes(10), optimizer={})
    with pytest.raises(ArgumentError, match="bucket key 7: sym_gen has no symbol for it"):
        mod.forward(batch(7))
    step(mod, batch(4))
    assert mod.bucket_keys == [10, 4]
    mod, wrong = buckets(), batch(4)
    wrong.bucket_key = 7
    for right in (7, 4):  # before there is such a bucket, and afterwards
        with pytest.raises(ShapeError, match="bucket 7"):
            mod.forward(wrong)
        step(mod, batch(right))


def test_names_of_mxnets_attributes():
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), mx.sym.Variable("w"), num_hidden=2)
    options = {"context": mx.cpu(1), "fixed_param_names": ["w"]}
    mod = mx.mod.BucketingModule(lambda key: (net, ["data"], None), 3, **options)
    assert (mod._default_bucket_key, mod._curr_bucket_key, mod._grad_req) == (3, 3, None)
    assert (mod._context, mod._fixed_param_names, mod._state_names) == (mx.cpu(1), ["w"], [])
    assert (mod._work_load_list, mod._group2ctxs, mod._compression_params) == (None, None, None)
    assert (mod._params_dirty, mod._total_exec_bytes) == (False, 0)


def unnamed(length):
    data = mx.sym.sum(mx.sym.Variable("data"), axis=1)
    scores = mx.sym.FullyConnected(mx.sym.FullyConnected(data, num_hidden=4), num_hidden=2)
    return mx.sym.SoftmaxOutput(scores, name="softmax"), ("data",), ("softmax_label",)


def test_layers_without_names_have_the_same_parameters_in_every_bucket():
    mx.sym.FullyConnected(mx.sym.Variable("before"), num_hidden=1)  # takes a name of the program's own count
    mod = mx.mod.BucketingModule(unnamed, default_bucket_key=10)
    ready(mod, shapes=([("data", (4, 10, 3))], [("softmax_label", (4,))]), init="ones", optimizer={})
    found = []
    for length in (10, 5, 10, 5):
        rng = np.random.RandomState(length)
        one = bucket_batch(length, rng.rand(4, length, 3), rng.randint(0, 2, 4))
        found.append(output(mod, one, is_train=True)[0, 0])
        mod.backward()
        mod.update()
    assert mod.symbol.list_arguments()[1] == "fullyconnected0_weight"
    # what MXNet 1.9.1 printed for the same program
    np.testing.assert_allclose(found, [0.5, 0.98562664, 0.9998647, 0.98660326], rtol=1e-5)

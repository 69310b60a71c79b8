"""`AutobatchModule`: programs for one example, trained, measured, saved and served as modules."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dpmodule as mx
import dpmodule.autobatch as dy

CONTEXTS = {"one": None, "two": [mx.cpu(0), mx.cpu(1)]}


@pytest.fixture(autouse=True, params=["python", "auto"])
def engine(request):
    mx.random.seed(5)
    dy.configure(engine=request.param, autobatch=False)
    yield request.param
    dy.configure(engine="auto")


def lstm_step(hidden=4):
    x, h, c = (mx.sym.Variable(name) for name in "xhc")
    gates = mx.sym.FullyConnected(x, num_hidden=4 * hidden, name="i2h") + mx.sym.FullyConnected(
        h, num_hidden=4 * hidden, name="h2h"
    )
    i, f, o, u = mx.sym.SliceChannel(gates, num_outputs=4, axis=1)
    memory = mx.sym.sigmoid(f) * c + mx.sym.sigmoid(i) * mx.sym.tanh(u)
    return mx.sym.Group([mx.sym.sigmoid(o) * mx.sym.tanh(memory), memory])


def head(data):
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(data, num_hidden=2, name="out"), name="softmax")


def perceptron():
    hidden = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=6, name="fc1")
    normal = mx.sym.BatchNorm(mx.sym.tanh(hidden), name="bn", fix_gamma=False)
    return head(normal)


def unrolled(length):
    """The same LSTM for one length, as Module wants it: data of (N, length, 3)."""
    steps = mx.sym.SliceChannel(mx.sym.Variable("data"), num_outputs=length, axis=1, squeeze_axis=True)
    h, c = mx.sym.Variable("h"), mx.sym.Variable("c")
    shared = {n: mx.sym.Variable(n) for n in ("i2h_weight", "i2h_bias", "h2h_weight", "h2h_bias")}
    for t in range(length):
        x = steps[t] if length > 1 else steps
        gates = mx.sym.FullyConnected(
            x, shared["i2h_weight"], shared["i2h_bias"], num_hidden=16
        ) + mx.sym.FullyConnected(h, shared["h2h_weight"], shared["h2h_bias"], num_hidden=16)
        i, f, o, u = mx.sym.SliceChannel(gates, num_outputs=4, axis=1)
        c = mx.sym.sigmoid(f) * c + mx.sym.sigmoid(i) * mx.sym.tanh(u)
        h = mx.sym.sigmoid(o) * mx.sym.tanh(c)
    return head(h)


def ragged(count=24, seed=0):
    draw = np.random.RandomState(seed)
    data = [draw.randn(draw.randint(2, 6), 3).astype("f") for _ in range(count)]
    return data, [int(each.sum() > 0) for each in data]


def acceptor():
    m = dy.ParameterCollection()
    step = dy.cell(lstm_step(), m, shapes={"x": (3,), "h": (4,), "c": (4,)})
    top = dy.cell(head(mx.sym.Variable("d")), m, shapes={"d": (4,)})

    def program(xs, label):
        h = c = dy.zeros(4)
        for x in xs:
            h, c = step(x, h, c)
        return None, top(h, 0 if label is None else label)

    return program, m


@pytest.mark.parametrize("contexts", CONTEXTS)
def test_trained_here_and_served_by_module(tmp_path, contexts):
    """An LSTM made of cells is trained on examples of all lengths, saved, and loaded by Module."""
    program, m = acceptor()
    data, labels = ragged()
    train = mx.mod.ExampleIter(data, labels, batch_size=8)
    mod = mx.mod.AutobatchModule(program, m, context=CONTEXTS[contexts])
    mod.fit(train, num_epoch=25, optimizer="adam", optimizer_params={"learning_rate": 0.05})
    assert mod.score(train, "acc")[0][1] > 0.9
    predicted = mod.predict(train).asnumpy()
    assert predicted.shape == (24, 2)
    prefix = str(tmp_path / "lstm")
    mod.save_checkpoint(prefix, 25)
    args, auxs = mx.checkpoint.load_params(prefix, 25)
    assert sorted(args) == ["h2h_bias", "h2h_weight", "i2h_bias", "i2h_weight", "out_bias", "out_weight"]
    for length in {len(each) for each in data}:
        rows = [i for i, each in enumerate(data) if len(each) == length]
        served = mx.mod.Module(unrolled(length), ["data", "h", "c"], ["softmax_label"])
        zeros = mx.nd.zeros((len(rows), 4))
        batch = mx.io.DataBatch([mx.nd.array(np.stack([data[i] for i in rows])), zeros, zeros])
        served.bind(
            [("data", (len(rows), length, 3)), ("h", zeros.shape), ("c", zeros.shape)], for_training=False
        )
        served.set_params(args, auxs)
        served.forward(batch, is_train=False)
        np.testing.assert_allclose(served.get_outputs()[0].asnumpy(), predicted[rows], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("contexts", CONTEXTS)
def test_trains_as_module_does(tmp_path, contexts):
    """The same symbol, data, optimizer and first values, with batch normalization: step by step the same numbers."""
    symbol, ctx = perceptron(), CONTEXTS[contexts]
    draw = np.random.RandomState(3)
    data, labels = draw.randn(32, 5).astype("f"), draw.randint(0, 2, 32).astype("f")
    m = dy.ParameterCollection()
    net = dy.cell(symbol, m, shapes={"data": (5,)})
    first = {p.name()[1:]: mx.nd.array(p.as_array()) for p in m.parameters_list()}
    aux = {n: first.pop(n) for n in ("bn_moving_mean", "bn_moving_var")}
    options = {
        "num_epoch": 3,
        "optimizer": "sgd",
        "optimizer_params": {"learning_rate": 0.1, "momentum": 0.9},
    }
    plain = mx.mod.Module(symbol, context=ctx or mx.cpu())
    plain.fit(mx.io.NDArrayIter(data, labels, 16), arg_params=first, aux_params=aux, **options)
    mod = mx.mod.AutobatchModule(
        lambda x, y: (None, net(x, 0 if y is None else y)), net, context=ctx, symbol=symbol
    )
    mod.fit(mx.io.NDArrayIter(data, labels, 16), **options)
    for found, wanted in zip(mod.get_params(), plain.get_params()):
        assert sorted(found) == sorted(wanted)
        for name, want in wanted.items():
            np.testing.assert_allclose(
                found[name].asnumpy(), want.asnumpy(), rtol=1e-3, atol=1e-5, err_msg=name
            )
    scores = mod.predict(mx.io.NDArrayIter(data, batch_size=16)).asnumpy()
    np.testing.assert_allclose(
        scores, plain.predict(mx.io.NDArrayIter(data, batch_size=16)).asnumpy(), atol=1e-4
    )
    mod.save_checkpoint(str(tmp_path / "net"), 3, save_optimizer_states=True)
    served = mx.mod.Module.load(str(tmp_path / "net"), 3)
    served.bind([("data", (32, 5))], for_training=False)
    served.forward(mx.io.DataBatch([mx.nd.array(data)]), is_train=False)
    np.testing.assert_allclose(served.get_outputs()[0].asnumpy(), scores, rtol=1e-4, atol=1e-6)
    again = dy.ParameterCollection()
    cell = dy.cell(symbol, again, shapes={"data": (5,)})
    back = mx.mod.AutobatchModule.load(str(tmp_path / "net"), 3, lambda x, y: (None, cell(x, 0)), again)
    back.bind([("data", (16, 5))])
    back.init_params()
    back.init_optimizer(optimizer="sgd", optimizer_params=options["optimizer_params"])
    back.load_optimizer_states(str(tmp_path / "net-0003.states"))
    np.testing.assert_allclose(
        back.predict(mx.io.NDArrayIter(data, batch_size=16)).asnumpy(), scores, rtol=1e-5
    )


def test_one_context_and_two_agree():
    found = []
    for context in CONTEXTS.values():
        mx.random.seed(1)
        program, m = acceptor()
        mod = mx.mod.AutobatchModule(program, m, context=context)
        mod.fit(
            mx.mod.ExampleIter(*ragged(), batch_size=7), num_epoch=3, optimizer_params={"learning_rate": 0.5}
        )
        found.append(mod.get_params()[0])
    for name, one in found[0].items():
        np.testing.assert_allclose(one.asnumpy(), found[1][name].asnumpy(), rtol=1e-4, atol=1e-6)


def tagger():
    m = dy.ParameterCollection()
    table = m.add_lookup_parameters((10, 4), name="words")
    encoder = dy.VanillaLSTMBuilder(1, 4, 5, m.add_subcollection("encoder"))
    W = m.add_parameters((2, 5), name="W")

    def program(words, tags):
        scores = [W * h for h in encoder.initial_state().transduce([table[w] for w in words])]
        output = dy.transpose(dy.concatenate_cols(scores))
        if tags is None:
            return None, output
        return dy.esum([dy.pickneglogsoftmax(s, int(t)) for s, t in zip(scores, tags)]), output

    return program, m


def test_outputs_of_different_lengths_and_lookups():
    program, m = tagger()
    draw = np.random.RandomState(0)
    data = [draw.randint(0, 10, draw.randint(1, 6)).tolist() for _ in range(20)]
    tags = [[word % 2 for word in words] for words in data]
    train = mx.mod.ExampleIter(data, tags, batch_size=10)
    mod = mx.mod.AutobatchModule(program, m)
    mod.fit(train, num_epoch=20, optimizer="adam", optimizer_params={"learning_rate": 0.05})
    assert mod.score(train, "acc") == [("accuracy", 1.0)]
    assert {"words", "W", "encoder_0", "encoder_vanilla-lstm-builder_0"} & set(mod.get_params()[0]) >= {
        "words",
        "W",
    }
    mod.forward(next(iter(mx.mod.ExampleIter(data, batch_size=20))), is_train=False)
    assert mod.get_outputs()[0].shape == (sum(map(len, data)), 2)


def test_losses_are_outputs_without_others():
    m = dy.ParameterCollection()
    w = m.add_parameters(1, init=0.0, name="w")
    mod = mx.mod.AutobatchModule(
        lambda x, y: dy.squared_norm(w * float(x) - float(y)), m, output_names=["loss"]
    )
    xs = np.arange(1, 5).astype("f")
    train = mx.io.NDArrayIter(xs, 3 * xs, batch_size=4)
    metric = mx.metric.Loss()
    mod.fit(train, num_epoch=40, eval_metric=metric, optimizer_params={"learning_rate": 0.05})
    assert mod.get_params()[0]["w"].asnumpy()[0] == pytest.approx(3.0, abs=1e-3)
    assert metric.get()[1] < 1e-3
    assert mod.output_shapes == [("loss", (4,))]


def test_gradients_are_sums_over_examples():
    m = dy.ParameterCollection()
    w = m.add_parameters(1, init=2.0, name="w")
    mod = mx.mod.AutobatchModule(lambda x, y: w * float(x), m)
    mod.bind([("data", (3,))], grad_req="add")
    mod.init_params()
    batch = mx.io.DataBatch([mx.nd.array([1, 2, 3])])
    for times in (1, 2):
        mod.forward_backward(batch)
        assert mod.held.store.grad("w", 0).asscalar() == 6.0 * times
    assert mod.get_outputs()[0].asnumpy().tolist() == [2.0, 4.0, 6.0]


def test_padding_does_not_count_in_metrics():
    m = dy.ParameterCollection()
    m.add_parameters(1, name="w")
    mod = mx.mod.AutobatchModule(
        lambda x, y: (None, dy.inputTensor([1.0 - float(x), float(x)])), m, data_names=["x"]
    )
    data = mx.io.NDArrayIter({"x": np.array([1, 1, 0], "f")}, np.array([1, 0, 0], "f"), batch_size=2)
    mod.bind(data.provide_data, data.provide_label, for_training=False)
    mod.init_params()
    assert mod.score(data, "acc")[0][1] == pytest.approx(2 / 3)
    assert mod.predict(data).shape == (3, 2)


def test_fixed_parameters_and_initializers():
    m = dy.ParameterCollection()
    a, b = m.add_parameters(2, init=1.0, name="a_weight"), m.add_parameters(2, init=1.0, name="b_weight")
    mod = mx.mod.AutobatchModule(lambda x, y: dy.sum_elems(a + b), m, fixed_param_names=["a_weight"])
    train = mx.mod.ExampleIter([0, 1], batch_size=2)
    mod.fit(train, num_epoch=1, optimizer_params={"learning_rate": 0.5}, eval_metric="loss")
    assert a.as_array().tolist() == [1.0, 1.0]
    assert b.as_array().tolist() == [0.5, 0.5]
    mod.init_params(mx.init.Constant(4.0), force_init=True)
    assert a.as_array().tolist() == b.as_array().tolist() == [4.0, 4.0]


def test_torch_modules_inside():
    net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Dropout(0.5))
    wrapped = dy.wrap(net, rows=True)
    mod = mx.mod.AutobatchModule(lambda x, y: dy.squared_norm(wrapped(x)), wrapped, context=CONTEXTS["two"])
    before = net[0].weight.detach().clone()
    mod.fit(mx.mod.ExampleIter(list(np.eye(3)), batch_size=3), num_epoch=2, eval_metric="loss")
    assert sorted(mod.get_params()[0]) == ["0.bias", "0.weight"]
    assert not torch.equal(before, net[0].weight)
    mod.forward(mx.io.DataBatch([list(np.eye(3))]), is_train=False)
    values = mod.get_outputs()[0].asnumpy()
    mod.forward(mx.io.DataBatch([list(np.eye(3))]), is_train=False)
    np.testing.assert_array_equal(values, mod.get_outputs()[0].asnumpy())


def test_other_contexts_in_fit():
    program, m = acceptor()
    mod = mx.mod.AutobatchModule(program, m)
    train = mx.mod.ExampleIter(*ragged(8), batch_size=8)
    mod.fit(train, num_epoch=1)
    mod.fit(train, num_epoch=2, begin_epoch=1, contexts=CONTEXTS["two"], workload=[3, 1])
    assert [len(part.outputs[0]) for part in mod._results] == [6, 2]


def test_explain_shows_the_last_batch():
    program, m = acceptor()
    mod = mx.mod.AutobatchModule(program, m)
    mod.fit(mx.mod.ExampleIter(*ragged(8), batch_size=8), num_epoch=1)
    row = next(row for row in mod.explain().rows if row.operation == "cell softmax")
    assert (row.nodes, row.batches) == (8, 1)
    assert mod.explain() == dy.explain()
    dy.renew_cg()
    with pytest.raises(mx.base.StateError, match="nothing has been computed"):
        mod.explain()


def test_example_iter():
    data = mx.mod.ExampleIter({"a": [1, 2, 3], "b": "xyz"}, None, batch_size=2)
    assert [batch.data for batch in data] == [[[1, 2], ["x", "y"]], [[3], ["z"]]]
    assert [d.name for d in data.provide_data] == ["a", "b"]
    mx.random.seed(3)
    shuffled = mx.mod.ExampleIter(list(range(50)), list(range(50)), batch_size=50, shuffle=True)
    first = next(shuffled)
    assert first.data == first.label
    assert first.data[0] != list(range(50))
    assert sorted(first.data[0]) == list(range(50))
    shuffled.reset()
    assert next(shuffled).data != first.data


def linear():
    m = dy.ParameterCollection()
    W = m.add_parameters((2, 3), name="W")

    def program(x, label):
        scores = W * dy.inputTensor(x)
        return None if label is None else dy.pickneglogsoftmax(scores, label), dy.softmax(scores)

    return program, m


def rows_and_labels(count=12):
    draw = np.random.RandomState(0)
    data = draw.randn(count, 3).astype("f")
    return data, (data.sum(1) > 0).astype("f")


def test_labels_of_arrays_are_labels():
    """Iterators of arrays give labels as float32; the functions that pick take whole ones."""
    program, m = linear()
    train = mx.io.NDArrayIter(*rows_and_labels(), 4)
    mod = mx.mod.AutobatchModule(program, m)
    mod.fit(train, num_epoch=20, optimizer_params={"learning_rate": 1.0})
    assert mod.score(train, "acc") == [("accuracy", 1.0)]


@pytest.mark.parametrize("contexts", CONTEXTS)
def test_resumes_with_the_optimizers_states(tmp_path, contexts):
    """Momentum goes on where it stopped: from a checkpoint, in a file of its own, and borrowed."""
    options = {"optimizer_params": {"learning_rate": 0.3, "momentum": 0.9}}
    train, prefix = mx.io.NDArrayIter(*rows_and_labels(), 4), str(tmp_path / "half")
    program, m = linear()
    mod = mx.mod.AutobatchModule(program, m, context=CONTEXTS[contexts])
    mod.fit(train, num_epoch=2, **options)
    mod.save_checkpoint(prefix, 2, save_optimizer_states=True)
    mod.save_optimizer_states(str(tmp_path / "own.states"))
    assert (tmp_path / "own.states").read_bytes() == (tmp_path / "half-0002.states").read_bytes()
    mod.fit(train, begin_epoch=2, num_epoch=4, **options)
    program, again = linear()
    back = mx.mod.AutobatchModule.load(
        prefix, 2, program, again, load_optimizer_states=True, context=CONTEXTS[contexts]
    )
    back.fit(train, begin_epoch=2, num_epoch=4, **options)
    wanted = mod.get_params()[0]["W"].asnumpy()
    np.testing.assert_allclose(back.get_params()[0]["W"].asnumpy(), wanted, rtol=1e-5)
    heir = mx.mod.AutobatchModule(program, again, context=CONTEXTS[contexts])
    heir.bind(train.provide_data, train.provide_label, shared_module=back)
    assert heir.optimizer is back.optimizer


@pytest.mark.parametrize("contexts", CONTEXTS)
@pytest.mark.parametrize("kvstore", ["local", "device", None])
def test_optimizers_and_stores_do_what_they_do_in_module(kvstore, contexts):
    symbol = head(mx.sym.Variable("data"))
    for optimizer in ("adam", "rmsprop", "nag"):
        m = dy.ParameterCollection()
        net = dy.cell(symbol, m, shapes={"data": (3,)})
        first = {p.name()[1:]: mx.nd.array(p.as_array()) for p in m.parameters_list()}
        options = {
            "kvstore": kvstore,
            "optimizer": optimizer,
            "optimizer_params": {"learning_rate": 0.05, "wd": 0.01},
        }
        mod = mx.mod.AutobatchModule(lambda x, y, net=net: (None, net(x, y)), m, context=CONTEXTS[contexts])
        mod.fit(mx.io.NDArrayIter(*rows_and_labels(), 4), num_epoch=2, **options)
        plain = mx.mod.Module(symbol, context=CONTEXTS[contexts] or mx.cpu())
        plain.fit(mx.io.NDArrayIter(*rows_and_labels(), 4), num_epoch=2, arg_params=first, **options)
        found = mod.get_params()[0]
        for name, want in plain.get_params()[0].items():
            assert (want.asnumpy() != first[name].asnumpy()).any()
            np.testing.assert_allclose(found[name].asnumpy(), want.asnumpy(), rtol=1e-4, atol=1e-6)


def test_initializers_of_symbols_are_kept():
    cell = mx.rnn.LSTMCell(2, prefix="lstm_", forget_bias=2.0)
    output, _ = cell(mx.sym.Variable("x"), [mx.sym.Variable("h"), mx.sym.Variable("c")])
    m = dy.ParameterCollection()
    dy.cell(output, m, shapes={"x": (2,), "h": (2,), "c": (2,)})
    mod = mx.mod.AutobatchModule(lambda x: x, m, label_names=None)
    mod.bind([("data", (1, 2))])
    mod.init_params(mx.init.Xavier())
    np.testing.assert_array_equal(mod.get_params()[0]["lstm_i2h_bias"].asnumpy(), [0, 0, 2, 2, 0, 0, 0, 0])


def plain_tagger():
    """A tagger of no context: the scores of a word are its row."""
    m = dy.ParameterCollection()
    table = m.add_lookup_parameters((9, 3), name="words")

    def program(words, tags):
        rows = [table[int(word)] for word in words]
        output = dy.concatenate([dy.reshape(row, (1, 3)) for row in rows])
        if tags is None:
            return None, output
        return dy.esum([dy.pickneglogsoftmax(row, tag) for row, tag in zip(rows, tags)]), output

    return program, m


@pytest.mark.parametrize("batch_size", [1, 2, 5])
@pytest.mark.parametrize("lengths", [(1, 2, 3, 4, 3), (3, 3, 3, 3, 3)], ids=["ragged", "alike"])
def test_taggers_in_batches_of_any_size(batch_size, lengths):
    """Whether the sentences of a batch happen to have one length makes no difference."""
    data = [[(7 * i + k) % 9 for k in range(length)] for i, length in enumerate(lengths)]
    train = mx.mod.ExampleIter(data, [[word % 3 for word in words] for words in data], batch_size)
    program, m = plain_tagger()
    mod = mx.mod.AutobatchModule(program, m)
    mod.fit(train, num_epoch=30, optimizer_params={"learning_rate": 1.0})
    assert mod.score(train, "acc") == [("accuracy", 1.0)]
    scores = mod.predict(train).asnumpy().reshape(-1, 3)
    words = [word for each in data for word in each]
    np.testing.assert_array_equal(scores.argmax(1), np.array(words) % 3)
    joined = mx.mod.AutobatchModule(program, m, stack=False)
    joined.bind(train.provide_data, for_training=False)
    joined.init_params()
    assert joined.predict(train).shape == (len(words), 3)
    assert [out[0].shape[1:] for out in joined.predict(train, merge_batches=False)] == [(3,)] * -(
        -5 // batch_size
    )


def test_padding_is_cut_off_example_by_example():
    program, m = plain_tagger()
    mod = mx.mod.AutobatchModule(program, m)
    mod.bind([("data", (2,))], for_training=False)
    mod.init_params()

    class Padded(mx.mod.ExampleIter):
        def next(self):
            batch = super().next()
            batch.pad = 1
            return batch

    assert mod.predict(Padded([[1, 2], [3, 4, 5]], batch_size=2)).shape == (1, 2, 3)


def test_layouts_tell_where_the_examples_are():
    found = []
    for layout in ("NT", "TN"):
        sentences = [[1, 2, 3, 4], [5, 6, 7, 8], [1, 3, 5, 7]]
        train = mx.rnn.BucketSentenceIter(sentences, 3, buckets=[4], invalid_label=0, layout=layout)
        seen = []

        def program(words, tags, seen=seen):
            seen.append((words.tolist(), tags.tolist()))
            return dy.inputTensor(words[:2]) + 0

        mod = mx.mod.AutobatchModule(program, linear()[1])
        mod.bind(
            [mx.io.DataDesc("data", (4, 3) if layout == "TN" else (3, 4), layout=layout)], for_training=False
        )
        mod.init_params()
        batch = train.next()
        mod.forward(batch)
        found.append(sorted(seen))
        assert mod.updated_group().num_samples == 3
    assert found[0] == found[1]
    assert [1, 2, 3, 4] in [words for words, _ in found[0]]


def test_losses_that_are_not_finite_stop_training():
    program, m = linear()
    before = m.parameters_list()[0].as_array()

    def bad(x, label):
        loss, output = program(x, label)
        return dy.log(loss * 0.0 - 1.0), output

    mod = mx.mod.AutobatchModule(bad, m)
    with pytest.raises(mx.base.NonFiniteError, match="the loss is not finite in batch 0 of epoch 0"):
        mod.fit(mx.io.NDArrayIter(*rows_and_labels(), 4), num_epoch=1)
    np.testing.assert_array_equal(m.parameters_list()[0].as_array(), before)


def test_callbacks_monitors_of_progress_and_validation(tmp_path, caplog):
    caplog.set_level("INFO")
    program, m = linear()
    mod = mx.mod.AutobatchModule(program, m)
    train = mx.io.NDArrayIter(*rows_and_labels(), 4)
    mod.fit(
        train,
        eval_data=train,
        num_epoch=2,
        eval_metric=["acc", "ce"],
        batch_end_callback=mx.callback.Speedometer(4, 2),
        epoch_end_callback=mx.callback.module_checkpoint(
            mod, str(tmp_path / "net"), save_optimizer_states=True
        ),
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"net-000{epoch}.{kind}" for epoch in (1, 2) for kind in ("params", "states")
    ]
    assert "Speed" in caplog.text
    assert "Validation-accuracy" in caplog.text


class TestBadInput:
    def test_constructor(self):
        with pytest.raises(mx.base.ArgumentError, match="params is dict"):
            mx.mod.AutobatchModule(print, {})
        with pytest.raises(mx.base.ArgumentError, match="function is int"):
            mx.mod.AutobatchModule(1, dy.ParameterCollection())

    def test_bind(self):
        m = dy.ParameterCollection()
        mod = mx.mod.AutobatchModule(print, m)
        with pytest.raises(mx.base.ArgumentError, match="collection has no parameters yet"):
            mod.bind([("data", (1,))])
        m.add_parameters(1, name="w")
        with pytest.raises(mx.base.ArgumentError, match="inputs_need_grad"):
            mod.bind([("data", (1,))], inputs_need_grad=True)
        with pytest.raises(mx.base.ArgumentError, match="grad_req"):
            mod.bind([("data", (1,))], grad_req="null")
        fixed = mx.mod.AutobatchModule(print, m, fixed_param_names=["v"])
        with pytest.raises(mx.base.ArgumentError, match="the parameters are w"):
            fixed.bind([("data", (1,))])

    def test_names_that_become_equal(self):
        m = dy.ParameterCollection()
        m.add_subcollection("a").add_parameters(1, name="b")
        m.add_parameters(1, name="a_b")
        with pytest.raises(mx.base.ArgumentError, match="'a_b'"):
            mx.mod.AutobatchModule(print, m).bind([("data", (1,))])

    def ready(self, function):
        m = dy.ParameterCollection()
        m.add_parameters(1, name="w")
        mod = mx.mod.AutobatchModule(function, m)
        mod.bind([("data", (2,))])
        mod.init_params()
        return mod

    def test_what_the_function_returns(self):
        batch = mx.io.DataBatch([[1, 2]])
        with pytest.raises(mx.base.ArgumentError, match="returned float"):
            self.ready(lambda x, y: 1.0).forward(batch)
        with pytest.raises(mx.base.ArgumentError, match="no loss in training"):
            self.ready(lambda x, y: (None, dy.scalarInput(1))).forward(batch)
        with pytest.raises(mx.base.ArgumentError, match=r"\[1, 2\] outputs"):
            self.ready(lambda x, y: (dy.scalarInput(1),) * (1 + x)).forward(batch)

    def test_what_it_does_not_have(self):
        program, m = linear()
        mod = mx.mod.AutobatchModule(program, m)
        with pytest.raises(mx.base.ArgumentError, match="shared_module has another collection"):
            mod.bind([("data", (2, 3))], shared_module=mx.mod.Module(head(mx.sym.Variable("data"))))
        with pytest.raises(mx.base.ArgumentError, match="get_input_grads: the inputs"):
            mod.get_input_grads()
        with pytest.raises(mx.base.ArgumentError, match="3bit"):
            mx.mod.AutobatchModule(program, m, compression_params={"type": "3bit"})
        with pytest.raises(mx.base.StateError, match="AutobatchModule: call init_optimizer"):
            _ = mod.updates

    def test_outputs_that_do_not_stack(self):
        program, m = plain_tagger()
        mod = mx.mod.AutobatchModule(program, m, stack=True)
        mod.bind([("data", (2,))], for_training=False)
        mod.init_params()
        with pytest.raises(
            mx.base.ShapeError, match=r"stack=True, but examples have outputs of shapes \(1, 3\), \(2, 3\)"
        ):
            mod.predict(mx.mod.ExampleIter([[1], [2, 3]], batch_size=2))

    def test_batches(self):
        mod = self.ready(lambda x, y: dy.scalarInput(1))
        with pytest.raises(mx.base.ArgumentError, match="2 columns of data, expected 1"):
            mod.forward(mx.io.DataBatch([[1], [2]]))
        with pytest.raises(mx.base.ArgumentError, match="expected equal ones"):
            mod.forward(mx.io.DataBatch([[1, 2]], [[1]]))
        with pytest.raises(mx.base.ArgumentError, match="a column is int"):
            mod.forward(mx.io.DataBatch([3]))

    def test_order_of_calls(self):
        mod = self.ready(lambda x, y: dy.scalarInput(1))
        with pytest.raises(mx.base.StateError, match="call forward"):
            mod.get_outputs()
        mod.forward(mx.io.DataBatch([[1]]), is_train=False)
        with pytest.raises(mx.base.StateError, match="is_train=True"):
            mod.backward()
        with pytest.raises(mx.base.StateError, match="init_optimizer"):
            mod.update()
        with pytest.raises(mx.base.ArgumentError, match="out_grads"):
            mod.backward([1])

    def test_examples(self):
        with pytest.raises(mx.base.ArgumentError, match="expected equal ones"):
            mx.mod.ExampleIter([1, 2], [1])
        with pytest.raises(mx.base.ArgumentError, match="expected equal ones"):
            mx.mod.ExampleIter([])
        with pytest.raises(mx.base.ArgumentError, match="batch_size is 0"):
            mx.mod.ExampleIter([1], batch_size=0)


@pytest.mark.gpu
def test_trains_on_a_gpu():
    found = []
    for device, context in (("CPU", mx.cpu(0)), ("GPU:0", mx.gpu(0))):
        mx.random.seed(1)
        dy.configure(device=device)
        try:
            draw = np.random.RandomState(0)
            program, m = acceptor()
            for each in m.parameters_list():
                each.set_value(draw.randn(*each.shape()))
            mod = mx.mod.AutobatchModule(program, m, context=context)
            mod.fit(
                mx.mod.ExampleIter(*ragged(), batch_size=8),
                num_epoch=2,
                optimizer_params={"learning_rate": 0.5},
            )
            found.append(mod.get_params()[0])
        finally:
            dy.configure(device="CPU")
    for name, one in found[0].items():
        np.testing.assert_allclose(one.asnumpy(), found[1][name].asnumpy(), rtol=1e-2, atol=1e-3)

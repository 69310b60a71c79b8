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
    assert [len(part.outputs[0]) for part in mod._ran] == [6, 2]


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

"""`AutobatchModule`: programs for one example, trained, measured, saved and served as modules."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dpmodule as mx
import dpmodule.autobatch as dy
from dpmodule import native
from dpmodule.autobatch.pytorch import batching
from helpers.small_fits import TWO, parameters, same

both_contexts = pytest.mark.parametrize("contexts", [None, TWO], ids=["one", "two"])


@pytest.fixture(autouse=True, params=["python", "auto"])
def engine(request):
    mx.random.seed(5)
    dy.configure(engine=request.param, autobatch=False)
    yield request.param
    dy.configure(engine="auto")


def perceptron():
    hidden = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=6, name="fc1")
    hidden = mx.sym.BatchNorm(mx.sym.tanh(hidden), name="bn", fix_gamma=False)
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(hidden, num_hidden=2, name="out"), name="softmax")


def of_a_cell():
    """Return a program of one cell, and its parameters."""
    m = dy.ParameterCollection()
    net = dy.cell(perceptron(), m, shapes={"data": (5,)})
    return (lambda x, y: (None, net(x, 0 if y is None else y))), m


DRAW = np.random.RandomState(3)
DATA, LABELS = DRAW.randn(32, 5).astype("f"), DRAW.randint(0, 2, 32).astype("f")


@pytest.mark.parametrize(
    ("contexts", "kvstore", "optimizer"), [(None, None, "sgd"), (TWO, "local", "adam"), (TWO, None, "sgd")]
)
def test_trains_as_module_does(tmp_path, contexts, optimizer, kvstore):
    """The same symbol, data, optimizer and first values, with batch normalization: step by step the same numbers."""
    program, m = of_a_cell()
    first = {p.name()[1:]: mx.nd.array(p.as_array()) for p in m.parameters_list()}
    aux = {n: first.pop(n) for n in ("bn_moving_mean", "bn_moving_var")}
    options = {"num_epoch": 3, "kvstore": kvstore, "optimizer": optimizer}
    options["optimizer_params"] = {"learning_rate": 0.05, "wd": 0.01}
    plain = mx.mod.Module(perceptron(), context=contexts or mx.cpu())
    plain.fit(mx.io.NDArrayIter(DATA, LABELS, 16), arg_params=first, aux_params=aux, **options)
    mod = mx.mod.AutobatchModule(program, m, context=contexts, symbol=perceptron())
    mod.fit(mx.io.NDArrayIter(DATA, LABELS, 16), **options)
    same(mod, plain, 1e-4)
    batches = mx.io.NDArrayIter(DATA, batch_size=16)
    scores = mod.predict(batches).asnumpy()
    np.testing.assert_allclose(scores, plain.predict(batches).asnumpy(), atol=1e-4)
    mod.save_checkpoint(str(tmp_path / "net"), 3)
    served = mx.mod.Module.load(str(tmp_path / "net"), 3)
    served.bind([("data", (16, 5))], for_training=False)
    np.testing.assert_allclose(served.predict(batches).asnumpy(), scores, rtol=1e-4, atol=1e-6)


def test_gradients_are_sums_over_examples():
    m = dy.ParameterCollection()
    w = m.add_parameters(1, init=2.0, name="w")
    mod = mx.mod.AutobatchModule(lambda x, y: w * float(x), m)
    mod.bind([("data", (3,))], grad_req="add")
    mod.init_params()
    for times in (1, 2):
        mod.forward_backward(mx.io.DataBatch([mx.nd.array([1, 2, 3])]))
        assert mod.held.store.grad("w", 0).asscalar() == 6.0 * times
    assert mod.get_outputs()[0].asnumpy().tolist() == [2.0, 4.0, 6.0]


def test_torch_modules_inside():
    net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Dropout(0.5))
    wrapped = dy.wrap(net, rows=True)
    mod = mx.mod.AutobatchModule(lambda x, y: dy.squared_norm(wrapped(x)), wrapped, context=TWO)
    before = net[0].weight.detach().clone()
    mod.fit(mx.mod.ExampleIter(list(np.eye(3)), batch_size=3), num_epoch=2, eval_metric="loss")
    assert sorted(mod.get_params()[0]) == ["0.bias", "0.weight"]
    assert not torch.equal(before, net[0].weight)
    values = []
    for _ in range(2):
        mod.forward(mx.io.DataBatch([list(np.eye(3))]), is_train=False)
        values.append(mod.get_outputs()[0].asnumpy())
    np.testing.assert_array_equal(*values)


def test_other_contexts_in_fit():
    mod, train = mx.mod.AutobatchModule(*of_a_cell()), mx.io.NDArrayIter(DATA[:8], LABELS[:8], 8)
    mod.fit(train, num_epoch=1)
    mod.fit(train, num_epoch=2, begin_epoch=1, contexts=TWO, workload=[3, 1])
    assert [len(part.outputs[0]) for part in mod._results] == [6, 2]


def test_explain_shows_the_last_batch():
    mod = mx.mod.AutobatchModule(*of_a_cell())
    mod.fit(mx.io.NDArrayIter(DATA[:8], LABELS[:8], 8), num_epoch=1)
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
    assert first.data[0] != sorted(first.data[0]) == list(range(50))
    shuffled.reset()
    assert next(shuffled).data != first.data


def linear():
    m = dy.ParameterCollection()
    W = m.add_parameters((2, 3), name="W")

    def program(x, label):
        scores = W * dy.inputTensor(x)
        return None if label is None else dy.pickneglogsoftmax(scores, label), dy.softmax(scores)

    return program, m


@both_contexts
def test_resumes_with_the_optimizers_states(tmp_path, contexts):
    """Momentum goes on where it stopped: from a checkpoint, in a file of its own, and borrowed."""
    options = {"optimizer_params": {"learning_rate": 0.3, "momentum": 0.9}}
    train, prefix = mx.io.NDArrayIter(DATA[:12, :3], LABELS[:12], 4), str(tmp_path / "half")
    mod = mx.mod.AutobatchModule(*linear(), context=contexts)
    mod.fit(train, num_epoch=2, **options)
    mod.save_checkpoint(prefix, 2, save_optimizer_states=True)
    mod.save_optimizer_states(str(tmp_path / "own.states"))
    assert (tmp_path / "own.states").read_bytes() == (tmp_path / "half-0002.states").read_bytes()
    mod.fit(train, begin_epoch=2, num_epoch=4, **options)
    program, m = linear()
    back = mx.mod.AutobatchModule.load(prefix, 2, program, m, load_optimizer_states=True, context=contexts)
    back.fit(train, begin_epoch=2, num_epoch=4, **options)
    np.testing.assert_allclose(parameters(back)["W"], parameters(mod)["W"], rtol=1e-5)
    heir = mx.mod.AutobatchModule(program, m, context=contexts)
    heir.bind(train.provide_data, train.provide_label, shared_module=back)
    assert heir.optimizer is back.optimizer


def tagger():
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


@pytest.mark.parametrize("batch_size", [2, 5])
@pytest.mark.parametrize("lengths", [(1, 2, 3, 4, 3), (3, 3, 3, 3, 3)], ids=["ragged", "alike"])
def test_taggers_in_batches_of_any_size(batch_size, lengths):
    """Whether the sentences of a batch happen to have one length makes no difference."""
    data = [[(7 * i + k) % 9 for k in range(length)] for i, length in enumerate(lengths)]
    train = mx.mod.ExampleIter(data, [[word % 3 for word in words] for words in data], batch_size)
    program, m = tagger()
    mod = mx.mod.AutobatchModule(program, m)
    mod.fit(train, num_epoch=30, optimizer_params={"learning_rate": 1.0})
    assert mod.score(train, "acc") == [("accuracy", 1.0)]
    scores, words = mod.predict(train).asnumpy().reshape(-1, 3), [word for each in data for word in each]
    np.testing.assert_array_equal(scores.argmax(1), np.array(words) % 3)
    joined = mx.mod.AutobatchModule(program, m, stack=False)
    joined.bind(train.provide_data, for_training=False)
    joined.init_params()
    assert joined.predict(train).shape == (len(words), 3)
    shapes = [out[0].shape[1:] for out in joined.predict(train, merge_batches=False)]
    assert shapes == [(3,)] * -(-5 // batch_size)


def test_padding_is_cut_off_example_by_example():
    class Padded(mx.mod.ExampleIter):
        def next(self):
            batch = super().next()
            batch.pad = 1
            return batch

    mod = mx.mod.AutobatchModule(*tagger())
    mod.bind([("data", (2,))], for_training=False)
    mod.init_params()
    assert mod.predict(Padded([[1, 2], [3, 4, 5]], batch_size=2)).shape == (1, 2, 3)


def test_losses_that_are_not_finite_stop_training():
    program, m = linear()
    before = m.parameters_list()[0].as_array()

    def bad(x, label):
        loss, output = program(x, label)
        return dy.log(loss * 0.0 - 1.0), output

    mod = mx.mod.AutobatchModule(bad, m)
    with pytest.raises(mx.base.NonFiniteError, match="the loss is not finite in batch 0 of epoch 0"):
        mod.fit(mx.io.NDArrayIter(DATA[:, :3], LABELS, 4), num_epoch=1)
    np.testing.assert_array_equal(m.parameters_list()[0].as_array(), before)


@pytest.mark.gpu
def test_trains_on_a_gpu():
    found = []
    for device, context in (("CPU", mx.cpu(0)), ("GPU:0", mx.gpu(0))):
        mx.random.seed(1)
        dy.configure(device=device)
        try:
            draw = np.random.RandomState(0)
            program, m = of_a_cell()
            for each in m.parameters_list():
                each.set_value(draw.randn(*each.shape()))
            mod = mx.mod.AutobatchModule(program, m, context=context)
            mod.fit(mx.io.NDArrayIter(DATA, LABELS, 8), num_epoch=2, optimizer_params={"learning_rate": 0.5})
            found.append(parameters(mod))
        finally:
            dy.configure(device="CPU")
    for name, one in found[0].items():
        np.testing.assert_allclose(one, found[1][name], rtol=1e-2, atol=1e-3)


class TorchTagger(torch.nn.Module):
    """Scores the words of a sentence, in plain PyTorch for one sentence."""

    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(10, 6)
        self.step = torch.nn.GRUCell(6, 6)
        self.out = torch.nn.Linear(6, 2)

    def forward(self, sentence):
        h = torch.zeros(6)
        for word in sentence:
            h = self.step(self.words(torch.tensor(word)), h)
        return self.out(h)


def sentences(count):
    draw = np.random.RandomState(2)
    data = [list(draw.randint(0, 10, 2 + k % 3)) for k in range(count)]
    return [[int(word) for word in each] for each in data], [int(sum(each) % 2) for each in data]


def torch_program(model):
    async def program(sentence, label):
        scores = model(sentence)
        is_sure = float((await scores.detach()).max()) > 100
        loss = None if label is None else torch.nn.functional.cross_entropy(scores, torch.tensor(label))
        return (loss if not is_sure else loss * 0), scores.softmax(0)

    return program


@both_contexts
@pytest.mark.parametrize("autobatch", [True, False])
def test_programs_of_torch(tmp_path, contexts, autobatch, monkeypatch):
    monkeypatch.setattr(batching, "BLOCKS_BETWEEN_TRIALS", 0)
    data, labels = sentences(12)

    def made():
        torch.manual_seed(4)
        return TorchTagger()

    plain = made()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1 / 12)
    for _ in range(3):
        optimizer.zero_grad()
        scores = torch.stack([plain(each) for each in data])
        loss = torch.nn.functional.cross_entropy(scores, torch.tensor(labels), reduction="sum")
        loss.backward()
        optimizer.step()
    model = made()
    mod = mx.mod.AutobatchModule(torch_program(model), model, context=contexts, autobatch=autobatch)
    train = mx.mod.ExampleIter(data, labels, batch_size=12)
    mod.fit(train, num_epoch=3, optimizer="sgd", optimizer_params={"learning_rate": 0.1})
    for one, other in zip(plain.parameters(), model.parameters()):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-5)
    found = mod.predict(train).asnumpy()
    with torch.no_grad():
        expected = torch.stack([plain(each).softmax(0) for each in data]).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert mod.score(train, "acc")[0][0] == "accuracy"
    assert model.training
    assert "operations ran" in str(mod.explain()) or not autobatch or native.core is None
    mod.save_checkpoint(str(tmp_path / "tagger"), 3)
    other = TorchTagger()
    loaded = mx.mod.AutobatchModule.load(str(tmp_path / "tagger"), 3, torch_program(other), other)
    loaded.bind(train.provide_data, train.provide_label, for_training=False)
    loaded.init_params()
    np.testing.assert_allclose(loaded.predict(train).asnumpy(), found, atol=1e-6)


def test_programs_of_torch_with_arrays_and_mistakes():
    torch.manual_seed(4)
    model = torch.nn.Linear(5, 2)

    def program(x, label):
        return torch.nn.functional.cross_entropy(model(x), label.long()), model(x)

    mod = mx.mod.AutobatchModule(program, model)
    train = mx.io.NDArrayIter(DATA, LABELS, 16)
    before = model.weight.detach().clone()
    mod.fit(train, num_epoch=1, optimizer="adam")
    assert not torch.equal(before, model.weight)
    wrong = mx.mod.AutobatchModule(lambda x, label: (None, model(x)), model)
    with pytest.raises(mx.base.ArgumentError, match="no loss in training"):
        wrong.fit(train, num_epoch=1)
    with pytest.raises(mx.base.ArgumentError, match="expected a loss"):
        mx.mod.AutobatchModule(lambda x, label: 3, model).fit(train, num_epoch=1)
    with pytest.raises(mx.base.ArgumentError, match="or a torch module"):
        mx.mod.AutobatchModule(program, 3)

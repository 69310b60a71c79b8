"""Torch modules of many kinds as symbols: the same values, the same steps."""

import numpy as np
import pytest
import torch
from interop.modules import MODULES
from torch import nn

import dpmodule as mx
from dpmodule import autobatch
from helpers.torch_import import array, compare

QUICK = ("resnet_basic", "ssd_head", "bag_of_words", "transformer_encoder_layer", "gpt", "mixture_of_experts")

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")


def check(name):
    case = MODULES[name]()
    symbol, args, states = compare(case.module, case.inputs, case.evaluates)
    again = mx.sym.load_json(symbol.tojson())
    assert again.list_arguments() == symbol.list_arguments()
    kept = dict(case.module.state_dict(keep_vars=True))
    assert all(tuple(kept[n].shape) in (args[n].shape, ()) for n in args if n in kept)
    assert all(tuple(kept[n].shape) == states[n].shape for n in states)


@pytest.mark.parametrize("name", QUICK)
def test_a_module(name):
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in MODULES if name not in QUICK])
def test_every_module(name):
    check(name)


def test_there_are_as_many_modules_as_promised():
    assert len(MODULES) >= 40


def steps(net, module, data, labels, optimizer):
    """Train both for some steps, and return the greatest difference of a parameter."""
    loss = nn.CrossEntropyLoss()
    for x, y in zip(data, labels):
        optimizer.zero_grad()
        loss(net(x), y).backward()
        optimizer.step()
        module.forward_backward(mx.io.DataBatch([array(x)], [array(y.float())]))
        module.update()
    args, _ = module.get_params()
    return max(abs(args[n].asnumpy() - p.detach().numpy()).max() for n, p in net.named_parameters())


def test_fine_tuning_follows_torch():
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64, 8),
        nn.GELU(),
        nn.Linear(8, 3),
    )
    module = mx.mod.Module.from_torch(net, torch.zeros(6, 1, 6, 6), head=mx.sym.SoftmaxOutput)
    options = {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01, "rescale_grad": 1 / 6}
    module.init_optimizer(optimizer="sgd", optimizer_params=options)
    sgd = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, weight_decay=0.01)
    data, labels = torch.randn(5, 6, 1, 6, 6), torch.randint(0, 3, (5, 6))
    assert steps(net, module, data, labels, sgd) < 1e-5


def test_fine_tuning_with_adam_follows_torch():
    net = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 3))
    net[0].bias.requires_grad = False
    module = mx.mod.Module.from_torch(net, torch.zeros(6, 4), head=mx.sym.SoftmaxOutput)
    module.init_optimizer(optimizer="adam", optimizer_params={"learning_rate": 0.01, "rescale_grad": 1 / 6})
    adam = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], 0.01)
    data, labels = torch.randn(5, 6, 4), torch.randint(0, 3, (5, 6))
    assert steps(net, module, data, labels, adam) < 1e-4


def test_a_module_predicts_at_once_and_is_fitted():
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    net.eval()
    x = np.random.randn(50, 4).astype(np.float32)
    module = mx.mod.Module.from_torch(net, torch.zeros(1, 4))
    assert module.data_names == ["input"]
    assert module.label_names == []
    found = module.predict(mx.io.NDArrayIter({"input": x}, batch_size=7)).asnumpy()
    np.testing.assert_allclose(found, net(torch.from_numpy(x)).detach().numpy(), 1e-4, 1e-5)
    y = (x[:, 0] > 0).astype(np.float32)
    module = mx.mod.Module.from_torch(
        net, torch.zeros(10, 4), head=lambda out: mx.sym.SoftmaxOutput(out, name="loss")
    )
    batches = mx.io.NDArrayIter({"input": x}, {"loss_label": y}, batch_size=10)
    module.fit(batches, num_epoch=20, optimizer_params={"learning_rate": 0.5})
    assert module.score(batches, "acc")[0][1] > 0.9
    args, states = module.get_params()
    net.load_state_dict({name: value.raw for name, value in {**args, **states}.items()}, strict=False)
    again = net(torch.from_numpy(x)).softmax(1).detach().numpy()
    np.testing.assert_allclose(module.predict(batches).asnumpy(), again, 1e-4, 1e-5)


def test_a_module_of_words_and_several_heads():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.out = nn.Embedding(1000, 4), nn.Linear(4, 2)

        def forward(self, words, weights):
            return {
                "scores": self.out((self.embed(words) * weights.unsqueeze(-1)).sum(1)),
                "total": weights.sum(1),
            }

    net = Net()
    words, weights = torch.randint(0, 1000, (3, 5)), torch.rand(3, 5)
    module = mx.mod.Module.from_torch(net, words, weights)
    assert [(d.name, d.shape, np.dtype(d.dtype).name) for d in module.data_shapes] == [
        ("words", (3, 5), "int64"),
        ("weights", (3, 5), "float32"),
    ]
    module.forward(mx.io.DataBatch([array(words), array(weights)]), is_train=False)
    wanted = net(words, weights)
    assert module.output_names == ["scores_output", "total_output"]
    for found, want in zip(module.get_outputs(), wanted.values()):
        np.testing.assert_allclose(found.asnumpy(), want.detach().numpy(), 1e-5, 1e-6)


def test_a_cell_of_automatic_batching():
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.rnn, self.out = (
                nn.Embedding(20, 4),
                nn.GRU(4, 5, batch_first=True),
                nn.Linear(5, 2),
            )

        def forward(self, words):
            return self.out(self.rnn(self.embed(words))[0][:, -1])

    net = Last()
    symbol, args, _ = mx.sym.from_torch(net, torch.zeros(2, 3, dtype=torch.long))
    cell = autobatch.cell(symbol, args, inputs=["words"])
    for length in (3, 5, 2):
        words = torch.randint(0, 20, (length,))
        np.testing.assert_allclose(
            cell(array(words)).npvalue(), net(words[None])[0].detach().numpy(), 1e-4, 1e-6
        )


def test_an_input_without_a_batch():
    class Net(nn.Module):
        def forward(self, x, scale):
            return x * scale

    module = mx.mod.Module.from_torch(Net(), torch.zeros(3, 2), torch.ones(2))
    module.forward(mx.io.DataBatch([mx.nd.ones((3, 2)), mx.nd.array([1.0, 3.0])]), is_train=False)
    assert module.get_outputs()[0].asnumpy().tolist() == [[1, 3]] * 3


def test_a_loss_of_the_module_itself_trains():
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 1)

        def forward(self, x, target):
            return nn.functional.mse_loss(self.fc(x)[:, 0], target)

    x = torch.randn(16, 3)
    target = x @ torch.tensor([1.0, -2.0, 0.5])
    module = mx.mod.Module.from_torch(Net(), x, target, head=mx.sym.MakeLoss)
    module.init_optimizer(optimizer_params={"learning_rate": 0.2, "rescale_grad": 1.0})
    for _ in range(60):
        module.forward_backward(mx.io.DataBatch([array(x), array(target)]))
        module.update()
    np.testing.assert_allclose(module.get_params()[0]["fc.weight"].asnumpy(), [[1.0, -2.0, 0.5]], atol=1e-2)


def test_the_symbol_is_explained_and_bucketed():
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.out = nn.Embedding(20, 4), nn.Linear(4, 3)

        def forward(self, words):
            hidden = self.embed(words)
            return self.out(hidden + hidden.mean(1, keepdim=True)).flatten(0, 1)

    net = Tagger()
    sizes = {"words": {0: "batch", 1: "time"}}
    symbol, args, states = mx.sym.from_torch(net, torch.zeros(2, 3, dtype=torch.long), dynamic=sizes)
    explained = mx.mod.Module.from_torch(net, torch.zeros(2, 3, dtype=torch.long)).explain()
    assert "Embedding" in str(explained)
    module = mx.mod.BucketingModule(lambda key: (symbol, ["words"], None), default_bucket_key=8)
    module.bind([("words", (4, 8))], for_training=False)
    module.init_params(arg_params=args, aux_params=states)
    for length in (5, 8, 3):
        words = torch.randint(0, 20, (4, length))
        shapes = [("words", (4, length))]
        batch = mx.io.DataBatch([array(words.float())], bucket_key=length, provide_data=shapes)
        module.forward(batch, is_train=False)
        np.testing.assert_allclose(module.get_outputs()[0].asnumpy(), net(words).detach().numpy(), 1e-4, 1e-5)


class Unused(nn.Module):
    def forward(self, x):
        out, places = torch.nn.functional.max_pool2d_with_indices(x, 2)
        places.contiguous()
        return out


def test_results_that_nobody_reads_are_left_out():
    symbol, _, _ = mx.sym.from_torch(Unused(), torch.zeros(2, 1, 4, 4))
    assert [node.op.name for node in symbol.graph.nodes if node.op is not None] == ["Pooling"]


@pytest.mark.parametrize("training", [True, False])
def test_programs_have_no_mode_of_their_own(training):
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).train(training)
    net[1].momentum = 0.3
    program = torch.export.export(net, (torch.zeros(5, 3),))
    with pytest.warns(UserWarning, match="fixes the size of every axis"):
        symbol, _, _ = mx.sym.from_torch(program.module(), torch.zeros(5, 3))
    (norm,) = (node for node in symbol.graph.nodes if node.op is not None and node.op.name == "BatchNorm")
    assert not norm.a.use_global_stats
    assert norm.a.momentum == pytest.approx(0.7)

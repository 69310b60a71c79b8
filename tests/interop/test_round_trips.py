"""There and back: networks that went through ONNX or torch have their names, and train as those that stayed."""

import numpy as np
import pytest
import torch
from torch import nn

import dpmodule as mx

STEPS = 4


def dense():
    x = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=16, name="fc1")
    x = mx.sym.Activation(x, act_type="tanh", name="act")
    return mx.sym.FullyConnected(x, num_hidden=3, name="fc2"), (8, 5)


def convolutional(frozen=False):
    x = mx.sym.Convolution(mx.sym.Variable("data"), num_filter=6, kernel=(3, 3), name="conv1", no_bias=True)
    x = mx.sym.Activation(mx.sym.BatchNorm(x, momentum=0.8, name="bn1"), act_type="relu")
    x = mx.sym.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max")
    x = mx.sym.Convolution(x, num_filter=8, kernel=(2, 2), name="conv2")
    x = mx.sym.BatchNorm(x, fix_gamma=False, eps=1e-4, name="bn2")
    x = mx.sym.BatchNorm(mx.sym.LeakyReLU(x), fix_gamma=False, use_global_stats=frozen, name="bn3")
    return mx.sym.FullyConnected(x, num_hidden=3, name="fc"), (8, 2, 8, 8)


def frozen():
    return convolutional(frozen=True)


def recurrent(layers=2, bidirectional=True):
    cell = mx.rnn.FusedRNNCell(4, layers, "lstm", bidirectional, prefix="lstm_")
    outputs, _ = cell.unroll(5, mx.sym.Variable("data"), layout="NTC", merge_outputs=True)
    return mx.sym.FullyConnected(outputs, num_hidden=3, name="fc"), (8, 5, 6)


def gated():
    cell = mx.rnn.FusedRNNCell(4, 1, "gru", prefix="gru_")
    outputs, _ = cell.unroll(5, mx.sym.Variable("data"), layout="NTC", merge_outputs=True)
    return mx.sym.FullyConnected(outputs, num_hidden=3, name="fc"), (8, 5, 6)


def unrolled():
    cell = mx.rnn.LSTMCell(4, prefix="lstm_")
    outputs, _ = cell.unroll(3, mx.sym.Variable("data"), layout="NTC")
    return mx.sym.FullyConnected(outputs[-1], num_hidden=3, name="fc"), (8, 3, 6)


NETWORKS = [dense, convolutional, frozen, recurrent, gated, unrolled]


def with_loss(symbol):
    return mx.sym.SoftmaxOutput(symbol, name="softmax")


def bound(symbol, shape, values=None):
    """Return a module with a loss on top, with these parameters or drawn ones."""
    module = mx.mod.Module(with_loss(symbol))
    module.bind([("data", shape)], [("softmax_label", shape[:1])])
    if values is None:
        mx.random.seed(3)
        module.init_params(mx.init.Mixed([".*"], [mx.init.Uniform(0.5)]))
        drawn, states = module.get_params()
        moved = {name: array + 0.3 for name, array in states.items()}
        module.set_params({n: v * 0 + 1 if n == "bn1_gamma" else v for n, v in drawn.items()}, moved)
    else:
        module.init_params(arg_params=values[0], aux_params=values[1])
    return module


def trained(module, shape, rate=0.2, data="data"):
    """Train for some steps; return all parameters and states as NumPy."""
    rng = np.random.RandomState(0)
    module.init_optimizer(optimizer="sgd", optimizer_params={"learning_rate": rate, "momentum": 0.9})
    for _ in range(STEPS):
        batch = mx.io.DataBatch([mx.nd.array(rng.randn(*shape))], [mx.nd.array(rng.randint(0, 3, shape[:1]))])
        module.forward_backward(batch)
        module.update()
    args, states = module.get_params()
    return {name: array.asnumpy() for name, array in {**args, **states}.items()}


def check_same(found, wanted):
    assert set(found) == set(wanted)
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, 0, 1e-5, err_msg=name)


@pytest.mark.parametrize("make", NETWORKS, ids=lambda each: each.__name__)
def test_through_onnx(make, tmp_path):
    symbol, shape = make()
    original = bound(symbol, shape)
    path = mx.onnx.export_model(
        symbol, [*original.get_params()], [("batch", *shape[1:])], onnx_file_path=str(tmp_path / "a")
    )
    net, *values = mx.onnx.import_model(path)
    assert net.list_outputs() == symbol.list_outputs()
    assert net.list_auxiliary_states() == symbol.list_auxiliary_states()
    there = bound(net, shape, values)
    before = [{name: array.asnumpy() for name, array in part.items()} for part in original.get_params()]
    for part, mine in zip(values, before, strict=True):
        assert set(part) == set(mine)
        for name, array in part.items():
            np.testing.assert_array_equal(array.asnumpy(), mine[name])
    wanted = trained(original, shape)
    assert max(abs(wanted[n] - before[0][n]).max() for n in before[0]) > 1e-2
    check_same(trained(there, shape), wanted)


@pytest.mark.parametrize("make", [dense, convolutional, unrolled], ids=lambda each: each.__name__)
def test_through_torch(make):
    symbol, shape = make()
    original = bound(symbol, shape)
    args, states = original.get_params()
    left = symbol.to_torch(args, states).eval()  # BatchNorm follows the symbol's mode all the same
    assert set(left.state_dict()) == {*args, *states}
    net, *values = mx.sym.from_torch(left, torch.zeros(shape))
    gone = {"bn1_gamma"}  # it stays 1, and torch is not told
    assert set(values[0]) | gone == set(args) | gone
    assert set(values[1]) == set(states)
    wanted = trained(original, shape)
    found = trained(bound(net, shape, values), shape)
    check_same(
        {n: v for n, v in found.items() if n not in gone}, {n: v for n, v in wanted.items() if n not in gone}
    )


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.LSTM(6, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, data):
        return self.out(self.rnn(data)[0][:, -1])


TORCH = {
    "dense": (lambda: nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 3)), (8, 5)),
    "convolutional": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(216, 3)
        ),
        (8, 2, 8, 8),
    ),
    "recurrent": (Tagger, (8, 5, 6)),
}


def torch_steps(net, shape):
    """Train a torch module for some steps; return its parameters."""
    rng = np.random.RandomState(0)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, 0.9)
    for _ in range(STEPS):
        data = torch.from_numpy(rng.randn(*shape).astype("float32"))
        label = torch.from_numpy(rng.randint(0, 3, shape[:1]))
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(data), label).backward()
        optimizer.step()
    return {name: value.detach().numpy() for name, value in net.named_parameters()}


@pytest.mark.parametrize("name", TORCH)
def test_from_torch_and_back(name):
    make, shape = TORCH[name]
    torch.manual_seed(0)
    net = make()
    symbol, args, states = mx.sym.from_torch(net, torch.zeros(shape))
    back = symbol.to_torch(args, states)
    mine, theirs = net.state_dict(), back.state_dict()
    assert set(theirs) == {key for key in mine if not key.endswith("num_batches_tracked")}
    assert all(torch.equal(value, mine[key]) for key, value in theirs.items())
    check_same(torch_steps(back, shape), torch_steps(net, shape))

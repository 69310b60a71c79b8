"""Torch modules of many kinds as symbols: the same values, the same steps."""

import numpy as np
import pytest
import torch
from torch import nn

import dpmodule as mx
from dpmodule import autobatch
from helpers.torch_import import array, compare
from helpers.torch_nets import NETS, net

QUICK = ("resnet", "ssd", "bag_of_words", "encoder_layer", "gpt", "mixture")


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in NETS]
)
def test_networks(name):
    make, inputs = NETS[name]
    module = make()
    symbol, args, states = compare(module, inputs)
    assert mx.sym.load_json(symbol.tojson()).list_arguments() == symbol.list_arguments()
    kept = dict(module.state_dict(keep_vars=True))
    assert all(tuple(kept[n].shape) in (args[n].shape, ()) for n in args if n in kept)
    assert all(tuple(kept[n].shape) == states[n].shape for n in states)


def test_fine_tuning_follows_torch():
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))
    net[0].bias.requires_grad = False
    module = mx.mod.Module.from_torch(net, torch.zeros(6, 4), head=mx.sym.SoftmaxOutput)
    options = {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01}
    module.init_optimizer(optimizer_params={**options, "rescale_grad": 1 / 6})
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], 0.1, 0.9, weight_decay=0.01)
    for x, y in zip(torch.randn(5, 6, 4), torch.randint(0, 3, (5, 6))):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
        module.forward_backward(mx.io.DataBatch([array(x)], [array(y.float())]))
        module.update()
    args, _ = module.get_params()
    for name, value in net.named_parameters():
        np.testing.assert_allclose(args[name].asnumpy(), value.detach().numpy(), 0, 1e-5, err_msg=name)


def test_a_module_predicts_at_once():
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    net.eval()
    x, module = np.random.randn(50, 4).astype(np.float32), mx.mod.Module.from_torch(net, torch.zeros(1, 4))
    assert (module.data_names, module.label_names) == (["input"], [])
    found = module.predict(mx.io.NDArrayIter({"input": x}, batch_size=7)).asnumpy()
    np.testing.assert_allclose(found, net(torch.from_numpy(x)).detach().numpy(), 1e-4, 1e-5)


def test_a_cell_of_automatic_batching():
    def forward(self, words):
        return self.out(self.rnn(self.embed(words))[0][:, -1])

    rnn = nn.GRU(4, 5, batch_first=True)
    last = net(forward, embed=nn.Embedding(20, 4), rnn=rnn, out=nn.Linear(5, 2))
    symbol, args, _ = mx.sym.from_torch(last, torch.zeros(2, 3, dtype=torch.long))
    cell = autobatch.cell(symbol, args, inputs=["words"])
    for length in (3, 5, 2):
        words = torch.randint(0, 20, (length,))
        wanted = last(words[None])[0].detach().numpy()
        np.testing.assert_allclose(cell(array(words)).npvalue(), wanted, 1e-4, 1e-6)

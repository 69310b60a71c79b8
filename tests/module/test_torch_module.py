"""TorchModule: shared memory, training as plain PyTorch trains, several contexts, chains."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import dpmodule as mx
from dpmodule.base import ArgumentError, StateError
from helpers.small_fits import TWO, both_contexts

RNG = np.random.RandomState(0)
X, GRAD = RNG.randn(8, 6).astype("f4"), RNG.randn(8, 4).astype("f4")


def net(seed=0, dropout=0.0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Dropout(dropout), nn.Linear(5, 4))


def ready(module=None, contexts=None, shape=(8, 6), rate=0.1, fixed=None, **bind):
    module = net() if module is None else module
    mod = mx.mod.TorchModule(module, context=contexts, name="net", fixed_param_names=fixed)
    mod.bind([("data", shape)], **bind)
    mod.init_params()
    mod.init_optimizer(optimizer_params={"learning_rate": rate, "rescale_grad": 1.0})
    return mod


def run(mod, data=X, out_grad=None):
    mod.forward(mx.io.DataBatch([mx.nd.array(data)]), is_train=out_grad is not None)
    if out_grad is not None:
        mod.backward([mx.nd.array(out_grad)])
    return mod.get_outputs()[0].asnumpy()


# memory


def test_parameters_are_the_modules_own_memory():
    module = net()
    mod = ready(module)
    args, _ = mod.get_params()
    assert sorted(args) == ["net_0_bias", "net_0_weight", "net_3_bias", "net_3_weight"]
    assert mod.group.store.array("net_0_weight", 0).tensor.data_ptr() == module[0].weight.data_ptr()
    mod.set_params({name: mx.nd.ones(value.shape) for name, value in args.items()}, {})
    assert (module[3].weight == 1).all()
    module.load_state_dict(net(seed=5).state_dict())
    mod.bind([("data", (3, 6))], for_training=False, force_rebind=True)
    assert torch.equal(module[0].weight, net(seed=5)[0].weight)
    assert mod.group.store.array("net_0_weight", 0).tensor.data_ptr() == module[0].weight.data_ptr()
    np.testing.assert_allclose(run(mod, X[:3]), net(seed=5)(torch.tensor(X[:3])).detach(), rtol=1e-5)


def test_a_moved_module_is_noticed():
    module = net()
    mod = ready(module)
    module.double()
    with pytest.raises(StateError, match=r"net_0_weight is no longer where it was.*force_rebind=True"):
        run(mod)
    module.float()
    mod.bind([("data", (8, 6))], force_rebind=True)
    assert run(mod).shape == (8, 4)


# computing


def tied():
    module = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Linear(6, 4))
    module[2].weight = module[0].weight
    return module


class Last(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(6, 4, batch_first=True)

    def forward(self, x):
        return self.rnn(x)[0][:, -1]


def not_contiguous():
    module = nn.Linear(6, 4)
    module.weight.data = torch.randn(6, 4).t()
    return module


@both_contexts
@pytest.mark.parametrize("make", [tied, Last, not_contiguous])
def test_a_step_is_that_of_plain_pytorch(contexts, make):
    """Output, gradient of the input and parameters."""
    torch.manual_seed(0)
    module = make()
    data = np.random.RandomState(1).randn(*((8, 7, 6) if make is Last else (8, 6))).astype("f4")
    whole, given = copy.deepcopy(module), torch.tensor(data, requires_grad=True)
    out = whole(given)
    out.backward(torch.tensor(GRAD))
    mod = ready(module, contexts, data.shape, inputs_need_grad=True)
    np.testing.assert_allclose(run(mod, data, GRAD), out.detach(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(mod.get_input_grads()[0].asnumpy(), given.grad, rtol=1e-5, atol=1e-6)
    mod.update()
    for name, value in whole.named_parameters():
        wanted, found = value.detach() - 0.1 * value.grad, module.get_parameter(name)
        np.testing.assert_allclose(found.detach(), wanted, rtol=1e-4, atol=1e-5, err_msg=name)
        assert found.is_contiguous()
    assert make is not tied or module[2].weight is module[0].weight


def test_buffers_of_two_contexts_are_averaged():
    module = nn.BatchNorm1d(6, momentum=1.0)
    mod = ready(module, TWO)
    run(mod, X, X)
    mean = (X[:4].mean(0) + X[4:].mean(0)) / 2
    np.testing.assert_allclose(mod.get_params()[1]["net_running_mean"].asnumpy(), mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(module.running_mean, X[:4].mean(0), rtol=1e-4, atol=1e-6)
    mod.sync_contexts()
    np.testing.assert_allclose(module.running_mean, mean, rtol=1e-4, atol=1e-6)


@both_contexts
def test_frozen_parameters_stay(contexts):
    module = net()
    module[0].weight.requires_grad_(False)
    before = {name: value.detach().clone() for name, value in module.named_parameters()}
    mod = ready(module, contexts, fixed=["net_3_bias"])
    sgd = mx.optimizer.SGD(learning_rate=0.1, wd=0.5, rescale_grad=1 / 8)
    mod.init_optimizer(optimizer=sgd, force_init=True)
    run(mod, X, GRAD)
    mod.update()
    same = {name for name, value in module.named_parameters() if torch.equal(value, before[name])}
    assert same == {"0.weight", "3.bias"}


@both_contexts
def test_dropout_repeats_with_the_seed_and_leaves_torchs_generator_alone(contexts):
    found = []
    for seed in (1, 1, 2):
        mod = ready(net(dropout=0.5), contexts, inputs_need_grad=True)
        mx.random.seed(seed)
        torch.manual_seed(7)
        found.append(run(mod, X, GRAD))
        assert torch.rand(1) == torch.rand(1, generator=torch.Generator().manual_seed(7))
        first = mod.get_input_grads()[0].asnumpy().copy()
        mod.backward([mx.nd.array(GRAD)])  # once more, with the same numbers
        np.testing.assert_array_equal(mod.get_input_grads()[0].asnumpy(), first)
    np.testing.assert_array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])
    np.testing.assert_array_equal(run(mod), run(mod))


def test_whole_numbers_reach_an_embedding_from_float_data():
    module = nn.Sequential(nn.Embedding(9, 3), nn.Flatten())
    mod, ids = ready(module, shape=(2, 4), rate=1.0), np.array([[0, 1, 2, 3], [3, 3, 8, 0]])
    before = module[0].weight.detach().numpy().copy()
    np.testing.assert_array_equal(run(mod, ids, np.ones((2, 12))), before[ids].reshape(2, 12))
    mod.update()
    counts = np.bincount(ids.ravel(), minlength=9)[:, None]
    np.testing.assert_allclose(module[0].weight.detach(), before - counts, rtol=1e-6)


@pytest.mark.gpu
def test_on_a_gpu():
    module = net(dropout=0.3).cuda()
    mod, state = ready(module, contexts=mx.gpu(0), inputs_need_grad=True), torch.cuda.get_rng_state(0)
    run(mod, X, GRAD)
    assert torch.equal(torch.cuda.get_rng_state(0), state)
    first = mod.get_input_grads()[0].asnumpy().copy()
    mod.backward([mx.nd.array(GRAD, ctx=mx.gpu(0))])  # once more, with the same numbers
    np.testing.assert_allclose(mod.get_input_grads()[0].asnumpy(), first, rtol=1e-5, atol=1e-6)
    before = module[0].weight.detach().clone()
    mod.update()
    assert not torch.equal(module[0].weight, before)
    with pytest.raises(ArgumentError, match=r"is on cuda:0, the first context is cpu\(0\)"):
        mx.mod.TorchModule(module, context=mx.cpu())


def test_several_inputs_and_outputs():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(2.0))

        def forward(self, a, b):
            return a * self.scale, (a - b).sum()

    mod = mx.mod.TorchModule(Both(), ["a", "b"], name="both", num_outputs=2)
    mod.bind([("a", (2, 3)), ("b", (2, 3))], inputs_need_grad=True)
    mod.init_params()
    assert mod.output_shapes == [("both_output0", (2, 3)), ("both_output1", (1,))]
    assert mod.get_params()[0]["both_scale"].asnumpy() == [2]
    mod.forward(mx.io.DataBatch([mx.nd.ones((2, 3)), mx.nd.zeros((2, 3))]), is_train=True)
    assert [out.asnumpy().ravel()[0] for out in mod.get_outputs()] == [2, 6]
    mod.backward([mx.nd.ones((2, 3)), mx.nd.ones((1,)) * 10])
    assert [set(grad.asnumpy().ravel()) for grad in mod.get_input_grads()] == [{12}, {-10}]


def test_a_module_that_changes_its_input_leaves_the_batch_alone():
    mod = ready(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(6, 4)), inputs_need_grad=True)
    one = mx.io.DataBatch([mx.nd.array(X)])
    for is_train in (False, True):
        mod.forward(one, is_train=is_train)
        np.testing.assert_array_equal(one.data[0].asnumpy(), X)
    mod.backward([mx.nd.array(GRAD)])
    assert (mod.get_input_grads()[0].asnumpy()[X < 0] == 0).all()


def test_modes_that_the_owner_set_stay():
    module = nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 4))
    module[0].eval()  # frozen statistics
    before, mod = module[0].running_mean.clone(), ready(module)
    for grad in (GRAD, None) * 2:
        run(mod, X, grad)
    assert torch.equal(module[0].running_mean, before)
    assert [part.training for part in module.modules()] == [True, False, True]

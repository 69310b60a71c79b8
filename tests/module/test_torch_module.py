"""TorchModule: shared memory, training as plain PyTorch trains, several contexts, chains and bad input."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import dpmodule as mx
from dpmodule.base import ArgumentError, ShapeError, StateError
from helpers.nets import blobs

CONTEXTS = {"one": [mx.cpu(0)], "two": [mx.cpu(0), mx.cpu(1)]}
both_contexts = pytest.mark.parametrize("where", CONTEXTS)


def net(seed=0, dropout=0.0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Dropout(dropout), nn.Linear(5, 4))


def bound(module=None, rows=8, contexts=None, **bind):
    mod = mx.mod.TorchModule(module if module is not None else net(), context=contexts, name="net")
    mod.bind([("data", (rows, 6))], **bind)
    return mod


def ready(module=None, rows=8, contexts=None, rate=0.1, **bind):
    mod = bound(module, rows, contexts, **bind)
    mod.init_params()
    mod.init_optimizer(optimizer_params={"learning_rate": rate, "rescale_grad": 1.0})
    return mod


def arrays(rows=8, seed=0):
    rng = np.random.RandomState(seed)
    return rng.randn(rows, 6).astype("f4"), rng.randn(rows, 4).astype("f4")


def run(mod, data, out_grad=None):
    mod.forward(mx.io.DataBatch([mx.nd.array(data)]), is_train=out_grad is not None)
    if out_grad is not None:
        mod.backward([mx.nd.array(out_grad)])
    return mod.get_outputs()[0].asnumpy()


def gradients(module, data, out_grad):
    """Return plain PyTorch's output, input gradient and parameter gradients."""
    module = copy.deepcopy(module)
    given = torch.tensor(data, requires_grad=True)
    out = module(given)
    out.backward(torch.tensor(out_grad))
    return out.detach().numpy(), given.grad.numpy(), {k: p.grad.numpy() for k, p in module.named_parameters()}


# memory


def test_parameters_are_the_modules_own_memory():
    module = net()
    mod = ready(module)
    args, _ = mod.get_params()
    assert sorted(args) == ["net_0_bias", "net_0_weight", "net_3_bias", "net_3_weight"]
    shared = mod.group.store.array("net_0_weight", 0)
    assert shared.tensor.data_ptr() == module[0].weight.data_ptr()
    run(mod, *arrays())
    before = module[0].weight.detach().clone()
    mod.update()
    assert not torch.equal(module[0].weight, before)
    np.testing.assert_array_equal(
        mod.get_params()[0]["net_0_weight"].asnumpy(), module[0].weight.detach().numpy()
    )
    mod.set_params({name: mx.nd.ones(value.shape) for name, value in args.items()}, {})
    assert (module[3].weight == 1).all()
    module.load_state_dict(net(seed=5).state_dict())
    np.testing.assert_allclose(
        run(mod, arrays()[0]), net(seed=5)(torch.tensor(arrays()[0])).detach(), rtol=1e-6
    )


def test_values_come_from_the_module_whatever_the_initializer():
    module = net()
    before = {k: v.clone() for k, v in module.state_dict().items()}
    mod = bound(module)
    mod.init_params(mx.init.Xavier(), force_init=True)
    assert all(torch.equal(before[k], v) for k, v in module.state_dict().items())
    given = {"net_0_weight": mx.nd.zeros((5, 6))}
    mod.init_params(arg_params=given, aux_params={}, allow_missing=True, force_init=True)
    assert (module[0].weight == 0).all()
    assert torch.equal(module[3].weight, before["3.weight"])


def test_binding_again_keeps_memory_and_values():
    module = net()
    mod = ready(module)
    run(mod, *arrays())
    mod.update()
    after = module[0].weight.detach().clone()
    mod.bind([("data", (3, 6))], for_training=False, force_rebind=True)
    assert torch.equal(module[0].weight, after)
    assert mod.group.store.array("net_0_weight", 0).tensor.data_ptr() == module[0].weight.data_ptr()
    assert run(mod, arrays(3)[0]).shape == (3, 4)


def test_a_moved_module_is_noticed():
    module = net()
    mod = ready(module)
    module.double()
    with pytest.raises(StateError, match=r"net_0_weight is no longer where it was.*force_rebind=True"):
        run(mod, arrays()[0])
    module.float()
    with pytest.raises(StateError, match="no longer"):
        mod.predict(arrays()[0])
    mod.bind([("data", (8, 6))], force_rebind=True)
    assert run(mod, arrays()[0]).shape == (8, 4)


def test_parameters_that_are_not_contiguous_are_made_so():
    module = nn.Linear(6, 4)
    module.weight.data = torch.randn(6, 4).t()
    wanted = gradients(module, *arrays())
    mod = ready(module)
    assert module.weight.is_contiguous()
    np.testing.assert_allclose(run(mod, *arrays()), wanted[0], rtol=1e-5, atol=1e-6)
    before = module.weight.detach().numpy().copy()
    mod.update()
    np.testing.assert_allclose(
        module.weight.detach(), before - 0.1 * wanted[2]["weight"], rtol=1e-4, atol=1e-5
    )


# computing


@both_contexts
def test_outputs_and_gradients_are_plain_pytorchs(where):
    module = net()
    data, out_grad = arrays()
    wanted = gradients(module, data, out_grad)
    mod = ready(module, contexts=CONTEXTS[where], inputs_need_grad=True)
    np.testing.assert_allclose(run(mod, data, out_grad), wanted[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(mod.get_input_grads()[0].asnumpy(), wanted[1], rtol=1e-5, atol=1e-6)
    before = {k: p.detach().numpy().copy() for k, p in module.named_parameters()}
    mod.update()
    for name, grad in wanted[2].items():
        found = dict(module.named_parameters())[name].detach().numpy()
        np.testing.assert_allclose(found, before[name] - 0.1 * grad, rtol=1e-5, atol=1e-5, err_msg=name)


@both_contexts
@pytest.mark.parametrize("rule", ["sgd", "adam"])
def test_a_chain_trains_as_plain_pytorch_does(where, rule):
    data, label = blobs(32)
    low, body, top = nn.Linear(6, 6), net(), nn.Linear(4, 4)
    whole = copy.deepcopy(nn.Sequential(low, body, nn.ReLU(), top))
    own = {"sgd": {"learning_rate": 0.1, "momentum": 0.9}, "adam": {"learning_rate": 0.01}}[rule]
    torch_rule = {
        "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
        "adam": lambda p: torch.optim.Adam(p, 0.01),
    }[rule](whole.parameters())
    chain = chained(body, CONTEXTS[where])
    train = mx.io.NDArrayIter(data, label, 8)
    start = {
        "low_weight": mx.nd.array(low.weight.detach().numpy()), "low_bias": mx.nd.array(low.bias.detach().numpy()),
        "top_weight": mx.nd.array(top.weight.detach().numpy()), "top_bias": mx.nd.array(top.bias.detach().numpy()),
    }  # fmt: skip
    chain.fit(train, optimizer=rule, optimizer_params=own, arg_params=start, allow_missing=True, num_epoch=3)
    for _ in range(3):
        for at in range(0, 32, 8):
            torch_rule.zero_grad()
            x, y = torch.tensor(data[at : at + 8]), torch.tensor(label[at : at + 8]).long()
            nn.functional.cross_entropy(whole(x), y).backward()
            torch_rule.step()
    for (name, wanted), found in zip(whole[1].named_parameters(), body.parameters()):
        np.testing.assert_allclose(found.detach(), wanted.detach(), rtol=1e-3, atol=1e-5, err_msg=name)
    args = chain.get_params()[0]
    np.testing.assert_allclose(args["top_weight"].asnumpy(), whole[3].weight.detach(), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(args["low_weight"].asnumpy(), whole[0].weight.detach(), rtol=1e-3, atol=1e-5)


def chained(body, contexts=None):
    low = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=6, name="low")
    top = mx.sym.FullyConnected(
        mx.sym.Activation(mx.sym.Variable("x"), act_type="relu"), num_hidden=4, name="top"
    )
    chain = mx.mod.SequentialModule().add(mx.mod.Module(low, label_names=None, context=contexts))
    chain.add(mx.mod.TorchModule(body, context=contexts, name="net"), auto_wiring=True)
    last = mx.mod.Module(mx.sym.SoftmaxOutput(top, name="softmax"), ["x"], context=contexts)
    return chain.add(last, auto_wiring=True, take_labels=True)


def test_other_contexts_keep_parameters():
    module = net()
    mod = bound(module)
    mod.init_params()
    mod.init_optimizer()
    run(mod, *arrays())
    mod.update()
    before = module[0].weight.detach().clone()
    mod.rebind(CONTEXTS["two"], None, [("data", (8, 6))], None)
    assert torch.equal(module[0].weight, before)
    np.testing.assert_allclose(
        run(mod, arrays()[0]), module(torch.tensor(arrays()[0])).detach(), rtol=1e-5, atol=1e-6
    )
    assert [ctx.device_id for ctx in mod.group.contexts] == [0, 1]


def test_buffers_are_states_that_move_with_backward():
    module = nn.BatchNorm1d(6)
    other = copy.deepcopy(module)
    mod = ready(module)
    data, _ = arrays()
    run(mod, data, data)
    other(torch.tensor(data))
    np.testing.assert_allclose(module.running_mean, other.running_mean, rtol=1e-5)
    np.testing.assert_allclose(module.running_var, other.running_var, rtol=1e-5)
    assert int(module.num_batches_tracked) == 1
    _, states = mod.get_params()
    assert states["net_num_batches_tracked"].asnumpy() == [1]
    np.testing.assert_allclose(states["net_running_var"].asnumpy(), other.running_var, rtol=1e-5)
    other.eval()
    np.testing.assert_allclose(run(mod, data), other(torch.tensor(data)).detach(), rtol=1e-5, atol=1e-6)
    assert module.training


def test_buffers_of_two_contexts_are_averaged():
    module = nn.BatchNorm1d(6, momentum=1.0)
    data, _ = arrays()
    mod = ready(module, contexts=CONTEXTS["two"])
    run(mod, data, data)
    mean = (data[:4].mean(0) + data[4:].mean(0)) / 2
    np.testing.assert_allclose(mod.get_params()[1]["net_running_mean"].asnumpy(), mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(module.running_mean, data[:4].mean(0), rtol=1e-4, atol=1e-6)
    mod.sync_contexts()
    np.testing.assert_allclose(module.running_mean, mean, rtol=1e-4, atol=1e-6)


def test_modes_that_the_owner_set_stay():
    module = nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 4))
    module[0].eval()  # frozen statistics
    before = module[0].running_mean.clone()
    mod = ready(module)
    for _ in range(2):
        run(mod, *arrays())
        run(mod, arrays()[0])
    assert torch.equal(module[0].running_mean, before)
    assert [part.training for part in module.modules()] == [True, False, True]


@both_contexts
def test_frozen_parameters_stay(where):
    module = net()
    module[0].weight.requires_grad_(False)
    before = module[0].weight.clone(), module[3].weight.detach().clone()
    mod = mx.mod.TorchModule(module, context=CONTEXTS[where], name="net", fixed_param_names=["net_3_bias"])
    mod.bind([("data", (8, 6))])
    mod.init_params()
    mod.init_optimizer(optimizer=mx.optimizer.SGD(learning_rate=0.1, wd=0.5, rescale_grad=1 / 8))
    bias = module[3].bias.detach().clone()
    run(mod, *arrays())
    mod.update()
    assert torch.equal(module[0].weight, before[0])
    assert torch.equal(module[3].bias, bias)
    assert not torch.equal(module[3].weight, before[1])


@both_contexts
def test_dropout_repeats_with_the_seed_and_leaves_torchs_generator_alone(where):
    data, out_grad = arrays()
    found = []
    for seed in (1, 1, 2):
        mod = ready(net(dropout=0.5), contexts=CONTEXTS[where], inputs_need_grad=True)
        mx.random.seed(seed)
        torch.manual_seed(7)
        out = run(mod, data, out_grad)
        assert torch.rand(1) == torch.rand(1, generator=torch.Generator().manual_seed(7))
        first = mod.get_input_grads()[0].asnumpy().copy()
        mod.backward([mx.nd.array(out_grad)])  # once more, with the same numbers
        np.testing.assert_array_equal(mod.get_input_grads()[0].asnumpy(), first)
        found.append(out)
    np.testing.assert_array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])
    np.testing.assert_array_equal(run(mod, data), run(mod, data))


def test_several_inputs_and_outputs():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(2.0))

        def forward(self, a, b):
            return a * self.scale, (a - b).sum()

    module = Both()
    mod = mx.mod.TorchModule(module, ["a", "b"], name="both", num_outputs=2)
    mod.bind([("a", (2, 3)), ("b", (2, 3))], inputs_need_grad=True)
    mod.init_params()
    assert mod.output_names == ["both_output0", "both_output1"]
    assert mod.output_shapes == [("both_output0", (2, 3)), ("both_output1", (1,))]
    assert mod.get_params()[0]["both_scale"].asnumpy() == [2]
    mod.forward(mx.io.DataBatch([mx.nd.ones((2, 3)), mx.nd.zeros((2, 3))]), is_train=True)
    assert [out.asnumpy().ravel()[0] for out in mod.get_outputs()] == [2, 6]
    mod.backward([mx.nd.ones((2, 3)), mx.nd.ones((1,)) * 10])
    a, b = mod.get_input_grads()
    assert (a.asnumpy() == 12).all()
    assert (b.asnumpy() == -10).all()


def test_whole_numbers_reach_an_embedding_from_float_data():
    module = nn.Sequential(nn.Embedding(9, 3), nn.Flatten())
    mod = mx.mod.TorchModule(module, name="net")
    mod.bind([("data", (2, 4))])
    mod.init_params()
    mod.init_optimizer(optimizer_params={"learning_rate": 1.0, "rescale_grad": 1.0})
    ids = np.array([[0, 1, 2, 3], [3, 3, 8, 0]])
    before = module[0].weight.detach().numpy().copy()
    np.testing.assert_array_equal(run(mod, ids, np.ones((2, 12))), before[ids].reshape(2, 12))
    mod.update()
    counts = np.bincount(ids.ravel(), minlength=9)[:, None]
    np.testing.assert_allclose(module[0].weight.detach(), before - counts, rtol=1e-6)


def test_a_module_that_changes_its_input_leaves_the_batch_alone():
    data, out_grad = arrays()
    mod = ready(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(6, 4)), inputs_need_grad=True)
    one = mx.io.DataBatch([mx.nd.array(data)])
    for train in (True, False):
        mod.forward(one, is_train=train)
        np.testing.assert_array_equal(one.data[0].asnumpy(), data)
    mod.evaluate(one)
    np.testing.assert_array_equal(one.data[0].asnumpy(), data)
    run(mod, data, out_grad)
    assert (mod.get_input_grads()[0].asnumpy()[data < 0] == 0).all()


def test_other_batch_sizes_and_monitor():
    mod, seen = ready(rows=8), []
    mod.install_monitor(mx.mon.Monitor(1, stat_func=seen.append))
    assert run(mod, arrays(3)[0]).shape == (3, 4)
    assert mod.predict(mx.io.NDArrayIter(arrays(10)[0], batch_size=4)).shape == (10, 4)
    assert "torch.Sequential" in mod.summary()
    assert mod.torch_module[0].in_features == 6


def test_recurrent_module_and_group_of_gradients():
    torch.manual_seed(0)

    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(6, 4, batch_first=True)

        def forward(self, x):
            return self.rnn(x)[0][:, -1]

    module = Last()
    data, out_grad = np.random.RandomState(0).randn(5, 7, 6).astype("f4"), np.ones((5, 4), "f4")
    wanted = gradients(module, data, out_grad)
    mod = mx.mod.TorchModule(module, name="net")
    mod.bind([("data", (5, 7, 6))], grad_req="add")
    mod.init_params()
    for _ in range(2):
        run(mod, data, out_grad)
    for name, grad in wanted[2].items():
        found = mod.group.store.grad("net_" + name.replace(".", "_"), 0).asnumpy()
        np.testing.assert_allclose(found, 2 * grad, rtol=1e-4, atol=1e-5, err_msg=name)


# files and bad input


def test_parameters_are_saved_but_not_the_network(tmp_path):
    mod, other = ready(net(0)), ready(net(1))
    mod.save_params(str(tmp_path / "net.params"))
    other.load_params(str(tmp_path / "net.params"))
    assert torch.equal(other.torch_module[0].weight, mod.torch_module[0].weight)
    with pytest.raises(
        ArgumentError, match="runs a torch module, which a symbol file cannot store.*save_params"
    ):
        mod.save_checkpoint(str(tmp_path / "net"), 1)
    assert [path.name for path in tmp_path.iterdir()] == ["net.params"]


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: mx.mod.TorchModule(torch.relu), ArgumentError, "expected a torch.nn.Module"),
        (lambda: mx.mod.TorchModule(net(), []), ArgumentError, "data_names is empty"),
        (
            lambda: mx.mod.TorchModule(nn.LazyLinear(3)),
            ArgumentError,
            "weight of LazyLinear has no shape yet",
        ),
        (
            lambda: mx.mod.TorchModule(nn.ParameterList([torch.ones(0)])),
            ArgumentError,
            "0 of ParameterList is empty",
        ),
        (
            lambda: mx.mod.TorchModule(net(), dtypes=["float32"] * 2),
            ArgumentError,
            "dtypes has 2 entries for 1 inputs",
        ),
        (
            lambda: mx.mod.TorchModule(net().to("meta")),
            ArgumentError,
            r"is on meta, the first context is cpu\(0\)",
        ),
        (
            lambda: bound().bind([("data", (8, 5))], force_rebind=True),
            ShapeError,
            r"fails on inputs of shape \(8, 5\)",
        ),
        (lambda: ready().forward_backward(mx.io.DataBatch([])), StateError, "the outputs are not losses"),
        (lambda: bound().forward(None), StateError, r"call init_params\(\) first"),
        (lambda: bound(nn.GRU(6, 4)), ShapeError, "returned Tensor, Tensor, expected 1"),
        (lambda: ready().backward([mx.nd.ones((8, 4))]), StateError, "call forward"),
    ],
)
def test_bad_calls(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_a_chain_that_does_not_fit_names_both_modules():
    chain = chained(nn.Linear(9, 4))
    message = (
        r"module 1 \(TorchModule net_output\) does not take what module 0 \(Module low_output\) gives, data"
    )
    with pytest.raises(ShapeError, match=message):
        chain.bind([("data", (8, 6))], [("softmax_label", (8,))])


def test_two_names_for_one_parameter():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Module()
            self.a.b_c = nn.Parameter(torch.ones(1))
            self.a_b = nn.Module()
            self.a_b.c = nn.Parameter(torch.ones(1))

    with pytest.raises(ArgumentError, match=r"a\.b_c and a_b\.c would both be called a_b_c"):
        mx.mod.TorchModule(Odd())


def test_tied_parameters_stay_tied():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(6, 6), nn.Linear(6, 6)
            self.two.weight = self.one.weight

        def forward(self, x):
            return self.two(torch.tanh(self.one(x)))

    module = Tied()
    data = arrays()[0]
    wanted = gradients(module, data, data)
    before = module.one.weight.detach().numpy().copy()
    mod = ready(module)
    assert sorted(mod.get_params()[0]) == ["net_one_bias", "net_one_weight", "net_two_bias"]
    run(mod, data, data)
    mod.update()
    assert module.two.weight is module.one.weight
    found = module.one.weight.detach()
    np.testing.assert_allclose(found, before - 0.1 * wanted[2]["one.weight"], rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
def test_on_a_gpu():
    module = net(dropout=0.3).cuda()
    mod = ready(module, contexts=mx.gpu(0), inputs_need_grad=True)
    found = []
    for _ in range(2):
        mx.random.seed(0)
        state = torch.cuda.get_rng_state(0)
        found.append(run(mod, *arrays()))
        assert torch.equal(torch.cuda.get_rng_state(0), state)
        first = mod.get_input_grads()[0].asnumpy().copy()
        mod.backward([mx.nd.array(arrays()[1], ctx=mx.gpu(0))])
        np.testing.assert_allclose(mod.get_input_grads()[0].asnumpy(), first, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found[0], found[1])
    before = module[0].weight.detach().clone()
    mod.update()
    assert not torch.equal(module[0].weight, before)
    with pytest.raises(ArgumentError, match=r"is on cuda:0, the first context is cpu\(0\)"):
        mx.mod.TorchModule(module, context=mx.cpu())

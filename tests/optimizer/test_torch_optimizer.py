"""Classes of torch.optim as optimizers: the same steps as torch itself, in every way of calling them."""

import copy
import functools
import pickle

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule import optimizer
from dpmodule.optimizer import TorchOptimizer
from helpers.nets import blobs, mlp
from helpers.small_fits import same

NAMES = {0: "a_weight", 1: "a_bias", 2: "b_weight"}
SHAPES = [(4, 3), (4,), (2, 5)]
CLASSES = [
    (torch.optim.SGD, {}),
    (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    (torch.optim.Adam, {"amsgrad": True}),
    (torch.optim.Adam, {"fused": True}),
    (torch.optim.AdamW, {"betas": (0.8, 0.9)}),
    (torch.optim.RMSprop, {"centered": True}),
]


def nd(tensor):
    return mx.nd.NDArray(tensor.clone(), mx.cpu())


def draw(seed):
    gen = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=gen) for shape in SHAPES]


def by_torch(klass, options, steps):
    """Return the parameters after some steps of torch, at the rates that Module's conventions give."""
    params, rates = [torch.nn.Parameter(w) for w in draw(0)], [(0.5, 0.1), (1.0, 0.0), (1.0, 0.1)]
    groups = [{"params": [p], "lr": 0.05 * lr, "weight_decay": wd} for p, (lr, wd) in zip(params, rates)]
    made = klass(groups, lr=0.05, **options)
    for t in range(steps):
        for p, grad in zip(params, draw(1 + t)):
            p.grad = (0.5 * grad).clamp(-0.4, 0.4)
        made.step()
    return [p.detach() for p in params]


def create(klass, options):
    made = optimizer.create(
        klass, lr=0.05, weight_decay=0.1, rescale_grad=0.5, clip_gradient=0.4, param_idx2name=NAMES, **options
    )
    made.set_lr_mult({"a_weight": 0.5})
    return made


def each(update, grads, weights):
    for i in NAMES:
        update(i, grads[i], weights[i])
    return update


def all_at_once(update, grads, weights):
    update.update_all(list(NAMES), grads, weights)
    return update


def by_turns(update, grads, weights):
    """All, then one by one, then two of them: engines for other choices must find what the last one left."""
    count = update.optimizer.num_update
    if count % 3 == 0:
        return all_at_once(update, grads, weights)
    if count % 3 == 1:
        return each(update, grads, weights)
    update.update_all([2, 0], [grads[2], grads[0]], [weights[2], weights[0]])
    update(1, grads[1], weights[1])
    return update


def dumped(update, grads, weights):
    other = optimizer.get_updater(optimizer.create("sgd"))
    other.set_states(update.get_states(dump_optimizer=True))
    return all_at_once(other, grads, weights)


def loaded(update, grads, weights):
    """Torch keeps its counts in the states, so nothing is lost without the optimizer."""
    other = optimizer.get_updater(copy.deepcopy(update.optimizer))
    other.set_states(update.get_states())
    return all_at_once(copy.deepcopy(pickle.loads(pickle.dumps(other))), grads, weights)


@pytest.mark.parametrize(("klass", "options"), CLASSES)
@pytest.mark.parametrize("way", [all_at_once, by_turns, dumped, loaded])
def test_steps_are_torchs(klass, options, way):
    update, weights = optimizer.get_updater(create(klass, options)), [nd(w) for w in draw(0)]
    for t in range(6):
        grads = [nd(g) for g in draw(1 + t)]
        update = way(update, grads, weights)
        assert all(torch.equal(grad.tensor, given) for grad, given in zip(grads, draw(1 + t)))
    for weight, want in zip(weights, by_torch(klass, options, 6)):
        torch.testing.assert_close(weight.tensor, want, rtol=1e-6, atol=1e-7)
    assert all(w.tensor.grad is None and not w.tensor.requires_grad for w in weights)


def test_states_are_arrays_by_name_that_follow_every_step():
    update, weight = optimizer.get_updater(optimizer.create(torch.optim.Adam)), mx.nd.ones((2,))
    for count in (1, 2):
        update(0, mx.nd.array([1.0, 2.0]), weight)
        state = update.states[0]
        assert (sorted(state), state["step"].asscalar()) == (["exp_avg", "exp_avg_sq", "step"], count)
        np.testing.assert_allclose(state["exp_avg"].asnumpy(), np.array([1, 2]) * (1 - 0.9**count), rtol=1e-6)
        assert state["exp_avg"].pinned
    state["exp_avg"][:] = 0.0
    before = weight.asnumpy()
    update(0, mx.nd.zeros((2,)), weight)
    np.testing.assert_array_equal(weight.asnumpy(), before)


def test_defaults_are_torchs():
    made = optimizer.create(torch.optim.AdamW)
    assert isinstance(made, TorchOptimizer)
    assert (made.lr, made.wd, made.rescale_grad) == (1e-3, 1e-2, 1.0)
    assert optimizer.create("TorchOptimizer", factory=torch.optim.SGD, learning_rate=0.5).lr == 0.5
    assert TorchOptimizer(torch.optim.Adam, wd=0.25).wd == 0.25
    assert TorchOptimizer(torch.optim.Rprop).wd == 0.0


def test_a_function_as_factory():
    def factory(params):
        matrices, vectors = [p for p in params if p.dim() > 1], [p for p in params if p.dim() < 2]
        groups = [{"params": matrices, "lr": 0.2}, {"params": vectors, "lr": 0.1}]
        return torch.optim.SGD([g for g in groups if g["params"]], lr=0.1)

    for chosen, rate in ((factory, 2.0), (functools.partial(torch.optim.SGD, lr=0.1), 1.0)):
        update = optimizer.get_updater(TorchOptimizer(chosen, rescale_grad=0.5))
        weights = [mx.nd.zeros(shape) for shape in SHAPES]
        update.update_all([0, 1, 2], [mx.nd.ones(shape) for shape in SHAPES], weights)
        np.testing.assert_allclose(weights[1].asnumpy(), -0.05, rtol=1e-6)
        np.testing.assert_allclose(weights[2].asnumpy(), -0.05 * rate, rtol=1e-6)


def test_module_trains_with_a_torch_class():
    def train(kind, contexts=1, **given):
        mx.random.seed(1)
        module = mx.mod.Module(mlp(3), context=[mx.cpu(i) for i in range(contexts)])
        module.fit(mx.io.NDArrayIter(*blobs(16, classes=3), 8), optimizer=kind, num_epoch=2, **given)
        return module

    params = {"optimizer_params": {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01}}
    ours = train("sgd", **params)
    for contexts in (1, 2):
        same(train(torch.optim.SGD, contexts, **params), ours, 1e-5)
    made = train(torch.optim.AdamW)._optimizer
    assert (made.lr, made.rescale_grad) == (
        1e-3,
        1 / 8,
    )  # torch's own, not the 0.01 that a named optimizer gets

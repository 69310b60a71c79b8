"""The Updater: one by one and all at once, whatever the memory of the gradients."""

from itertools import product

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule import optimizer
from dpmodule._core import torch_private
from dpmodule.base import StateError
from helpers import store_workers
from helpers.rules import VARIANTS as RULES
from helpers.store_workers import Workers, make_module, state_of, steps
from helpers.walk import walks

NAMES = {0: "a_weight", 1: "a_bias", 2: "c_weight", 3: "n_gamma"}
SHAPES = [(8, 6), (8,), (4, 3, 5, 5), (4,)]
VARIANTS = [
    *(variant for variant in RULES if variant[0] != "groupadagrad"),  # takes matrices only
    *((name, {"clip_gradient": 0.5}) for name in ("sgd", "adam", "ftrl", "lamb")),
    ("test", {}),
]


@pytest.fixture(params=["private", "public"])
def functions(request):
    """Run with torch's private functions and with their public stand-ins."""
    torch_private.select(public=request.param == "public")
    yield request.param
    torch_private.select()


def nd(tensor):
    return mx.nd.NDArray(tensor, mx.cpu())


def draw(seed, dtype=torch.float32):
    gen = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=gen).to(dtype) for shape in SHAPES]


def strided(tensor, kind):
    """Return a tensor of equal values in other memory."""
    if kind == "transposed":
        return tensor.mT.contiguous().mT if tensor.dim() > 1 else tensor
    if kind == "channels_last":
        return tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor
    if kind == "sliced":
        return torch.stack([tensor, tensor], -1)[..., 0]
    return tensor.new_full((), 0.25).expand(tensor.shape) if kind == "expanded" else tensor


def options(dtype):
    return {"learning_rate": 0.05, "wd": 0.01, "rescale_grad": 0.5, "multi_precision": dtype == torch.float16}


def updaters(name, extra, dtype):
    made = [optimizer.create(name, param_idx2name=NAMES, **options(dtype), **extra) for _ in range(2)]
    for one in made:
        one.set_lr_mult({"c_weight": 0.5})
    return [optimizer.get_updater(one) for one in made]


KINDS = ["plain", "transposed", "channels_last", "sliced", "expanded"]
DTYPES = [torch.float32, torch.float64, torch.float16]


@walks(product(VARIANTS, KINDS, DTYPES), family=lambda rule, *_: rule[0])
def test_all_at_once_equals_one_by_one(rule, kind, dtype, functions):
    name, extra = rule
    each, together = updaters(name, extra, dtype)
    ours, theirs = [nd(t.clone()) for t in draw(0, dtype)], [nd(t.clone()) for t in draw(0, dtype)]
    batches = [[strided(t, kind) for t in draw(1 + t, dtype)] for t in range(4)]
    for batch in batches:
        kept = [g.clone() for g in batch]
        together.update_all(list(NAMES), [nd(g) for g in batch], ours)
        for index in NAMES:
            each(index, nd(batch[index]), theirs[index])
        assert all(torch.equal(a, b) for a, b in zip(kept, batch))
    for a, b in zip(ours, theirs):
        torch.testing.assert_close(a.tensor, b.tensor, rtol=1e-6, atol=1e-7)


def test_plan_follows_every_change():
    """Rates, multipliers, exchanged tensors and states, and counts that part, each between two batches."""
    rules = [optimizer.create("adam", learning_rate=0.1, param_idx2name=NAMES) for _ in range(2)]
    update, twin = map(optimizer.get_updater, rules)
    ours, theirs = [nd(t.clone()) for t in draw(0)], [nd(t.clone()) for t in draw(0)]

    def exchange(weights, updater):
        weights[0].tensor = weights[0].tensor + 1.0

    def new_state(weights, updater):
        mean, square = updater.states[2]
        updater.states[2] = (mx.nd.zeros(mean.shape), square)

    changes = [
        lambda w, u: None,
        lambda w, u: u.optimizer.set_learning_rate(0.02),
        lambda w, u: u.optimizer.set_lr_mult({"a_bias": 3.0}),
        lambda w, u: u.optimizer.lr_mult.update({"n_gamma": 2.0}),
        lambda w, u: setattr(u.optimizer, "wd", 0.3),
        lambda w, u: u.optimizer.set_wd_mult({3: 0.5}),
        exchange,
        new_state,
        lambda w, u: u(1, nd(torch.ones(8)), w[1]),
        lambda w, u: u.states.pop(3),
        lambda w, u: setattr(u.optimizer, "rescale_grad", 0.1),
        lambda w, u: setattr(u.optimizer, "clip_gradient", 0.1),
        lambda w, u: setattr(u.optimizer, "idx2name", {0: "z", 1: "y", 2: "x", 3: "w"}),
    ]
    for t, change in enumerate(changes):
        change(ours, update)
        change(theirs, twin)
        grads = draw(20 + t)
        update.update_all(list(NAMES), [nd(g) for g in grads], ours)
        for index in NAMES:
            twin(index, nd(grads[index]), theirs[index])
        for a, b in zip(ours, theirs):
            torch.testing.assert_close(a.tensor, b.tensor, rtol=1e-6, atol=1e-7)
    assert rules[0]._index_update_count == rules[1]._index_update_count


def test_an_own_update_is_called_one_by_one_with_float32_copies():
    seen = []

    class Mine(optimizer.SGD):
        def update(self, index, weight, grad, state):
            seen.append((index, weight.dtype, grad.dtype, state.dtype))
            super().update(index, weight, grad, state)

    update = optimizer.get_updater(Mine(learning_rate=0.5, momentum=0.9, multi_precision=True))
    w = [mx.nd.ones((2,), dtype="float16"), mx.nd.ones((3,))]
    update.update_all([0, 1], [mx.nd.ones((2,), dtype="float16"), mx.nd.ones((3,))], w)
    assert seen == [(index, *[np.float32] * 3) for index in (0, 1)]
    assert [one.asnumpy().tolist() for one in w] == [[0.5] * 2, [0.5] * 3]


def test_aggregating_optimizers_get_tuples_of_one_type():
    seen = []

    class Several(optimizer.Optimizer):
        def __init__(self):
            super().__init__(multi_precision=True)
            self.aggregate_num = 2

        def update_multi_precision(self, index, weight, grad, state):
            seen.append((index, {one.dtype for one in weight}))

    update = optimizer.get_updater(Several())
    w = [mx.nd.ones((2,), dtype="float16" if i == 1 else "float32") for i in range(4)]
    update(list(range(4)), w, w)
    assert seen == [((0, 2), {np.float32}), ((3,), {np.float32}), ((1,), {np.float16})]


def test_empty_parameters():
    update = optimizer.get_updater(optimizer.create("rmsprop", centered=True))
    w = [mx.nd.NDArray(torch.ones(0, 3), mx.cpu()), mx.nd.ones((2,))]
    update.update_all([0, 1], [nd(torch.ones(0, 3)), mx.nd.ones((2,))], w)
    assert w[0].shape == (0, 3)
    assert (w[1].asnumpy() < 1.0).all()


def test_many_choices_of_parameters():
    update = optimizer.get_updater(optimizer.create("sgd", learning_rate=1.0))
    weights = [mx.nd.zeros((1,))] * 70
    for i in range(70):
        update.update_all([i, 70], [mx.nd.ones((1,))] * 2, [weights[i], mx.nd.zeros((1,))])
    assert weights[0].asscalar() == -70


@pytest.mark.gpu
@walks(VARIANTS)
def test_gpu_equals_cpu(name, extra):
    here, there = updaters(name, extra, torch.float32)
    cpu = [nd(t.clone()) for t in draw(0)]
    gpu = [mx.nd.NDArray(t.clone().cuda(), mx.Context("gpu", 0)) for t in draw(0)]
    for t in range(4):
        grads = draw(1 + t)
        here.update_all(list(NAMES), [nd(g) for g in grads], cpu)
        there.update_all(list(NAMES), [mx.nd.NDArray(g.cuda(), mx.Context("gpu", 0)) for g in grads], gpu)
    for a, b in zip(cpu, gpu):
        torch.testing.assert_close(a.tensor, b.tensor.cpu(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "params", "refused"),
    [("sgd", {"momentum": 0.9}, "but this SGD keeps nothing"), ("adam", {}, "states of Adam, not of SGD")],
)
def test_shared_states_take_loaded_ones_and_refuse_others(name, params, refused):
    case = (name, params, False)
    mod, other = make_module(case), make_module(case)
    steps(other, range(3))
    mod.store.share_memory()
    mod.set_params(*other.get_params())
    mod.updates.active_updater().set_states(other.updates.active_updater().get_states(dump_optimizer=True))
    assert state_of(mod) == state_of(other)
    with Workers(1, case, mod.store) as workers:
        assert workers.ask(0, state_of) == state_of(mod)
        workers.ask(0, steps, [3])
        steps(other, [3])
        assert state_of(mod) == state_of(other)

    def plain(case, store):
        made = mx.mod.Module(store_workers.network())
        made.bind(*store_workers.SHAPES, store=store)
        made.init_optimizer(optimizer="sgd")

    with Workers(1, case, mod.store, plain) as workers, pytest.raises(StateError, match=refused):
        workers.ask(0, state_of)

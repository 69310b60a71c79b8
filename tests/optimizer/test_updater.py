"""The Updater: one by one and all at once, whatever the memory of the gradients."""

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule import optimizer
from dpmodule._core import torch_private
from dpmodule.base import StateError
from helpers import rules, store_workers
from helpers.store_workers import Workers, make_module, state_of, steps
from helpers.walk import walks

NAMES = {0: "a_weight", 1: "a_bias", 2: "c_weight", 3: "n_gamma"}
SHAPES = [(8, 6), (8,), (4, 3, 5, 5), (4,)]
VARIANTS = [
    *(variant for variant in rules.VARIANTS if variant[0] != "groupadagrad"),  # takes matrices only
    ("sgd", {"momentum": 0.9, "clip_gradient": 0.5}),
    ("adam", {"clip_gradient": 0.5}),
    ("rmsprop", {"centered": True, "clip_weights": 0.4}),
    ("ftrl", {"clip_gradient": 0.5}),
    ("lamb", {"clip_gradient": 0.5}),
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


@walks(
    [
        (name, extra, kind, dtype)
        for name, extra in VARIANTS
        for kind in ("plain", "transposed", "channels_last", "sliced", "expanded")
        for dtype in (torch.float32, torch.float64, torch.float16)
    ],
    family=lambda name, *_: name,
)
def test_all_at_once_equals_one_by_one_and_the_rule(name, extra, kind, dtype, functions):
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
    if name in (
        "test",
        "nadam",
    ):  # Nadam's schedule goes on with each parameter, which the rule does not know
        return
    rate = {0: 1.0, 1: 1.0, 2: 0.5, 3: 1.0}
    tolerance = 2e-3 if dtype == torch.float16 else 1e-5
    for index, weight in enumerate(draw(0, dtype)):
        bare = NAMES[index].endswith(("_bias", "_gamma") if name == "lars" else "_bias")
        rule = {**extra, "wd": 0.0 if bare else 0.01, "rescale_grad": 0.5, "skip": bare}
        grads = [batch[index].numpy() for batch in batches]
        want = rules.follow(name, weight.numpy(), grads, [0.05 * rate[index]] * 4, **rule)[-1]
        np.testing.assert_allclose(ours[index].asnumpy(), want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("sparse_weight", [False, True])
@pytest.mark.parametrize(("name", "extra"), VARIANTS)
def test_dense_gradients_beside_row_sparse_ones_equal_one_by_one(name, extra, sparse_weight):
    found = []
    for one_by_one in (False, True):
        mx.random.seed(3)
        update = updaters(name, extra, torch.float32)[0]
        weights = [nd(t.clone()) for t in draw(0)]
        if sparse_weight:
            weights[0] = weights[0].tostype("row_sparse")
        for step in range(3):
            grads = [nd(t) for t in draw(1 + step)]
            grads[0][2:5] = 0
            grads[0] = grads[0].tostype("row_sparse")
            if one_by_one:
                for index in NAMES:
                    update(index, grads[index], weights[index])
            else:
                update.update_all(list(NAMES), grads, weights)
        found.append([weight.asnumpy() for weight in weights])
    for together, alone in zip(*found):
        np.testing.assert_allclose(together, alone, rtol=1e-6, atol=1e-7)


def test_plan_follows_every_change():
    """Rates, multipliers, exchanged tensors and states, and counts that part, each between two batches."""
    made = optimizer.create("adam", learning_rate=0.1, param_idx2name=NAMES)
    update = optimizer.get_updater(made)
    twin_rule = optimizer.create("adam", learning_rate=0.1, param_idx2name=NAMES)
    twin = optimizer.get_updater(twin_rule)
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
    assert made._index_update_count == twin_rule._index_update_count


def test_devices_count_apart():
    """cpu(0) and cpu(1) are one device to torch, but two copies of a parameter, each with its own count."""
    made = optimizer.create("adam", learning_rate=0.1)
    update = optimizer.get_updater(made)
    a, b = mx.nd.ones((2,), ctx=mx.cpu(0)), mx.nd.ones((2,), ctx=mx.cpu(1))
    for _ in range(3):
        update.update_all([0], [mx.nd.ones((2,))], [a])
        update.update_all([1], [mx.nd.ones((2,), ctx=mx.cpu(1))], [b])
    np.testing.assert_array_equal(a.asnumpy(), b.asnumpy())
    assert made._all_index_update_counts == {0: {0: 3}, 1: {1: 3}}
    assert update.states[1][0].context == mx.cpu(1)


def test_lists_go_the_same_way():
    update = optimizer.get_updater(optimizer.create("sgd", learning_rate=1.0))
    w = [mx.nd.ones((2,)), mx.nd.ones((3,))]
    update([0, 1], [mx.nd.ones((2,)), mx.nd.ones((3,))], w)
    assert [one.asnumpy().tolist() for one in w] == [[0, 0], [0, 0, 0]]
    update([], [], [])
    made = optimizer.create("nag", learning_rate=0.5)
    made.update([0, 1], w, [mx.nd.ones((2,)), mx.nd.ones((3,))], [None, None])
    assert [one.asnumpy().tolist() for one in w] == [[-0.5, -0.5], [-0.5, -0.5, -0.5]]


def test_an_own_update_is_called_one_by_one():
    seen = []

    class Mine(optimizer.AdaGrad):
        def update(self, index, weight, grad, state):
            seen.append(index)
            super().update(index, weight, grad, state)

    update = optimizer.get_updater(Mine(learning_rate=0.1))
    w = [mx.nd.ones((2,)), mx.nd.ones((3,))]
    update.update_all([0, 1], [mx.nd.ones((2,)), mx.nd.ones((3,))], w)
    assert seen == [0, 1]
    np.testing.assert_allclose(w[1].asnumpy(), 0.9, rtol=1e-6)


def test_an_own_update_of_sgd_sees_the_float32_copy():
    class Mine(optimizer.SGD):
        def update(self, index, weight, grad, state):
            assert weight.dtype == grad.dtype == state.dtype == np.float32
            super().update(index, weight, grad, state)

    update = optimizer.get_updater(Mine(learning_rate=0.5, momentum=0.9, multi_precision=True))
    w = [mx.nd.ones((2,), dtype="float16")]
    update([0], [mx.nd.ones((2,), dtype="float16")], w)
    np.testing.assert_array_equal(w[0].asnumpy(), 0.5)


def test_an_own_rate_is_respected():
    class Slow(optimizer.SGD):
        def _get_lrs(self, indices):
            return [0.125 * index for index in indices]

    made = Slow(learning_rate=1.0)
    assert not made.is_grouped
    assert optimizer.SGD.is_grouped
    w = [mx.nd.zeros((1,)), mx.nd.zeros((1,))]
    optimizer.get_updater(made).update_all([1, 2], [mx.nd.ones((1,))] * 2, w)
    assert [one.asscalar() for one in w] == [-0.125, -0.25]
    assert made.num_update == 1


def test_aggregating_optimizers_get_lists_of_one_type():
    seen = []

    class Lists(optimizer.Optimizer):
        def __init__(self):
            super().__init__(multi_precision=True)
            self.aggregate_num = 2

        def update_multi_precision(self, index, weight, grad, state):
            seen.append((index, {one.dtype for one in weight}))

    update = optimizer.get_updater(Lists())
    w = [mx.nd.ones((2,), dtype="float16" if i == 1 else "float32") for i in range(4)]
    update(list(range(4)), w, w)
    assert seen == [([0, 2], {np.float32}), ([3], {np.float32}), ([1], {np.float16})]


def test_a_subclass_may_add_state():
    class Noted(optimizer.SGD):
        def create_state(self, index, weight):
            self.noted = index
            return super().create_state(index, weight)

    update = optimizer.get_updater(Noted(momentum=0.9))
    assert update.optimizer.is_grouped
    update.update_all([7], [mx.nd.ones((2,))], [mx.nd.ones((2,))])
    assert update.optimizer.noted == 7


def test_empty_parameters():
    update = optimizer.get_updater(optimizer.create("rmsprop", centered=True))
    w = [mx.nd.NDArray(torch.ones(0, 3), mx.cpu()), mx.nd.ones((2,))]
    update.update_all([0, 1], [nd(torch.ones(0, 3)), mx.nd.ones((2,))], w)
    assert w[0].shape == (0, 3)
    assert (w[1].asnumpy() < 1.0).all()


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


def test_many_choices_of_parameters():
    update, weights = (
        optimizer.get_updater(optimizer.create("sgd", learning_rate=1.0)),
        [mx.nd.zeros((1,))] * 70,
    )
    for i in range(70):
        update.update_all([i, 70], [mx.nd.ones((1,))] * 2, [weights[i], mx.nd.zeros((1,))])
    assert weights[0].asscalar() == -70


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

"""Modules of several processes on one parameter store, against the same updates in one process."""

import os
import pickle
import signal
import time
from functools import partial
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import dpmodule as mx
from dpmodule import native
from dpmodule.base import ArgumentError, ShapeError, StateError
from dpmodule.params import ParamStore
from helpers.processes import until
from helpers.small_fits import TWO, same
from helpers.store_workers import BATCH, INPUTS, SHAPES, Workers, make_module, network, state_of, step, steps

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forked")

SHARED = Path("/dev/shm")
FACTOR = partial(mx.lr_scheduler.FactorScheduler, step=3, factor=0.5, base_lr=0.2)
POLY = partial(mx.lr_scheduler.PolyScheduler, max_update=20, base_lr=0.2)
MULTI = partial(mx.lr_scheduler.MultiFactorScheduler, step=[2, 7], factor=0.1, base_lr=0.2)

CASES = {
    "sgd": ("sgd", {"learning_rate": 0.1}, False),
    "momentum": ("sgd", {"momentum": 0.9, "wd": 0.01, "lr_scheduler": FACTOR}, False),
    "momentum, lazy": ("sgd", {"momentum": 0.9, "wd": 0.01, "lr_scheduler": FACTOR}, True),
    "adam": ("adam", {"learning_rate": 0.2, "lr_scheduler": MULTI, "clip_gradient": 0.5}, False),
    "adam, lazy": ("adam", {"learning_rate": 0.2, "lr_scheduler": POLY}, True),
    "adagrad, lazy": ("adagrad", {"learning_rate": 0.1}, True),
    "dcasgd": ("dcasgd", {"learning_rate": 0.1, "momentum": 0.5}, False),
    "lbsgd": ("lbsgd", {"learning_rate": 0.2, "momentum": 0.5, "lr_scheduler": FACTOR}, False),
    "lars": ("lars", {"momentum": 0.9, "momentum_correction": False, "lr_scheduler": FACTOR}, False),
}


@pytest.fixture(autouse=True)
def nothing_left():
    def shared():
        return set(SHARED.iterdir()) if SHARED.is_dir() else set()

    before = shared()
    yield
    until(lambda: not shared() - before)  # those of tests in other processes go again


def shared_module(case, first=()):
    mod = make_module(case)
    steps(mod, first)
    mod.store.share_memory()
    return mod


def bound(store=None, net=None, rows=BATCH, mod=None, **options):
    mod = mod or mx.mod.Module(network() if net is None else net)
    mod.bind([("data", (rows, INPUTS))], [("softmax_label", (rows,))], store=store, **options)
    return mod


def alternate(case, mod, numbers=range(4), count=2, make=make_module, **options):
    """Let workers take the steps in turn; returns what each of them sees in the end."""
    with Workers(count, case, mod.store, make, **options) as workers:
        assert workers.all(attrgetter("params_initialized")) == [True] * count
        for number in numbers:
            workers.ask(number % count, step, number)
        return workers.all(state_of)


# --- the same numbers as in one process


def half_module(case, store=None):
    data = mx.sym.Cast(mx.sym.Variable("data"), dtype="float16")
    net = mx.sym.FullyConnected(data, num_hidden=2, name="out")
    mod = bound(store, mx.sym.SoftmaxOutput(net, name="softmax"))
    if store is None:
        mx.random.seed(5)
        mod.init_params(mx.init.Normal(0.01))
    assert mod.store.array("out_weight", 0).dtype == np.float16
    mod.init_optimizer(optimizer=case[0], optimizer_params=case[1])
    return mod


class Old(mx.optimizer.Optimizer):
    """An optimizer as programs for MXNet write it, which counts by itself."""

    def update(self, index, weight, grad, state):
        if index not in self._index_update_count:
            self._index_update_count[index] = self.begin_num_update
        self._index_update_count[index] += 1
        self.num_update = max(self._index_update_count[index], self.num_update)
        weight[:] -= 0.1 / self._index_update_count[index] * grad


HALF = ("sgd", {"momentum": 0.9, "multi_precision": True}, False)
LOCKSTEP = {
    **{name: (lambda case=case: case, make_module, {}) for name, case in CASES.items()},
    "half precision": (lambda: HALF, half_module, {}),
    "of MXNet": (lambda: (Old(rescale_grad=1 / BATCH), {}, False), make_module, {}),
    "two contexts": (lambda: CASES["momentum"], partial(make_module, contexts=TWO), {}),
    "buckets": (lambda: CASES["adam"], partial(make_module, kind=mx.mod.BucketingModule), {"count": 1}),
    "spawned": (lambda: CASES["adagrad, lazy"], make_module, {"count": 1, "method": "spawn"}),
}


@pytest.mark.parametrize("name", LOCKSTEP)
def test_workers_in_lockstep_equal_one_process_that_alternates(name):
    case, make, options = LOCKSTEP[name]
    one, other = make(case()), make(case())
    steps(one, range(9))
    steps(other, range(2))
    other.store.share_memory()
    found = alternate(case(), other, range(2, 9), make=make, **options)
    assert all(each == state_of(one) for each in (state_of(other), *found))
    step(one, 9)
    step(other, 9)  # the process that shared the store goes on as well
    assert state_of(one) == state_of(other)


def test_several_contexts_are_shared_each_by_itself():
    one = make_module(CASES["momentum"], contexts=TWO)
    one.init_optimizer("local", *CASES["sgd"][:2], force_init=True)
    with pytest.raises(StateError, match="runs inside KVStore.*kvstore=None, or after share_memory"):
        one.store.share_memory()
    store = ParamStore(TWO)
    other = bound(store, mod=mx.mod.Module(network(), context=TWO))
    store.share_memory()  # before there are values, or an optimizer
    other.set_params(*one.get_params(), force_init=True)
    other.init_optimizer("local", *CASES["sgd"][:2])
    steps(one, range(4))
    alternate(CASES["sgd"], other, make=partial(make_module, contexts=TWO, kvstore="local"))
    same(other, one, 1e-6)


# --- any order of calls


class Orders(RuleBasedStateMachine):
    """Modules on one store, here and in another process, against one module by itself that is told the same."""

    @initialize(name=st.sampled_from(["dcasgd", "adam, lazy", "adagrad, lazy"]), several=st.booleans())
    def begin(self, name, several):
        self.case = CASES[name]
        contexts = TWO if several else [mx.cpu()]
        self.make, self.store = partial(make_module, contexts=contexts), ParamStore(contexts)
        self.alone, self.mods = self.make(self.case), [self.make(self.case, self.store)]
        self.worker = self.saved = None
        self.step(0, 0)  # now there are states

    @rule(number=st.integers(0, 9), which=st.integers(0, 2))
    def step(self, number, which):
        steps(self.alone, [number])
        steps(self.mods[which % len(self.mods)], [number])

    @rule()
    def share(self):
        self.store.share_memory()

    @precondition(lambda self: len(self.mods) < 3)
    @rule()
    def bind_another(self):
        if self.store.is_shared:
            self.mods.append(self.make(self.case, self.store))
        else:
            other = bound(self.store, mod=mx.mod.Module(network(self.case[2]), context=self.store.contexts))
            other.borrow_optimizer(self.mods[0])
            self.mods.append(other)

    @rule(how=st.sampled_from(["force", "binded", "reshape", "rebind"]), which=st.integers(0, 2))
    def bind_again(self, how, which):
        mod = self.mods[which % len(self.mods)]
        if how == "reshape":
            mod.reshape([("data", (2, INPUTS))], [("softmax_label", (2,))])
            bound(mod=mod, for_training=False, force_rebind=True)
            how = "rebind"
        if how == "rebind":
            mod.rebind(None, None, *SHAPES)
        else:
            mod.binded = how != "binded"
            bound(mod=mod, force_rebind=how == "force")
        assert mod.for_training
        assert mod.store is self.store

    @rule(value=st.integers(1, 9), which=st.integers(0, 2))
    def set_values(self, value, which):
        values = {"out_bias": mx.nd.full((2,), value)}
        for mod in (self.alone, self.mods[which % len(self.mods)]):
            mod.set_params(values, {}, allow_missing=True)

    @rule(dump=st.booleans())
    def save(self, dump):
        self.saved = [mod.updates.active_updater().get_states(dump) for mod in (self.alone, self.mods[-1])]

    @precondition(lambda self: self.saved)
    @rule(which=st.integers(0, 2))
    def load(self, which):
        for mod, states in zip((self.alone, self.mods[which % len(self.mods)]), self.saved):
            mod.updates.active_updater().set_states(states)

    @precondition(lambda self: self.store.is_shared and not self.worker)
    @rule(inherits=st.booleans())
    def start_worker(self, inherits):
        make = (lambda case, store: self.mods[0]) if inherits else self.make
        self.worker = Workers(1, self.case, self.store, make)
        assert self.worker.ask(0, attrgetter("params_initialized"))

    @precondition(lambda self: self.worker)
    @rule(number=st.integers(0, 9), kill=st.booleans())
    def step_of_worker(self, number, kill):
        step(self.alone, number)
        self.worker.ask(0, step, number)
        assert self.worker.ask(0, state_of) == state_of(self.alone)
        if kill:
            self.end_worker()

    @rule()
    def copy(self):
        before, copied = state_of(self.alone), pickle.loads(pickle.dumps(self.store))
        assert not copied.is_shared
        assert (copied.array("out_bias", 0) == self.store.array("out_bias", 0)).asnumpy().all()
        step(self.make(self.case, copied), 5)
        assert state_of(self.mods[0]) == before

    @invariant()
    def all_agree(self):
        wanted = state_of(self.alone)
        for mod in self.mods:
            assert state_of(mod) == wanted

    def end_worker(self):
        os.kill(self.worker.processes[0].pid, signal.SIGKILL)
        self.worker.processes[0].join(10)
        self.worker.__exit__()
        self.worker = None

    def teardown(self):
        if getattr(self, "worker", None):
            self.end_worker()


FIXED = {"derandomize": True, "deadline": None, "database": None}
TestOrders = Orders.TestCase
TestOrders.settings = settings(max_examples=6, stateful_step_count=20, **FIXED)


@pytest.mark.slow
@pytest.mark.timeout(600)
class TestManyOrders(Orders.TestCase):
    settings = settings(max_examples=300, stateful_step_count=30, **FIXED)


# --- without lockstep


@pytest.mark.skipif(not native.available(), reason="only the extension counts atomically")
def test_no_update_goes_uncounted():
    mod = shared_module(CASES["adam"])
    with Workers(3, CASES["adam"], mod.store) as workers:
        workers.all(attrgetter("binded"))
        workers.all(steps, range(60))
        rates = {each["rate"] for each in workers.all(state_of)}
    found = state_of(mod)
    assert set(found["counts"].values()) == {found["num_update"]} == {180}
    assert rates == {found["rate"]}
    assert all(np.isfinite(array.asnumpy()).all() for array in mod.get_params()[0].values())


@pytest.mark.parametrize("kills", [4, pytest.param(200, marks=pytest.mark.slow)])
def test_kills_at_any_moment_leave_nothing(kills):
    case, rng = CASES["adam"], np.random.RandomState(kills)
    mod = shared_module(case)
    with Workers(1, case, mod.store) as neighbour:
        for number in range(kills):
            with Workers(1, case, mod.store) as workers:
                workers.send(0, steps, range(10**6))
                time.sleep(rng.uniform(0, 0.05))  # somewhere between its start and some steps
                os.kill(workers.processes[0].pid, signal.SIGKILL)
                workers.processes[0].join(10)
                workers.pipes.pop().close()
            neighbour.ask(0, step, number)
        step(mod, 0)
        assert neighbour.ask(0, state_of) == state_of(mod)
    assert state_of(mod)["num_update"] > kills
    assert all(np.isfinite(array.asnumpy()).all() for array in mod.get_params()[0].values())


# --- what is refused, and what a store keeps


def reinitialize(mod):
    mod.init_params(mx.init.Constant(7))  # a store that came from another process has values
    assert mod.get_params()[0]["out_bias"].asnumpy().tolist() == [4, 4]
    given = {"out_bias": mx.nd.full((2,), 7)}
    mod.init_params(mx.init.Constant(7), given, allow_missing=True, force_init=True)


def test_initial_values_go_into_an_empty_store_only():
    mod = shared_module(CASES["momentum"])
    mod.set_params({"out_bias": mx.nd.full((2,), 4)}, {}, allow_missing=True)
    with pytest.warns(UserWarning, match="are ignored"):
        mod.init_params(arg_params={"out_bias": mx.nd.zeros((2,))})
    with Workers(1, CASES["momentum"], mod.store) as workers:
        workers.ask(0, reinitialize)
    assert mod.get_params()[0]["out_bias"].asnumpy().tolist() == [7, 7]
    store = ParamStore([mx.cpu()])
    bound(store).init_params(mx.init.Constant(2))
    assert bound(store).params_initialized
    wider = bound(store, mx.sym.FullyConnected(network(), num_hidden=3, name="more"))
    assert not wider.params_initialized
    wider.init_params(mx.init.Constant(5))  # of what has no values yet
    found = wider.get_params()[0]
    assert [found[name].asnumpy().max() for name in ("out_weight", "more_weight")] == [2, 5]


def test_what_a_checkpoint_brought_goes_into_an_empty_store_only(tmp_path):
    def with_optimizer(mod):
        params = {"momentum": 0.9, "wd": 0.01, "lr_scheduler": FACTOR()}
        mod.init_optimizer(optimizer="sgd", optimizer_params=params)
        return mod

    prefix, mod = str(tmp_path / "saved"), make_module(CASES["momentum"])
    step(mod, 0)
    mod.save_checkpoint(prefix, 1, True)
    again = with_optimizer(bound(ParamStore([mx.cpu()]), mod=mx.mod.Module.load(prefix, 1, True)))
    steps(again, [1])
    steps(mod, [1])
    assert state_of(again)["states"] == state_of(mod)["states"]
    full = shared_module(CASES["momentum"])
    before, other = state_of(full), mx.mod.Module.load(prefix, 1, True)
    with pytest.warns(UserWarning, match="the store's parameters have values, so .* are ignored"):
        bound(full.store, mod=other)
    assert state_of(with_optimizer(other)) == before


def test_states_of_another_kind_are_refused():
    mod, other = shared_module(CASES["adam"], [0]), make_module(CASES["momentum"])
    step(other, 0)
    with pytest.raises(StateError, match=r"loaded state of parameter 0 is .*, but the shared state is"):
        mod.updates.active_updater().set_states(other.updates.active_updater().get_states())


@pytest.mark.parametrize("kind", [mx.mod.Module, mx.mod.BucketingModule])
def test_a_store_does_not_move_to_other_contexts(kind):
    mod = make_module(CASES["momentum"], kind=kind)
    mod.store.share_memory()
    before, store = state_of(mod), mod.store
    rows = mx.io.NDArrayIter(np.zeros((12, INPUTS)), np.zeros(12), BATCH)
    with pytest.raises(StateError, match=r"shared store on cpu\(0\) and cannot move to cpu\(0\), cpu\(1\)"):
        mod.fit(rows, num_epoch=1, contexts=TWO)
    assert state_of(mod) == before
    if kind is mx.mod.Module:
        mod.fit(rows, num_epoch=1, contexts=[mx.cpu(0)], workload=[2])
        assert state_of(mod)["num_update"] == 2
    assert mod.store is store


def test_other_states_in_the_place_of_shared_ones():
    case = CASES["momentum"]
    mod = shared_module(case, range(2))
    with Workers(1, case, mod.store) as workers:
        workers.ask(0, attrgetter("binded"))
        mod.init_optimizer(optimizer="adam", force_init=True)
        assert state_of(mod)["num_update"] == 0
        with pytest.raises(StateError, match="replaced by init_optimizer"):
            workers.ask(0, step, 3)
    alternate(("adam", {}, False), mod, [3], count=1)
    assert state_of(mod)["num_update"] == 1


class Strange(mx.optimizer.Optimizer):
    """Its states are no arrays."""

    def create_state(self, index, weight):
        return {"sum": mx.nd.zeros(weight.shape)}

    def update(self, index, weight, grad, state):
        self._update_count(index)


@pytest.mark.parametrize(
    ("name", "params", "text"),
    [
        ("nadam", {}, "cannot update a shared store: .*m_schedule"),
        ("lars", {"momentum": 0.9}, "cannot update a shared store: .*momentum_correction=True"),
        ("lbsgd", {"batch_scale": 2}, "cannot update a shared store: .*batch_scale=2"),
        (torch.optim.Adam, {"lr": 0.1}, "cannot update a shared store: .*torch keeps its states"),
        (Strange(), {}, "Strange .* its state of '.*' holds a dict"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:the optimizer was made outside Module")
def test_optimizers_that_cannot_be_shared_say_so(name, params, text):
    mod = make_module(CASES["sgd"])
    mod.init_optimizer(optimizer=name, optimizer_params=params, force_init=True)
    step(mod, 0)
    with pytest.raises(StateError, match=text):
        mod.store.share_memory()
    assert not mod.store.is_shared
    step(mod, 1)
    mod = shared_module(CASES["sgd"])
    with pytest.raises(StateError, match=text):
        mod.init_optimizer(optimizer=name, optimizer_params=params, force_init=True)
    step(mod, 0)  # by the optimizer it had


def refused(case, store):
    """Bind to a store as it is not meant to be, then as it is."""
    with pytest.raises(StateError, match=r"no 'more_weight' \(it has table_weight, .*would not be shared"):
        bound(store, mx.sym.FullyConnected(network(), num_hidden=3, name="more"))
    with pytest.raises(ArgumentError, match=r"store keeps parameters on cpu\(0\), the module is on cpu\(1\)"):
        bound(store, mod=mx.mod.Module(network(), context=mx.cpu(1)))
    kept = r"shared state of '.*' is an array .*, but this SGD keeps nothing"
    for name, text in (("adam", "has the states of SGD, not of Adam"), ("sgd", kept)):
        mod = bound(store)
        with pytest.raises(StateError, match=text):
            mod.init_optimizer(optimizer=name)
        assert not mod.optimizer_initialized
    return make_module(case, store)


def test_what_a_worker_may_not_do():
    mod = shared_module(CASES["momentum"])
    assert alternate(CASES["momentum"], mod, [], 1, refused) == [state_of(mod)]
    bare = bound()
    bare.store.share_memory()
    bare.init_params()
    words = r"without optimizer states.*call init_optimizer\(\) in that process"
    with pytest.raises(StateError, match=words):
        alternate(CASES["momentum"], bare, count=1)


def test_arguments_of_bind():
    mod = shared_module(CASES["sgd"])
    store, chain = mod.store, mx.mod.SequentialModule().add(mx.mod.Module(network()))
    wide = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="out")
    wide = mx.sym.SoftmaxOutput(wide, name="softmax")
    others, again = "does not accept store; Module and BucketingModule do", {"force_rebind": True}
    for call, kind, text in (
        (lambda: bound(mod), ArgumentError, "store is of type Module, expected a ParamStore"),
        (lambda: bound(store, shared_module=mod), ArgumentError, "store and shared_module both"),
        (lambda: bound(ParamStore([mx.cpu()]), mod=mod, **again), StateError, "cannot change to another"),
        (lambda: bound(store, mod=make_module(CASES["sgd"]), **again), StateError, "optimizer with its own"),
        (lambda: bound(store, wide), ShapeError, r"has shape .* this graph needs"),
        (lambda: bound(store, mod=chain), ArgumentError, others),
        (lambda: bound(store, mod=mx.mod.PythonLossModule()), ArgumentError, others),
    ):
        with pytest.raises(kind, match=text):
            call()
    bound(store, mod=mod, **again)  # it is there already
    assert mod.store is store


def test_two_optimizers_on_one_store_cannot_be_shared():
    first = make_module(CASES["sgd"])
    store, second = first.store, make_module(CASES["sgd"], first.store)
    with pytest.raises(StateError, match=r"2 optimizers update this store.*borrow_optimizer\(\)"):
        store.share_memory()
    second.borrow_optimizer(first)
    store.share_memory()
    step(first, 0)
    step(second, 1)
    assert state_of(first)["num_update"] == state_of(second)["num_update"] == 2

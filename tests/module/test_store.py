"""Modules of several processes on one parameter store, against the same updates in one process."""

import os
import pickle
import signal
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule import native
from dpmodule.base import ArgumentError, ShapeError, StateError
from dpmodule.params import ParamStore
from helpers.processes import until
from helpers.store_workers import BATCH, INPUTS, Workers, batch, make_module, network, state_of, step

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
    "adagrad": ("adagrad", {"lr_scheduler": POLY, "wd": 0.01}, False),
    "adagrad, lazy": ("adagrad", {"learning_rate": 0.1}, True),
    "ftrl": ("ftrl", {"learning_rate": 0.1}, False),
    "ftml": ("ftml", {"learning_rate": 0.1, "begin_num_update": 4}, False),
    "rmsprop": ("rmsprop", {"centered": True}, False),
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


def shared_module(case, steps=()):
    mod = make_module(case)
    for number in steps:
        step(mod, number)
    mod.store.share_memory()
    return mod


# --- the same numbers as in one process


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_workers_in_lockstep_equal_one_process_that_alternates(case):
    one, other = make_module(case), shared_module(case, range(2))
    for number in range(9):
        step(one, number)
    with Workers(2, case, other.store) as workers:
        assert workers.all("start") == [True, True]
        for number in range(2, 9):
            workers.ask(number % 2, "steps", [number])
        first, second = workers.all("state")
    assert state_of(one) == state_of(other) == first == second
    step(one, 9)
    step(other, 9)  # the process that shared the store goes on as well
    assert state_of(one) == state_of(other)


@pytest.mark.parametrize("kind", [mx.mod.Module, mx.mod.BucketingModule])
def test_one_worker_equals_a_plain_loop(kind):
    case = CASES["adam"]
    make = partial(bucketed_module, kind=kind)
    one, other = make(case), make(case)
    other.store.share_memory()
    for number in range(5):
        step_of(one, number)
    with Workers(1, case, other.store, make) as workers:
        workers.ask(0, "start")
        workers.ask(0, "call", steps_of, range(5))
        assert workers.ask(0, "state") == state_of(one) == state_of(other)


def bucketed_module(case, store=None, kind=mx.mod.BucketingModule):
    return make_module(case, store, kind)


def step_of(mod, number):
    data = batch(number)
    data.bucket_key = 1 + number % 2
    data.provide_data, data.provide_label = [("data", (BATCH, INPUTS))], [("softmax_label", (BATCH,))]
    mod.forward_backward(data)
    mod.update()


def steps_of(mod, numbers):
    for number in numbers:
        step_of(mod, number)


def test_half_precision_masters_are_shared():
    case = ("sgd", {"momentum": 0.9, "multi_precision": True}, False)
    one, other = half_module(case), half_module(case)
    other.store.share_memory()
    for number in range(4):
        step(one, number)
    with Workers(2, case, other.store, half_module) as workers:
        workers.all("start")
        for number in range(4):
            workers.ask(number % 2, "steps", [number])
    assert state_of(one) == state_of(other)


def half_module(case, store=None):
    data = mx.sym.Cast(mx.sym.Variable("data"), dtype="float16")
    net = mx.sym.FullyConnected(data, num_hidden=2, name="out")
    mod = mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"))
    mod.bind([("data", (BATCH, INPUTS))], [("softmax_label", (BATCH,))], store=store)
    if store is None:
        mx.random.seed(5)
        mod.init_params(mx.init.Normal(0.01))
    assert mod.store.array("out_weight", 0).dtype == np.float16
    mod.init_optimizer(optimizer=case[0], optimizer_params=case[1])
    return mod


def test_a_module_inherited_by_a_fork_trains_the_same_store():
    case = CASES["momentum"]
    one, other = make_module(case), shared_module(case)
    for number in range(4):
        step(one, number)
    with Workers(2, case, other.store, lambda case, store: other) as workers:
        workers.all("start")
        for number in range(4):
            workers.ask(number % 2, "steps", [number])
    assert state_of(one) == state_of(other)


def test_a_spawned_worker_trains_the_same_store():
    case = CASES["adagrad, lazy"]
    one, other = make_module(case), shared_module(case)
    for number in range(3):
        step(one, number)
    with Workers(1, case, other.store, method="spawn") as workers:
        workers.ask(0, "start")
        workers.ask(0, "steps", range(3))
        assert workers.ask(0, "state") == state_of(one) == state_of(other)


def test_the_optimizer_may_come_after_the_memory_was_shared():
    case = CASES["adam"]
    one, other = make_module(case), None
    other = mx.mod.Module(network())
    other.bind([("data", (BATCH, INPUTS))], [("softmax_label", (BATCH,))])
    other.store.share_memory()
    other.set_params(*one.get_params())
    other.init_optimizer(
        optimizer="adam",
        optimizer_params={"learning_rate": 0.2, "lr_scheduler": MULTI(), "clip_gradient": 0.5},
    )
    step(one, 0)
    with Workers(1, case, other.store) as workers:
        workers.ask(0, "start")
        workers.ask(0, "steps", [0])
    assert state_of(one) == state_of(other)


def test_gradients_are_each_process_s_own():
    case = CASES["sgd"]
    mod = shared_module(case)
    mod.forward_backward(batch(0))
    mine = mod.store.grad("out_weight", 0).asnumpy().tolist()
    with Workers(2, case, mod.store) as workers:
        workers.all("start")
        gradients = [workers.ask(number, "forward", number + 1) for number in range(2)]
        again = [workers.ask(number, "call", gradient_of) for number in range(2)]
    assert gradients == again
    assert mod.store.grad("out_weight", 0).asnumpy().tolist() == mine
    assert len({str(each) for each in (mine, *gradients)}) == 3


def gradient_of(mod):
    return mod.store.grad("out_weight", 0).asnumpy().tolist()


# --- without lockstep


@pytest.mark.skipif(not native.available(), reason="only the extension counts atomically")
def test_no_update_goes_uncounted():
    case = CASES["adam"]
    mod = shared_module(case)
    with Workers(3, case, mod.store) as workers:
        workers.all("start")
        assert workers.all("steps", range(60)) == [60] * 3
        rates = {workers.ask(number, "state")["rate"] for number in range(3)}
    found = state_of(mod)
    assert set(found["counts"].values()) == {found["num_update"]} == {180}
    assert rates == {found["rate"]}
    assert all(np.isfinite(array.asnumpy()).all() for array in mod.get_params()[0].values())


def test_a_killed_worker_leaves_nothing_and_another_takes_its_place():
    case = CASES["momentum"]
    mod = shared_module(case)
    with Workers(2, case, mod.store) as workers:
        workers.all("start")
        workers.send(0, "steps", range(10**6))
        workers.ask(1, "steps", range(5))
        os.kill(workers.processes[0].pid, signal.SIGKILL)
        workers.processes[0].join(10)
        workers.ask(1, "steps", range(5))
    before = state_of(mod)
    assert before["num_update"] >= 10
    with Workers(1, case, mod.store) as workers:
        workers.ask(0, "start")
        assert workers.ask(0, "state") == before
        workers.ask(0, "steps", [0])
        assert workers.ask(0, "state") == state_of(mod) != before


@pytest.mark.parametrize("kills", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_kills_at_any_moment_leave_nothing(kills):
    case = CASES["adam"]
    mod = shared_module(case)
    rng = np.random.RandomState(kills)
    for _ in range(kills):
        with Workers(1, case, mod.store) as workers:
            workers.send(0, "start")
            workers.send(0, "steps", range(10**6))
            time.sleep(rng.uniform(0, 0.05))  # somewhere between its start and some steps
            os.kill(workers.processes[0].pid, signal.SIGKILL)
            workers.processes[0].join(10)
            workers.pipes[0].close()
            workers.pipes.clear()
    step(mod, 0)
    assert all(np.isfinite(array.asnumpy()).all() for array in mod.get_params()[0].values())


# --- the life of a module on a shared store


def test_values_set_in_one_process_are_seen_in_all():
    case = CASES["momentum"]
    mod = shared_module(case)
    with Workers(1, case, mod.store) as workers:
        workers.ask(0, "start")
        workers.ask(0, "call", set_bias, 3)
        assert mod.get_params()[0]["out_bias"].asnumpy().tolist() == [3, 3]
        set_bias(mod, 4)
        assert workers.ask(0, "call", bias_of) == [4, 4]
        with pytest.warns(UserWarning, match="are ignored"):
            mod.init_params(arg_params={"out_bias": mx.nd.zeros((2,))})
        workers.ask(0, "call", reinitialize)
    assert bias_of(mod) == [7, 7]


def set_bias(mod, value):
    mod.set_params({"out_bias": mx.nd.full((2,), value)}, {}, allow_missing=True)


def bias_of(mod):
    return mod.get_params()[0]["out_bias"].asnumpy().tolist()


def reinitialize(mod):
    mod.init_params(mx.init.Constant(7))  # a store that came from another process has values
    assert bias_of(mod) == [4, 4]
    given = {"out_bias": mx.nd.full((2,), 7)}
    mod.init_params(mx.init.Constant(7), given, allow_missing=True, force_init=True)


@pytest.mark.parametrize("dump", [False, True])
def test_states_of_a_shared_run_are_saved_and_loaded(tmp_path, dump):
    case = CASES["adam"]
    path = str(tmp_path / "states")
    mod = shared_module(case)
    with Workers(2, case, mod.store) as workers:
        workers.all("start")
        for number in range(4):
            workers.ask(number % 2, "steps", [number])
        workers.ask(0, "call", save_states, path, dump)
        saved, values = state_of(mod), mod.get_params()
        workers.ask(1, "steps", range(3))
        assert state_of(mod)["states"] != saved["states"]
        workers.ask(1, "call", load_states, path)
        assert state_of(mod)["states"] == saved["states"]
        assert set(state_of(mod)["counts"].values()) == ({4} if dump else {7})
        alone = make_module(case)
        alone.set_params(*values)
        load_states(alone, path)
        assert state_of(alone)["states"] == saved["states"]
        for each in (alone, mod):
            each.set_params(*values)
            step(each, 9)
    if dump:
        assert state_of(alone)["states"] == state_of(mod)["states"]
    with pytest.raises(StateError, match=r"loaded state of parameter 0 is .*, but the shared state is"):
        mod.updates.active_updater().set_states(other_states())


def save_states(mod, path, dump):
    Path(path).write_bytes(mod.updates.active_updater().get_states(dump))


def load_states(mod, path):
    mod.load_optimizer_states(path)


def other_states():
    other = make_module(CASES["momentum"])
    step(other, 0)
    return other.updates.active_updater().get_states()


@pytest.mark.parametrize("shared", [False, True])
def test_binding_anew_stays_on_the_store(shared):
    case = CASES["momentum"]
    one, mod = make_module(case), make_module(case)
    if shared:
        mod.store.share_memory()
    else:
        mod = make_module(case, mod.store)
    store = mod.store
    for number in range(6):
        step(one, number)
        step(mod, number)
        if number == 1:
            bind(mod, BATCH, force_rebind=True)
        if number == 2:
            mod.binded = False
            bind(mod, BATCH)
        if number == 3:
            mod.reshape([("data", (2, INPUTS))], [("softmax_label", (2,))])
            bind(mod, BATCH, for_training=False, force_rebind=True)
        if number == 4:
            assert mod.for_training
        if number == 3:
            mod.rebind(None, None, [("data", (BATCH, INPUTS))], [("softmax_label", (BATCH,))])
        assert mod.store is store
    assert state_of(mod) == state_of(one)


def bind(mod, rows, **options):
    mod.bind([("data", (rows, INPUTS))], [("softmax_label", (rows,))], **options)


def test_binding_anew_keeps_the_optimizer_of_a_module_by_itself():
    case = CASES["adam"]
    one, mod = make_module(case), make_module(case)
    for number in range(4):
        step(one, number)
        step(mod, number)
        bind(mod, BATCH, force_rebind=True)
    assert state_of(mod) == state_of(one)


@pytest.mark.parametrize("kind", [mx.mod.Module, mx.mod.BucketingModule])
def test_a_store_does_not_move_to_other_contexts(kind):
    mod = make_module(CASES["momentum"], kind=kind)
    mod.store.share_memory()
    before, store = state_of(mod), mod.store
    rows = mx.io.NDArrayIter(np.zeros((12, INPUTS)), np.zeros(12), BATCH)
    with pytest.raises(StateError, match=r"shared store on cpu\(0\) and cannot move to cpu\(0\), cpu\(1\)"):
        mod.fit(rows, num_epoch=1, contexts=[mx.cpu(0), mx.cpu(1)])
    assert mod.store is store
    assert state_of(mod) == before
    if kind is mx.mod.Module:
        mod.fit(rows, num_epoch=1, contexts=[mx.cpu(0)], workload=[2])
        assert mod.store is store
        assert state_of(mod)["num_update"] == 2


def test_several_contexts_are_shared_each_by_itself():
    contexts = [mx.cpu(0), mx.cpu(1)]
    case = ("sgd", {"momentum": 0.9}, False)
    one, other = (on_contexts(case, contexts) for _ in range(2))
    with pytest.raises(StateError, match="runs inside KVStore.*kvstore=None, or after share_memory"):
        one.store.share_memory()
    store = ParamStore(contexts)
    other = mx.mod.Module(network(), context=contexts)
    bind(other, BATCH, store=store)
    store.share_memory()
    other.set_params(*one.get_params(), force_init=True)
    other.init_optimizer("local", *case[:2])
    for number in range(4):
        step(one, number)
    with Workers(2, case, store, partial(on_contexts, contexts=contexts)) as workers:
        workers.all("start")
        for number in range(4):
            workers.ask(number % 2, "steps", [number])
    args, aux = one.get_params()
    for found, wanted in zip(other.get_params(), (args, aux)):
        for name, value in wanted.items():
            np.testing.assert_allclose(found[name].asnumpy(), value.asnumpy(), rtol=1e-6, atol=1e-7)


def on_contexts(case, store=None, contexts=None):
    if isinstance(store, list):
        store, contexts = None, store
    mod = mx.mod.Module(network(), context=contexts)
    bind(mod, BATCH, store=store)
    if store is None:
        mx.random.seed(5)
        mod.init_params(mx.init.Normal(0.5))
    mod.init_optimizer("local", *case[:2])
    return mod


def test_an_empty_store_given_to_two_modules():
    store = ParamStore([mx.cpu()])
    one, other = mx.mod.Module(network()), mx.mod.Module(network())
    bind(one, BATCH, store=store)
    assert one.stage.name == "BOUND"
    one.init_params(mx.init.Constant(2))
    bind(other, BATCH, store=store)
    assert other.params_initialized
    assert other.store is one.store is store
    assert other.get_params()[0]["out_weight"].asnumpy().min() == 2
    wider = mx.mod.Module(mx.sym.FullyConnected(network(), num_hidden=3, name="more"))
    bind(wider, BATCH, store=store)
    assert not wider.params_initialized
    wider.init_params(mx.init.Constant(5))  # of what has no values yet
    assert {name: wider.get_params()[0][name].asnumpy().max() for name in ("out_weight", "more_weight")} == {
        "out_weight": 2,
        "more_weight": 5,
    }


def test_what_a_checkpoint_brought_goes_into_an_empty_store_only(tmp_path):
    prefix = str(tmp_path / "saved")
    mod = make_module(CASES["momentum"])
    step(mod, 0)
    mod.save_checkpoint(prefix, 1, True)
    empty, full = ParamStore([mx.cpu()]), make_module(CASES["momentum"]).store
    full.share_memory()
    again = mx.mod.Module.load(prefix, 1, True)
    bind(again, BATCH, store=empty)
    assert again.params_initialized
    step(again_ready(again), 1)
    step(mod, 1)
    assert state_of(again)["states"] == state_of(mod)["states"]
    values = {name: full.array(name, 0).asnumpy().tobytes() for name in full.names()}
    other = mx.mod.Module.load(prefix, 1, True)
    with pytest.warns(UserWarning, match="the store's parameters have values, so .* are ignored"):
        bind(other, BATCH, store=full)
    assert values == {
        name: array.asnumpy().tobytes() for name, array in again_ready(other).get_params()[0].items()
    }
    assert not any(np.frombuffer(each, "f").any() for each in state_of(other)["states"].values())


def again_ready(mod):
    mod.init_optimizer(
        optimizer="sgd", optimizer_params={"momentum": 0.9, "wd": 0.01, "lr_scheduler": FACTOR()}
    )
    return mod


def test_other_states_in_the_place_of_shared_ones():
    case = CASES["momentum"]
    mod = shared_module(case, range(2))
    with Workers(1, case, mod.store) as workers:
        workers.ask(0, "start")
        mod.init_optimizer(optimizer="adam", force_init=True)
        assert state_of(mod)["num_update"] == 0
        with pytest.raises(StateError, match="replaced by init_optimizer"):
            workers.ask(0, "steps", [3])
    with Workers(1, ("adam", {}, False), mod.store) as workers:
        workers.ask(0, "start")
        workers.ask(0, "steps", [3])
    assert state_of(mod)["num_update"] == 1


# --- what cannot be


@pytest.mark.parametrize(
    ("case", "text"),
    [
        (("nadam", {}, False), "m_schedule"),
        (("lars", {"momentum": 0.9}, False), "momentum_correction=True"),
        (("lbsgd", {"batch_scale": 2}, False), "batch_scale=2"),
        ((torch.optim.Adam, {"lr": 0.1}, False), "torch keeps its states"),
    ],
)
def test_optimizers_that_cannot_be_shared_say_so(case, text):
    name, params, _ = case
    mod = make_module(("sgd", {}, False))
    mod.init_optimizer(optimizer=name, optimizer_params=params, force_init=True)
    step(mod, 0)
    with pytest.raises(StateError, match=f"cannot update a shared store: .*{text}"):
        mod.store.share_memory()
    assert not mod.store.is_shared
    step(mod, 1)
    mod = shared_module(CASES["sgd"])
    with pytest.raises(StateError, match=text):
        mod.init_optimizer(optimizer=name, optimizer_params=params, force_init=True)
    step(mod, 0)  # by the optimizer it had


def test_a_state_that_is_no_array_cannot_be_shared():
    class Strange(mx.optimizer.Optimizer):
        def create_state(self, index, weight):
            return {"sum": mx.nd.zeros(weight.shape)}

        def update(self, index, weight, grad, state):
            self._update_count(index)

    mod = make_module((Strange(rescale_grad=1 / BATCH), {}, False))
    with pytest.raises(StateError, match="Strange .* its state of 'table_weight' holds a dict"):
        mod.store.share_memory()
    assert not mod.store.is_shared


def test_an_optimizer_written_for_mxnet_counts_together():
    class Old(mx.optimizer.Optimizer):
        def update(self, index, weight, grad, state):
            if index not in self._index_update_count:
                self._index_update_count[index] = self.begin_num_update
            self._index_update_count[index] += 1
            self.num_update = max(self._index_update_count[index], self.num_update)
            weight[:] -= 0.1 / self._index_update_count[index] * grad

    case = (Old(rescale_grad=1 / BATCH), {}, False)
    other = (Old(rescale_grad=1 / BATCH), {}, False)
    one, mod = make_module(case), shared_module(other)
    for number in range(4):
        step(one, number)
    with Workers(2, (Old(rescale_grad=1 / BATCH), {}, False), mod.store) as workers:
        workers.all("start")
        for number in range(4):
            workers.ask(number % 2, "steps", [number])
    assert state_of(one) == state_of(mod)


def test_what_a_worker_may_not_do():
    case = CASES["momentum"]
    mod = shared_module(case)
    with Workers(1, case, mod.store, refused) as workers:
        workers.ask(0, "start")
        assert workers.ask(0, "state") == state_of(mod)
    bare = mx.mod.Module(network())
    bind(bare, BATCH)
    bare.store.share_memory()
    bare.init_params()
    with (
        Workers(1, case, bare.store) as workers,
        pytest.raises(StateError, match=r"without optimizer states.*call init_optimizer\(\) in that process"),
    ):
        workers.ask(0, "start")


def refused(case, store):
    """Bind to a store as it is not meant to be, then as it is."""
    with pytest.raises(StateError, match=r"no 'more_weight' \(it has table_weight, .*would not be shared"):
        bind(mx.mod.Module(mx.sym.FullyConnected(network(), num_hidden=3, name="more")), BATCH, store=store)
    with pytest.raises(ArgumentError, match=r"store keeps parameters on cpu\(0\), the module is on cpu\(1\)"):
        bind(mx.mod.Module(network(), context=mx.cpu(1)), BATCH, store=store)
    for name, params, text in (
        ("adam", {}, "has the states of SGD, not of Adam"),
        ("sgd", {}, r"shared state of '.*' is an array .*, but this SGD keeps nothing"),
    ):
        mod = mx.mod.Module(network())
        bind(mod, BATCH, store=store)
        with pytest.raises(StateError, match=text):
            mod.init_optimizer(optimizer=name, optimizer_params=params)
        assert not mod.optimizer_initialized
    return make_module(case, store)


def test_arguments_of_bind():
    mod = shared_module(CASES["sgd"])
    store = mod.store
    with pytest.raises(ArgumentError, match="store is of type Module, expected a ParamStore"):
        bind(mx.mod.Module(network()), BATCH, store=mod)
    with pytest.raises(ArgumentError, match="store and shared_module both"):
        bind(mx.mod.Module(network()), BATCH, store=store, shared_module=mod)
    with pytest.raises(StateError, match="cannot change to another"):
        bind(mod, BATCH, store=ParamStore([mx.cpu()]), force_rebind=True)
    with pytest.raises(StateError, match="has an optimizer with its own states"):
        bind(make_module(CASES["sgd"]), BATCH, store=store, force_rebind=True)
    wide = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="out")
    with pytest.raises(ShapeError, match=r"out_bias has shape \(2,\), this graph needs \(3,\)|out_weight"):
        bind(mx.mod.Module(mx.sym.SoftmaxOutput(wide, name="softmax")), BATCH, store=store)
    chain = mx.mod.SequentialModule()
    chain.add(mx.mod.Module(network()))
    for each in (chain, mx.mod.PythonLossModule()):
        with pytest.raises(ArgumentError, match="does not accept store; Module and BucketingModule do"):
            bind(each, BATCH, store=store)
    bind(mod, BATCH, store=store, force_rebind=True)  # it is there already
    assert mod.store is store


def test_two_optimizers_on_one_store_cannot_be_shared():
    store = ParamStore([mx.cpu()])
    first = mx.mod.Module(network())
    bind(first, BATCH, store=store)
    first.init_params()
    first.init_optimizer()
    second = make_module(CASES["sgd"], store)
    with pytest.raises(StateError, match=r"2 optimizers update this store.*borrow_optimizer\(\)"):
        store.share_memory()
    second.borrow_optimizer(first)
    store.share_memory()
    step(first, 0)
    step(second, 1)
    assert state_of(first)["num_update"] == state_of(second)["num_update"] == 2


def test_copies_of_a_shared_store_and_its_updater_are_by_themselves():
    mod = shared_module(CASES["adam"], range(2))
    before = state_of(mod)
    other = pickle.loads(pickle.dumps(mod.updates.active_updater()))
    assert dict(other.optimizer._index_update_count) == before["counts"]
    other.optimizer.advance([0])
    store = pickle.loads(pickle.dumps(mod.store))
    pickle.loads(pickle.dumps(store)).share_memory()
    alone = make_module(CASES["adam"], store)
    step(alone, 5)
    assert state_of(mod) == before
    assert state_of(alone)["num_update"] == 1

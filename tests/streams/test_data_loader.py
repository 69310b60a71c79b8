"""`DataLoader`: batches, order, seeds and errors are those of torch; lifetime, faults and positions."""

import contextlib
import gc
import inspect
import os
import pickle
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from dpmodule import streams
from dpmodule.base import ArgumentError
from dpmodule.streams import WorkerDied, WorkerStuck
from helpers import loader_cases as cases
from helpers.both_backends import descriptors, in_native, resident_bytes
from helpers.loader_cases import (
    Cached,
    Counting,
    Cursors,
    CustomError,
    Failing,
    Growing,
    Numbers,
    SizedStream,
    Sleepy,
    Stream,
    Structures,
    failing_collate,
    failing_init,
    first_of,
    plain,
    run,
    same,
    seeded,
)
from helpers.processes import SOON_S, await_gone, resources, running, until

pytestmark = pytest.mark.filterwarnings(
    "ignore:This DataLoader will create", "ignore:Length of IterableDataset", "ignore:Sparse invariant checks"
)

Ours, Torch = streams.DataLoader, torch.utils.data.DataLoader


def weighted(dataset, generator):
    return WeightedRandomSampler([1.0, 2.0] * 8, 12, generator=generator)


def subset(dataset, generator):
    return SubsetRandomSampler(range(3, 15), generator=generator)


def batches(dataset, generator):
    return BatchSampler(RandomSampler(dataset, replacement=True, generator=generator), 5, True)


def lists(dataset, generator):
    return [[1, 2], [3], [4, 5, 6]]


OPTIONS = {
    "plain": {},
    "batches": {"batch_size": 4},
    "drop_last": {"batch_size": 4, "drop_last": True},
    "shuffle": {"batch_size": 3, "shuffle": True},
    "no batches": {"batch_size": None},
    "no batches, shuffled": {"batch_size": None, "shuffle": True},
    "sampler": {"batch_size": 5, "sampler": subset},
    "weights": {"batch_size": 2, "sampler": weighted},
    "batch_sampler": {"batch_sampler": batches},
    "lists": {"batch_sampler": lists},
    "same": {"batch_size": 4, "collate_fn": same},
    "first": {"batch_size": 4, "collate_fn": first_of},
    "init": {"batch_size": 4, "worker_init_fn": seeded},
    "failing init": {"batch_size": 4, "worker_init_fn": failing_init},
    "failing collate": {"batch_size": 4, "collate_fn": failing_collate},
    "prefetch": {"batch_size": 2, "prefetch_factor": 5, "shuffle": True},
    "little prefetch": {"batch_size": 2, "prefetch_factor": 1},
    "persistent": {"batch_size": 4, "persistent_workers": True, "epochs": 3, "shuffle": True},
    "epochs": {"batch_size": 4, "epochs": 3, "shuffle": True},
    "timeout": {"batch_size": 4, "timeout": 30},
    "pinned": {"batch_size": 4, "pin_memory": True},
}


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("options", list(OPTIONS.values()), ids=list(OPTIONS))
@pytest.mark.filterwarnings("ignore:'pin_memory' argument")
def test_batches_are_those_of_torch(options, workers):
    with_workers = {"num_workers": workers, **options}
    assert run(Ours, Numbers(), **with_workers) == run(Torch, Numbers(), **with_workers)


@pytest.mark.parametrize(
    "name", ["plain", "shuffle", "no batches", "batch_sampler", "first", "failing collate", "epochs"]
)
def test_without_workers(name):
    assert run(Ours, Numbers(), **OPTIONS[name]) == run(Torch, Numbers(), **OPTIONS[name])


STREAMS = {
    "plain": (Stream(), {}),
    "batches": (Stream(), {"batch_size": 4}),
    "drop_last": (Stream(), {"batch_size": 3, "drop_last": True}),
    "no batches": (Stream(), {"batch_size": None}),
    "short": (Stream(1), {"batch_size": 2}),
    "nothing": (Stream(0), {"batch_size": 2}),
    "sized": (SizedStream(20, 10), {"batch_size": 4}),
    "fails": (Stream(20, fails_at=7), {"batch_size": 2}),
    "persistent": (Stream(), {"batch_size": 4, "persistent_workers": True, "epochs": 3}),
}


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("name", list(STREAMS))
def test_iterable_datasets(name, workers):
    dataset, options = STREAMS[name]
    options = {**options, "num_workers": workers}
    assert run(Ours, dataset, **options) == run(Torch, dataset, **options)


ERRORS = [
    ValueError("bad example"),
    KeyError("name"),
    CustomError("one", "two"),
    StopIteration("over"),
    OSError(5, "no disk"),
    RuntimeError("a\nb"),
    UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"),
]


@pytest.mark.parametrize("error", ERRORS, ids=[type(each).__name__ for each in ERRORS])
def test_errors_of_a_dataset(error):
    options = {"num_workers": 2, "batch_size": 2, "multiprocessing_context": "fork"}
    ours = run(Ours, Failing(error), **options)
    assert isinstance(error, StopIteration) or ours[1] is not None
    assert ours == run(Torch, Failing(error), **options)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_start_methods(method):
    options = {"num_workers": 2, "batch_size": 4, "shuffle": True, "multiprocessing_context": method}
    assert run(Ours, Numbers(), **options) == run(Torch, Numbers(), **options)


def test_any_order():
    loader = Ours(Numbers(), batch_size=2, num_workers=3, in_order=False)
    assert sorted(x for batch in loader for x in batch["index"].tolist()) == list(range(17))


WRONG = [
    {"num_workers": -1},
    {"num_workers": 1, "timeout": -1},
    {"prefetch_factor": 2},
    {"persistent_workers": True},
    {"num_workers": 1, "multiprocessing_context": "thread"},
    {"num_workers": 1, "multiprocessing_context": 3},
    {"multiprocessing_context": "spawn"},
    {"batch_size": None, "drop_last": True},
    {"shuffle": True, "sampler": [1]},
]


@pytest.mark.parametrize("options", WRONG, ids=[", ".join(each) for each in WRONG])
def test_wrong_arguments(options):
    texts = []
    for kind in (Ours, Torch):
        with pytest.raises((ValueError, TypeError)) as raised:
            kind(Numbers(), **options)
        texts.append((type(raised.value), str(raised.value)))
    assert texts[0] == texts[1]


@pytest.mark.parametrize("name", list(cases.STRUCTURES))
def test_structures(name):
    index = list(cases.STRUCTURES).index(name)
    options = {"num_workers": 1, "batch_size": None, "sampler": [index, index], "collate_fn": same}
    (first, second) = Ours(Structures(), **options)
    expected = cases.STRUCTURES[name]()
    assert type(first) is type(expected)
    assert plain(first) == plain(second)
    if name not in ("conjugate", "arrays", "empty", "read-only"):  # NumPy's arrays become contiguous
        assert plain(first) == plain(expected)
    if name != "conjugate":  # torch loses the sign
        assert [plain(first), plain(second)] == [plain(each) for each in Torch(Structures(), **options)]


@in_native
def test_quantized_tensors():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = torch.quantize_per_tensor(torch.arange(4.0), 0.5, 1, torch.qint8)
        # torch does not hand quantized tensors to workers that are not forked
        (found,) = Ours([x], num_workers=1, batch_size=None, collate_fn=same, multiprocessing_context="fork")
    assert found.is_quantized
    assert found.q_scale() == 0.5
    assert found.dequantize().tolist() == [0, 1, 2, 3]


def test_sharing_within_a_batch():
    options = {"num_workers": 1, "batch_size": None, "collate_fn": same}
    names = list(cases.STRUCTURES)
    small, large = Ours(Structures(), sampler=[names.index("views"), names.index("large")], **options)
    assert small["same"] is small["base"]
    small["base"][1, 2] = -7.0
    assert small["row"][2] == small["column"][1] == small["flat"][8] == -7.0
    assert small["row"].untyped_storage().data_ptr() == small["base"].untyped_storage().data_ptr()
    large[1][0] = -1
    assert large[0][10] == large[2][10, 0] == -1
    assert large[3].min() == 1


def test_what_cannot_be_sent_is_an_error():
    class Local:
        pass

    options = {"num_workers": 1, "batch_size": None, "collate_fn": same, "multiprocessing_context": "fork"}
    with pytest.raises(Exception, match="Caught .* in DataLoader worker process 0(?s:.*)Local"):
        next(iter(Ours([Local()], **options)))
    x = torch.ones(2, requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="non-leaf tensor which requires_grad"):
        next(iter(Ours([x], **options)))


# --- lifetime


def test_batches_stay_valid():
    loader = Ours(
        TensorDataset(torch.arange(200.0).repeat(3000, 1).T.contiguous()), num_workers=2, batch_size=2
    )
    kept = [batch for (batch,) in loader]
    assert len(kept) == 100
    for number, batch in enumerate(kept):
        assert batch.shape == (2, 3000)
        assert (batch[0] == 2 * number).all()
        assert (batch[1] == 2 * number + 1).all()
    one = kept[7][1]
    del kept, loader, batch
    gc.collect()
    assert (one == 15).all()


@in_native
def test_writing_reaches_no_other_process():
    for index, x, seen in Ours(Cached(), num_workers=1, batch_size=None, collate_fn=same):
        assert seen == [index + 1.0, 0, 0, 0, 0] == x[:5].tolist()
        x.fill_(99.0)


@in_native
def test_memory_grows_by_need_and_shrinks():
    loader = Ours(Sleepy(quick=1000, size=100_000), num_workers=1, batch_size=None, persistent_workers=True)

    def mapped():
        gc.collect()
        with open("/proc/self/maps") as file:
            return sum("dpmodule-pipe" in line for line in file)

    iterator = iter(loader)
    kept = [next(iterator) for _ in range(60)]
    assert 10 < mapped() <= 24  # further batches are copies
    assert [int(each[-1]) for each in kept] == list(range(60))
    del kept
    for _ in range(10):
        next(iterator)
    assert mapped() <= 8


@in_native
def test_descriptors_do_not_depend_on_the_batches():
    batch = [torch.ones(500, 20) for _ in range(100)]
    gc.collect()
    before = descriptors()
    options = {"num_workers": 2, "batch_size": None, "collate_fn": same, "multiprocessing_context": "fork"}
    iterator = iter(Ours([batch] * 60, **options))
    kept = [next(iterator) for _ in range(3)]
    few = descriptors()
    kept += [next(iterator) for _ in range(40)]
    assert descriptors() == few <= before + 20
    del iterator
    gc.collect()
    until(lambda: descriptors() == before)  # threads close the queues of indices
    assert len(kept) == 43
    assert kept[-1][99].sum() == 10_000


# --- faults


def begun(**options):
    """Return an iterator that waits for a slow batch."""
    iterator = iter(Ours(Sleepy(), num_workers=2, **options))
    assert [int(next(iterator)) for _ in range(4)] == [0, 1, 2, 3]
    return iterator


# torch's handler of SIGCHLD also raises inside a callback of the garbage collector, where the error is lost
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("in_thread", [False, True])
def test_a_killed_worker_is_named(in_thread):
    iterator = begun()
    pid = iterator._workers[1].pid
    seen = []

    def wait():
        try:
            next(iterator)
        except BaseException as error:
            seen.append(error)

    waiting = threading.Thread(target=wait)
    kill = threading.Timer(0.2, os.kill, (pid, signal.SIGKILL))
    kill.start()
    if in_thread:
        waiting.start()
        with contextlib.suppress(RuntimeError):  # torch's handler of SIGCHLD raises in the main thread
            waiting.join(SOON_S)
        until(lambda: seen)
    else:
        wait()
    kill.join()
    (error,) = seen
    assert isinstance(error, RuntimeError)
    assert f"{pid}) exited unexpectedly" in str(error)
    assert isinstance(error.__cause__, WorkerDied)
    assert "worker 1 " in str(error.__cause__)
    assert "SIGKILL before it sent batch 5" in str(error.__cause__)
    assert (error.__cause__.index, error.__cause__.exitcode) == (1, -9)


@in_native
def test_a_stopped_worker_hangs_nothing():
    iterator = iter(Ours(Sleepy(), num_workers=1, timeout=1))
    next(iterator)
    worker = iterator._workers[0]
    os.kill(worker.pid, signal.SIGSTOP)
    with pytest.raises(RuntimeError, match="timed out after 1 seconds") as caught:
        list(iterator)
    assert isinstance(caught.value.__cause__, WorkerStuck)
    assert str(caught.value.__cause__).endswith("stopped by a signal")
    del caught
    begin = time.monotonic()
    del iterator
    gc.collect()
    assert not worker.is_alive()
    assert time.monotonic() - begin < SOON_S


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_slow_worker_shows_its_stack(method):
    iterator = iter(Ours(Sleepy(), num_workers=2, timeout=15, multiprocessing_context=method))
    assert int(next(iterator)) == 0
    iterator._timeout = 0.5
    with pytest.raises(RuntimeError, match="timed out after 0.5 seconds") as caught:
        list(iterator)
    text = "worker 0 (?s:.*) has not sent batch 4(?s:.*)loader_cases.py(?s:.*) in __getitem__"
    assert re.search(text, str(caught.value.__cause__))


@pytest.fixture
def pinning(monkeypatch):
    """Lets torch start its thread for pinned memory, which leaves numbers alone."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cpu"))
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 0)
    monkeypatch.setattr(torch.accelerator, "set_device_index", lambda index: None)


@pytest.mark.parametrize("persistent", [False, True])
def test_a_thread_for_pinned_memory(pinning, persistent):
    options = {"batch_size": None, "num_workers": 2, "pin_memory": True, "persistent_workers": persistent}
    loader = Ours(range(20), **options)
    for _ in range(2):
        assert list(loader) == list(range(20))
    iterator = iter(loader)
    assert [next(iterator) for _ in range(3)] == [0, 1, 2]
    workers = iterator._workers
    iterator._shutdown_workers()
    assert [each.exitcode for each in workers] == [0, 0]
    iterator = iter(Ours(Sleepy(), **options, collate_fn=int))
    assert [next(iterator) for _ in range(4)] == [0, 1, 2, 3]
    os.kill(iterator._workers[1].pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="exited unexpectedly|killed by signal"):
        next(iterator)


def test_an_early_end_and_several_iterators():
    loader = Ours(Numbers(100), num_workers=2, batch_size=2)
    iterator = iter(loader)
    next(iterator)
    workers = iterator._workers
    other = iter(loader)
    assert next(other)["index"].tolist() == [0, 1]
    assert next(iterator)["index"].tolist() == [2, 3]
    del iterator
    gc.collect()
    assert not any(each.is_alive() for each in workers)
    assert next(other)["index"].tolist() == [2, 3]
    assert [batch["index"][0] for batch in loader][-1] == 98


PROGRAM = """
import os, sys, torch
from dpmodule.streams import DataLoader
from helpers.loader_cases import Sleepy

iterator = iter(DataLoader(Sleepy(seconds=0.05, size=50_000), num_workers=2, batch_size=1))
print(*[each.pid for each in iterator._workers], flush=True)
next(iterator)
print("loading", flush=True)
for _ in iterator:
    pass
"""


SLOW_START = "import os, time; os.register_at_fork(after_in_child=lambda: time.sleep(1))"


def started(first=""):
    """Run a line and a program that reads slow batches; returns it and its workers."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(cases.__file__)))
    program = subprocess.Popen(
        [sys.executable, "-c", first + PROGRAM],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": folder},
    )
    return program, [int(each) for each in program.stdout.readline().split()]


def test_workers_end_with_the_trainer():
    program, pids = started()
    assert len(pids) == 2
    assert all(map(running, pids))
    program.kill()
    await_gone(pids)
    program.communicate()


@pytest.mark.parametrize("workers", ["loading", "starting"])
def test_an_interruption_is_quiet(workers):
    program, pids = started(SLOW_START if workers == "starting" else "")
    if workers == "loading":
        assert program.stdout.readline() == "loading\n"
    os.killpg(program.pid, signal.SIGINT)
    _, text = program.communicate(timeout=60)
    await_gone(pids)
    assert text.count("Traceback") == 1
    assert "Process" not in text
    assert text.strip().endswith("KeyboardInterrupt")


def test_a_fork_after_parallel_work():
    text = textwrap.dedent("""
        import torch
        from dpmodule.streams import DataLoader
        from torch.utils.data import TensorDataset

        torch.set_num_threads(2)
        x = torch.rand(500, 500)
        (x @ x).exp().sum()
        data = TensorDataset(torch.arange(400_000.0).view(4, -1))
        print([batch[0].sum().item() > 0 for batch in DataLoader(data, num_workers=2, batch_size=2)])
    """)
    found = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=100)
    assert found.stdout == "[True, True]\n", found.stderr


def test_a_forked_copy_disturbs_nothing():
    iterator = iter(Ours(TensorDataset(torch.ones(40, 30_000)), num_workers=1))
    (kept,) = next(iterator)
    pid = os.fork()
    if not pid:
        del kept, iterator
        gc.collect()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert len(list(iterator)) == 39
    assert kept.sum() == 30_000


# --- other users of loaders


def indices(loader):
    return [batch["index"].tolist() for batch in loader]


def loader_of(workers):
    return Ours(Numbers(), batch_size=4, num_workers=workers)


def test_it_is_torchs_class():
    loader = Ours(Numbers(), batch_size=4, shuffle=True)
    assert isinstance(loader, Torch)
    assert len(loader) == 5
    assert inspect.signature(type(loader).__init__) == inspect.signature(Torch.__init__)
    names = list(inspect.signature(type(loader).__init__).parameters)[1:]
    given = {name: getattr(loader, name) for name in names if hasattr(loader, name)}
    given = {**given, "batch_size": 1, "shuffle": None, "sampler": None, "drop_last": False}
    again = type(loader)(**given)  # as libraries that wrap loaders do
    assert type(again) is Ours
    assert len(again) == 5
    assert Ours[torch.Tensor] is not None
    made = Ours.from_torch(Torch(Numbers(), batch_size=4, num_workers=1, persistent_workers=True))
    assert type(made) is Ours
    assert [indices(made), indices(made)] == [indices(loader_of(0))] * 2
    assert len(pickle.loads(pickle.dumps(Ours(Numbers(), batch_size=4)))) == 5


# --- positions


@pytest.mark.parametrize("has_begun", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_the_beginning_of_an_epoch_is_restored(workers, has_begun):
    def make(seed):
        torch.manual_seed(seed)
        return Ours(Numbers(), batch_size=2, shuffle=True, num_workers=workers)

    loader = make(1)
    state = None if has_begun else loader.state_dict()
    iterator = iter(loader)
    state, order = state or loader.state_dict(), indices(iterator)
    again = make(2)
    again.load_state_dict(state)
    assert indices(again) == order


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("has_generator", [False, True])
def test_a_position_is_restored(workers, has_generator):
    def make(seed):
        generator = torch.Generator().manual_seed(seed) if has_generator else None
        return Ours(Numbers(), batch_size=2, shuffle=True, num_workers=workers, generator=generator)

    torch.manual_seed(5)
    loader = make(1)
    first = indices(loader)
    iterator = iter(loader)
    seen = [next(iterator)["index"].tolist() for _ in range(4)]
    state = pickle.loads(pickle.dumps(loader.state_dict()))
    rest = indices(iterator)
    third = indices(loader)
    assert sorted(sum(seen + rest, [])) == list(range(17))
    assert first != seen + rest != third

    torch.manual_seed(99)
    again = make(7)
    again.load_state_dict(state)
    before = torch.get_rng_state()
    iterator = iter(again)
    assert torch.equal(torch.get_rng_state(), before)
    assert next(iterator)["index"].tolist() == rest[0]
    assert again.state_dict()["yielded"] == 5
    assert indices(iterator) == rest[1:]
    if has_generator:
        assert indices(again) == third
    with pytest.raises(ArgumentError, match="state is 3, expected"):
        again.load_state_dict(3)


@pytest.mark.parametrize("workers", [0, 2])
def test_positions_of_iterable_datasets_and_ends(workers):
    loader = Ours(Stream(), batch_size=3, num_workers=workers)
    iterator = iter(loader)
    seen = [next(iterator)[:, 0].tolist() for _ in range(2)]
    state = loader.state_dict()
    rest = [batch[:, 0].tolist() for batch in iterator]
    again = Ours(Stream(), batch_size=3, num_workers=workers)
    again.load_state_dict(state)
    assert [batch[:, 0].tolist() for batch in again] == rest
    again.load_state_dict(loader.state_dict())  # of a finished epoch: the next one begins
    assert [batch[:, 0].tolist() for batch in again] == seen + rest
    again.load_state_dict(Ours(Stream(), batch_size=3).state_dict())
    assert len(list(again)) == len(seen + rest)


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
@pytest.mark.parametrize("dataset", [Counting, Cursors, Growing])
@pytest.mark.parametrize("persistent", [False, True])
def test_states_of_datasets_are_restored(dataset, workers, persistent):
    def make(count=workers):
        options = {"batch_size": 3, "num_workers": count, "persistent_workers": persistent and count > 0}
        return Ours(dataset(count=20), **options)

    every = [batch.tolist() for batch in make()]
    for taken in (1, 2, 4, len(every) - 1, len(every)):
        loader = make()
        iterator = iter(loader)
        seen = [next(iterator).tolist() for _ in range(taken)]
        state = pickle.loads(pickle.dumps(loader.state_dict()))
        again = make()
        again.load_state_dict(state)
        assert again.state_dict()["yielded"] == taken
        rest = iter(again)
        assert {**again.state_dict(), "rng": 0} == {**state, "rng": 0}
        found = [batch.tolist() for batch in rest]
        numbers = [[row[0] for row in batch] for batch in [*seen, *found]]
        assert numbers == [[row[0] for row in batch] for batch in every]
        if dataset is Growing:
            assert seen + found == every
        elif found:
            assert found[0][0][1] == 1  # nothing is read again
        assert [[row[0] for row in batch.tolist()] for batch in again] == numbers
    with pytest.raises(
        ArgumentError, match=rf"num_workers is {workers + 4}; give num_workers={max(1, workers)}"
    ):
        make(workers + 4).load_state_dict(state)


def test_persistent_workers_and_positions():
    loader = Ours(Numbers(), batch_size=2, num_workers=2, persistent_workers=True)
    every = indices(loader)
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    state = loader.state_dict()
    assert state["yielded"] == 3
    loader.load_state_dict(state)
    assert indices(loader) == every[3:]
    assert indices(loader) == every


# --- in number


class Many(IterableDataset):
    def __iter__(self):
        for number in range(50_000):
            yield number, torch.full((1 + number * 7919 % 9_000,), float(number)), np.full(5, number)


@pytest.mark.slow
@in_native
def test_a_hundred_thousand_batches():
    held, sizes, count = [], [], 0
    for number, x, array in Ours(Many(), num_workers=2, batch_size=None, collate_fn=same):
        assert (number, x.numel()) == (count // 2, 1 + number * 7919 % 9_000)
        assert [x[-1], x[0], *array] == [number] * 7
        held = [*held[-count % 7 :], x]
        count += 1
        if count % 10_000 == 0:
            sizes.append(resident_bytes())
    assert count == 100_000
    assert max(sizes[2:]) < 1.1 * sizes[1]


def kill_one(draw, victim):
    """Read batches until a worker is killed; returns when nothing is left of the loader."""
    before = resources()
    iterator = iter(Ours(Sleepy(quick=10**6, size=20_000), num_workers=2, batch_size=2))
    pids = [each.pid for each in iterator._workers]
    timer = threading.Timer(draw.rand() * 0.05, os.kill, (pids[victim], signal.SIGKILL))
    timer.start()
    seen = []
    with pytest.raises(RuntimeError, match="exited unexpectedly|killed by signal"):
        seen.extend(batch[:, 0].tolist() for batch in iterator)
    assert seen == [[2 * number, 2 * number + 1] for number in range(len(seen))]
    timer.join()
    del iterator
    await_gone(pids)
    until(lambda: resources() == before)


@in_native
@pytest.mark.parametrize("kills", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_kills_at_any_moment(kills):
    draw = np.random.RandomState(0)
    gc.collect()
    for trial in range(kills):
        kill_one(draw, trial % 2)

"""Loaders from generators: what they yield, how they feed a program, and errors."""

import threading

import numpy as np
import pytest

import dpmodule.fluid as fluid
from dpmodule.base import ArgumentError, StateError

X = np.arange(20, dtype="f4").reshape(10, 2)
Y = X.sum(1, keepdims=True)


@pytest.fixture
def variables():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        yield [fluid.data("x", [None, 2]), fluid.data("y", [None, 1])]


def samples():
    yield from zip(X, Y)


def lists():
    for begin in range(0, 10, 4):
        yield list(zip(X, Y))[begin : begin + 4]


def arrays():
    for begin in range(0, 10, 4):
        yield X[begin : begin + 4], Y[begin : begin + 4]


WAYS = {
    "samples": lambda loader: loader.set_sample_generator(samples, 4, drop_last=False),
    "lists": lambda loader: loader.set_sample_list_generator(lists, places=fluid.CPUPlace()),
    "arrays": lambda loader: loader.set_batch_generator(arrays),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("as_lists", [False, True])
def test_batches(way, as_lists, variables):
    loader = WAYS[way](fluid.io.DataLoader.from_generator(variables, capacity=2, return_list=as_lists))
    for _ in range(2):
        found = [batch if as_lists else [batch["x"], batch["y"]] for (batch,) in loader()]
        assert [len(x) for x, _ in found] == [4, 4, 2]
        np.testing.assert_array_equal(np.concatenate([x for x, _ in found]), X)
        np.testing.assert_array_equal(np.concatenate([y for _, y in found]), Y)


def test_short_batches_are_left_out(variables):
    loader = fluid.io.DataLoader.from_generator(feed_list=variables).set_sample_generator(samples, 4)
    assert [len(batch["x"]) for (batch,) in loader] == [4, 4]


@pytest.mark.parametrize("feeds", ["dicts", "lists of one", "program"])
def test_a_program_trains_on_them(feeds, variables):
    loader = WAYS["lists"](fluid.io.DataLoader.from_generator(variables, 4, iterable=feeds != "program"))
    out = fluid.layers.fc(variables[0], size=1)
    loss = fluid.layers.mean(fluid.layers.square_error_cost(out, variables[1]))
    fluid.optimizer.Adam(learning_rate=0.1).minimize(loss)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    losses = []
    for _ in range(40):
        if feeds != "program":
            for batch in loader:
                given = batch[0] if feeds == "dicts" else batch
                losses.append(executor.run(feed=given, fetch_list=[loss])[0].item())
            continue
        loader.start()
        try:
            while True:
                losses.append(executor.run(fetch_list=[loss])[0].item())
        except fluid.core.EOFException:
            loader.reset()
    assert len(losses) == 120
    assert np.mean(losses[-3:]) < 0.1 * np.mean(losses[:3])


def test_an_early_end_leaves_no_thread(variables):
    before = threading.active_count()
    loader = WAYS["arrays"](fluid.io.DataLoader.from_generator(variables, 1, iterable=False))
    loader.start()
    loader.reset()
    for _ in WAYS["arrays"](fluid.io.DataLoader.from_generator(variables, 1)):
        break
    assert threading.active_count() <= before + 1  # of the generator that is not yet collected


def test_what_cannot_be_is_an_error(variables):
    make = fluid.io.DataLoader.from_generator
    with pytest.raises(ArgumentError, match="feed_list is None, expected a list of variables"):
        make()
    with pytest.raises(ArgumentError, match="capacity is 0, expected an integer from 1"):
        make(variables, capacity=0)
    loader = make(variables)
    with pytest.raises(StateError, match="the loader has no generator; call set_sample_generator"):
        list(loader)
    with pytest.raises(ArgumentError, match="batch_size is 0"):
        loader.set_sample_generator(samples, 0)
    with pytest.raises(StateError, match="the loader is iterable: pass its batches as feed"):
        loader.start()
    with pytest.raises(ArgumentError, match="yields 1 values, but feed_list has 2 variables"):
        list(loader.set_batch_generator(lambda: iter([X])))

    def broken():
        yield X[:4], Y[:4]
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        list(loader.set_batch_generator(broken))
    feeding = WAYS["arrays"](make(variables, iterable=False))
    with pytest.raises(StateError, match="iterable=False: it feeds its program; call start"):
        list(feeding)
    out = fluid.layers.fc(variables[0], size=1)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    with pytest.raises(StateError, match="does not feed its program yet; call start"):
        executor.run(fetch_list=[out])
    feeding.start()
    with pytest.raises(StateError, match="feeds its program already; call reset"):
        feeding.start()
    feeding.reset()
    assert executor.run(feed={"x": X}, fetch_list=[out])[0].shape == (10, 1)
    assert not fluid.core.is_compiled_with_cuda()
    assert fluid.core.get_cuda_device_count() == 0


def test_a_loader_says_if_it_is_iterated_over(variables):
    loaders = [fluid.io.DataLoader.from_generator(variables, iterable=each) for each in (True, False)]
    assert [each.iterable for each in loaders] == [True, False]

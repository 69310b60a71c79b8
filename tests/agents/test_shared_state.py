import copy
import math
import os
import pickle
import random
import signal
import threading

import pytest
import torch

from dpmodule.agents import SharedTable
from dpmodule.agents.shared_state import LocalCounter, SumColumns, counter_for
from dpmodule.base import ArgumentError, DTypeError
from dpmodule.streams import Supervisor, WorkerDied
from dpmodule.streams.synchronization import SharedCounter


def take(channel, counter, count):
    return [counter.take() for _ in range(count)]


def test_numbers_come_in_order_and_begin_anew():
    for counter in (counter_for(1), counter_for(2)):
        assert [counter.take() for _ in range(3)] == [0, 1, 2]
        assert counter.peek() == counter.peek() == 3
        counter.reset()
        assert counter.take() == 0
        counter.reset(40)
        assert counter.take() == 40
        assert copy.deepcopy(counter) is counter
    assert isinstance(counter_for(1), LocalCounter)
    assert isinstance(counter_for(2), SharedCounter)


def test_processes_and_threads_take_each_number_once():
    counter, own = SharedCounter(), []
    thread = threading.Thread(target=lambda: own.extend(take(None, counter, 5000)))
    with Supervisor("taker", "fork") as takers:
        for _ in range(3):
            takers.start(take, counter, 5000)
        thread.start()
        found = takers.join(60)
    thread.join()
    assert sorted(sum(found, own)) == list(range(20_000))
    assert counter.peek() == 20_000


def add_by_value(channel, counter, count):
    taken = []
    for _ in range(count):
        with counter.get_lock():
            counter.value += 1
            taken.append(counter.value)
    return taken


def test_the_value_is_the_number_taken_last_and_is_changed_under_a_lock():
    for counter in (counter_for(1), counter_for(2)):
        assert (counter.value, counter.take(), counter.value) == (-1, 0, 0)
        with counter.get_lock():
            counter.value = (counter.value + 41) % 7
        assert (counter.value, counter.peek(), counter.take()) == (6, 7, 7)
    counter = SharedCounter()
    with Supervisor("adder", "fork") as adders:
        for _ in range(3):
            adders.start(add_by_value, counter, 300)
        taken = adders.join(60)
    assert sorted(sum(taken, [])) == list(range(900))


def count_up(channel, table, times):
    for _ in range(times):
        with table.get_lock(), table.get_lock():
            table["count"] += 1


def write(channel, table):
    table["w"] = torch.tensor([5.0, 6.0])
    table["late"] += 2
    count_up(channel, table, 10)
    return list(table)


def die_with_lock(channel, table):
    with table.get_lock():
        os.kill(os.getpid(), signal.SIGKILL)


def given():
    return {"count": 0, "loss": 0.5, "done": False, 7: -(2**63)}


def test_it_is_a_dict_of_numbers():
    table = SharedTable(given())
    assert dict(table) == given()
    assert len(table) == 4
    assert "loss" in table
    assert "other" not in table
    assert [type(value) for value in table.values()] == [int, float, bool, int]
    table.update(count=3, loss=1e300, done=True)
    assert repr(table) == f"SharedTable({{'count': 3, 'loss': 1e+300, 'done': True, 7: {-(2**63)}}})"
    assert copy.deepcopy(table) is table
    assert dict(SharedTable()) == {}
    assert table.get("other", 5) == 5


def test_other_types_and_missing_keys_are_refused():
    table = SharedTable({**given(), "w": torch.zeros(2)})
    for act in (lambda: table["other"], lambda: table.__delitem__("other")):
        with pytest.raises(KeyError, match=r"no key 'other'.*'count', 'loss'.*'w'"):
            act()
    with pytest.raises(
        DTypeError, match="'count' is of type int, which cannot change, got 1.5 of type float; delete the key"
    ):
        table["count"] = 1.5
    with pytest.raises(DTypeError, match="'done' is of type bool"):
        table["done"] = 1
    with pytest.raises(DTypeError, match="'count' is of type int, which cannot change, got tensor"):
        table["count"] = torch.zeros(())
    for value, told in (
        (1.5, "1.5 of type float"),
        (torch.zeros(3), "shape .3,.*"),
        (torch.zeros(2).int(), "int32"),
    ):
        with pytest.raises(
            DTypeError, match=rf"'w' is a tensor of shape \(2,\) and torch.float32, .* got .*{told}"
        ):
            table["w"] = value
    with pytest.raises(ArgumentError, match="at most 64 bits"):
        table["count"] = 2**63
    with pytest.raises(ArgumentError, match="at most 64 bits"):
        table["new"] = 2**63
    with pytest.raises(
        DTypeError, match="'name' is 'x' of type str, expected an int, a float, a bool or a torch"
    ):
        table["name"] = "x"
    assert {key: table[key] for key in given()} == given()
    assert len(table) == 5


def test_keys_are_deleted_and_come_again_with_another_type():
    table = SharedTable({"key": 0, "ctr": 0.0, "a": torch.ones(1), "b": torch.zeros(2, dtype=torch.int64)})
    for key in ("key", "a"):
        del table[key]
        assert key not in table
    assert list(table) == list(table.keys()) == ["ctr", "b"]
    assert len(table) == 2
    table["key"] = True
    table["a"] = 7
    table.update(ctr=1.5, start=2.5)
    assert (table["key"], table["a"], table["ctr"], table["start"]) == (True, 7, 1.5, 2.5)
    assert table.pop("start") == 2.5


def test_tensors_are_moved_to_shared_memory_and_written_in_place():
    weight = torch.nn.Parameter(torch.ones(2))
    table = SharedTable({"count": 0, "w": weight, "i": torch.arange(3)})
    assert table["w"] is weight
    assert weight.is_shared()
    table["i"] += 1
    table["w"] = torch.tensor([3.0, 4.0])
    assert (weight.tolist(), table["i"].tolist()) == ([3.0, 4.0], [1, 2, 3])


@pytest.mark.parametrize("mode", ["fork", "spawn"])
def test_other_processes_write_tensors_and_added_keys(mode):
    table = SharedTable({"count": 0, "w": torch.zeros(2)})
    table["late"] = 0.5
    del table["count"]
    table["count"] = 1
    with Supervisor("writer", mode) as writers:
        writers.start(write, table)
        assert writers.join(60) == [["late", "count", "w"]]
    assert (table["w"].tolist(), table["late"], table["count"]) == ([5.0, 6.0], 2.5, 11)


def test_workers_that_take_the_lock_lose_no_addition():
    table = SharedTable({"count": 0})
    with Supervisor("adder", "fork") as adders:
        for _ in range(3):
            adders.start(count_up, table, 500)
        adders.join(60)
    assert table["count"] == 1500


def test_a_worker_that_dies_with_the_lock_gives_it_back():
    table = SharedTable({"count": 0})
    with Supervisor("holder", "fork") as holders:
        holders.start(die_with_lock, table)
        with pytest.raises(WorkerDied):
            holders.join(60)
    count_up(None, table, 1)
    assert table["count"] == 1


def numbers(count, seed):
    """Return floats of very different sizes and signs, whole ones among them."""
    draw = random.Random(seed)
    return [draw.choice([draw.random(), draw.randrange(99), 0]) * 10.0 ** draw.randrange(-20, 20) * draw.choice([-1, 1])
            for _ in range(count)]  # fmt: skip


def add_all(channel, tally, index, given):
    column = tally.column(index)
    for number in given:
        column.add("sum", number)


def test_a_sum_over_columns_is_the_exact_one_rounded_once():
    for seed in range(30):
        given = numbers(200, seed)
        for columns in (1, 3):
            tally = SumColumns(columns)
            for index in range(columns):
                add_all(None, tally, index, given[index::columns])
            assert tally.totals() == {"sum": (math.fsum(given), 200)}


def test_processes_add_to_columns_of_their_own():
    tally, given = SumColumns(3), numbers(999, 1)
    with Supervisor("adder", "fork") as adders:
        for index in range(3):
            adders.start(add_all, tally, index, given[index::3])
        adders.join(60)
    assert tally.totals() == {"sum": (math.fsum(given), 999)}
    tally.clear()
    assert tally.totals() == {"sum": (0.0, 0)}


def test_infinite_and_huge_numbers_are_summed_too():
    tally = SumColumns()
    for name, given in {"inf": [1.0, math.inf], "nan": [math.inf, -math.inf], "huge": [1e308, 1e308]}.items():
        for number in given:
            tally.column(0).add(name, number)
    totals = tally.totals()
    assert totals["inf"] == (math.inf, 2)
    assert totals["huge"] == (math.inf, 2)
    assert math.isnan(totals["nan"][0])


def test_names_are_texts_of_any_alphabet_and_there_is_room_for_some():
    tally = SumColumns()
    names = [f"größe {number}" for number in range(128)]
    for name in names:
        tally.column(0).add(name, 1)
    assert list(tally.totals()) == names
    with pytest.raises(ArgumentError, match="one too many"):
        tally.column(0).add("another", 1)
    with pytest.raises(ArgumentError, match="121 bytes, expected at most 120"):
        SumColumns().column(0).add("x" * 121, 1)


def test_more_columns_keep_the_sums_and_a_pickle_of_one_process_too():
    tally = SumColumns()
    tally.column(0).add("loss", 0.1)
    wide = tally.with_columns(4)
    wide.column(3).add("loss", 0.2)
    assert wide.totals() == {"loss": (math.fsum([0.1, 0.2]), 2)}
    assert pickle.loads(pickle.dumps(tally)).totals() == tally.totals()

import copy
import math
import os
import pickle
import random
import signal

import pytest
import torch

from dpmodule.agents import SharedTable
from dpmodule.agents.shared_state import SumColumns, counter_for
from dpmodule.streams import Supervisor, WorkerDied


def in_processes(function, arguments, mode="fork"):
    with Supervisor("worker", mode) as workers:
        for each in arguments:
            workers.start(function, *each)
        return workers.join(60)


@pytest.mark.parametrize("workers", [1, 2])
def test_numbers_come_in_order_and_the_value_is_the_one_taken_last(workers):
    counter = counter_for(workers)
    assert (counter.value, [counter.take() for _ in range(3)], counter.value) == (-1, [0, 1, 2], 2)
    assert counter.peek() == counter.peek() == 3
    for start in (0, 40):
        counter.reset(*([start] if start else []))
        assert counter.take() == start
    with counter.get_lock():
        counter.value = (counter.value + 6) % 7
    assert (counter.value, counter.peek(), counter.take()) == (4, 5, 5)
    assert copy.deepcopy(counter) is counter


def count_up(channel, table, times):
    for _ in range(times):
        with table.get_lock(), table.get_lock():
            table["count"] += 1


def write(channel, table):
    table["w"] = torch.tensor([5.0, 6.0])
    table["late"] += 2
    table["name"] += " from a worker"
    count_up(channel, table, 10)
    return list(table)


def die_with_lock(channel, table):
    with table.get_lock():
        os.kill(os.getpid(), signal.SIGKILL)


def test_it_is_a_dict_of_numbers():
    given = {"count": 0, "loss": 0.5, "done": False, 7: -(2**63)}
    table = SharedTable(given)
    assert (dict(table), len(table), "loss" in table, "other" in table) == (given, 4, True, False)
    assert [type(value) for value in table.values()] == [int, float, bool, int]
    table.update(count=3, loss=1e300, done=True)
    assert repr(table) == f"SharedTable({{'count': 3, 'loss': 1e+300, 'done': True, 7: {-(2**63)}}})"
    assert copy.deepcopy(table) is table
    assert (dict(SharedTable()), table.get("other", 5)) == ({}, 5)


def test_keys_are_deleted_and_come_again_with_another_type():
    table = SharedTable({"key": 0, "ctr": 0.0, "a": torch.ones(1), "b": torch.zeros(2, dtype=torch.int64)})
    for key in ("key", "a"):
        del table[key]
        assert key not in table
    assert list(table) == list(table.keys()) == ["ctr", "b"]
    table["key"] = True
    table["a"] = 7
    table.update(ctr=1.5, start=2.5)
    assert (table["key"], table["a"], table["ctr"], table.pop("start"), len(table)) == (True, 7, 1.5, 2.5, 4)


def test_texts_are_written_in_place():
    table = SharedTable({"name": "hello", 1: "", "count": 2})
    table["name"] += " wörld"
    table["late"] = "x" * 1016
    assert dict(table) == {"count": 2, "name": "hello wörld", 1: "", "late": "x" * 1016}
    table["name"] = "h"
    assert (table["name"], len(table), "name" in table) == ("h", 4, True)
    del table["name"]
    table["name"] = 3
    assert table["name"] == 3


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
    table = SharedTable({"count": 0, "w": torch.zeros(2), "name": "a"})
    table["late"] = 0.5
    del table["count"]
    table["count"] = 1
    assert in_processes(write, [(table,)], mode) == [["late", "count", "name", "w"]]
    assert table["name"] == "a from a worker"
    assert (table["w"].tolist(), table["late"], table["count"]) == ([5.0, 6.0], 2.5, 11)


def test_the_lock_loses_no_addition_and_a_dead_worker_gives_it_back():
    table = SharedTable({"count": 0})
    in_processes(count_up, [(table, 500)] * 3)
    assert table["count"] == 1500
    with pytest.raises(WorkerDied):
        in_processes(die_with_lock, [(table,)])
    count_up(None, table, 1)
    assert table["count"] == 1501


def add_all(channel, tally, index, given):
    column = tally.column(index)
    for number in given:
        column.add("sum", number)


@pytest.mark.parametrize("columns", [1, 3])
def test_a_sum_over_columns_is_the_exact_one_rounded_once(columns):
    for seed in range(20):
        draw = random.Random(seed)
        first, powers, signs = ((draw.random(), draw.randrange(99), 0), range(-20, 20), (-1, 1))
        given = [draw.choice(first) * 10.0 ** draw.choice(powers) * draw.choice(signs) for _ in range(200)]
        tally = SumColumns(columns)
        for index in range(columns):
            add_all(None, tally, index, given[index::columns])
        assert tally.totals() == {"sum": (math.fsum(given), 200)}


def test_processes_add_to_columns_of_their_own():
    tally, given = SumColumns(3), [10.0 ** (n % 40 - 20) for n in range(999)]
    in_processes(add_all, [(tally, index, given[index::3]) for index in range(3)])
    assert tally.totals() == {"sum": (math.fsum(given), 999)}
    assert pickle.loads(pickle.dumps(tally)).totals() == tally.totals()
    wide = tally.with_columns(4)
    wide.column(3).add("sum", 0.2)
    assert wide.totals() == {"sum": (math.fsum([*given, 0.2]), 1000)}
    tally.clear()
    assert tally.totals() == {"sum": (0.0, 0)}


def test_infinite_and_huge_numbers_are_summed_too():
    for given, total in (
        *(([1.0, math.inf], math.inf), ([-math.inf] * 2, -math.inf), ([1e308, 1e308], math.inf)),
        *(([2**80, 2**80], 2.0**81), ([-0.0, -0.0], 0.0), ([math.inf, -math.inf], math.nan)),
    ):
        tally = SumColumns(2)
        for index, number in enumerate(given):
            tally.column(index).add("größe", number)
        assert tally.totals()["größe"] == (pytest.approx(total, nan_ok=True), 2)

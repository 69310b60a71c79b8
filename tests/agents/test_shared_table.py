"""`SharedTable`: numbers under fixed keys that every process sees."""

import copy
import os
import signal

import pytest

from dpmodule.agents import SharedTable
from dpmodule.base import ArgumentError, DTypeError
from dpmodule.streams import Supervisor, WorkerDied


def count_up(channel, table, times):
    for _ in range(times):
        with table.get_lock(), table.get_lock():
            table["count"] += 1


def die_with_lock(channel, table):
    with table.get_lock():
        os.kill(os.getpid(), signal.SIGKILL)


def given():
    return {"count": 0, "loss": 0.5, "done": False, 7: -(2**63)}


def test_it_is_a_dict_of_fixed_keys_and_types():
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


def test_other_keys_and_types_are_refused():
    table = SharedTable(given())
    with pytest.raises(KeyError, match=r"no key 'other'.*'count', 'loss'"):
        table["other"] = 1
    with pytest.raises(KeyError, match="no key 'other'"):
        table["other"]
    with pytest.raises(DTypeError, match="'count' is of type int and stays so, got 1.5 of type float"):
        table["count"] = 1.5
    with pytest.raises(DTypeError, match="'done' is of type bool"):
        table["done"] = 1
    with pytest.raises(ArgumentError, match="at most 64 bits"):
        table["count"] = 2**63
    with pytest.raises(ArgumentError, match="cannot be deleted"):
        del table["count"]
    with pytest.raises(DTypeError, match="'name' is 'x' of type str"):
        SharedTable({"name": "x"})
    assert dict(table) == given()


def test_workers_that_take_the_lock_lose_no_addition():
    table = SharedTable({"count": 0})
    with Supervisor("adder", "fork") as adders:
        for _ in range(3):
            adders.start(count_up, table, 500)
        adders.join(60)
    assert table["count"] == 1500


def test_a_spawned_process_has_the_same_table():
    table = SharedTable({"count": 0})
    with Supervisor("adder", "spawn") as adders:
        adders.start(count_up, table, 10)
        adders.join(60)
    assert table["count"] == 10


def test_a_worker_that_dies_with_the_lock_gives_it_back():
    table = SharedTable({"count": 0})
    with Supervisor("holder", "fork") as holders:
        holders.start(die_with_lock, table)
        with pytest.raises(WorkerDied):
            holders.join(60)
    count_up(None, table, 1)
    assert table["count"] == 1

"""MXNet's profiler calls over torch's profiler."""

import json

import pytest

import dpmodule as mx
from dpmodule import profiler
from dpmodule.base import ArgumentError, StateError


@pytest.fixture(autouse=True)
def forget(tmp_path):
    profiler.set_config(filename=str(tmp_path / "profile.json"), profile_all=True)
    yield
    profiler.set_state("stop")
    profiler.dumps(reset=True)


def names(path):
    return {event.get("name") for event in json.loads(path.read_text())["traceEvents"]}


def test_trace_holds_operators_and_marked_ranges(tmp_path):
    domain = profiler.Domain("net")
    task, event, marker = domain.new_task("work"), profiler.Event("alone"), domain.new_marker("here")
    profiler.set_state("run")
    task.start()
    mx.nd.dot(mx.nd.ones((2, 2)), mx.nd.ones((2, 2))).wait_to_read()
    task.stop()
    profiler.pause()
    mx.nd.ones((2, 2)).sin()
    profiler.resume()
    event.start()
    event.stop()
    marker.mark()
    profiler.set_state("stop")
    profiler.dump()
    found = names(tmp_path / "profile.json")
    assert {"aten::mm", "net::work", "alone", "net::here"} <= found
    assert "aten::sin" not in found
    assert "net::work" in profiler.dumps()


def test_table_is_sorted_and_reset():
    profiler.set_state("run")
    for _ in range(3):
        mx.nd.ones((2, 2)).sum()
    profiler.set_state("stop")
    table = json.loads(profiler.dumps(format="json", sort_by="count"))["Time"]
    assert table["aten::sum"]["Count"] == 3
    counts = [row["Count"] for row in table.values()]
    assert counts == sorted(counts, reverse=True)
    profiler.dumps(reset=True)
    assert json.loads(profiler.dumps(format="json"))["Time"] == {}


def test_counters():
    counter = profiler.Domain("d").new_counter("seen", 2)
    counter += 3
    counter.decrement()
    assert json.loads(profiler.dumps(format="json"))["Counters"]["d::seen"] == 4
    assert str(counter) == "seen"


def test_old_names(tmp_path):
    profiler.profiler_set_config(mode="all", filename=str(tmp_path / "old.json"))
    profiler.profiler_set_state("run")
    mx.nd.ones((2,)).sum()
    profiler.profiler_set_state("stop")
    profiler.dump_profile()
    assert "aten::sum" in names(tmp_path / "old.json")


def test_bad_input():
    with pytest.raises(ArgumentError, match="no option speed"):
        profiler.set_config(speed=1)
    with pytest.raises(ArgumentError, match='expected "run" or "stop"'):
        profiler.set_state("go")
    with pytest.raises(StateError, match="nothing was recorded"):
        profiler.dump()
    with pytest.raises(ArgumentError, match="sort_by"):
        profiler.dumps(sort_by="name")
    with pytest.raises(StateError, match="without start"):
        profiler.Event("x").stop()


def test_a_trace_that_grows(tmp_path):
    profiler.set_state("run")
    sizes = []
    for _ in range(3):
        mx.nd.ones((2, 2)).sin()
        profiler.dump(False)
        sizes.append(len(json.loads((tmp_path / "profile.json").read_text())["traceEvents"]))
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]

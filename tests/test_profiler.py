"""MXNet's profiler calls over torch's profiler."""

import json

import pytest

import dpmodule as mx
from dpmodule import profiler
from helpers.programs import run_program


@pytest.fixture(autouse=True)
def forget(tmp_path):
    profiler.set_config(filename=str(tmp_path / "profile.json"), profile_all=True)
    yield
    profiler.set_state("run")
    profiler.dump()
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
        mx.nd.ones((2, 2)).arcsinh()  # nothing that may still run elsewhere calls it
    profiler.set_state("stop")
    table = json.loads(profiler.dumps(format="json", sort_by="count"))["Time"]
    assert table["aten::asinh"]["Count"] == 3
    counts = [row["Count"] for row in table.values()]
    assert counts == sorted(counts, reverse=True)
    profiler.dumps(reset=True)
    assert json.loads(profiler.dumps(format="json"))["Time"] == {}


def test_counters():
    counter = profiler.Domain("d").new_counter("seen", 2)
    counter += 3
    counter.decrement()
    assert (json.loads(profiler.dumps(format="json"))["Counters"]["d::seen"], str(counter)) == (4, "seen")


def test_old_names(tmp_path):
    profiler.profiler_set_config(mode="all", filename=str(tmp_path / "old.json"))
    profiler.profiler_set_state("run")
    mx.nd.ones((2,)).sum()
    profiler.profiler_set_state("stop")
    profiler.dump_profile()
    assert "aten::sum" in names(tmp_path / "old.json")


def test_runs_add_up_until_they_are_written_or_reset(tmp_path):
    for operator in ("sin", "cos"):
        profiler.set_state("run")
        getattr(mx.nd.ones((2,)), operator)()
        assert f"aten::{operator}" in profiler.dumps()  # while it runs
        profiler.set_state("stop")
    assert "aten::sin" in profiler.dumps(reset=True)
    assert "aten::sin" not in profiler.dumps()
    profiler.dump()
    assert {"aten::sin", "aten::cos"} <= names(tmp_path / "profile.json")
    profiler.set_state("run")
    mx.nd.ones((2,)).tan()
    profiler.dump(finished=False)
    mx.nd.ones((2,)).tan()
    profiler.dump()
    found = names(tmp_path / "profile.json")
    assert "aten::tan" in found
    assert "aten::sin" not in found


PROGRAMS = {
    "runs": "",
    "raises": "profiler.profiler_set_state('stop'); profiler.dumps(reset=True); 1 / 0",
    "exits": "profiler.pause(); sys.exit(3)",
    "nowhere": "profiler.set_config(filename='no/such/folder.json')",
    "dumped": "profiler.dump(); os.rename('trace.json', 'kept.json')",
}


def test_a_program_that_never_dumps_writes_at_its_end(tmp_path):
    for name in PROGRAMS:
        (tmp_path / name).mkdir()
    done = run_program(f"""
import gc, os, sys
import torch._dynamo  # what torch imports for its first profile, once for all children
import dpmodule as mx
from dpmodule import profiler
gc.freeze()  # so that children end quickly
for name, code in {PROGRAMS}.items():
    child = os.fork()
    if child == 0:  # ends as a program does, not within this loop
        os.chdir(os.path.join({str(tmp_path)!r}, name))
        profiler.set_config(filename="trace.json", profile_all=True)
        profiler.set_state("run")
        mx.nd.ones((2,)).sin()
        exec(code)
        sys.exit()
    print(name, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
try:
    profiler.dump()
except mx.MXNetError as error:
    print(error)
""")
    assert done.returncode == 0, done.stderr
    codes = dict.fromkeys(PROGRAMS, "0") | {"raises": "1", "exits": "3"}
    *lines, last = done.stdout.splitlines()
    assert dict(line.split() for line in lines) == codes
    assert last == 'dump: nothing was recorded; call set_state("run") first'
    for name in ("runs", "raises", "exits"):
        assert "aten::sin" in names(tmp_path / name / "trace.json")
    assert [path.name for path in (tmp_path / "dumped").iterdir()] == ["kept.json"]
    assert "mx.profiler: the trace was not written" in done.stderr
    assert list((tmp_path / "nowhere").iterdir()) == []

"""What Hogwild training is measured on: data that is what it is said to be, and networks that are what they should."""

import os
import subprocess
import sys

import numpy as np
import pytest

import dpmodule as mx
from benchmarks.hogwild_data import lines, write
from benchmarks.hogwild_tasks import TASKS, feed, first_weight, predict, shapes
from benchmarks.processes import PeakMemory, cpu_s, family, memory_mb
from benchmarks.sides.hogwild import Trainer, network


@pytest.mark.parametrize("name", ["bow-adagrad", "wide"])
def test_lines_that_were_written_are_read_again(name, tmp_path):
    task = TASKS[name]
    paths = write(tmp_path, task, 60, 2, seed=5)
    made = [lines(task, 30, 5), lines(task, 30, 6)]
    parts = iter([mx.hogwild.FileRange(path) for path in paths])
    (batch,) = mx.hogwild.FileBatches(mx.DataFeedDesc(feed(task)), lambda: next(parts, None))
    assert batch.num_lines == 60
    for slot in task.slots:
        values = np.concatenate([each[slot.name][0] for each in made])
        np.testing.assert_allclose(batch.slots[slot.name].values.numpy().reshape(-1), values, rtol=1e-6)


@pytest.mark.parametrize("name", ["bow-adagrad", "wide"])
def test_networks_have_the_parameters_of_the_task(name):
    task = TASKS[name]
    trainer = Trainer(name, "serial")
    net = network(task)
    inputs = {slot.name: (128,) for slot in task.slots if not slot.is_dense}
    sizes = {"numbers": (128, 13)} if task.net == "wide" else {}
    found = dict(zip(net.list_arguments(), net.infer_shape_partial(**inputs, **sizes)[0], strict=True))
    own = {key: shape for key, shape in found.items() if key not in [slot.name for slot in task.slots]}
    assert own == shapes(task)
    trainer.executor.close()


def test_scores_are_those_of_the_network(tmp_path):
    task = TASKS["bow-adagrad"]
    held_out = lines(task, 20, 3)
    (path,) = write(tmp_path, task, 20, 1, seed=3)
    weights = {name: first_weight(name, shape) for name, shape in shapes(task).items()}
    module, text = mx.mod.Module(network(task), ["words"], ["label"]), mx.DataFeedDesc(feed(task))
    first = {"arg_params": {name: mx.nd.array(value) for name, value in weights.items()}}
    with mx.AsyncExecutor() as run:
        run.run_from_files(module, text, [path], 1, optimizer_params={"learning_rate": 0.0}, **first)
        ((_, _, [p]),) = run.infer_from_files(module, text, [path], 1, ["p"])
    found = p.asnumpy()
    np.testing.assert_allclose(
        predict(task, weights, held_out), np.log(found[:, 1] / found[:, 0]), rtol=1e-3, atol=1e-4
    )


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="it reads /proc as Linux has it")
def test_time_and_memory_of_children_count():
    code = "import subprocess, sys; print(len(b'x' * 50_000_000 * 2), flush=True); kept = bytearray(60_000_000)\n"
    child = "kept = bytearray(60_000_000); sum(range(3_000_000)); print('there', flush=True); input()"
    code += f"subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout.readline() == "100000000\n"
        assert process.stdout.readline() == "there\n"
        assert len(family(process.pid)) == 2
        assert cpu_s(process.pid) > 0.01
        with PeakMemory(process.pid) as peak:
            assert 115 < memory_mb(process.pid) < 200
        assert peak.mb > 115
        process.stdin.write("\n")

"""The parts in their quick form, and networks that are what they are said to be."""

import importlib.util
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx
from benchmarks import corpus
from benchmarks.networks import NETWORKS
from benchmarks.parts.fit import modes, variants
from benchmarks.report import tables_of
from benchmarks.sides import plain_networks
from benchmarks.workloads import WORKLOADS, examples, first_value
from helpers.programs import run_module

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", NETWORKS)
def test_both_forms_of_a_network_have_the_same_parameters(name):
    workload = WORKLOADS[name]
    net = NETWORKS[name](mx, workload.classes)
    size = workload.batch_size
    given = {"data": (size, *workload.shape), "softmax_label": (size, *workload.labels)}
    shapes, _, states = net.infer_shape(**given)
    symbol = dict(zip((*net.list_arguments(), *net.list_auxiliary_states()), (*shapes, *states), strict=True))
    for key in given:
        del symbol[key]
    plain = plain_networks.named_values(plain_networks.NETWORKS[name](workload.classes))
    assert {key: tuple(value.shape) for key, value in plain.items()} == symbol


def test_the_large_network_has_its_nodes():
    assert len(NETWORKS["resnet50"](mx, 1000).graph.nodes) == 445


def test_examples_and_first_values_repeat_and_stay_in_range():
    workload = WORKLOADS["lstm"]
    images, classes = examples(workload, 2)
    assert images.shape == (8, 35, 16)
    assert classes.shape == (8, 35)
    assert 0 <= images.min() <= images.max() < 1
    assert 0 <= classes.min() <= classes.max() < 10
    np.testing.assert_array_equal(images, examples(workload, 2)[0])
    weight = first_value("fc_weight", (20, 50))
    assert 0.9 * math.sqrt(6 / 50) < abs(weight).max() <= math.sqrt(6 / 50)
    assert abs(weight - first_value("other_weight", (20, 50))).max() > 0.1
    assert set(first_value("fc_bias", (3,))) == {0}


def test_sentences_fill_every_bucket():
    for bucket, batches in corpus.padded(1).items():
        ((words, following),) = batches
        assert words.shape == (corpus.BATCH_SIZE, bucket)
        np.testing.assert_array_equal(words[:, 1:], following[:, :-1])
        assert words[:, bucket - 10].min() > 0  # longer than the next smaller bucket


def test_plain_loops_come_in_all_variants():
    assert len(variants(WORKLOADS["lenet"])) == 8
    assert len(variants(WORKLOADS["lenet"], trained=False)) == 4
    assert len(variants(WORKLOADS["mlp"])) == 4
    assert [mode.what for mode in modes(WORKLOADS["resnet50"])] == ["predict"]
    assert [mode.what for mode in modes(WORKLOADS["lstm"])] == ["fit", "fit", "step", "predict"]


def quick(tmp_path, *parts):
    """Run the quick forms of parts; return their report."""
    output = tmp_path / "found.md"
    options = ["--quick", "--rounds", 1, "--output", output]
    done = run_module("benchmarks", *parts, *options, seconds=150, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return tables_of(output).read_text(encoding="utf-8")


def quick_figures(tmp_path, part):
    """Run the quick form of a part that is a program of its own; return its figures."""
    output = tmp_path / "found.md"
    line = [sys.executable, "-m", f"benchmarks.{part}", "--quick", "--rounds", "1", "--output", str(output)]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(output.with_suffix(".json").read_text(encoding="utf-8"))[part]


@pytest.mark.timeout(180)
def test_quick_forms_of_the_parts_that_are_done_soon(tmp_path):
    text = quick(tmp_path, "trainers", "passes", "kernels")
    for line in ("lightning: not compared", "in none of these networks", "predict | its kernels alone |"):
        assert line in text


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_quick_form_of_the_part_about_data(tmp_path):
    text = quick(tmp_path, "data")
    for line in (
        "against torch DataLoader |",
        "against np.loadtxt |",
        "| pandas.read_csv |",
        "| one thread |",
    ):
        assert line in text


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_quick_forms_of_the_other_parts(tmp_path):
    text = quick(tmp_path, "bucketing", "contexts", "runs", "ops", "cuda", "interop")
    for line in (
        "| a switch |",
        "fit, two contexts | ",
        "fit, accumulate=4 | ",
        "`nd.relu(x)`",
        "safetensors load, 256 MB",
    ):
        assert line in text


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_quick_form_of_the_part_about_beginning(tmp_path):
    text = quick(tmp_path, "startup")
    for line in (
        "| Module.bind, first |",
        "| ResNet-20, 32x32, batch 64: Module.bind for training, again | cpu |",
        "| MLP 784-128-64-10, batch 64: first step, 1 thread | cpu |",
        "| MLP 784-128-64-10, batch 64: first step, default threads | wall |",
        "| not compared |",
    ):
        assert line in text


STREAMS = {
    "one empty job, asyncio, against run_in_executor": (2, 3),
    "one empty job, asyncio, against threads + call_soon_threadsafe": (2, 3),
    "1,000 empty jobs in flight, each, asyncio, against run_in_executor": (6, 10),
    "1,000 empty jobs in flight, each, asyncio, against threads + call_soon_threadsafe": (1.5, 2.5),
    "dict of 8 tensors, 1 KB: send, recv, against torch.multiprocessing.Queue": (40, 100),
    "dict of 8 tensors, 64 KB: send, recv, against torch.multiprocessing.Queue": (40, 100),
    "dict of 8 tensors, 1 MB: send, recv, against torch.multiprocessing.Queue": (30, 80),
    "dict of 8 tensors, 16 MB: send, recv, against torch.multiprocessing.Queue": (15, 28),
    "dict of 8 tensors, 1 KB: send, recv, against bare ring": (0.45, 0.8),
    "dict of 8 tensors, 64 KB: send, recv, against bare ring": (0.45, 0.8),
    "dict of 8 tensors, 1 MB: send, recv, against bare ring": (0.5, 0.9),
    "dict of 8 tensors, 16 MB: send, recv, against bare ring": (0.8, 0.95),
    "zero-copy round trip of shared tensors, 16 MB over 1 KB": (1.3, 1.1),
    "200 messages growing by 3 rows: those that needed new memory": (14, 10),
    "stream item, a wake-up each, against asyncio.Queue": (0.9, 1.2),
    "stream item, bursts of 100, against asyncio.Queue": (1.5, 3),
    "memoryview(handle), 1 MB, against a copy as bytes": (100, 100),
}


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_quick_form_of_the_part_about_streams(tmp_path):
    found = quick_figures(tmp_path, "streams")
    assert {each["what"]: (each["must"], each["aim"]) for each in found["targets"]} == STREAMS
    assert all(each["value"] > 0 for each in found["targets"])
    (growing,) = (each for each in found["targets"] if "growing" in each["what"])
    assert growing["value"] <= 14  # which is a count, on any machine
    assert growing["at_most"]
    tables = {"Jobs": 6, "Tensors": 16, "Zero-copy": 2, "Items": 3, "Bytes": 1, "Work, MB/s": 3, "Feeds": 2}
    rows = {title: len(lines) - 2 for title, lines in found["tables"].items()}
    rows["Jobs"] -= 6 * (importlib.util.find_spec("uvloop") is not None)
    assert rows == tables


AUTOBATCH = {
    "BiLSTM tagger, against DyNet autobatch": (2.5, 4),
    "BiLSTM + characters, against DyNet autobatch": (2.5, 4),
    "TreeLSTM, against DyNet autobatch": (1.7, 2.5),
    "transition parser, against DyNet autobatch": (2.5, 4),
    "equal lengths, against DyNet autobatch": (2.5, 3),
    "BiLSTM tagger, against PyTorch by hand": (1.3, 2),
    "BiLSTM + characters, against PyTorch by hand": (1.3, 2),
    "TreeLSTM, against PyTorch by hand": (1.3, 2),
    "equal lengths, against PyTorch by hand": (0.8, 1),
    "making dy.tanh(x), ours over DyNet's": (1, 0.6),
}
TASKS = ("BiLSTM tagger", "BiLSTM + characters", "TreeLSTM", "transition parser", "equal lengths")
AUTOBATCH.update({f"{task}, against ours, batching off": (1.5, 2.5) for task in TASKS})
AUTOBATCH.update({f"{task}, against DyNet, batching off": (4, 8) for task in TASKS})
AUTOBATCH["sentences together, against ours, batching off"] = (0.95, 1.2)
AUTOBATCH.update({f"{task}, Python engine, against DyNet autobatch": (0.6, 1) for task in TASKS})
AUTOBATCH.update({f"{task}, Python engine, against ours, batching off": (4, 8) for task in TASKS})


@pytest.mark.timeout(400)
@pytest.mark.slow
@pytest.mark.parametrize("with_dynet", [True, False])
def test_quick_form_of_the_part_about_automatic_batching(with_dynet, tmp_path, monkeypatch):
    """The package named dynet is ours here, so that all goes its way without DyNet."""
    (tmp_path / "dynet.py").write_text("import sys, dpmodule.autobatch as dy\nsys.modules[__name__] = dy\n")
    (tmp_path / "dynet_config.py").write_text(
        "def set(autobatch, **others):\n"
        "    import dpmodule.autobatch as dy\n"
        "    dy.configure(autobatch=autobatch, **others)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    output = tmp_path / "found.md"
    line = [sys.executable, "-m", "benchmarks.autobatch", "--quick", "--rounds", "1", "--output", str(output)]
    line += ["--against", f"dynet={sys.executable}"] * with_dynet
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(output.with_suffix(".json").read_text(encoding="utf-8"))["autobatch"]
    targets = {
        re.sub("(?<=by hand), .*", "", each["what"]): (each["must"], each["aim"])
        for each in found["targets"]
        if "GPU" not in each["what"]
    }
    assert targets == {
        what: bounds for what, bounds in AUTOBATCH.items() if with_dynet or "DyNet" not in what
    }
    assert all(each["value"] > 0 for each in found["targets"])
    assert ("DyNet: not compared" in " ".join(found["notes"])) != with_dynet
    notes = [note for note in found["notes"] if "losses to" in note]
    assert [note.partition(":")[0] for note in notes][:5] == list(TASKS)
    rows = {title: len(lines) - 2 for title, lines in found["tables"].items()}
    assert rows["Sentences a second of CPU time"] == 5
    assert rows["Programs of other kinds"] == (6 if with_dynet else 3)
    assert rows["Batches of 1 to 256 sentences"] == (10 if with_dynet else 6)
    assert rows["Nodes of minibatches"] == (3 if with_dynet else 2)
    assert rows["What batching gains on the Python engine"] == 5
    assert rows["What batching gains with wider hidden states"] == 6
    assert rows["Making one node from Python, nanoseconds of CPU time"] == 13


HOGWILD = {
    "bow net, AdaGrad, native, 1 to 2 workers": (1.75, 1.9),
    "bow net, AdaGrad, process, 1 to 2 workers": (1.6, 1.8),
    "bow net, SGD, native, 1 to 2 workers": (1.75, 1.9),
    "wide & deep, 26 slots, native, 1 to 2 workers": (1.75, 1.9),
    "files to batches, against bare MultiSlotFunctor": (0.7, 0.9),
    "start of 2 workers, native, first call over import of torch": (0.1, 0.02),
    "start of 2 workers, native, second call over import of torch": (0.02, 0.005),
    "start of 2 workers, process, first call over import of torch": (1.5, 1),
    "start of 2 workers, process, second call over import of torch": (0.02, 0.005),
}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_quick_form_of_the_part_about_hogwild_training(tmp_path):
    found = quick_figures(tmp_path, "hogwild")
    assert {each["what"]: (each["must"], each["aim"]) for each in found["targets"]} == HOGWILD
    assert all(each["value"] > 0 for each in found["targets"])
    assert "Paddle: not compared; give --against paddle=PYTHON." in found["notes"]
    rows = {title: len(lines) - 2 for title, lines in found["tables"].items()}
    tables = {"Training, examples a second": 8, "1 to 2 workers": 4, "Reading, MB/s": 1, "Peak memory, MB": 2}
    assert rows == {**tables, "Start, ms": 4}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_quick_form_of_the_part_about_compiling():
    line = [sys.executable, "-m", "benchmarks", "compile", "--quick", "--rounds", "1"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_quick_form_of_the_part_about_agents(tmp_path):
    found = quick_figures(tmp_path, "agents")
    assert len(found["targets"]) == 12
    assert all(each["value"] > 0 for each in found["targets"])
    rows = {title: len(lines) - 2 for title, lines in found["tables"].items()}
    assert rows == {
        "Examples a second": 12,
        "Proportions": 9,
        "Padding, words": 1,
        "Peak memory, MB": 1,
        "Start, s": 1,
    }

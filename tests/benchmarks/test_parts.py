"""The parts in their quick form, also against others, and networks that are what they are said to be."""

import ast
import importlib.util
import json
import shutil
import sys
from pathlib import Path

import pytest
import torch

import dpmodule as mx
from benchmarks.networks import NETWORKS
from benchmarks.report import BEFORE, tables_of
from benchmarks.sides import plain_networks
from benchmarks.workloads import WORKLOADS
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


QUICK = {
    # parts: what their tables have
    "trainers passes": "lightning: not compared; in none of these networks",
    "data": "against torch DataLoader |; against np.loadtxt |; | pandas.read_csv |; | one thread |",
    "bucketing contexts runs ops cuda interop compile kernels": "| a switch |; fit, two contexts | ; "
    "fit, accumulate=4 | ; `nd.relu(x)`; safetensors load, 256 MB; predict | its kernels alone |",
    "autobatch-torch": "| child-sum TreeLSTM | 4 |; | SPINN | 1 |",
    "startup": "| Module.bind, first |; first step, 1 thread | cpu |; first step, default threads | wall |",
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("parts", [pytest.param(p, marks=[pytest.mark.slow][p[0] == "t" :]) for p in QUICK])
def test_quick_forms_of_parts(parts, tmp_path):
    options = ["--quick", "--rounds", 1, "--output", tmp_path / "found.md"]
    done = run_module("benchmarks", *parts.split(), *options, seconds=250, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    text = tables_of(tmp_path / "found.md").read_text(encoding="utf-8")
    assert [line for line in QUICK[parts].split("; ") if line not in text] == []


FAKES = {
    "dynet.py": "import sys, dpmodule.autobatch as dy\nsys.modules[__name__] = dy\n",
    "dynet_config.py": "def set(**o):\n    import dpmodule.autobatch as dy\n    dy.configure(**o)\n",
}
COUNTS = {"streams": 17, "autobatch": 31, "hogwild": 9, "agents": 12}
"""Targets of parts that are programs of their own."""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", [*COUNTS, "autobatch without DyNet"])
def test_quick_forms_of_programs(part, tmp_path, monkeypatch):
    """The package named dynet is ours here, so that all goes its way without DyNet."""
    for name, text in FAKES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    name, _, without = part.partition(" ")
    options = ["--quick", "--rounds", 1, "--output", tmp_path / "found.md"]
    if part == "autobatch":
        options += ["--against", f"dynet={sys.executable}"]
    done = run_module(f"benchmarks.{name}", *options, seconds=550, cwd=ROOT, fresh=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))[name]
    targets = [each for each in found["targets"] if "GPU" not in each["what"]]
    assert all(each["value"] > 0 for each in targets)
    assert all(len(lines) > 2 for lines in found["tables"].values())
    if without:
        assert not any("DyNet" in each["what"] for each in targets)
        assert "DyNet: not compared" in " ".join(found["notes"])
    else:
        assert len(targets) == COUNTS[name]


SHARED = """
workloads corpus networks operator_cases autobatch_tasks treebank settings sides/serve sides/module sides/language
sides/operators sides/autobatch sides/exported
"""


@pytest.mark.parametrize("name", SHARED.split())
def test_what_other_packages_run_is_valid_for_their_python(name):
    text = (ROOT / "benchmarks" / f"{name}.py").read_text(encoding="utf-8")
    ast.parse(text, feature_version=(3, 8))
    assert "from __future__ import annotations" in text
    assert not any(later in text for later in ("strict=", "removeprefix", "removesuffix", "randbytes("))


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_quick_comparison_under_another_interpreter(tmp_path, monkeypatch):
    """The package named mxnet is ours here, so that all goes its way without MXNet."""
    (tmp_path / "mxnet.py").write_text("import sys, dpmodule\nsys.modules[__name__] = dpmodule\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    line = ["fit", "--quick", "--rounds", "1", "--against", f"mxnet={sys.executable}"]
    done = run_module("benchmarks", *line, "--output", tmp_path / "found.md", cwd=ROOT, fresh=True)
    assert done.returncode == 0, done.stdout + done.stderr
    text = tables_of(tmp_path / "found.md").read_text(encoding="utf-8")
    text, _, columns = text.partition("## Processors and settings")
    assert "ours against mxnet, NCHW/fused/slices" in text
    assert text.count("| MXNet |") == columns.count("| MXNet |") == 7
    assert text.count("| torch.compile |") == 2
    assert "these figures are meaningless" in text


BEFORE_ROWS = {"fit": 7, "bucketing": 1, "startup": 8, "streams": 23, "autobatch": 55}
"""Parts that compare with another revision, and how many rows their quick forms have, without uvloop and GPU."""


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_quick_forms_of_the_parts_that_compare(tmp_path):
    shutil.copytree(Path(mx.__file__).parent, tmp_path / "copy" / "dpmodule")  # compiled files and all
    before = f"before={tmp_path / 'copy'}"
    options = ["--quick", "--rounds", 1, "--against", before, "--output", tmp_path / "found.md"]
    done = run_module("benchmarks", *BEFORE_ROWS, *options, seconds=1700, cwd=ROOT, fresh=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    rows = {name: len(part["tables"][BEFORE]) - 2 for name, part in found.items()}
    rows["streams"] -= 2 * (importlib.util.find_spec("uvloop") is not None)
    rows["autobatch"] -= 5 * torch.cuda.is_available()
    assert rows == BEFORE_ROWS
    for part in found.values():
        held = [each for each in part["targets"] if "before over now, upper quartile" in each["what"]]
        assert {(each["must"], each["at_most"]) for each in held} == {(1.0, False)}
        assert len(held) == len(part["tables"][BEFORE]) - 2

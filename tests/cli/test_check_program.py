"""``dpmodule check --program``: which lines of an old program it names, and what it refuses."""

import functools
import importlib.util
import re
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import dpmodule as mx
from dpmodule.cli import check_program
from helpers import moving_errors
from helpers.moving_errors import ERRORS


@pytest.fixture
def check(run, tmp_path):
    """Return what checks a program given as text."""

    def call(text):
        (tmp_path / "old.py").write_text(textwrap.dedent(text), encoding="utf-8")
        return run("check", "--program", "old.py")

    return call


def lines(done):
    return [line.removeprefix("old.py:") for line in done.out.splitlines()[:-1]]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("import mxnet", "import dpmodule as mxnet"),
        ("import mxnet.io", "import dpmodule.io, and dpmodule for mxnet"),
        ("from mxnet.io import DataBatch", "from dpmodule.io import DataBatch"),
        ("from mxnet.model import *", "from dpmodule.model import *"),
        ("import _dynet as dy", "import dpmodule.autobatch as dy"),
        ("import paddle.fluid as fluid", "import dpmodule.fluid as fluid"),
        (
            "from parlai.core.worlds import create_task as t",
            "from dpmodule.agents import create_task as t",
        ),
    ],
)
def test_imports_are_told_and_new_ones_need_nothing(old, new, check):
    done = check(old)
    (line,) = lines(done)
    assert done.code == 1
    assert line.startswith("1: import of ")
    assert line.endswith(f": write {new}")
    assert done.out.endswith("old.py: 1 line needs work\n")
    if ", and" not in new:
        moved = check(new)
        assert (moved.code, moved.out) == (0, "old.py: nothing needs work\n")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("mx.gluon.nn.Dense(3)", "mx.gluon.nn.Dense: use torch.nn"),
        ("mx.sym.FullyConected(x)", "mx.sym.FullyConected: dpmodule.symbol has no FullyConected, the near"),
        ("y = x[0].as_np_ndarray()", ".as_np_ndarray: use asnumpy()"),
        ("mx.nd.NDArray.as_np_ndarray(x)", "mx.nd.NDArray.as_np_ndarray: left out: belongs to the mx.np"),
        ("dy.get_device_info()", "dy.get_device_info: use available_devices()"),
        ("dy.cg().forward_vec(3)", ".forward_vec: use expression.vec_value()"),
        ("fluid.layers.nobody()", "fluid.layers.nobody: write the network with mx.sym"),
        ("paddle.batch(3)", "paddle.batch: use dpmodule.fluid.readers.batch"),
        ("TorchAgent()", "TorchAgent: put a torch.nn.Module into an agent"),
    ],
)
def test_names_that_are_not_here_are_told(line, found, check):
    start = """\
        import mxnet as mx
        import dynet as dy
        import paddle
        import paddle.fluid as fluid
        from parlai.core.torch_agent import TorchAgent
        sym = mx.sym
        x = [mx.nd.zeros(3), mx.nd.zeros(3).asnumpy(), mx.mod.Module, mx.gluon, dy.cg(), fluid.layers.fc]
        """
    done = check(textwrap.dedent(start) + line)
    (mine,) = (text for text in lines(done) if not text.startswith(("1:", "2:", "3:", "4:", "5:")))
    assert (done.code, mine.startswith(f"8: {found}")) == (1, True), mine


def test_a_program_is_read_and_not_run(check, tmp_path):
    done = check("import dpmodule as mx\nopen('ran', 'w')\nraise SystemExit(3)")
    assert (done.code, (tmp_path / "ran").exists()) == (0, False)
    others = "import numpy as np\nfrom . import mxnet_tools\nimport dpmodule as mx\nnp.nothing; self.mx.nothing; rtc.x"
    assert check(others).code == 0
    assert check("import dpmodule as mx\nx = " + " + ".join(["mx.nd.ones(1)"] * 500)).code == 0
    found = lines(check("import dpmodule as mx\n(mx.np.a, mx.np.a,\n mx.np.b)\nmx.npx.c\n"))
    assert [line.split(": ")[:2] for line in found] == [["2", "mx.np.a"], ["3", "mx.np.b"], ["4", "mx.npx.c"]]


ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "moving"


def page(name):
    return (PAGES / name).read_text(encoding="utf-8")


def shown(*names):
    """Return what stands in backticks on some pages."""
    return {each for name in names for each in re.findall(r"`([^`\n]+)`", page(name))}


def test_tables_are_those_that_the_script_makes():
    spec = importlib.util.spec_from_file_location("moving_tables", ROOT / "docs" / "moving_tables.py")
    script = importlib.util.module_from_spec(spec)
    sys.modules["moving_tables"] = script
    spec.loader.exec_module(script)
    stale = [path.name for path, text in script.written().items() if path.read_text(encoding="utf-8") != text]
    assert stale == [], "run: python docs/moving_tables.py"


def test_what_is_told_to_use_instead_is_there():
    table = check_program.moving_table()
    texts = [*table["instead"].values()]
    for path in PAGES.glob("*.md"):
        texts += re.findall("`([^`\n]+)`", path.read_text())
    names = {name for text in texts for name in re.findall(r"\bmx\.[\w.]*\w", text)}
    absent = ("mx.np", "mx.gluon", "mx.rtc", "mx.library", "mx.th")
    for name in sorted(names - shown("mxnet-left-out.md")):
        if not name.endswith(".X") and not name.startswith(absent):
            assert functools.reduce(getattr, name.split(".")[1:], mx) is not None, name
    for old in table["moved"]:
        assert check_program.find_target(old).is_module, old


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_those_that_the_page_tells(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = re.findall(r"^\| `([^`]*)` \|", page(f"{name}.md").split("## Ten errors")[1], re.MULTILINE)
    assert len(rows) == len(ERRORS[name]) == 10
    for told, statement in zip(rows, ERRORS[name]):
        if "gpu(0)" in told and torch.cuda.is_available():
            continue
        with pytest.raises(Exception) as raised:  # noqa: PT011  (which one it is, the page says)
            exec(statement, vars(moving_errors))
        assert f"{raised.type.__name__}: {raised.value}".startswith(told), statement


def test_names_of_paddle_with_advice_are_missing():
    advised = [path for path in check_program.moving_table()["instead"] if path.startswith("paddle")]
    here = [path for path in advised if check_program.find_target(path).path]
    assert here == ["paddle.fluid"]  # its advice is for names of it

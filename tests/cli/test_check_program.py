"""``dpmodule check --program``: which lines of an old program it names, and what it refuses."""

import textwrap

import pytest

from dpmodule.cli import moving


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
        ("import mxnet as mx", "import dpmodule as mx"),
        ("import mxnet", "import dpmodule as mxnet"),
        ("import mxnet.io", "import dpmodule.io, and dpmodule for mxnet"),
        ("import mxnet.ndarray as F", "import dpmodule.ndarray as F"),
        ("from mxnet import nd as arrays", "from dpmodule import nd as arrays"),
        ("from mxnet.io import DataBatch", "from dpmodule.io import DataBatch"),
        ("from mxnet.model import *", "from dpmodule.model import *"),
        ("import dynet as dy", "import dpmodule.autobatch as dy"),
        ("import _dynet as dy", "import dpmodule.autobatch as dy"),
        ("import paddle.fluid as fluid", "import dpmodule.fluid as fluid"),
        ("from paddle import fluid", "from dpmodule import fluid"),
        ("from parlai.core.agents import Agent", "from dpmodule.agents import Agent"),
        (
            "from parlai.core.worlds import create_task as make",
            "from dpmodule.agents import create_task as make",
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
        ("mx.np.zeros(3)", "mx.np.zeros: left out: belongs to the mx.np and mx.npx interface"),
        ("mx.rtc.CudaModule('')", "mx.rtc.CudaModule: left out: compiles CUDA source"),
        ("mx.gluon.nn.Dense(3)", "mx.gluon.nn.Dense: use torch.nn"),
        (
            "mx.sym.FullyConected(x)",
            "mx.sym.FullyConected: dpmodule.symbol has no FullyConected, the nearest name is",
        ),
        ("sym.Foo(x)", "sym.Foo: dpmodule.symbol has no Foo"),
        ("y = x[0].as_np_ndarray()", ".as_np_ndarray: use asnumpy()"),
        ("mx.nd.NDArray.as_np_ndarray(x)", "mx.nd.NDArray.as_np_ndarray: left out: belongs to the mx.np"),
        ("mx.contrib.text.vocab", "mx.contrib.text.vocab: left out: vocabularies"),
        ("dy.get_device_info()", "dy.get_device_info: use available_devices()"),
        ("dy.cg().forward_vec(3)", ".forward_vec: use expression.vec_value()"),
        ("fluid.CUDAPlace(0)", "fluid.CUDAPlace: use CPUPlace()"),
        ("fluid.layers.nobody()", "fluid.layers.nobody: write the network with mx.sym"),
        ("paddle.batch(3)", "paddle.batch: cut a list into slices"),
        ("Timer()", "Timer: use Python's time"),
    ],
)
def test_names_that_are_not_here_are_told(line, found, check):
    start = """\
        import mxnet as mx
        import dynet as dy
        import paddle
        import paddle.fluid as fluid
        from parlai.core.utils import Timer
        sym = mx.sym
        x = [mx.nd.zeros(3), mx.nd.zeros(3).asnumpy(), mx.mod.Module, mx.gluon, dy.cg(), fluid.layers.fc]
        """
    done = check(textwrap.dedent(start) + line)
    mine = [text for text in lines(done) if not text.startswith(("1:", "2:", "3:", "4:", "5:"))]
    assert done.code == 1
    assert len(mine) == 1
    assert mine[0].startswith(f"8: {found}")


def test_nothing_of_the_program_runs(check, tmp_path):
    done = check("import dpmodule as mx\nopen('ran', 'w')\nraise SystemExit(3)")
    assert done.code == 0
    assert not (tmp_path / "ran").exists()


def test_other_names_are_left_alone(check):
    text = "import numpy as np\nfrom . import mxnet_tools\nimport dpmodule as mx\nnp.nothing; self.mx.nothing; rtc.x\n"
    assert check(text).code == 0


def test_lines_come_in_order_and_once(check):
    found = lines(check("import dpmodule as mx\n(mx.np.a, mx.np.a,\n mx.np.b)\nmx.npx.c\n"))
    assert [line.split(": ")[:2] for line in found] == [["2", "mx.np.a"], ["3", "mx.np.b"], ["4", "mx.npx.c"]]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"print 'python 2'\n", "this is no Python 3: line 1: "),
        (b"\x7fELF\x00\x01\xff", "this is no Python 3: "),
        (b"import mxnet\nx = '\xff'\n", "this is no Python 3: "),
        (b"x = \x00\n", "this is no Python 3: "),
        (b"import numpy\n", "imports none of mxnet, dynet, paddle, parlai and dpmodule"),
        (b"", "imports none of "),
        (b"import mxnet\n" + b"#" * 1_100_000, "1,100,013 bytes, expected a program of at most 1,048,576"),
        (b"x = " + b"(" * 10_000, "this is no Python 3: "),
        (b"x = " + b"-" * 100_000 + b"1", "this is no Python 3: "),
    ],
)
def test_what_is_no_program_of_these_is_one_line(content, said, run, tmp_path):
    (tmp_path / "old.py").write_bytes(content)
    done = run("check", "--program", "old.py")
    assert f"old.py: {said}" in done.error
    assert done.out == ""
    assert len(done.err.splitlines()) == 1


def test_devices_missing_files_and_networks_beside_it_are_refused(run, tmp_path):
    (tmp_path / "old.py").write_text("import mxnet")
    assert "this is a device or a pipe" in run("check", "--program", "/dev/zero").error
    assert "there is none of this name" in run("check", "--program", "gone.py").error
    for more in (["net"], ["--prefix", "net"], ["--shape", "1,2"]):
        assert "a network are given, expected one of them" in run("check", "--program", "old.py", *more).error


def test_long_sums_do_not_exhaust_the_stack(check):
    assert check("import dpmodule as mx\nx = " + " + ".join(["mx.nd.ones(1)"] * 500)).code == 0


def test_advice_is_for_names_that_are_not_here():
    assert moving.find("mxnet.gluon.data.DataLoader").lacks.startswith("use torch.utils.data")
    assert moving.find("dpmodule.gluon.rnn.LSTM").lacks.startswith("use mx.rnn")
    groups = {"dynet.ComputationGraph", "dynet.inputTensorTranspose", "paddle.fluid"}
    groups |= {path for path in moving.known()["instead"] if path.startswith("mxnet.gluon")}
    for path in moving.known()["instead"]:
        assert moving.find(path).path is None or path in groups, path

"""Programs that import mxnet, dynet or paddle, run as they are; those of ParlAI are in `tests/agents/parlai`."""

import py_compile
import re
import shutil
import signal
import sys

import pytest

from helpers.programs import Program, run_program

CHILDREN = """
import multiprocessing, pickle, sys, mxnet as mx
class Own: pass
def total(n, end):
    import mxnet
    end.send((float(mxnet.nd.ones(n).sum().asscalar()), mxnet.__version__, str(mxnet.gpu(0))))
if __name__ == "__main__":
    assert type(pickle.loads(pickle.dumps(Own()))) is Own
    start = multiprocessing.get_context(sys.argv[1])
    mine, others = start.Pipe()
    child = start.Process(target=total, args=(2, others))
    child.start()
    print(mine.recv())
    child.join()
"""


def run(tmp_path, source, *words, before=(), name="program.py", **changes):
    """Run a program by ``python -m dpmodule``."""
    (tmp_path / name).write_text(source)
    command = [sys.executable, "-m", "dpmodule", *before, name, *words]
    code = f"import subprocess, sys; sys.exit(subprocess.run({command!r}).returncode)"
    return run_program(code, cwd=tmp_path, **changes)


def test_imports_of_mxnet_are_this_package(tmp_path):
    done = run(
        tmp_path,
        "import importlib.util, mxnet as mx, mxnet.ndarray as nd, dpmodule\n"
        "from mxnet import gluon\nfrom mxnet.io import DataBatch\nimport mxnet.module.module, mxnet.contrib.io\n"
        "assert mx.nd is nd is dpmodule.nd and DataBatch is dpmodule.io.DataBatch\n"
        "assert mx.__version__ == mx.libinfo.__version__ == '1.9.1' != dpmodule.__version__\n"
        "assert importlib.util.find_spec('mxnet') and importlib.util.find_spec('mxnet.symbol')\n"
        "assert nd.__spec__.name == 'dpmodule.ndarray'\n"
        "import sys; print(sys.argv, __name__, __spec__)",
        "--cpu",
        "a b",
    )
    assert done.stdout == "['program.py', '--cpu', 'a b'] __main__ None\n", done.stderr


@pytest.mark.parametrize("how", ["spawn", "forkserver"])
def test_children_answer_the_same(tmp_path, how):
    done = run(tmp_path, CHILDREN, how, before=["--cpu"])
    assert done.stdout == "(2.0, '1.9.1', 'cpu(0)')\n", done.stderr


def test_children_answer_every_installed_system(tmp_path):
    code = (
        "import mxnet as mx, dynet as dy, _dynet; print(mx.__version__, dy.Model is _dynet.Model, mx.gpu(0))"
    )
    done = run(
        tmp_path,
        "import subprocess, sys, dpmodule\nfrom dpmodule.as_mxnet import install\ninstall('dynet')\n"
        f"dpmodule.install_as_mxnet()\nsubprocess.run([sys.executable, '-c', {code!r}])",
        before=["--cpu"],
    )
    assert done.stdout == "1.9.1 True cpu(0)\n", done.stderr


def test_module_is_run_with_its_spec(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "other.py").write_text("import mxnet")
    (tmp_path / "package" / "module.py").write_text(
        "from . import other\nimport sys; print(__spec__.name, __package__, sys.argv[1:])"
    )
    command = [sys.executable, "-m", "dpmodule", "-m", "package.module", "x"]
    done = run_program(f"import subprocess; subprocess.run({command!r})", cwd=tmp_path)
    assert done.stdout == "package.module package ['x']\n", done.stderr


def test_folders_archives_and_compiled_programs(tmp_path):
    source = "import sys, other, mxnet\nprint(sys.argv, __spec__ and __spec__.name, __package__)"
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "__main__.py").write_text(source)
    (tmp_path / "folder" / "other.py").write_text("")
    shutil.make_archive(str(tmp_path / "archive"), "zip", tmp_path / "folder")
    py_compile.compile(tmp_path / "folder" / "__main__.py", tmp_path / "folder" / "compiled.pyc")
    for program, shown in [
        ("folder", "['folder', 'x'] __main__ "),
        ("archive.zip", "['archive.zip', 'x'] __main__ "),
        ("folder/compiled.pyc", "['folder/compiled.pyc', 'x'] None None"),
    ]:
        command = [sys.executable, "-m", "dpmodule", program, "x"]
        done = run_program(f"import subprocess; subprocess.run({command!r})", cwd=tmp_path)
        assert done.stdout == f"{shown}\n", done.stderr
    (tmp_path / "empty.zip").write_bytes(b"PK\5\6" + bytes(18))
    command = [sys.executable, "-m", "dpmodule", "empty.zip"]
    done = run_program(f"import subprocess; print(subprocess.run({command!r}).returncode)", cwd=tmp_path)
    assert done.stdout == "1\n"
    assert f"can't find '__main__' module in '{tmp_path}/empty.zip'" in done.stderr


def test_error_before_the_main_module_shows_where(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("1 / 0")
    (tmp_path / "package" / "module.py").write_text("")
    command = [sys.executable, "-m", "dpmodule", "-m", "package.module"]
    done = run_program(f"import subprocess; subprocess.run({command!r})", cwd=tmp_path)
    assert "package/__init__.py" in done.stderr
    assert "dpmodule" not in done.stderr


def test_traceback_shows_the_program_only(tmp_path):
    done = run(tmp_path, "import mxnet\ndef f():\n    raise KeyError('x')\nf()\n")
    assert done.returncode == 1
    assert done.stderr.startswith(
        f'Traceback (most recent call last):\n  File "{tmp_path}/program.py", line 4'
    )
    assert "dpmodule" not in done.stderr
    assert "runpy" not in done.stderr


def test_invalid_program_ends_as_in_python(tmp_path):
    done = run(tmp_path, "x = = 1\n")
    assert done.returncode == 1
    assert "SyntaxError" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("source", "code"), [("sys.exit(3)", 3), ("sys.exit('no')", 1), ("pass", 0)])
def test_exit_code_is_the_programs(tmp_path, source, code):
    assert run(tmp_path, f"import sys\n{source}\n").returncode == code


def test_interrupt_ends_as_in_python(tmp_path):
    (tmp_path / "program.py").write_text("import time\nprint('on', flush=True)\ntime.sleep(60)\n")
    with Program("module", "dpmodule", "program.py", cwd=tmp_path, fresh=True) as program:
        program.read(1)
        program.send_signal(signal.SIGINT)
        assert program.wait() == -signal.SIGINT
        assert "KeyboardInterrupt" in program.output()[1]
        assert "runpy" not in program.output()[1]


@pytest.mark.parametrize("name", ["fit.py", "convert.py"])
def test_help_and_name_are_the_programs(tmp_path, name):
    done = run(tmp_path, "import argparse; argparse.ArgumentParser().parse_args()", "-h", name=name)
    assert done.returncode == 0
    assert done.stdout.startswith(f"usage: {name} [-h]")


def test_missing_names_say_why(tmp_path):
    done = run(
        tmp_path,
        "import mxnet as mx\n"
        "for line in ['mx.np', 'mx.rtc', 'import mxnet.numpy', 'import mxnet.contrib.text',\n"
        "             'mx.nd.ones(1, ctx=mx.gpu(0))', 'from mxnet import np']:\n"
        "    try: exec(line)\n"
        "    except Exception as error: print(error)\n",
    )
    lines = done.stdout.splitlines()
    assert "use mx.nd" in lines[0]
    assert "CustomOp" in lines[1]
    assert "use mx.nd" in lines[2]
    assert "collections.Counter" in lines[3]
    assert "--cpu" in lines[4]
    assert "use mx.nd" in lines[5]


def test_missing_names_of_submodules_say_why(tmp_path):
    expected = {
        "from mxnet.base import check_call": "ImportError.*'mxnet.base': left out: belongs to MXNet's ctypes",
        "mx.base.check_call": "AttributeError mxnet.base.check_call is missing: left out: belongs to",
        "mx.engine.check_call": "AttributeError mxnet.engine.check_call is missing: left out: belongs to",
        "from mxnet.contrib import text": "ImportError.*count words with collections.Counter",
        "from mxnet.contrib.ndarray import dgl_subgraph": "ImportError.*Deep Graph Library",
        "mx.nd.np": "AttributeError.*use mx.nd, NumPy",
        "from mxnet import np": "ImportError.*use mx.nd, NumPy",
        "from mxnet.ndarray import xyz": "ImportError.*'mxnet.ndarray': dpmodule.ndarray has no xyz",
        "from mxnet.module import Modul": "ImportError.*has no Modul, the nearest name is Module",
        "mx.gluon.nn.Dense(3)": "MXNetError.*gluon.SymbolBlock.imports",
        "import mxnet.base; assert not hasattr(mxnet.base, 'check_call')": "None",
    }
    done = run(
        tmp_path,
        f"import mxnet as mx\nfor line in {list(expected)!r}:\n    try: exec(line); print(None)\n"
        "    except Exception as error: print(type(error).__name__, error)\n",
    )
    lines = done.stdout.splitlines()
    assert len(lines) == len(expected)
    for line, text in zip(lines, expected.values(), strict=True):
        assert re.match(text, line), line


def test_old_names_of_numpy(tmp_path):
    source = (
        "import numpy as np\nassert np.int is int and np.float is float and np.object is object\n"
        "assert np.fromstring(b'ab', dtype=np.uint8).tolist() == [97, 98]\n"
        "assert np.fromstring('1 2', sep=' ').tolist() == [1, 2]\n"
        "assert np.__version__ < '2' or np.bool is np.bool_\nprint('done')"
    )
    assert run(tmp_path, source, before=["--old-numpy"]).stdout == "done\n"
    assert run(tmp_path, source).returncode == 1


def test_installed_mxnet_is_replaced_only_if_asked(tmp_path):
    (tmp_path / "mxnet").mkdir()
    (tmp_path / "mxnet" / "__init__.py").write_text("raise SystemExit('the other')")
    source = "import mxnet; print(mxnet.__version__)"
    done = run(tmp_path, source)
    assert done.returncode == 2
    assert "mxnet/__init__.py" in done.stderr
    assert "--replace" in done.stderr
    assert run(tmp_path, source, before=["--replace"]).stdout == "1.9.1\n"


def test_imported_mxnet_is_replaced_only_if_asked(tmp_path):
    (tmp_path / "mxnet").mkdir()
    (tmp_path / "mxnet" / "__init__.py").write_text("__version__ = '0'")
    (tmp_path / "mxnet" / "ndarray.py").write_text("")
    done = run_program(
        "import sys, mxnet, mxnet.ndarray, dpmodule\nsys.path.pop(0)\n"
        "try: dpmodule.install_as_mxnet()\nexcept dpmodule.base.StateError as error: print(error)\n"
        "import mxnet as same\nassert same is mxnet\n"
        "dpmodule.install_as_mxnet(replace=True)\n"
        "import mxnet, mxnet.ndarray\nprint(mxnet.__version__, mxnet.ndarray is dpmodule.nd, same.__version__)",
        cwd=tmp_path,
    )
    first, second = done.stdout.splitlines()
    assert f"mxnet itself is already imported ({tmp_path}/mxnet/__init__.py)" in first
    assert second == "1.9.1 True 0"


def test_sitecustomize_of_the_user_runs_in_children(tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("import builtins; builtins.own = __file__")
    source = (
        "import os, subprocess, sys\n"
        f"os.environ['PYTHONPATH'] += os.pathsep + {str(tmp_path / 'own')!r}\n"
        "subprocess.run([sys.executable, '-c', 'import mxnet; print(mxnet.__version__, own)'])\n"
    )
    assert run(tmp_path, source).stdout.startswith("1.9.1 ")


PADDLE = """
import random
import numpy as np
import paddle
import paddle.fluid as fluid
from paddle import fluid as same
assert same is fluid is paddle.fluid and paddle.__version__ == "1.8.5"

def samples():
    for _ in range(200):
        label = random.randrange(2)
        yield [50 * label + random.randrange(50) for _ in range(random.randrange(1, 6))], label

random.seed(0)
words = fluid.data(name="words", shape=[None, 1], dtype="int64", lod_level=1)
label = fluid.data(name="label", shape=[None, 1], dtype="int64")
rows = fluid.embedding(input=words, size=[100, 8], is_sparse=True)
scores = fluid.layers.fc(input=fluid.layers.sequence_pool(rows, "sum"), size=2, act="softmax")
cost = fluid.layers.mean(fluid.layers.cross_entropy(input=scores, label=label))
accuracy = fluid.layers.accuracy(input=scores, label=label)
fluid.optimizer.Adagrad(learning_rate=0.1).minimize(cost)
place = fluid.CUDAPlace(0) if fluid.core.is_compiled_with_cuda() else fluid.CPUPlace()
executor = fluid.Executor(place)
executor.run(fluid.default_startup_program())
feeder = fluid.DataFeeder(feed_list=[words, label], place=place)
reader = paddle.batch(paddle.reader.shuffle(samples, buf_size=100), batch_size=20)
for epoch in range(5):
    for batch in reader():
        found = executor.run(feed=feeder.feed(batch), fetch_list=[cost, accuracy])
fluid.io.save_inference_model("model", ["words"], [scores], executor)
with fluid.scope_guard(fluid.core.Scope()):
    program, feeds, fetches = fluid.io.load_inference_model("model", executor)
    (shares,) = executor.run(program, feed={feeds[0]: fluid.create_lod_tensor([[1, 2], [60]], [[2, 1]], place)},
                             fetch_list=fetches)
print(float(np.array(found[1]).reshape(-1)[0]) > 0.9, shares.argmax(1).tolist())
try: import paddle.nothing
except ImportError as error: print(error.name)
"""


def test_paddle(tmp_path):
    done = run(tmp_path, PADDLE, before=["--as", "paddle"])
    assert done.stdout == "True [0, 1]\npaddle.nothing\n", done.stdout + done.stderr


def test_dynet(tmp_path):
    done = run(
        tmp_path,
        "import dynet as dy, _dynet, sys, dpmodule.autobatch as ours\nassert dy.Model is _dynet.Model is ours.Model\n"
        "print(sys.argv[1:], dy.settings()['autobatch'])\n"
        "try: import dynet_config\nexcept ImportError as error: print(error)\n",
        "--dynet-autobatch",
        "1",
        "x",
        before=["--as", "dynet"],
    )
    first, second = done.stdout.splitlines()
    assert first == "['x'] True"
    assert "dy.configure" in second


@pytest.mark.parametrize(
    ("before", "text"),
    [
        (["--as", "other"], "expected one of mxnet, dynet, paddle"),
        (["--cpu", "--nosuch"], "--nosuch: expected a program"),
    ],
)
def test_wrong_options(tmp_path, before, text):
    done = run(tmp_path, "", before=before)
    assert done.returncode == 2
    assert text in done.stderr


def test_pickles_of_mxnet_load(tmp_path):
    from helpers.programs import TESTS

    source = (
        "import pickle, sys\nwith open(sys.argv[1], 'rb') as file:\n    arrays = pickle.load(file)\n"
        "import mxnet as mx\nassert isinstance(arrays[0], mx.nd.NDArray) and arrays[2] == mx.cpu()\n"
        "print(arrays[0].asnumpy().tolist(), arrays[1].dtype.__name__, arrays[3].shape)"
    )
    done = run(tmp_path, source, str(TESTS / "data" / "formats" / "pickled.pkl"))
    assert done.stdout == "[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]] int64 (2, 3)\n", done.stderr


def test_sparse_pickles_of_mxnet_load(tmp_path):
    from helpers.programs import TESTS

    source = (
        "import pickle, sys\nwith open(sys.argv[1], 'rb') as file:\n    a, b = pickle.load(file)\n"
        "print(a.stype, a.context, a.asnumpy().tolist())\nprint(b.stype, b.asnumpy().tolist(), b.indices.asnumpy())"
    )
    done = run(tmp_path, source, str(TESTS / "data" / "formats" / "pickled_sparse.pkl"))
    assert done.stdout == (
        "csr cpu(0) [[1.0, 0.0, 2.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.0, 3.0, 0.0, 0.0]]\n"
        "row_sparse [[1.0, 2.0], [0.0, 0.0], [3.0, 4.0], [0.0, 0.0]] [0 2]\n"
    ), done.stderr


def test_threads_and_subprocesses(tmp_path):
    source = (
        "import subprocess, sys, threading\n"
        "def other():\n    import mxnet; print(mxnet.nd.ones(2).sum().asscalar(), flush=True)\n"
        "thread = threading.Thread(target=other); thread.start(); thread.join()\n"
        "subprocess.run([sys.executable, '-c', 'import mxnet; print(mxnet.__version__)'])\n"
    )
    assert run(tmp_path, source).stdout == "2.0\n1.9.1\n"


def test_running_process_and_notebook(tmp_path):
    code = "import dpmodule\ndpmodule.install_as_mxnet()\nimport mxnet\nassert mxnet.sym is dpmodule.sym\nprint('yes')"
    assert run_program(code).stdout == "yes\n"
    shell = pytest.importorskip("IPython.core.interactiveshell")
    code = (
        f"from {shell.__name__} import InteractiveShell\nshell = InteractiveShell.instance()\n"
        "shell.run_cell('%load_ext dpmodule\\nimport mxnet; print(mxnet.__version__)')"
    )
    assert "1.9.1" in run_program(code, IPYTHONDIR=str(tmp_path), HOME=str(tmp_path)).stdout


@pytest.mark.parametrize("workers", ["0", "2"])
def test_pytest_and_its_workers(tmp_path, workers):
    (tmp_path / "pytest.ini").write_text("")
    (tmp_path / "conftest.py").write_text("import mxnet")
    (tmp_path / "test_it.py").write_text(
        "import os\ndef test_it():\n    import mxnet.symbol\n"
        f"    assert ('PYTEST_XDIST_WORKER' in os.environ) == ({workers} > 0)"
    )
    options = ["-q", "-p", "dpmodule.as_mxnet", "-p", "no:cacheprovider", "-n", workers, "test_it.py"]
    code = (
        "import os, subprocess, sys\n"
        "for name in [name for name in os.environ if name.startswith('PYTEST_XDIST')]: del os.environ[name]\n"
        f"sys.exit(subprocess.run([sys.executable, '-m', 'pytest', *{options!r}]).returncode)"
    )
    done = run_program(code, cwd=tmp_path)
    assert done.returncode == 0, done.stdout

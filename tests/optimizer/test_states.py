"""States as bytes: round trips, MXNet's own files, and pickles that would do harm."""

import io
import os
import pickle
import pickletools
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dpmodule as mx
from dpmodule import lr_scheduler, optimizer
from dpmodule.base import FileFormatError
from dpmodule.optimizer.base import registry
from helpers.rules import VARIANTS
from helpers.walk import walks

GOLDENS = Path(__file__).parents[1] / "data" / "goldens"
DUMPS = dict(np.load(GOLDENS / "optim" / "dumps.npz"))


def trained(name, dtype="float32", **kwargs):
    update = optimizer.get_updater(optimizer.create(name, learning_rate=0.1, **kwargs))
    rng = np.random.RandomState(0)
    weights = [mx.nd.array(rng.randn(*shape), dtype=dtype) for shape in ((3, 2), (4, 1))]
    step(update, weights)
    return update, weights


def step(update, weights):
    rng = np.random.RandomState(1)
    grads = [mx.nd.array(rng.randn(*w.shape), dtype=w.dtype) for w in weights]
    update.update_all([0, "b"], grads, weights)


@pytest.mark.parametrize("name", sorted({key.split("/")[0] for key in DUMPS}))
def test_training_goes_on_from_a_dump_of_mxnet(name):
    update = optimizer.get_updater(optimizer.create("test"))
    update.set_states(DUMPS[f"{name}/dump"].tobytes())
    assert update.optimizer.num_update == (0 if name == "test" else 3)  # MXNet's Test does not count
    befores = [DUMPS[f"{name}/before{i}"] for i in (0, 1)]
    weights = [mx.nd.array(each, dtype=each.dtype) for each in befores]
    for t in (0, 1):
        grads = [mx.nd.array(g, dtype=g.dtype) for g in (DUMPS[f"{name}/grad{i}_{t}"] for i in (0, 1))]
        update.update_all([0, 1], grads, weights)
    if name == "sgld":  # its noise is not MXNet's
        return
    tolerance = 2e-3 if weights[0].dtype == np.float16 else 2e-6
    for i, weight in enumerate(weights):
        np.testing.assert_allclose(weight.asnumpy(), DUMPS[f"{name}/after{i}"], tolerance, tolerance)


@walks(
    [
        (name, kwargs, dump, dtype)
        for name, kwargs in VARIANTS
        for dump in (False, True)
        for dtype in ("float32", "float16")
        # as in MXNet, Nadam's schedule and gradients that wait belong to the optimizer, which only a dump holds
        if dump or not (name == "nadam" or "batch_scale" in kwargs)
    ]
)
def test_training_goes_on_where_it_stopped(name, kwargs, dump, dtype):
    options = {"multi_precision": dtype == "float16", **kwargs}
    update, weights = trained(name, dtype, **options)
    other = optimizer.get_updater(optimizer.create(name, learning_rate=0.1, **options))
    other.set_states(update.get_states(dump_optimizer=dump))
    assert (other.optimizer.num_update == 1) is dump
    if not dump:
        other.optimizer._update_count([0, "b"])
    copies = [w.copy() for w in weights]
    step(update, weights)
    step(other, copies)
    for a, b in zip(weights, copies):
        np.testing.assert_array_equal(a.asnumpy(), b.asnumpy())


def test_names_in_the_bytes_are_mxnets():
    """MXNet 1.9.1 reads these bytes (checked with it by hand): the classes they name are its own."""
    update, _ = trained("sgd", momentum=0.9, lr_scheduler=lr_scheduler.FactorScheduler(3, base_lr=0.1))
    names = {arg for op, arg, _ in pickletools.genops(update.get_states(True)) if op.name == "GLOBAL"}
    theirs = {"ndarray.ndarray NDArray", "optimizer.optimizer SGD", "lr_scheduler FactorScheduler"}
    assert names == {f"mxnet.{name}" for name in theirs} | {"builtins bytearray"}


def test_own_optimizers_come_back_if_they_are_registered():
    @optimizer.register
    class Mine(optimizer.SGD):
        pass

    data = optimizer.get_updater(Mine(momentum=0.25)).get_states(True)
    update = optimizer.get_updater(optimizer.create("sgd"))
    update.set_states(data)
    assert type(update.optimizer) is Mine
    registry._classes.pop("mine")
    with pytest.raises(FileFormatError, match="Mine.*import its module"):
        update.set_states(data)


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.float64, np.int64])
def test_settings_may_be_numbers_of_numpy(kind):
    made = optimizer.create("sgd", learning_rate=kind(1), wd=kind(0), momentum=kind(0))
    update = optimizer.get_updater(optimizer.create("sgd"))
    update.set_states(optimizer.get_updater(made).get_states(True))
    assert (update.optimizer.lr, update.optimizer.wd) == (1, 0)


def test_states_of_other_kinds():
    """What a user's own optimizer may keep: numbers, text, NumPy arrays, nested containers."""
    states = {
        0: None,
        "name": (mx.nd.array([1, 2], dtype="int64"), [1.5, "text", True, b"bytes"]),
        2: {"count": 3, "host": np.arange(6.0).reshape(2, 3), "number": np.float32(2.5)},
        3: np.asfortranarray(np.arange(6, dtype=">i4").reshape(2, 3)),
        4: mx.nd.NDArray(torch.ones(3, dtype=torch.bfloat16), mx.cpu()),
        5: [{1, ("a", 2)}, frozenset({3}), 2 - 1j, np.str_("text")],
    }
    update = optimizer.get_updater(optimizer.create("sgd"))
    update.states = states
    other = optimizer.get_updater(optimizer.create("sgd"))
    other.set_states(update.get_states())
    found = other.states
    assert list(found) == list(states)
    assert found[0] is None
    assert (found["name"][0].dtype, found["name"][1]) == (np.int64, [1.5, "text", True, b"bytes"])
    assert (found[2]["count"], found[2]["number"]) == (3, np.float32(2.5))
    np.testing.assert_array_equal(found[2]["host"], states[2]["host"])
    np.testing.assert_array_equal(found[3], states[3])
    assert found[4].tensor.dtype == torch.bfloat16
    assert [*found[5], *map(type, found[5])] == [*states[5], set, frozenset, complex, np.str_]


def test_numpy_states_of_every_protocol():
    for protocol in range(2, 6):
        data = pickle.dumps(OrderedDict({0: np.arange(4, dtype=np.float32), 1: np.int64(3)}), protocol)
        update = optimizer.get_updater(optimizer.create("sgd"))
        update.set_states(data)
        np.testing.assert_array_equal(update.states[0], np.arange(4))
        assert update.states[1] == 3


class Reduce:
    def __init__(self, *parts):
        self.parts = parts

    def __reduce__(self):
        return self.parts


CALLS = """
posix.system nt.system os.popen os.execv os.remove subprocess.Popen subprocess.getoutput builtins.compile builtins.open
builtins.__import__ importlib.import_module runpy.run_path pty.spawn webbrowser.open ctypes.CDLL codecs.decode
operator.attrgetter functools.partial types.FunctionType code.interact pickle.loads marshal.loads shutil.rmtree
timeit.timeit cProfile.run pdb.run logging.config.listen numpy.testing._private.utils.runstring torch.load
torch.serialization.load dpmodule.ndarray.save dpmodule.checkpoint.load_checkpoint mxnet.base.check_call
copyreg.__newobj__ copyreg.add_extension multiprocessing.util.Finalize
"""


def hostile(mark):
    """Pickles that would write the file `mark`, or reach something that can, when loaded by pickle itself."""
    command = f"touch {mark}"
    system, text = Reduce(os.system, (command,)), f"V{mark}\n".encode()
    yield from map(pickle.dumps, (system, {0: system}, ({}, system), {0: np.array([system], dtype=object)}))
    yield f"cposix\nsystem\n(V{command}\ntR.".encode()  # protocol 0
    yield pickle.dumps({0: Reduce(eval, (f"open({str(mark)!r}, 'w')",))}, 2)
    yield b"cbuiltins\nexec\n(V" + f"open({str(mark)!r}, 'w')".encode() + b"\ntR."
    yield b"(cposix\nsystem\nV" + command.encode() + b"\no."
    yield b"\x80\x04\x8c\x05posix\x8c\x06system\x93V" + command.encode() + b"\n\x85R."
    yield from (b"cbuiltins\ngetattr\n(cos\npath\nVos\ntR.", b"cnumpy\nload\n(V/etc/passwd\ntR.")
    yield b"cnumpy.core.multiarray\n_reconstruct\n(cposix\nsystem\n(K\x00tC\x01btR."
    yield b"\x80\x04\x8c\x19mxnet.optimizer.optimizer\x8c\x0cSGD.__init__\x93)R."  # a dotted name
    yield b"cmxnet.lr_scheduler\nFactorScheduler\n(N}V__call__\nK\x01stb."  # an attribute of a class
    yield b"cmxnet.ndarray.ndarray\nNDArray\n(N}Vshape\nK\x01stb."
    yield from (b"\x80\x02\x82\x01.", b"Pmodule\n.")  # an extension, a persistent id
    for name in CALLS.split():
        where = "\n".join([*name.rsplit(".", 1), ""]).encode()
        yield b"c" + where + b"(" + text + b"tR."
        yield b"(" + text + b"i" + where + b"."
        yield b"\x80\x02c" + where + text + b"\x85\x81."


def test_hostile_pickles_run_nothing(tmp_path):
    mark, update = tmp_path / "mark", optimizer.get_updater(optimizer.create("sgd"))
    before, found = update.states, list(hostile(tmp_path / "mark"))
    for data in found:
        with pytest.raises(FileFormatError):
            update.set_states(data)
        assert list(tmp_path.iterdir()) == [], data
        assert update.states is before
    assert (lr_scheduler.FactorScheduler(3, base_lr=0.5)(1), mx.nd.ones((2,)).shape) == (0.5, (2,))
    pickle.loads(found[4])  # this is what must not happen
    assert mark.exists()


def test_shared_states():
    tower = 1.0
    for _ in range(60):  # 2**60 leaves if what is shared were built anew each time
        tower = (tower, tower)
    update = optimizer.get_updater(optimizer.create("sgd"))
    update.set_states(pickle.dumps({0: tower}))
    assert update.states[0][0] is update.states[0][1]


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.data())
def test_damaged_files_are_refused_or_read(data):
    """A byte changed, or the end cut off: never another error, and never anything but data."""
    raw = bytearray((GOLDENS / "module" / "mlp-0010.states").read_bytes())
    if data.draw(st.booleans()):
        raw = raw[: data.draw(st.integers(0, len(raw) - 1))]
    else:
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    update = optimizer.get_updater(optimizer.create("sgd"))
    try:
        update.set_states(bytes(raw))
    except FileFormatError:
        return
    pickle.dump(update.states, io.BytesIO())

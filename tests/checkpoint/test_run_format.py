"""Run files: every value comes back with its type, its dtype and its bits."""

from collections import Counter, OrderedDict, defaultdict, deque

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.base import FileFormatError
from dpmodule.checkpoint import run_format
from dpmodule.ndarray import safetensors


def written(tmp_path, state):
    path = tmp_path / "a.run"
    with path.open("wb") as file:
        run_format.write(file, state)
    return path


def described(value):
    """Return a value as plain text that tells types, dtypes, shapes, memory order and bits apart."""
    name = type(value).__name__
    if isinstance(value, dict):
        factory = getattr(value, "default_factory", None)
        return name, factory, [(described(key), described(item)) for key, item in value.items()]
    if isinstance(value, (list, tuple, deque)):
        return name, getattr(value, "maxlen", None), [described(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return name, sorted(map(repr, map(described, value)))
    if isinstance(value, (mx.nd.NDArray, torch.Tensor)):
        raw = value.raw if isinstance(value, mx.nd.NDArray) else value
        return name, str(raw.dtype), tuple(raw.shape), repr(raw.tolist())
    if isinstance(value, (np.ndarray, np.generic)):
        flags = value.flags
        return name, value.dtype.str, value.shape, flags.f_contiguous, value.tobytes()
    return name, hex(value) if isinstance(value, int) else repr(value)


FLOATS = np.arange(6, dtype=np.float32).reshape(2, 3)
DATES = np.array(["2020-01-01", "NaT"], "datetime64[D]")
DTYPES = [torch.bfloat16, torch.float16, torch.uint16, torch.bool, torch.complex64, torch.float8_e4m3fn]

VALUES = {
    "paths that are equal": {"a": {"b.c": np.ones(2)}, "a.b": {"c": np.zeros(3)}, "a.b.c": np.ones(1)},
    "paths of lists": {"a": [np.ones(2)], "a.0": np.zeros(3), "__metadata__": np.ones(1), "\ud800": FLOATS},
    "keys by text": {1: np.ones(2), "1": np.zeros(3), False: 0} | {"$tuple": [1], "$": 2, "": 3},
    "plain": [None, True, False, 0, -(2**70), 10**5000, "", "a\0b\ud800"],
    "numbers": [0.1, -0.0, float("inf"), float("nan"), 2 - 1j],
    "collections": [(), [], {}, set(), (1, [2, (3,)]), {1, (2, "a")}, frozenset("x"), torch.Size([2, 3])],
    "mappings": [
        OrderedDict(b=1, a=2),
        Counter("hello"),
        defaultdict(int, a=1),
        *map(defaultdict, (list, None)),
    ],
    "floating scalars": [k(1.5) for k in (np.float16, np.float32, np.float64, np.longdouble, np.complex64)],
    "whole scalars": [k(3) for k in (np.int8, np.int64, np.uint8, np.uint64, np.bool_)],
    "scalars": [np.float64("nan"), *map(np.str_, ("é", "")), np.bytes_(b"x"), *DATES, np.timedelta64(3, "s")],
    "0-d": [np.array(2.5), np.array(3, np.int8), torch.tensor(1.5), mx.nd.NDArray(torch.tensor(1), mx.cpu())],
    "orders": [
        FLOATS,
        FLOATS.T,
        np.asfortranarray(FLOATS),
        FLOATS[:, ::2],
        FLOATS[::-1],
        FLOATS.astype(">f8"),
    ],  # fmt: skip
    "empty": [*map(np.zeros, ((0, 3), (2, 0))), np.array([], "U"), torch.zeros(0, 4), torch.tensor([])],
    "elements": [DATES, np.array([1, 2], "m8[ms]"), *map(np.array, (["a", "bcd"], [b"a"], [True, False]))],
    "integers": [np.array([1, 255], f"u{n}") for n in (1, 2, 4, 8)],
    "tensors": [torch.tensor([0, 1, 1]).to(dtype) for dtype in DTYPES],
    "strided tensors": [torch.arange(6.0).reshape(2, 3).T, torch.tensor([1 + 2j]).conj()],
    "gradients": [torch.ones(2, requires_grad=True)],
    "NDArrays": [mx.nd.ones((2, 3), dtype=d) for d in ("float32", "bfloat16", "float16", "int64", "bool")],
}


@pytest.mark.parametrize("name", VALUES)
def test_values_come_back_as_they_were(tmp_path, name):
    state = {"value": VALUES[name]}
    path = written(tmp_path, state)
    if name in ("strided tensors", "gradients"):
        state = {"value": [v.detach() for v in VALUES[name]]}
    assert (described(run_format.read(path)), run_format.peek(path).keys()) == (described(state), {"value"})


def test_row_sparse_arrays_and_numbers_at_hand(tmp_path):
    rows = mx.nd.sparse.row_sparse_array((np.ones((1, 2)), [3]), shape=(5, 2))
    path = written(tmp_path, {"rows": [rows, rows], "epoch": 3, "kind": np.int64(4)})
    state = run_format.read(path)
    for each in state["rows"]:
        assert each.stype == "row_sparse"
        np.testing.assert_array_equal(each.asnumpy(), rows.asnumpy())
    assert run_format.peek(path)["epoch"] == 3
    state["rows"][0].data[:] = 7
    assert run_format.read(path)["rows"][0].data.asnumpy().tolist() == [[1, 1]]


DAMAGED = [
    '{"$array": "9"}',
    '{"$numpy": "0", "dtype": "<f4", "shape": [9], "order": "C"}',
    '{"$numpy": "0", "dtype": "O", "shape": [1], "order": "C"}',
    '{"$tensor": "0", "dtype": "load", "shape": [1]}',
    '{"$tensor": "0", "dtype": "float32", "shape": [9]}',
    '{"$scalar": "00", "dtype": "<f4"}',
    '{"$list": [[]], "as": "set"}',
    '{"$dict": [[1]], "as": "dict"}',
    '{"$strange": 1}',
]


@pytest.mark.parametrize("text", DAMAGED)
def test_damaged_text(tmp_path, text):
    path = tmp_path / "a.run"
    for version, message in ((run_format.VERSION, r"a\.run: its text 'run' is damaged"), (1, "version 1")):
        with path.open("wb") as file:
            content = f'{{"version": {version}, "state": {{"a": {text}}}}}'
            safetensors.write(file, {"0": mx.nd.ones((4,), dtype="uint8")}, {"run": content})
        with pytest.raises(FileFormatError, match=message):
            run_format.read(path)

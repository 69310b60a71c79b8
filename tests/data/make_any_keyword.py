"""Record which operators of MXNet 1.9.1 take any keyword, and how they keep its value.

Run in an environment with MXNet 1.9.1: ``python make_any_keyword.py``. It makes a symbol of every operator with the
single keyword ``foreign`` and writes `any_keyword.json` beside itself: the names of the operators that take it, and the
text that ``relu`` keeps of values of several types.
"""

import ctypes
import json
from pathlib import Path

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, SymbolHandle, c_str, c_str_array, mx_uint, py_str

VALUES = (
    "3, 0.5, True, None, (1, 2), [1, 2], {'a': 1}, 'text', mx.cpu(), np.float32(0.1), np.int64(3), np.float32"
)


def names():
    """Return the names of all operators that users can call, aliases included."""
    count, texts = mx_uint(), ctypes.POINTER(ctypes.c_char_p)()
    _LIB.NNListAllOpNames(ctypes.byref(count), ctypes.byref(texts))
    return sorted(name for name in (py_str(texts[i]) for i in range(count.value)) if "_backward" not in name)


def accepts_any_keyword(name):
    """Say whether an operator takes the keyword; without parameters its others cannot be missing."""
    op, symbol = ctypes.c_void_p(), SymbolHandle()
    _LIB.NNGetOpHandle(c_str(name), ctypes.byref(op))
    keys, values = c_str_array(["foreign"]), c_str_array(["1"])
    return _LIB.MXSymbolCreateAtomicSymbol(op, mx_uint(1), keys, values, ctypes.byref(symbol)) == 0


def kept(value):
    """Return the text that a symbol keeps of a value."""
    return mx.sym.relu(mx.sym.Variable("x"), foreign=value).attr("foreign")


record = {
    "takes": [name for name in names() if accepts_any_keyword(name)],
    "values": VALUES,
    "kept": [kept(value) for value in eval(f"[{VALUES}]", {"mx": mx, "np": np})],
}
(Path(__file__).parent / "any_keyword.json").write_text(json.dumps(record, indent=1) + "\n")

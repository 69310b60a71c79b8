"""Operators: one declaration each, read by arrays, symbols, executors and (later) automatic batching and ONNX.

A module declares its operators when one of them is first asked for; `lazy_operators` says which module that is.
"""

from . import sparse as sparse
from .registry import add_lazy_operators as add_lazy_operators
from .registry import find as find
from .registry import get as get
from .registry import names as names
from .registry import namespace_of as namespace_of

"""Operators: one declaration each, used by arrays, symbols, executors, automatic batching and ONNX export.

A module is imported when one of its operators is first used; `lazy_operators` lists the operators of each module.
"""

from . import sparse as sparse
from .registry import add_lazy_operators as add_lazy_operators
from .registry import find as find
from .registry import get as get
from .registry import names as names
from .registry import namespace_of as namespace_of

"""Operators written in Python by users: `mx.operator`.

A class derived from `CustomOpProp`, registered under a name, describes an operator; the `CustomOp` it makes computes.
``mx.sym.Custom(..., op_type=name)`` and ``mx.nd.Custom`` apply it.

MXNet's module has no `__all__`, so programs written for it get what it imports itself by a star import. Those names
that they use are here for them.
"""

from __future__ import annotations

import ctypes
import traceback
import warnings

from ..base import NDArrayHandle, py_str
from ..ndarray import NDArray, array
from .base import CustomOp as CustomOp
from .base import CustomOpProp as CustomOpProp
from .listing import OperatorArguments as OperatorArguments
from .listing import get_all_registered_operators as get_all_registered_operators
from .listing import get_operator_arguments as get_operator_arguments
from .python_op import NDArrayOp as NDArrayOp
from .python_op import NumpyOp as NumpyOp
from .python_op import PythonOp as PythonOp
from .register import register as register

__all__ = [
    "CustomOp",
    "CustomOpProp",
    "NDArray",
    "NDArrayHandle",
    "NDArrayOp",
    "NumpyOp",
    "OperatorArguments",
    "PythonOp",
    "array",
    "ctypes",
    "get_all_registered_operators",
    "get_operator_arguments",
    "py_str",
    "register",
    "traceback",
    "warnings",
]

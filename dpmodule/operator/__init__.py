"""Operators written in Python by users: `mx.operator`.

A class derived from `CustomOpProp`, registered under a name, describes an operator; the `CustomOp` it makes computes.
``mx.sym.Custom(..., op_type=name)`` and ``mx.nd.Custom`` apply it.
"""

from .._core import lazy
from .base import CustomOp as CustomOp
from .base import CustomOpProp as CustomOpProp
from .python_op import NDArrayOp as NDArrayOp
from .python_op import NumpyOp as NumpyOp
from .python_op import PythonOp as PythonOp
from .register import OperatorArguments as OperatorArguments
from .register import get_all_registered_operators as get_all_registered_operators
from .register import get_operator_arguments as get_operator_arguments
from .register import register as register

__all__ = lazy.public_names(vars())

lazy.publish(__name__, __all__)

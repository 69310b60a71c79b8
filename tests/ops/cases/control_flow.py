"""Cases of `_foreach`, `_while_loop` and `_cond`: none.

They run subgraphs, which a row cannot hold; tests/symbol/test_control_flow.py compares them, and their gradients, with
recordings of MXNet. `Custom`, `_Native` and `_NDArray` run users' code; see tests/test_operator.py.
"""

from helpers.op_case import OpCase

CASES: list[OpCase] = []

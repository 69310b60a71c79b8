"""Calls of functions of one expression as the package's own records describe them, for those that no table here has.

DyNet's Python reads the tables (`autobatch_cases`, `misuse`), too; what only this package has needs no line there.
"""

from dpmodule.autobatch.ops.spec import find, names
from helpers.autobatch_cases import CASES
from helpers.misuse import RIGHT

__all__ = ["add_right_calls", "described_cases"]


def _described():
    return [op for op in map(find, names()) if op.text]


def add_right_calls():
    """Enter right calls of those that `misuse.RIGHT` does not have."""
    for op in _described():
        RIGHT.setdefault(op.name, [f"dy.{op.name}(X(3))"])


def described_cases():
    """Return cases, as `autobatch_cases.CASES` has them, of those that it does not have."""
    return {
        op.name: (("a",), lambda dy, x, name=op.name: getattr(dy, name)(x))
        for op in _described()
        if op.name not in CASES
    }

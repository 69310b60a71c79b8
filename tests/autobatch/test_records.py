"""An operation is said once: what its record says is what functions, engines and documentation have."""

from __future__ import annotations

import inspect

import pytest

import dpmodule.autobatch as dy
from dpmodule import native
from dpmodule.autobatch.ops import native_kernels
from dpmodule.autobatch.ops.spec import find, names

RECORDS = [find(name) for name in names()]
FUNCTIONS = [each for each in RECORDS if each.text]


@pytest.fixture(autouse=True)
def _as_at_first():
    yield
    dy.configure(engine="auto", autobatch=False)


def test_functions_are_documented_by_their_records():
    assert len(FUNCTIONS) > 25
    for op in FUNCTIONS:
        function = getattr(dy, op.name)
        assert (function.__module__, function.__name__) == ("dpmodule.autobatch", op.name)
        assert function.__doc__.startswith(f"{op.text}\n\nArgs:\n    x: the operand.")
        assert list(inspect.signature(function).parameters) == ["x"]


@pytest.mark.parametrize("engine", ["python", "auto"])
@pytest.mark.parametrize(("name", "argument"), [("elu", "alpha"), ("silu", "beta")])
def test_arguments_can_be_named_and_left_out(engine, name, argument):
    dy.configure(engine=engine)
    function, x = getattr(dy, name), dy.inputTensor([-0.3, 0.7])
    given = function(x, 1.0).npvalue().tolist()
    assert function(x).npvalue().tolist() == given
    assert function(x=x, **{argument: 1.0}).npvalue().tolist() == given
    assert function(x, 0.25).npvalue().tolist() != given
    with pytest.raises(TypeError, match=f"{name}: {argument}: str 'a' is not a number"):
        function(x, "a")
    with pytest.raises(TypeError, match="unexpected keyword argument 'beside'"):
        function(x, beside=1.0)


@pytest.mark.skipif(native.core is None, reason="no native extension")
def test_functions_of_records_run_natively_by_their_names():
    dy.configure(engine="native")
    for op in FUNCTIONS:
        if op.name not in native_kernels.UNARY:
            assert op.kernel is not None
            continue
        dy.renew_cg()
        machine, x = dy.cg().machine, dy.inputTensor([0.25, 0.5])
        for node in (getattr(dy, op.name)(x).node, dy.cg().append(op, (), (x.node,))):
            kernel, kind, *_ = machine.describe(machine.signature_of(node))
            assert (kernel, kind) == (native_kernels.OP["unary"], native_kernels.UNARY[op.name])

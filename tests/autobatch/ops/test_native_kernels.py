"""Numbers of the native engine's operations are those that the extension itself has; functions are said once."""

import inspect

import pytest
import torch

import dpmodule.autobatch as dy
from dpmodule import native
from dpmodule.autobatch.ops import native_kernels
from dpmodule.autobatch.ops.spec import find, names
from helpers.programs import run_program

KINDS = {
    "unary": native_kernels.UNARY,
    "binary": native_kernels.BINARY,
    "reduction": native_kernels.REDUCTION,
    "arrangement": native_kernels.ARRANGEMENT,
    "draw": native_kernels.DRAW,
    "convolution": native_kernels.CONVOLUTION,
    "operation": native_kernels.OP,
}
FUNCTIONS = [op for op in map(find, names()) if op.text]
needs_native = pytest.mark.skipif(native.core is None, reason="no native extension")


@needs_native
def test_numbers_come_from_the_extension():
    assert native.core.AUTOBATCH_NUMBERS == KINDS
    for kinds in KINDS.values():
        assert list(kinds.values()) == list(range(len(kinds)))
    with pytest.raises(KeyError):
        native_kernels.UNARY["none such"]


@needs_native
@pytest.mark.parametrize("name", ["tanh", "lgamma", "floor"])
def test_a_number_means_the_function_of_its_name(name):
    dy.configure(engine="native")
    x, machine = dy.inputTensor([1.5, 2.25]), dy.cg().machine
    node = machine.kernel(native_kernels.OP["unary"], native_kernels.UNARY[name], (x.node,), 0.0)
    dy.cg().forward(node)
    wanted = getattr(torch, name)(torch.tensor([[1.5, 2.25]]))
    torch.testing.assert_close(dy.cg().value(node), wanted, rtol=1e-5, atol=1e-6)
    op, kind, *_ = machine.describe(machine.signature_of(node))
    assert native_kernels.kernel_name(op, kind, ()) == name


def test_functions_are_documented_by_their_records_and_run_natively_by_their_names():
    assert len(FUNCTIONS) > 25
    for op in FUNCTIONS:
        function = getattr(dy, op.name)
        assert (function.__module__, function.__name__) == ("dpmodule.autobatch", op.name)
        assert function.__doc__.startswith(f"{op.text}\n\nArgs:\n    x: the operand.")
        assert list(inspect.signature(function).parameters) == ["x"]
        if native.core is None or op.name not in native_kernels.UNARY:
            assert op.kernel is not None
            continue
        dy.configure(engine="native")
        machine, x = dy.cg().machine, dy.inputTensor([0.25, 0.5])
        for node in (function(x).node, dy.cg().append(op, (), (x.node,))):
            kernel, kind, *_ = machine.describe(machine.signature_of(node))
            assert (kernel, kind) == (native_kernels.OP["unary"], native_kernels.UNARY[op.name])


PROGRAM = """
from dpmodule.autobatch.ops import native_kernels
import dpmodule.autobatch as dy
assert native_kernels.UNARY["tanh"] == -1 and native_kernels.OP["unary"] == -1 and not native_kernels.UNARY
assert dy.tanh(dy.inputTensor([0.0])).npvalue().tolist() == [0.0]
print(dy.explain().engine)
"""


def test_without_the_extension_there_are_no_numbers():
    done = run_program(PROGRAM, DPMODULE_NATIVE="0")
    assert done.stdout.strip() == "python", done.stderr

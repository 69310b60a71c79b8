"""Numbers of the native engine's operations are those that the extension itself has."""

import re
import textwrap
from pathlib import Path

import pytest
import torch

import dpmodule.autobatch as dy
from dpmodule import native
from dpmodule.autobatch.ops import native_kernels
from helpers.programs import run_program

NATIVE = Path(__file__).parents[3] / "dpmodule" / "native" / "autobatch"  # sources are not installed
KINDS = {
    "unary": native_kernels.UNARY,
    "binary": native_kernels.BINARY,
    "reduction": native_kernels.REDUCTION,
    "arrangement": native_kernels.ARRANGEMENT,
    "draw": native_kernels.DRAW,
    "convolution": native_kernels.CONVOLUTION,
    "operation": native_kernels.OP,
}
needs_native = pytest.mark.skipif(native.core is None, reason="no native extension")


@needs_native
def test_numbers_come_from_the_extension():
    assert native.core.AUTOBATCH_NUMBERS == KINDS
    for names in KINDS.values():
        assert list(names.values()) == list(range(len(names)))
    with pytest.raises(KeyError):
        native_kernels.UNARY["none such"]


@needs_native
@pytest.mark.parametrize("name", ["tanh", "lgamma", "floor"])
def test_a_number_means_the_function_of_its_name(name):
    dy.configure(engine="native")
    x = dy.inputTensor([1.5, 2.25])
    machine = dy.cg().machine
    node = machine.kernel(native_kernels.OP["unary"], native_kernels.UNARY[name], (x.node,), 0.0)
    dy.cg().forward(node)
    wanted = getattr(torch, name)(torch.tensor([[1.5, 2.25]]))
    torch.testing.assert_close(dy.cg().value(node), wanted, rtol=1e-5, atol=1e-6)
    op, kind, *_ = machine.describe(machine.signature_of(node))
    assert native_kernels.kernel_name(op, kind, ()) == name
    dy.configure(engine="auto")


@needs_native
def test_every_function_of_one_number_is_in_the_list_once():
    text = (NATIVE.parent / "kernels" / "unary_list.hpp").read_text()
    lines = re.findall(r'^(?:BY_LANES|BY_NUMBER|VALUE_BY_NUMBER)\(\w+, "(\w+)"', text, re.M)
    assert lines == list(native_kernels.UNARY)


def test_without_the_extension_there_are_no_numbers():
    text = """
        from dpmodule.autobatch.ops import native_kernels
        import dpmodule.autobatch as dy
        assert native_kernels.UNARY["tanh"] == -1 and native_kernels.OP["unary"] == -1 and not native_kernels.UNARY
        assert dy.tanh(dy.inputTensor([0.0])).npvalue().tolist() == [0.0]
        print(dy.explain().engine)
    """
    done = run_program(textwrap.dedent(text), DPMODULE_NATIVE="0")
    assert done.stdout.strip() == "python", done.stderr

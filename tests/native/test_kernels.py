"""Every kernel against plain loops in double precision, which kernels.cpp has."""

from pathlib import Path

import pytest

from dpmodule import native
from helpers import compiled
from helpers.programs import run_program

KERNELS = ["multiply", "dense", "unfold", "change_layouts", "conv3x3", "conv3x3_gradients"]
KERNELS += [
    "convolve",
    "run_layers",
    "norm_forward",
    "row_norm_forward",
    "softmax",
    "group_numbers",
    "recurrent",
]
CHECKS = Path(__file__).with_name("kernels.cpp")
pytestmark = [
    pytest.mark.skipif(compiled.compiler() is None, reason="there is no C++ compiler"),
    pytest.mark.skipif(not hasattr(native.core, "vector_width"), reason="there are no kernels"),
    pytest.mark.timeout(300),
]


def has(name):
    lanes = {"conv3x3": "conv3x3_lanes", "conv3x3_gradients": "conv3x3_lanes"}
    if name in lanes:
        return hasattr(native.core, name) and native.core.conv3x3_lanes() > 0
    return hasattr(native.core, name) and (
        name not in ("convolve", "run_layers") or native.core.convolution_block(64) > 0
    )


def check(name, seed, rounds):
    if not has(name):
        pytest.skip("there is no such kernel for this compiler or processor")
    getattr(compiled.load(CHECKS), name)(native.core, seed, rounds)


@pytest.mark.parametrize("name", KERNELS)
def test_kernel_is_a_plain_loop(name):
    check(name, 1, 100)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
@pytest.mark.parametrize("name", KERNELS)
def test_kernel_is_a_plain_loop_in_many_rounds(name, seed):
    check(name, seed, 1000)


@pytest.mark.parametrize(("isa", "width"), [("plain", 4), ("avx2", 8)])
def test_kernels_of_other_instructions(isa, width):
    code = (
        "from dpmodule import native\n"
        "from native import test_kernels as tests\n"
        "for name in filter(tests.has, tests.KERNELS):\n"
        "    tests.check(name, 1, 30)\n"
        "print(native.core.vector_width)"
    )
    done = run_program(code, DPMODULE_ISA=isa)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) == min(width, native.core.vector_width)

"""Operators on data of other layouts, with some gradients wanted: no crash of torch's, and the same numbers."""

import pytest

from helpers.programs import run_module

NATIVE = """
BatchNorm Convolution Deconvolution GroupNorm InstanceNorm L2Normalization LRN LayerNorm LinearRegressionOutput Pooling
RNN SVMOutput SoftmaxOutput softmax
"""


def check(types, *names, seconds=110):
    done = run_module("helpers.layout_sweep", types, *names, seconds=seconds)
    last = done.stderr.rsplit("\n", 2)[-2:]
    assert done.returncode == 0, f"exit code {done.returncode}, last tried {last}\n{done.stdout}"


def test_norms_poolings_and_recurrent_layers():
    check("float32,bfloat16", *NATIVE.split())


def test_kronecker_product():
    check("float32", "_npi_kron")


@pytest.mark.slow
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_every_operator(dtype):
    check(dtype, seconds=900)

"""TensorFloat-32 and the layout of images: which switches count, and what a GPU is given."""

import importlib
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule._devices import precision
from helpers.nets import lenet
from helpers.programs import run_program

MATMUL, CUDNN = torch.backends.cuda.matmul, torch.backends.cudnn


@pytest.fixture(autouse=True)
def settings():
    """Put torch's settings back."""
    before = MATMUL.allow_tf32, CUDNN.allow_tf32
    yield
    MATMUL.allow_tf32, CUDNN.allow_tf32 = before


def test_the_switch_sets_products_and_convolutions():
    mx.util.set_tf32(False)
    for before, now in ((False, True), (True, False)):
        assert mx.util.set_tf32(now) is before
        assert mx.util.is_tf32() == MATMUL.allow_tf32 == CUDNN.allow_tf32 == now
    MATMUL.allow_tf32, CUDNN.allow_tf32 = False, True  # torch's usual setting
    assert not mx.util.is_tf32()


NEWER = """
import torch
if not hasattr(torch.backends.cudnn, "conv"):
    raise SystemExit
torch.backends.cuda.matmul.fp32_precision = torch.backends.cudnn.conv.fp32_precision = "tf32"
torch.backends.cudnn.rnn.fp32_precision = "ieee"
from dpmodule._devices import precision
assert precision.is_tf32()
torch.backends.cudnn.conv.fp32_precision, torch.backends.cudnn.rnn.fp32_precision = "ieee", "tf32"
assert not precision.is_tf32()
"""


def test_settings_under_torch_s_newer_names_can_be_read():
    done = run_program(NEWER)
    assert done.returncode == 0, done.stderr


CORE, OURS = "MXNET_CUDA_ALLOW_TENSOR_CORE", "DPMODULE_TF32"
CONVERSION = "MXNET_CUDA_TENSOR_OP_MATH_ALLOW_CONVERSION"


ASKED = [({CORE: "1"}, None), ({CONVERSION: "0"}, None), ({CONVERSION: "1"}, True)]
ASKED += [({CONVERSION: "1", CORE: "0"}, False), ({OURS: "1", CORE: "0"}, True)]


@pytest.mark.parametrize(("environment", "asked"), ASKED)
def test_environment_variables(environment, asked):
    assert precision.tf32_from_environment(environment) is asked
    if asked:
        code = "import dpmodule as mx; raise SystemExit(not mx.util.is_tf32())"
        assert run_program(code, **environment).returncode == 0


LIKED = [(torch.float32, 8, True, True), (torch.float32, 8, False, False), (torch.float32, 7, True, False)]
LIKED += [(torch.float16, 6, False, False), (torch.bfloat16, 8, False, True)]


@pytest.mark.parametrize(("dtype", "generation", "tf32", "likes"), LIKED)
def test_the_layout_on_a_gpu_goes_by_type_generation_and_tf32(dtype, generation, tf32, likes, monkeypatch):
    monkeypatch.setattr(precision, "_generation", lambda device: generation)
    CUDNN.allow_tf32 = tf32
    there = SimpleNamespace(is_cuda=True, device="cuda:0")
    assert precision.prefers_channels_last(there, dtype) is likes
    assert precision.prefers_channels_last(torch.ones(1), dtype)  # on the CPU always


def test_the_usual_layout_gives_the_same(monkeypatch):
    layout = importlib.import_module("dpmodule.executor.passes.channels_last")  # the pass has its file's name
    data, found = np.random.RandomState(0).randn(4, 1, 10, 10).astype("f4"), []
    for likes in (True, False):
        monkeypatch.setattr(layout, "prefers_channels_last", lambda *_, likes=likes: likes)
        mx.random.seed(0)
        mod = mx.mod.Module(lenet())
        mod.bind([("data", data.shape)], [("softmax_label", (4,))])
        mod.init_params(mx.init.Xavier())
        mod.forward_backward(mx.io.DataBatch([mx.nd.array(data)], [mx.nd.zeros((4,))]))
        found.append([mod.get_outputs()[0].asnumpy(), *(g[0].asnumpy() for g in mod.group.grad_arrays)])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-6)

"""Contexts: torch devices take their place."""

import numpy as np
import torch

import dpmodule as mx
from helpers.nets import mlp
from helpers.programs import run_program

CPU = torch.device("cpu")


def test_a_torch_device_is_a_context_wherever_one_is_taken():
    one = mx.nd.ones((2, 6), ctx=CPU)
    moved = (
        one.as_in_context(CPU),
        one.copyto(CPU),
        one.tostype("csr").copyto(CPU),
        mx.nd.random.normal(ctx=CPU),
    )
    assert all(array.context == mx.cpu() for array in [one, *moved])
    assert mx.Context(torch.device("cuda", 3)) == mx.gpu(3)
    net = mlp()
    assert net.simple_bind(CPU, data=(2, 6)).outputs[0].context == mx.cpu()
    with mx.AttrScope(ctx_group="far"):
        far = mx.sym.Variable("x") * 2
    assert far.bind(CPU, [one], group2ctx={"far": torch.device("cpu", 1)}).outputs[0].context == mx.cpu(1)
    data = mx.io.NDArrayIter(np.zeros((4, 6), "f4"), np.zeros(4, "f4"), 2)
    for context in (CPU, [CPU, mx.cpu(1)], {CPU}):
        mx.mod.Module(net, context=context).fit(data, num_epoch=1)
    mx.mod.Module(net).fit(data, num_epoch=1, contexts=[CPU, CPU])
    mx.random.seed(3, ctx=CPU)
    assert mx.model.FeedForward(net, ctx=CPU).ctx == [mx.cpu()]


def test_gpus_of_other_kinds():
    program = "import dpmodule as mx\nprint(mx.gpu(1).torch_device, mx.context.gpu_module().__name__)"
    assert run_program(program, DPMODULE_GPU_TYPE="xpu").stdout.split() == ["xpu:1", "torch.xpu"]
    for ask in ("num_gpus", "gpu"):
        done = run_program(f"import dpmodule as mx\nmx.{ask}()", DPMODULE_GPU_TYPE="nosuch")
        assert "DeviceError: " in done.stderr
        assert "DPMODULE_GPU_TYPE is 'nosuch', which is not a device type of torch" in done.stderr

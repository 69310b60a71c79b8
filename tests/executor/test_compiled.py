"""Programs run through `torch.compile`: equal results, errors that name the node, and what happens without it."""

import warnings

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.base import NodeError
from dpmodule.executor import Binding, RunOptions, run_options
from dpmodule.executor.executor import Executor
from helpers.nets import blobs, conv_bn, mlp

S = mx.sym
BATCH = 8


def recurrent():
    cell = mx.rnn.FusedRNNCell(5, mode="gru", prefix="g_")
    outputs, _ = cell.unroll(3, S.Variable("data"), layout="NTC", merge_outputs=True)
    return S.SoftmaxOutput(S.FullyConnected(outputs, num_hidden=4, name="fc"), name="softmax")


CONVOLVED = S.SoftmaxOutput(S.FullyConnected(conv_bn(S.Variable("data"), 4), num_hidden=4), name="softmax")
NETS = {
    "dropout": (mlp(dropout=0.5), (6,), "eager"),  # which draws leave in many pieces
    "convolution": (CONVOLVED, (2, 8, 8), "aot_eager"),
    "fused": (recurrent(), (3, 2), "aot_eager"),
}


def trained(name, compile, steps=4):
    """Train and predict; return every output, the parameters and states, and the module."""
    symbol, shape, _ = NETS[name]
    mod = mx.mod.Module(symbol, compile=compile)
    mod.bind([("data", (BATCH, *shape))], [("softmax_label", (BATCH,))], inputs_need_grad=True)
    mx.random.seed(3)
    mod.init_params(mx.init.Uniform(0.3))
    mod.init_optimizer(optimizer_params={"learning_rate": 0.1, "momentum": 0.9})
    mx.random.seed(4)
    found = []
    for batch in mx.io.NDArrayIter(*blobs(BATCH * steps, shape), BATCH):
        mod.forward_backward(batch)
        found.append(mod.get_input_grads()[0].asnumpy())
        mod.update()
        mod.forward(batch, is_train=False)
        found.append(mod.get_outputs()[0].asnumpy())
    return found + [value.asnumpy() for each in mod.get_params() for value in each.values()], mod


def compiled(executor, compile):
    """Return an executor for prediction on the arrays of another one."""
    arrays, requests = executor.arg_dict, dict.fromkeys(executor.arg_dict, "null")
    return Executor(Binding(executor.graph, mx.cpu(), arrays, {}, requests, {}), options=run_options(compile))


def compiled_programs(mod):
    modes = [executor._default_mode for executor in mod.group.execs]
    return [each.is_compiled for mode in modes for each in mode._compiled.values()]


def check(name, backend, tolerance=1e-5, is_compiled=True):
    found, mod = trained(name, backend)
    for a, b in zip(trained(name, None)[0], found, strict=True):
        np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance / 10)
    assert compiled_programs(mod) == [is_compiled] * 2  # for training and for prediction
    return mod


@pytest.mark.parametrize("name", NETS)
def test_results_are_the_same(name):
    check(name, NETS[name][2])


def refuse(*args, **kwargs):
    raise RuntimeError("no C++ compiler found\nlong explanation")


def test_without_a_compiler_it_runs_uncompiled_and_says_so_once(monkeypatch):
    with pytest.warns(UserWarning, match="runs uncompiled.*no C\\+\\+ compiler found") as seen:
        mod = check("dropout", {"backend": refuse}, 1e-6, False)
    assert len(seen) == 2
    assert "not through torch.compile: BackendCompilerFailed" in mod.group.execs[0].explain().training.run
    monkeypatch.setattr(torch, "compile", refuse)  # as on a Python that torch does not support
    executor = compiled(mlp().simple_bind(mx.cpu(), data=(2, 6)), True)
    with pytest.warns(UserWarning, match="no C\\+\\+ compiler"):
        assert executor.forward()[0].shape == (2, 4)


def test_errors_name_the_node_and_are_no_reason_to_stop_compiling():
    net = S.take(S.exp(S.Variable("table")), S.Variable("place"), mode="raise", name="pick")
    executor = compiled(net.simple_bind(mx.cpu(), table=(4, 2), place=(3,)), "eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(executor.forward()[0].asnumpy(), np.ones((3, 2), "f4"))
        with pytest.raises(NodeError, match="take 'pick'"):
            executor.forward(place=[0, 9, 1])
        assert executor.forward(place=[0, 3, 1])[0].shape == (3, 2)
    assert executor.execution_mode(False) == "torch.compile"


def test_loops_run_uncompiled():
    out, _ = S.contrib.foreach(lambda x, s: (x + s, x + s), S.Variable("data"), S.Variable("start"))
    executor = compiled(out.simple_bind(mx.cpu(), data=(3, 2), start=(2,)), "eager")
    with pytest.warns(UserWarning, match="runs uncompiled: _foreach .* runs a subgraph"):
        found = executor.forward(data=mx.nd.ones((3, 2)))[0]
    np.testing.assert_array_equal(found.asnumpy()[:, 0], [1, 2, 3])


def test_options_as_users_give_them(monkeypatch):
    assert run_options() == run_options(False, False) == RunOptions()
    assert (run_options(True).compile, run_options("eager").compile) == ({}, {"backend": "eager"})
    assert run_options({"mode": "default"}, True) == RunOptions({"mode": "default"}, True)
    for value in "10":
        monkeypatch.setenv("MXNET_ENABLE_CUDA_GRAPHS", value)
        assert bool(run_options().cuda_graphs) == (value == "1")
        assert not run_options(cuda_graphs=False).cuda_graphs

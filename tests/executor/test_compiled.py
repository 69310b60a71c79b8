"""Programs run through `torch.compile`: equal results, errors that name the node, and what happens without it."""

import warnings

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.base import ArgumentError, NodeError
from dpmodule.executor import Binding, RunOptions, run_options
from dpmodule.executor.executor import Executor
from helpers.nets import blobs, mlp
from helpers.programs import run_program

BATCH = 8


def convolutional():
    net = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=4, name="conv")
    net = mx.sym.BatchNorm(net, name="bn")
    net = mx.sym.Pooling(
        mx.sym.Activation(net, act_type="relu"), kernel=(2, 2), stride=(2, 2), pool_type="max"
    )
    net = mx.sym.FullyConnected(net, num_hidden=4, name="fc")
    return mx.sym.SoftmaxOutput(net, name="softmax")


def recurrent():
    cell = mx.rnn.LSTMCell(5, prefix="l_")
    outputs, _ = cell.unroll(3, mx.sym.Variable("data"), layout="NTC")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(outputs[-1], num_hidden=4, name="fc"), name="softmax")


def fused():
    outputs, _ = mx.rnn.FusedRNNCell(5, mode="gru", prefix="g_").unroll(
        3, mx.sym.Variable("data"), layout="NTC"
    )
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(outputs, num_hidden=4, name="fc"), name="softmax")


def trained(symbol, shape, compile, steps=4):
    """Train and predict; return every output, the parameters and states, and the module."""
    mod = mx.mod.Module(symbol, compile=compile)
    mod.bind([("data", (BATCH, *shape))], [("softmax_label", (BATCH,))], inputs_need_grad=True)
    mx.random.seed(3)
    mod.init_params(mx.init.Uniform(0.3))
    mod.init_optimizer(optimizer_params={"learning_rate": 0.1, "momentum": 0.9})
    mx.random.seed(4)
    data, label = blobs(BATCH * steps, shape)
    found = []
    for k in range(steps):
        rows = slice(k * BATCH, (k + 1) * BATCH)
        batch = mx.io.DataBatch([mx.nd.array(data[rows])], [mx.nd.array(label[rows])])
        mod.forward_backward(batch)
        found.append(mod.get_input_grads()[0].asnumpy())
        mod.update()
        mod.forward(batch, is_train=False)
        found.append(mod.get_outputs()[0].asnumpy())
    arg, aux = mod.get_params()
    return found + [value.asnumpy() for value in (*arg.values(), *aux.values())], mod


def compiled(executor, compile):
    """Return an executor for prediction on the arrays of another one."""
    arrays, requests = executor.arg_dict, dict.fromkeys(executor.arg_dict, "null")
    return Executor(Binding(executor.graph, mx.cpu(), arrays, {}, requests, {}), options=run_options(compile))


def compiled_programs(mod):
    return [
        each.is_compiled for executor in mod.group.execs for each in executor._default_mode._compiled.values()
    ]


NETS = [
    pytest.param(mlp(dropout=0.5), (6,), id="dropout"),
    pytest.param(convolutional(), (2, 8, 8), id="convolution"),
    pytest.param(recurrent(), (3, 2), id="recurrent"),
    pytest.param(fused(), (3, 2), id="fused"),
]


@pytest.mark.parametrize(("net", "shape"), NETS)
def test_results_are_the_same(net, shape, request):
    expected, _ = trained(net, shape, None)
    backend = "eager" if "dropout" in request.node.name else "aot_eager"  # which draws leave in many pieces
    found, mod = trained(net, shape, backend)
    assert compiled_programs(mod) == [True, True]
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("net", "shape"), NETS)
def test_results_are_the_same_with_the_usual_backend(net, shape):
    expected, _ = trained(net, shape, None)
    found, mod = trained(net, shape, True)
    assert compiled_programs(mod) == [True, True]
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5)


def broken(graph, inputs):
    """Stand in for a backend whose compiler is missing."""
    raise RuntimeError("no C++ compiler found\nlong explanation")


def test_without_a_compiler_it_runs_uncompiled_and_says_so_once():
    net, shape = mlp(dropout=0.5), (6,)
    expected, _ = trained(net, shape, None)
    with pytest.warns(UserWarning, match="runs uncompiled.*no C\\+\\+ compiler found") as seen:
        found, mod = trained(net, shape, {"backend": broken})
    assert len(seen) == 2  # the programs for training and for prediction
    assert compiled_programs(mod) == [False, False]
    assert "not through torch.compile: BackendCompilerFailed" in mod.group.execs[0].explain().training.run
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_python_that_torch_does_not_compile_for(monkeypatch):
    def refuse(*args, **kwargs):
        raise RuntimeError("torch.compile is not supported on this Python")

    monkeypatch.setattr(torch, "compile", refuse)
    executor = compiled(mlp().simple_bind(mx.cpu(), data=(2, 6)), True)
    with pytest.warns(UserWarning, match="not supported on this Python"):
        executor.forward()
    assert executor.outputs[0].shape == (2, 4)


def test_errors_name_the_node_and_are_no_reason_to_stop_compiling():
    table, place = mx.sym.Variable("table"), mx.sym.Variable("place")
    net = mx.sym.take(mx.sym.exp(table), place, mode="raise", name="pick")
    executor = compiled(net.simple_bind(mx.cpu(), table=(4, 2), place=(3,)), "eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(executor.forward()[0].asnumpy(), np.ones((3, 2), "f4"))
        with pytest.raises(NodeError, match="take 'pick'"):
            executor.forward(place=[0, 9, 1])
        assert executor.forward(place=[0, 3, 1])[0].shape == (3, 2)
    assert executor.execution_mode(False) == "torch.compile"


def test_loops_run_uncompiled():
    out, _ = mx.sym.contrib.foreach(
        lambda x, s: (x + s, x + s), mx.sym.Variable("data"), mx.sym.Variable("start")
    )
    executor = compiled(out.simple_bind(mx.cpu(), data=(3, 2), start=(2,)), "eager")
    with pytest.warns(UserWarning, match="runs uncompiled: _foreach .* runs a subgraph"):
        found = executor.forward(data=mx.nd.ones((3, 2)))[0]
    np.testing.assert_array_equal(found.asnumpy()[:, 0], [1, 2, 3])


def test_a_monitor_sees_every_operator():
    _, mod = trained(mlp(), (6,), "eager", steps=1)
    assert mod.group.execs[0].explain().predict.run == "torch.compile"
    names = []
    mod.group.execs[0].set_monitor_callback(lambda name, value: names.append(name))
    mod.forward(mx.io.DataBatch([mx.nd.ones((BATCH, 6))], [mx.nd.zeros((BATCH,))]), is_train=True)
    assert "tanh1_output" in names


def test_buckets_are_compiled_each_for_itself():
    def net(length):
        flat = mx.sym.sum(mx.sym.Variable("data"), axis=1)
        return mx.sym.FullyConnected(mx.sym.tanh(flat), num_hidden=2, name="fc"), ("data",), None

    mod = mx.mod.BucketingModule(net, default_bucket_key=4, compile="eager")
    mod.bind([("data", (2, 4, 3))], for_training=False)
    mod.init_params()
    for length in (4, 2, 4):
        mod.switch_bucket(length, [("data", (2, length, 3))])
        mod.forward(mx.io.DataBatch([mx.nd.ones((2, length, 3))], bucket_key=length), is_train=False)
        assert compiled_programs(mod._curr_module) == [True]


@pytest.mark.parametrize("compile", [1, ["inductor"], 2.5])
def test_other_values_are_refused(compile):
    with pytest.raises(ArgumentError, match="compile is .*expected a bool, the name of a backend"):
        mx.mod.Module(mlp(), compile=compile)


def test_options_as_users_give_them(monkeypatch):
    assert run_options() == run_options(False, False) == RunOptions()
    assert run_options(True).compile == {}
    assert run_options("eager").compile == {"backend": "eager"}
    assert run_options({"mode": "default"}, True) == RunOptions({"mode": "default"}, True)
    monkeypatch.setenv("MXNET_ENABLE_CUDA_GRAPHS", "1")
    assert run_options().cuda_graphs
    assert not run_options(cuda_graphs=False).cuda_graphs
    monkeypatch.setenv("MXNET_ENABLE_CUDA_GRAPHS", "0")
    assert not run_options().cuda_graphs


def test_nothing_of_the_compiler_is_loaded_unless_asked():
    code = """
import sys
import dpmodule as mx
net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2), name="softmax")
mod = mx.mod.Module(net)
mod.bind([("data", (2, 3))], [("softmax_label", (2,))])
mod.init_params()
mod.init_optimizer()
mod.forward_backward(mx.io.DataBatch([mx.nd.ones((2, 3))], [mx.nd.zeros((2,))]))
mod.update()
found = [name for name in sys.modules if name.startswith(("torch._dynamo", "torch._inductor"))]
sys.exit(f"loaded: {found[:3]}" if found else 0)
"""
    done = run_program(code)
    assert done.returncode == 0, done.stderr

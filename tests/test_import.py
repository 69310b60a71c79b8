"""What `import dpmodule` does to the process around it, and which of its modules wait until they are needed."""

import pytest

from helpers.programs import run_program

LOADED = "*sorted(set(sys.modules) - before)"
FIT = """
import numpy as np
import dpmodule as mx
net = mx.sym.Variable("data")
for units in (8, 8):
    net = mx.sym.Activation(mx.sym.FullyConnected(net, num_hidden=units), act_type="relu")
net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=3), name="softmax")
data = mx.io.NDArrayIter(np.zeros((8, 4), "f"), np.zeros(8, "f"), 4)
mx.mod.Module(net).fit(data, num_epoch=1, initializer=mx.init.Xavier(), optimizer_params={"momentum": 0.9})
"""
HEAVY = "onnx matplotlib sklearn PIL torch.optim torch._dynamo torch._inductor torch.fx"
LATER = """
atomic autograd checkpoint commit contrib executor_manager gluon image model onnx operator profiler random rnn
executor.compiled executor.cuda_graphs executor.recompute executor.passes.fused_convolutions
executor.passes.fused_norms executor.passes.pooling_first executor.passes.rnn_chains
executor.passes.unfolded_convolutions executor.cuda_graph_mode
graph.picture graph.repeats graph.serialization _core.markup module.notebook ndarray.notebook
initializer.structured io.prefetch kvstore.local kvstore.transfer metric.confusion metric.custom metric.regression
module.bucketing_module module.onnx_files module.python_module module.sequential_module module.torch_module
ndarray.control_flow ndarray.records ndarray.serial ops.array.index ops.control_flow ops.math.reduce ops.nn.conv
ops.nn.pool ops.nn.rnn ops.nn.chunked_softmax ops.random ops.sparse.elementwise ops.sparse.matrix ops.torch_call
optimizer.adaptive optimizer.layerwise optimizer.states optimizer.torch_optimizer symbol.control_flow
symbol.torch_node
"""
"""Modules that neither an import nor the training of an MLP needs."""
TRAINING = "callback executor initializer io kvstore metric module.module optimizer"
"""Modules that the training of an MLP needs, and an import does not."""


def answer(code: str, question: str) -> str:
    code = f"import gc, sys\n{code}\nprint({question})"
    done = run_program(code)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("state", ["enable", "disable"])
def test_garbage_is_collected_as_before(state):
    assert answer(f"gc.{state}()\nimport dpmodule", "gc.isenabled()") == str(state == "enable")


@pytest.mark.parametrize("work", ["import dpmodule", FIT], ids=["import", "fit"])
def test_what_few_programs_need_is_not_imported(work):
    loaded = answer(f"import torch\nbefore = set(sys.modules)\n{work}", LOADED).split()
    trains = work == FIT
    assert [f"dpmodule.{name}" in loaded for name in TRAINING.split()] == [trains] * len(TRAINING.split())
    assert [name for name in HEAVY.split() if name in loaded] == []
    assert [name for name in LATER.split() if f"dpmodule.{name}" in loaded] == []

"""The types of the most used calls, for tools/typed_programs.py."""

from typing import Any

import numpy as np
import torch
from typing_extensions import assert_type

import dpmodule as mx
from dpmodule import autobatch, streams
from dpmodule.agents import Agent, create_task
from dpmodule.agents.worlds import World
from dpmodule.hogwild.job import Results
from dpmodule.module.history import History

array = mx.nd.array([1.0, 2.0])
net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3)
module = mx.mod.Module(net, context=mx.cpu())
data = mx.io.NDArrayIter(np.zeros((4, 2)), np.zeros(4), 2)

assert_type(array, mx.nd.NDArray)
assert_type(array + 1, mx.nd.NDArray)
assert_type(array.asnumpy(), "np.ndarray[Any, Any]")
assert_type(array.shape, tuple[int, ...])
assert_type(mx.nd.zeros((2, 3)), mx.nd.NDArray)
assert_type(mx.sym.Variable("data"), mx.sym.Symbol)
assert_type(net, mx.sym.Symbol)
assert_type(net.list_arguments(), list[str])
assert_type(mx.cpu(), mx.Context)
assert_type(module.fit(data, num_epoch=1), History)
assert_type(module.score(data, "acc"), list[tuple[str, float]])
assert_type(module.get_params(), tuple[dict[str, mx.nd.NDArray], dict[str, mx.nd.NDArray]])
assert_type(mx.mod.Module.load("net", 1), mx.mod.Module)
assert_type(mx.model.load_checkpoint("net", 1)[1], dict[str, mx.nd.NDArray])
assert_type(list(data), list[mx.io.DataBatch])
assert_type(mx.metric.create("acc"), mx.metric.EvalMetric)
assert_type(mx.kv.create("local"), mx.kv.KVStore)
assert_type(mx.AsyncExecutor().run_from_files(net, mx.DataFeedDesc(""), ["part"], 2), Results)
assert_type(create_task({}, Agent({})), World)
assert_type(autobatch.map(torch.sum, [torch.zeros(2)]), list[Any])
assert_type(streams.DataLoader(torch.utils.data.TensorDataset(torch.zeros(2))).batch_size, int | None)

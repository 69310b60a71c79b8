"""The errors that the pages under docs/moving tell of: by page, statements in the order of its table."""

import threading

import numpy as np
import torch

import dpmodule as mx
import dpmodule.autobatch as dy
from dpmodule import agents, fluid
from helpers.hogwild_agents import NoShare

X, Y = np.ones((8, 3), "float32"), np.zeros(8, "float32")
TENSORS = torch.rand(8, 3), torch.zeros(8).long()
LOADER = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*TENSORS), batch_size=4)
NODES = '[{"op": "null", "name": "x", "inputs": []}, {"op": "MyOp", "name": "m", "inputs": [[0, 0, 0]]}]'


def fit(data=None, **more):
    scores = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
    data = mx.io.NDArrayIter(X, Y, 4) if data is None else data
    mx.mod.Module(mx.sym.SoftmaxOutput(scores, name="softmax")).fit(data, **{"num_epoch": 1, **more})


def matrix():
    """Return a matrix in a new graph."""
    dy.renew_cg()
    return dy.ParameterCollection().add_parameters((3, 4))


def stale():
    x = dy.inputVector([1, 2])
    dy.renew_cg()
    return x + x


def backward_twice():
    loss = dy.sum_elems(dy.square(matrix()))
    loss.backward()
    loss.backward()


def gradient_too_late():
    dy.renew_cg()
    model = dy.ParameterCollection()
    expression = dy.parameter(model.add_parameters((3, 4)))
    dy.sum_elems(dy.square(expression)).backward()
    dy.SimpleSGDTrainer(model).update()
    expression.gradient()


def other_type():
    weight = matrix()
    try:
        dy.configure(dtype="float64")
        dy.renew_cg()
        return weight * dy.inputVector([1, 2, 3, 4])
    finally:
        dy.configure(dtype="float32")


def other_thread():
    dy.renew_cg()
    dy.inputVector([1])
    raised = []

    def use():
        try:
            dy.inputVector([2])
        except mx.MXNetError as error:
            raised.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    dy.renew_cg()
    raise raised[0]


class Branch(torch.nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


class Buf(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.zeros(1))

    def forward(self, x):
        self.n += 1
        return x


def from_torch():
    return mx.mod.Module.from_torch(torch.nn.Linear(3, 2), torch.zeros(4, 3))


def in_program(body):
    """Call a function in a program of its own, with an executor and a loss."""
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        x, y = fluid.layers.data("img", shape=[3]), fluid.layers.data("y", shape=[1], dtype="int64")
        prediction = fluid.layers.fc(x, size=2, act="softmax")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(prediction, y))
        fluid.optimizer.SGD(0.1).minimize(loss)
        executor = fluid.Executor()
        executor.run(fluid.default_startup_program())
        body(executor, loss)


def world(method="share", reply=None, call="parley", **opt):
    """Hold a parley with an agent that has a method of its own, or none of an agent's."""
    opt = {"task": "nocandidate", "datatype": "train", **opt}
    own = {} if method == "share" else {method: lambda self, *_: reply}
    kind = type("Text", (agents.RepeatLabelAgent,), own)
    with agents.create_task(opt, NoShare() if method is None else kind(opt)) as made:
        getattr(made, call)()


def task(name, datatype="valid"):
    agents.create_task({"task": name, "datatype": datatype}, agents.RepeatLabelAgent({}))


PAGES = {
    "mxnet": """
import mxnet
mx.gluon.nn.Dense(3)
mx.np.zeros(3)
mx.sym.FullyConnected(mx.sym.Variable("data"), num_hiden=2)
fit(mx.io.NDArrayIter(X, batch_size=4))
fit(mx.io.NDArrayIter(X, {"label": Y}, 4))
fit(mx.io.NDArrayIter(X * np.nan, Y, 4))
mx.nd.ones(3, ctx=mx.gpu(0))
mx.nd.save("a.npz", [mx.nd.ones(3)])
mx.sym.load_json(f'{{"nodes": {NODES}, "arg_nodes": [0], "heads": [[1, 0, 0]]}}')""",
    "dynet": """
import dynet
matrix() * dy.inputVector([1, 2])
stale()
dy.ParameterCollection().add_lookup_parameters((5, 4))[7]
dy.square(matrix()).backward()
backward_twice()
gradient_too_late()
dy.tanh(3)
other_type()
other_thread()""",
    "pytorch": """
mx.sym.from_torch(Branch(), torch.zeros(4, 3))
mx.sym.from_torch(Buf(), torch.zeros(4, 3))
from_torch().fit(LOADER, num_epoch=1)
mx.mod.TorchModule(torch.nn.Linear(3, 2)).fit(LOADER, num_epoch=1)
from_torch().forward(TENSORS[0])
fit(TENSORS)
fit(num_epoch=None)
fit(optimizer="AdamW")
mx.nd.ones(3) + torch.ones(3)
fit(callbacks=[mx.callback.EarlyStopping("val_loss")])""",
    "lightning-keras": """
fit(callbacks=[mx.callback.EarlyStopping("val_loss")])
fit(callbacks=[print])
fit(resume="auto")
fit(num_epoch=None)
fit((X, Y))
fit(mx.io.NDArrayIter(X, batch_size=4))
fit(mx.io.NDArrayIter(X, {"label": Y}, 4))
fit(eval_metric="accuracy_score")
fit(mx.io.NDArrayIter(X * np.nan, Y, 4))
fit(checkpoint="/dev/null/net")""",
    "paddle": """
import paddle
fluid.CUDAPlace(0)
in_program(lambda executor, loss: executor.run(feed={"img": X}, fetch_list=[loss]))
in_program(lambda executor, loss: executor.run(feed={"imgg": X}, fetch_list=[loss]))
in_program(lambda executor, loss: fluid.optimizer.SGD(0.1).minimize(loss))
in_program(lambda executor, loss: fluid.layers.data("z", shape=[1], lod_level=2))
in_program(lambda executor, loss: fluid.layers.dynamic_lstm(fluid.layers.data("k", [5], lod_level=1), size=6))
in_program(lambda executor, loss: fluid.layers.fc(loss, size=2, act="nosuch"))
fluid.DataFeedDesc("nosuch.prototxt")
in_program(lambda executor, loss: fluid.io.load_params(executor, "nowhere"))""",
    "parlai": """
import parlai
task("babi:task1k:1")
agents.create_agent({"model": "memnn"})
world("observe", batchsize=2)
world("act", "hi")
world("batch_act", [], batchsize=4)
world(None, batchsize=2)
world(call="display", numthreads=2)
task("nocandidate", "training")
task("fromfile:nosuch")""",
}
ERRORS = {name: text.strip().splitlines() for name, text in PAGES.items()}

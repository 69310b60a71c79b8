"""The errors that the pages under docs/moving tell of, made on purpose: by page, calls in the order of its table."""

import threading

import numpy as np
import torch

import dpmodule as mx
import dpmodule.autobatch as dy
from dpmodule import agents, fluid

__all__ = ["ERRORS"]

X, Y = np.ones((8, 3), "float32"), np.zeros(8, "float32")
TENSORS = torch.rand(8, 3), torch.zeros(8).long()
LOADER = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*TENSORS), batch_size=4)
OPT = {"task": "nocandidate", "datatype": "train"}


def missing(name):
    return lambda: __import__(name)


def network():
    scores = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
    return mx.sym.SoftmaxOutput(scores, name="softmax")


def fit(data=None, **more):
    mx.mod.Module(network()).fit(
        mx.io.NDArrayIter(X, Y, 4) if data is None else data, **{"num_epoch": 1, **more}
    )


def not_finite():
    fit(mx.io.NDArrayIter(X * np.nan, Y, 4))


def no_labels():
    fit(mx.io.NDArrayIter(X, batch_size=4))


def other_label():
    fit(mx.io.NDArrayIter(X, {"label": Y}, 4))


def unknown_operator():
    node = '{"op": "MyOp", "name": "m", "inputs": [[0, 0, 0]]}'
    nodes = f'[{{"op": "null", "name": "x", "inputs": []}}, {node}]'
    mx.sym.load_json(f'{{"nodes": {nodes}, "arg_nodes": [0], "heads": [[1, 0, 0]]}}')


def parameters():
    """Return a collection with a matrix in a new graph."""
    dy.renew_cg()
    model = dy.ParameterCollection()
    return model, model.add_parameters((3, 4))


def stale():
    dy.renew_cg()
    x = dy.inputVector([1, 2])
    dy.renew_cg()
    return x + x


def no_row():
    dy.renew_cg()
    return dy.ParameterCollection().add_lookup_parameters((5, 4))[7]


def twice():
    loss = dy.sum_elems(dy.square(parameters()[1]))
    loss.backward()
    loss.backward()


def gradient_too_late():
    model, matrix = parameters()
    expression = dy.parameter(matrix)
    dy.sum_elems(dy.square(expression)).backward()
    dy.SimpleSGDTrainer(model).update()
    expression.gradient()


def other_type():
    matrix = parameters()[1]
    try:
        dy.configure(dtype="float64")
        dy.renew_cg()
        return matrix * dy.inputVector([1, 2, 3, 4])
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


def from_torch(head=None):
    return mx.mod.Module.from_torch(torch.nn.Linear(3, 2), torch.zeros(4, 3), head=head)


def in_program(body):
    """Return what runs a function in a program of its own, with data, labels and a loss."""

    def call():
        with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
            x, y = fluid.layers.data("img", shape=[3]), fluid.layers.data("y", shape=[1], dtype="int64")
            prediction = fluid.layers.fc(x, size=2, act="softmax")
            loss = fluid.layers.mean(fluid.layers.cross_entropy(prediction, y))
            fluid.optimizer.SGD(0.1).minimize(loss)
            executor = fluid.Executor()
            executor.run(fluid.default_startup_program())
            body(executor, loss)

    return call


class NoneObs(agents.RepeatLabelAgent):
    def observe(self, observation):
        self.observation = observation


class Text(agents.RepeatLabelAgent):
    def act(self):
        return "hi"


class Few(agents.RepeatLabelAgent):
    def batch_act(self, observations):
        return []


class NoShare:
    def observe(self, observation):
        return observation

    def act(self):
        return {"id": "x"}


def parley(kind, **more):
    agent = kind(OPT) if issubclass(kind, agents.Agent) else kind()
    with agents.create_task({**OPT, **more}, agent) as world:
        world.parley()


def display():
    with agents.create_task({**OPT, "numthreads": 2}, agents.RepeatLabelAgent(OPT)) as world:
        world.display()


def task(name, datatype="valid"):
    return lambda: agents.create_task({"task": name, "datatype": datatype}, agents.RepeatLabelAgent({}))


ERRORS = {
    "mxnet": [
        missing("mxnet"),
        lambda: mx.gluon.nn.Dense(3),
        lambda: mx.np.zeros(3),
        lambda: mx.sym.FullyConnected(mx.sym.Variable("data"), num_hiden=2),
        no_labels,
        other_label,
        not_finite,
        lambda: mx.nd.ones(3, ctx=mx.gpu(0)),
        lambda: mx.nd.save("a.npz", [mx.nd.ones(3)]),
        unknown_operator,
    ],
    "dynet": [
        missing("dynet"),
        lambda: parameters()[1] * dy.inputVector([1, 2]),
        stale,
        no_row,
        lambda: dy.square(parameters()[1]).backward(),
        twice,
        gradient_too_late,
        lambda: dy.tanh(3),
        other_type,
        other_thread,
    ],
    "pytorch": [
        lambda: mx.sym.from_torch(Branch(), torch.zeros(4, 3)),
        lambda: mx.sym.from_torch(Buf(), torch.zeros(4, 3)),
        lambda: from_torch().fit(LOADER, num_epoch=1),
        lambda: mx.mod.TorchModule(torch.nn.Linear(3, 2)).fit(LOADER, num_epoch=1),
        lambda: from_torch().forward(TENSORS[0]),
        lambda: fit(TENSORS),
        lambda: fit(num_epoch=None),
        lambda: fit(optimizer="AdamW"),
        lambda: mx.nd.ones(3) + torch.ones(3),
        lambda: fit(callbacks=[mx.callback.EarlyStopping("val_loss")]),
    ],
    "lightning-keras": [
        lambda: fit(callbacks=[mx.callback.EarlyStopping("val_loss")]),
        lambda: fit(callbacks=[print]),
        lambda: fit(resume="auto"),
        lambda: fit(num_epoch=None),
        lambda: fit((X, Y)),
        no_labels,
        other_label,
        lambda: fit(eval_metric="accuracy_score"),
        not_finite,
        lambda: fit(checkpoint="gone/net"),
    ],
    "paddle": [
        missing("paddle"),
        lambda: fluid.CUDAPlace(0),
        in_program(lambda executor, loss: executor.run(feed={"img": X}, fetch_list=[loss])),
        in_program(lambda executor, loss: executor.run(feed={"imgg": X}, fetch_list=[loss])),
        in_program(lambda executor, loss: fluid.optimizer.SGD(0.1).minimize(loss)),
        in_program(lambda executor, loss: fluid.layers.data("z", shape=[1], lod_level=2)),
        in_program(
            lambda executor, loss: fluid.layers.dynamic_lstm(fluid.layers.data("k", [5], lod_level=1), size=6)
        ),
        in_program(lambda executor, loss: fluid.layers.fc(loss, size=2, act="nosuch")),
        lambda: fluid.DataFeedDesc("nosuch.prototxt"),
        in_program(lambda executor, loss: fluid.io.load_params(executor, "nowhere")),
    ],
    "parlai": [
        missing("parlai"),
        task("babi:task1k:1"),
        lambda: agents.create_agent({"model": "memnn"}),
        lambda: parley(NoneObs, batchsize=2),
        lambda: parley(Text),
        lambda: parley(Few, batchsize=4),
        lambda: parley(NoShare, batchsize=2),
        display,
        task("nocandidate", "training"),
        task("fromfile:nosuch"),
    ],
}

"""Fork in the middle of loading networks in many ways; print the ways after which a child has started threads."""

import os
import signal

import numpy as np
import torch

import dpmodule as mx
import dpmodule.autobatch as dy

assert torch.get_num_threads() == 2
net = mx.sym.Convolution(mx.sym.Variable("data"), num_filter=64, kernel=(3, 3), name="conv")
net = mx.sym.FullyConnected(mx.sym.BatchNorm(net, name="norm"), num_hidden=100, name="low")
net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=600, name="top"), name="softmax")
shape = (8, 64, 12, 12)
data, label = [("data", shape)], [("softmax_label", shape[:1])]
x = np.ones(shape, "float32")


def threads():
    return len(os.listdir("/proc/self/task"))


def in_child(task, *arguments):
    pid = os.fork()
    if not pid:
        signal.alarm(60)
        before = threads()
        try:
            answer = task(*arguments)
            os._exit(0 if answer is True or threads() == before else 1)
        finally:
            os._exit(2)
    return os.waitpid(pid, 0)[1]


def bound(training=False, **options):
    module = mx.mod.Module(net, **options)
    module.bind(data, label if training else None, for_training=training)
    return module


def written():
    torch.set_num_threads(1)
    module = bound(True)
    module.init_params(mx.init.Xavier())
    module.save_checkpoint("net", 0)
    module.save_pretrained("folder")
    module.to_onnx("net.onnx")


def loaded(**options):
    module = mx.mod.Module.load("net", 0, **options)
    module.bind(data, for_training=False)
    return module


def executed():
    symbol, *params = mx.model.load_checkpoint("net", 0)
    symbol.simple_bind(mx.cpu(), data=shape).copy_params_from(*params)


def trained(kvstore):
    module = bound(True)
    module.init_params(mx.init.Uniform())
    module.init_optimizer(kvstore and mx.kv.create(kvstore), "adam")


def bucketing():
    symbol, *params = mx.model.load_checkpoint("net", 0)
    module = mx.mod.BucketingModule(lambda key: (symbol, ("data",), ("softmax_label",)), default_bucket_key=1)
    module.bind(data, for_training=False)
    module.set_params(*params)


def collection():
    parameters = dy.ParameterCollection()
    parameters.add_lookup_parameters((500, 100))
    parameters.save("net.model")
    parameters.populate("net.model")


def predicts(module):
    module.forward(mx.io.DataBatch([mx.nd.array(x)]), is_train=False)
    return bool(np.isfinite(module.get_outputs()[0].asnumpy()).all())


class Scores(torch.utils.data.Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, i):
        return np.float32(predicts(module)), np.float32(i)


TASKS = {
    "load": loaded, "two contexts": lambda: loaded(context=[mx.cpu(0), mx.cpu(1)]), "amp": lambda: loaded(amp="bf16"),
    "get_params": lambda: loaded().get_params(), "reshape": lambda: loaded().reshape([("data", (16, *shape[1:]))]),
    "save": lambda: loaded().save_checkpoint("again", 0), "to_torch": lambda: loaded().to_torch(),
    "share_memory": lambda: loaded().store.share_memory(),
    "load_params": lambda: bound().load_params("net-0000.params"),
    "from_pretrained": lambda: mx.mod.Module.from_pretrained("folder").bind(data, for_training=False),
    "from_onnx": lambda: mx.mod.Module.from_onnx("net.onnx"),
    "from_torch": lambda: mx.mod.Module.from_torch(torch.nn.Linear(300, 200), torch.zeros(2, 300)),
    "Executor": executed, "BucketingModule": bucketing, "ParameterCollection": collection,
    "zeros": lambda: mx.nd.zeros((500, 500)), "no store": lambda: trained(None), "a store": lambda: trained("local"),
}  # fmt: skip
for name in ("uniform", "normal", "xavier", "msraprelu", "orthogonal", "zeros", "ones"):
    TASKS[name] = lambda name=name: bound(True).init_params(name)

assert in_child(written) == 0
print([name for name, task in TASKS.items() if in_child(task)])
module = loaded()
assert in_child(predicts, module) == 0
assert torch.get_num_threads() == 2
batches = torch.utils.data.DataLoader(Scores(), num_workers=1, timeout=60, multiprocessing_context="fork")
for _ in range(2):
    assert [float(row[0]) for row in batches] == [1, 1]
    with mx.io.DataLoaderIter(batches, start_method="fork", timeout_s=60) as rows:
        assert [float(row.data[0].asnumpy()[0]) for row in rows] == [1, 1]
    predicts(module)  # workers use one thread, also of a parent that has more already
assert in_child(lambda: torch.set_num_threads(1) or predicts(module)) == 0

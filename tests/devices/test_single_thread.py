"""Processes that fork after they have loaded networks: OpenMP's threads, which a child lacks, must not run before."""

import threading

import torch

from dpmodule._devices.single_thread import single_thread
from helpers.programs import run_program

LOADED = """
import os, signal
import numpy as np
import torch
import dpmodule as mx
import dpmodule.autobatch as dy

assert torch.get_num_threads() == 2
threads = lambda: len(os.listdir("/proc/self/task"))
net = mx.sym.Convolution(mx.sym.Variable("data"), num_filter=64, kernel=(3, 3), name="conv")
net = mx.sym.FullyConnected(mx.sym.BatchNorm(net, name="norm"), num_hidden=100, name="low")
net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=600, name="top"), name="softmax")
shape = (8, 64, 12, 12)
data, label = [("data", shape)], [("softmax_label", shape[:1])]
x = np.ones(shape, "float32")

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
    symbol, arg_params, aux_params = mx.model.load_checkpoint("net", 0)
    executor = symbol.simple_bind(mx.cpu(), data=shape)
    executor.copy_params_from(arg_params, aux_params)

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

tasks = {
    "load": loaded,
    "two contexts": lambda: loaded(context=[mx.cpu(0), mx.cpu(1)]),
    "amp": lambda: loaded(amp="bf16"),
    "get_params": lambda: loaded().get_params(),
    "reshape": lambda: loaded().reshape([("data", (16, *shape[1:]))]),
    "save": lambda: loaded().save_checkpoint("again", 0),
    "to_torch": lambda: loaded().to_torch(),
    "share_memory": lambda: loaded().store.share_memory(),
    "load_params": lambda: bound().load_params("net-0000.params"),
    "from_pretrained": lambda: mx.mod.Module.from_pretrained("folder").bind(data, for_training=False),
    "from_onnx": lambda: mx.mod.Module.from_onnx("net.onnx"),
    "from_torch": lambda: mx.mod.Module.from_torch(torch.nn.Linear(300, 200), torch.zeros(2, 300)),
    "Executor": executed,
    "BucketingModule": bucketing,
    "ParameterCollection": collection,
    "zeros": lambda: mx.nd.zeros((500, 500)),
    "no store": lambda: trained(None),
    "a store": lambda: trained("local"),
    **{
        name: lambda name=name: bound(True).init_params(name)
        for name in ("uniform", "normal", "xavier", "msraprelu", "orthogonal", "zeros", "ones")
    },
}
assert in_child(written) == 0
print([name for name, task in tasks.items() if in_child(task)])
module = loaded()
assert in_child(predicts, module) == 0 and torch.get_num_threads() == 2

class Scores(torch.utils.data.Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, i):
        return np.float32(predicts(module)), np.float32(i)

batches = torch.utils.data.DataLoader(Scores(), num_workers=1, timeout=60)
for _ in range(2):
    assert [float(row[0]) for row in batches] == [1, 1]
    with mx.io.DataLoaderIter(batches, start_method="fork", timeout_s=60) as rows:
        assert [float(row.data[0].asnumpy()[0]) for row in rows] == [1, 1]
    predicts(module)  # workers use one thread, also of a parent that has more already
assert in_child(lambda: torch.set_num_threads(1) or predicts(module)) == 0
"""


def test_networks_are_loaded_before_a_fork_without_threads_that_a_child_lacks(tmp_path):
    done = run_program(LOADED, cwd=tmp_path, fresh=True, OMP_NUM_THREADS="2")
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_the_number_of_threads_comes_back():
    numbers = []

    def work():
        torch.set_num_threads(3)
        try:
            with single_thread():
                numbers.append(torch.get_num_threads())
                with single_thread():
                    raise KeyError
        except KeyError:
            numbers.append(torch.get_num_threads())

    before = torch.get_num_threads()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    torch.set_num_threads(before)
    assert numbers == [1, 3]

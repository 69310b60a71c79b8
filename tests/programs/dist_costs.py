"""Print what two steady batches of "dist_sync" cost with each number of processes."""

import json
import sys

import numpy as np
import torch
import torch.distributed as dist
from torch.testing._internal.distributed import fake_pg  # noqa: F401 (its import adds the backend)
from torch.utils._python_dispatch import TorchDispatchMode

import dpmodule as mx
from dpmodule.kvstore import ranks

ranks._backend = lambda: "fake"
sent, calls = [], {"torch": 0, "Python": 0}


def noted(name):
    real = getattr(dist, name)

    def call(tensor, *args, **kwargs):
        sent.append([name, tensor.nbytes if isinstance(tensor, torch.Tensor) else 0])
        return real(tensor, *args, **kwargs)

    setattr(dist, name, call)


for name in (
    "all_reduce",
    "all_gather",
    "all_gather_object",
    "broadcast",
    "barrier",
    "reduce_scatter",
    "send",
):
    noted(name)


class Operations(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        calls["torch"] += not func._schema.name.startswith("c10d")
        return func(*args, **(kwargs or {}))


def profile(frame, event, arg):
    calls["Python"] += event == "call" and "/dpmodule/" in frame.f_code.co_filename


def net():
    found = mx.sym.Variable("data")
    for layer in range(3):
        found = mx.sym.FullyConnected(found, num_hidden=512, name=f"fc{layer}")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(found, num_hidden=4, name="last"), name="softmax")


def steady(size):
    """Return what two steady batches cost."""
    dist.init_process_group("fake", store=dist.HashStore(), rank=0, world_size=size)
    mx.random.seed(1)
    data = mx.io.NDArrayIter(np.ones((24, 16), "f"), np.zeros(24), 4)
    module = mx.mod.Module(net())
    seen = []

    def look(param):
        seen.append([list(sent), dict(calls)])
        sent.clear()
        calls.update(dict.fromkeys(calls, 0))
        sys.setprofile(profile)

    with Operations():
        module.fit(data, num_epoch=1, kvstore="dist_sync", batch_end_callback=look)
    sys.setprofile(None)
    gradients = sum(array[0].raw.nbytes for array in module.group.grad_arrays)
    module.updates.store.ranks.close()
    dist.destroy_process_group()
    ranks._joined.clear()
    return {"steps": seen[3:5], "gradients": gradients}


print(json.dumps({size: steady(size) for size in map(int, sys.argv[1:])}))

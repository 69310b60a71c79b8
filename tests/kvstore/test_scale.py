"""What a step of "dist_sync" costs with 1 to 64 processes, simulated by torch's process group that sends nothing."""

import json

import pytest

from helpers.programs import run_program

pytest.importorskip("torch.testing._internal.distributed.fake_pg")

SIZES = [1, 2, 8, 64]

COUNTED = '''
import json, sys

import numpy as np
import torch
import torch.distributed as dist
from torch.testing._internal.distributed import fake_pg
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


for name in ("all_reduce", "all_gather", "all_gather_object", "broadcast", "barrier", "reduce_scatter", "send"):
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
'''


@pytest.fixture(scope="module")
def costs():
    done = run_program(COUNTED, *SIZES)
    assert done.returncode == 0, done.stderr
    return {int(size): cost for size, cost in json.loads(done.stdout.splitlines()[-1]).items()}


def ring(collectives, size):
    """Return how many messages a process sends when these are done in a ring of processes, and their bytes."""
    messages = sum(2 * (size - 1) for _ in collectives)
    return messages, sum(count * 2 * (size - 1) / size for _, count in collectives)


def test_messages_and_bytes_grow_as_in_a_ring(costs):
    first = costs[2]["steps"][0][0]
    assert len(first) > 1
    for size, cost in costs.items():
        for collectives, _ in cost["steps"]:
            assert {name for name, _ in collectives} <= {"all_reduce"}
            wanted = ring(first, size) if size > 1 else (0, 0)
            assert ring(collectives, size) == wanted


def test_buckets_are_the_gradients_and_little_more(costs):
    for cost in costs.values():
        for collectives, _ in cost["steps"]:
            assert sum(count for _, count in collectives) <= 1.05 * cost["gradients"]


def test_what_the_host_does_does_not_depend_on_how_many_there_are(costs):
    several = {size: [calls for _, calls in cost["steps"]] for size, cost in costs.items() if size > 1}
    assert all(found == several[2] for found in several.values()), several
    assert several[2][0]["torch"] > 0
    assert several[2][0]["Python"] > 0

"""Bind, run and load with less and less memory: ``short_memory.py SEED COUNT``.

Address space is limited at random points. What then fails has to say so by MemoryError or MXNetError, and the module
has to compute the same as before once there is memory again. Prints how many points failed. The layers are of a size
for our own kernels: oneDNN does not look whether it gets memory, and then ends the process.
"""

import collections
import ctypes
import os
import random
import resource
import sys
import tempfile
from pathlib import Path

import numpy as np

import dpmodule as mx

S = mx.sym
WIDTH, ROWS = 240, 64
M_MMAP_THRESHOLD = -3
DATA = np.random.RandomState(0).rand(ROWS, WIDTH).astype("f4")


def bound(module):
    module.bind([("data", DATA.shape)], [("softmax_label", (ROWS,))])
    return module


def made():
    net = S.Variable("data")
    for number in range(3):
        net = S.Activation(S.FullyConnected(net, num_hidden=WIDTH, name=f"fc{number}"), act_type="tanh")
    return bound(mx.mod.Module(S.SoftmaxOutput(net, name="softmax")))


def output(module, is_train=False):
    batch = mx.io.DataBatch([mx.nd.array(DATA)], [mx.nd.zeros((ROWS,))])
    module.forward(batch, is_train=is_train)
    if is_train:
        module.backward()
    return module.get_outputs()[0].asnumpy()


def limit(size):
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    most = resource.RLIM_INFINITY if size is None else used + size
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))


def main(seed, count):
    # results come from the system in every call, not from what the heap keeps; dpmodule leaves this setting alone
    os.environ["MALLOC_MMAP_THRESHOLD_"] = str(2**14)
    ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 2**14)
    rng, module, failed = random.Random(seed), made(), collections.Counter()
    mx.random.seed(0)
    module.init_params(mx.init.Xavier())
    prefix = str(Path(tempfile.mkdtemp()) / "net")
    module.save_checkpoint(prefix, 0)
    right = output(module)
    calls = {
        "bind": made,
        "forward": lambda: output(module, is_train=rng.random() < 0.5),
        "load": lambda: bound(mx.mod.Module.load(prefix, 0)).init_params(),
    }
    for call in calls.values():  # what is imported and chosen once has been
        call()
    for _ in range(count):
        name = rng.choice(["bind", "forward", "forward", "forward", "load"])
        limit(rng.randrange(1 << rng.randrange(1, 22)))
        try:
            calls[name]()
        except (MemoryError, mx.MXNetError):
            failed[name] += 1
        finally:
            limit(None)
        np.testing.assert_allclose(output(module), right, rtol=1e-6)
    print(dict(failed))
    if min(failed[name] for name in calls) == 0:
        raise SystemExit("no point was short of memory")


main(*map(int, sys.argv[1:]))

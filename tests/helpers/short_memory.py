"""Bind, run and load with less and less memory: ``python -m helpers.short_memory SEED COUNT``.

Address space is limited at random points. What then fails has to say so by MemoryError or MXNetError, and the module
has to compute the same as before once there is memory again. Prints how many points failed. The layers are of a size
for our own kernels: oneDNN does not look whether it gets memory, and then ends the process.
"""

import collections
import random
import resource
import sys
import tempfile
from pathlib import Path

import numpy as np

import dpmodule as mx

S = mx.sym
WIDTH, ROWS = 240, 64
DATA = np.random.RandomState(0).rand(ROWS, WIDTH).astype("f4")


def network():
    net = S.Variable("data")
    for number in range(3):
        net = S.Activation(S.FullyConnected(net, num_hidden=WIDTH, name=f"fc{number}"), act_type="tanh")
    return S.SoftmaxOutput(net, name="softmax")


def bound(net):
    module = mx.mod.Module(net)
    module.bind([("data", DATA.shape)], [("softmax_label", (ROWS,))])
    return module


def output(module, is_train=False):
    batch = mx.io.DataBatch([mx.nd.array(DATA)], [mx.nd.zeros((ROWS,))])
    module.forward(batch, is_train=is_train)
    if is_train:
        module.backward()
    return module.get_outputs()[0].asnumpy()


def size():
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def main(seed, count):
    rng = random.Random(seed)
    net, module = network(), bound(network())
    mx.random.seed(0)
    module.init_params(mx.init.Xavier())
    prefix = str(Path(tempfile.mkdtemp()) / "net")
    module.save_checkpoint(prefix, 0)
    right = output(module)

    def load():
        other = mx.mod.Module.load(prefix, 0)
        other.bind([("data", DATA.shape)], [("softmax_label", (ROWS,))])
        other.init_params()

    calls = {
        "bind": lambda: bound(net),
        "forward": lambda: output(module, is_train=rng.random() < 0.5),
        "load": load,
    }
    for call in calls.values():  # what is imported and chosen once has been
        call()
    failed = collections.Counter()
    for _ in range(count):
        name = rng.choice(["bind", "forward", "forward", "forward", "load"])
        resource.setrlimit(
            resource.RLIMIT_AS, (size() + rng.randrange(1 << rng.randrange(1, 22)), resource.RLIM_INFINITY)
        )
        try:
            calls[name]()
        except (MemoryError, mx.MXNetError):
            failed[name] += 1
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        np.testing.assert_allclose(output(module), right, rtol=1e-6)
    print(dict(failed))
    if min(failed[name] for name in calls) == 0:
        raise SystemExit("no point was short of memory")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

"""What a process decides once, decided anew: ordinary programs in processes of their own, and the same bits in all."""

import contextlib

import pytest

from helpers.programs import Program, run_module, run_program


def run_numbers(first, last, seconds):
    done = run_module("helpers.ordinary_programs", first, last, seconds=seconds)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(400)
@pytest.mark.parametrize("first", range(0, 200, 25))
def test_ordinary_programs(first):
    run_numbers(first, first + 25, 350)


@pytest.mark.slow
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("first", range(200, 2000, 200))
def test_many_ordinary_programs(first):
    run_numbers(first, first + 200, 900)


TRAINING = """
import hashlib, sys
held = [bytearray(int(size)) for size in sys.argv[2:]]  # memory begins elsewhere
import numpy as np, torch
import dpmodule as mx
from helpers.nets import lenet

torch.set_num_threads(int(sys.argv[1]))

def mlp(width):
    net = mx.sym.Activation(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=width), act_type="relu")
    net = mx.sym.Activation(mx.sym.FullyConnected(net, num_hidden=width), act_type="tanh")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Dropout(net, p=0.3), num_hidden=10), name="softmax")

def recurrent():
    outputs, _ = mx.rnn.GRUCell(64).unroll(9, mx.sym.Variable("data"), merge_outputs=True)
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(outputs, num_hidden=10), name="softmax")

numbers, digest = np.random.RandomState(0), hashlib.sha256()
for net, shape in ((mlp(512), (200, 70)), (mlp(30), (32, 8)), (lenet(10), (8, 1, 14, 14)), (recurrent(), (8, 9, 16))):
    data = numbers.uniform(-1, 1, shape).astype("f4")
    batches = mx.io.NDArrayIter(data, numbers.randint(0, 10, len(data)).astype("f4"), shape[0])
    module = mx.mod.Module(net, context=[mx.cpu(0), mx.cpu(1)] if len(shape) == 2 else mx.cpu())
    module.fit(batches, num_epoch=2, initializer=mx.init.Xavier(), optimizer="adam")  # nobody calls seed
    arrays = [*module.get_params()[0].values(), module.predict(batches)]
    for array in arrays:
        digest.update(array.asnumpy().tobytes())
digest.update(mx.nd.random.normal(shape=(9,)).asnumpy().tobytes())
print(digest.hexdigest())
"""
BUSY = "while True: pass"


def digests(count, threads, **options):
    """Return what processes print, the second half of them beside a busy neighbour."""
    found = []
    with contextlib.ExitStack() as stack:
        for i in range(count):
            if i == count // 2:
                stack.enter_context(Program("code", BUSY))
            done = run_program(TRAINING, threads, 17 * i, 1000 + 4104 * i, **options)
            assert done.returncode == 0, done.stderr
            found.append(done.stdout)
    return found


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("threads", "count"), [(1, 3), (2, 2)])
def test_processes_have_the_same_bits(threads, count):
    found = digests(count, threads)
    found += digests(1, threads, fresh=True, PYTHONHASHSEED="random")
    assert len(set(found)) == 1, found


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("threads", [1, 2])
def test_twenty_fresh_starts_have_the_same_bits(threads):
    assert len(set(digests(20, threads, fresh=True, PYTHONHASHSEED="random"))) == 1

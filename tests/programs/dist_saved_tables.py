"""Saved tables that are spread over processes: the same values in any number of processes, runs resumed exactly.

Arguments: "save" to write checkpoints and runs; "load" to read them, possibly in another number of processes.
"""

import contextlib
import os
import signal
import sys

import numpy as np

import dpmodule as mx
from helpers.dist_programs import create

ROWS, WIDTH, WORDS = 41, 4, 5
rng = np.random.default_rng(0)
X = rng.integers(0, ROWS, (48, WORDS)).astype("f4")
Y = rng.integers(0, 3, 48).astype("f4")
SHAPES = {"a_weight": (ROWS, WIDTH), "b_weight": (ROWS, WIDTH), "two_weight": (3, WIDTH), "two_bias": (3,)}
OPTIMIZERS = {
    "sgd": {"learning_rate": 0.5, "momentum": 0.9},
    "adagrad": {"learning_rate": 0.3},
    "adam": {"learning_rate": 0.05},
    "ftrl": {"learning_rate": 0.3, "lamda1": 0.001},
}


def network():
    """Return a classifier with a table that is declared row-sparse, and one whose gradient is."""
    words = mx.sym.Variable("data")
    options = {"input_dim": ROWS, "output_dim": WIDTH}
    weight = mx.sym.Variable("a_weight", stype="row_sparse")
    rows = mx.sym.contrib.SparseEmbedding(words, weight, name="a", **options)
    rows = rows + mx.sym.Embedding(words, name="b", sparse_grad=True, **options)
    net = mx.sym.FullyConnected(mx.sym.mean(rows, axis=1), num_hidden=3, name="two")
    return mx.sym.SoftmaxOutput(net, name="softmax")


def fit(module, optimizer, epochs, **options):
    x, y = X[rank::size], Y[rank::size]
    arguments = {
        "optimizer": optimizer,
        "optimizer_params": tuple(OPTIMIZERS[optimizer].items()),
        "initializer": mx.init.Uniform(0.3),
        "eval_metric": "acc",
        **options,
    }
    module.fit(mx.io.NDArrayIter(x, y, 24 // size), kvstore=create(), num_epoch=epochs, **arguments)
    return module


def values(module):
    return {name: array.asnumpy() for name, array in module.get_params()[0].items()}


store = create()
rank, size = store.rank, store.num_workers
spread = size > 1
for optimizer in OPTIMIZERS:
    if sys.argv[1] == "save":
        start = {name: mx.nd.array(rng.standard_normal(shape) * 0.3) for name, shape in SHAPES.items()}
        module = fit(mx.mod.Module(network()), optimizer, 2, arg_params=start)
        found = values(module)
        module.save_checkpoint(optimizer, 2, save_optimizer_states=True)
        # an epoch more, after a save in MXNet's files
        whole = fit(mx.mod.Module(network(), shard_rows=False), optimizer, 2, arg_params=start)
        whole.save_checkpoint(f"{optimizer}-whole", 2, save_optimizer_states=True)
        store.barrier()
        after = values(
            fit(mx.mod.Module.load(f"{optimizer}-whole", 2, load_optimizer_states=True), optimizer, 1)
        )
        if rank == 0:
            arrays = {f"{name}.2": array for name, array in found.items()}
            np.savez(optimizer, **arrays, **{f"{name}.3": array for name, array in after.items()})
        # the tables are in parts only
        if rank == 0:
            held = mx.nd.load(f"{optimizer}-0002.params")
            assert ("arg:a_weight" in held) is not spread
            assert os.path.exists(f"{optimizer}-0002.tables") is spread
        store.barrier()
    saved = np.load(f"{optimizer}.npz")
    names = [name.removesuffix(".2") for name in saved.files if name.endswith(".2")]
    _, args, _ = mx.model.load_checkpoint(optimizer, 2)
    for name in names:
        np.testing.assert_array_equal(args[name].asnumpy(), saved[f"{name}.2"])
    for shards in (True, False):
        module = mx.mod.Module.load(optimizer, 2, load_optimizer_states=True, shard_rows=shards)
        fit(module, optimizer, 1)
        for name, array in values(module).items():
            np.testing.assert_allclose(
                array, saved[f"{name}.3"], atol=2e-6, err_msg=f"{optimizer} {name} {shards}"
            )
store.barrier()
if sys.argv[1] == "save":  # tables in parts, and whole ones that replace them
    for shards in (True, False):
        module = fit(mx.mod.Module(network(), shard_rows=shards), "sgd", 1)
        for _ in range(2):
            module.save_checkpoint("again", 1)
        store.barrier()
        left = [name for name in os.listdir() if name.startswith("again-0001.tables")]
        assert len(left) == (size + 1 if shards and spread else 0), left
        store.barrier()

# a run that was interrupted within an epoch ends in the same bits
if sys.argv[1] == "save":
    ends = []
    for name in ("whole", "stopped"):
        mx.random.seed(4)
        options = {
            "checkpoint": mx.callback.Checkpoint(name, every_n_batches=1, keep_last=1),
            "resume": "auto",
        }
        if name == "stopped":

            def stop(at):
                if at.epoch == 1 and at.nbatch == 0 and rank == size - 1:
                    os.kill(os.getpid(), signal.SIGINT)

            with contextlib.suppress(KeyboardInterrupt):
                fit(mx.mod.Module(network()), "adam", 3, **options, batch_end_callback=stop)
            assert os.path.exists("stopped-last.run")
            assert not os.path.exists("stopped-0002.run")
            mx.random.seed(99)
        ends.append(values(fit(mx.mod.Module(network()), "adam", 3, **options)))
    for key, array in ends[0].items():
        np.testing.assert_array_equal(array, ends[1][key], err_msg=key)
    store.barrier()
    assert len([name for name in os.listdir() if name.startswith("whole-0003.tables.")]) == size * spread
    assert not [name for name in os.listdir() if name.startswith("whole-0002")]

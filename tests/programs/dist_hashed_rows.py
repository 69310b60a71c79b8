"""Tables of ids: the same rows in any number of processes, saved and loaded in others, resumed exactly.

Arguments: "save" to train and write checkpoints; "load" to read them, possibly in another number of processes.
"""

import contextlib
import os
import signal
import sys

import numpy as np

import dpmodule as mx
from helpers.dist_programs import create

COUNT, WIDTH, WORDS = 60, 4, 5
rng = np.random.default_rng(0)
NAMES = rng.integers(-(2**63), 2**63 - 1, COUNT)
X = NAMES[np.minimum(rng.zipf(1.3, (72, WORDS)), COUNT) - 1]
Y = rng.integers(0, 3, 72)
OPTIMIZERS = {
    "sgd": {"learning_rate": 0.5, "momentum": 0.9},
    "adagrad": {"learning_rate": 0.3},
    "adam": {"learning_rate": 0.05},
    "ftrl": {"learning_rate": 0.3, "lamda1": 0.001},
}
OPTIONS = {
    "sgd": {},
    "adagrad": {"min_count": 5},
    "adam": {"ttl_steps": 2},
    "ftrl": {"min_count": 2, "ttl_steps": 3},
}


def network(optimizer):
    rows = mx.sym.Embedding(
        mx.sym.Variable("data"), hash_rows=True, output_dim=WIDTH, name="words", **OPTIONS[optimizer]
    )
    net = mx.sym.FullyConnected(mx.sym.mean(rows, axis=1), num_hidden=3, name="two")
    return mx.sym.SoftmaxOutput(net, name="softmax")


def fit(module, optimizer, epochs, store=None, **options):
    own = slice(None) if store is None else slice(rank, None, size)
    order = np.concatenate([np.arange(72)[i::size].reshape(-1, 12 // size) for i in range(size)], 1).ravel()
    x, y = (X[order], Y[order]) if store is None else (X[own], Y[own])
    batch = 12 if store is None else 12 // size
    arguments = {
        "optimizer": optimizer,
        "optimizer_params": OPTIMIZERS[optimizer],
        "eval_metric": "acc",
        **options,
    }
    data = mx.io.NDArrayIter(mx.nd.array(x, dtype="int64"), y, batch)
    mx.random.seed(6)
    module.fit(data, kvstore=store, num_epoch=epochs, initializer=mx.init.Uniform(0.3), **arguments)
    return module


def values(module):
    arrays = module.get_params()[0]
    table = arrays.pop("words_weight")
    found = {name: array.asnumpy() for name, array in arrays.items()}
    return {**found, "ids": table.indices.asnumpy(), "rows": table.data.asnumpy()}


def same(found, wanted, atol=2e-6):
    np.testing.assert_array_equal(found["ids"], wanted["ids"])
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, atol=atol, err_msg=name)


store = create()
rank, size = store.rank, store.num_workers
for optimizer in OPTIMIZERS:
    if sys.argv[1] == "save":
        module = fit(mx.mod.Module(network(optimizer)), optimizer, 2, create())
        kept = len(module.updates.store._tables["words_weight"].rows)
        found = values(module)
        assert size == 1 or kept < 0.8 * len(found["ids"])
        module.save_checkpoint(optimizer, 2, save_optimizer_states=True)
        store.barrier()
        alone = values(fit(mx.mod.Module(network(optimizer)), optimizer, 2))
        if rank == 0:  # which draws the seed
            same(found, alone)
            np.savez(optimizer, **found)
        ends = [len(found["ids"]), len(np.unique(X))]
        assert ends[0] < ends[1] or not OPTIONS[optimizer]
        store.barrier()
    saved = np.load(f"{optimizer}.npz")
    _, args, _ = mx.model.load_checkpoint(optimizer, 2)
    np.testing.assert_array_equal(args["words_weight"].indices.asnumpy(), saved["ids"])
    np.testing.assert_array_equal(args["words_weight"].data.asnumpy(), saved["rows"])
    module = mx.mod.Module.load(optimizer, 2, load_optimizer_states=True)
    module.bind([mx.io.DataDesc("data", (4, WORDS), "int64")], None, for_training=False)
    predicted = module.predict(mx.io.NDArrayIter(mx.nd.array(X, dtype="int64"), None, 4)).asnumpy()
    rows = dict(zip(saved["ids"].tolist(), saved["rows"]))
    means = np.array([np.mean([rows.get(word, np.zeros(WIDTH)) for word in line], 0) for line in X.tolist()])
    scores = np.exp(means @ saved["two_weight"].T + saved["two_bias"])
    np.testing.assert_allclose(predicted, scores / scores.sum(1, keepdims=True), atol=1e-5)
    for _ in range(2):  # loaded runs go on alike, whatever the number of processes
        module = mx.mod.Module.load(optimizer, 2, load_optimizer_states=True)
        after = values(fit(module, optimizer, 1, create()))
        if not os.path.exists(f"{optimizer}-after.npz") and rank == 0:
            np.savez(f"{optimizer}-after", **after)
        store.barrier()
        same(after, np.load(f"{optimizer}-after.npz"))

if sys.argv[1] == "save":
    for optimizer in ("adam", "ftrl"):
        ends = []
        for name in ("whole", "stopped"):
            saving = {
                "checkpoint": mx.callback.Checkpoint(optimizer + name, every_n_batches=1),
                "resume": "auto",
            }
            if name == "stopped":

                def stop(at):
                    if at.epoch == 1 and at.nbatch == 2 and rank == size - 1:
                        os.kill(os.getpid(), signal.SIGINT)

                with contextlib.suppress(KeyboardInterrupt):
                    fit(
                        mx.mod.Module(network(optimizer)),
                        optimizer,
                        3,
                        create(),
                        batch_end_callback=stop,
                        **saving,
                    )
            ends.append(values(fit(mx.mod.Module(network(optimizer)), optimizer, 3, create(), **saving)))
        same(ends[1], ends[0], 0)
store.barrier()

"""Modules of autobatch whose tables are spread over processes: equal to one process with the joined batches.

Arguments: "save" to train and write checkpoints; "load" to read them, possibly in another number of processes.
"""

import contextlib
import os
import resource
import signal
import sys

import numpy as np

import dpmodule as mx
import dpmodule.autobatch as dy
from dpmodule.base import ArgumentError, BoundsError, StateError
from helpers.dist_programs import create, expect

ROWS, WIDTH, COUNT = 40, 4, 36
rng = np.random.default_rng(0)
X = [rng.integers(0, ROWS, rng.integers(1, 6)).tolist() for _ in range(COUNT)]
Y = rng.integers(0, 3, COUNT).tolist()
OPTIMIZERS = {
    "sgd": {"learning_rate": 0.5, "wd": 0.01, "momentum": 0.9},
    "adagrad": {"learning_rate": 0.3},
    "adam": {"learning_rate": 0.05},
    "ftrl": {"learning_rate": 0.3, "lamda1": 0.001},
}


def network(rows=ROWS, **options):
    """Return a module of sentences: two tables, one of which is also read as a minibatch and as a constant."""
    m = dy.ParameterCollection()
    a = m.add_lookup_parameters((rows, WIDTH), init=dy.UniformInitializer(0.3), name="a")
    b = m.add_lookup_parameters((rows, WIDTH), name="b")
    W = m.add_parameters((3, WIDTH), init=0.1, name="W")

    def program(words, label):
        found = [a[word] + b[rows - 1 - word] for word in words]
        every = dy.sum_batches(a.batch(words)) + b.row(words[0], update=False)
        scores = W * (dy.average(found) + every)
        return None if label is None else dy.pickneglogsoftmax(scores, label), dy.softmax(scores)

    return mx.mod.AutobatchModule(program, m, **options)


def batches(x, y, batch):
    return mx.mod.ExampleIter(x, y, batch_size=batch)


def trained(optimizer, x, y, batch, store, module=None, epochs=2, **options):
    module = module or network()
    settings = {
        "optimizer": optimizer,
        "optimizer_params": OPTIMIZERS[optimizer],
        "kvstore": store,
        **options,
    }
    module.fit(batches(x, y, batch), num_epoch=epochs, **settings)
    return module


def values(module):
    return {name: array.asnumpy() for name, array in module.get_params()[0].items()}


def same(found, wanted):
    """Compare in rank 0; the others draw other initial values for themselves."""
    if rank:
        return
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, atol=2e-6, err_msg=name)


first = create()
rank, size = first.rank, first.num_workers
if sys.argv[1] == "load":
    for name in OPTIMIZERS:
        held = np.load(f"{name}.npz")
        module = network()
        loaded = mx.mod.AutobatchModule.load(
            name, 2, module.function, module.collection, load_optimizer_states=True
        )
        loaded.bind([("data", (12 // size,))], [("softmax_label", (12 // size,))])
        loaded.init_params()
        loaded.init_optimizer(create(), name, OPTIMIZERS[name])
        assert loaded.updates.spread_names() == (["a", "b"] if size > 1 else [])
        same(values(loaded), {key[:-2]: held[key] for key in held if key.endswith(".2")})
        if name == "adam":  # its count of updates is not in the file, as in MXNet
            continue
        after = trained(name, X[rank::size], Y[rank::size], 12 // size, create(), loaded, epochs=1)
        same(values(after), {key[:-2]: held[key] for key in held if key.endswith(".3")})
    sys.exit()

for engine in ("native", "python"):
    dy.configure(engine=engine)
    for name in OPTIMIZERS:
        mx.random.seed(7)
        dy.reset_random_seed(7)
        module = trained(name, X[rank::size], Y[rank::size], 12 // size, create())
        assert module.updates.spread_names() == ["a", "b"]
        own = module.updates.store._tables["a"].own
        assert own.shape[0] <= ROWS / size + 1
        found = values(module)
        dy.reset_random_seed(7)
        same(found, values(trained(name, X, Y, 12, "local")))
        if engine == "native":
            module.save_checkpoint(name, 2, save_optimizer_states=True)
            again = trained(name, X[rank::size], Y[rank::size], 12 // size, module.updates.store, module, 1)
            if rank == 0:
                arrays = {f"{key}.2": array for key, array in found.items()}
                np.savez(name, **arrays, **{f"{key}.3": array for key, array in values(again).items()})
            else:
                values(again)
            first.barrier()
dy.configure(engine="native")

# tables that are not spread
mx.random.seed(7)
for optimizer, options in (("sgd", {"shard_rows": False}), ("rmsprop", {})):
    tables = []
    for store, x, y, batch in ((create(), X[rank::size], Y[rank::size], 12 // size), ("local", X, Y, 12)):
        dy.reset_random_seed(7 + rank)  # the values of rank 0 count
        module = network(**options)
        module.fit(batches(x, y, batch), num_epoch=1, optimizer=optimizer, kvstore=store)
        assert module.updates.spread_names() == []
        tables.append(values(module))
    same(*tables)
    for name, array in first.ranks.gather(tables[0])[0].items():
        np.testing.assert_array_equal(tables[0][name], array)

# gradients of several batches, clipped; processes with different numbers of batches
uneven = slice(0, 12) if rank else slice(0, 36)
for options in ({"accumulate": 2}, {"clip_global_norm": 0.05}):
    dy.reset_random_seed(7)
    module = trained("adam", X[rank::size], Y[rank::size], 12 // size, create(), **options)
    dy.reset_random_seed(7)
    if "accumulate" not in options:
        same(values(module), values(trained("adam", X, Y, 12, "local", **options)))
    else:
        values(module)
module = trained("adam", X[uneven], Y[uneven], 4, create())
for name, array in first.ranks.gather(values(module))[0].items():
    assert (array == values(module)[name]).all()

# rows are fetched in advance; one process predicts while the others wait; whole tables are not read by chance
a = module.collection.lookup_parameters_list()[0]
for read in (
    a.as_array,
    a.grad_as_array,
    a.zero,
    lambda: a.rows_as_array([0]),
    lambda: a.tensor,
    lambda: a + 1,
):
    expect(StateError, "read it with get_params", read)
module.prepare(None, sparse_row_id_fn=lambda batch: {"a": mx.nd.array([1, 2])})
expect(ArgumentError, "names 'c'", lambda: module.prepare(None, sparse_row_id_fn=lambda batch: {"c": [1]}))
first.barrier()
if rank == 0:
    expect(StateError, "a is spread over", lambda: module.save_checkpoint("alone", 1))
    assert module.predict(batches(X, None, 9)).shape == (COUNT, 3)
first.barrier()

# a row outside of a table is an error in all processes
wrong = [[ROWS]] if rank == size - 1 else [[1]]
expect(BoundsError, f"a: rank {size - 1} looks up row {ROWS}", lambda: module.fit(
    batches(wrong, [0], 1), num_epoch=1, kvstore=module.updates.store, optimizer=module.updates.optimizer
))  # fmt: skip

# a run that was interrupted within an epoch ends in the same bits
ends = []
for name in ("whole", "stopped"):
    dy.reset_random_seed(4)
    options = {"checkpoint": mx.callback.Checkpoint(name, every_n_batches=1, keep_last=1), "resume": "auto"}
    if name == "stopped":

        def stop(at):
            if at.epoch == 1 and at.nbatch == 0 and rank == size - 1:
                os.kill(os.getpid(), signal.SIGINT)

        with contextlib.suppress(KeyboardInterrupt):
            trained(
                "adam", X[rank::size], Y[rank::size], 12 // size, create(), batch_end_callback=stop, **options
            )
        assert os.path.exists("stopped-last.run")
        dy.reset_random_seed(99)
    ends.append(values(trained("adam", X[rank::size], Y[rank::size], 12 // size, create(), **options)))
for key, array in ends[0].items():
    np.testing.assert_array_equal(array, ends[1][key], err_msg=key)
first.barrier()

# no process holds a whole table of 122 MB
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
m = dy.ParameterCollection()
large = m.add_lookup_parameters((2_000_000, 16), name="large")
module = mx.mod.AutobatchModule(lambda words, label: dy.sum_elems(dy.average([large[w] for w in words])), m)
mx.random.seed(1)
module.fit(batches([[1, 1_999_999], [5]], [0, 0], 1), num_epoch=1, kvstore=create(), optimizer="sgd")
grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10) - before
assert grown < 122 / size + 50, grown

"""Modules whose tables are spread over processes: equal to one process with the joined batches."""

import logging
import os
import resource
import time

import numpy as np

import dpmodule as mx
from dpmodule.base import ArgumentError, BoundsError, FileError, StateError
from helpers.dist_programs import create, expect
from helpers.small_tasks import SmallestAgent, examples, smallest

ROWS, WIDTH, COUNT, WORDS = 40, 4, 36, 5
rng = np.random.default_rng(0)
X = rng.integers(0, ROWS, (COUNT, WORDS)).astype("f4")
Y = rng.integers(0, 3, COUNT).astype("f4")
OPTIMIZERS = {
    "sgd": {"learning_rate": 0.5, "wd": 0.01},
    "momentum": {"learning_rate": 0.5, "momentum": 0.9},
    "adagrad": {"learning_rate": 0.3},
    "adam": {"learning_rate": 0.05},
    "ftrl": {"learning_rate": 0.3, "lamda1": 0.001},
}


def network(kind):
    """Return a classifier of bags of words over one table, or over two that read the same words."""
    words = mx.sym.Variable("data")
    options = {"input_dim": ROWS, "output_dim": WIDTH}
    if kind == "declared":
        weight = mx.sym.Variable("a_weight", stype="row_sparse")
        rows = mx.sym.contrib.SparseEmbedding(words, weight, name="a", **options)
    else:
        rows = mx.sym.Embedding(words, name="a", sparse_grad=True, **options)
        # the second table is looked up by computed row numbers
        rows = rows + mx.sym.Embedding(ROWS - 1 - words, name="b", sparse_grad=True, **options)
    net = mx.sym.FullyConnected(mx.sym.mean(rows, axis=1), num_hidden=3, name="two")
    return mx.sym.SoftmaxOutput(net, name="softmax")


def values(net):
    shapes = dict(zip(net.list_arguments(), net.infer_shape(data=(1, WORDS))[0]))
    names = [name for name in shapes if name not in ("data", "softmax_label")]
    drawn = np.random.default_rng(3)
    return {name: mx.nd.array(drawn.standard_normal(shapes[name]) * 0.3) for name in names}


def trained(kind, optimizer, x, y, batch, store=None, **options):
    net = network(kind)
    module = mx.mod.Module(net)
    arguments = dict(OPTIMIZERS[optimizer])
    name = "sgd" if optimizer == "momentum" else optimizer
    module.fit(
        mx.io.NDArrayIter(x, y, batch), optimizer=name, optimizer_params=tuple(arguments.items()), num_epoch=2,
        kvstore=store, arg_params=values(net), eval_metric="acc", **options,
    )  # fmt: skip
    return module


def dense(module):
    return {name: array.asnumpy() for name, array in module.get_params()[0].items()}


def same(found, wanted):
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, atol=2e-6, err_msg=name)


first = create()
rank, size = first.rank, first.num_workers
for optimizer in OPTIMIZERS:
    kind = "declared" if optimizer in ("sgd", "ftrl") else "computed"
    module = trained(kind, optimizer, X[rank::size], Y[rank::size], 12 // size, create())
    kept = sum(array.own.shape[0] for array in module.updates.store._tables.values())
    assert kept < ROWS * (1 if kind == "declared" else 2) / size + 2
    batches = [
        np.arange(COUNT)[i::size][k : k + 12 // size]
        for k in range(0, COUNT // size, 12 // size)
        for i in range(size)
    ]
    order = np.concatenate(batches)
    alone = trained(kind, optimizer, X[order], Y[order], 12)
    same(dense(module), dense(alone))

# initial rows do not depend on the number of processes, of which none holds a whole table
for initializer in (mx.init.Uniform(0.1), mx.init.Xavier(), mx.init.Constant(0.25)):
    tables = []
    for kvstore in (create(), "local"):
        mx.random.seed(9)
        module = mx.mod.Module(network("computed"))
        module.bind([("data", (4, WORDS))], [("softmax_label", (4,))])
        module.init_params(initializer)
        module.init_optimizer(kvstore, "adam")
        tables.append(dense(module))
    spread = [name for name in tables[0] if name in ("a_weight", "b_weight")]
    assert rank or all((tables[0][name] == tables[1][name]).all() for name in spread)
    assert (tables[0]["a_weight"] != tables[0]["b_weight"]).all() or type(initializer) is mx.init.Constant
module = mx.mod.Module(network("declared"))  # whole, and filled before the store copies it
module.bind([("data", (4, WORDS))], [("softmax_label", (4,))])
module.init_params(mx.init.Uniform(0.1))
module.init_optimizer(create(), "rmsprop", {"learning_rate": 1e-6})
module.forward_backward(mx.io.DataBatch([mx.nd.array(X[:4])], [mx.nd.array(Y[:4])]))
module.update()
assert abs(dense(module)["a_weight"]).mean() > 0.02
high = mx.sym.Embedding(mx.sym.Variable("data"), input_dim=2_000_000, output_dim=16, sparse_grad=True)
module = mx.mod.Module(mx.sym.SoftmaxOutput(mx.sym.mean(high, axis=1), name="softmax"))
module.bind([("data", (4, WORDS))], [("softmax_label", (4,))])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
module.init_params(mx.init.Uniform(0.1))
module.init_optimizer(create(), "sgd")
grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10) - before
assert grown < 122 / size + 50, grown  # megabytes; the table has 122

# clipped by the norm of all gradients
module = trained(
    "computed", "adam", X[rank::size], Y[rank::size], 12 // size, create(), clip_global_norm=0.05
)
alone = trained("computed", "adam", X[order], Y[order], 12, clip_global_norm=0.05)
same(dense(module), dense(alone))

# processes with different numbers of batches, in training and evaluation; callbacks read tables when they like
seen = []
uneven = slice(0, 12) if rank else slice(0, 36)
module = trained(
    "computed", "adam", X[uneven], Y[uneven], 4, create(),
    eval_data=mx.io.NDArrayIter(X[: 8 * (rank + 1)], Y[: 8 * (rank + 1)], 4),
    epoch_end_callback=lambda epoch, net, args, aux: seen.append(float(args["two_bias"].asnumpy().sum())),
)  # fmt: skip
assert len(seen) == 2
found = dense(module)
same(first.ranks.gather(found)[0], found)

# one process alone cannot have a whole table, but predicts while the others wait
if rank == 0:
    text = "a_weight is spread over"
    expect(StateError, text, lambda: module.save_checkpoint("alone", 1))
    module.predict(mx.io.NDArrayIter(X, None, 9))
first.barrier()

# checkpoints by all; whole tables are set
expect(
    FileError,
    "saves its rows in another folder" if rank == 0 else "rank 0 could not save",
    lambda: module.save_checkpoint(f"rank{rank}", 2),
)
first.barrier()
assert not [name for name in os.listdir() if name.startswith("rank")]
module.save_checkpoint("all", 2)
loaded = mx.mod.Module.load("all", 2, label_names=["softmax_label"])
loaded.bind([("data", (4, WORDS))], [("softmax_label", (4,))])
loaded.init_params()
same(dense(loaded), found)
module.save_pretrained(f"folder{rank}")
start = values(network("computed"))
module.set_params(start, {})
same(dense(module), {name: array.asnumpy() for name, array in start.items()})

# a row that no table has is an error in all processes
module = trained("declared", "sgd", X, Y, 12, create())
words = mx.nd.full((12, WORDS), ROWS + 2 if rank == size - 1 else 1)
text = f"a_weight: rank {size - 1} looks up row {ROWS + 2} of a table with {ROWS} rows"
expect(BoundsError, text, lambda: module.forward(mx.io.DataBatch([words], None), is_train=False))


# buckets, of which the processes have different ones in the same step
class Lengths(mx.io.DataIter):
    """Batches of 4 sentences of 3 or 8 words, in an order that depends on the process."""

    provide_data, provide_label = [("data", (4, 8))], [("softmax_label", (4,))]
    default_bucket_key = 8

    def __init__(self, parts):
        super().__init__(4 * len(parts))
        self.parts, self.at, self.batch_size = parts, 0, 4 * len(parts)

    def reset(self):
        self.at = 0

    def next(self):
        self.at += 1
        if self.at > 6:
            raise StopIteration
        rows = np.arange(4) + 4 * self.at
        length = 3 if self.at % 3 == self.parts[0] % 3 else 8
        words = np.concatenate([(X[rows, :3] * (part + 2)) % ROWS for part in self.parts])
        if length == 8:
            words = np.concatenate([words, words, words[:, :2]], 1)
        labels = np.concatenate([Y[rows]] * len(self.parts))
        data, label = [mx.nd.array(words)], [mx.nd.array(labels)]
        return mx.io.DataBatch(
            data, label, pad=0, bucket_key=length,
            provide_data=[("data", words.shape)], provide_label=[("softmax_label", labels.shape)],
        )  # fmt: skip


def bucketed(parts, store):
    def generate(length):
        return network("computed"), ("data",), ("softmax_label",)

    module = mx.mod.BucketingModule(generate, default_bucket_key=8)
    start = values(network("computed"))
    module.fit(
        Lengths(parts), kvstore=store, optimizer="adam", optimizer_params={"learning_rate": 0.05}, num_epoch=2,
        arg_params=start, eval_metric="acc",
    )  # fmt: skip
    return module


module = bucketed([rank] if size == 2 else [0], create())
assert module._default.updates.spread_names() == ["a_weight", "b_weight"]
found = dense(module)
same(first.ranks.gather(found)[0], found)
if size == 2:  # what a process does that has the sum of these gradients
    alone = mx.mod.BucketingModule(lambda n: (network("computed"), ("data",), ("softmax_label",)), 8)
    alone.bind([("data", (4, 8))], [("softmax_label", (4,))])
    alone.init_params(arg_params=values(network("computed")))
    alone.init_optimizer("local", "adam", {"learning_rate": 0.05, "rescale_grad": 1 / 8})
    for _epoch in range(2):
        for batches in zip(Lengths([0]), Lengths([1])):
            alone.prepare(batches[0])
            alone.forward_backward(batches[0])
            alone.keep_gradients()
            alone.forward_backward(batches[1])
            alone.update()
    same(found, dense(alone))
module.save_checkpoint("buckets", 3, save_optimizer_states=True)
assert os.path.exists("buckets-0003.tables")
loaded = mx.mod.BucketingModule.load("buckets", 3, load_optimizer_states=True)
loaded.bind([("data", (4, 8))], [("softmax_label", (4,))])
loaded.init_params()
loaded.init_optimizer(create(), "adam", {"learning_rate": 0.05})
same(dense(loaded), found)


# agents, whose processes have parts of each batch
def agent(store, batchsize, **options):
    return SmallestAgent(
        smallest(
            batchsize=batchsize,
            kvstore=store,
            optimizer="adagrad",
            initializer=mx.init.Uniform(0.2),
            **options,
        )
    )


def learn(agent, observations):
    agent.batch_act([agent.observe(dict(each)) for each in observations])


both = agent("dist_sync", 2, model_file="agent"), agent("local", 2 * size)
shown = [examples(2 * size, seed) for seed in range(4)]
for i, one in enumerate(both):
    mx.random.seed(2)
    for each in shown:
        learn(one, each if i else each[2 * rank : 2 * rank + 2])
assert both[0].network.module.updates.spread_names() == ["table_weight"]
found = dense(both[0].network.module)
same(first.ranks.gather(dense(both[1].network.module))[0], found)  # other ranks draw other numbers when alone
both[0].save("agent")
loaded = agent("dist_sync", 2, model_file="agent")
learn(loaded, [{"text": "a b", "episode_done": True}] * 2)
same(dense(loaded.network.module), found)


# rows are fetched in advance, until the table changes
class Counted(mx.mod.Module):
    def prepare(self, data_batch, sparse_row_id_fn=None):
        super().prepare(data_batch, lambda batch: {"a_weight": batch.data[0]})
        fetched.append(self.updates.store._tables["a_weight"]._fetched)


fetched = []
module = Counted(network("declared"))
rows = mx.io.NDArrayIter(X[rank::size], Y[rank::size], 12 // size)
arguments = dict(OPTIMIZERS["adam"])
module.fit(
    rows, kvstore=create(), optimizer="adam", optimizer_params=arguments, num_epoch=2,
    arg_params=values(network("declared")), eval_metric="acc",
)  # fmt: skip
assert len(fetched) > 2
assert all(len(each[0]) <= ROWS for each in fetched)
same(dense(module), dense(trained("declared", "adam", X[order], Y[order], 12)))

# gradients of several batches are added
for options in {"accumulate": 3}, {"accumulate": 2, "clip_global_norm": 0.05}:
    module = trained("computed", "adam", X[rank::size], Y[rank::size], 12 // size, create(), **options)
    same(dense(module), dense(trained("computed", "adam", X[order], Y[order], 12, **options)))
added = []
for kvstore in (create(), "local"):
    module = mx.mod.Module(network("declared"))
    count = 12 if kvstore == "local" else 12 // size
    module.bind([("data", (count, WORDS))], [("softmax_label", (count,))], grad_req="add")
    module.init_params(arg_params=values(network("declared")))
    module.init_optimizer(kvstore, "adagrad", {"learning_rate": 0.3, "rescale_grad": 1 / 12})
    for k in range(3):
        own = order[12 * k : 12 * k + 12]
        own = own if kvstore == "local" else own[rank * count : (rank + 1) * count]
        module.forward_backward(mx.io.DataBatch([mx.nd.array(X[own])], [mx.nd.array(Y[own])]))
    module.update()
    added.append(dense(module))
same(*added)

# what differs is told before the first step
module = mx.mod.Module(network("declared"), shard_rows=rank > 0)
module.bind([("data", (4, WORDS))], [("softmax_label", (4,))])
module.init_params()
text = "Module: shard_rows is False on rank 0 and True on rank 1"
expect(ArgumentError, text, lambda: module.init_optimizer(create(), "sgd"))
wide = mx.sym.Embedding(
    mx.sym.Variable("data"), input_dim=ROWS + rank, output_dim=4, sparse_grad=True, name="w"
)
module = mx.mod.Module(mx.sym.SoftmaxOutput(mx.sym.mean(wide, axis=1), name="softmax"))
module.bind([("data", (4, WORDS))], [("softmax_label", (4,))])
module.init_params()
expect(
    ArgumentError,
    "the networks of rank 1 and rank 0 differ: 'w_weight'",
    lambda: module.init_optimizer(create()),
)

# a process that asks for a whole table while the others do something else
module = trained("declared", "sgd", X, Y, 12, create())
if rank == 0:
    begin = time.monotonic()
    expect(StateError, "asked for all of it, but not rank 1", module.get_params)
    assert time.monotonic() - begin < 10
else:
    time.sleep(9)
first.barrier()
assert dense(module)

# another optimizer keeps whole tables
lines = []
handler = logging.Handler()
handler.emit = lambda record: lines.append(record.getMessage())
logging.getLogger("dpmodule").addHandler(handler)
logging.getLogger("dpmodule").setLevel(logging.INFO)
OPTIMIZERS["rmsprop"] = {"learning_rate": 0.01}
module = trained("computed", "rmsprop", X[rank::size], Y[rank::size], 4, create())
assert any("every process keeps all rows, since the optimizer is RMSProp" in line for line in lines), lines
first.barrier()

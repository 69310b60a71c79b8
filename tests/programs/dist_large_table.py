"""Train with a table of 1 GB that is spread over two processes, of which each may hold 800 MB; save and load it."""

import gc
import resource

import numpy as np

import dpmodule as mx
from helpers.dist_programs import create

ROWS, WIDTH = 4_000_000, 64
store = create(timeout_s=120)
words = mx.sym.Variable("data")
rows = mx.sym.Embedding(words, input_dim=ROWS, output_dim=WIDTH, sparse_grad=True, name="table")
net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.mean(rows, axis=1), num_hidden=2), name="softmax")
random = np.random.default_rng(store.rank)
x, y = random.integers(0, ROWS, (64, 5)), random.integers(0, 2, 64)
module = mx.mod.Module(net)
arguments = {
    "optimizer": "sgd",
    "optimizer_params": {"learning_rate": 0.1},
    "initializer": mx.init.Uniform(0.1),
}
module.fit(mx.io.NDArrayIter(x, y, 16), kvstore=store, num_epoch=1, **arguments)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
module.save_checkpoint("large", 1)
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
assert grown < 20 << 10, grown  # kilobytes: a chunk
some = mx.nd.array(np.arange(0, ROWS, 40_001), dtype="int64")
shape = (ROWS, WIDTH)
store.row_sparse_pull("table_weight", first := mx.nd.sparse.zeros("row_sparse", shape), row_ids=some)
del module, store
gc.collect()
store = create(timeout_s=120)
module = mx.mod.Module.load("large", 1)
module.fit(mx.io.NDArrayIter(x, y, 16), kvstore=store, num_epoch=0, **arguments)
store.row_sparse_pull("table_weight", again := mx.nd.sparse.zeros("row_sparse", shape), row_ids=some)
np.testing.assert_array_equal(first.data.asnumpy(), again.data.asnumpy())
module.fit(mx.io.NDArrayIter(x, y, 16), kvstore=store, num_epoch=1, **arguments)
store.barrier()
held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
print(held)
assert held < 800

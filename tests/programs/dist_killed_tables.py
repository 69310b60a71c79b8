"""Train with tables that are spread over processes and saved after every batch; arguments: PREFIX.

Each process prints a line for every batch, and the error if another process is lost; rank 0 writes PREFIX-end.npz.
"""

import sys

import numpy as np

import dpmodule as mx
from dpmodule.base import LostWorkerError
from helpers.dist_programs import ADAM, create, data, embedding, params

prefix = sys.argv[1]
store = create()
x, y = data(words=True, rows=96)
mx.random.seed(7)
module = mx.mod.Module(embedding())
saving = {"checkpoint": mx.callback.Checkpoint(prefix, every_n_batches=1), "resume": "auto"}
try:
    module.fit(
        mx.io.NDArrayIter(x, y, 8, shuffle=True), kvstore=store, optimizer=ADAM[0], optimizer_params=ADAM[1],
        num_epoch=4, shard=True, batch_end_callback=lambda at: print(at.epoch, at.nbatch, flush=True), **saving,
    )  # fmt: skip
    print("end " * 8, flush=True)
    values = params(module)
except LostWorkerError as error:
    print(error)
    sys.exit(3)
if store.rank == 0:
    np.savez(f"{prefix}-end.npz", **values)

"""Train in several processes, of which the second one kills itself; restarted, they resume.

Run as ``torchrun --nproc-per-node 2 --max-restarts 3 dist_restarted.py PREFIX BATCH ...``. In each start, the second
process is killed after the next of these batches; at the end, the first process writes PREFIX-end.npz.
"""

import os
import signal
import sys

import numpy as np

import dpmodule as mx
from helpers.dist_programs import create, data, mlp, params

prefix, *kills = sys.argv[1:]
store, start = create(bucket_mb=1e-5), int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def after_batch(param):
    if store.rank == 1 and start < len(kills) and param.locals["run"].num_batches == int(kills[start]):
        os.kill(os.getpid(), signal.SIGKILL)


mx.random.seed(7)
module = mx.mod.Module(mlp(dropout=0.3, norm=True), context=mx.cpu())
saving = {"checkpoint": mx.callback.Checkpoint(prefix, every_n_batches=2), "resume": "auto"}
options = {"optimizer": "adam", "num_epoch": 3, "shard": True, "batch_end_callback": after_batch, **saving}
module.fit(mx.io.NDArrayIter(*data(rows=90), 8, shuffle=True), kvstore=store, **options)
if store.rank == 0:
    np.savez(f"{prefix}-end.npz", **params(module))

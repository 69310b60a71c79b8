"""Train in several processes, of which the second one kills itself; started again, they go on.

Run as ``torchrun --nproc-per-node 2 --max-restarts 3 restarted.py PREFIX BATCH ...``. Each time it is started, the
second process is killed after the next of these batches, counted from the beginning of the training; once there is none
left, the first process writes the parameters to PREFIX-end.npz.
"""

import os
import signal
import sys

import numpy as np

import dpmodule as mx
from helpers.dist_programs import data, mlp, params

__all__ = ["main"]


def main(prefix, *kills):
    """Train to the end, or to the batch at which this start is to be killed."""
    store = mx.kv.create("dist_sync", timeout_s=30, bucket_mb=1e-5)
    start = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    kill = int(kills[start]) if start < len(kills) else None

    def after_batch(param):
        if store.rank == 1 and param.locals["run"].num_batches == kill:
            os.kill(os.getpid(), signal.SIGKILL)

    mx.random.seed(7)
    module = mx.mod.Module(mlp(dropout=0.3, norm=True), context=mx.cpu())
    x, y = data(rows=90)
    module.fit(
        mx.io.NDArrayIter(x, y, 8, shuffle=True),
        kvstore=store,
        optimizer="adam",
        num_epoch=3,
        shard=True,
        batch_end_callback=after_batch,
        checkpoint=mx.callback.Checkpoint(prefix, every_n_batches=2),
        resume="auto",
    )
    if store.rank == 0:
        np.savez(f"{prefix}-end.npz", **params(module))


if __name__ == "__main__":
    main(*sys.argv[1:])

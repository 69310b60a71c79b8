"""Two processes add to one row of a shared table at once; print the least and the greatest sum."""

import multiprocessing

import numpy as np
import torch

import dpmodule as mx

torch.set_num_threads(1)
table, context = torch.zeros(4, 24).share_memory_(), multiprocessing.get_context("fork")
together = context.Barrier(2)


def work():
    weight = mx.nd.NDArray(table, mx.cpu())
    grad = mx.nd.sparse.row_sparse_array((-np.ones((1, 24), np.float32), [2]), shape=(4, 24))
    update = mx.optimizer.get_updater(mx.optimizer.create("sgd", learning_rate=1.0))
    together.wait(60)
    for _ in range(10_000):
        update(0, grad, weight)


workers = [context.Process(target=work) for _ in range(2)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
assert not table[[0, 1, 3]].any()
print(int(table[2].min()), int(table[2].max()))

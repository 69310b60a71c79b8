"""One of three processes is killed or stopped; the others print the error that names it."""

import os
import signal
import sys

from dpmodule.base import LostWorkerError
from helpers.dist_programs import create, data, embedding, mlp, train

who, how, timeout_s = int(sys.argv[1]), getattr(signal, sys.argv[2]), float(sys.argv[3])
is_spread = "spread" in sys.argv[4:]
first = create()


def after_batch(param):
    if first.rank == who and param.nbatch == 5:
        os.kill(os.getpid(), how)


try:
    net = embedding() if is_spread else mlp()
    store = create(timeout_s=timeout_s)
    options = {"epochs": 3, "batch_end_callback": after_batch}
    train(net, *data(is_spread, rows=480), 8, store, **options)
except LostWorkerError as error:
    print(error)

"""One of three processes is killed or stopped; the others print the error that names it."""

import os
import signal
import sys

from dpmodule.base import LostWorkerError
from helpers.dist_programs import create, data, mlp, train

who, how, timeout_s = int(sys.argv[1]), getattr(signal, sys.argv[2]), float(sys.argv[3])
first = create()


def after_batch(param):
    if first.rank == who and param.nbatch == 5:
        os.kill(os.getpid(), how)


try:
    train(mlp(), *data(rows=480), 8, create(timeout_s=timeout_s), epochs=3, batch_end_callback=after_batch)
except LostWorkerError as error:
    print(error)

"""Train, take snapshots all the time if so asked, and resume from the last one of an earlier process."""

import contextlib
import sys
import threading
from pathlib import Path

import numpy as np

import dpmodule as mx
from dpmodule.base import StateError
from helpers.hogwild import counting_net, counts, train


def main(folder, lines, workers, mode, saves):
    prefix, over = str(Path(folder) / "now"), threading.Event()
    files = sorted(map(str, Path(folder).glob("lines-*")))
    net = counting_net(lines)
    with mx.AsyncExecutor() as run:

        def save():
            while not over.wait(0.002):
                with contextlib.suppress(StateError):  # before the run has begun
                    run.snapshot(prefix)

        thread = threading.Thread(target=save if saves else int)
        thread.start()
        try:
            resume = run.last_snapshot(prefix) and prefix
            result = train(run, net, files, workers, mode, slow=True, resume=resume)
        finally:
            over.set()
            thread.join()
        print(result.examples, np.array_equal(counts(run, net), np.ones(lines)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5]))

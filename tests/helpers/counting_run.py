"""A run over files whose lines each move a number of their own, which tells how often a line has been trained on."""

import contextlib
import sys
import threading

import numpy as np

import dpmodule as mx
from dpmodule.base import StateError
from helpers.hogwild import described

__all__ = ["ONCE", "RATE", "counting_net", "counts", "train", "write_lines"]

BATCH = 4
RATE = {"learning_rate": 0.5 * BATCH}
ONCE = 0.5
"""Where a number stands that was moved half of the way from 0 to 1 once."""


def counting_net(lines):
    """Return the net; its table has a row for each line."""
    row = mx.sym.Embedding(
        mx.sym.Variable("line", stype="ragged"), input_dim=lines, output_dim=1, sparse_grad=True, name="table"
    )
    pooled = mx.sym.sequence_pool(row, pool_type="sum")
    return mx.sym.LinearRegressionOutput(pooled, mx.sym.Variable("label"), name="o")


def write_lines(folder, counts, first=0, blank_every=7):
    """Write files of lines with numbers of their own, and blank ones among them; returns their paths."""
    paths = []
    for number, count in enumerate(counts):
        path = folder / f"lines-{number}"
        own = [f"1 {first + i} 1 1\n" + "\n" * (i % blank_every == 0) for i in range(count)]
        path.write_text("".join(own))
        paths.append(str(path))
        first += count
    return paths


def train(run, net, files, workers, mode, **more):
    """Train on the files once."""
    return run.run_from_files(
        net,
        described(BATCH, line="uint64", label="uint64 dense"),
        files,
        workers,
        mode=mode,
        initializer=mx.init.Zero(),
        optimizer="sgd",
        optimizer_params={**RATE, **more.pop("optimizer_params", {})},
        **more,
    )


def counts(run, net):
    """Return how often each line has been trained on: 0, 1, or what is no whole number."""
    return run.get_params(net)[0]["table_weight"].asnumpy()[:, 0] / ONCE


def main(folder, lines, workers, mode, saves):
    """Train, take snapshots all the time if so asked, and go on from the last one of an earlier process."""
    from pathlib import Path

    prefix, over = str(Path(folder) / "now"), threading.Event()
    files = sorted(map(str, Path(folder).glob("lines-*")))
    net = counting_net(lines)
    with mx.AsyncExecutor() as run:
        last = run.last_snapshot(prefix)

        def save():
            while not over.wait(0.002):
                with contextlib.suppress(StateError):  # before the run has begun
                    run.snapshot(prefix)

        thread = threading.Thread(target=save)
        if saves:
            thread.start()
        try:
            # a schedule of Python makes native workers slow enough to be killed
            rate = mx.lr_scheduler.FactorScheduler(10**9, base_lr=RATE["learning_rate"])
            more = {"optimizer_params": {"lr_scheduler": rate}}
            result = train(run, net, files, workers, mode, resume=last and prefix, **more)
        finally:
            over.set()
            if saves:
                thread.join()
        found = counts(run, net)
        print(result.examples, np.array_equal(found, np.ones(lines)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5]))

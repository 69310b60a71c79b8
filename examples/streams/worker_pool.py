"""Answer requests with workers that keep a model each, and handle a failure of one of them.

A worker is a context manager that does one job at a time. The first failing job puts the pool into die mode: everything
that waits for the pool, and the pool's own context, raises the same exception; nothing is printed.

Figure: accuracy of the answers, at least 0.95; 0.85 with --smoke.
Time: 4 s; 3 s with --smoke.
Run: python examples/streams/worker_pool.py [--smoke]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import dpmodule as mx
from dpmodule.base import ShapeError
from dpmodule.streams import BaseAsyncWorker, BaseAsyncWorkerPool

WORKERS, ROWS = 2, 20


def network() -> mx.sym.Symbol:
    """Return a perceptron with one hidden layer."""
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=64, name="fc1")
    net = mx.sym.Activation(net, act_type="relu", name="relu1")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=10, name="fc2"), name="softmax")


def train(prefix: str, images: np.ndarray, labels: np.ndarray, epochs: int) -> None:
    """Train a small network on digits and save it."""
    module = mx.mod.Module(network())
    batches = mx.io.NDArrayIter(images, labels, batch_size=50, shuffle=True)
    module.fit(
        batches, num_epoch=epochs, initializer=mx.init.Xavier(), optimizer_params={"learning_rate": 0.2}
    )
    module.save_checkpoint(prefix, epochs)


class Scorer(BaseAsyncWorker):
    """Keeps a module that no other worker uses."""

    def __init__(self, prefix: str, epoch: int) -> None:
        self._module = mx.mod.Module.load(prefix, epoch)

    async def __aenter__(self) -> Scorer:
        """Load the module; called once, when the pool is entered."""
        self._module.bind([("data", (ROWS, 64))], for_training=False)
        return self

    async def _do_job(self, images: np.ndarray) -> np.ndarray:
        """Return the digits of some images; a thread computes, so the event loop is not blocked."""
        return await asyncio.to_thread(self._predict, images)

    def _predict(self, images: np.ndarray) -> np.ndarray:
        if images.shape[1:] != (64,):
            raise ShapeError(f"a request of shape {images.shape}, expected (N, 64)")
        self._module.forward(mx.io.DataBatch([mx.nd.array(images)]), is_train=False)
        return self._module.get_outputs()[0].asnumpy().argmax(axis=1)


class ScorerPool(BaseAsyncWorkerPool):
    """Some scorers of one model."""

    def __init__(self, count: int, prefix: str, epoch: int) -> None:
        super().__init__(count)
        self._model = prefix, epoch

    def create_new_worker(self) -> Scorer:
        """Return a worker; called when the pool is entered."""
        return Scorer(*self._model)


async def accuracy(pool: ScorerPool, images: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of right answers; `assign_job` waits while all workers are busy."""
    async with pool:
        futures = [await pool.assign_job(images[i : i + ROWS]) for i in range(0, len(images), ROWS)]
        answers = await asyncio.gather(*futures)
    return float((np.concatenate(answers) == labels).mean())


async def failures(pool: ScorerPool, images: np.ndarray) -> list[BaseException]:
    """Send a request that no worker can answer, and return the exceptions raised in three places."""
    met = []
    try:
        async with pool:
            bad = await pool.assign_job(images[:ROWS, :10])
            await asyncio.wait([bad])
            met += await asyncio.gather(bad, pool.assign_job(images[:ROWS]), return_exceptions=True)
    except ShapeError as error:
        met.append(error)
    return met


def main() -> int:
    """Train, answer, fail and check; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run with a lower target")
    args = parser.parse_args()
    epochs, target = (4, 0.85) if args.smoke else (30, 0.95)

    mx.random.seed(0)
    images, labels = load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(labels))
    images, labels = images[order].astype(np.float32) / 16, labels[order]
    with tempfile.TemporaryDirectory() as folder:
        prefix = str(Path(folder) / "digits")
        train(prefix, images[360:], labels[360:].astype(np.float32), epochs)
        share = asyncio.run(accuracy(ScorerPool(WORKERS, prefix, epochs), images[:360], labels[:360]))
        met = asyncio.run(failures(ScorerPool(WORKERS, prefix, epochs), images))
    same = sum(error is met[0] for error in met)
    print(f"{met[0]!r} was raised in {same} places, expected 3")
    print(f"accuracy of the answers: {share:.3f}, target at least {target}")
    return 0 if share >= target and same == 3 else 1


if __name__ == "__main__":
    sys.exit(main())

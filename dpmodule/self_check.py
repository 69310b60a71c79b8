"""``python -m dpmodule.self_check``: whether this installation computes what it should, in about a minute.

Each check compares with plain PyTorch, NumPy or the same computation done in another way.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import dpmodule as mx
from dpmodule.base import MXNetError

_RATE = 0.1
_RNG = np.random.RandomState(0)
_X = _RNG.normal(size=(64, 8)).astype("float32")
_Y = (_X[:, :4].sum(1) > _X[:, 4:].sum(1)).astype("float32")


def _expect(is_right: bool, what: str) -> None:
    if not is_right:
        raise MXNetError(what)


def _expect_close(found: Any, wanted: Any, what: str, tolerance: float = 1e-4) -> None:
    found, wanted = np.asarray(found, "float64"), np.asarray(wanted, "float64")
    off = float(np.abs(found - wanted).max(initial=0.0)) if found.shape == wanted.shape else np.inf
    _expect(off <= tolerance, f"{what} differ by {off:.2g}, expected at most {tolerance:g}")


def _network() -> mx.sym.Symbol:
    hidden = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=16, name="fc1")
    hidden = mx.sym.Activation(hidden, act_type="tanh", name="tanh1")
    net: mx.sym.Symbol = mx.sym.SoftmaxOutput(
        mx.sym.FullyConnected(hidden, num_hidden=2, name="fc2"), name="softmax"
    )
    return net


def _module(contexts: int = 1, rank: int = 0, processes: int = 1) -> mx.mod.Module:
    """Return a module that was trained for three epochs, here or in several processes."""
    mx.random.seed_all(0)
    rows = np.arange(len(_X)).reshape(-1, processes, 16 // processes)[:, rank].ravel()
    module = mx.mod.Module(_network(), context=[mx.cpu(number) for number in range(contexts)])
    module.fit(
        mx.io.NDArrayIter(_X[rows], _Y[rows], 16 // processes),
        num_epoch=3,
        initializer=mx.init.Xavier(),
        kvstore="local" if processes == 1 else "dist_sync",
        optimizer_params={"learning_rate": _RATE, "momentum": 0.9},
    )
    return module


def _values(module: mx.mod.Module) -> dict[str, np.ndarray]:
    return {name: value.asnumpy() for name, value in module.get_params()[0].items()}


def check_operators() -> None:
    """Convolution, norms, pooling, softmax and recurrence have the gradients of finite differences."""
    data = mx.sym.Variable("data")
    convolution = mx.sym.Convolution(data, kernel=(3, 3), pad=(1, 1), num_filter=3, name="conv")
    networks = {
        "convolution": (convolution, (2, 2, 5, 5)),
        "pooling": (mx.sym.Pooling(data, kernel=(2, 2), stride=(2, 2), pool_type="avg"), (2, 2, 4, 4)),
        "layer norm": (mx.sym.LayerNorm(data, name="norm"), (3, 6)),
        "softmax": (mx.sym.softmax(data), (3, 5)),
    }
    for name, (symbol, shape) in networks.items():
        shapes = dict(zip(symbol.list_arguments(), symbol.infer_shape(data=shape)[0]))
        values = {key: np.asarray(_RNG.normal(size=each), "float32") for key, each in shapes.items()}
        try:
            mx.test_utils.check_numeric_gradient(symbol, values, numeric_eps=1e-2, rtol=0.05, atol=0.01)
        except AssertionError as error:
            raise MXNetError(f"gradients of {name}: {error}") from None


def check_training() -> None:
    """`Module.fit` takes the steps of plain PyTorch, on one device and on two."""
    mx.random.seed_all(0)
    start = mx.mod.Module(_network())
    start.bind([("data", (16, 8))], [("softmax_label", (16,))])
    start.init_params(mx.init.Xavier())
    first = {name: torch.tensor(value, requires_grad=True) for name, value in _values(start).items()}
    sgd = torch.optim.SGD(first.values(), lr=_RATE, momentum=0.9)
    for _ in range(3):
        for begin in range(0, len(_X), 16):
            x, y = torch.tensor(_X[begin : begin + 16]), torch.tensor(_Y[begin : begin + 16]).long()
            hidden = torch.tanh(x @ first["fc1_weight"].T + first["fc1_bias"])
            loss = torch.nn.functional.cross_entropy(hidden @ first["fc2_weight"].T + first["fc2_bias"], y)
            for parameter, grad in zip(first.values(), torch.autograd.grad(loss, list(first.values()))):
                parameter.grad = grad
            sgd.step()
    for contexts in (1, 2):
        for name, value in _values(_module(contexts)).items():
            _expect_close(value, first[name].detach(), f"{name} on {contexts} devices and in PyTorch")


def check_checkpoints() -> None:
    """A loaded checkpoint predicts the same, to the bit, and so does its ONNX model up to rounding."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    module = _module()
    module.save_checkpoint("net", 3)
    wanted = module.predict(mx.io.NDArrayIter(_X, batch_size=16)).asnumpy()
    loaded = mx.mod.Module.load("net", 3)
    loaded.bind([("data", (16, 8))], for_training=False)
    found = loaded.predict(mx.io.NDArrayIter(_X, batch_size=16)).asnumpy()
    _expect(bool((found == wanted).all()), "predictions of a loaded checkpoint differ")
    path = mx.onnx.export_model("net-symbol.json", "net-0003.params", [(16, 8)], onnx_file_path="net.onnx")
    (of_onnx,) = ReferenceEvaluator(onnx.load(path)).run(None, {"data": _X[:16]})
    _expect_close(of_onnx, wanted[:16], "predictions of the ONNX model")


def train_in_two_processes() -> None:
    """Train in one of two processes of torchrun; the first one saves the result."""
    rank = int(os.environ["RANK"])
    module = _module(rank=rank, processes=2)
    if rank == 0:
        module.save_params("both.params")


def check_processes() -> None:
    """Two processes of torchrun train what one does."""
    program = Path("part.py")
    program.write_text("import dpmodule.self_check as s\ns.train_in_two_processes()\n", encoding="ascii")
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        str(program),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    _expect(done.returncode == 0, f"torchrun ended with {done.returncode}: {done.stderr[-2000:]}")
    found: Any = mx.nd.load("both.params")
    for name, value in _values(_module()).items():
        _expect_close(found[f"arg:{name}"].asnumpy(), value, f"{name} of two processes and of one")


def check_buckets() -> None:
    """A `BucketingModule` learns to count in sentences of two lengths."""
    mx.random.seed_all(0)

    def network(length: int) -> tuple[mx.sym.Symbol, tuple[str], tuple[str]]:
        words = mx.sym.Embedding(mx.sym.Variable("data"), input_dim=8, output_dim=8, name="words")
        cell = mx.rnn.LSTMCell(16, prefix="lstm_")
        states, _ = cell.unroll(length, words, merge_outputs=True)
        scores = mx.sym.FullyConnected(mx.sym.reshape(states, (-1, 16)), num_hidden=8, name="out")
        label = mx.sym.reshape(mx.sym.Variable("softmax_label"), (-1,))
        return mx.sym.SoftmaxOutput(scores, label, name="softmax"), ("data",), ("softmax_label",)

    sentences = [
        [(begin + step) % 7 + 1 for step in range(length)] for begin in range(40) for length in (4, 6)
    ]
    data = mx.rnn.BucketSentenceIter(sentences, 8, buckets=[4, 6], invalid_label=0)
    module = mx.mod.BucketingModule(network, default_bucket_key=6)
    module.fit(
        data,
        num_epoch=12,
        eval_metric=mx.metric.Perplexity(0),
        optimizer="adam",
        optimizer_params={"learning_rate": 0.05},
    )
    perplexity = module.score(data, mx.metric.Perplexity(0))[0][1]
    _expect(perplexity < 1.5, f"perplexity after 12 epochs is {perplexity:.2f}, expected less than 1.5")


def check_batching() -> None:
    """A PyTorch function of one sequence has the same results and gradients when `autobatch` runs many together."""
    from dpmodule import autobatch

    torch.manual_seed(0)
    cell = torch.nn.GRUCell(4, 4)
    sequences = [torch.randn(length, 4) for length in (3, 1, 5, 2)]

    def last(sequence: torch.Tensor) -> torch.Tensor:
        state = sequence.new_zeros(1, 4)
        for element in sequence:
            state = cell(element[None], state)
        return state.sum()

    wanted = torch.stack([last(each) for each in sequences])
    grads = torch.autograd.grad(wanted.sum(), list(cell.parameters()))
    found = torch.stack(list(autobatch.map(last, sequences)))
    _expect_close(found.detach(), wanted.detach(), "results of autobatch.map and of a loop")
    for ours, each in zip(torch.autograd.grad(found.sum(), list(cell.parameters())), grads):
        _expect_close(ours, each, "gradients of autobatch.map and of a loop")


def check_files() -> None:
    """Two workers of `AsyncExecutor` read each line of four files once, and learn from them."""
    mx.random.seed_all(0)
    files = [f"part-{number}" for number in range(4)]
    for name in files:
        rows = _RNG.normal(size=(300, 8)).round(3)
        lines = [f"8 {' '.join(map(str, row))} 1 {int(row[:4].sum() > row[4:].sum())}\n" for row in rows]
        Path(name).write_text("".join(lines), encoding="ascii")
    feed = mx.DataFeedDesc("""
        batch_size: 20
        multi_slot_desc {
          slots { name: "data" type: "float" is_dense: true is_used: true }
          slots { name: "softmax_label" type: "uint64" is_dense: true is_used: true }
        }""")
    with mx.AsyncExecutor() as run:
        for _ in range(5):
            result = run.run_from_files(
                _network(), feed, files, 2, optimizer_params={"learning_rate": 0.5}, eval_metric="acc"
            )
            _expect(result.examples == 1200, f"{result.examples} lines were read, expected 1200")
    accuracy = dict(result.metric)["accuracy"]
    _expect(accuracy > 0.9, f"accuracy on the fifth pass is {accuracy:.2f}, expected more than 0.9")


def check_worlds() -> None:
    """Batches and workers report what one agent alone does."""
    from dpmodule.agents import RepeatLabelAgent, create_task

    for ways in ({}, {"batchsize": 8}, {"numthreads": 2, "batchsize": 4}):
        opt = {"task": "nocandidate", "datatype": "valid", **ways}
        with create_task(opt, RepeatLabelAgent(opt)) as world:
            while not world.epoch_done():
                world.parley()
            report = world.report()
        _expect(report["total"] == 100 and report["accuracy"] == 1.0, f"with {ways} the report is {report}")


def check_streams() -> None:
    """Workers hand over the batches of torch's `DataLoader`, and end with it."""
    from dpmodule.streams import DataLoader

    data = torch.utils.data.TensorDataset(torch.tensor(_X), torch.tensor(_Y))
    before = set(multiprocessing.active_children())
    found = [[part.clone() for part in batch] for batch in DataLoader(data, batch_size=10, num_workers=2)]
    left = set(multiprocessing.active_children()) - before
    _expect(not left, f"worker processes are left: {left}")
    wanted = list(torch.utils.data.DataLoader(data, batch_size=10))
    _expect(len(found) == len(wanted), f"there are {len(found)} batches, expected {len(wanted)}")
    for ours, theirs in zip(found, wanted):
        _expect(all(map(torch.equal, ours, theirs)), "a batch differs from torch's")


CHECKS: tuple[Callable[[], None], ...] = (
    check_operators,
    check_training,
    check_processes,
    check_checkpoints,
    check_buckets,
    check_batching,
    check_files,
    check_worlds,
    check_streams,
)


def main() -> int:
    """Run all checks in a temporary folder, and print a line for each; returns the number of those that failed."""
    from dpmodule.cli.__main__ import main as run_command

    run_command(["info"])
    failed, folder = 0, os.getcwd()
    with tempfile.TemporaryDirectory() as made:
        os.chdir(made)
        for check in CHECKS:
            begin, result = time.perf_counter(), "ok"
            try:
                check()
            except Exception:
                traceback.print_exc()
                failed, result = failed + 1, "FAILED"
            print(f"{result:6} {time.perf_counter() - begin:5.1f} s  {check.__doc__}", flush=True)
        os.chdir(folder)
    return failed


if __name__ == "__main__":
    sys.exit(main())

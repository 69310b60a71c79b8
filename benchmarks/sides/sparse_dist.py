"""A process that trains a click model with one table: spread over processes, whole, alone, or under torch or torchrec.

"files-spread" and "files-whole" train from files by AsyncExecutor, "program-spread" and "program-whole" a program for
one example by AutobatchModule.

Run as ``torchrun --standalone --nproc-per-node N -m benchmarks.sides.sparse_dist SYSTEM ROWS STEPS ROUNDS``; each
process prints, as JSON, the milliseconds of CPU time of a step in every round, its memory, and its loss at the end.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from .serve import limit_threads, rss_mb

__all__ = ["main"]

WIDTH, BATCH, IDS = 16, 64, 10
RATE = 0.05


def _ours(rows: int, kind: str, batches: list[Any]) -> Callable[[], None]:
    """Return a function that trains an epoch: "spread" or "whole" with "dist_sync", "one" without a store."""
    import dpmodule as mx

    words = mx.sym.Embedding(
        mx.sym.Variable("data"), input_dim=rows, output_dim=WIDTH, sparse_grad=True, name="words"
    )
    net = mx.sym.FullyConnected(mx.sym.sum(words, axis=1), num_hidden=2)
    module = mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"), shard_rows=kind == "spread")
    module.bind([("data", (BATCH, IDS))], [("softmax_label", (BATCH,))])
    module.init_params(mx.init.Uniform(0.01))
    module.init_optimizer("local" if kind == "one" else "dist_sync", "adagrad", {"learning_rate": RATE})
    data = [mx.io.DataBatch([mx.nd.array(x, dtype="int64")], [mx.nd.array(y)]) for x, y in batches]

    def epoch() -> None:
        for batch in data:
            module.forward_backward(batch)
            module.update()

    return epoch


def _files(rows: int, kind: str, batches: list[Any]) -> Callable[[], None]:
    """Return a function that trains an epoch from a file of its own, which ends with an average of the processes."""
    import dpmodule as mx

    lines = [f"{IDS} {' '.join(map(str, ids))} 1 {label}\n" for x, y in batches for ids, label in zip(x, y)]
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    path = Path(folder, f"lines-{os.environ['RANK']}")
    path.write_text("".join(lines))
    feed = mx.DataFeedDesc(
        f'batch_size: {BATCH} multi_slot_desc {{ slots {{ name: "words" type: "uint64" is_used: true }}'
        'slots { name: "label" type: "uint64" is_dense: true is_used: true } }'
    )
    table = mx.sym.Embedding(
        mx.sym.Variable("words", stype="ragged"),
        input_dim=rows,
        output_dim=WIDTH,
        sparse_grad=True,
        name="table",
    )
    net = mx.sym.FullyConnected(mx.sym.sequence_pool(table, pool_type="sum"), num_hidden=2)
    net = mx.sym.SoftmaxOutput(net, mx.sym.Variable("label"), name="softmax")
    executor = mx.AsyncExecutor()

    def epoch() -> None:
        executor.run_from_files(
            net, feed, [str(path)], 1, optimizer="adagrad", optimizer_params={"learning_rate": RATE},
            average_every_n_batches=len(batches), shard_rows=kind == "spread",
        )  # fmt: skip

    return epoch


def _program(rows: int, kind: str, batches: list[Any]) -> Callable[[], None]:
    """Return a function that trains an epoch of a program for one example."""
    import dpmodule as mx
    import dpmodule.autobatch as dy

    collection = dy.ParameterCollection()
    table = collection.add_lookup_parameters((rows, WIDTH), init=dy.UniformInitializer(0.01))
    over = collection.add_parameters((2, WIDTH))

    def program(words: Any, label: Any) -> Any:
        return dy.pickneglogsoftmax(over * dy.esum([table[word] for word in words]), label)

    module = mx.mod.AutobatchModule(program, collection, shard_rows=kind == "spread")
    module.bind([("data", (BATCH, IDS))], [("softmax_label", (BATCH,))])
    module.init_params()
    module.init_optimizer("dist_sync", "adagrad", {"learning_rate": RATE})
    data = [mx.io.DataBatch([x.tolist()], [y.tolist()]) for x, y in batches]

    def epoch() -> None:
        for batch in data:
            module.forward_backward(batch)
            module.update()

    return epoch


def _theirs(rows: int, batches: list[Any]) -> Callable[[], None]:
    """Return a function that trains an epoch with DistributedDataParallel and a sparse embedding."""
    dist.init_process_group("gloo")
    table = torch.nn.EmbeddingBag(rows, WIDTH, mode="sum", sparse=True)
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(table, torch.nn.Linear(WIDTH, 2)))
    optimizer = torch.optim.Adagrad(net.parameters(), lr=RATE)
    data = [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in batches]

    def epoch() -> None:
        for x, y in data:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()

    return epoch


def _torchrec(rows: int, batches: list[Any]) -> Callable[[], None]:
    """Return a function that trains an epoch with torchrec, which spreads the rows over the processes."""
    import torchrec
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from torchrec.distributed import DistributedModelParallel
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.sharding_plan import construct_module_sharding_plan, row_wise
    from torchrec.distributed.types import ShardingPlan

    class Net(torch.nn.Module):
        """The table, and a dense layer."""

        def __init__(self) -> None:
            super().__init__()
            config = torchrec.EmbeddingBagConfig(
                name="words",
                embedding_dim=WIDTH,
                num_embeddings=rows,
                feature_names=["words"],
                pooling=torchrec.PoolingType.SUM,
            )
            self.table = torchrec.EmbeddingBagCollection(tables=[config], device=torch.device("meta"))
            self.over = torch.nn.Linear(WIDTH, 2)

        def forward(self, words: Any) -> Any:
            """Return the scores, (BATCH, 2)."""
            return self.over(self.table(words)["words"])

    dist.init_process_group("gloo")
    size, net = dist.get_world_size(), Net()
    rule = {"optimizer": EmbOptimType.EXACT_ADAGRAD, "learning_rate": RATE}
    sharders: Any = [EmbeddingBagCollectionSharder(fused_params=rule)]
    # the planner does not offer rows on the CPU
    rows_on_ranks = construct_module_sharding_plan(
        net.table, {"words": row_wise(compute_kernel="fused")}, sharders[0], size, size, "cpu"
    )
    plan = ShardingPlan({"table": rows_on_ranks})
    model = DistributedModelParallel(net, device=torch.device("cpu"), plan=plan, sharders=sharders)
    optimizer = torch.optim.Adagrad(net.over.parameters(), lr=RATE)
    lengths = torch.full((BATCH,), IDS)
    data = [
        (
            torchrec.KeyedJaggedTensor.from_lengths_sync(["words"], torch.from_numpy(x).flatten(), lengths),
            torch.from_numpy(y),
        )
        for x, y in batches
    ]

    def epoch() -> None:
        for x, y in data:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()

    return epoch


def main() -> None:
    """Train, and print what it took."""
    system, (rows, steps, rounds) = sys.argv[1], map(int, sys.argv[2:])
    limit_threads(torch)
    rng = np.random.default_rng(0)
    batches = [(rng.integers(0, rows, (BATCH, IDS)), rng.integers(0, 2, BATCH)) for _ in range(steps)]
    before = rss_mb()
    what, _, kind = system.rpartition("-")
    own = {"files": _files, "program": _program}.get(what, _ours)
    make = {"ddp": _theirs, "torchrec": _torchrec}.get(system, partial(own, kind=kind))
    epoch = make(rows, batches=batches)
    epoch()
    times = []
    for _ in range(rounds):
        begin = time.process_time()
        epoch()
        times.append((time.process_time() - begin) / steps * 1e3)
    print(json.dumps({"cpu": times, "memory": rss_mb() - before}), flush=True)
    if dist.is_initialized():
        dist.barrier()
    if system in ("ddp", "torchrec"):
        dist.destroy_process_group()  # without which gloo aborts now and then


if __name__ == "__main__":
    main()

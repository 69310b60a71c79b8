"""A process that trains a click model with one table: spread over processes, whole, alone, or under torch or torchrec.

Run as ``torchrun --standalone --nproc-per-node N -m benchmarks.sides.sparse_dist SYSTEM ROWS STEPS ROUNDS``; each
process prints, as JSON, the milliseconds of CPU time of a step in every round, its memory, and its loss at the end.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
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
    make = {"ddp": _theirs, "torchrec": _torchrec}.get(system, partial(_ours, kind=system))
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


if __name__ == "__main__":
    main()

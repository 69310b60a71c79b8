"""Two processes that train together: `fit` with "dist_sync", and torch's DistributedDataParallel, in turns.

Run as ``torchrun --standalone --nproc-per-node 2 -m benchmarks.sides.distributed WORKLOAD BATCHES ROUNDS``; the first
process prints, as JSON, the milliseconds of a batch of every round of each, and how far the parameters are apart after
the same batches.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import dpmodule as mx

from .module import OPTIONS, Trainer
from .plain import Plain
from .plain_networks import named_values
from .serve import Clock

__all__ = ["main"]


class Ours:
    """`fit` with a kvstore "dist_sync".

    Args:
        workload: name of the workload.
        batches: batches in an epoch of each process.
    """

    def __init__(self, workload: str, batches: int) -> None:
        self.trainer = Trainer(mx, workload, batches)
        rows = 1.0 / self.trainer.workload.batch_size / dist.get_world_size()
        self.trainer.module.init_optimizer(
            "dist_sync", "sgd", {**OPTIONS, "rescale_grad": rows}, force_init=True
        )

    def fit(self) -> None:
        """Train on every batch."""
        self.trainer.data.reset()
        self.trainer.module.fit(self.trainer.data, num_epoch=1, on_nonfinite="ignore")

    def values(self) -> dict[str, torch.Tensor]:
        """Return the parameters."""
        return {name: array.raw for name, array in self.trainer.module.get_params()[0].items()}


class Theirs:
    """The plain loop over a DistributedDataParallel.

    Args:
        workload: name of the workload.
        batches: batches in an epoch of each process.
    """

    def __init__(self, workload: str, batches: int) -> None:
        self.plain = Plain(workload, batches, "NCHW/foreach/slices")
        self.own = self.plain.net
        self.plain.net = DistributedDataParallel(self.own, gradient_as_bucket_view=True)

    def fit(self) -> None:
        """Train on every batch."""
        self.plain.fit()

    def values(self) -> dict[str, torch.Tensor]:
        """Return the parameters."""
        return {name: value.detach() for name, value in named_values(self.own).items()}


def _measured(run: Callable[[], Any], batches: int) -> dict[str, float]:
    dist.barrier()
    clock = Clock()
    run()
    return clock.read(batches)


def _apart(sides: dict[str, Any]) -> float:
    """Return the greatest difference of a parameter, relative to its own size or 1."""
    ours, theirs = (sides[name].values() for name in ("ours", "theirs"))
    return max(
        float((ours[name] - theirs[name]).abs().max() / max(1.0, float(ours[name].abs().max())))
        for name in ours
    )


def main() -> None:
    """Measure and print."""
    workload, batches, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    sides = {"ours": Ours(workload, batches), "theirs": Theirs(workload, batches)}
    found: dict[str, Any] = {name: {"wall": [], "cpu": []} for name in sides}
    for turn in range(rounds + 1):
        for name in sorted(sides, reverse=bool(turn % 2)):
            taken = _measured(sides[name].fit, batches)
            if turn:  # the first one warms up
                for clock, value in taken.items():
                    found[name][clock].append(value)
        if not turn:
            found["apart"] = _apart(sides)
    if dist.get_rank() == 0:
        print(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

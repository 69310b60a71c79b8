"""Hogwild: two processes train one table of word vectors, without locks.

The agent learns to find the function of a Python module that a sentence of the documentation describes. `create_task`
creates a `HogwildWorld`, whose workers have copies of the world; `share()` passes them the parameters in shared memory,
and each `parley()` starts one example in one worker. The report adds up the metrics of all workers.

Figure: right of up to 20 candidates, at least 0.65; 0.25 with --smoke.
Time: 22 s; 7 s with --smoke.
Run: python examples/agents/hogwild.py [--smoke]
"""

from __future__ import annotations

import argparse
import sys
import time

import dpmodule as mx
from dpmodule.agents import RandomCandidateAgent, StarspaceAgent, create_task


def score(agent: object, split: str) -> float:
    """Return how often an agent chooses the right candidate, over all questions of a split."""
    world = create_task({"task": f"docs:{split}", "datatype": "valid", "batchsize": 16}, agent)
    while not world.epoch_done():
        world.parley()
    return float(world.report()["hits@1"])


def main() -> int:
    """Train and compare with chance; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run with a lower target")
    parser.add_argument("--workers", type=int, default=2, help="number of workers")
    args = parser.parse_args()
    epochs, target = (1, 0.25) if args.smoke else (5, 0.65)

    mx.random.seed(0)
    opt = {"task": "docs", "datatype": "train", "numthreads": args.workers, "seed": 0}
    agent = StarspaceAgent(opt)
    begin = time.perf_counter()
    with create_task(opt, agent) as world:
        while world.get_total_epochs() < epochs:
            world.parley()
        total = world.report()["total"]  # waits for unfinished parleys
    seconds = time.perf_counter() - begin
    print(f"{total} examples by {args.workers} workers in {seconds:.1f} s ({total / seconds:.0f} a second)")

    chance = score(RandomCandidateAgent({}), "train")
    seen, unseen = score(agent, "train"), score(agent, "valid")
    print(f"unseen sentences: {unseen:.3f}")
    print(f"by chance: {chance:.3f}")
    print(f"right of up to 20 candidates: {seen:.3f}, target at least {target}")
    return 0 if seen >= target else 1


if __name__ == "__main__":
    sys.exit(main())

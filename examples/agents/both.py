"""Hogwild and batches: two processes, each of which learns from 32 dialogues at a time.

With `numthreads` and `batchsize` above 1, each worker of the `HogwildWorld` has a `BatchWorld`. The rest is unchanged:
the teacher gives each sorted batch to one of the workers, and all train one network.

Figure: accuracy on texts not trained on, at least 0.95; 0.6 with --smoke.
Time: 11 s; 5 s with --smoke.
Run: python examples/agents/both.py [--smoke]
"""

from __future__ import annotations

import argparse
import sys

import dpmodule as mx
from dpmodule.agents import Seq2seqAgent, create_task


def main() -> int:
    """Train, evaluate with the same workers, and compare; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run with a lower target")
    parser.add_argument("--workers", type=int, default=2, help="number of workers")
    args = parser.parse_args()
    task, epochs, target = (
        ("reverse:length=4:letters=5:size=2000", 3, 0.6) if args.smoke else ("reverse", 3, 0.95)
    )

    mx.random.seed(0)
    opt = {"task": task, "datatype": "train", "batchsize": 32, "batch_sort": True, "seed": 0}
    opt["numthreads"] = args.workers
    agent = Seq2seqAgent(opt)
    with create_task(opt, agent) as world:
        for epoch in range(1, epochs + 1):
            while world.get_total_epochs() < epoch:
                world.parley()
            report = world.report()
            world.reset_metrics()
            print(
                f"epoch {epoch}: {report['total']} examples, loss {report['loss']}, accuracy {report['accuracy']}"
            )

    reports = []
    for workers in (1, args.workers):
        with create_task({**opt, "datatype": "valid", "numthreads": workers}, agent) as world:
            while not world.epoch_done():
                world.parley()
            reports.append(world.report())
    print(f"one worker reports the same as {args.workers}: {reports[0] == reports[1]}")
    accuracy = reports[1]["accuracy"]
    print(f"accuracy on texts not trained on: {accuracy:.3f}, target at least {target}")
    return 0 if accuracy >= target and reports[0] == reports[1] else 1


if __name__ == "__main__":
    sys.exit(main())

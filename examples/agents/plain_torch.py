"""Plain torch: an agent with a torch model, trained with Hogwild workers, in batches, and with both.

The original calls `model.share_memory()`, `share()` returns the model, and a copy takes it from `shared` without
further initialization. `batch_act` handles batches, and `act` is a batch of one. The task is to return the last of a
few numbers.

Figure: lowest accuracy of the four on texts not trained on, at least 0.95; 0.8 with --smoke.
Time: 11 s; 7 s with --smoke.
Run: python examples/agents/plain_torch.py [--smoke]
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from dpmodule.agents import Agent, FixedDialogTeacher, create_task

TOKENS, LENGTH = 12, 4


class LastTeacher(FixedDialogTeacher):
    """Asks for the last of a few numbers; examples are created on demand."""

    def get(self, episode_idx: int, entry_idx: int = 0) -> dict[str, Any]:
        """Return an example."""
        rng = random.Random(f"{self.datatype[:5]} {episode_idx}")
        numbers = [str(rng.randrange(TOKENS)) for _ in range(LENGTH)]
        return {"text": " ".join(numbers), "labels": numbers[-1:], "episode_done": True}

    def num_examples(self) -> int:
        """Return the number of examples."""
        return 2000 if self.training else 300

    def num_episodes(self) -> int:
        """Return the number of episodes."""
        return self.num_examples()


class LastAgent(Agent):
    """Scores every number from the numbers at all positions."""

    def __init__(self, opt: Mapping[str, Any], shared: Mapping[str, Any] | None = None) -> None:
        super().__init__(opt, shared)
        self.id = "last"
        if shared:
            torch.set_num_threads(1)  # or each worker would use all processors
            self.model = shared["model"]
        else:
            torch.manual_seed(0)
            layers = torch.nn.Embedding(LENGTH * TOKENS, 16), torch.nn.Linear(16 * LENGTH, TOKENS)
            self.model = torch.nn.Sequential(layers[0], torch.nn.Flatten(), layers[1])
            self.model.share_memory()
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)

    def share(self) -> dict[str, Any]:
        """Return the state of a copy: the same model."""
        return {**super().share(), "model": self.model}

    def act(self) -> dict[str, Any]:
        """Answer the observation."""
        return self.batch_act([self.observation])[0]

    def batch_act(self, observations: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Answer all rows in one batch, and learn from them if they have labels; rows without a text get no answer."""
        replies: list[dict[str, Any]] = [{"id": self.getID()} for _ in observations]
        rows = [row for row, each in enumerate(observations) if "text" in each]
        if not rows:
            return replies
        numbers = torch.tensor([list(map(int, observations[row]["text"].split())) for row in rows])
        scores = self.model(numbers + torch.arange(LENGTH) * TOKENS)
        if "labels" in observations[rows[0]]:
            labels = torch.tensor([int(observations[row]["labels"][0]) for row in rows])
            self.optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(scores, labels)
            loss.backward()
            self.optimizer.step()
        for row, best in zip(rows, scores.argmax(1).tolist()):
            replies[row]["text"] = str(best)
        return replies


def main() -> int:
    """Train in each kind of world; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run with a lower target")
    args = parser.parse_args()
    epochs, target = (1, 0.8) if args.smoke else (4, 0.95)

    random.seed(0)
    reached = []
    ways: dict[str, dict[str, int]] = {
        "plain": {},
        "batches": {"batchsize": 4},
        "Hogwild": {"numthreads": 2},
        "both": {"numthreads": 2, "batchsize": 4},
    }
    for name, way in ways.items():
        opt = {"task": f"{__name__}:LastTeacher", "datatype": "train", "seed": 0, **way}
        agent = LastAgent(opt)
        with create_task(opt, agent) as world:
            while world.get_total_epochs() < epochs:
                world.parley()
        with create_task({**opt, "datatype": "valid"}, agent) as world:
            while not world.epoch_done():
                world.parley()
            reached.append(world.report()["accuracy"])
        print(f"{name}: {type(world).__name__}, accuracy {reached[-1]:.3f}")
    print(
        f"lowest accuracy of the four on texts not trained on: {min(reached):.3f}, target at least {target}"
    )
    return 0 if min(reached) >= target else 1


if __name__ == "__main__":
    sys.exit(main())

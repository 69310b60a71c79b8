"""ModuleAgent: a custom network as an agent, and a custom task.

A subclass defines the network (`sym_gen`) and its inputs (`vectorize`); `ModuleAgent` provides batches, Hogwild, saving
and loading. The task is to find the mood of a text, one of five. Each mood has its own words, mixed with others.

Figure: accuracy of the loaded agent on texts not trained on, at least 0.95; 0.8 with --smoke.
Time: 5 s; 3 s with --smoke.
Run: python examples/agents/module_agent.py [--smoke]
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dpmodule as mx
from dpmodule.agents import DialogTeacher, ModuleAgent, create_agent, create_task, vectors

MOODS = {
    "glad": "sun song laugh dance bright",
    "sad": "rain tear alone grey gone",
    "calm": "lake breath slow moon rest",
    "angry": "shout fist storm slam red",
    "afraid": "dark creak shadow run hide",
}
OTHERS = "the a we it then was there one day house street some and".split()  # noqa: SIM905  # easier to read


class MoodTeacher(DialogTeacher):
    """Asks for the mood of a text."""

    def setup_data(self, path: Any) -> Iterator[tuple[tuple[str, list[str]], bool]]:
        """Yield texts and moods, each a separate episode."""
        split, _, _ = str(self.opt["datatype"]).partition(":")
        rng = random.Random(split)
        for _ in range(2000 if split == "train" else 300):
            mood = rng.choice(list(MOODS))
            words = [rng.choice(MOODS[mood].split()), rng.choice(MOODS[mood].split())]
            words += [rng.choice(MOODS[rng.choice(list(MOODS))].split()), *rng.choices(OTHERS, k=6)]
            rng.shuffle(words)
            yield (" ".join(words), [mood]), True


class MoodAgent(ModuleAgent):
    """Predicts the mood from the words of a text: a bag of words, a hidden layer, softmax."""

    default_optimizer = "adam"
    default_learningrate = 0.01

    def sym_gen(self, opt: Mapping[str, Any], dict: Any) -> mx.sym.Symbol:
        """Return the network."""
        x = mx.sym.Variable("words")
        x = mx.sym.relu(mx.sym.FullyConnected(x, num_hidden=32, name="hidden"))
        return mx.sym.SoftmaxOutput(
            mx.sym.FullyConnected(x, num_hidden=len(dict), name="scores"), name="softmax"
        )

    def vectorize(self, observations: Sequence[Mapping[str, Any]]) -> mx.io.DataBatch:
        """Return the word counts of each text, and the labels."""
        words = vectors.bags([self.dict.txt2vec(each["text"]) for each in observations], len(self.dict))
        if "labels" not in observations[0]:
            return vectors.batch_of({"words": words})
        labels = [self.dict.txt2vec(each["labels"][0])[0] for each in observations]
        return vectors.batch_of({"words": words}, {"softmax_label": vectors.dense(labels)})


def main() -> int:
    """Train with two workers in batches, save, load, and evaluate; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run with a lower target")
    args = parser.parse_args()
    epochs, target = (2, 0.8) if args.smoke else (10, 0.95)

    mx.random.seed(0)
    opt = {
        "task": f"{__name__}:MoodTeacher",
        "model": f"{__name__}:MoodAgent",
        "datatype": "train",
        "seed": 0,
    }
    opt |= {"batchsize": 16, "numthreads": 2}
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "mood")
        agent = create_agent(opt)
        with create_task(opt, agent) as world:
            while world.get_total_epochs() < epochs:
                world.parley()
            print(f"training: {world.report()}")
        agent.save(path)
        print(f"saved: {', '.join(sorted(each.name for each in Path(folder).iterdir()))}")
        loaded = create_agent({**opt, "model_file": path}, requireModelExists=True)

    valid = {**opt, "datatype": "valid", "numthreads": 1}
    with create_task(valid, loaded) as world:
        while not world.epoch_done():
            world.parley()
        accuracy = world.report()["accuracy"]
    print(f"accuracy of the loaded agent on texts not trained on: {accuracy:.3f}, target at least {target}")
    return 0 if accuracy >= target else 1


if __name__ == "__main__":
    sys.exit(main())

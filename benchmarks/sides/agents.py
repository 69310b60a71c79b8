"""Agents in their worlds: a trivial one, a bag of words, the same by a module, and one with many parameters.

Run as ``python -m benchmarks.sides.agents AGENT``; AGENT is "trivial", "bag", "module" or "large". Worlds are "bare", a
loop without a world, "serial", "batch", "sorted", "hogwild", "hogwild1", "hogwild4" and "both".
"""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch

import dpmodule as mx
from dpmodule.agents import (
    Agent,
    FixedDialogTeacher,
    HogwildWorld,
    ModuleAgent,
    create_task,
    create_task_world,
    vectors,
)

from .serve import Clock, serve

__all__ = ["LARGE", "Runner", "WordsTeacher", "padding", "prepare"]

WORDS, WIDTH, CLASSES = 5000, 64, 50
LARGE = 2**22 * 100 // 16
"""Parameters that take 100 MB."""

_TASK = f"{__name__}:WordsTeacher"
_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "serial": {},
    "batch": {"batchsize": 32, "batch_sort": False},
    "sorted": {"batchsize": 32, "batch_sort": True},
    "hogwild": {"numthreads": 2},
    "hogwild1": {"numthreads": 1},
    "hogwild4": {"numthreads": 4},
    "both": {"numthreads": 2, "batchsize": 32, "batch_sort": False},
}


@cache
def _examples(count: int, longest: int) -> Sequence[Mapping[str, Any]]:
    """Return texts of words, whose label is a class that the first word decides."""
    rng = random.Random(0)
    found = []
    for _ in range(count):
        words = [rng.randrange(WORDS) for _ in range(rng.randint(1, longest))]
        text = " ".join(map(str, words))
        found.append({"text": text, "labels": [str(words[0] % CLASSES)], "episode_done": True})
    return found


class WordsTeacher(FixedDialogTeacher):
    """Asks for the class of a text.

    Args:
        opt: options; arguments of the task: number of examples, and words of the longest one.
        shared: shared values of another instance.
    """

    def __init__(self, opt: Mapping[str, Any], shared: Mapping[str, Any] | None = None) -> None:
        super().__init__(opt, shared)
        count, longest = map(int, self.opt["task_arguments"].split(":"))
        self._examples = _examples(count, longest)

    def get(self, episode_idx: int, entry_idx: int = 0) -> dict[str, Any]:
        """Return an example."""
        return dict(self._examples[episode_idx])

    def num_examples(self) -> int:
        """Return the number of examples."""
        return len(self._examples)

    def num_episodes(self) -> int:
        """Return the number of episodes."""
        return len(self._examples)


class Trivial(Agent):
    """Says the same each time."""

    def act(self) -> dict[str, Any]:
        """Return the constant reply."""
        return {"id": "trivial", "text": "0"}


class Bag(Agent):
    """A bag of words and a linear layer in plain torch, trained by SGD with sparse gradients, an update for each act.

    Args:
        opt: options.
        shared: shared values of another instance.
    """

    rows = WORDS

    def __init__(self, opt: Mapping[str, Any], shared: Mapping[str, Any] | None = None) -> None:
        super().__init__(opt, shared)
        self.id = "bag"
        if shared:
            torch.set_num_threads(1)
            self.model = shared["model"]
        else:
            torch.manual_seed(0)
            self.model = torch.nn.ModuleList(
                [
                    torch.nn.EmbeddingBag(self.rows, WIDTH, sparse=True, mode="sum"),
                    torch.nn.Linear(WIDTH, CLASSES),
                ]
            )
            self.model.share_memory()
        self._optimizer = torch.optim.SGD(self.model.parameters(), 0.01)

    def share(self) -> dict[str, Any]:
        """Return what a copy is made of: the parameters are the same."""
        return {**super().share(), "model": self.model}

    def act(self) -> dict[str, Any]:
        """Answer, and learn from, one example."""
        return self.batch_act([self.observation])[0]

    def batch_act(self, observations: Sequence[Any]) -> list[dict[str, Any]]:
        """Answer, and learn from, those that have labels."""
        asked = [each for each in observations if "text" in each]
        replies: list[dict[str, Any]] = [{"id": "bag"} for _ in observations]
        if not asked:
            return replies
        rows = [list(map(int, each["text"].split())) for each in asked]
        offsets = torch.tensor([0, *map(len, rows[:-1])]).cumsum(0)
        scores = self.model[1](self.model[0](torch.tensor([word for row in rows for word in row]), offsets))
        if "labels" in asked[0]:
            labels = torch.tensor([int(each["labels"][0]) for each in asked])
            self._optimizer.zero_grad()
            torch.nn.functional.cross_entropy(scores, labels).backward()
            self._optimizer.step()
        answers = iter(scores.argmax(1).tolist())
        for reply, each in zip(replies, observations):
            if "text" in each:
                reply["text"] = str(next(answers))
        return replies


class Large(Bag):
    """The same with 100 MB of parameters."""

    rows = LARGE // WIDTH


class BagModule(ModuleAgent):
    """The bag of words by a module."""

    def sym_gen(self, opt: Mapping[str, Any], dict: Any) -> Any:
        """Return the network."""
        words = mx.sym.Embedding(
            mx.sym.Variable("words", stype="ragged"),
            input_dim=WORDS,
            output_dim=WIDTH,
            sparse_grad=True,
            name="table",
        )
        scores = mx.sym.FullyConnected(
            mx.sym.sequence_pool(words, pool_type="sum"), num_hidden=CLASSES, name="fc"
        )
        return mx.sym.SoftmaxOutput(scores, mx.sym.Variable("label"), name="p")

    def build_dictionary(self, model_file: str | None) -> Any:
        """Return no dictionary: words are numbers."""

    def vectorize(self, observations: Sequence[Any]) -> Any:
        """Return the words of each row, and the classes."""
        rows = [list(map(int, each["text"].split())) for each in observations]
        labels = [int(each["labels"][0]) for each in observations if "labels" in each]
        return vectors.batch_of(
            {"words": vectors.ragged(rows)}, {"label": vectors.dense(labels)} if labels else None
        )

    def reply(self, observations: Sequence[Any], batch: Any, outputs: Sequence[Any]) -> list[dict[str, Any]]:
        """Return the likeliest class of each row."""
        return [{"text": str(best)} for best in outputs[0].asnumpy().argmax(1).tolist()]


_AGENTS = {"trivial": Trivial, "bag": Bag, "module": BagModule, "large": Large}


class Runner:
    """An agent in its worlds.

    Args:
        agent: which it is.

    Attributes:
        task: the options of the task.
        opened: the worlds that have been run, by name.
    """

    def __init__(self, agent: str) -> None:
        self.kind = _AGENTS[agent]
        self.task = {"task": f"{_TASK}:6000:30", "datatype": "train", "seed": 0}
        self.opened: dict[str, Any] = {}

    def open(self, world: str, **options: Any) -> Any:
        """Return a world, or the two agents without one."""
        opt = {**self.task, **_OPTIONS.get(world, {}), **options}
        agent = self.kind(opt)
        if world == "bare":
            return create_task_world(opt, [agent]).get_agents()
        made = create_task(opt, agent)
        return HogwildWorld(opt, made) if world == "hogwild1" else made

    def run(self, world: str, examples: int) -> dict[str, float]:
        """Return the time of so many examples; the world stays for the next ones."""
        if world not in self.opened:
            self.opened[world] = self.open(world)
        opened = self.opened[world]
        if world == "bare":
            clock = Clock()
            _bare(*opened, examples)
            return clock.read()
        rows = int(opened.opt.get("batchsize", 1))
        clock = Clock()
        for _ in range(-(-examples // rows)):
            opened.parley()
        opened.report()  # which waits for what is on its way
        return clock.read()

    def check(self, world: str) -> dict[str, float]:
        """Return what an untrained agent reaches on all examples, each of which is seen once."""
        opened = self.open(world, datatype="valid")
        if world == "bare":
            _bare(*opened, opened[0].num_examples())
            return dict(opened[0].report())
        with opened:
            while not opened.epoch_done():
                opened.parley()
            return dict(opened.report())

    def start(self) -> dict[str, float]:
        """Return the time until each of two forked workers has had a parley, in a program that has everything else."""
        opt = {**self.task, **_OPTIONS["hogwild"], "hogwild_mode": "fork"}
        inner = create_task_world(opt, [self.kind(opt)])
        clock = Clock()
        world = HogwildWorld(opt, inner)
        for _ in range(opt["numthreads"]):
            world.parley()
        world.report()
        found = clock.read()
        world.shutdown()
        return found


def _bare(teacher: Any, agent: Any, examples: int) -> None:
    for _ in range(examples):
        act = teacher.act()
        agent.observe(act)
        teacher.observe(agent.act())


def padding(longest: int = 60, rows: int = 32, examples: int = 6000) -> dict[str, int]:
    """Return the number of padded positions of the batches, with and without sorting."""
    found = {}
    for name in ("batch", "sorted"):
        opt = {"task": f"{_TASK}:{examples}:{longest}", "datatype": "train:ordered", **_OPTIONS[name]}
        agent = _Ruler({**opt, "batchsize": rows})
        with create_task({**opt, "batchsize": rows}, agent) as world:
            for _ in range(examples // rows):
                world.parley()
        found[name] = agent.padding
    return found


class _Ruler(Trivial):
    """Counts the padding of each batch."""

    padding = 0

    def batch_act(self, observations: Sequence[Any]) -> list[dict[str, Any]]:
        """Return the constant reply for each."""
        lengths = [len(each["text"].split()) for each in observations if "text" in each]
        self.padding += max(lengths) * len(lengths) - sum(lengths)
        return [self.act() for _ in observations]


def prepare() -> dict[str, Any]:
    """Return the requests that the parent may make."""
    torch.set_num_threads(1)
    random.seed(0)
    runner = Runner(*sys.argv[1:])
    return {"run": runner.run, "check": runner.check, "start": runner.start, "padding": padding}


if __name__ == "__main__":
    serve(prepare)

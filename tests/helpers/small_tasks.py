"""Small tasks for agents that learn: made up from a seed, one example an episode unless they say otherwise."""

import os
import random
import time

import numpy as np
import torch

import dpmodule as mx
from dpmodule.agents import Agent, FixedDialogTeacher, ModuleAgent, vectors
from dpmodule.agents.agent import dump_options, options_file


class Made(FixedDialogTeacher):
    """Examples that `example` makes of a generator of random numbers; ``opt["examples"]`` of them in training."""

    def __init__(self, opt, shared=None):
        super().__init__(opt, shared)
        count = self.opt.get("examples", 640) if self.training else self.opt.get("valid_examples", 100)
        draw = random.Random(3 if self.training else 4)
        self.examples = shared["examples"] if shared else [self.example(draw) for _ in range(count)]

    def share(self):
        return {**super().share(), "examples": self.examples}

    def example(self, draw):
        raise NotImplementedError

    def get(self, episode_idx, entry_idx=0):
        return {**self.examples[episode_idx], "episode_done": True}

    def num_examples(self):
        return len(self.examples)

    num_episodes = num_examples


class Letters(Made):
    """Say 4 to 6 letters out of 8 in reverse order."""

    def example(self, draw):
        letters = [draw.choice("abcdefgh") for _ in range(draw.randint(4, 6))]
        right = " ".join(reversed(letters))
        others = [" ".join(draw.choice("abcdefgh") for _ in letters) for _ in range(4)]
        candidates = [right, *(other for other in others if other != right)]
        draw.shuffle(candidates)
        return {"text": " ".join(letters), "labels": [right], "label_candidates": candidates}


class Keys(Made):
    """Find the answer to the key that stands among other words; no word is in both."""

    def example(self, draw):
        key = draw.randrange(40)
        words = [f"key{key}", *(f"noise{draw.randrange(100)}" for _ in range(draw.randint(2, 6)))]
        draw.shuffle(words)
        others = draw.sample([other for other in range(40) if other != key], 9)
        candidates = [f"answer{each} it is" for each in (key, *others)]
        draw.shuffle(candidates)
        return {"text": " ".join(words), "labels": [f"answer{key} it is"], "label_candidates": candidates}


class Smallest(Made):
    """Say which of some words comes first."""

    def example(self, draw):
        words = [f"w{draw.randrange(30):02}" for _ in range(draw.randint(1, 8))]
        return {"text": " ".join(words), "labels": [min(words)]}


class SmallestAgent(ModuleAgent):
    """Learns `Smallest`: words in a bag, one class for each word."""

    pool = "sum"

    def sym_gen(self, opt, dict):
        words = mx.sym.Variable("words", stype="ragged")
        table = mx.sym.Embedding(words, input_dim=len(dict), output_dim=8, sparse_grad=True, name="table")
        bag = mx.sym.sequence_pool(table, pool_type=self.pool)
        scores = mx.sym.FullyConnected(bag, num_hidden=len(dict), name="scores")
        return mx.sym.SoftmaxOutput(scores, name="softmax")

    def vectorize(self, observations):
        words = vectors.ragged([self.dict.txt2vec(each["text"]) for each in observations])
        has_labels = any("labels" in each or "eval_labels" in each for each in observations)
        labels = {"softmax_label": vectors.classes(observations, self.dict.tok2ind)} if has_labels else None
        return vectors.batch_of({"words": words}, labels)


def smallest(**opt):
    """Return options of `Smallest` for `SmallestAgent`."""
    return {"task": "helpers.small_tasks:Smallest", "datatype": "train:ordered", "learningrate": 0.1} | opt


def examples(count, seed=0, **more):
    """Return observations of `Smallest`."""
    draw = random.Random(seed)
    return [{**Smallest.example(None, draw), "episode_done": True, **more} for _ in range(count)]


class Dialogues(FixedDialogTeacher):
    """Episodes of three examples; ``opt["episodes"]`` of them."""

    def get(self, episode_idx, entry_idx=0):
        text = " ".join("abcdefgh"[(episode_idx * k + entry_idx) % 8] for k in range(1, 4))
        example = {"number": 3 * episode_idx + entry_idx, "episode_done": entry_idx == 2}
        return {"text": text, "labels": [text[::-1]], **example}

    def num_episodes(self):
        return self.opt.get("episodes", 24)

    def num_examples(self):
        return 3 * self.num_episodes()


class Counting(Agent):
    """Counts how often it has seen each example of `Dialogues`, and takes some time for each."""

    @staticmethod
    def add_cmdline_args(parser):
        parser.add_argument("--episodes", type=int, default=24)

    def __init__(self, opt, shared=None):
        super().__init__(opt, shared)
        path = opt.get("model_file") or ""
        if shared:
            self.counts = shared["counts"]
            return
        self.counts = torch.zeros(opt["episodes"], 3, dtype=torch.int64).share_memory_()
        if os.path.exists(path):
            with open(path, "rb") as file:
                self.counts[:] = torch.from_numpy(np.load(file))

    def share(self):
        return {**super().share(), "counts": self.counts}

    def act(self):
        seen = self.observation or {}
        if "labels" in seen:
            time.sleep(float(os.environ.get("PAUSE_S", 0)))
            self.counts.view(-1)[seen["number"]] += 1
        return {"id": self.id, "text": "?"}

    def save(self, path=None):
        with open(path, "wb") as file:
            np.save(file, self.counts.numpy())
        with open(options_file(path), "wb") as file:
            file.write(dump_options({**self.opt, "model": "helpers.small_tasks:Counting"}))

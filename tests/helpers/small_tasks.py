"""Small tasks for agents that learn: made up from a seed, one example an episode unless they say otherwise."""

import random

import dpmodule as mx
from dpmodule.agents import FixedDialogTeacher, ModuleAgent, vectors


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

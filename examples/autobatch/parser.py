"""Parse sentences greedily by transitions (arc-hybrid), from features of a bidirectional LSTM.

The parser looks at the three topmost words of the stack and the next one, and chooses to shift, or to make the top of
the stack depend on the next word (left) or on the word below it (right). It learns from true trees, 32 sentences at once.
When it parses by itself, all sentences make a step side by side, and only what is new in the graph is computed. A small
grammar writes the sentences: a phrase with "of" belongs to the noun before it, one with "with" to the verb.

Run: python examples/autobatch/parser.py [--smoke]
"""

from __future__ import annotations

import argparse
import random
import sys

from tqdm import tqdm

import dpmodule.autobatch as dy

WORDS = {
    "determiner": "the a every some".split(),
    "adjective": "old small green quiet tired".split(),
    "noun": "man dog house tree child letter river friend".split(),
    "verb": "saw found liked painted followed left".split(),
    "of": "of from".split(),
    "with": "with by for".split(),
}
NUMBER = {word: i for i, word in enumerate((w for words in WORDS.values() for w in words), 1)}  # 0 is the root
SHIFT, LEFT, RIGHT = range(3)
BATCH_SIZE = 32

Sentence = tuple[list[int], list[int]]  # words and their heads, the root (which is its own) last


def phrase(draw: random.Random, words: list[str], heads: list[int], head: int, depth: int) -> int:
    """Add a noun with what depends on it, and return its place; `head` is that of the word it depends on."""
    before = [draw.choice(WORDS["determiner"])] + draw.choices(WORDS["adjective"], k=draw.choice([0, 0, 1, 2]))
    place = len(words) + len(before)
    words += [*before, draw.choice(WORDS["noun"])]
    heads += [place] * len(before) + [head]
    if depth and draw.random() < 0.4:
        words.append(draw.choice(WORDS["of"]))
        heads.append(place)
        phrase(draw, words, heads, len(words) - 1, depth - 1)
    return place


def sentence(draw: random.Random) -> Sentence:
    """Return a sentence: its subject, the verb, an object, and perhaps phrases that belong to the verb."""
    words: list[str] = []
    heads: list[int] = []
    subject = phrase(draw, words, heads, -1, 1)
    verb = len(words)
    words.append(draw.choice(WORDS["verb"]))
    heads.append(-1)
    heads[subject] = verb
    phrase(draw, words, heads, verb, 2)
    while draw.random() < 0.4:
        words.append(draw.choice(WORDS["with"]))
        heads.append(verb)
        phrase(draw, words, heads, len(words) - 1, 1)
    heads[verb] = len(words)
    return [*(NUMBER[word] for word in words), 0], [*heads, len(words)]


class State:
    """A stack of words, the next word, and the heads found so far; the root comes last and is never shifted."""

    def __init__(self, count: int) -> None:
        self.stack: list[int] = []
        self.next, self.last, self.heads = 0, count - 1, [count - 1] * count

    def allowed(self) -> list[int]:
        """Return the actions that are possible."""
        depth = len(self.stack)
        return [SHIFT] * (self.next < self.last) + [LEFT] * (depth > 0) + [RIGHT] * (depth > 1)

    def apply(self, action: int) -> None:
        """Carry an action out."""
        if action == SHIFT:
            self.stack.append(self.next)
            self.next += 1
        else:
            word = self.stack.pop()
            self.heads[word] = self.next if action == LEFT else self.stack[-1]

    def right_action(self, heads: list[int]) -> int:
        """Return the action that leads to a tree (the static oracle of arc-hybrid)."""
        if not self.stack:
            return SHIFT
        top = self.stack[-1]
        if heads[top] == self.next:
            return LEFT
        waiting = any(heads[word] == top for word in range(self.next, self.last))
        return RIGHT if len(self.stack) > 1 and heads[top] == self.stack[-2] and not waiting else SHIFT


class Parser:
    """Embeddings, an LSTM in each direction, and scores of actions."""

    def __init__(self, width: int, hidden: int) -> None:
        self.model = m = dy.ParameterCollection()
        self.words = m.add_lookup_parameters((len(NUMBER) + 1, width))
        self.reader = dy.BiRNNBuilder(1, width, 2 * hidden, m, dy.VanillaLSTMBuilder)
        self.nothing = m.add_parameters(2 * hidden)
        self.b, self.W = m.add_parameters(32), m.add_parameters((32, 8 * hidden))
        self.c, self.V = m.add_parameters(3), m.add_parameters((3, 32))

    def read(self, words: list[int]) -> list[dy.Expression]:
        """Return features of every word."""
        return self.reader.transduce([self.words[word] for word in words])

    def scores(self, features: list[dy.Expression], state: State) -> dy.Expression:
        """Return the scores of the three actions."""
        places = [*state.stack[-3:], state.next]
        seen = [self.nothing] * (4 - len(places)) + [features[place] for place in places]
        inner = dy.rectify(dy.affine_transform([self.b, self.W, dy.concatenate(seen)]))
        return dy.affine_transform([self.c, self.V, inner])

    def losses(self, example: Sentence) -> list[dy.Expression]:
        """Return the loss of each action that leads to the true tree."""
        words, heads = example
        features, state, found = self.read(words), State(len(words)), []
        while state.allowed():
            action = state.right_action(heads)
            found.append(dy.pickneglogsoftmax(self.scores(features, state), action))
            state.apply(action)
        return found

    def parse(self, sentences: list[list[int]]) -> list[list[int]]:
        """Return the heads of all words: all sentences make a step, then the next one."""
        dy.renew_cg()
        features = [self.read(words) for words in sentences]
        states = [State(len(words)) for words in sentences]
        while live := [(f, state) for f, state in zip(features, states) if state.allowed()]:
            scores = [self.scores(f, state) for f, state in live]
            dy.forward(scores)
            for each, (_, state) in zip(scores, live):
                value = each.npvalue()
                state.apply(max(state.allowed(), key=lambda action: value[action]))
        return [state.heads for state in states]


def train(parser: Parser, data: list[Sentence], epochs: int) -> None:
    """Train on batches of sentences."""
    trainer = dy.AdamTrainer(parser.model, alpha=0.005)
    starts = [start for _ in range(epochs) for start in range(0, len(data), BATCH_SIZE)]
    with tqdm(starts, unit="batch", leave=False) as progress:
        for start in progress:
            dy.renew_cg()
            losses = [each for one in data[start : start + BATCH_SIZE] for each in parser.losses(one)]
            loss = dy.esum(losses) / len(losses)
            progress.set_postfix(loss=f"{loss.value():.3f}", refresh=False)
            loss.backward()
            trainer.update()


def main() -> int:
    """Train and check; return the exit code."""
    line = argparse.ArgumentParser(description=__doc__)
    line.add_argument("--smoke", action="store_true", help="a short run with a lower target")
    count, epochs, target = (600, 3, 0.85) if line.parse_args().smoke else (3000, 5, 0.98)

    dy.configure(autobatch=True, random_seed=1)
    draw = random.Random(0)
    data = [sentence(draw) for _ in range(count + 200)]
    parser = Parser(24, 24)
    train(parser, data[200:], epochs)
    found = parser.parse([words for words, _ in data[:200]])
    pairs = [pair for (_, heads), row in zip(data, found) for pair in zip(heads[:-1], row)]
    right = sum(head == guess for head, guess in pairs) / len(pairs)
    print(f"words that depend on the right one {right:.3f}, target {target}")
    return 0 if right >= target else 1


if __name__ == "__main__":
    sys.exit(main())

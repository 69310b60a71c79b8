"""Tag words with a bidirectional LSTM, written for one sentence and trained on 32 at a time.

The text is Python's own documentation without capital letters, and the tagger restores them: it tags every word as
lower case, capitalized or all capitals. Sentences of all lengths are used without padding. Rare words share one vector.
With `--characters`, an LSTM in each direction computes the vector of a rare word from its letters: words and sentences
of all lengths in a batch run together.

Figure: words with capitals found in unseen sentences, at least 0.8; 0.6 with --smoke.
Time: 5 s; 2 s with --smoke.
Run: python examples/autobatch/tagger.py [--characters] [--smoke]
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections import Counter
from pydoc_data.topics import topics

import numpy as np
from tqdm import tqdm

import dpmodule.autobatch as dy

BATCH_SIZE, RARE, UNKNOWN = 32, 2, 0
SMALL, CAPITALIZED, CAPITALS = range(3)

Sentence = tuple[list[str], list[int]]


def form(word: str) -> int:
    """Return the tag of a word."""
    if not word[0].isupper():
        return SMALL
    return CAPITALS if len(word) > 1 and word.isupper() else CAPITALIZED


def sentences() -> list[Sentence]:
    """Return the lower-case words of every sentence, and their tags."""
    tagged = []
    for paragraph in re.split(r"\n\s*\n", "\n\n".join(topics[name] for name in sorted(topics))):
        for sentence in re.split(r"(?<=[.:;])\s+", " ".join(paragraph.split())):
            words = re.findall(r"[A-Za-z]+(?:'[a-z]+)?|[0-9]+|[^\sA-Za-z0-9]", sentence)
            if 4 <= len(words) <= 50:
                tagged.append(([word.lower() for word in words], [form(word) for word in words]))
    return tagged


class Tagger:
    """Embeddings, an LSTM in each direction, and scores from both."""

    def __init__(self, train: list[Sentence], width: int, hidden: int) -> None:
        counts = Counter(word for words, _ in train for word in words)
        frequent = sorted(word for word, count in counts.items() if count >= RARE)
        self.numbers = {word: i for i, word in enumerate(frequent, UNKNOWN + 1)}
        self.model = dy.ParameterCollection()
        self.embeds = self.model.add_lookup_parameters((len(frequent) + 1, width))
        self.reader = dy.BiRNNBuilder(1, width, 2 * hidden, self.model, dy.VanillaLSTMBuilder)
        self.W, self.b = self.model.add_parameters((3, 2 * hidden)), self.model.add_parameters(3)

    def vector(self, word: str) -> dy.Expression:
        """Return the vector of a word."""
        return self.embeds[self.numbers.get(word, UNKNOWN)]

    def scores(self, words: list[str]) -> list[dy.Expression]:
        """Return the scores of the tags of every word."""
        states = self.reader.transduce([self.vector(word) for word in words])
        return [dy.affine_transform([self.b, self.W, state]) for state in states]

    def train(self, data: list[Sentence], epochs: int) -> None:
        """Train on batches of sentences."""
        trainer = dy.AdamTrainer(self.model, alpha=0.005)
        draw = random.Random(0)
        batches = [draw.sample(data, BATCH_SIZE) for _ in range(epochs * len(data) // BATCH_SIZE)]
        with tqdm(batches, unit="batch", leave=False) as progress:
            for batch in progress:
                dy.renew_cg()
                losses = [
                    dy.pickneglogsoftmax(scores, tag)
                    for words, tags in batch
                    for scores, tag in zip(self.scores(words), tags)
                ]
                loss = dy.esum(losses) / len(losses)
                progress.set_postfix(loss=f"{loss.value():.3f}", refresh=False)
                loss.backward()
                trainer.update()

    def predict(self, sentences: list[list[str]]) -> list[list[int]]:
        """Return the tags of all words; `forward` computes them together."""
        tags: list[list[int]] = []
        for start in range(0, len(sentences), 8 * BATCH_SIZE):
            dy.renew_cg()
            scores = [self.scores(words) for words in sentences[start : start + 8 * BATCH_SIZE]]
            dy.forward([expression for row in scores for expression in row])
            tags += [[int(np.argmax(expression.npvalue())) for expression in row] for row in scores]
        return tags


class SpellingTagger(Tagger):
    """A tagger that reads rare words letter by letter."""

    def __init__(self, train: list[Sentence], width: int, hidden: int) -> None:
        super().__init__(train, width, hidden)
        letters = sorted({letter for words, _ in train for word in words for letter in word})
        self.letters = {letter: i for i, letter in enumerate(letters, UNKNOWN + 1)}
        self.letter_embeds = self.model.add_lookup_parameters((len(letters) + 1, 16))
        self.ahead, self.back = (dy.VanillaLSTMBuilder(1, 16, width // 2, self.model) for _ in range(2))

    def vector(self, word: str) -> dy.Expression:
        """Return the vector of a frequent word, or one computed from a rare word's letters."""
        if word in self.numbers:
            return super().vector(word)
        letters = [self.letter_embeds[self.letters.get(letter, UNKNOWN)] for letter in word]
        ahead = self.ahead.initial_state().transduce(letters)[-1]
        return dy.concatenate([ahead, self.back.initial_state().transduce(letters[::-1])[-1]])


def recall(tags: list[list[int]], found: list[list[int]]) -> float:
    """Return the share of words with capitals that are tagged right."""
    pairs = [pair for row in zip(tags, found) for pair in zip(*row) if pair[0] != SMALL]
    return sum(true == guess for true, guess in pairs) / len(pairs)


def main() -> int:
    """Train and check; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--characters", action="store_true", help="read rare words letter by letter")
    parser.add_argument("--smoke", action="store_true", help="a short run with a lower target")
    args = parser.parse_args()
    hidden, epochs, share, target = (24, 5, 4, 0.6) if args.smoke else (50, 6, 1, 0.8)

    dy.configure(autobatch=True, random_seed=1)
    data = sentences()[::share]
    train, test = [each for i, each in enumerate(data) if i % 8], data[::8]
    tagger = (SpellingTagger if args.characters else Tagger)(train, 32, hidden)
    tagger.train(train, epochs)
    right = recall([tags for _, tags in test], tagger.predict([words for words, _ in test]))
    print(f"words with capitals found in unseen sentences: {right:.3f}, target at least {target}")
    return 0 if right >= target else 1


if __name__ == "__main__":
    sys.exit(main())

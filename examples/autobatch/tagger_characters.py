"""Tag words with vectors from their characters: an LSTM inside an LSTM, each written for one word or one sentence.

The text is Python's own documentation, which has code between quotes. Quotes are taken away, and the tagger finds again
which words are code. A rare word has no vector of its own: an LSTM in each direction makes one of its characters. So
words of all lengths lie in sentences of all lengths, and all of a batch run together.

Run: python examples/autobatch/tagger_characters.py [--smoke]
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

BATCH_SIZE, RARE = 32, 5

Sentence = tuple[list[str], list[int]]


def sentences() -> list[Sentence]:
    """Return the words of every paragraph, with 1 for those that stand between quotes."""
    found = []
    for paragraph in re.split(r"\n\s*\n", "\n\n".join(topics[name] for name in sorted(topics))):
        words: list[str] = []
        marks: list[int] = []
        parts = re.split('["`]+', " ".join(paragraph.split()))
        for place, part in enumerate(parts):
            pieces = re.findall(r"[A-Za-z_]+|[0-9]+|[^\sA-Za-z0-9_]", part)
            words += pieces
            marks += [place % 2] * len(pieces)
        if len(parts) % 2 and 4 <= len(words) <= 60:  # every quote has its other half
            found.append((words, marks))
    return found


class Tagger:
    """Vectors of words or of their characters, an LSTM in each direction, and scores."""

    def __init__(self, train: list[Sentence], width: int, hidden: int) -> None:
        counts = Counter(word for words, _ in train for word in words)
        frequent = sorted(word for word, count in counts.items() if count > RARE)
        letters = sorted({letter for word in counts for letter in word})
        self.numbers = {word: i for i, word in enumerate(frequent)}
        self.letters = {letter: i for i, letter in enumerate(letters, 1)}  # 0 are all others

        self.model = m = dy.ParameterCollection()
        self.word_vectors = m.add_lookup_parameters((len(frequent), width))
        self.letter_vectors = m.add_lookup_parameters((len(letters) + 1, 16))
        self.spelled = [dy.VanillaLSTMBuilder(1, 16, width // 2, m) for _ in range(2)]
        self.tagging = [dy.VanillaLSTMBuilder(1, width, hidden, m) for _ in range(2)]
        self.W, self.b = m.add_parameters((2, 2 * hidden)), m.add_parameters(2)

    def vector(self, word: str) -> dy.Expression:
        """Return the vector of a word."""
        number = self.numbers.get(word)
        if number is not None:
            return self.word_vectors[number]
        letters = [self.letter_vectors[self.letters.get(letter, 0)] for letter in word]
        ahead, back = (each.initial_state() for each in self.spelled)
        return dy.concatenate([ahead.transduce(letters)[-1], back.transduce(letters[::-1])[-1]])

    def scores(self, words: list[str]) -> list[dy.Expression]:
        """Return the scores of every word."""
        vectors = [self.vector(word) for word in words]
        ahead, back = (each.initial_state() for each in self.tagging)
        states = zip(ahead.transduce(vectors), reversed(back.transduce(vectors[::-1])))
        return [dy.affine_transform([self.b, self.W, dy.concatenate(list(pair))]) for pair in states]

    def train(self, data: list[Sentence], epochs: int) -> None:
        """Train on batches of sentences."""
        trainer = dy.AdamTrainer(self.model, alpha=0.005)
        draw = random.Random(0)
        batches = [draw.sample(data, BATCH_SIZE) for _ in range(epochs * len(data) // BATCH_SIZE)]
        with tqdm(batches, unit="batch", leave=False) as progress:
            for batch in progress:
                dy.renew_cg()
                losses = [
                    dy.pickneglogsoftmax(scores, mark)
                    for words, marks in batch
                    for scores, mark in zip(self.scores(words), marks)
                ]
                loss = dy.esum(losses) / len(losses)
                progress.set_postfix(loss=f"{loss.value():.3f}", refresh=False)
                loss.backward()
                trainer.update()

    def predict(self, sentences: list[list[str]]) -> list[list[int]]:
        """Return the marks of all words; `forward` computes them all at once."""
        found = []
        for start in range(0, len(sentences), BATCH_SIZE):
            dy.renew_cg()
            scores = [self.scores(words) for words in sentences[start : start + BATCH_SIZE]]
            dy.forward([each for sentence in scores for each in sentence])
            found += [[int(np.argmax(each.npvalue())) for each in sentence] for sentence in scores]
        return found


def f1(marks: list[list[int]], found: list[list[int]]) -> float:
    """Return the harmonic mean of precision and recall."""
    pairs = [pair for row in zip(marks, found) for pair in zip(*row)]
    hits = sum(true and guess for true, guess in pairs)
    return 2 * hits / sum(true + guess for true, guess in pairs)


def main() -> int:
    """Train and check; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run on a part of the text")
    args = parser.parse_args()
    hidden, epochs, share, target = (24, 6, 2, 0.6) if args.smoke else (50, 8, 1, 0.85)

    dy.configure(autobatch=True, random_seed=1)
    data = sentences()[::share]
    train, test = [each for i, each in enumerate(data) if i % 8], data[::8]
    tagger = Tagger(train, 48, hidden)
    tagger.train(train, epochs)
    found = tagger.predict([words for words, _ in test])
    rare = sum(word not in tagger.numbers for words, _ in test for word in words)
    right = f1([marks for _, marks in test], found)
    print(f"F1 of words that are code {right:.3f}, target {target}; {rare} rare words were spelled out")
    return 0 if right >= target else 1


if __name__ == "__main__":
    sys.exit(main())

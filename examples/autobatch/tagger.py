"""Tag words with a bidirectional LSTM, written for one sentence and trained on 32 at a time.

The text is Python's own documentation. Its capital letters are taken away, and the tagger puts them back: it marks
every word as small, capitalized or all capitals. Sentences have all lengths; none is padded.

Run: python examples/autobatch/tagger.py [--smoke]
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

BATCH_SIZE, UNKNOWN = 32, 0
SMALL, CAPITALIZED, CAPITALS = range(3)

Sentence = tuple[list[int], list[int]]


def sentences() -> list[list[str]]:
    """Return the words of every sentence, as they are written."""
    found = []
    for paragraph in re.split(r"\n\s*\n", "\n\n".join(topics[name] for name in sorted(topics))):
        for sentence in re.split(r"(?<=[.:;])\s+", " ".join(paragraph.split())):
            words = re.findall(r"[A-Za-z]+(?:'[a-z]+)?|[0-9]+|[^\sA-Za-z0-9]", sentence)
            if 4 <= len(words) <= 50:
                found.append(words)
    return found


def form(word: str) -> int:
    """Return how a word is written."""
    if not word[0].isupper():
        return SMALL
    return CAPITALS if len(word) > 1 and word.isupper() else CAPITALIZED


def encode(texts: list[list[str]]) -> tuple[list[Sentence], list[Sentence], int]:
    """Return training and test sentences as numbers with tags, and the size of the vocabulary."""
    train, test = [text for i, text in enumerate(texts) if i % 8], texts[::8]
    counts = Counter(word.lower() for text in train for word in text)
    number = {word: i for i, word in enumerate((w for w, n in counts.items() if n > 1), UNKNOWN + 1)}

    def numbers(part: list[list[str]]) -> list[Sentence]:
        return [
            ([number.get(word.lower(), UNKNOWN) for word in text], [form(word) for word in text])
            for text in part
        ]

    return numbers(train), numbers(test), UNKNOWN + 1 + len(number)


class Tagger:
    """Embeddings, an LSTM in each direction, and scores from what both have seen."""

    def __init__(self, vocabulary: int, width: int, hidden: int) -> None:
        self.model = dy.ParameterCollection()
        self.words = self.model.add_lookup_parameters((vocabulary, width))
        self.ahead = dy.VanillaLSTMBuilder(1, width, hidden, self.model)
        self.back = dy.VanillaLSTMBuilder(1, width, hidden, self.model)
        self.W = self.model.add_parameters((3, 2 * hidden))
        self.b = self.model.add_parameters(3)

    def scores(self, words: list[int]) -> list[dy.Expression]:
        """Return the scores of the tags of every word."""
        vectors = [self.words[word] for word in words]
        ahead = self.ahead.initial_state().transduce(vectors)
        back = self.back.initial_state().transduce(vectors[::-1])
        pairs = [dy.concatenate([left, right]) for left, right in zip(ahead, reversed(back))]
        return [dy.affine_transform([self.b, self.W, pair]) for pair in pairs]

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

    def predict(self, sentences: list[list[int]]) -> list[list[int]]:
        """Return the tags of all words; `forward` computes them all at once."""
        found = []
        for start in range(0, len(sentences), BATCH_SIZE):
            dy.renew_cg()
            scores = [self.scores(words) for words in sentences[start : start + BATCH_SIZE]]
            dy.forward([each for sentence in scores for each in sentence])
            found += [[int(np.argmax(each.npvalue())) for each in sentence] for sentence in scores]
        return found


def recall(tags: list[list[int]], found: list[list[int]]) -> float:
    """Return the share of words with capitals that were written right."""
    pairs = [pair for row in zip(tags, found) for pair in zip(*row) if pair[0] != SMALL]
    return sum(true == guess for true, guess in pairs) / len(pairs)


def main() -> int:
    """Train and check; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run on a part of the text")
    args = parser.parse_args()
    hidden, epochs, share, target = (24, 6, 3, 0.6) if args.smoke else (50, 6, 1, 0.8)

    dy.configure(autobatch=True, random_seed=1)
    train, test, vocabulary = encode(sentences()[::share])
    tagger = Tagger(vocabulary, 32, hidden)
    tagger.train(train, epochs)
    tags = [each for _, each in test]
    right = recall(tags, tagger.predict([words for words, _ in test]))
    print(f"{right:.3f} of the words with capitals found, target {target}")
    return 0 if right >= target else 1


if __name__ == "__main__":
    sys.exit(main())

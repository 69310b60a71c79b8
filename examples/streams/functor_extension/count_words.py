"""Count the words of many texts in threads of C++, by a functor of one's own, while Python does something else.

Build it first: ``python setup.py build_ext --inplace``.
"""

import argparse
import asyncio
import collections
import random
import time

import word_count

from dpmodule import streams

VOCABULARY = [b"stream", b"of", b"words", b"which", b"a", b"thread", b"counts", b"without", b"python"]


def make_texts(count, words):
    """Return some texts of so many words each."""
    draw = random.Random(0)
    return [b" ".join(draw.choices(VOCABULARY, k=words)) for _ in range(count)]


async def count_all(texts):
    """Count the words of all texts at once."""
    total = collections.Counter()
    with streams.ThreadPool() as pool:
        worker = streams.cpp_threaded_worker(pool)
        for counts in await asyncio.gather(*(worker(word_count.WordCount(text)) for text in texts)):
            total.update(counts)
    return total


def main():
    """Count, compare with a count in Python, and print how long it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="only a little, in seconds")
    args = parser.parse_args()
    texts = make_texts(20, 1_000) if args.smoke else make_texts(200, 100_000)
    start = time.perf_counter()
    total = asyncio.run(count_all(texts))
    seconds = time.perf_counter() - start
    expected = collections.Counter(word for text in texts for word in text.split())
    if total != expected:
        raise SystemExit(f"counted {total}, expected {expected}")
    print(f"{sum(total.values())} words in {seconds:.3f} s")


if __name__ == "__main__":
    main()

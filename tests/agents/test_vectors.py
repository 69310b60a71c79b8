import numpy as np
import pytest

from dpmodule.agents import DictionaryAgent, vectors

ROWS = [[5, 6], [], [7, 7, 7]]


def test_rows_as_ragged_counts_or_padded():
    assert (vectors.ragged(ROWS).tolist(), vectors.ragged(ROWS).dtype) == (ROWS, np.int64)
    assert vectors.ragged([]).shape == (0,)
    found = vectors.bags([[2, 2], [], [0]], 3)
    assert found.asnumpy().tolist() == [[0, 0, 2], [0, 0, 0], [1, 0, 0]]
    found = vectors.padded(ROWS, 2, fill=9, dtype="float32")
    assert (found.asnumpy().tolist(), found.dtype) == ([[5, 6], [9, 9], [7, 7]], np.float32)
    lengths = {length: vectors.bucket_of(length, [4, 8]) for length in (0, 4, 5, 8, 100)}
    assert lengths == {0: 4, 4: 4, 5: 8, 8: 8, 100: 8}
    rows = [{"labels": ["b", "a"]}, {"eval_labels": ("a",)}]
    assert vectors.classes(rows, {"a": 0, "b": 1}).asnumpy().tolist() == [1, 0]


def _of(tokens):
    words = DictionaryAgent({})
    words.add_to_dict(tokens.split())
    return words


CHANGES = {
    "sort": lambda words: words.sort(),
    "sort of a copy": lambda words: DictionaryAgent({}, words.share()).sort(),
    "new token": lambda words: words.add_token("unheard"),
    "copy_dict": lambda words: words.copy_dict(_of("dog the")),
    "lower": lambda words: setattr(words, "lower", True),
    "n-grams": lambda words: (words.add_token("THE dog"), setattr(words, "max_ngram_size", 2)),
    "unknown token": lambda words: setattr(words, "unk_token", "cat"),
    "table": lambda words: setattr(words, "tok2ind", dict.fromkeys(words.tok2ind, 7)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_vectors_are_kept_until_the_dictionary_changes(monkeypatch, change):
    words = _of("the cat saw the dog the dog saw a bird the end")
    asked, tokenize = [], DictionaryAgent.tokenize
    monkeypatch.setattr(DictionaryAgent, "tokenize", lambda *a: (asked.append(a[1]), tokenize(*a))[1])
    known, texts = vectors.TextVectors(3), ["the THE dog", "a the bird unheard", "the THE dog", ""]
    first = known.of(words, texts)
    assert first == known.of(words, texts) == [words.txt2vec(text)[-3:] for text in texts]
    assert len(asked) == 3 + 4
    CHANGES[change](words)
    assert known.of(words, texts) == [words.txt2vec(text)[-3:] for text in texts] != first
    assert known.of(_of("a"), ["a"]) == [[4]]


def test_vectors_of_many_texts_and_of_subclasses_are_not_kept(monkeypatch):
    class Drawn(DictionaryAgent):
        def txt2vec(self, text, vec_type=list):
            return [next(draws)]

    draws = iter(range(9))
    assert [vectors.TextVectors().of(Drawn({}), ["a", "a"]) for _ in range(2)] == [[[0], [1]], [[2], [3]]]
    monkeypatch.setattr(vectors, "_MAX_CHARS", 1000)
    words, known, sizes = _of("text"), vectors.TextVectors(), []
    for number in range(200):
        known.of(words, [f"text {number}"])
        sizes.append(len(known))
    assert 10 < max(sizes) < 40

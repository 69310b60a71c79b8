import numpy as np
import pytest
import torch

from dpmodule.agents import DictionaryAgent, find_ngrams
from dpmodule.base import ArgumentError, FileError, MissingPackageError

TALK = [{"text": "the cat saw the dog", "labels": ["the dog saw"]}, {"text": "a bird", "labels": ["the end"]}]


@pytest.fixture
def words():
    made = DictionaryAgent({})
    for message in TALK:
        made.observe(message)
        made.act()
    return made


def test_words_of_texts_and_labels_are_counted_behind_special_tokens(words):
    assert [words[number] for number in range(4)] == ["__NULL__", "__START__", "__END__", "__UNK__"]
    assert (words["__UNK__"], len(words), words.freqs()["the"], words.max_freq()) == (3, 4 + 7, 4, 4)
    words.observe({"text": "new", "labels": ("words", "new")})
    assert "new" not in words
    assert (words.act(), words.freq["new"], words.freq["words"]) == ({"id": "Dictionary"}, 2, 1)
    assert ["cat" in words, "dogs" in words, 4 in words, 400 in words] == [True, False, True, False]
    assert (words[400], words["dogs"]) == ("__UNK__", 3)


def test_a_subclass_counts_in_act_what_it_wants():
    class Half(DictionaryAgent):
        def act(self):
            self.add_to_dict(self.tokenize(self.observation["text"])[::2])
            return {"id": "half"}

        def letters_tokenize(self, text):
            return list(text)

    words = Half({"dict_tokenizer": "letters", "dict_lower": True, "dict_unktoken": ""})
    words.observe({"text": "ABc", "labels": ["d"]})
    words.act()
    assert list(words)[3:] == ["a", "c"]
    assert words.txt2vec("Abc") == [3, 4], "without an unknown token, unknown words are left out"


def test_sorting_numbers_by_falling_count_then_alphabet(words):
    pairs = words.sort()
    assert pairs[4:] == [("the", 4), ("dog", 2), ("saw", 2), ("a", 1), ("bird", 1), ("cat", 1), ("end", 1)]
    assert (list(words.keys()), words.txt2vec("the dog")) == ([token for token, _ in pairs], [4, 5])
    words.minfreq = 2
    words.sort()
    assert list(words)[4:] == ["the", "dog", "saw"]
    words.maxtokens = 5
    words.sort()
    assert (list(words)[4:], words.txt2vec("the dog")) == (["the"], [4, 3])


def test_numbers_and_text(words):
    vector = words.txt2vec("the cat sat")
    assert words.vec2txt(torch.tensor(vector)) == words.vec2txt(vector) == "the cat __UNK__"
    assert words.vec2txt([4, 5], delimiter="_") == "the_cat"
    assert (words.parse("the"), words.parse([4])) == ([4], "the")
    for kind in (list, tuple, set):
        assert words.parse("the cat", vec_type=kind) == kind([4, 5])
    array = words.txt2vec("the cat", np.ndarray)
    assert (array.tolist(), array.dtype) == ([4, 5], np.int64)


def test_tokenizers():
    for name, text, tokens in (
        ("re", "It's 10.\nÜber", "It|'|s|10|.|\n|Über"),
        ("space", "It's 10.\nÜber", "It's|10.\nÜber"),
        ("split", "Y,n;a:b!c?d..e (f) g-h 'i'", "Y|,|n|;|a|:|b|!|c|?|d|.|.|e|(f)|g-h|'i'"),
    ):
        assert DictionaryAgent({"dict_tokenizer": name}).tokenize(text) == tokens.split("|")


def test_n_grams():
    for known, n, found in (
        (["hello world", "ol boy", "world buddy ol"], 3, "hello-world buddy ol-boy"),
        (["hello world", "ol boy", "world buddy ol"], 2, "hello world-buddy-ol boy"),
        (["hello world", "buddy ol boy"], 9, "hello world-buddy ol boy"),
    ):
        tokens = ["hello", "world", "buddy", "ol", "boy"]
        assert "-".join(find_ngrams(set(known), tokens, n)) == found
        words = DictionaryAgent({"dict_max_ngram_size": n})
        words.observe({"text": "hello world buddy ol boy"})
        words.act()
        words.add_to_dict(known)
        assert list(words)[4:9] == tokens, "n-grams are not counted as such"
        assert words.vec2txt(words.txt2vec("hello world buddy ol boy"), "-") == found


def test_a_file_holds_lines_of_token_and_count_and_comes_back(words, tmp_path, monkeypatch):
    path = tmp_path / "words.dict"
    words.add_to_dict(["\n", "\t", "\\", "\\n", "a\rb", "\ud800"])
    words.save(str(path))
    old = path.read_bytes()
    counts = [int(line.rpartition(b"\t")[2]) for line in old.split(b"\n")[:-1]]
    assert counts == sorted(counts, reverse=True)
    assert b"\nthe\t4\n" in b"\n" + old
    again = DictionaryAgent({"dict_file": str(path)})
    assert (again.tok2ind, again.freq) == (words.tok2ind, words.freq)
    words.add_to_dict(["more"])
    monkeypatch.setattr("os.fsync", lambda fd: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(FileError, match="words.dict"):
        words.save(str(path))
    assert (path.read_bytes(), [each.name for each in tmp_path.iterdir()]) == (old, ["words.dict"])


def test_a_file_keeps_its_lines_if_a_dictionary_is_appended(words, tmp_path):
    path, more = tmp_path / "words.dict", DictionaryAgent({})
    more.add_to_dict(["new", "the"])
    more.save(str(path), True, False)
    assert path.read_bytes() == more.packed()
    words.save(str(path), True)
    assert path.read_bytes() == more.packed() + words.packed()
    assert DictionaryAgent({"dict_file": str(path)}).freq == {**words.freq, "new": 1}


def test_a_dictionary_writes_its_file_when_it_is_shut_down(tmp_path):
    path = tmp_path / "words.dict"
    words = DictionaryAgent({"dict_file": str(path)})
    DictionaryAgent({"dict_file": str(path)}, words.share()).shutdown()
    words.shutdown()
    assert not path.exists()
    words.observe(TALK[0])
    words.act()
    words.shutdown()
    assert b"the\t3\n" in path.read_bytes()


def test_a_new_dictionary_begins_with_the_tokens_of_a_file(words, tmp_path):
    first, own = str(tmp_path / "first"), str(tmp_path / "own")
    words.save(first)
    made = DictionaryAgent({"dict_initpath": first, "dict_file": own})
    assert made.freqs() == words.freqs()
    made.shutdown()  # also saves what was not added here
    made["new"] = 3
    made.save()
    assert "new" in DictionaryAgent({"dict_initpath": first, "dict_file": own})


def test_tokens_are_removed_by_count_and_by_number(words):
    words.remove_tail(2)
    assert list(words)[4:] == ["the", "saw", "dog"]
    words.resize_to_max(-1)
    words.resize_to_max(6)
    assert list(words)[4:] == ["the", "saw"]
    assert [words[number] for number in (4, 5, 6)] == ["the", "saw", "__UNK__"]


def test_a_subclass_counts_tokens_by_hand():
    class Known(DictionaryAgent):
        def add_to_dict(self, tokens):
            for token in tokens:
                if token != "the":
                    self.freq[token] += 1
                    if token not in self.tok2ind:
                        index = len(self.tok2ind)
                        self.tok2ind[token], self.ind2tok[index] = index, token

    words = Known({})
    words.observe(TALK[0])
    words.act()
    assert words.sort()[4:] == [("dog", 2), ("saw", 2), ("cat", 1)]


def test_spans_of_tokens():
    words = DictionaryAgent({"dict_lower": True})
    tokens, spans = words.span_tokenize("It is, it is.")
    assert tokens == ["it", "is", ",", "it", "is", "."]
    assert spans == [(0, 2), (3, 5), (5, 6), (7, 9), (10, 12), (12, 13)]

    class Stems(DictionaryAgent):
        def stem_tokenize(self, text):
            return [word + "~" for word in text.split()]

    with pytest.raises(ArgumentError, match="the token 'a~' is not in 'a b'"):
        Stems({"dict_tokenizer": "stem"}).span_tokenize("a b")


@pytest.mark.parametrize("name", ["nltk", "spacy"])
def test_tokenizers_of_packages(name):
    text = "Don't go. It's here."
    try:
        words = DictionaryAgent({"dict_tokenizer": name})
    except MissingPackageError as error:
        assert f"dict_tokenizer '{name}' needs" in str(error)  # noqa: PT017  # the package may be there
        return
    assert words.tokenize(text) == ["Do", "n't", "go", ".", "It", "'s", "here", "."]

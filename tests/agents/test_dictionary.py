import numpy as np
import pytest

from dpmodule.agents import DictionaryAgent, find_ngrams
from dpmodule.base import ArgumentError, FileError, FileFormatError

TALK = [
    {"text": "the cat saw the dog", "labels": ["the dog saw"]},
    {"text": "a bird", "labels": ["the end"]},
]


@pytest.fixture
def words():
    made = DictionaryAgent({})
    for message in TALK:
        made.observe(message)
        made.act()
    return made


def test_special_tokens_come_first(words):
    assert [words[number] for number in range(4)] == ["__NULL__", "__START__", "__END__", "__UNK__"]
    assert words["__UNK__"] == 3
    assert len(words) == 4 + 7


def test_words_are_counted_in_texts_and_labels(words):
    assert words.freqs()["the"] == 4
    assert words.max_freq() == 4
    words.observe({"text": "new", "labels": ("words", "new")})
    assert "new" not in words
    assert words.act() == {"id": "Dictionary"}
    assert (words.freq["new"], words.freq["words"]) == (2, 1)


def test_a_subclass_counts_in_act_what_it_wants():
    class Half(DictionaryAgent):
        def act(self):
            self.add_to_dict(self.tokenize(self.observation["text"])[::2])
            return {"id": "half"}

        def letters_tokenize(self, text):
            return list(text)

    words = Half({"dict_tokenizer": "letters"})
    words.observe({"text": "abc", "labels": ["d"]})
    words.act()
    assert list(words)[4:] == ["a", "c"]
    assert DictionaryAgent({}).act() == {"id": "Dictionary"}, "nothing was observed"


def test_sorting_numbers_by_falling_count_then_alphabet(words):
    pairs = words.sort()
    assert pairs[4:] == [("the", 4), ("dog", 2), ("saw", 2), ("a", 1), ("bird", 1), ("cat", 1), ("end", 1)]
    assert list(words.keys()) == [token for token, _ in pairs]
    assert words.txt2vec("the dog") == [4, 5]


def test_rare_words_and_those_behind_the_most_are_dropped(words):
    words.minfreq = 2
    words.sort()
    assert list(words)[4:] == ["the", "dog", "saw"]
    words.maxtokens = 5
    words.sort()
    assert list(words)[4:] == ["the"]
    assert words.txt2vec("the dog") == [4, 3]


def test_without_an_unknown_token_unknown_words_are_left_out():
    words = DictionaryAgent({"dict_unktoken": ""})
    words.add_to_dict(["yes"])
    assert words.txt2vec("yes no yes") == [3, 3]


def test_numbers_turn_into_text(words):
    torch = pytest.importorskip("torch")
    vector = torch.tensor(words.txt2vec("the cat sat"))
    assert words.vec2txt(vector) == words.vec2txt(vector.tolist()) == "the cat __UNK__"
    assert words.vec2txt([4, 5], delimiter="_") == "the_cat"
    assert words.parse("the") == [4]
    assert words.parse([4]) == "the"


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("re", ["It", "'", "s", "10", ".", "\n", "Über"]),
        ("split", ["It's", "10", ".", "Über"]),
        ("space", ["It's", "10.\nÜber"]),
    ],
)
def test_tokenizers(name, tokens):
    assert DictionaryAgent({"dict_tokenizer": name}).tokenize("It's 10.\nÜber") == tokens


def test_the_tokenizer_split_separates_six_marks():
    tokens = DictionaryAgent({"dict_tokenizer": "split"}).tokenize("Yes,no;a:b!c?d...e (f) g-h 'i'")
    assert " ".join(tokens) == "Yes , no ; a : b ! c ? d . . . e (f) g-h 'i'"


TOKENS = ["hello", "world", "buddy", "ol", "boy"]


@pytest.mark.parametrize(
    ("known", "n", "found"),
    [
        (["hello world", "ol boy"], 2, "hello world-buddy-ol boy"),
        (["hello world", "ol boy", "world buddy ol"], 3, "hello-world buddy ol-boy"),
        (["hello world", "ol boy", "world buddy ol"], 2, "hello world-buddy-ol boy"),
        (["ol boy", "world buddy ol", "also"], 3, "hello-world buddy ol-boy"),
        (["hello world", "ol boy"], 1, "hello-world-buddy-ol-boy"),
        (["hello world", "buddy ol boy"], 9, "hello world-buddy ol boy"),
    ],
)
def test_n_grams(known, n, found):
    assert "-".join(find_ngrams(set(known), TOKENS, n)) == found
    words = DictionaryAgent({"dict_max_ngram_size": n})
    words.observe({"text": "hello world buddy ol boy"})
    words.act()
    words.add_to_dict(known)
    assert list(words)[4:9] == TOKENS, "n-grams are not counted as such"
    assert words.vec2txt(words.txt2vec("hello world buddy ol boy"), "-") == found


def test_numbers_come_as_the_type_that_is_asked_for(words):
    for kind in (list, tuple, set):
        assert words.parse("the cat", vec_type=kind) == kind([4, 5])
    array = words.txt2vec("the cat", np.ndarray)
    assert (array.tolist(), array.dtype) == ([4, 5], np.int64)
    with pytest.raises(ArgumentError, match="vec_type is <class 'str'>, expected list"):
        words.parse("the cat", str)


def test_lower_case():
    words = DictionaryAgent({"dict_lower": True})
    words.add_to_dict(words.tokenize("Yes yes YES"))
    assert words.freq["yes"] == 3


def test_contains(words):
    assert "cat" in words
    assert "dogs" not in words
    assert 4 in words
    assert 400 not in words
    assert words[400] == "__UNK__"
    assert words["dogs"] == 3


def test_a_copy_uses_the_tables_of_its_original(words):
    copy = DictionaryAgent({}, words.share())
    copy.add_to_dict(["fresh"])
    assert "fresh" in words
    words.sort()
    assert copy["fresh"] == words["fresh"]


def test_file_holds_lines_of_token_and_count_and_comes_back(words, tmp_path):
    path = str(tmp_path / "words.dict")
    words.add_to_dict(["\n", "\t", "\\", "\\n", "a\rb", "\ud800"])
    words.save(path)
    lines = (tmp_path / "words.dict").read_bytes().split(b"\n")
    counts = [int(line.rpartition(b"\t")[2]) for line in lines[:-1]]
    assert counts == sorted(counts, reverse=True)
    assert b"the\t4" in lines
    again = DictionaryAgent({"dict_file": path})
    assert again.tok2ind == words.tok2ind
    assert again.freq == words.freq


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


def test_a_failed_save_leaves_the_old_file(words, tmp_path, monkeypatch):
    path = tmp_path / "words.dict"
    words.save(str(path))
    old = path.read_bytes()
    words.add_to_dict(["more"])
    monkeypatch.setattr("os.fsync", lambda fd: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(FileError, match="words.dict"):
        words.save(str(path))
    assert path.read_bytes() == old
    assert [each.name for each in tmp_path.iterdir()] == ["words.dict"]


@pytest.mark.parametrize("line", ["word", "word\t", "word\t-1", "word\tmany", "\t1x", "word\t" + "9" * 40])
def test_malformed_files_name_the_line(tmp_path, line):
    path = tmp_path / "words.dict"
    path.write_text(f"good\t1\n{line}\n")
    with pytest.raises(FileFormatError, match=r"words\.dict: line 2: .*expected a token, a tab"):
        DictionaryAgent({"dict_file": str(path)})


def test_a_file_that_is_no_text(tmp_path):
    path = tmp_path / "words.dict"
    path.write_bytes(b"good\t1\n\xff\t1\n")
    with pytest.raises(FileFormatError, match="not UTF-8 at byte 7"):
        DictionaryAgent({"dict_file": str(path)})


@pytest.mark.parametrize(
    "option",
    [{"dict_tokenizer": "spacy"}, {"dict_minfreq": "2"}, {"dict_maxtokens": 1.5}, {"dict_minfreq": True}],
)
def test_options_that_are_none(option):
    with pytest.raises(ArgumentError, match=next(iter(option))):
        DictionaryAgent(option)


def test_saving_without_a_name(words):
    with pytest.raises(ArgumentError, match="dict_file"):
        words.save()

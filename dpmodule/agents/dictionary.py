"""`DictionaryAgent`: tokens of dialogues with their indices and counts, which can be sorted and saved.

Source: the dictionary of ParlAI, 2018, whose files it also reads.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import repeat
from typing import Any

import numpy as np

from .._files import read_committed, write_atomically
from ..base import ArgumentError, FileFormatError, MissingPackageError
from .agent import Agent

_WORDS = re.compile(r"\w+|[^\w\s]|\n")
_PUNCTUATION = re.compile(r"([.,;:!?])")
_ESCAPED = re.compile(r"\\([\\ntr])")
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_UNESCAPES = {text[1]: character for character, text in _ESCAPES.items()}
_ESCAPE_TABLE = str.maketrans(_ESCAPES)

_SPECIAL = (
    ("nulltoken", "__NULL__"),
    ("starttoken", "__START__"),
    ("endtoken", "__END__"),
    ("unktoken", "__UNK__"),
)
_SPECIAL_COUNT = 1_000_000_003
"""Count of the first special token; those of the others follow, so that they precede all words when sorted."""


def find_ngrams(token_dict: Collection[str], text: Sequence[str], n: int) -> list[str]:
    """Return tokens with known n-grams joined by spaces; longer n-grams take precedence.

    Args:
        n: largest number of tokens in an n-gram.

    Example:
        >>> find_ngrams({"new york", "in new"}, ["in", "new", "york", "city"], 2)
        ['in new', 'york', 'city']
    """
    n = min(n, len(text))
    if n <= 1:
        return list(text)
    tokens: list[str] = []
    start = index = 0
    while index + n <= len(text):
        ngram = " ".join(text[index : index + n])
        if ngram in token_dict:
            tokens += [*find_ngrams(token_dict, text[start:index], n - 1), ngram]
            start = index = index + n
        else:
            index += 1
    return tokens + find_ngrams(token_dict, text[start:], n - 1)


class DictionaryAgent(Agent):
    r"""Assigns an index to every token, counts tokens, and converts texts to indices and back.

    The first four indices are the special tokens: null (for padding), start, end and unknown. Words follow in order of
    appearance; `sort` orders them by count and drops rare ones.

    Copies share the tables of the original. A subclass that defines ``name_tokenize(text)`` adds a tokenizer of that
    name.

    Args:
        opt: options, all optional: ``dict_file``: file to load if it exists, and to save to; ``dict_minfreq``: smallest
            count of tokens that `sort` keeps (default 0); ``dict_maxtokens``: number of tokens that `sort` keeps,
            including special ones (default -1: all); ``dict_lower``: whether to convert texts to lower case (default
            False); ``dict_tokenizer``: ``"re"``, words and punctuation marks (default), ``"split"``, at whitespace and
            around ``. , ; : ! ?``, ``"space"``, at single spaces, ``"nltk"``, sentences by Punkt and words as in the
            Penn Treebank, or ``"spacy"``, where these packages are installed, in the language ``dict_language``
            (default "english"); ``dict_initpath``: file whose tokens and counts a new dictionary begins with, if
            ``dict_file`` does not exist; ``dict_max_ngram_size``: largest number of tokens that are joined if the
            n-gram is in the dictionary (default -1: none);
            ``dict_nulltoken``, ``dict_starttoken``, ``dict_endtoken``, ``dict_unktoken``: special tokens, "" for none
            (default: ``"__NULL__"``, ``"__START__"``, ``"__END__"``, ``"__UNK__"``); ``dict_textfields``: fields of a
            message that are counted, separated by commas (default ``"text,labels"``).
        shared: state of another dictionary, whose tables it uses.

    Attributes:
        freq: count of each token.
        tok2ind: index of each token.
        ind2tok: token of each index.

    Raises:
        ArgumentError: an option has an invalid value.
        FileError: the file cannot be read.
        FileFormatError: the file is not a dictionary.
        MissingPackageError: the tokenizer needs a package, or its data, that is not installed.

    Example:
        >>> words = DictionaryAgent({"dict_lower": True})
        >>> message = words.observe({"text": "The cat saw the dog.", "labels": ["The dog!"]})
        >>> words.act()  # counts what was observed
        {'id': 'Dictionary'}
        >>> words.sort()[4:6]
        [('the', 3), ('dog', 2)]
        >>> words.txt2vec("the bird")
        [4, 3]
        >>> words.vec2txt([4, 3])
        'the __UNK__'
    """

    def __init__(self, opt: Mapping[str, Any], shared: Mapping[str, Any] | None = None) -> None:
        super().__init__(opt, shared)
        self.id = "Dictionary"
        special = [str(_or_default(self.opt.get(f"dict_{name}"), token)) for name, token in _SPECIAL]
        self.null_token, self.start_token, self.end_token, self.unk_token = special
        self.minfreq = _int_option(self.opt, "dict_minfreq", 0)
        self.maxtokens = _int_option(self.opt, "dict_maxtokens", -1)
        self.lower = bool(self.opt.get("dict_lower", False))
        self.textfields = str(_or_default(self.opt.get("dict_textfields"), "text,labels")).split(",")
        self.max_ngram_size = _int_option(self.opt, "dict_max_ngram_size", -1)
        self._tokenize = self._tokenizer()
        self._has_changed, self._is_copy = False, shared is not None
        # subclasses of ParlAI's users count tokens that are new to `freq`
        tables = shared or {"freq": defaultdict(int), "tok2ind": {}, "ind2tok": {}, "revision": [0]}
        # incremented whenever tokens get new indices; shared by all copies, None if the original does not share it
        self._revision: list[int] | None = tables.get("revision")
        self.freq: dict[str, int] = tables["freq"]
        self.tok2ind: dict[str, int] = tables["tok2ind"]
        self.ind2tok: dict[int, str] = tables["ind2tok"]
        if shared:
            return
        for index, token in enumerate(special):
            if token:
                self.add_token(token)
                self.freq[token] = _SPECIAL_COUNT - index
        path = self.opt.get("dict_file")
        is_saved = path and os.path.isfile(path)
        first = path if is_saved else self.opt.get("dict_initpath")
        if first:
            self.load(first)
        self._has_changed = not is_saved and bool(first)

    @staticmethod
    def add_cmdline_args(argparser: Any) -> Any:
        """Add the options of a dictionary to a parser, and return their group.

        Args:
            argparser: the `ParlaiParser`.
        """
        group = argparser.add_argument_group("dictionary")
        group.add_argument("--dict-file", metavar="PATH", help="file of the dictionary")
        group.add_argument(
            "--dict-minfreq", type=int, default=0, help="smallest count of tokens that are kept (default: 0)"
        )
        group.add_argument(
            "--dict-maxtokens", type=int, default=-1, help="number of tokens that are kept; -1: all (default)"
        )
        group.add_argument("--dict-lower", type="bool", default=False, help="convert texts to lower case")
        group.add_argument(
            "-tok",
            "--dict-tokenizer",
            default="re",
            metavar="NAME",
            help="tokenizer of texts: re, split, space, nltk, spacy (default: re)",
        )
        group.add_argument(
            "--dict-language",
            default="english",
            metavar="NAME",
            help="language for nltk and spacy (default: english)",
        )
        group.add_argument("--dict-initpath", metavar="PATH", help="file that a new dictionary begins with")
        group.add_argument(
            "--dict-max-ngram-size",
            type=int,
            default=-1,
            help="largest number of tokens in an n-gram; -1: no n-grams (default)",
        )
        group.add_argument(
            "--dict-textfields",
            default="text,labels",
            metavar="NAMES",
            help="fields of a message that are counted",
        )
        for name, token in _SPECIAL:
            group.add_argument(f"--dict-{name}", default=token, metavar="TOKEN", help=f"default: {token}")
        return group

    # tokens

    def __contains__(self, key: str | int) -> bool:
        """Return True if a token or an index is in the dictionary."""
        return key in self.ind2tok if isinstance(key, int) else key in self.tok2ind

    def __getitem__(self, key: str | int) -> Any:
        """Return the index of a token or the token of an index, with the unknown token for others."""
        if isinstance(key, str):
            index = self.tok2ind.get(key)
            return self.tok2ind.get(self.unk_token) if index is None else index
        return self.ind2tok.get(int(key), self.unk_token)

    def __setitem__(self, key: str, value: int) -> None:
        """Set the count of a token, and add it if it is new."""
        self.add_token(str(key))
        self.freq[str(key)] = int(value)

    def __len__(self) -> int:
        return len(self.tok2ind)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tok2ind)

    def keys(self) -> Iterable[str]:
        """Return the tokens."""
        return self.tok2ind.keys()

    def freqs(self) -> dict[str, int]:
        """Return the count of each token; those of special tokens are above all words."""
        return self.freq

    def max_freq(self) -> int:
        """Return the count of the most frequent word, 0 if there are no words."""
        special = {self.null_token, self.start_token, self.end_token, self.unk_token}
        return max((count for token, count in self.freq.items() if token not in special), default=0)

    def add_token(self, word: str) -> None:
        """Assign an index to a token if it has none.

        Args:
            word: the token; its count does not change.
        """
        if word not in self.tok2ind:
            number = len(self.tok2ind)
            self.tok2ind[word], self.ind2tok[number] = number, word
            self.freq.setdefault(word, 0)
            self._has_changed = True

    def add_to_dict(self, tokens: Iterable[str]) -> None:
        """Add tokens and count them.

        Args:
            tokens: the tokens; duplicates count.
        """
        freq = self.freq
        for token in tokens:
            self.add_token(token)
            freq[token] += 1
            self._has_changed = True

    def copy_dict(self, dictionary: DictionaryAgent) -> None:
        """Replace the content by that of another dictionary.

        Args:
            dictionary: source of tokens, indices and counts.
        """
        for name in ("freq", "tok2ind", "ind2tok"):
            _replace(getattr(self, name), dict(getattr(dictionary, name)))
        self._bump_revision()
        self._has_changed = True

    # texts

    @staticmethod
    def re_tokenize(text: str) -> list[str]:
        """Return the words and the punctuation marks of a text."""
        return _WORDS.findall(text)

    @staticmethod
    def split_tokenize(text: str) -> list[str]:
        """Return the parts of a text between whitespace, with ``. , ; : ! ?`` as separate tokens."""
        return _PUNCTUATION.sub(r" \1 ", text).split()

    @staticmethod
    def space_tokenize(text: str) -> list[str]:
        """Return the parts of a text between single spaces, without those at its ends."""
        return text.strip().split(" ")

    def nltk_tokenize(self, text: str) -> list[str]:
        """Return the words and the punctuation marks of a text: sentences by Punkt, words as in the Penn Treebank."""
        sentences, words = self._packages("nltk")
        return [word for sentence in sentences.tokenize(text) for word in words.tokenize(sentence)]

    def spacy_tokenize(self, text: str) -> list[str]:
        """Return spaCy's tokens of a text."""
        return [token.text for token in self._packages("spacy")[0](text)]

    def _packages(self, name: str) -> Sequence[Any]:
        """Return the tokenizers of a package for the language."""
        language = str(_or_default(self.opt.get("dict_language"), "english"))
        return _nltk(language) if name == "nltk" else _spacy(language)

    def span_tokenize(self, text: str) -> tuple[list[str], list[tuple[int, int]]]:
        """Return the tokens of a text, and where each of them begins and ends.

        Args:
            text: the text; ``dict_lower`` converts it to lower case first.

        Raises:
            ArgumentError: the tokenizer changes the characters of the text.
        """
        text = text.lower() if self.lower else text
        tokens, spans, end = self._tokenize(text), [], 0
        for token in tokens:
            start = text.find(token, end)
            if start < 0:
                raise ArgumentError(f"span_tokenize: the token {token!r} is not in {text[end:][:80]!r}")
            end = start + len(token)
            spans.append((start, end))
        return tokens, spans

    def _tokenizer(self) -> Callable[[str], list[str]]:
        name = _or_default(self.opt.get("dict_tokenizer"), "re")
        if name in ("nltk", "spacy"):
            self._packages(name)  # raises now if the package is missing
        tokenizer: Callable[[str], list[str]] | None = getattr(self, f"{name}_tokenize", None)
        if tokenizer is None or name == "span":
            names = {method.removesuffix("_tokenize") for method in dir(self) if method.endswith("_tokenize")}
            raise ArgumentError(
                f"dict_tokenizer is {name!r}, expected one of {', '.join(sorted(names - {'', 'span'}))}; a subclass "
                "adds others as methods NAME_tokenize(text)"
            )
        return tokenizer

    def tokenize(self, text: str, building: bool = False) -> list[str]:
        """Return the tokens of a text.

        Args:
            text: the text; ``dict_lower`` converts it to lower case first.
            building: whether to leave n-grams separate, as for counting.
        """
        tokens = self._tokenize(text.lower() if self.lower else text)
        if building or self.max_ngram_size <= 1:
            return tokens
        return find_ngrams(self.tok2ind, tokens, self.max_ngram_size)

    def txt2vec(self, text: str, vec_type: type = list) -> Any:
        """Return the indices of the tokens of a text; unknown tokens are dropped if there is no unknown token.

        Args:
            vec_type: type of the result: `list`, `tuple`, `set` or `numpy.ndarray`.

        Raises:
            ArgumentError: `vec_type` is another type.
        """
        find, unknown = self.tok2ind.get, self.tok2ind.get(self.unk_token)
        numbers = list(map(find, self.tokenize(text), repeat(unknown)))
        if None in numbers:
            numbers = [number for number in numbers if number is not None]
        if vec_type is list:
            return numbers
        if vec_type is np.ndarray:
            return np.array(numbers, np.int64)
        if vec_type not in (tuple, set):
            raise ArgumentError(f"vec_type is {vec_type!r}, expected list, tuple, set or numpy.ndarray")
        return vec_type(numbers)

    def vec2txt(self, vector: Iterable[Any], delimiter: str = " ") -> str:
        """Return the text of indices.

        Args:
            vector: integers: a list, an array or a tensor with one axis.
            delimiter: separator of tokens.
        """
        numbers = vector.tolist() if hasattr(vector, "tolist") else vector
        return delimiter.join(self.ind2tok.get(int(number), self.unk_token) for number in numbers)

    def parse(self, txt_or_vec: Any, vec_type: type = list) -> Any:
        """Return the indices of a text, or the text of indices.

        Args:
            txt_or_vec: a string, or integers, one for each token.
            vec_type: type of the indices; see `txt2vec`.
        """
        return self.txt2vec(txt_or_vec, vec_type) if isinstance(txt_or_vec, str) else self.vec2txt(txt_or_vec)

    # as an agent

    def act(self) -> dict[str, Any]:
        observation = self.observation or {}
        for field in self.textfields:
            value = observation.get(field)
            texts: Sequence[str] = [value] if isinstance(value, str) else value or ()
            for text in texts:
                self.add_to_dict(self.tokenize(text, building=True))
        return {"id": self.getID()}

    def share(self) -> dict[str, Any]:
        tables = {"freq": self.freq, "tok2ind": self.tok2ind, "ind2tok": self.ind2tok}
        return {**super().share(), **tables, "revision": self._revision}

    def shutdown(self) -> None:
        if self.opt.get("dict_file") and self._has_changed and not self._is_copy:
            self.save()

    # order and files

    def remove_tail(self, min_freq: int) -> None:
        """Drop tokens with a smaller count; the others keep their order.

        Args:
            min_freq: smallest count of a token that is kept.
        """
        self._set_tokens(
            (token, self.freq[token]) for token in list(self.tok2ind) if self.freq[token] >= min_freq
        )
        self._has_changed = True

    def resize_to_max(self, maxtokens: int) -> None:
        """Keep the tokens with the first indices.

        Args:
            maxtokens: number of tokens, including special ones; negative: all.
        """
        if 0 <= maxtokens < len(self.tok2ind):
            self._set_tokens([(token, self.freq[token]) for token in self.tok2ind][:maxtokens])
            self._has_changed = True

    def sort(self, trim: bool = True) -> list[tuple[str, int]]:
        """Assign indices by falling count, ties in alphabetical order; return the tokens with their counts.

        Args:
            trim: whether to drop tokens with counts below `dict_minfreq`, and those after the first `dict_maxtokens`.
        """
        pairs = sorted(self.freq.items(), key=lambda pair: (-pair[1], pair[0]))
        if trim:
            pairs = [pair for pair in pairs if pair[1] >= self.minfreq]
            pairs = pairs if self.maxtokens < 0 else pairs[: self.maxtokens]
        if [token for token, _ in pairs] != list(self.tok2ind):
            self._has_changed = True
        self._set_tokens(pairs)
        return pairs

    def _set_tokens(self, pairs: Iterable[tuple[str, int]]) -> None:
        """Replace all tokens; the tables stay the same objects, since copies share them."""
        counts = dict(pairs)
        numbers = {token: number for number, token in enumerate(counts)}
        _replace(self.freq, counts)
        _replace(self.tok2ind, numbers)
        _replace(self.ind2tok, dict(enumerate(counts)))
        self._bump_revision()

    def _bump_revision(self) -> None:
        """Record that tokens may have new indices; added tokens need no record, since the length changes."""
        if self._revision is not None:
            self._revision[0] += 1

    def packed(self, sort: bool = True) -> bytes:
        r"""Return the content of a dictionary file: a line ``token<TAB>count`` for each token.

        Args:
            sort: whether to sort first; see `sort`.
        """
        if sort:
            self.sort()
        lines = (f"{token.translate(_ESCAPE_TABLE)}\t{self.freq[token]}\n" for token in self.tok2ind)
        return "".join(lines).encode("utf-8", "surrogatepass")

    def save(self, filename: str | None = None, append: bool = False, sort: bool = True) -> None:
        """Write the dictionary to a file, atomically.

        Args:
            filename: path of the file (default: `dict_file`).
            append: whether to keep the lines that the file has; for a token with two lines, `load` takes the last.
            sort: whether to sort first; see `sort`.

        Raises:
            ArgumentError: no file is named.
            FileError: the file cannot be written.
        """
        path = filename or self.opt.get("dict_file")
        if not path:
            raise ArgumentError(
                'filename is not given and opt["dict_file"] is not set; set one of them to save to'
            )
        before = read_committed(path) if append and os.path.isfile(path) else b""
        write_atomically(path, before + self.packed(sort))
        self._has_changed = False

    def load(self, filename: str) -> None:
        """Add the tokens of a file with their counts, in its order.

        Args:
            filename: a file with a token, a tab and its count in each line, as `save` writes it.

        Raises:
            FileError: the file cannot be read.
            FileFormatError: a line is not a token with its count.
        """
        for token, count in _read(os.fspath(filename)):
            self.add_token(token)
            self.freq[token] = count


@cache
def _nltk(language: str) -> Sequence[Any]:
    """Return the tokenizers of sentences and of words of a language."""
    try:
        from nltk.tokenize import PunktTokenizer, TreebankWordTokenizer
    except ImportError as error:
        raise MissingPackageError(
            "dict_tokenizer 'nltk' needs the package nltk, from 3.9: pip install nltk"
        ) from error
    try:
        return PunktTokenizer(language), TreebankWordTokenizer()
    except LookupError as error:
        raise MissingPackageError(
            f"dict_tokenizer 'nltk' needs nltk's data for {language!r}: python -m nltk.downloader punkt_tab"
        ) from error


@cache
def _spacy(language: str) -> Sequence[Any]:
    """Return the tokenizer of a language, which needs no model."""
    try:
        import spacy
    except ImportError as error:
        raise MissingPackageError(
            "dict_tokenizer 'spacy' needs the package spacy: pip install spacy"
        ) from error
    try:
        return (spacy.blank({"english": "en"}.get(language, language)).tokenizer,)
    except ImportError as error:
        raise ArgumentError(
            f"dict_language is {language!r}, expected a language of spaCy, such as 'english' or 'de'"
        ) from error


def _replace(table: dict[Any, Any], content: Mapping[Any, Any]) -> None:
    table.clear()
    table.update(content)


def _or_default(value: Any, default: Any) -> Any:
    return default if value is None else value


def _int_option(opt: Mapping[str, Any], name: str, default: int) -> int:
    number = _or_default(opt.get(name), default)
    if isinstance(number, bool) or not isinstance(number, int):
        raise ArgumentError(f"{name} is {number!r}, expected an integer")
    return number


def _read(path: str) -> Iterator[tuple[str, int]]:
    """Yield the tokens of a file with their counts."""
    try:
        text = read_committed(path).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise FileFormatError(
            f"{path}: not UTF-8 at byte {error.start}; a dictionary is a text file"
        ) from error
    for number, line in enumerate(text.split("\n"), start=1):
        if not line:
            continue
        token, tab, count = line.rstrip("\r").rpartition("\t")
        if not tab or not count.isdecimal() or len(count) > 18:
            raise FileFormatError(
                f"{path}: line {number}: {line[:80]!r}, expected a token, a tab and its count"
            )
        yield _ESCAPED.sub(lambda match: _UNESCAPES[match[1]], token), int(count)

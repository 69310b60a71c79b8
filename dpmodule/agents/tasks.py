"""Built-in tasks: generated from a seed, from docstrings of Python, and from files.

The name of a task may be followed by arguments, separated by colons: a split, which overrides the option ``datatype``,
and ``name=number``, as in ``reverse:valid:size=100``.
"""

from __future__ import annotations

import codecs
import importlib
import inspect
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from random import Random
from typing import Any

from .._files import regular_file
from ..base import ArgumentError
from .dialog_teachers import ConversationTeacher, FbDialogTeacher
from .teachers import FixedDialogTeacher

__all__ = ["DocsTeacher", "FromFileTeacher", "NoCandidateTeacher", "ReverseTeacher", "split_of"]

Message = dict[str, Any]
Example = tuple[str, str, Sequence[str]]
"""Text, label and candidates."""

_SPLITS = ("train", "valid", "test")
_MAX_TRIES = 1000
_FIRST_LINE_BYTES = 2**16
"""Largest number of bytes read of a first line."""
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def split_of(text: str) -> str:
    """Return the split of a text: 80 % are ``train``, 10 % ``valid`` and 10 % ``test``.

    Example:
        >>> [split_of(text) for text in ("a b", "b c", "c d a")]
        ['test', 'valid', 'train']
    """
    bucket = zlib.crc32(text.encode()) % 10
    return "train" if bucket < 8 else _SPLITS[bucket - 7]


class _ListTeacher(FixedDialogTeacher):
    """A teacher of a list of examples, each of which is an episode."""

    def __init__(
        self,
        opt: Mapping[str, Any],
        shared: Mapping[str, Any] | None,
        make: Callable[[str], Sequence[Example]],
    ) -> None:
        super().__init__(opt, shared)
        self._examples = shared["examples"] if shared else make(self.datatype.partition(":")[0])

    def share(self) -> dict[str, Any]:
        return {**super().share(), "examples": self._examples}

    def get(self, episode_idx: int, entry_idx: int = 0) -> Message:
        text, label, candidates = self._examples[episode_idx]
        message: Message = {"text": text, "labels": [label], "episode_done": True}
        if candidates:
            message["label_candidates"] = list(candidates)
        return message

    def num_examples(self) -> int:
        return len(self._examples)

    def num_episodes(self) -> int:
        return len(self._examples)


class ReverseTeacher(_ListTeacher):
    """Asks for letters in reverse order: "a b c" has the label "c b a".

    Texts are random, with duplicates; no text is in two splits.

    Args:
        opt: options; arguments of the task: a split; ``size``: number of examples (default: 10,000 to train, 500
            otherwise); ``shortest`` and ``length``: smallest and largest number of letters (1 and 5); ``letters``:
            number of different letters (8); ``seed`` (0).

    Raises:
        ArgumentError: an argument is unknown, or there are not enough texts of these lengths.

    Example:
        >>> teacher = ReverseTeacher({"task_arguments": "valid:size=3:shortest=3"})
        >>> [(act["text"], act["eval_labels"]) for act in (teacher.act(), teacher.act())]
        [('a b a e g', ['g e a b a']), ('c h a d b', ['b d a h c'])]
    """

    def __init__(self, opt: Mapping[str, Any], shared: Mapping[str, Any] | None = None) -> None:
        opt, numbers = _arguments(opt, {"size": -1, "shortest": 1, "length": 5, "letters": 8, "seed": 0})
        super().__init__(opt, shared, lambda split: _reverse_examples(split, **numbers))


class NoCandidateTeacher(_ListTeacher):
    """Asks for a copy of the text: "3 1 0 5" has the label "3 1 0 5"; there are no candidates.

    Args:
        opt: options; arguments of the task: a split; ``size``: number of examples (default: 500 to train, 100
            otherwise); ``length``: number of tokens of a text (4); ``tokens``: number of different tokens (7);
            ``seed`` (0).

    Raises:
        ArgumentError: an argument is unknown, or there are not enough texts.
    """

    def __init__(self, opt: Mapping[str, Any], shared: Mapping[str, Any] | None = None) -> None:
        opt, numbers = _arguments(opt, {"size": -1, "length": 4, "tokens": 7, "seed": 0})
        super().__init__(opt, shared, lambda split: _copy_examples(split, **numbers))


class DocsTeacher(_ListTeacher):
    """Asks for the function of a standard Python module that a sentence of its docstring describes.

    The candidates are functions of the same module. The splits have different sentences; a function may be in several
    splits.

    Args:
        opt: options; arguments of the task: a split; ``candidates``: largest number of candidates (default 20).

    Raises:
        ArgumentError: an argument is unknown.
    """

    def __init__(self, opt: Mapping[str, Any], shared: Mapping[str, Any] | None = None) -> None:
        opt, numbers = _arguments(opt, {"candidates": 20})
        super().__init__(opt, shared, lambda split: _docs_examples(split, numbers["candidates"]))


class FromFileTeacher(FbDialogTeacher):
    """Reads examples from files: lines of named fields, numbered lines, or conversations in JSON lines.

    The format follows from the extension, ``.json`` or ``.jsonl``, or else from the first non-blank line. See
    `ParlAIDialogTeacher`, `FbDialogTeacher` and `ConversationTeacher`.

    Args:
        opt: options; the argument of the task, or ``fromfile_datapath``, is the path of a file for all splits, or of a
            folder with ``train.txt``, ``valid.txt`` and ``test.txt``, or the same names with another extension;
            ``cands_datafile``, ``cloze``, ``on_bad_line`` and ``label_turns`` of those teachers.

    Raises:
        ArgumentError: no path is given, or the folder has no file for the split.
        FileError: a file cannot be read.
        FileFormatError: a line is malformed; the text names the file, the line and the field.
    """

    @staticmethod
    def add_cmdline_args(parser: Any) -> Any:
        """Add the options of files to a parser, and return their group.

        Args:
            parser: the `ParlaiParser`.
        """
        group = ConversationTeacher.add_cmdline_args(parser)
        group.add_argument(
            "--fromfile-datapath", metavar="PATH", help="file of the task fromfile, in place of fromfile:PATH"
        )
        return group

    def __init__(self, opt: Mapping[str, Any], shared: Mapping[str, Any] | None = None) -> None:
        path = opt.get("datafile") or opt.get("fromfile_datapath") or opt.get("task_arguments")
        split = str(opt.get("datatype") or "train").partition(":")[0]
        super().__init__({**opt, "datafile": _split_file(str(path), split) if path else None}, shared)

    def setup_data(self, path: Any) -> Iterable[tuple[Any, bool]]:
        file = self.file(path)
        form = _file_format(file.path)
        if form == "conversations":
            return file.conversations(self.opt.get("label_turns") or "both")
        return super().setup_data(path) if form == "numbered" else file.fields()


# files


def _split_file(path: str, split: str) -> str:
    """Return the file of a split."""
    if not os.path.isdir(path):
        return path
    names = sorted(name for name in os.listdir(path) if os.path.splitext(name)[0] == split)
    if not names:
        raise ArgumentError(
            f"task fromfile: the folder {path!r} has no {split}.txt, nor a {split} with another extension"
        )
    return os.path.join(path, names[0])


def _file_format(path: str) -> str:
    """Return the format of a file; errors of unreadable files are left to the reader."""
    if path.endswith((".json", ".jsonl")):
        return "conversations"
    first = b""
    with suppress(OSError), open(path, "rb", opener=regular_file) as file:
        first = next(
            (line for line in iter(lambda: file.readline(_FIRST_LINE_BYTES), b"") if line.strip()), b""
        )
    first = first.removeprefix(codecs.BOM_UTF8).lstrip()
    if first.startswith(b"{"):
        return "conversations"
    return "numbered" if re.match(rb"\d{1,9}(\s|$)", first) else "fields"


# arguments


def _arguments(opt: Mapping[str, Any], defaults: Mapping[str, int]) -> tuple[dict[str, Any], dict[str, int]]:
    """Return options with the datatype from the arguments of a task, and the numbers among the arguments."""
    options, numbers = dict(opt), dict(defaults)
    for argument in str(opt.get("task_arguments") or "").split(":"):
        name, _, value = argument.strip().partition("=")
        if argument.strip() in _SPLITS:
            options["datatype"] = _datatype(name, str(opt.get("datatype") or "train"))
        elif name in numbers and value.isascii() and value.isdigit():
            numbers[name] = int(value)
        elif argument.strip():
            known = ", ".join([*_SPLITS, *(f"{number}=NUMBER" for number in defaults)])
            raise ArgumentError(f"task: unknown argument {argument!r}, expected one of {known}")
    return options, numbers


def _datatype(split: str, datatype: str) -> str:
    """Return the datatype for a split; in evaluation the split ``train`` is also only evaluated."""
    if datatype.partition(":")[0] == split:
        return datatype
    return "train:evalmode" if split == "train" else split


# generated tasks


def _reverse_examples(
    split: str, size: int, shortest: int, length: int, letters: int, seed: int
) -> Sequence[Example]:
    if not (1 <= shortest <= length and 1 <= letters <= len(_LETTERS)):
        raise ArgumentError(
            f"task reverse: shortest is {shortest}, length {length}, letters {letters}; expected 1 <= shortest <= "
            f"length, and 1 to {len(_LETTERS)} letters"
        )
    size = size if size >= 0 else 10_000 if split == "train" else 500
    texts = _draw_texts("reverse", split, size, range(shortest, length + 1), _LETTERS[:letters], seed)
    return [(text, text[::-1], ()) for text in texts]


def _copy_examples(split: str, size: int, length: int, tokens: int, seed: int) -> Sequence[Example]:
    if length < 1 or tokens < 1:
        raise ArgumentError(f"task nocandidate: length is {length}, tokens {tokens}; expected numbers from 1")
    size = size if size >= 0 else 500 if split == "train" else 100
    words = [str(number) for number in range(tokens)]
    texts = _draw_texts("nocandidate", split, size, (length,), words, seed)
    return [(text, text, ()) for text in texts]


def _draw_texts(
    task: str, split: str, size: int, lengths: Sequence[int], words: Sequence[str], seed: int
) -> list[str]:
    """Return `size` random texts of a split."""
    rng, texts, tries = Random(f"{task} {split} {seed}"), list[str](), 0
    while len(texts) < size:
        text = " ".join(rng.choices(words, k=rng.choice(lengths)))
        if split_of(text) == split:
            texts.append(text)
        tries += 1
        if tries == _MAX_TRIES and not texts:
            raise ArgumentError(
                f"task {task}: none of {_MAX_TRIES} texts of {len(words)} different words belongs to the split "
                f"{split!r}; "
                "make them longer, or take more words"
            )
    return texts


# docstrings of Python

_MODULES = """
    base64 bisect cmath collections contextlib copy difflib dis fnmatch functools glob gzip hashlib heapq
    html inspect ipaddress itertools json keyword linecache locale logging math mimetypes operator os os.path
    pathlib pickle random re secrets shlex shutil socket ssl stat statistics string struct subprocess sys
    sysconfig tempfile textwrap threading time timeit token tokenize traceback types unicodedata urllib.parse
    urllib.request uuid warnings weakref zipfile zlib
"""

_SENTENCE = re.compile(r"(?<=[a-z0-9)'\"][.])\s+(?=[A-Z])|\n\s*\n")
_MAX_SENTENCES = 4
_SHORT, _LONG = 20, 200
"""Smallest and largest number of characters of a usable sentence."""


def _docs_examples(split: str, candidates: int) -> Sequence[Example]:
    examples: list[Example] = []
    for module in _MODULES.split():
        functions = _function_sentences(module)
        names = sorted(functions)
        for name in names:
            for sentence in functions[name]:
                text = f"which function of {module}: {sentence}"
                if split_of(text) == split:
                    examples.append((text, name, _draw_candidates(names, name, candidates, text)))
    return examples


def _draw_candidates(names: Sequence[str], name: str, most: int, text: str) -> Sequence[str]:
    """Return candidates with the correct one; the others are drawn from the module, seeded by the text."""
    rng = Random(text)
    others = [other for other in names if other != name]
    chosen = [name, *rng.sample(others, min(max(most - 1, 0), len(others)))]
    return sorted(chosen)


@cache
def _function_sentences(module: str) -> Mapping[str, Sequence[str]]:
    """Return the sentences about each public function of a module."""
    members = vars(importlib.import_module(module))
    public = members.get("__all__") or [name for name in members if not name.startswith("_")]
    functions = {name: members[name] for name in public if inspect.isroutine(members.get(name))}
    about = {name: list(_sentences(inspect.getdoc(function) or "")) for name, function in functions.items()}
    return {name: sentences for name, sentences in about.items() if sentences}


def _sentences(text: str) -> Iterator[str]:
    """Yield the first sentences of a docstring as single lines."""
    for sentence in _SENTENCE.split(text)[:_MAX_SENTENCES]:
        line = " ".join(sentence.split())
        if _SHORT <= len(line) <= _LONG and ">>>" not in line:
            yield line

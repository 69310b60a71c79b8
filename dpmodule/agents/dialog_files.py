"""Dialogues in files: numbered lines, lines of named fields, and conversations in JSON lines.

Source: the formats of ParlAI of 2018 and 2019.
"""

from __future__ import annotations

import json
import math
import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .._files import path_text, regular_file
from ..base import ArgumentError, FileError, FileFormatError

Entry = list[Any]
"""Text, labels, reward and candidates, where the last ones may be missing; subclasses of teachers may modify it."""

_NUMBERED = re.compile(r"\s*(\d{1,9})(?:\s|$)")
_TURNS = ("dialog", "dialogue", "conversation")
_LABEL_STEPS = {"both": (0, 1), "secondspeaker": (0, 2), "firstspeaker": (1, 2)}
_LISTS = frozenset({"labels", "eval_labels", "label_candidates", "text_candidates"})
_MAX_SHOWN = 80
_CLOZE = "Fill in the blank in the last sentence."


class _BadDialogLine(Exception):
    """A malformed line; the arguments are the field and the problem."""


def bad_line_mode(opt: Any) -> str:
    """Return the ``on_bad_line`` option: ``"error"`` (default) or ``"skip"``."""
    mode = opt.get("on_bad_line") or "error"
    if mode not in ("error", "skip"):
        raise ArgumentError(f"on_bad_line is {mode!r}, expected 'error' or 'skip' (--on-bad-line)")
    return str(mode)


class DialogFile:
    """A file of dialogues that is read line by line.

    Args:
        on_bad_line: ``"error"``: raise `FileFormatError` at a malformed line; ``"skip"``: skip malformed lines, and
            warn once of their number at the end.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None, on_bad_line: str = "error", warns: bool = True
    ) -> None:
        if not path:
            raise ArgumentError(
                'no file of dialogues is named; set opt["datafile"], or add it to the name of the task, as in '
                '"fromfile:PATH"'
            )
        self.path = path_text(path, "path")
        self._skips = on_bad_line == "skip"
        self._warns = warns

    def read(self, parse: Callable[[str], Any]) -> Iterator[Any]:
        """Yield the result of a function for every non-blank line, None for a skipped malformed line."""
        bad, first = 0, ""
        for number, data in enumerate(self._lines(), start=1):
            try:
                text = _decoded(data)
                result = parse(text) if text.strip() else _BLANK
            except _BadDialogLine as error:
                field, problem = error.args
                description = f"line {number}: {field}: {problem}"
                if not self._skips:
                    raise FileFormatError(
                        f'{self.path}: {description}; on_bad_line "skip" (--on-bad-line skip) skips such lines'
                    ) from None
                bad, first, result = bad + 1, first or description, None
            if result is not _BLANK:
                yield result
        if bad and self._warns:
            self._warns = False
            warnings.warn(
                f"{self.path}: {bad} malformed line{'s' * (bad > 1)} skipped, the first: {first}",
                stacklevel=2,
            )

    def _lines(self) -> Iterator[bytes]:
        try:
            with open(self.path, "rb", opener=regular_file) as file:
                yield from file
        except OSError as error:
            raise FileError(
                error.errno or 0, f"cannot read dialogues: {error.strerror or error}", self.path
            ) from error

    def numbered(self, cloze: bool = False) -> Iterator[tuple[Entry, bool]]:
        r"""Yield the examples of numbered lines, each with whether an episode begins.

        A line is ``number text<TAB>label|label<TAB>reward<TAB>candidate|candidate``; fields after the text may be
        missing. A number that is not above the previous one, such as 1, begins an episode. A text without labels is
        prepended to the next one, and its reward is added. ``\n`` means a new line. The reward is None if no line
        has one.

        Args:
            cloze: whether each episode begins with the line "Fill in the blank in the last sentence."
        """
        held, last, begins = _PendingTexts(), 0, True
        for fields in self.read(_numbered_line):
            if fields is None:
                continue
            number, text, labels, reward, candidates = fields
            if number <= last:
                if held.texts:
                    yield held.entry((), None), begins
                held, begins = _PendingTexts(), True
            if cloze and (number <= last or not last):
                held.add(_CLOZE, None)
            last = number
            held.add(text, reward)
            if labels:
                yield held.entry(labels, candidates), begins
                held, begins = _PendingTexts(), False
        if held.texts:
            yield held.entry((), None), begins

    def candidates(self) -> list[str]:
        r"""Return the candidates of a file: its lines, without their numbers if the first line has number 1.

        Numbered lines with tabs contribute their labels only. ``\n`` means a new line.
        """
        texts: list[str] = []
        has_numbers = has_labels = False
        for index, text in enumerate(self.read(str)):
            line = (text or "").strip().replace("\\n", "\n")
            has_numbers = has_numbers or index == 0 and line.startswith("1 ")
            if "\t" in line and not has_labels:
                has_labels, texts = True, []
            if has_numbers:
                parts = line.split(" ", 1)[-1].split("\t")
                line = parts[0] if not has_labels else "".join(parts[1:2])
            if line:
                texts.append(line)
        return texts

    def fields(self) -> Iterator[tuple[dict[str, Any], bool]]:
        r"""Yield the messages of lines of named fields, each with whether an episode begins.

        A line is ``text:...<TAB>labels:a|b<TAB>episode_done:True``, with any fields in any order. ``labels``,
        ``eval_labels``, ``label_candidates`` and ``text_candidates`` are split at ``|``, ``reward`` is a number, all
        other fields are strings; ``\n`` and ``\t`` mean a new line and a tab. An episode ends with ``episode_done``
        True, and with the file.
        """
        begins = True
        for message in self.read(_fields_line):
            if message is not None:
                ends = message.pop("episode_done", False)
                yield message, begins
                begins = ends

    def conversations(self, label_turns: str = "both") -> Iterator[tuple[Entry, bool]]:
        """Yield the examples of conversations, each with whether an episode begins.

        A line is a JSON object with the list of turns under ``dialog``, ``dialogue`` or ``conversation``; a turn is an
        object with a ``text``, or a string. A line is an episode.

        Args:
            label_turns: ``"both"``: every turn is the label of the previous one; ``"secondspeaker"``: only the second,
                fourth, ...; ``"firstspeaker"``: only the third, fifth, ...
        """
        if label_turns not in _LABEL_STEPS:
            raise ArgumentError(f"label_turns is {label_turns!r}, expected one of {', '.join(_LABEL_STEPS)}")
        start, step = _LABEL_STEPS[label_turns]
        for turns in self.read(_conversation_turns):
            pairs = list(zip(turns or (), (turns or ())[1:]))[start::step]
            for index, (question, answer) in enumerate(pairs):
                yield [question, (answer,)], index == 0


class _PendingTexts:
    """Texts that wait for a label, and the sum of their rewards."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._reward: float | None = None

    def add(self, text: str, reward: float | None) -> None:
        """Add a line."""
        if text:
            self.texts.append(text)
        if reward is not None:
            self._reward = reward + (self._reward or 0.0)

    def entry(self, labels: Sequence[str], candidates: Sequence[str] | None) -> Entry:
        """Return an example of all texts."""
        entry = ["\n".join(self.texts), list(labels) or None, self._reward]
        return [*entry, list(candidates)] if candidates else entry


_BLANK: Any = object()


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise _BadDialogLine(f"byte {error.start + 1}", "not UTF-8") from None


def _shown(text: Any) -> str:
    shown = text if isinstance(text, str) else json.dumps(text, default=str)
    return repr(shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}...")


def _numbered_line(line: str) -> tuple[int, str, Sequence[str], float | None, Sequence[str] | None]:
    """Return the number, the text, the labels, the reward and the candidates of a line."""
    match = _NUMBERED.match(line)
    if match is None or int(match[1]) < 1:
        raise _BadDialogLine("number", f"{_shown(line)}, expected a number from 1, a space and a text")
    fields = [field.replace("\\n", "\n").strip() for field in line[match.end() :].split("\t")]
    if len(fields) > 4:
        raise _BadDialogLine(
            "fields", f"{len(fields)} of them, expected at most text, labels, reward and candidates"
        )
    text, labels, reward, candidates = fields + [""] * (4 - len(fields))
    split = _split_list(labels)
    offered = _split_list(candidates) or None
    _check_candidates(split, offered)
    return int(match[1]), text, split, _number(reward) if reward else None, offered


def _split_list(text: str) -> tuple[str, ...]:
    return tuple(text.split("|")) if text else ()


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise _BadDialogLine("reward", f"{_shown(text)}, expected a number")
    return number


def _check_candidates(labels: Sequence[str], candidates: Sequence[str] | None) -> None:
    if labels and candidates and labels[0] not in candidates:
        raise _BadDialogLine("labels", f"{_shown(labels[0])} is not among the candidates")


def _fields_line(line: str) -> dict[str, Any]:
    """Return the message of a line."""
    message: dict[str, Any] = {}
    for column in line.split("\t"):
        if not column.strip():
            continue
        name, colon, text = column.partition(":")
        name = name.strip()
        if not colon or not name:
            raise _BadDialogLine("fields", f"{_shown(column)}, expected name:text")
        if name in message:
            raise _BadDialogLine(name, "the field is given twice")
        message[name] = _field(name, text.replace("\\n", "\n").replace("\\t", "\t"))
    if "text" not in message:
        raise _BadDialogLine("text", f"missing in {_shown(line)}")
    labels = message.get("labels") or message.get("eval_labels") or ()
    _check_candidates(labels, message.get("label_candidates"))
    return {name: value for name, value in message.items() if value != ()}


def _field(name: str, text: str) -> Any:
    if name in _LISTS:
        return _split_list(text)
    if name == "reward":
        return _number(text)
    if name == "episode_done":
        if text.strip().lower() not in ("true", "false"):
            raise _BadDialogLine(name, f"{_shown(text)}, expected True or False")
        return text.strip().lower() == "true"
    return text


def _conversation_turns(line: str) -> list[str]:
    """Return the texts of the turns of a conversation."""
    try:
        conversation = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _BadDialogLine("JSON", str(error)) from None
    if not isinstance(conversation, dict):
        raise _BadDialogLine("JSON", f"{_shown(line)}, expected an object")
    name = next((name for name in _TURNS if name in conversation), None)
    if name is None:
        raise _BadDialogLine("dialog", f"missing; expected one of {', '.join(_TURNS)} in {_shown(line)}")
    turns = conversation[name]
    if not isinstance(turns, list) or len(turns) < 2:
        raise _BadDialogLine(name, f"{_shown(turns)}, expected a list of at least two turns")
    return [_turn(name, index, turn) for index, turn in enumerate(turns)]


def _turn(name: str, index: int, turn: Any) -> str:
    text = turn.get("text") if isinstance(turn, dict) else turn
    if not isinstance(text, str):
        raise _BadDialogLine(f"{name}[{index}]", f"{_shown(turn)}, expected an object with a text")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _BadDialogLine(f"{name}[{index}]", f"{ascii(text[:_MAX_SHOWN])} is not valid Unicode") from None
    return text

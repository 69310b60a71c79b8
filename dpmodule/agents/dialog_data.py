"""`DialogData` and `StreamDialogData`: the episodes of a task, all in memory or one at a time.

Source: ParlAI's of 2018.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..base import ArgumentError, StateError

Message = dict[str, Any]
Entry = tuple[Any, ...] | Message
Loader = Callable[[Any], Iterable[tuple[Any, bool]]]

_FIELDS = ("text", "labels", "reward", "label_candidates", "image")


class DialogData:
    """Episodes in memory: equal texts and equal candidates are stored once.

    Args:
        opt: options; ``datafile``: what the loader is given.
        data_loader: a function of that, which yields examples and whether an episode begins with them. An example is
            ``(text, labels, reward, candidates, image)``, the last ones of which may be missing or None, or a message.
        cands: candidates of the examples that have none of their own; labels of an example that are not among them
            are added for that example.
        shared: what `share` of another one returned, for the same episodes.

    Raises:
        ArgumentError: an example is not of that form, or its first label is not among its own candidates.

    Example:
        >>> data = DialogData({}, lambda path: [(("1 + 1", ["2"]), True), (("and 1 more", ["3"]), False)])
        >>> data.get(0, 1)
        ({'text': 'and 1 more', 'labels': ('3',), 'episode_done': True}, True)
    """

    def __init__(
        self,
        opt: Mapping[str, Any],
        data_loader: Loader | None = None,
        cands: Iterable[str] | None = None,
        shared: Mapping[str, Any] | None = None,
    ) -> None:
        self._candidates = _Candidates(shared["cands"] if shared else cands)
        self.cands = self._candidates.texts
        self.data: list[tuple[Message, ...]] = shared["data"] if shared else []
        if not shared and data_loader is not None:
            pool: dict[Any, Any] = {}
            examples = data_loader(opt.get("datafile"))
            self.data = [tuple(_interned(each, pool) for each in episode) for episode in _episodes(examples)]
        self._examples = sum(map(len, self.data))

    def share(self) -> dict[str, Any]:
        """Return what another one of the same episodes is made of."""
        return {"data": self.data, "cands": self.cands}

    def num_episodes(self) -> int:
        """Return how many episodes there are."""
        return len(self.data)

    def num_examples(self) -> int:
        """Return how many examples there are."""
        return self._examples

    def get(self, episode_idx: int, entry_idx: int = 0) -> tuple[Message, bool]:
        """Return an example as a message, and whether it is the last of all.

        Args:
            entry_idx: number of the example in it.
        """
        episode = self.data[episode_idx]
        is_last = entry_idx == len(episode) - 1
        message = {**self._candidates.to(episode[entry_idx]), "episode_done": is_last}
        return message, is_last and episode_idx == len(self.data) - 1


class StreamDialogData:
    """Episodes that are read as they are asked for: one of them, and the next, are in memory.

    Args:
        opt: options; ``datafile``: what the loader is given.
        data_loader: see `DialogData`; it is called anew for every time through the data.
        cands: see `DialogData`.
        shared: what `share` of another one returned; the copy reads for itself, and needs a loader of its own.
    """

    def __init__(
        self,
        opt: Mapping[str, Any],
        data_loader: Loader | None = None,
        cands: Iterable[str] | None = None,
        shared: Mapping[str, Any] | None = None,
    ) -> None:
        self._candidates = _Candidates(shared["cands"] if shared else cands)
        self.cands = self._candidates.texts
        self._datafile = opt.get("datafile")
        self._loader = data_loader
        self._size: tuple[int, int] | None = shared["size"] if shared else None
        self._rewind()

    def _rewind(self) -> None:
        self._position = 0
        self._reader: Iterator[tuple[Message, ...]] | None = None
        self._next_episode: tuple[Message, ...] | None = None
        self._current: tuple[Message, ...] = ()
        self._entry = 0

    def share(self) -> dict[str, Any]:
        """Return what another one of the same episodes is made of; it holds no open file."""
        return {"cands": self.cands, "size": self._size}

    def __getstate__(self) -> dict[str, Any]:
        return self.share()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__({}, shared=state)  # type: ignore[misc]

    def _open(self) -> Iterator[tuple[Message, ...]]:
        if self._loader is None:
            raise StateError("StreamDialogData has no data_loader, and cannot read")
        episodes = _episodes(self._loader(self._datafile))
        return (tuple(map(self._candidates.to, episode)) for episode in episodes)

    def _lengths(self) -> tuple[int, int]:
        if self._size is None:
            episodes = examples = 0
            for episode in self._open():
                episodes, examples = episodes + 1, examples + len(episode)
            self._size = episodes, examples
        return self._size

    def num_episodes(self) -> int:
        """Return how many episodes there are, after reading all of them once to count them."""
        return self._lengths()[0]

    def num_examples(self) -> int:
        """Return how many examples there are, after reading all of them once to count them."""
        return self._lengths()[1]

    def episode(self, number: int, loop: bool = False) -> tuple[Sequence[Message], bool]:
        """Return an episode, and whether it is the last one of all; an empty one behind that.

        Args:
            number: its number. The one behind the last one that was asked for is at hand; all between are read over,
                and for a lower number reading begins anew.
            loop: whether it goes round, the number of the first one being then their count, too.
        """
        if number < self._position:
            self._rewind()
        found: tuple[Message, ...] | None = None
        while self._position <= number:
            found = self._next(loop)
            if found is None:
                return (), True
        return found or (), self._next_episode is None

    def _next(self, loop: bool) -> tuple[Message, ...] | None:
        """Return the episode at hand, and read the one behind it."""
        reader = self._reader
        if reader is None or self._next_episode is None and loop:
            reader = self._open_first()
        found = self._next_episode
        if found is not None:
            self._next_episode = next(reader, None)
            self._position += 1
        return found

    def _open_first(self) -> Iterator[tuple[Message, ...]]:
        self._reader = self._open()
        self._next_episode = next(self._reader, None)
        return self._reader

    def ends_before(self, number: int) -> bool:
        """Say whether there is known to be no episode of a number, when nothing goes round.

        Args:
            number: position of the episode, counted from 0.
        """
        if self._size is not None:
            return number >= self._size[0]
        if self._reader is None:
            self._open_first()
        return self._next_episode is None and number >= self._position

    def get(self) -> tuple[Message, bool]:
        """Return the next example as a message, and whether it is the last of all; another time through follows."""
        if self._entry >= len(self._current):
            self._current, self._entry = self._next(loop=True) or (), 0
        if not self._current:
            return {"episode_done": True}, True
        self._entry += 1
        ends = self._entry == len(self._current)
        return {**self._current[self._entry - 1], "episode_done": ends}, ends and self._next_episode is None

    def reset(self) -> None:
        """Begin at the first episode."""
        self._rewind()


class _Candidates:
    """Candidates of all examples that have none of their own.

    Args:
        texts: the candidates, of which equal ones are kept once; None: there are none.
    """

    def __init__(self, texts: Iterable[str] | None) -> None:
        self.texts: tuple[str, ...] | None = None
        if texts is not None:
            given = (texts,) if isinstance(texts, str) else tuple(texts)
            if not all(isinstance(text, str) for text in given):
                raise ArgumentError(f"label_candidates() returned {str(given)[:80]!r}, expected texts")
            self.texts = tuple(dict.fromkeys(given))
        self._set = frozenset(self.texts or ())

    def to(self, message: Message) -> Message:
        """Return a message with these candidates and its labels, or the message itself if it has candidates."""
        if not self.texts or "label_candidates" in message:
            return message
        labels = message.get("labels") or message.get("eval_labels") or ()
        others = tuple(label for label in labels if label not in self._set)
        return {**message, "label_candidates": self.texts + others if others else self.texts}


def _episodes(examples: Iterable[tuple[Any, bool]]) -> Iterator[tuple[Message, ...]]:
    """Yield the episodes of examples."""
    episode: list[Message] = []
    for place, example in enumerate(examples):
        if not isinstance(example, (tuple, list)) or len(example) != 2:
            raise ArgumentError(
                f"example {place} of the data is {str(example)[:80]!r}, expected ((text, labels, ...), new_episode)"
            )
        entry, begins = example
        if begins and episode:
            yield tuple(episode)
            episode = []
        episode.append(_message(entry, place))
    if episode:
        yield tuple(episode)


def _message(entry: Any, place: int) -> Message:
    """Return the message of an example."""
    if (
        isinstance(entry, str)
        or not isinstance(entry, (Mapping, tuple, list))
        or not 1 <= len(entry) <= _max_fields(entry)
    ):
        raise ArgumentError(
            f"example {place} of the data is {str(entry)[:80]!r}, expected up to five of (text, labels, reward, "
            "candidates, image)"
        )
    fields = entry if isinstance(entry, Mapping) else dict(zip(_FIELDS, entry))
    message = {name: value for name, value in fields.items() if value is not None}
    if not isinstance(message.get("text", ""), str):
        raise ArgumentError(
            f"example {place} of the data: text is {str(message['text'])[:80]!r}, expected a text"
        )
    for name in ("labels", "eval_labels", "label_candidates"):
        if name in message:
            message[name] = _texts(message[name], name, place)
    first = next(iter(message.get("labels", ())), None)
    candidates = message.get("label_candidates")
    if candidates and first is not None and first not in candidates:
        raise ArgumentError(
            f"example {place} of the data: the label {first[:80]!r} is not among its candidates"
        )
    return message


def _max_fields(entry: Any) -> int:
    return len(_FIELDS) if not isinstance(entry, Mapping) else len(entry)


def _texts(value: Any, name: str, place: int) -> tuple[str, ...]:
    texts = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Iterable) else (None,)
    if not all(isinstance(text, str) for text in texts):
        raise ArgumentError(f"example {place} of the data: {name} is {str(value)[:80]!r}, expected texts")
    return texts


def _interned(message: Message, pool: dict[Any, Any]) -> Message:
    """Return a message whose texts, and tuples of texts, are those that were stored before if they are equal."""
    return {name: _intern(value, pool) for name, value in message.items()}


def _intern(value: Any, pool: dict[Any, Any]) -> Any:
    if type(value) is str:
        return sys.intern(value)
    if type(value) is tuple and all(type(each) is str for each in value):
        found = pool.get(value)
        if found is None:
            found = pool[value] = tuple(map(sys.intern, value))
        return found
    return value

"""`DialogData` and `StreamDialogData`: the episodes of a task, all in memory or one at a time.

Source: ParlAI of 2018.
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
        opt: options; ``datafile``: argument of the loader.
        data_loader: a function that yields pairs of an example and whether an episode begins with it. An example is a
            message or ``(text, labels, reward, candidates, image)``, where the last items may be missing or None.
        cands: candidates of examples without candidates; missing labels of an example are added to them.
        shared: result of `share` of another instance, for the same episodes.

    Raises:
        ArgumentError: an example has another form, or its first label is not among its own candidates.

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
            self.data = [
                tuple(_interned(message, pool) for message in episode) for episode in _episodes(examples)
            ]
        self._examples = sum(map(len, self.data))

    def share(self) -> dict[str, Any]:
        """Return the state for a copy with the same episodes."""
        return {"data": self.data, "cands": self.cands}

    def num_episodes(self) -> int:
        """Return the number of episodes."""
        return len(self.data)

    def num_examples(self) -> int:
        """Return the number of examples."""
        return self._examples

    def get(self, episode_idx: int, entry_idx: int = 0) -> tuple[Message, bool]:
        """Return an example as a message, and whether it is the very last one.

        Args:
            entry_idx: index of the example in the episode.
        """
        episode = self.data[episode_idx]
        is_last = entry_idx == len(episode) - 1
        message = {**self._candidates.add_to(episode[entry_idx]), "episode_done": is_last}
        return message, is_last and episode_idx == len(self.data) - 1


class StreamDialogData:
    """Episodes that are read on demand: the current one and the next one are in memory.

    Args:
        opt: options; ``datafile``: argument of the loader.
        data_loader: see `DialogData`; it is called for each pass over the data.
        cands: see `DialogData`.
        shared: result of `share` of another instance; the copy reads on its own and needs its own loader.
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
        """Return the state for a copy with the same episodes, without an open file."""
        return {"cands": self.cands, "size": self._size}

    def __getstate__(self) -> dict[str, Any]:
        return self.share()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__({}, shared=state)  # type: ignore[misc]

    def _open(self) -> Iterator[tuple[Message, ...]]:
        if self._loader is None:
            raise StateError("StreamDialogData cannot read, since it has no data_loader")
        episodes = _episodes(self._loader(self._datafile))
        return (tuple(map(self._candidates.add_to, episode)) for episode in episodes)

    def _lengths(self) -> tuple[int, int]:
        if self._size is None:
            episodes = examples = 0
            for episode in self._open():
                episodes, examples = episodes + 1, examples + len(episode)
            self._size = episodes, examples
        return self._size

    def num_episodes(self) -> int:
        """Return the number of episodes; the first call reads all data to count them."""
        return self._lengths()[0]

    def num_examples(self) -> int:
        """Return the number of examples; the first call reads all data to count them."""
        return self._lengths()[1]

    def episode(self, number: int, loop: bool = False) -> tuple[Sequence[Message], bool]:
        """Return an episode, and whether it is the last one; an empty one past the end.

        Args:
            number: index of the episode. The episode after the last requested one is already read; later ones are
                found by reading ahead, and earlier ones by reading from the beginning.
            loop: whether to start over after the last episode.
        """
        if number < self._position:
            self._rewind()
        episode: tuple[Message, ...] | None = None
        while self._position <= number:
            episode = self._next(loop)
            if episode is None:
                return (), True
        return episode or (), self._next_episode is None

    def _next(self, loop: bool) -> tuple[Message, ...] | None:
        """Return the next episode, and read the one after it."""
        reader = self._reader
        if reader is None or self._next_episode is None and loop:
            reader = self._open_first()
        episode = self._next_episode
        if episode is not None:
            self._next_episode = next(reader, None)
            self._position += 1
        return episode

    def _open_first(self) -> Iterator[tuple[Message, ...]]:
        self._reader = self._open()
        self._next_episode = next(self._reader, None)
        return self._reader

    def ends_before(self, number: int) -> bool:
        """Return True if the data is known to end before an episode, without starting over.

        Args:
            number: index of the episode.
        """
        if self._size is not None:
            return number >= self._size[0]
        if self._reader is None:
            self._open_first()
        return self._next_episode is None and number >= self._position

    def get(self) -> tuple[Message, bool]:
        """Return the next example as a message, and whether it is the last one; then reading starts over."""
        if self._entry >= len(self._current):
            self._current, self._entry = self._next(loop=True) or (), 0
        if not self._current:
            return {"episode_done": True}, True
        self._entry += 1
        ends = self._entry == len(self._current)
        return {**self._current[self._entry - 1], "episode_done": ends}, ends and self._next_episode is None

    def reset(self) -> None:
        """Start over at the first episode."""
        self._rewind()


class _Candidates:
    """Candidates of examples without candidates.

    Args:
        texts: the candidates, without duplicates afterwards; None: there are none.
    """

    def __init__(self, texts: Iterable[str] | None) -> None:
        self.texts: tuple[str, ...] | None = None
        if texts is not None:
            candidates = (texts,) if isinstance(texts, str) else tuple(texts)
            if not all(isinstance(text, str) for text in candidates):
                raise ArgumentError(f"label_candidates() returned {str(candidates)[:80]!r}, expected strings")
            self.texts = tuple(dict.fromkeys(candidates))
        self._set = frozenset(self.texts or ())

    def add_to(self, message: Message) -> Message:
        """Return a message with these candidates and its labels; a message with candidates is returned unchanged."""
        if not self.texts or "label_candidates" in message:
            return message
        labels = message.get("labels") or message.get("eval_labels") or ()
        others = tuple(label for label in labels if label not in self._set)
        return {**message, "label_candidates": self.texts + others if others else self.texts}


def _episodes(examples: Iterable[tuple[Any, bool]]) -> Iterator[tuple[Message, ...]]:
    """Yield the episodes of examples."""
    episode: list[Message] = []
    for index, example in enumerate(examples):
        if not isinstance(example, (tuple, list)) or len(example) != 2:
            raise ArgumentError(
                f"example {index} of the data is {str(example)[:80]!r}, expected ((text, labels, ...), new_episode)"
            )
        entry, begins = example
        if begins and episode:
            yield tuple(episode)
            episode = []
        episode.append(_message(entry, index))
    if episode:
        yield tuple(episode)


def _message(entry: Any, index: int) -> Message:
    """Return the message of an example."""
    if (
        isinstance(entry, str)
        or not isinstance(entry, (Mapping, tuple, list))
        or not 1 <= len(entry) <= (len(entry) if isinstance(entry, Mapping) else len(_FIELDS))
    ):
        raise ArgumentError(
            f"example {index} of the data is {str(entry)[:80]!r}, expected up to five of (text, labels, reward, "
            "candidates, image)"
        )
    fields = entry if isinstance(entry, Mapping) else dict(zip(_FIELDS, entry))
    message = {name: value for name, value in fields.items() if value is not None}
    if not isinstance(message.get("text", ""), str):
        raise ArgumentError(
            f"example {index} of the data: text is {str(message['text'])[:80]!r}, expected a string"
        )
    for name in ("labels", "eval_labels", "label_candidates"):
        if name in message:
            message[name] = _texts(message[name], name, index)
    first = next(iter(message.get("labels", ())), None)
    candidates = message.get("label_candidates")
    if candidates and first is not None and first not in candidates:
        raise ArgumentError(
            f"example {index} of the data: the label {first[:80]!r} is not among its candidates"
        )
    return message


def _texts(value: Any, name: str, index: int) -> tuple[str, ...]:
    texts = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Iterable) else (None,)
    if not all(isinstance(text, str) for text in texts):
        raise ArgumentError(f"example {index} of the data: {name} is {str(value)[:80]!r}, expected strings")
    return texts


def _interned(message: Message, pool: dict[Any, Any]) -> Message:
    """Return a message whose strings and tuples of strings are shared with equal ones in `pool`."""
    return {name: _intern(value, pool) for name, value in message.items()}


def _intern(value: Any, pool: dict[Any, Any]) -> Any:
    if type(value) is str:
        return sys.intern(value)
    if type(value) is tuple and all(type(item) is str for item in value):
        interned = pool.get(value)
        if interned is None:
            interned = pool[value] = tuple(map(sys.intern, value))
        return interned
    return value

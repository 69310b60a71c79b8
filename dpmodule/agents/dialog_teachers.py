"""`DialogTeacher`, and teachers that read dialogues from files.

Source: teachers of ParlAI, 2018.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from .dialog_data import DialogData, StreamDialogData
from .dialog_files import DialogFile, bad_line_mode
from .teachers import FixedDialogTeacher

Message = dict[str, Any]


class DialogTeacher(FixedDialogTeacher):
    """A teacher whose examples come from `setup_data`, which a subclass defines.

    With ``:stream`` in the data type it reads examples on demand and keeps two episodes in memory. Each Hogwild worker
    then reads the data on its own, and skips the episodes that other workers take.

    Args:
        opt: options; ``datafile``: argument of `setup_data` (default: the text after the name of the task).

    Raises:
        ArgumentError: an option or an example is not valid, or a label is not among the candidates.

    Example:
        >>> class Sums(DialogTeacher):
        ...     def setup_data(self, path):
        ...         for number in range(3):
        ...             yield (f"{number} + 1", [f"{number + 1}"]), True
        >>> Sums({"datatype": "valid", "task": "sums"}).act()
        {'text': '0 + 1', 'episode_done': True, 'id': 'sums', 'eval_labels': ('1',)}
    """

    def __init__(self, opt: Mapping[str, Any], shared: Mapping[str, Any] | None = None) -> None:
        super().__init__(opt, shared)
        if not self.opt.get("datafile"):
            self.opt["datafile"] = self.opt.get("task_arguments") or None
        self.stream = "stream" in self.datatype.split(":")
        self._episode_now: Sequence[Message] = ()
        self._is_last = False
        self._file: DialogFile | None = None
        self._on_bad_line = bad_line_mode(self.opt)
        self.data: Any
        if shared and ("batchindex" in shared or not self.stream):
            self.data = shared["data"]
        elif self.stream:
            state = shared["data"].share() if shared else None
            cands = None if shared else self.label_candidates()
            self.data = StreamDialogData(self.opt, self.setup_data, cands, state)
        else:
            self.data = DialogData(self.opt, self.setup_data, self.label_candidates())

    def setup_data(self, path: Any) -> Iterable[tuple[Any, bool]]:
        """Yield examples, each with whether an episode begins with it.

        An example is a message or ``(text, labels, reward, candidates, image)``, where the last items may be missing or
        None.
        """
        raise NotImplementedError(f"{type(self).__name__} must define setup_data(path)")

    def label_candidates(self) -> Iterable[str] | None:
        """Return the candidates of examples without candidates; None: there are none.

        Missing labels of an example are added to its candidates.
        """
        return None

    def share(self) -> dict[str, Any]:
        return {**super().share(), "data": self.data}

    def get(self, episode_idx: int, entry_idx: int = 0) -> Message:
        return self.data.get(episode_idx, entry_idx)[0]  # type: ignore[no-any-return]

    def num_examples(self) -> int:
        return self.data.num_examples()  # type: ignore[no-any-return]

    def num_episodes(self) -> int:
        return self.data.num_episodes()  # type: ignore[no-any-return]

    def next_example(self) -> tuple[Message, bool]:
        if not self.stream:
            return super().next_example()
        if self.episode_done:
            self.episode_idx, self.entry_idx = self.index.take(), 0
            self._episode_now, self._is_last = self.data.episode(self.episode_idx, self.training)
        else:
            self.entry_idx += 1
        if not self._episode_now:
            return {"episode_done": True}, True
        self.episode_done = self.entry_idx == len(self._episode_now) - 1
        example = {**self._episode_now[self.entry_idx], "episode_done": self.episode_done}
        return example, self.training and self._is_last and self.episode_done

    def epoch_done(self) -> bool:
        if not self.stream:
            return super().epoch_done()
        next_number = 0 if self.training else self.index.peek()
        return self.epochDone or self.episode_done and self.data.ends_before(next_number)

    def shutdown(self) -> None:
        if self.stream:
            self.data.reset()
        super().shutdown()

    def file(self, path: Any) -> DialogFile:
        """Return a `DialogFile`, with the option ``on_bad_line``.

        Args:
            path: path of the file; further calls with the same path return the same object.
        """
        if self._file is None or self._file.path != str(path):
            self._file = DialogFile(path, self._on_bad_line, warns=not self._is_copy)
        return self._file


class FbDialogTeacher(DialogTeacher):
    r"""A teacher of a file of numbered lines: ``number text<TAB>label|label<TAB>reward<TAB>candidate|candidate``.

    See `DialogFile.numbered`. The reward is 0 if the file has none.

    Args:
        opt: options; ``datafile``: the file (default: the text after the name of the task); ``cands_datafile``: a file
            of candidates for examples without candidates, see `load_cands`; ``cloze``: whether each episode begins with
            the line "Fill in the blank in the last sentence."; ``on_bad_line``: ``"error"`` (default), or ``"skip"``
            to skip malformed lines and warn of their number.

    Attributes:
        cands: the result of `load_cands`.

    Raises:
        FileError: a file cannot be read.
        FileFormatError: a line is malformed; the text names the file, the line and the field.
    """

    def __init__(self, opt: Mapping[str, Any], shared: Mapping[str, Any] | None = None) -> None:
        self.opt = deepcopy(dict(opt))
        self.cloze = bool(self.opt.get("cloze", False))
        self.cands = shared["cands"] if shared else self.load_cands(self.opt.get("cands_datafile"))
        super().__init__(opt, shared)

    def share(self) -> dict[str, Any]:
        return {**super().share(), "cands": self.cands}

    def label_candidates(self) -> Iterable[str] | None:
        return self.cands

    def load_cands(self, path: Any) -> Iterable[str] | None:
        """Return the candidates of a file: its lines, or the labels of numbered lines; see `DialogFile.candidates`.

        Args:
            path: path of the file; None: there are no candidates.
        """
        return DialogFile(path, bad_line_mode(self.opt)).candidates() if path else None

    def setup_data(self, path: Any) -> Iterable[tuple[Any, bool]]:
        for entry, begins in self.file(path).numbered(self.cloze):
            _, labels, reward = entry[:3]
            if reward is None and (
                labels or not self.training
            ):  # otherwise the example has nothing to learn from
                entry[2] = 0
            yield entry, begins


class ParlAIDialogTeacher(DialogTeacher):
    r"""A teacher of a file of named fields: ``text:...<TAB>labels:a|b<TAB>episode_done:True``.

    See `DialogFile.fields`.

    Args:
        opt: options; see `FbDialogTeacher`; ``parlaidialogteacher_datafile``: the file, in place of ``datafile``.

    Raises:
        FileError: the file cannot be read.
        FileFormatError: a line is malformed; the text names the file, the line and the field.
    """

    def __init__(self, opt: Mapping[str, Any], shared: Mapping[str, Any] | None = None) -> None:
        path = opt.get("parlaidialogteacher_datafile") or opt.get("datafile")
        super().__init__({**opt, "datafile": path}, shared)

    def setup_data(self, path: Any) -> Iterable[tuple[Any, bool]]:
        return self.file(path).fields()


class ConversationTeacher(DialogTeacher):
    """A teacher of a file of conversations, a JSON object in each line; see `DialogFile.conversations`.

    Args:
        opt: options; see `FbDialogTeacher`, and ``label_turns``: ``"both"`` (default): every turn is the label of the
            previous one; ``"firstspeaker"`` or ``"secondspeaker"``: only the turns of that speaker are labels.

    Raises:
        FileError: the file cannot be read.
        FileFormatError: a line is malformed; the text names the file, the line and the field.
    """

    @staticmethod
    def add_cmdline_args(parser: Any) -> Any:
        """Add the options of conversations to a parser, and return their group.

        Args:
            parser: the `ParlaiParser`.
        """
        group = parser.add_argument_group("conversations")
        group.add_argument(
            "--label-turns",
            choices=["both", "firstspeaker", "secondspeaker"],
            default="both",
            help="speaker whose turns are labels (default: both)",
        )
        return group

    def setup_data(self, path: Any) -> Iterable[tuple[Any, bool]]:
        return self.file(path).conversations(self.opt.get("label_turns") or "both")

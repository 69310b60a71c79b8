"""`DatasetFactory` and its datasets: files whose lines feed the variables of a program."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from .. import hogwild
from ..base import ArgumentError, StateError, did_you_mean
from ..hogwild.data_files import check_files
from ..hogwild.job import check_workers
from ..hogwild.prototxt import quoted
from .variable import Variable

_KINDS = ("QueueDataset", "InMemoryDataset")
_TYPES = {"int64": "uint64", "float32": "float"}
"""Types of slots by the types of their variables."""


class DatasetFactory:
    """Makes datasets by the names of Paddle's classes.

    Args:
        allow_pipe_command: whether datasets may run the programs of `set_pipe_command`.

    Example:
        >>> import dpmodule.fluid as fluid
        >>> dataset = fluid.DatasetFactory().create_dataset("InMemoryDataset")
        >>> dataset.set_batch_size(16)
        >>> dataset.set_thread(2)
        >>> dataset
        <InMemoryDataset: batch_size 16, 2 threads, 0 files, 0 variables>

    Source: Paddle 1.8 `DatasetFactory`.
    """

    def __init__(self, *, allow_pipe_command: bool = False) -> None:
        self._allow_pipe_command = allow_pipe_command

    def create_dataset(self, datafeed_class: str = "QueueDataset") -> VariableDataset:
        """Return a new dataset.

        Args:
            datafeed_class: "QueueDataset", which is read during training, or "InMemoryDataset".

        Raises:
            ArgumentError: `datafeed_class` is not one of these.
        """
        if datafeed_class not in _KINDS:
            raise ArgumentError(
                f"create_dataset: datafeed_class is {datafeed_class!r}, expected {' or '.join(_KINDS)}"
                f"{did_you_mean(str(datafeed_class), _KINDS)}"
            )
        return VariableDataset(datafeed_class, self._allow_pipe_command)


class VariableDataset:
    """Files in MultiSlot format, whose slots are variables; made by `DatasetFactory`.

    Args:
        kind: "QueueDataset" or "InMemoryDataset".
        allow_pipe_command: whether a program may read the files.

    Source: Paddle 1.8 `QueueDataset` and `InMemoryDataset`.
    """

    def __init__(self, kind: str, allow_pipe_command: bool = False) -> None:
        self._kind, self._allow_pipe_command = kind, allow_pipe_command
        self._variables: list[Variable] = []
        self._files: list[str] = []
        self._batch_size, self._pipe_command = 1, "cat"
        self.thread_num = 1
        self._memory: hogwild.InMemoryDataset | None = None

    def __repr__(self) -> str:
        return (
            f"<{self._kind}: batch_size {self._batch_size}, {self.thread_num} threads, {len(self._files)} files, "
            f"{len(self._variables)} variables>"
        )

    # settings

    def set_batch_size(self, batch_size: int) -> None:
        """Set the number of lines in a batch, from 1."""
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise ArgumentError(f"set_batch_size: batch_size is {batch_size!r}, expected an integer from 1")
        self._batch_size = batch_size

    def set_thread(self, thread_num: int) -> None:
        """Set the number of workers, from 1."""
        self.thread_num = check_workers(thread_num)

    def set_filelist(self, filelist: Sequence[str]) -> None:
        """Set the files.

        Args:
            filelist: paths of text files.

        Raises:
            ArgumentError: the list is empty, a string, or has items that are not paths.
            FileError: a file is missing.
        """
        self._files = check_files(list(filelist) if isinstance(filelist, tuple) else filelist)
        self._memory = None

    def set_use_var(self, var_list: Sequence[Variable]) -> None:
        """Set the variables that the slots of a line feed, in the order of the line.

        Args:
            var_list: results of `layers.data`, of type int64 or float32.

        Raises:
            ArgumentError: an item is not such a variable.
        """
        for variable in var_list:
            if not isinstance(variable, Variable) or not variable.is_data or variable.dtype not in _TYPES:
                kind = f"of type {variable.dtype}" if isinstance(variable, Variable) else "no variable"
                raise ArgumentError(
                    f"set_use_var: {variable!r} is {kind}, expected results of layers.data of type int64 or float32"
                )
        self._variables = list(var_list)
        self._memory = None

    def set_pipe_command(self, pipe_command: str) -> None:
        """Set the program that reads each file and writes its lines; "cat" for none.

        Raises:
            ArgumentError: the program is not "cat", and nothing allows it.
        """
        is_allowed = self._allow_pipe_command or os.environ.get("DPMODULE_ALLOW_PIPE_COMMAND") == "1"
        if pipe_command.split() not in ([], ["cat"]) and not is_allowed:
            raise ArgumentError(
                f"set_pipe_command: {pipe_command!r} is a program that would read every file; if you trust it, use "
                "DatasetFactory(allow_pipe_command=True), or set DPMODULE_ALLOW_PIPE_COMMAND=1 for a program that you "
                "do not edit"
            )
        self._pipe_command = pipe_command
        self._memory = None

    def desc(self) -> str:
        """Return the description of the lines as text."""
        text: str = self._feed().desc()
        return text

    # lines in memory

    def load_into_memory(self) -> None:
        """Read the files, replacing loaded lines.

        Raises:
            StateError: this is a QueueDataset, or files or variables are not set.
            FileFormatError: a line is malformed; the text names file, line and slot.
        """
        self._check_kind("load_into_memory")
        memory = hogwild.InMemoryDataset(self._feed())
        memory.set_filelist(self._checked_files())
        memory.load_into_memory()
        self._memory = memory

    def local_shuffle(self) -> None:
        """Shuffle the loaded lines.

        Raises:
            StateError: this is a QueueDataset, or no lines are loaded.
        """
        self._loaded("local_shuffle").local_shuffle()

    def global_shuffle(self, fleet: Any = None, thread_num: int = 12) -> None:
        """Distribute the loaded lines of all processes at random, as torchrun started them, and shuffle them.

        Args:
            fleet: accepted; the processes are those of torchrun.
            thread_num: accepted.

        Raises:
            StateError: this is a QueueDataset, or no lines are loaded.
        """
        self._loaded("global_shuffle").global_shuffle()

    def release_memory(self) -> None:
        """Release the loaded lines."""
        self._check_kind("release_memory")
        self._memory = None

    def get_memory_data_size(self, fleet: Any = None) -> int:
        """Return the number of loaded lines; with `fleet`, of all processes."""
        self._check_kind("get_memory_data_size")
        memory = self._memory
        if memory is None:
            return 0
        return len(memory) if fleet is None else memory.total()

    get_shuffle_data_size = get_memory_data_size

    # reading

    def lines(self) -> hogwild.QueueDataset | hogwild.InMemoryDataset:
        """Return what workers read.

        Raises:
            StateError: files or variables are not set, or no lines are loaded.
        """
        if self._kind == "InMemoryDataset":
            memory = self._loaded("train_from_dataset")
            memory.data_feed.set_batch_size(self._batch_size)
            return memory
        queue = hogwild.QueueDataset(self._feed())
        queue.set_filelist(self._checked_files())
        return queue

    def _feed(self) -> hogwild.DataFeedDesc:
        if not self._variables:
            raise StateError(f"{self._kind} has no variables yet; call set_use_var([...]) first")
        slots = "".join(map(_slot, self._variables))
        text = f"batch_size: {self._batch_size} pipe_command: {quoted(self._pipe_command)}"
        return hogwild.DataFeedDesc(f"{text} multi_slot_desc {{ {slots} }}", allow_pipe_command=True)

    def _checked_files(self) -> list[str]:
        if not self._files:
            raise StateError(f"{self._kind} has no files yet; call set_filelist([...]) first")
        return self._files

    def _check_kind(self, call: str) -> None:
        if self._kind != "InMemoryDataset":
            raise StateError(f'{call}: a {self._kind} holds no lines; create_dataset("InMemoryDataset") does')

    def _loaded(self, call: str) -> hogwild.InMemoryDataset:
        self._check_kind(call)
        if self._memory is None:
            raise StateError(f"{call}: no lines are loaded; call load_into_memory() first")
        return self._memory


def _slot(variable: Variable) -> str:
    """Return the description of the slot of a variable."""
    dense = not variable.lod_level
    shape = "".join(f" shape: {size}" for size in variable.shape[1:]) if dense else ""
    kind = _TYPES[str(variable.dtype)]
    what = f'name: {quoted(variable.name)} type: "{kind}" is_dense: {str(dense).lower()}'
    return f"slots {{ {what} is_used: true{shape} }} "

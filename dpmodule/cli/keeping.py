"""A training that is broken off: its last finite parameters are kept, saved, and taken up again."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from .. import checkpoint
from ..base import ArgumentError, FileFormatError, MXNetError
from ..files.file_kind import regular_file
from ..module import Module
from ..ndarray import NDArray
from ..symbol import Symbol
from .command import Command

__all__ = [
    "Copy",
    "KeepingModule",
    "copy_of",
    "interrupted_epoch",
    "remove_interrupted",
    "save_interrupted",
    "tell_resume",
]

_NUMBERS_PER_BATCH = 2**17
"""How many numbers may be copied after a batch: of larger networks a copy is made only every so many batches, as all
of it would slow a wide perceptron by a fifth."""

Params = Mapping[str, NDArray]


@dataclass(frozen=True)
class Copy:
    """Parameters after some batch."""

    arg_params: Params
    aux_params: Params
    epoch: int
    batches: int
    states: bytes | None = None

    def is_finite(self) -> bool:
        """Say whether there is neither NaN nor infinity in it."""
        arrays = [*self.arg_params.values(), *self.aux_params.values()]
        return all(
            bool(torch.isfinite(array.raw.sum())) or bool(torch.isfinite(array.raw).all()) for array in arrays
        )


class KeepingModule(Module):
    """A module that keeps a copy of parameters that were finite, for the case that later ones are not.

    Args:
        arguments: those of `Module`.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._kept: Copy | None = None
        self._epoch = self._batches = self._updates_done = 0
        self._is_whole = True

    def start_epoch(self, epoch: int, train_data: Any) -> None:
        """Get ready for an epoch of `fit`.

        Args:
            epoch: its number.
            train_data: the iterator, at its beginning.
        """
        super().start_epoch(epoch, train_data)
        self._epoch, self._batches = epoch, 0
        self._keep()

    def update(self) -> None:
        """Apply the optimizer to the gradients of the last backward."""
        self._is_whole = False
        super().update()
        self._batches += 1
        self._updates_done += 1
        self._is_whole = True
        size = sum(array.size for arrays in self.group.param_arrays for array in arrays[:1])
        if self._batches % (1 + size // _NUMBERS_PER_BATCH) == 0:
            self._keep()

    def last_finite(self) -> Copy | None:
        """Return the parameters after the last whole batch, or the last ones kept if those are not finite.

        None if there has been no whole batch. The optimizer's states come with the former only.
        """
        if not self._updates_done:
            return None
        try:
            now = self._copy(with_states=True) if self._is_whole else None
        except (MXNetError, RuntimeError):  # what broke the training off may have broken the device
            now = None
        kept = self._kept
        if now is None or now.is_finite() or kept is None:
            return kept if now is None else now
        # a forward that met NaN changes moving means, but neither parameters nor the optimizer's states
        same = (kept.epoch, kept.batches) == (now.epoch, now.batches)
        return replace(kept, states=now.states) if same else kept

    def _keep(self) -> None:
        copy = self._copy()
        if copy.is_finite():
            self._kept = copy

    def _copy(self, with_states: bool = False) -> Copy:
        return copy_of(self, self._epoch, self._batches, with_states)


def copy_of(module: Module, epoch: int, batches: int, with_states: bool = False) -> Copy:
    """Return a copy of a module's parameters.

    Args:
        module: the module.
        epoch: number of the epoch that is running.
        batches: how many of its batches are done.
        with_states: whether the optimizer's states come too.
    """
    states = module.updates.active_updater().get_states(dump_optimizer=False) if with_states else None
    return Copy(*module.get_params(), epoch, batches, states)


def save_interrupted(found: Copy | None, net: Symbol, prefix: str, command: Command) -> None:
    """Save what a training that was broken off has come to, and print the command that goes on.

    Files of epochs stay as they are.

    Args:
        found: the last parameters that are whole and finite; None: there are none.
        net: the network.
        prefix: the prefix of its files.
        command: the command that was run.
    """
    if found is None:
        print("broken off before the end of a batch: nothing to save", file=sys.stderr)
        print(f"to begin again: {command.changed()}", file=sys.stderr)
        return
    where = {"epoch": found.epoch, "batches": found.batches}
    try:
        checkpoint.save_checkpoint(
            prefix,
            checkpoint.INTERRUPTED,
            net,
            found.arg_params,
            found.aux_params,
            states=found.states,
            more={_position_file(prefix): json.dumps(where).encode()},
        )
    except MXNetError as error:
        print(f"the parameters could not be saved: {error}", file=sys.stderr)
        return
    if found.states is None:
        _unlink(checkpoint.states_file(prefix, checkpoint.INTERRUPTED))
    line = command.changed({"--load-epoch": 1, "--overwrite": 0}, ["--load-epoch", checkpoint.INTERRUPTED])
    name = checkpoint.params_file(prefix, checkpoint.INTERRUPTED)
    print(f"saved: {name} (epoch {found.epoch}, batches done: {found.batches})", file=sys.stderr)
    print(f"to go on from there: {line}", file=sys.stderr)


def tell_resume(prefix: str, command: Command) -> None:
    """Print which state of a run is the newest, and the command that goes on from it.

    Args:
        prefix: the prefix of its files.
        command: the command that was run.
    """
    saved = [path for path in checkpoint.files(prefix) if path.endswith(".run")]
    if saved:
        print(f"saved: {max(saved, key=os.path.getmtime)}", file=sys.stderr)
    else:
        print("broken off before anything was saved", file=sys.stderr)
    print(f"to go on from there: {command.changed()}", file=sys.stderr)


def interrupted_epoch(prefix: str) -> int:
    """Return the number of the epoch in which a training was broken off, to be run again.

    Raises:
        ArgumentError: nothing of the kind is saved.
        FileFormatError: the file that tells it is damaged.
    """
    path = _position_file(prefix)
    if not os.path.exists(path):
        epochs = ", ".join(map(str, checkpoint.epochs(prefix))) or "none"
        raise ArgumentError(
            f"--load-epoch {checkpoint.INTERRUPTED}: there is no {path}, so no training was broken off under the "
            f"prefix {prefix!r}; saved epochs: {epochs}"
        )
    try:
        with open(path, encoding="utf-8", opener=regular_file) as file:
            epoch = json.load(file)["epoch"]
        if not isinstance(epoch, int) or epoch < 0:
            raise ValueError(f"the epoch is {epoch!r}")
    except (ValueError, TypeError, KeyError) as error:
        raise FileFormatError(f"{path}: tells no epoch ({error}); --load-epoch takes a number too") from error
    return epoch


def remove_interrupted(prefix: str) -> None:
    """Remove what an interrupted training left."""
    for path in (
        _position_file(prefix),
        checkpoint.states_file(prefix, checkpoint.INTERRUPTED),
        checkpoint.params_file(prefix, checkpoint.INTERRUPTED),
    ):
        _unlink(path)


def _position_file(prefix: str) -> str:
    return f"{prefix}-{checkpoint.INTERRUPTED}.json"


def _unlink(path: str) -> None:
    if os.path.lexists(path):
        os.unlink(path)

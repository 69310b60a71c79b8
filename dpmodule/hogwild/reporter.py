"""What a user sees of a run while it runs: a callback, and a progress bar."""

from __future__ import annotations

import time
from typing import Any

from .arguments import RunArguments
from .job import WorkerStats
from .results import Progress

_BAR_S = 0.5


class Reporter:
    """Shows how far the workers are.

    Args:
        args: whether there are a callback and a bar, and how often the callback is called.
    """

    def __init__(self, args: RunArguments, names: list[str]) -> None:
        self._args = args
        self._names = names
        self._start = time.monotonic()
        self._next = self._start + args.callback_s
        self._bar: Any = None

    @property
    def is_wanted(self) -> bool:
        """Whether anybody looks."""
        return self._args.callback is not None or self._args.progress

    @property
    def every_s(self) -> float:
        """How often to report, in seconds."""
        return min(self._args.callback_s, _BAR_S) if self._args.progress else self._args.callback_s

    def report(self, stats: list[WorkerStats]) -> None:
        """Show what all workers have done so far."""
        now = time.monotonic()
        progress = self._show(stats)
        if self._args.callback is not None and now >= self._next:
            self._args.callback(progress)
            self._next = time.monotonic() + self._args.callback_s

    def end(self, stats: list[WorkerStats]) -> None:
        """Show on the bar what all workers have done."""
        self._show(stats)

    def _show(self, stats: list[WorkerStats]) -> Progress:
        progress = Progress(time.monotonic() - self._start, list(stats), self._names)
        if self._bar is not None:
            shown = {**progress.fetched, **dict(progress.metric)}
            self._bar.set_postfix({name: f"{value:.4g}" for name, value in shown.items()}, refresh=False)
            self._bar.update(progress.examples - self._bar.n)
        return progress

    def __enter__(self) -> Reporter:
        if self._args.progress:
            from tqdm.auto import tqdm  # slow to import, and asks whether this is a notebook

            self._bar = tqdm(unit=" examples")
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()

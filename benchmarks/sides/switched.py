"""dpmodule's side with passes of the executor switched on and off in one process.

Run as ``python -m benchmarks.sides.switched WORKLOAD BATCHES``; WORKLOAD may be "language" or "bag" as well.
"""

from __future__ import annotations

import sys
from typing import Any

from dpmodule import executor
from dpmodule.executor import passes

from .bag import BagOfWords
from .language import Model
from .module import Trainer, load
from .serve import serve

__all__ = ["Language", "prepare"]

BUCKET = 30


class Language:
    """The language model, of which a measurement is some steps of one bucket."""

    def __init__(self, mx: Any, workload: str, batches: int) -> None:
        self._model, self._count = Model(mx, "unrolled", 1), batches
        self._model.start(BUCKET)
        self.module = self._model.module

    def fit(self) -> dict[str, float]:
        """Return the time of a step."""
        return self._model.step(BUCKET, self._count)


def _made(mx: Any, workload: str, batches: int) -> Any:
    """Return what trains, and perhaps predicts."""
    if workload == "bag":
        return BagOfWords(mx, batches)
    return (Language if workload == "language" else Trainer)(mx, workload, batches)


def prepare() -> dict[str, Any]:
    """Return the requests that the parent may make."""
    mx = load("dpmodule")
    workload, batches = sys.argv[1], int(sys.argv[2])
    made: dict[tuple[str, str], Any] = {}

    def subject(mode: str, off: str = "") -> Any:
        """Return what was bound, and has run, while a pass was switched off; "" = all are on."""
        if (mode, off) not in made:
            with executor.disabled(*filter(None, [off])):
                made[mode, off] = _made(mx, workload, batches)
                getattr(made[mode, off], mode)()
        return made[mode, off]

    def fired(mode: str) -> list[str]:
        plan = subject(mode).module.explain()
        return list((plan.training if mode == "fit" else plan.predict).fired)

    return {
        "passes": lambda: [each.name for each in passes.PASSES],
        "fired": fired,
        "measure": lambda mode, off: getattr(subject(mode, off), mode)(),
    }


if __name__ == "__main__":
    serve(prepare)

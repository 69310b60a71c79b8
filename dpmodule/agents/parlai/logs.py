"""`TensorboardLogger`: the metrics of a training loop as event files of TensorBoard.

Source: the interface of ParlAI, 2018.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ...callback.loggers import make_writer

__all__ = ["TensorboardLogger"]


class TensorboardLogger:
    """Writes metrics as scalars into a folder below ``tensorboard`` in the folder of data.

    Args:
        opt: options; ``tensorboard_tag``: options whose values make up the name of the folder, separated by commas;
            ``tensorboard_comment``: text after them; ``tensorboard_metrics``: metrics to write, separated by commas
            (default: all).

    Raises:
        MissingPackageError: the package tensorboard is not installed.
    """

    @staticmethod
    def add_cmdline_args(argparser: Any) -> Any:
        """Add the flags to a parser, and return their group.

        Args:
            argparser: the `ParlaiParser`.
        """
        group = argparser.add_argument_group("TensorBoard")
        group.add_argument(
            "-tblog", "--tensorboard-log", type="bool", default=False, help="write event files (default: no)"
        )
        group.add_argument(
            "-tbtag", "--tensorboard-tag", metavar="NAMES", help="options in the name of the folder"
        )
        group.add_argument(
            "-tbmetrics", "--tensorboard-metrics", metavar="NAMES", help="metrics (default: all)"
        )
        group.add_argument(
            "-tbcomment", "--tensorboard-comment", default="", help="end of the name of the folder"
        )
        return group

    def __init__(self, opt: Mapping[str, Any]) -> None:
        names = filter(None, str(opt.get("tensorboard_tag") or "model,task").split(","))
        parts = [f"{name}-{opt.get(name)}" for name in names]
        name = "_".join(filter(None, [*parts, opt.get("tensorboard_comment")])).replace(os.sep, "-")
        self.tbpath = os.path.join(opt.get("datapath") or "data", "tensorboard", name)
        wanted = opt.get("tensorboard_metrics") or "all"
        self._wanted = None if wanted == "all" else wanted.split(",")
        self._writer = make_writer(self.tbpath)

    def add_metrics(self, setting: str, step: float, report: Mapping[str, Any]) -> None:
        """Write the numbers of a report.

        Args:
            setting: prefix of their names, "train" or "valid".
            step: number of examples so far.
            report: the metrics by name.
        """
        for name, value in report.items():
            if isinstance(value, (int, float)) and (self._wanted is None or name in self._wanted):
                self._writer.add_scalar(f"{setting}/{name}", value, step)
        self._writer.flush()

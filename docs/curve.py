"""Run the program of the start page and draw its metrics, for the same page."""

from __future__ import annotations

import contextlib
import logging
import re
from pathlib import Path

from dpmodule._core import markup

__all__ = ["write"]

PAGE = Path(__file__).with_name("index.md")


def write(folder: Path) -> None:
    """Write curve.svg."""
    program = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict = {}
    logging.disable(logging.INFO)
    try:
        with contextlib.redirect_stdout(None):
            exec(compile(program[1], str(PAGE), "exec"), names)
    finally:
        logging.disable(logging.NOTSET)
    rows = names["history"].rows
    epochs = [row["epoch"] + 1 for row in rows]
    lines = [(name, epochs, [row[f"{name}-accuracy"] for row in rows]) for name in ("train", "validation")]
    picture = markup.curve(lines, "accuracy of training and validation over ten epochs")
    (folder / "curve.svg").write_text(picture, encoding="utf-8")

"""MXNet's `get_logger` (`mx.log`)."""

from __future__ import annotations

import logging
import sys
from logging import CRITICAL as CRITICAL
from logging import DEBUG as DEBUG
from logging import ERROR as ERROR
from logging import INFO as INFO
from logging import NOTSET as NOTSET
from logging import WARNING as WARNING

from ._core import lazy

__all__ = ["CRITICAL", "DEBUG", "ERROR", "INFO", "NOTSET", "WARNING", "getLogger", "get_logger"]

lazy.publish(__name__, __all__)


def get_logger(
    name: str | None = None,
    filename: str | None = None,
    filemode: str | None = None,
    level: int = logging.WARNING,
) -> logging.Logger:
    """Return a logger that writes to a file, or to standard error.

    Args:
        name: name of the logger; None returns the root logger unchanged.
        filename: file to append to; None for standard error.
        filemode: mode of that file, "a" by default.
        level: lowest level that is logged, as in `logging`.
    """
    logger = logging.getLogger(name)
    if name is not None and not logger.handlers:
        handler: logging.Handler
        handler = (
            logging.FileHandler(filename, filemode or "a") if filename else logging.StreamHandler(sys.stderr)
        )
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(level)
    return logger


getLogger = get_logger

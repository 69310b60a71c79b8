"""Operators named ``_sparse_*``, as functions over arrays: ``nd.sparse.dot``."""

from __future__ import annotations

from typing import Any

from .faces import face_of, listed


def __getattr__(name: str) -> Any:
    found = globals()[name] = face_of("sparse", name)
    return found


def __dir__() -> list[str]:
    return listed("sparse", globals())

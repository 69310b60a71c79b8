"""Operators whose names begin with an underscore, as functions over symbols."""

from __future__ import annotations

from typing import Any

from .faces import face_of, listed


def __getattr__(name: str) -> Any:
    found = globals()[name] = face_of("_internal", name)
    return found


def __dir__() -> list[str]:
    return listed("_internal", globals())

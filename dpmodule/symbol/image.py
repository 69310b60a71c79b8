"""Operators named ``_image_*``, as functions over symbols: ``sym.image``."""

from __future__ import annotations

from typing import Any

from .faces import face_of, listed


def __getattr__(name: str) -> Any:
    found = globals()[name] = face_of("image", name)
    return found


def __dir__() -> list[str]:
    return listed("image", globals())

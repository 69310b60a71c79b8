"""Operators named ``_contrib_*``, as functions over symbols: ``sym.contrib``."""

from __future__ import annotations

from typing import Any

from .contrib_functions import rand_zipfian as rand_zipfian
from .contrib_updates import adamw_update as adamw_update
from .contrib_updates import mp_adamw_update as mp_adamw_update
from .control_flow import cond as cond
from .control_flow import foreach as foreach
from .control_flow import while_loop as while_loop
from .faces import face_of, listed


def __getattr__(name: str) -> Any:
    found = globals()[name] = face_of("contrib", name)
    return found


def __dir__() -> list[str]:
    return listed("contrib", globals())

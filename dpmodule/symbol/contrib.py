"""Operators named ``_contrib_*``, as functions over symbols: ``sym.contrib``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from .. import later
from .faces import face_of, listed

if TYPE_CHECKING:
    from .contrib_functions import rand_zipfian as rand_zipfian
    from .contrib_updates import adamw_update as adamw_update
    from .contrib_updates import mp_adamw_update as mp_adamw_update
    from .control_flow import cond as cond
    from .control_flow import foreach as foreach
    from .control_flow import while_loop as while_loop

_LATER = {
    "contrib_functions": "rand_zipfian",
    "contrib_updates": "adamw_update mp_adamw_update",
    "control_flow": "cond foreach while_loop",
}

__getattr__, _own = later.attributes(__name__, _LATER, partial(face_of, "contrib"), __package__)


def __dir__() -> list[str]:
    return listed("contrib", _own())

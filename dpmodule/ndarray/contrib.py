"""Operators named ``_contrib_*``, as functions over arrays: ``nd.contrib.box_nms``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ..compat import lazy
from .op_functions import face_of, names_in

if TYPE_CHECKING:
    from .contrib_functions import isfinite as isfinite
    from .contrib_functions import isinf as isinf
    from .contrib_functions import isnan as isnan
    from .contrib_functions import rand_zipfian as rand_zipfian
    from .contrib_updates import adamw_update as adamw_update
    from .contrib_updates import mp_adamw_update as mp_adamw_update
    from .contrib_updates import multi_adamw_update as multi_adamw_update
    from .contrib_updates import multi_lamb_update as multi_lamb_update
    from .contrib_updates import multi_mp_adamw_update as multi_mp_adamw_update
    from .contrib_updates import multi_mp_lamb_update as multi_mp_lamb_update
    from .control_flow import cond as cond
    from .control_flow import foreach as foreach
    from .control_flow import while_loop as while_loop

_LATER = {
    "contrib_functions": "isfinite isinf isnan rand_zipfian",
    "contrib_updates": """
    adamw_update mp_adamw_update multi_adamw_update multi_lamb_update multi_mp_adamw_update multi_mp_lamb_update
    """,
    "control_flow": "cond foreach while_loop",
}

__all__ = list(lazy.modules_of(_LATER))

__getattr__, __dir__ = lazy.attributes(
    __name__, __all__, _LATER, partial(face_of, "contrib"), __package__, partial(names_in, "contrib")
)

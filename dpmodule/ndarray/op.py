"""Every operator without leading underscore as a function over arrays; ``op.pyi`` lists them with signatures.

The functions are made from the declarations in `dpmodule.ops` when they are first asked for.
"""

from __future__ import annotations

from typing import Any

from .cached_op import CachedOp as CachedOp
from .faces import face_of, listed


def __getattr__(name: str) -> Any:
    found = globals()[name] = face_of("", name)
    return found


def __dir__() -> list[str]:
    return listed("", globals())

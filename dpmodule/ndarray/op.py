"""Every operator without leading underscore as a function over arrays; ``op.pyi`` lists them with signatures.

The functions are made from the declarations in `dpmodule.ops` when they are first asked for.
"""

from __future__ import annotations

from functools import partial

from ..compat import lazy
from .cached_op import CachedOp as CachedOp
from .op_functions import face_of, names_in

__all__ = ["CachedOp"]

__getattr__, __dir__ = lazy.attributes(
    __name__, __all__, otherwise=partial(face_of, ""), operators=partial(names_in, "")
)

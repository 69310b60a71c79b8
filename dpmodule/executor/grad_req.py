"""What happens to each argument's gradient: `grad_req` in its three forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..base import ArgumentError

if TYPE_CHECKING:
    from ..types import GradReqLike

_REQS = ("write", "add", "null")


def grad_reqs(names: Sequence[str], grad_req: GradReqLike) -> dict[str, str]:
    """Return "write", "add" or "null" for every argument.

    Args:
        grad_req: one of the words for all, a list in the order of `names`, or a dict (missing ones: "null").

    Example:
        >>> grad_reqs(["data", "weight"], {"weight": "write"})
        {'data': 'null', 'weight': 'write'}

    Source: MXNet 1.9.1 `Symbol.bind`.
    """
    if isinstance(grad_req, str):
        found = dict.fromkeys(names, grad_req)
    elif isinstance(grad_req, (list, tuple)):
        if len(grad_req) != len(names):
            raise ArgumentError(
                f"grad_req has {len(grad_req)} entries for {len(names)} arguments: {', '.join(names)}"
            )
        found = dict(zip(names, grad_req))
    elif isinstance(grad_req, Mapping):
        found = {name: grad_req.get(name, "null") for name in names}
    else:
        raise ArgumentError(
            f"grad_req is {grad_req!r}, expected a word, a list or a dict of {', '.join(_REQS)}"
        )
    for name, req in found.items():
        if req not in _REQS:
            raise ArgumentError(f"grad_req of {name} is {req!r}, expected one of {', '.join(_REQS)}")
    return found

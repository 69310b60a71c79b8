"""Options of an executor: plain programs, `torch.compile`, or CUDA graphs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..base import ArgumentError

if TYPE_CHECKING:
    from ..types import GradReqLike

_OFF = ("", "0", "false", "False")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options that decide how an executor runs its programs.

    Attributes:
        compile: arguments of `torch.compile`; None disables it.
        cuda_graphs: True to record repeated runs on a GPU and replay them.
        mirror: results that backward recomputes: True for cheap ones, a number of parts into which to split the
            network, False for none; None follows MXNet's environment variable and attributes.
    """

    compile: Mapping[str, Any] | None = None
    cuda_graphs: bool = False
    mirror: bool | int | None = None


PLAIN = RunOptions()
"""Options of programs that run without `torch.compile`, CUDA graphs or recomputation."""


def run_options(
    compile: Any = None, cuda_graphs: bool | None = None, mirror: bool | int | None = None
) -> RunOptions:
    """Return the options for a user's arguments.

    Args:
        compile: None or False disables `torch.compile`; True selects its default backend, a string another backend, or
            a dict of its arguments, such as ``{"mode": "max-autotune"}``.
        cuda_graphs: True to record runs on GPUs; None follows MXNet's environment variable
            MXNET_ENABLE_CUDA_GRAPHS.
    """
    if compile is None or compile is False:
        arguments = None
    elif compile is True:
        arguments = {}
    elif isinstance(compile, str):
        arguments = {"backend": compile}
    elif isinstance(compile, Mapping):
        arguments = dict(compile)
    else:
        raise ArgumentError(
            f"compile is {compile!r}, expected a bool, the name of a backend, or a dict of torch.compile's arguments"
        )
    if cuda_graphs is None:
        cuda_graphs = os.environ.get("MXNET_ENABLE_CUDA_GRAPHS", "") not in _OFF
    if mirror is not None and (not isinstance(mirror, int) or mirror < 0):
        raise ArgumentError(f"mirror is {mirror!r}, expected None, True, False, or the number of parts")
    return RunOptions(arguments, bool(cuda_graphs), mirror or (None if mirror is None else False))


_REQS = ("write", "add", "null")


def grad_reqs(names: Sequence[str], grad_req: GradReqLike) -> dict[str, str]:
    """Return "write", "add" or "null" for every argument.

    Args:
        grad_req: one of these words for all, a list in the order of `names`, or a dict (missing ones: "null").

    Example:
        >>> grad_reqs(["data", "weight"], {"weight": "write"})
        {'data': 'null', 'weight': 'write'}

    Source: MXNet 1.9.1 `Symbol.bind`.
    """
    if isinstance(grad_req, str):
        reqs = dict.fromkeys(names, grad_req)
    elif isinstance(grad_req, (list, tuple)):
        if len(grad_req) != len(names):
            raise ArgumentError(
                f"grad_req has {len(grad_req)} entries for {len(names)} arguments: {', '.join(names)}"
            )
        reqs = dict(zip(names, grad_req))
    elif isinstance(grad_req, Mapping):
        reqs = {name: grad_req.get(name, "null") for name in names}
    else:
        raise ArgumentError(
            f"grad_req is {grad_req!r}, expected one of these words, or a list or dict of them: {', '.join(_REQS)}"
        )
    for name, req in reqs.items():
        if req not in _REQS:
            raise ArgumentError(f"grad_req of {name} is {req!r}, expected one of {', '.join(_REQS)}")
    return reqs

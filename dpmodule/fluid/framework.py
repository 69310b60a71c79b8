"""Programs and variables under the module path of Paddle."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from .._core import lazy
from ..base import ArgumentError, StateError
from .core import is_compiled_with_cuda as is_compiled_with_cuda
from .executor import CPUPlace
from .program import Program as Program
from .program import default_main_program as default_main_program
from .program import default_startup_program as default_startup_program
from .program import program_guard as program_guard
from .variable import Parameter as Parameter
from .variable import Variable as Variable

_VERSION = "1.8.5"


def require_version(min_version: str, max_version: str | None = None) -> None:
    """Check the version of Paddle that the interface has, 1.8.5.

    Args:
        min_version: the lowest version, such as "1.6.1".
        max_version: the highest version; None: any.

    Raises:
        ArgumentError: a version is not of digits and points.
        StateError: 1.8.5 is below or above them.
    """
    own = _parts(_VERSION)
    if _parts(min_version) > own or max_version is not None and _parts(max_version) < own:
        limits = f"{min_version} or later" if max_version is None else f"{min_version} to {max_version}"
        raise StateError(
            f"require_version: the interface is that of Paddle {_VERSION}, but {limits} is required"
        )


def _parts(version: str) -> tuple[int, ...]:
    if not isinstance(version, str) or not re.fullmatch(r"\d+(\.\d+){0,3}", version):
        raise ArgumentError(f'require_version: the version is {version!r}, expected a string such as "1.6.1"')
    return (*map(int, version.split(".")), 0, 0, 0, 0)[:4]


def in_dygraph_mode() -> bool:
    """Return False: layers always add to a program."""
    return False


def enable_static() -> None:
    """Do nothing: layers always add to a program."""


def cpu_places(device_count: int | None = None) -> list[CPUPlace]:
    """Return a list with the CPU.

    Args:
        device_count: accepted; programs run on one place.
    """
    return [CPUPlace()]


@contextmanager
def name_scope(prefix: str | None = None) -> Iterator[None]:
    """Accept a prefix of names for tools that show a program; names stay as they are.

    Args:
        prefix: accepted.
    """
    yield


__all__ = [
    *lazy.own_names(vars()),
    "CPUPlace",
    "Parameter",
    "Program",
    "Variable",
    "default_main_program",
    "default_startup_program",
    "is_compiled_with_cuda",
    "program_guard",
]
lazy.publish(__name__, __all__)

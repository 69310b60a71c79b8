"""Runs a program written for another system as Python runs it; see ``python -m dpmodule program.py``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader, SourcelessFileLoader
from importlib.util import MAGIC_NUMBER, find_spec
from types import CodeType, ModuleType, TracebackType
from typing import Any

from .as_mxnet import install
from .base import ArgumentError, MXNetError

_SWITCHES = ("--cpu", "--old-numpy", "--replace")


def has_program(words: Sequence[str]) -> bool:
    """Return True if command-line arguments run a program: they begin with options of this module, or with it.

    Args:
        words: the arguments after ``dpmodule``.
    """
    first = words[0] if words else ""
    return first in ("-m", "--as", *_SWITCHES) or first.startswith("--as=") or _is_file(first)


def _is_file(word: str) -> bool:
    if word.startswith("-"):
        return False
    if word.endswith(".py"):
        return True
    if not os.path.isfile(word) and not os.path.isfile(os.path.join(word, "__main__.py")):
        return False
    from .cli.options import table

    return word not in table()["commands"]  # ./fit runs a file that has the name of a command


def run(words: Sequence[str]) -> int:
    """Run a program in this process, which then ends as it would by ``python program.py``.

    Args:
        words: options, the program (a file, or ``-m`` and a module) and its arguments.

    Returns:
        An exit code if the program could not be started.
    """
    try:
        system, switches, rest = _options(words)
        sys.path[0] = _import_path(rest[0])
        install(system, **{name[2:].replace("-", "_"): True for name in switches})
    except MXNetError as error:
        sys.stderr.write(f"dpmodule: error: {error}\n")
        return 2
    main = ModuleType("__main__")
    vars(main)["__builtins__"] = __builtins__
    try:
        found = _from_module(main, rest[1]) if rest[0] == "-m" else _from_path(main, rest[0])
        if isinstance(found, str):
            sys.stderr.write(f"{sys.executable}: {found}\n")
            return 2 if found.startswith("can't open") else 1
        sys.argv[:] = [main.__file__ or "", *rest[2:]] if rest[0] == "-m" else rest
        sys.modules["__main__"] = main
        exec(found, vars(main))
    except SystemExit:
        raise
    except BaseException:
        _hide_our_frames(vars(main))
        raise
    return 0


def _import_path(program: str) -> str:
    """Return the first path of modules of a program."""
    if program == "-m":
        return os.getcwd()
    if PathFinder.find_spec("__main__", [program]):  # a folder, or an archive
        return os.path.abspath(program)
    return os.path.dirname(os.path.realpath(program))


def _options(words: Sequence[str]) -> tuple[str, list[str], list[str]]:
    """Return the system, the switches, and the program with its arguments."""
    system, switches, rest = "mxnet", [], list(words)
    while rest and rest[0].startswith("--"):
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if name == "--as" and (equals or rest):
            system = value if equals else rest.pop(0)
        elif word in _SWITCHES:
            switches.append(word)
        else:
            raise ArgumentError(
                f"{word}: expected a program, or --as SYSTEM, {', '.join(_SWITCHES)} before it"
            )
    if not rest or rest == ["-m"] or not (rest[0] == "-m" or _is_file(rest[0])):
        raise ArgumentError("expected a program after the options: a file, or -m and a module")
    return system, switches, rest


def _from_path(main: ModuleType, path: str) -> CodeType | str:
    """Prepare the main module for a file, or for a folder or archive; returns its code, or why there is none."""
    place = os.path.abspath(path)
    spec = PathFinder.find_spec("__main__", [place])
    if spec is not None:
        return _from_spec(main, spec) or f"No code object available for {path}"
    if sys.path_importer_cache.get(place) is not None:
        return f"can't find '__main__' module in {place!r}"
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as error:
        return f"can't open file {place!r}: [Errno {error.errno}] {error.strerror}"
    main.__file__ = place
    vars(main)["__cached__"] = None
    if path.endswith(".pyc") or source.startswith(MAGIC_NUMBER):
        main.__loader__ = loader = SourcelessFileLoader("__main__", place)
        return loader.get_code("__main__") or f"No code object available for {path}"
    main.__loader__ = SourceFileLoader("__main__", place)
    return compile(source, main.__file__, "exec", dont_inherit=True)


def _from_module(main: ModuleType, name: str) -> CodeType | str:
    """Prepare the main module for ``-m name``; returns its code, or why there is none."""
    try:
        spec = find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = find_spec(f"{name}.__main__")
            if spec is None:
                return (
                    f"No module named {name}.__main__; {name!r} is a package and cannot be directly executed"
                )
    except ModuleNotFoundError as error:
        if not f"{name}.".startswith(f"{error.name}."):
            raise
        return f"Error while finding module specification for {name!r} (ModuleNotFoundError: {error})"
    if spec is None:
        return f"No module named {name}"
    return _from_spec(main, spec) or f"No code object available for {name}"


def _from_spec(main: ModuleType, spec: ModuleSpec) -> CodeType | None:
    loader: Any = spec.loader
    code: CodeType | None = loader.get_code(spec.name) if hasattr(loader, "get_code") else None
    main.__spec__, main.__loader__, main.__file__ = spec, loader, spec.origin or ""
    main.__package__ = spec.parent
    vars(main)["__cached__"] = spec.cached
    return code


def _hide_our_frames(program: dict[str, Any]) -> None:
    """Make the interpreter print the error that it receives next as that of a program that it runs itself."""
    hook = sys.excepthook

    def print_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        sys.excepthook = hook
        frames = []
        while trace is not None:
            frames.append(trace)
            trace = trace.tb_next
        own = [i for i, each in enumerate(frames) if each.tb_frame.f_globals is program]
        ours = [i + 1 for i, each in enumerate(frames) if each.tb_frame.f_globals is globals()]
        trace = dict(enumerate(frames)).get(min(own, default=max(ours, default=0)))
        hook(kind, error.with_traceback(trace), trace)

    sys.excepthook = print_error

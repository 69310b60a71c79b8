"""Answers ``import mxnet`` by this package, so that programs run without an edit.

``python -m dpmodule program.py`` does it for a program, `install_as_mxnet` for the running process,
``%load_ext dpmodule`` for a notebook, and ``pytest -p dpmodule.as_mxnet`` for tests.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from opcode import opmap
from types import CodeType, ModuleType
from typing import Any

import numpy as np

from ._core import lazy
from .base import ArgumentError, StateError
from .context import Context

__all__ = ["install", "install_as_mxnet", "install_from_words", "pytest_addoption"]

lazy.publish(__name__, __all__)

SYSTEMS: dict[str, dict[str, str]] = {
    "mxnet": {"mxnet": "dpmodule"},
    "dynet": {
        "dynet": "dpmodule.autobatch",
        "_dynet": "dpmodule.autobatch",
        "dynet_config": "",
        "dynet_viz": "",
    },
    "paddle": {"paddle": "dpmodule"},
    "parlai": {"parlai": "dpmodule.agents"},
}
"""Top-level modules of each system, and the packages that answer them; "" for modules that are left out."""

_CORE = (
    "agents dialog dialog_teacher dict fbdialog fbdialog_teacher metrics params teachers thread_utils worlds"
)
_MOVED = {
    "paddle.reader": "dpmodule.fluid.readers",
    **{f"parlai.core.{name}": "dpmodule.agents.parlai.core" for name in _CORE.split()},
}
"""Modules that answer paths of other names, in addition to those of ``moving.json`` for ParlAI."""

_OWN_FOLDERS = ("parlai", "parlai.agents", "parlai.tasks")
"""Packages of ParlAI in which programs have modules of their own; a module left out by its name is not such a one."""

_FUNCTIONS = {"paddle.batch": "dpmodule.fluid.readers", "paddle.enable_static": "dpmodule.fluid.framework"}
"""Homes of functions of Paddle outside of fluid."""

_VERSIONS = {
    "mxnet": "1.9.1",
    "mxnet.libinfo": "1.9.1",
    "dynet": "2.1",
    "_dynet": "2.1",
    "paddle": "1.8.5",
    "parlai": "0.1.0",
}
"""Versions that programs read; these modules are objects of their own, all others are this package's."""

_CHILDREN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_children")


class _OldModule(ModuleType):
    """A module of another system: its version, and the attributes of the module that answers it."""

    def __init__(self, name: str, target: ModuleType) -> None:
        super().__init__(name, target.__doc__)
        self.__dict__["_target"] = target
        self.__version__ = _VERSIONS[name.partition(".")[0]]
        self.__file__ = getattr(target, "__file__", None)

    def __getattr__(self, name: str) -> Any:
        path = f"{self.__name__}.{name}"
        if path in _VERSIONS or path in _MOVED:
            return import_module(path)
        if path in _FUNCTIONS:
            return getattr(import_module(_FUNCTIONS[path]), name)
        try:
            return getattr(self._target, name)
        except AttributeError:
            explain_missing_name(self._target, name, path=path)
            raise

    def __dir__(self) -> list[str]:
        return sorted({*dir(self._target), *(name for name in vars(self) if name.startswith("__"))})


class _OldImports(MetaPathFinder, Loader):
    """Importer that answers each path below a system's modules by the same module object of this package."""

    def __init__(self, roots: dict[str, str]) -> None:
        self.roots = roots

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        root, dot, rest = fullname.partition(".")
        if root not in self.roots:
            return None
        if not self.roots[root]:
            raise ModuleNotFoundError(f"No module named {fullname!r}: {_advice(fullname)}", name=fullname)
        if root == "parlai":
            return self._parlai_spec(fullname, path)
        new = _MOVED.get(fullname, f"{self.roots[root]}{dot}{rest}")
        if fullname in _VERSIONS:
            answer: ModuleType = _OldModule(fullname, import_module(new))
        else:
            answer = _module(new, fullname)
        spec = ModuleSpec(fullname, self, origin=getattr(answer, "__file__", None), loader_state=answer)
        if hasattr(answer, "__path__"):
            spec.submodule_search_locations = []
        return spec

    def _parlai_spec(self, fullname: str, path: Sequence[str] | None) -> ModuleSpec:
        """Return the spec of a module of ParlAI, or of a program's own module in a folder of that name."""
        from .cli.check_program import longest_prefix, moving_table

        moved = {**moving_table()["moved"], **_MOVED}
        is_package = any(each.startswith(f"{fullname}.") for each in moved)
        if not is_package and fullname not in moved:
            above = longest_prefix(fullname, moving_table()["instead"])
            own = PathFinder.find_spec(fullname, path) if above in _OWN_FOLDERS else None
            if own is None:
                raise ModuleNotFoundError(f"No module named {fullname!r}: {_advice(fullname)}", name=fullname)
            return own
        answer = _OldModule(fullname, ModuleType(fullname) if is_package else import_module(moved[fullname]))
        spec = ModuleSpec(fullname, self, origin=answer.__file__, loader_state=answer, is_package=is_package)
        if fullname in _OWN_FOLDERS:
            folders = [os.path.join(base or os.curdir, *fullname.split(".")) for base in sys.path]
            spec.submodule_search_locations = [*filter(os.path.isdir, folders)]
        return spec

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the code of ``-m parlai.scripts.NAME``, which calls the function ``main`` of the module."""
        if not hasattr(import_module(fullname), "main"):
            return None
        return compile(f"from {fullname} import main\nmain()", f"<{fullname}>", "exec")

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        # the module of this package must keep its own __spec__, which Python would replace
        return spec.loader_state if isinstance(spec.loader_state, _OldModule) else None

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        if spec is not None and not isinstance(module, _OldModule):
            sys.modules[spec.name] = spec.loader_state


def _module(path: str, old: str) -> ModuleType:
    """Import a module of this package, and say by its old path why it is missing."""
    above, _, name = path.rpartition(".")
    shown = vars(sys.modules[above]).get(name) if above in sys.modules else None
    try:
        if shown is None or isinstance(shown, ModuleType):
            return import_module(path)
    except ModuleNotFoundError as error:
        if not f"{path}.".startswith(f"{error.name}."):
            raise
    text = _advice(old)
    raise ModuleNotFoundError(f"No module named {old!r}" + (f": {text}" if text else ""), name=old) from None


def _advice(path: str) -> str:
    """Return why a name of the other system is missing, and what takes its place."""
    from .cli.check_program import advice

    return advice(path)


def explain_missing_name(module: ModuleType, name: str, depth: int = 2, path: str = "") -> None:
    """Raise an error that says why a module lacks a name, if that is known; called by its ``__getattr__``.

    Args:
        depth: number of calls since the access.
        path: the old path of the name, if it is known.
    """
    if name.startswith("__"):
        return
    from .cli.check_program import advice, missing_name

    old, text = (path, advice(path)) if path.startswith("parlai") else missing_name(module, name, path)
    frame = sys._getframe(depth)
    # Python replaces an AttributeError of `from module import name` by its own text
    if frame.f_code.co_code[frame.f_lasti] == opmap["IMPORT_FROM"]:
        raise ImportError(
            f"cannot import name {name!r} from {old.rpartition('.')[0]!r}: {text}", name=old
        ) from None
    if advice(old):
        raise AttributeError(f"{old} is missing: {text}", name=name, obj=module) from None


def install_as_mxnet(*, cpu: bool = False, old_numpy: bool = False, replace: bool = False) -> None:
    """Answer ``import mxnet`` and all paths below it by this package, in this process and its children.

    Args:
        cpu: answer ``mx.gpu(i)`` by ``mx.cpu(i)`` if the machine has no GPU.
        old_numpy: put back names that NumPy has removed, such as ``np.int`` and ``np.fromstring`` of bytes.
        replace: also if MXNet itself is installed or imported.

    Raises:
        StateError: MXNet is installed or imported, and `replace` is False.

    Example:
        >>> mx.install_as_mxnet()
        >>> import mxnet
        >>> mxnet.nd is mx.nd
        True
    """
    install("mxnet", cpu=cpu, old_numpy=old_numpy, replace=replace)


def install(system: str, *, cpu: bool = False, old_numpy: bool = False, replace: bool = False) -> None:
    """Answer the imports of a system by this package; see `install_as_mxnet`.

    Args:
        system: "mxnet", "dynet", "paddle" or "parlai".
        cpu: as in `install_as_mxnet`.
        old_numpy: as in `install_as_mxnet`.
        replace: as in `install_as_mxnet`.

    Raises:
        ArgumentError: unknown system.
        StateError: the system itself is installed or imported, and `replace` is False.
    """
    if system not in SYSTEMS:
        raise ArgumentError(f"--as {system!r}: expected one of {', '.join(SYSTEMS)}")
    roots = SYSTEMS[system]
    if not replace:
        _check_absent(roots)
    for name in list(sys.modules):
        top = name.partition(".")[0]
        if top in roots and not isinstance(sys.modules.get(top), _OldModule):
            del sys.modules[name]
    for finder in sys.meta_path:
        if isinstance(finder, _OldImports) and finder.roots is roots:
            break
    else:
        sys.meta_path.insert(0, _OldImports(roots))
    lazy.explain_missing(explain_missing_name)
    if cpu:
        Context.use_cpu_without_gpu()
    if old_numpy:
        _add_old_numpy()
    _tell_children(system, cpu=cpu, old_numpy=old_numpy, replace=replace)


def install_from_words(words: Sequence[str]) -> None:
    """Install what the parent process has installed.

    Args:
        words: a system, and options as on the command line.
    """
    cpu, old_numpy, replace = (option in words for option in ("--cpu", "--old-numpy", "--replace"))
    install(words[0], cpu=cpu, old_numpy=old_numpy, replace=replace)


def _check_absent(roots: dict[str, str]) -> None:
    for name in roots:
        module = sys.modules.get(name)
        if isinstance(module, _OldModule):
            continue
        if module is not None:
            state, place = "already imported", getattr(module, "__file__", None)
        else:
            spec = PathFinder.find_spec(name)
            if spec is None or spec.loader is None or spec.origin is None:  # a folder without __init__.py
                continue
            state, place = "installed", spec.origin
        raise StateError(
            f"{name} itself is {state} ({place}) and would answer `import {name}`; --replace, or replace=True, "
            "makes dpmodule answer in its place"
        )


def _tell_children(system: str, **options: bool) -> None:
    """Set the environment by which children of this process answer the same; `_children` reads it."""
    entries, _, prefix = os.environ.get("DPMODULE_AS", "").partition("|")
    words = {entry.split()[0]: entry for entry in entries.split(";")} if prefix == sys.prefix else {}
    given = [f"--{name.replace('_', '-')}" for name, value in options.items() if value]
    before = words.get(system, "").partition("=")[0].split()[1:]
    words[system] = f"{' '.join([system, *dict.fromkeys([*before, *given])])}={' '.join(SYSTEMS[system])}"
    os.environ["DPMODULE_AS"] = f"{';'.join(words.values())}|{sys.prefix}"
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if _CHILDREN not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([_CHILDREN, *filter(None, paths)])


_BUILTINS = {"bool": bool, "int": int, "float": float, "complex": complex, "object": object, "str": str}
_OLD_NUMPY = {
    **_BUILTINS,
    "long": int,
    "unicode": str,
    "float_": np.float64,
    "complex_": np.complex128,
    "string_": np.bytes_,
    "unicode_": np.str_,
    "Inf": np.inf,
    "Infinity": np.inf,
    "infty": np.inf,
    "PINF": np.inf,
    "NINF": -np.inf,
    "NaN": np.nan,
    "NAN": np.nan,
    "product": np.prod,
    "cumproduct": np.cumprod,
    "sometrue": np.any,
    "alltrue": np.all,
    "round_": np.round,
    "row_stack": np.vstack,
    "mat": np.asmatrix,
    "asscalar": lambda a: a.item(),
}
"""Names that NumPy 1.20 had."""


def _add_old_numpy() -> None:
    """Put back what NumPy has removed, and nothing that it has."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, value in _OLD_NUMPY.items():
            if not hasattr(np, name):
                setattr(np, name, value)
        try:
            of_text: Any = np.fromstring
            of_text(b"\0", np.uint8)
        except ValueError:
            vars(np).update(fromstring=_fromstring_of(of_text))


def _fromstring_of(of_text: Any) -> Any:
    def fromstring(string: Any, dtype: Any = float, count: int = -1, *, sep: str = "", **options: Any) -> Any:
        """Return an array of the bytes of a string, or of the numbers of a text."""
        if sep:
            return of_text(string, dtype, count, sep=sep, **options)
        data = string.encode("latin-1") if isinstance(string, str) else string
        return np.frombuffer(data, dtype, count).copy() if len(data) else np.empty(0, dtype)

    return fromstring


def pytest_addoption(parser: object) -> None:
    """Install before pytest reads the first test file; pytest calls it.

    Args:
        parser: pytest's.
    """
    install_as_mxnet()

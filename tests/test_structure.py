"""A class lives whole in one file: no base for one subclass, no attribute that only a subclass sets; no circles.

The package is read, not imported (`tools/structure.py`). Each list says what is excepted and why, and an entry that is
no longer needed fails too.
"""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from structure import Package, sources_in

ROOT = Path(__file__).parents[1]

SINGLE_USE: dict[str, str] = {}
"""Internal classes that may have exactly one subclass and never be made."""

UNSET = {
    "dpmodule.module.base_module.BaseModule": "MXNet's: subclasses, users' too, set `_symbol`",
    "dpmodule.ndarray.ndarray.NDArray": "`trace` is the tape's, which alone sets it",
    "dpmodule.ops.sparse.storage.Sparse": "abstract: what both kinds of record store, each in its own constructor",
}
"""Classes that may read what they and their bases do not set."""

CIRCLES: dict[str, tuple[str, ...]] = {}
"""Circles of imports that may be."""

SHARED_NAMES = {
    "AsyncExecutor": "Paddle's, as fluid has it, and the one it calls",
    "DataParallelExecutorGroup": "MXNet has two: that of `mx.mod` and that of `mx.executor_manager`",
    "Executor": "MXNet's and Paddle's",
    "Optimizer": "MXNet's and Paddle's",
    "Program": "Paddle's, and the generated function of an executor",
    "ThreadPool": "the extension's and the public class that holds it",
    "Worker": "the extension's and the public interface",
}
"""Class names that several modules define."""

MOST_ANY = {"dpmodule.ndarray": 0.03, "dpmodule.symbol": 0.03}
"""The largest share of parameters, of those with a name, that may be annotated with `Any` alone."""


@cache
def package():
    return Package(sources_in(ROOT, "dpmodule"))


def hold(found, allowed):
    """Compare names found, with what to say of each, and those allowed."""
    new = "\n".join(f"{name}: {told}" for name, told in sorted(found.items()) if name not in allowed)
    gone = sorted(set(allowed) - set(found))
    assert not new, f"not allowed here, see the list in this file:\n{new}"
    assert not gone, f"no longer needed here: {', '.join(gone)}"


@pytest.mark.timeout(120)
def test_no_internal_class_has_one_subclass_and_is_never_made():
    found = {
        each.name: f"its only subclass is {each.subclass}, and nobody makes one"
        for each in package().single_use_bases()
        if not each.is_public
    }
    hold(found, SINGLE_USE)


@pytest.mark.timeout(120)
def test_no_method_reads_what_its_class_and_bases_never_set():
    found = {
        name: ", ".join(f"self.{each} in line {line}" for each, line in reads.items())
        for name, reads in package().unset_reads().items()
    }
    hold(found, UNSET)


@pytest.mark.timeout(120)
def test_modules_of_a_package_do_not_import_each_other_in_circles():
    """Imports for type checkers, tables of `lazy` and names given to `import_module` count."""
    found = {name: {" ".join(circle) for circle in circles} for name, circles in package().circles().items()}
    assert found == {name: set(circles) for name, circles in CIRCLES.items()}


@pytest.mark.timeout(120)
def test_a_class_name_has_one_meaning():
    hold({name: ", ".join(classes) for name, classes in package().several_meanings().items()}, SHARED_NAMES)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", MOST_ANY)
def test_parameters_say_what_they_take(name):
    bare, every = package().bare_any(name)
    assert bare <= MOST_ANY[name] * every, f"{bare} of {every} are Any; dpmodule/types.py has names"


def test_tests_mirror_the_package():
    """What belongs to no single file stands in the table of CONTRIBUTING.md."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(tests[\w/]*)` \| (.+) \|$", text, re.MULTILINE)
    listed = {f"{folder}/test_{name}.py" for folder, names in rows for name in names.split(", ")}
    found = {path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")}
    strays = {path.as_posix() for path in found if not _is_mirrored(path)}
    assert strays - listed == set(), "no file of this name in dpmodule; rename, or list it in CONTRIBUTING.md"
    assert listed - strays == set(), "no longer needed in CONTRIBUTING.md"


def _is_mirrored(path):
    *folders, name = path.relative_to("tests").with_name(path.stem.removeprefix("test_")).parts
    for parts in ([*folders, name], [*folders, f"_{name}"], [f"_{folder}" for folder in folders] + [name]):
        source = ROOT.joinpath("dpmodule", *parts)  # tests of `_files` and `_core` have no underscore
        if source.is_dir() or source.with_suffix(".py").exists():
            return True
    return False


# what reads the package


def read(**files):
    """Return a package of modules with these texts; two underscores stand for a slash."""
    texts = {f"pkg/{name.replace('__', '/')}.py": text for name, text in files.items()}
    folders = {path.rpartition("/")[0] for path in texts}
    return Package({**{f"{folder}/__init__.py": "" for folder in folders}, **texts})


@pytest.mark.parametrize(
    ("use", "is_found"),
    [
        ("", True),
        ("def make(): return Base()", False),
        ("TABLE = {'base': Base}", False),
        ("call(Base)", False),
        ("def f(x: Base, y) -> Base: return isinstance(y, Base) or issubclass(y, (Base, int))", True),
        ("class Second(Base): pass", False),
        ("Kind = Base | None", True),
        ("try: pass\nexcept Base: pass", True),
        ("Base.method(object())", True),
    ],
)
def test_bases_of_one_class(use, is_found):
    found = read(
        base="class Base:\n    def method(self): pass\nclass Leaf(Base): pass",
        use=f"from .base import Base, Leaf\n{use}",
    )
    assert [each.name for each in found.single_use_bases()] == ["pkg.base.Base"] * is_found


def test_what_a_public_module_imports_as_itself_is_public():
    found = read(
        inner="class Base: pass\nclass Hidden: pass\nclass A(Base): pass\nclass B(Hidden): pass",
        outer="from pkg import lazy\nfrom .inner import Base as Base\nfrom .inner import Hidden\n"
        "__all__ = lazy.public_names(vars())\nlazy.publish(__name__, __all__)\n",
    )
    assert {each.name: each.is_public for each in found.single_use_bases()} == {
        "pkg.inner.Base": True,
        "pkg.inner.Hidden": False,
    }


def test_a_protocol_is_no_base_of_one_class():
    found = read(base="from typing import Protocol\nclass Base(Protocol): pass\nclass Leaf(Base): pass")
    assert found.single_use_bases() == []


def test_public_bases_are_told_apart():
    found = read(
        inner="class Base: pass\nclass Hidden: pass\nclass A(Base): pass\nclass B(Hidden): pass\n"
        "__all__ = ['Base', 'Hidden', 'A', 'B']",
        outer="from pkg import lazy\n__all__ = ['Base', 'B']\nlazy.publish(__name__, __all__)\n"
        "from .inner import Base, B",
    )
    assert {each.name: each.is_public for each in found.single_use_bases()} == {
        "pkg.inner.Base": True,
        "pkg.inner.Hidden": False,
    }


@pytest.mark.parametrize(
    ("base", "leaf", "unset"),
    [
        ("x: int", "", True),
        ("x = None", "", True),
        ("__slots__ = ('x',)", "", True),
        ("x = 1", "", False),
        ("def x(self): pass", "", False),
        ("def __init__(self): self.x = 1", "", False),
        ("def __init__(self): self.x: int = 1", "", False),
        ("def __init__(self): self.x = None", "", True),
        ("x = None\n    def set(self): self.x = 1", "", False),
        ("def set(self): self.y, self.x = 1, 2", "", False),
        ("def set(self):\n        for self.x in (): pass", "", False),
        ("def set(self): setattr(self, 'x', 1)", "", False),
        ("def set(self): other.x = 1", "", True),
        ("def __new__(cls):\n        new = object.__new__(cls)\n        new.x = 1", "", False),
        ("def __getattr__(self, name): pass", "", False),
        ("", "def __init__(self): self.x = 1", True),
        ("x = None", "x = 1", True),
    ],
)
def test_attributes_that_are_never_set(base, leaf, unset):
    text = f"class Base:\n    y = 0\n    {base}\n    def read(self): return self.x\n"
    text += f"class Leaf(Base):\n    z = 0\n    {leaf}\n"
    line = text[: text.index("return")].count("\n") + 1
    assert read(a=text).unset_reads() == ({"pkg.a.Base": {"x": line}} if unset else {})


def test_attributes_of_bases_elsewhere():
    found = read(
        a="class A:\n    def __init__(self): self.x = 1",
        b="from .a import A\nimport enum\nclass B(A):\n    def f(self): return self.x, self.y\n"
        "class C(enum.Enum):\n    def f(self): return self.name\n"
        "class D(ValueError):\n    def f(self): return self.args",
        c="from .b import B\nB.y = 1",
    )
    assert found.unset_reads() == {}


@pytest.mark.parametrize(
    "back",
    [
        "from .a import f",
        "def g():\n    from . import a",
        "if TYPE_CHECKING:\n    from .a import f",
        "import_module('.a', __package__)",
        "import pkg.a",
        "from . import later\n_LATER = {'a': 'f'}\nlater.attributes(__name__, [], {**_LATER}, None, __package__)",
    ],
)
def test_circles(back):
    a = "from .b import g\ndef f(): pass"
    assert read(a=a, b=back, c="from .a import f").circles() == {"pkg": [["a", "b"]]}
    assert read(a=a, b="", c="from .a import f").circles() == {}


def test_circles_go_through_what_a_package_hands_on():
    texts = {"pkg/__init__.py": "from .a import f as f", "pkg/a.py": "from .b import g\ndef f(): pass"}
    assert Package({**texts, "pkg/b.py": "from . import f\ndef g(): pass"}).circles() == {"pkg": [["a", "b"]]}
    texts["pkg/__init__.py"] += "\ndef h(): pass"
    assert Package({**texts, "pkg/b.py": "from . import h"}).circles() == {"pkg": [["__init__", "a", "b"]]}


def test_lines_of_code_are_without_docstrings_and_comments():
    text = '"""Doc.\n\nMore.\n"""\n\nX = 1\n"""About X."""\n# note\ndef f():\n    """Doc."""\n    return 1  # why\n'
    assert read(a=text).modules["pkg.a"].lines_of_code == 3


@pytest.mark.parametrize(
    ("annotation", "bare"),
    [
        ("Any", 1),
        ("Any | None", 1),
        ("int | Any", 1),
        ("typing.Any", 1),
        ("Anything", 1),
        ("list[Any]", 0),
        ("Callable[..., Any]", 0),
        ("ShapeLike", 0),
        ("object", 0),
    ],
)
def test_parameters_that_are_any(annotation, bare):
    text = (
        "import typing\nfrom typing import Any\nfrom typing import Any as Anything\nShapeLike = list[Any]\n"
    )
    text += f"class A:\n    def f(self, x: {annotation}, /, *rest: Any, y: int = 0, z=1, **more: Any) -> Any: pass"
    package = read(a=text, b__c="def f(x: int): pass")
    assert package.bare_any("pkg.a") == (bare, 2)
    assert package.bare_any("pkg.b") == (0, 1)
    assert package.bare_any("pkg") == (bare, 3)
    assert package.bare_any("pk") == (0, 0)


def test_class_names_of_several_meanings():
    found = read(
        a="class Plan: pass\nclass Step: pass\ndef f():\n    class Local: pass",
        b__c="class Plan: pass\nclass Node: pass",
        b__d="from .c import Node\nclass A:\n    class Local: pass\n    class A: pass",
    )
    assert found.several_meanings() == {
        "Local": ["pkg.a.f.Local", "pkg.b.d.A.Local"],
        "Plan": ["pkg.a.Plan", "pkg.b.c.Plan"],
    }


def test_sizes_says_that_it_needs_torch():
    program = [sys.executable, "-S", str(ROOT / "tools" / "sizes.py")]  # -S: without the installed packages
    done = subprocess.run(program, env={}, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.endswith(
        "torch is not installed, which running a batch needs; install it, or use --no-batch\n"
    )


def test_only_public_modules_list_their_names():
    pages = [page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference").rglob("*.md")]
    blocks = [block for page in pages for block in re.findall(r"^```{public}\n(.*?)^```$", page, re.M | re.S)]
    public = {name for block in blocks for name in block.split()}
    private = [
        path
        for path, text in sources_in(ROOT, "dpmodule").items()
        if text.count("__all__") == 1
        and not path.endswith("__init__.py")  # `lazy` reads the lists of public ones
    ]
    assert [path for path in private if path[:-3].replace("/", ".") not in public] == []

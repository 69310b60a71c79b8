"""A class lives whole in one file: no base for one subclass, no attribute that only a subclass sets; no circles.

The package is read, not imported (`tools/structure.py`). Each list says what is excepted and why, and an entry that is
no longer needed fails too.
"""

import re
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
    "Accuracy": "MXNet's and Paddle's",
    "AsyncExecutor": "Paddle's, as fluid has it, and the one it calls",
    "DataLoader": "torch's, as `streams` has it, ParlAI's and Paddle's",
    "DataParallelExecutorGroup": "MXNet has two: that of `mx.mod` and that of `mx.executor_manager`",
    "Executor": "MXNet's and Paddle's",
    "Loss": "MXNet's, of `mx.metric` and of `gluon.loss`",
    "Optimizer": "MXNet's and Paddle's",
    "Parameter": "MXNet's and Paddle's",
    "ParlaiParser": "ParlAI's with all its methods, and the one of the command line",
    "Program": "Paddle's, and the generated function of an executor",
    "Trainer": "DyNet's and MXNet's",
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

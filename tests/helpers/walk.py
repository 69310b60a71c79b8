"""Tests that walk through tables: one test a family of rows, which goes on after a failure and lists all."""

import functools
import inspect
import os
import traceback
from pathlib import Path

import pytest

import dpmodule
from dpmodule.ops.registry import lazy_operators

_SLOWNESS = float(os.environ.get("DPMODULE_TEST_SLOWNESS", "1"))  # more than 1 under sanitizers
_TESTS, _PACKAGE = str(Path(__file__).parents[1]), str(Path(dpmodule.__file__).parent)
_PARTS = {name: file.split(".")[0] for file, names in lazy_operators().items() for name in names.split()}


def family_of(name, *_):
    """Return the part of `dpmodule.ops` that declares an operator, such as "nn"."""
    return _PARTS.get(name, "others")


def walks(*rows, family=lambda *_: "all", seconds=300):
    """Turn a test of one row into one test of each family of rows.

    Every row runs within what the fixture `each_row` returns, so that it starts from the same random numbers, as every
    test does, and from what else a folder's `each_row` puts back. What the function takes beyond the row are fixtures;
    all rows of a family share them. ``pytest --row TEXT`` runs only the rows whose description has the text in it, and
    stops at the first failure, as it shows a test's.

    Args:
        *rows: tuples of arguments, or single ones; or one list of them.
        family: from a row's arguments to the name of its family; without it all rows are one.
        seconds: how long a family may take.
    """
    families = {}
    for row in rows if len(rows) > 1 else rows[0]:
        row = row if isinstance(row, tuple) else (row,)
        families.setdefault(str(family(*row)), []).append(row)

    def decorate(function):
        @functools.wraps(function)
        def test(walked, pytestconfig, each_row, **fixtures):
            chosen = pytestconfig.getoption("--row")

            def call(*row):
                with each_row():
                    function(*row, **fixtures)

            if chosen is None:
                _walk(call, walked)
                return
            rows = [row for row in walked if chosen in _described(row)]
            for row in rows:
                call(*row)
            if not rows:
                pytest.skip("no row has the text")

        count = len(next(iter(families.values()))[0])
        names = ["walked", "pytestconfig", "each_row", *list(inspect.signature(function).parameters)[count:]]
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        test.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])
        marked = pytest.mark.parametrize("walked", families.values(), ids=families)(test)
        return pytest.mark.timeout(seconds * _SLOWNESS)(marked)

    return decorate


def _walk(call, rows):
    """Call a function with every row; fail with all that failed."""
    failed, skipped, left = [], [], 0
    for number, row in enumerate(rows):
        try:
            call(*row)
        except pytest.skip.Exception as reason:
            skipped.append(str(reason))
        except (Exception, pytest.fail.Exception) as error:
            failed.append(f"row {number}: {_described(row)}{_told(error, 40 if len(failed) < 5 else 3)}")
            if "pytest-timeout" in str(error):
                left = len(rows) - number - 1
                break
    if failed:
        title = f"{len(failed)} of {len(rows)} rows fail" + f", {left} were not run" * bool(left)
        pytest.fail("\n\n".join([title, *failed]), pytrace=False)
    if len(skipped) == len(rows):
        pytest.skip(skipped[0])


def _described(each):
    """Return what a row is, in a line; of recorded calls, by their names."""
    if isinstance(each, (tuple, list)):
        text = ", ".join(map(_described, each))
    elif isinstance(each, dict):
        text = str(each.get("name", each))
    elif getattr(each, "__name__", None) == "<lambda>":
        text = f"function of line {each.__code__.co_firstlineno}"
    else:
        text = getattr(each, "__name__", None) or " ".join(str(each).split())
    return text if len(text) < 200 else f"{text[:200]}..."


def _told(error, most):
    """Return an error in at most so many lines, where it passed by in the tests, and where it left the package."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if each.filename != __file__]
    ours = [frame for frame in frames if frame.filename.startswith(_PACKAGE)]
    shown = [each for each in frames if each.filename.startswith(_TESTS) or each in ours[-1:]]
    places = [f"{os.path.relpath(each.filename)}:{each.lineno}: {each.line}" for each in shown]
    text = "".join(traceback.format_exception_only(type(error), error)).splitlines()
    text = [line for line in text if line.strip()]
    return "".join(f"\n  {line}" for line in [*places, *text[:most], *["..."] * (len(text) > most)])

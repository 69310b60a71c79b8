"""Tests that walk through tables: one test a family of rows, which goes on after a failure and lists all."""

import inspect
import traceback
from pathlib import Path

import pytest

from helpers.seeds import start_random_numbers

__all__ = ["family_of", "walks"]

_TESTS = str(Path(__file__).parents[1])


def family_of(name, *_):
    """Return the part of `dpmodule.ops` that an operator stands in, such as "nn"."""
    from dpmodule import ops

    op = ops.get(name)
    where = (op.bind or op.run).__module__.split(".")
    return where[2] if len(where) > 3 else where[-1]


def walks(rows, family=family_of, seconds=60):
    """Turn a test of one row into one test of each family of rows.

    Every row starts from the same random numbers, as every test does. What the function takes beyond the row are
    fixtures.

    Args:
        rows: tuples of arguments, or single ones.
        family: from a row's arguments to the name of its family.
        seconds: how long a family may take.
    """
    families = {}
    for row in rows:
        row = row if isinstance(row, tuple) else (row,)
        families.setdefault(str(family(*row)), []).append(row)

    def decorate(function):
        names = list(inspect.signature(function).parameters)

        def test(walked, **fixtures):
            failed, skipped = [], 0
            for row in walked:
                start_random_numbers()
                try:
                    function(*row, **fixtures)
                except pytest.skip.Exception:
                    skipped += 1
                except Exception as error:
                    failed.append(f"{_described(row)}\n{_told(error)}")
            if failed:
                pytest.fail(
                    "\n\n".join([f"{len(failed)} of {len(walked)} rows fail", *failed]), pytrace=False
                )
            if skipped == len(walked):
                pytest.skip("all rows are")

        count = len(next(iter(families.values()))[0])
        parameters = [
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD)
            for name in ("walked", *names[count:])
        ]
        test.__signature__ = inspect.Signature(parameters)
        test.__name__, test.__doc__, test.__module__ = (
            function.__name__,
            function.__doc__,
            function.__module__,
        )
        test.pytestmark = list(getattr(function, "pytestmark", ()))
        marked = pytest.mark.parametrize("walked", families.values(), ids=families)(test)
        return pytest.mark.timeout(seconds)(marked)

    return decorate


def _described(each):
    """Return what a row is, in a line; of recorded calls, by their names."""
    if isinstance(each, (tuple, list)):
        text = ", ".join(map(_described, each))
    elif isinstance(each, dict):
        text = str(each.get("name", each))
    else:
        text = getattr(each, "__name__", None) or str(each)
    return text if len(text) < 200 else f"{text[:200]}..."


def _told(error):
    """Return an error with the places in the tests where it passed by."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [
        f"  {frame.filename}:{frame.lineno}" for frame in frames[1:] if frame.filename.startswith(_TESTS)
    ]
    text = "".join(traceback.format_exception_only(type(error), error)).strip()
    return "\n".join([*places, *(f"  {line}" for line in text.splitlines()[:12])])

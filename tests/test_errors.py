"""Wrong calls raise a typed error whose message names what is wrong: the tables of tests/errors."""

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

TABLES = sorted(path.stem for path in (Path(__file__).parent / "errors").glob("*.py"))


def rows():
    for table in TABLES:
        for number, row in enumerate(import_module(f"errors.{table}").ROWS):
            yield pytest.param(*row, id=f"{table}-{number}")


@pytest.mark.parametrize(("call", "error", "pattern"), [*rows()])
def test_a_wrong_call_is_refused(call, error, pattern, tmp_path):
    arguments = (tmp_path,) if "folder" in inspect.signature(call).parameters else ()
    with pytest.raises(error) as raised:
        call(*arguments)
    assert type(raised.value) is error, f"{type(raised.value).__name__} instead of {error.__name__}"
    assert re.search(pattern, str(raised.value), re.DOTALL), str(raised.value)

"""The pages that docs/tables.py writes: environment variables and errors, all of them."""

import importlib.util
import re
import sys
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

from dpmodule import base
from dpmodule._core.environment import VARIABLES

ROOT = Path(__file__).parents[1]
READ = re.compile(r"""(?:environ(?:\.get\(|\.setdefault\(|\[)|getenv\(|environment\.get\()\s*["'](\w+)["']""")
EXAMPLE = re.compile(r"^\s*(?:>>>|\.\.\.).*$", re.MULTILINE)
OWN = re.compile(r"""["`]((?:MXNET|DPMODULE)_[A-Z_0-9]+[A-Z0-9])(?:=\w*)?["`]""")


@cache
def script():
    spec = importlib.util.spec_from_file_location("tables_pages", ROOT / "docs" / "tables.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    return {path.stem: path.read_text(encoding="utf-8") for path in script().write(folder)}


def names_in_code():
    """Return every environment variable that the code reads or sets, and the files that do."""
    found = {}
    for path in (ROOT / "setup.py", *(ROOT / "dpmodule").rglob("*")):
        if path.suffix in (".py", ".cpp", ".hpp") and path.name != "environment.py":
            text = EXAMPLE.sub("", path.read_text(encoding="utf-8"))
            own = OWN.findall(text) if path.suffix == ".py" and path.name != "setup.py" else []
            for name in READ.findall(text) + own:
                found.setdefault(name, path.relative_to(ROOT))
    return found


def test_the_table_has_every_variable_and_no_other():
    found, known = names_in_code(), [one.name for one in VARIABLES]
    assert len(known) == len(set(known))
    assert len(found) > 15
    missing = {name: str(path) for name, path in found.items() if not any(fnmatch(name, k) for k in known)}
    assert not missing, f"put these into dpmodule/_core/environment.py: {missing}"
    source = "".join(
        path.read_text(encoding="utf-8")
        for path in (ROOT / "setup.py", *(ROOT / "dpmodule").rglob("*.py"))
        if path.name != "environment.py"
    )
    unused = [name for name in known if name not in found and name.rstrip("*") not in source]
    assert not unused, f"nothing reads these any more: {unused}"


def test_every_error_has_an_entry_and_every_entry_an_error(pages):
    classes = {one.__name__ for one in script().classes()}
    family = {name for name in base.__all__ if name.endswith("Error") or name.startswith("Not")}
    assert family <= set(script().ERRORS) <= classes
    for name in classes:
        assert f"### {name}\n" in pages["errors"] or f"| `{name}` |" in pages["errors"], name


def test_every_example_of_an_error_raises_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, known in script().ERRORS.items():
        if known.code:
            with pytest.raises(base.MXNetError) as caught:
                exec(known.code, {"mx": script().mx})
            assert type(caught.value).__name__ == name

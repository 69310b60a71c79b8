"""Every notebook is stored without outputs, says what it shows, names what there is, and runs from top to bottom."""

import ast
import pkgutil
import re
import shutil
from pathlib import Path

import nbclient
import nbformat
import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PACKAGES = {"mx": "dpmodule", "dy": "dpmodule.autobatch", "streams": "dpmodule.streams"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_stored_without_outputs(path):
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    for cell in (cell for cell in book.cells if cell.cell_type == "code"):
        assert (cell.outputs, cell.execution_count) == ([], None), "run tools/strip_notebooks.py"


def test_the_page_of_the_series_has_every_notebook_in_order():
    page = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\(\.\./notebooks/(\S+)\)", page) == [path.name for path in NOTEBOOKS]


def parsed(path):
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            source = re.sub(r"^%%.*\n", "", cell.source)
            yield compile(source, path.name, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def named(path):
    """Yield the names of this package that a notebook uses, in full."""
    for node in (node for tree in parsed(path) for node in ast.walk(tree)):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("dpmodule"):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute):
            first, _, rest = ast.unparse(node).partition(".")
            if first in PACKAGES and re.fullmatch(r"[\w.]+", rest):
                yield f"{PACKAGES[first]}.{rest}"


def is_there(name):
    try:
        pkgutil.resolve_name(name)
    except (AttributeError, ImportError):
        return False
    return True


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_a_notebook_names_is_there(path):
    names = set(named(path))
    assert len(names) > 3
    assert {name for name in names if not is_there(name)} == set()


def is_picture(data):
    return "image/png" in data or "image/svg+xml" in data or "<svg" in data.get("text/html", "")


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.filterwarnings("ignore::DeprecationWarning:jupyter_client")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_and_shows_pictures(path, tmp_path, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    shutil.copytree(path.parent / "models", tmp_path / "models")
    book = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(book, timeout=170, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    outputs = [cell.outputs for cell in book.cells if cell.cell_type == "code"]
    assert sum(any(is_picture(each.get("data", {})) for each in cell) for cell in outputs) >= 3

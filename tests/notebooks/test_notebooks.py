"""Every notebook is stored without outputs, is on the page of the series, and runs from top to bottom."""

import re
import shutil
from pathlib import Path

import nbclient
import nbformat
import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_stored_without_outputs(path):
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    for cell in (cell for cell in book.cells if cell.cell_type == "code"):
        assert (cell.outputs, cell.execution_count) == ([], None), "run tools/strip_notebooks.py"


def test_the_page_of_the_series_has_every_notebook_in_order():
    page = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\(\.\./notebooks/(\S+)\)", page) == [path.name for path in NOTEBOOKS]


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

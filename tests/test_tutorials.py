"""``tools/tutorials.py`` takes from a page what its reader runs, and sees it when something else is printed."""

import pytest

import tutorials


@pytest.mark.parametrize("page", sorted(tutorials.START.glob("*.md")), ids=lambda page: page.stem)
def test_start_pages_install_first_and_show_a_figure(page):
    first, *others = tutorials.steps(page.read_text(encoding="utf-8"))
    assert first.code.startswith("pip install")
    assert any(step.shown is not None and any(map(str.isdigit, step.shown)) for step in others)

"""``tools/tutorials.py`` takes from a page what its reader runs, and sees it when something else is printed."""

import pytest

import tutorials

PAGE = """# A page

```bash
pip install .
```

```python
print("accuracy", 0.93)
```

```output
accuracy 0.9...
```

```text
no step
```
"""


def test_steps_are_the_blocks_in_order_with_what_they_print():
    found = [(step.line, step.language, step.code, step.shown) for step in tutorials.steps(PAGE)]
    program = (7, "python", 'print("accuracy", 0.93)\n', "accuracy 0.9...\n")
    assert found == [(3, "bash", "pip install .\n", None), program]


@pytest.mark.parametrize("page", sorted(tutorials.START.glob("*.md")), ids=lambda page: page.stem)
def test_start_pages_install_first_and_show_a_figure(page):
    first, *others = tutorials.steps(page.read_text(encoding="utf-8"))
    assert first.code.startswith("pip install")
    assert any(step.shown is not None and any(map(str.isdigit, step.shown)) for step in others)

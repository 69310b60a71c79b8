"""``tools/tutorials.py`` takes from a page what its reader runs, and sees it when something else is printed."""

import os
import sys

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


@pytest.mark.parametrize("text", ["```output\n1\n```\n", PAGE + "```output\n1\n```\n"])
def test_an_output_of_nothing_is_an_error_with_its_line(text):
    line = text.count("\n") - 2
    with pytest.raises(ValueError, match=f"line {line}: an output must follow the block that prints it"):
        tutorials.steps(text)


def test_three_dots_stand_for_anything():
    assert tutorials.agrees("a ...\nc 0.9...\n", "a b\nmore\nc   0.93\n")
    assert not tutorials.agrees("c 0.9...\n", "c 0.89\n")


@pytest.mark.parametrize("page", sorted(tutorials.START.glob("*.md")), ids=lambda page: page.stem)
def test_start_pages_install_first_and_show_a_figure(page):
    first, *others = tutorials.steps(page.read_text(encoding="utf-8"))
    assert first.code.startswith("pip install")
    assert any(step.shown is not None and any(map(str.isdigit, step.shown)) for step in others)


@pytest.mark.parametrize(
    ("code", "shown", "wrong"),
    [
        ("print(0.93)", "0.9...\n", ""),
        ("print(0.85)", "0.9...\n", "the page shows\n0.9...\nbut it printed\n0.85\n"),
        ("print(1); raise SystemExit(3)", None, "exit status 3\n1\n"),
    ],
)
def test_what_differs_from_the_page_is_told(tmp_path, code, shown, wrong):
    environment = {**os.environ, "PATH": os.path.dirname(sys.executable)}
    step = tutorials.Step(1, "python", code, shown)
    assert tutorials.run(step, 0, tmp_path, tmp_path, environment) == wrong

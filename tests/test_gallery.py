"""The gallery that docs/gallery.py writes: every example has a docstring of its form, a figure, times and a picture."""

import re

import pytest

from helpers.gallery import gallery

DOC = '''"""Do it.

It shows how.

Figure: share of what is right, at least 0.9; 0.8 with --smoke.
Time: 5 s; 2 s with --smoke.
Run: python examples/one.py [--smoke]
"""

target = 0.8 if short else 0.9
'''
RECORD = {
    "full": {"last": "share of what is right: 0.95, target at least 0.9", "seconds": 5.4},
    "smoke": {"last": "share of what is right: 0.8, target at least 0.8", "seconds": 1.6},
    "torch": "2.13.0",
}


@pytest.fixture
def example(tmp_path, monkeypatch):
    """The example of `DOC`, whose picture is there."""
    monkeypatch.setattr(gallery, "EXAMPLES", tmp_path)
    monkeypatch.setattr(gallery, "PICTURES", tmp_path)
    path = tmp_path / "one.py"
    path.write_text(DOC, encoding="utf-8")
    (tmp_path / "one.svg").write_text('<svg width="70" height="2000">', encoding="utf-8")
    return gallery.read(path)


def test_every_example_has_what_the_gallery_shows():
    known = gallery.records()
    examples = [gallery.read(path) for path in gallery.files()]
    assert [each for example in examples for each in gallery.problems(example, known)] == []
    assert list(known) == [example.name for example in examples]
    assert {*gallery.PICTURES.iterdir()} == {example.picture for example in examples}
    assert sum(path.stat().st_size for path in gallery.PICTURES.iterdir()) <= 1.5e6


def test_the_page_has_all_of_it(tmp_path):
    [path] = gallery.write(tmp_path)
    text = path.read_text(encoding="utf-8")
    entries = dict(re.findall(r"^### (.*?)\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL))
    assert len(entries) > 45
    for name, record in gallery.records().items():
        for form in gallery.FORMS:
            what, value, target = re.fullmatch(r"(.+): (.+), target (.+)", record[form]["last"]).groups()
            assert f"| {value} | {target} | {gallery.shown(record[form]['seconds'])} |" in entries[name]
            assert f"| form | {what} |" in entries[name]
        assert f"pictures/{name.replace('/', '-')}." in entries[name]


@pytest.mark.parametrize(("old", "new", "line"), [(DOC, "import sys\n", 1), ("at least", "around", 5)])
def test_a_docstring_of_another_form_is_an_error_with_its_line(example, old, new, line):
    assert list(gallery.problems(example, {"one": RECORD})) == []
    example.path.write_text(DOC.replace(old, new), encoding="utf-8")
    with pytest.raises(
        ValueError, match=rf"examples/one\.py:{line}: expected a docstring .*\n.*Figure: WHAT"
    ):
        gallery.read(example.path)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("share of what is right: 0.79, target at least 0.8", "missed its target"),
        ("share of what is right: 0.95, target at least 0.9", "right: VALUE, target at least 0.8'"),
        ("share of something: 0.95, target at least 0.8", "as in the docstring; got 'share of something"),
        ("done", "got 'done'"),
    ],
)
def test_a_last_line_that_does_not_fit_is_found(example, line, problem):
    assert example.missed("share of what is right: 0.8, target at least 0.8", True) is None
    assert problem in example.missed(line, True)
    [found] = gallery.problems(example, {"one": {**RECORD, "smoke": {"last": line, "seconds": 1.6}}})
    assert problem in found
    [found] = gallery.problems(example, {})
    assert "docs/gallery.json has no measurements of this example" in found
    example.path.write_text(DOC.replace("5 s;", "4 s;"), encoding="utf-8")
    [found] = gallery.problems(gallery.read(example.path), {"one": RECORD})
    assert "the docstring has 4 s, docs/gallery.json has 5 s" in found

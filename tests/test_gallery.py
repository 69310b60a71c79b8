"""The gallery that docs/gallery.py writes: every example has a docstring of its form, a figure, times and a picture."""

import dataclasses
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


def test_pictures_name_no_place_of_the_machine_that_drew_them():
    assert [
        path.name
        for path in gallery.PICTURES.glob("*.svg")
        if " made at " in path.read_text(encoding="utf-8")
    ] == []


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


def test_a_docstring_is_read(example, tmp_path):
    assert dataclasses.asdict(example) == {
        "path": tmp_path / "one.py",
        "title": "Do it.",
        "text": "It shows how.",
        "what": "share of what is right",
        "targets": ("at least 0.9", "at least 0.8"),
        "times": ("5 s", "2 s"),
        "run": "python examples/one.py [--smoke]",
    }
    assert list(gallery.problems(example, {"one": RECORD})) == []
    assert gallery.width_of(example.picture) == 70 * 500 // 2000


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (DOC, "import sys\n", 1),
        ("Do it.", "Do it", 5),
        (re.search("Figure.*\n", DOC)[0], "", 1),
        (", at least 0.9", "", 5),
        ("at least", "around", 5),
        (re.search("Time.*\n", DOC)[0], "", 5),
        ("5 s;", "five seconds;", 5),
        (re.search("Run.*\n", DOC)[0], "", 5),
    ],
)
def test_a_docstring_of_another_form_is_an_error_with_its_line(example, old, new, line):
    example.path.write_text(DOC.replace(old, new), encoding="utf-8")
    with pytest.raises(
        ValueError, match=rf"examples/one\.py:{line}: expected a docstring .*\n.*Figure: WHAT"
    ):
        gallery.read(example.path)


def test_a_new_folder_is_an_error(example, tmp_path):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "two.py").write_text(DOC, encoding="utf-8")
    with pytest.raises(ValueError, match=r"examples/new/two\.py:1: the folder is new; add a title"):
        gallery.files()


AGAIN = "; run `python docs/gallery.py --run one`"


def test_what_was_not_measured_is_named(example):
    assert list(gallery.problems(example, {})) == [
        f"examples/one.py:1: docs/gallery.json has no measurements of this example{AGAIN}"
    ]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("5 s;", "4 s;", f"the docstring has 4 s, docs/gallery.json has 5 s{AGAIN}"),
        (
            "else 0.9",
            "else 0.95",
            "the code does not contain the docstring's target 'at least 0.9'; make them agree",
        ),
        ("[--smoke]", "[--smoke] [--picture FILE]", f"docs/pictures/one.png does not exist{AGAIN}"),
    ],
)
def test_what_was_typed_by_hand_is_found(example, old, new, problem):
    example.path.write_text(DOC.replace(old, new), encoding="utf-8")
    changed = gallery.read(example.path)
    assert list(gallery.problems(changed, {"one": RECORD})) == [f"examples/one.py:1: {problem}"]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("share of what is right: 0.79, target at least 0.8", "missed its target"),
        (
            "share of what is right: 0.95, target at least 0.9",
            "expected the last line 'share of what is right: VALUE, target at least 0.8'",
        ),
        (
            "share of something: 0.95, target at least 0.8",
            "as in the docstring; got 'share of something",
        ),
        ("done", "got 'done'"),
    ],
)
def test_a_last_line_that_does_not_fit_is_found(example, line, problem):
    assert example.missed("share of what is right: 0.8, target at least 0.8", True) is None
    assert problem in example.missed(line, True)
    record = {**RECORD, "smoke": {"last": line, "seconds": 1.6}}
    [found] = gallery.problems(example, {"one": record})
    assert problem in found
    assert found.endswith(f"(from docs/gallery.json){AGAIN}")


def test_a_figure_may_have_to_be_small(example):
    small = dataclasses.replace(example, targets=("at most 1e-05", "at most 1e-05"))
    assert small.missed("share of what is right: 9.9e-06, target at most 1e-05", False) is None
    assert "missed" in small.missed("share of what is right: 1.1e-05, target at most 1e-05", False)

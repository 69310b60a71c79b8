"""The gallery that docs/gallery.py writes: every example has a docstring of its form, a figure, times and a picture."""

from helpers.gallery import gallery


def test_every_example_has_what_the_gallery_shows():
    known, examples = gallery.records(), [gallery.read(path) for path in gallery.files()]
    assert [each for example in examples for each in gallery.problems(example, known)] == []
    assert list(known) == [example.name for example in examples]
    assert {*gallery.PICTURES.iterdir()} == {example.picture for example in examples}
    assert sum(path.stat().st_size for path in gallery.PICTURES.iterdir()) <= 1.5e6

"""Files that earlier versions stored are read as they were then."""

import json
import os
import shutil

import pytest

from helpers.programs import TESTS
from helpers.stored_files import FORMATS

VERSIONS = sorted((TESTS / "data" / "stored").iterdir())
STORED = [(version, name) for version in VERSIONS for name in FORMATS if (version / name).exists()]


@pytest.mark.parametrize(("version", "name"), STORED, ids=lambda each: getattr(each, "name", each))
def test_stored_files_are_read(version, name, tmp_path, monkeypatch):
    shutil.copytree(version / name, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    expected = json.loads((version / "expected.json").read_text())[name]
    found = FORMATS[name][1]()
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected):
        assert ours == (pytest.approx(theirs, rel=1e-3, abs=1e-4) if isinstance(theirs, float) else theirs)


def test_formats_are_written_as_they_are_read(tmp_path, monkeypatch):
    newest = VERSIONS[-1]
    assert {each.name for each in newest.iterdir()} == {*FORMATS, "expected.json"}
    for name, (write, _) in FORMATS.items():
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        write()
        kept = {each.name.split(".tables.")[0] for each in (newest / name).iterdir()}
        assert {each.split(".tables.")[0] for each in os.listdir()} == kept

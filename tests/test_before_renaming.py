"""Pickles and files of before the package's files and names moved are read, and work."""

import base64
import json
import pickle
import shutil

import pytest

from helpers.before_renaming import PICKLED, RECORDS, SAVED, UNPICKLED, plain, public_classes
from helpers.walk import walks

PICKLES = json.loads((RECORDS / "pickles.json").read_text(encoding="utf-8"))
SHOWN = json.loads((RECORDS / "saved.json").read_text(encoding="utf-8"))


def test_every_public_class_was_pickled_or_has_a_reason_why_not():
    names = {each.__name__ for each in public_classes().values()}
    assert names - PICKLES.keys() - UNPICKLED.keys() == set()
    assert UNPICKLED.keys() & PICKLES.keys() == set()
    assert PICKLES.keys() == PICKLED.keys()


@walks([(name,) for name in PICKLES], family=lambda name: "pickles")
def test_pickles(name):
    found = pickle.loads(base64.b64decode(PICKLES[name]["pickle"]))
    assert type(found).__name__ == name
    assert plain(PICKLED[name][1](found)) == PICKLES[name]["shows"]


@pytest.mark.parametrize("name", SAVED)
def test_files(name, tmp_path):
    folder = shutil.copytree(RECORDS / name, tmp_path / name)
    assert plain(SAVED[name][1](folder)) == SHOWN[name]

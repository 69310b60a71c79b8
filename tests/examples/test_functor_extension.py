"""The example of an extension with a functor of one's own, built and run."""

import shutil
from pathlib import Path

import pytest

from dpmodule import native
from helpers.compiled import compiler
from helpers.gallery import gallery
from helpers.programs import run_file

EXAMPLE = Path(__file__).parents[2] / "examples" / "streams" / "functor_extension"
CHECKS = Path(__file__).parents[1] / "programs" / "word_count_checks.py"


def told(done):
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(120)
@pytest.mark.skipif(native.core is None, reason="functors in C++ need the extension")
@pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")
def test_it_builds_and_counts_words(tmp_path):
    pytest.importorskip("setuptools")
    folder = tmp_path / "extension"
    shutil.copytree(EXAMPLE, folder)
    told(run_file(folder / "setup.py", "-q", "build_ext", "--inplace", cwd=folder))
    printed = told(run_file(folder / "count_words.py", "--smoke", cwd=folder))
    assert printed.startswith("20000 words in ")
    assert gallery.read(EXAMPLE / "count_words.py").missed(printed.splitlines()[-1], short=True) is None
    assert told(run_file(CHECKS, cwd=folder)) == "as expected\n"

"""Every example runs in its short form, ends with one line of result, and exits with 0."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dpmodule import native

FOLDER = Path(__file__).parents[2] / "examples"
STREAMS = sorted((FOLDER / "streams").glob("*.py"))
AUTOBATCH = sorted((FOLDER / "autobatch").glob("*.py"))
EXAMPLES = [*sorted(FOLDER.glob("*.py")), *STREAMS, *AUTOBATCH]


def run_short_form(path, tmp_path, *options, **changes):
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path), "--smoke", *options],
        cwd=tmp_path,
        env={**os.environ, **changes},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "target" in done.stdout.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(120)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_reaches_its_short_target(path, tmp_path):
    run_short_form(path, tmp_path)


@pytest.mark.timeout(120)
@pytest.mark.skipif(native.core is None, reason="the test above has done the same")
@pytest.mark.parametrize("path", [*STREAMS, *AUTOBATCH], ids=lambda path: path.stem)
def test_example_works_without_the_extension(path, tmp_path):
    run_short_form(path, tmp_path, DPMODULE_NATIVE="0")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("has_extension", [True, False])
def test_tagger_spells_rare_words_out(tmp_path, has_extension):
    if has_extension and native.core is None:
        pytest.skip("there is no extension")
    changes = {} if has_extension else {"DPMODULE_NATIVE": "0"}
    run_short_form(FOLDER / "autobatch" / "tagger.py", tmp_path, "--characters", **changes)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 150

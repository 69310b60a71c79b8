"""Every example runs in its short form, ends with one line of result, and exits with 0."""

from pathlib import Path

import pytest

from dpmodule import native
from helpers.gallery import gallery
from helpers.programs import run_file

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = [path for pattern in ("*.py", "[!_]*/*.py") for path in sorted(FOLDER.glob(pattern))]
NATIVE = [path for path in EXAMPLES if path.parent.name in ("streams", "autobatch", "hogwild", "agents")]
BESIDE = ["sklearn.datasets", "matplotlib.pyplot"]


def run_short_form(path, tmp_path, *options, **changes):
    changes |= {"PYTHONWARNINGS": "error", "MPLBACKEND": "Agg", "beside": BESIDE}
    done = run_file(path, "--smoke", *options, seconds=110, cwd=tmp_path, **changes)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "target" in done.stdout.splitlines()[-1]
    assert gallery.read(path).missed(done.stdout.splitlines()[-1], short=True) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(120)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_reaches_its_short_target(path, tmp_path, tmp_path_factory):
    picture = tmp_path_factory.mktemp("picture") / "picture.png"
    draws = gallery.read(path).draws
    run_short_form(path, tmp_path, *(["--picture", picture] if draws else []))
    assert picture.exists() == draws


def test_examples_are_short():
    assert [path for path in EXAMPLES if len(path.read_text("utf-8").splitlines()) > 150] == []


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.skipif(native.core is None, reason="the test above has done the same")
@pytest.mark.parametrize("path", NATIVE, ids=lambda path: path.stem)
def test_example_works_without_the_extension(path, tmp_path):
    run_short_form(path, tmp_path, DPMODULE_NATIVE="0")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("native", ["1", pytest.param("0", marks=pytest.mark.slow)])
def test_tagger_spells_rare_words_out(tmp_path, native):
    run_short_form(FOLDER / "autobatch" / "tagger.py", tmp_path, "--characters", DPMODULE_NATIVE=native)

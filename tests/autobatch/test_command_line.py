"""DyNet's arguments on the command line: followed when the package is imported, and by `init`."""

import sys

import pytest

import dpmodule.autobatch as dy
from helpers.programs import run_program

PROGRAM = """
import sys
sys.argv = ["program", *"a --dynet-autobatch 1 --dynet-seed 7 --dynet-mem=512 b --dynet-weight-decay 0.5".split()]
import dpmodule.autobatch as dy
print(sys.argv[1:], dy.settings()["autobatch"], dy.settings()["weight_decay"])
"""


@pytest.mark.timeout(120)
def test_import_takes_arguments():
    done = run_program(PROGRAM)
    assert done.stdout == "['a', 'b'] True 0.5\n", done.stderr


def test_programs_without_a_seed_draw_the_same_numbers_each_time():
    program = "import dpmodule.autobatch as dy; print(dy.random_normal(4).value(), dy.dropout(dy.ones(9), 0.5).value())"
    first, second = run_program(program), run_program(program)
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout


@pytest.fixture
def given(monkeypatch):
    """Set the arguments of the program; no GPU is here, whatever the machine has."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    return lambda text: monkeypatch.setattr(sys, "argv", ["program", *text.split()])


def collected():
    params = dy.DynetParams()
    params.from_args()
    params.init()


@pytest.mark.parametrize("init", [dy.init, collected])
def test_init_reads_arguments_anew(given, init):
    given("a --dynet-autobatch 1 --dynet-weight-decay 0.5 --dynet-devices CPU b")
    init()
    assert (dy.settings()["autobatch"], dy.settings()["weight_decay"]) == (True, 0.5)
    assert sys.argv == ["program", "a", "b"]
    given("--dynet-autobatch=0")
    init()
    assert (dy.settings()["autobatch"], dy.settings()["weight_decay"]) == (False, 0.5)


DEVICES = ["devices GPU:0", "devices CPU,GPU:0", "devices TPU", "gpu", "gpus 1", "gpu-ids 0"]


@pytest.mark.parametrize("init", [dy.init, collected])
@pytest.mark.parametrize("arguments", DEVICES)
def test_devices_that_are_not_here(given, init, arguments):
    before = dy.settings()
    given(f"a --dynet-{arguments} --dynet-autobatch 1")
    wanted = list(sys.argv)
    for _ in range(2):
        with pytest.raises(dy.ArgumentError, match="GPU:0|TPU"):
            init()
        assert sys.argv == wanted, "nothing is swallowed"
    assert dy.settings() == before


def test_params_from_config():
    config = {"mem": "512", "seed": 0, "autobatch": 0, "profiling": 0, "weight_decay": 0}
    config |= {"shared_params": 0, "requested_gpus": 0, "gpu_mask": []}
    params = dy.DynetParams()
    params.from_config({**config, "autobatch": 1, "weight_decay": 0.5})
    assert not dy.settings()["autobatch"]
    params.init()
    assert (dy.settings()["autobatch"], dy.settings()["weight_decay"]) == (True, 0.5)
    params.from_config({**config, "gpu_mask": None})
    params.init()
    assert not dy.settings()["autobatch"]

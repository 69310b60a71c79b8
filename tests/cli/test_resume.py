"""`dpmodule fit --resume`: a training that ends at any batch goes on as if it had not."""

import signal

import pytest

from dpmodule import checkpoint
from dpmodule.callback import TqdmBar

FIT = ("fit", "--network", "mlp", "--epochs", 3, "--resume")


def params(prefix):
    args, aux = checkpoint.load_params(prefix, 3)
    return {name: array.asnumpy().tobytes() for name, array in {**args, **aux}.items()}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_what_a_signal_ends_goes_on(number, run, tmp_path, monkeypatch):
    assert run(*FIT, "--prefix", "whole").code == 0
    seen = []

    def ends(bar, param, show=TqdmBar.__call__):
        seen.append(param.nbatch)
        if len(seen) == 30:
            signal.raise_signal(number)
        return show(bar, param)

    monkeypatch.setattr(TqdmBar, "__call__", ends)
    try:
        code = run(*FIT, "--prefix", "part").code
    except SystemExit as error:
        code = error.code
    assert code == 128 + number
    assert len(seen) == 31
    assert (tmp_path / "part-last.run").exists()
    again = run(*FIT, "--prefix", "part")
    assert again.code == 0
    assert params("part") == params("whole")
    saved = sorted(path.name for path in tmp_path.glob("whole-*.run"))
    assert saved == ["whole-0002.run", "whole-0003.run"]


def test_a_finished_run_stays_as_it_is_and_can_be_removed(run, tmp_path):
    assert run(*FIT, "--prefix", "a", "--save-every", 2, "--save-batches", 10).code == 0
    assert sorted(path.name for path in tmp_path.glob("a-0*.params")) == ["a-0002.params", "a-0003.params"]
    before = params("a")
    assert run(*FIT, "--prefix", "a", "--save-every", 2).code == 0
    assert params("a") == before
    assert run("fit", "--network", "lenet", "--epochs", 1, "--prefix", "a", "--overwrite").code == 0
    assert [path.name for path in tmp_path.glob("a-*.run")] == ["a-0001.run"]


def test_another_run_is_refused(run):
    assert run(*FIT, "--prefix", "a").code == 0
    assert "the batch size was 64, is 32" in run(*FIT, "--prefix", "a", "--batch-size", 32).error
    shorter = ("fit", "--network", "mlp", "--epochs", 2, "--resume", "--prefix", "a")
    assert "epoch 3 is saved under the prefix 'a'; give --epochs at least that number" in run(*shorter).error

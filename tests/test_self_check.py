"""`python -m dpmodule.self_check`: passes here, and reports what is wrong."""

from dpmodule import autobatch, self_check
from helpers.programs import run_module


def test_all_checks_pass(tmp_path):
    done = run_module("dpmodule.self_check", cwd=tmp_path, seconds=110)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stdout + done.stderr
    assert [words[0] for words in lines].count("ok") == len(self_check.CHECKS)
    assert not list(tmp_path.iterdir())


def test_a_wrong_result_is_found(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(self_check, "CHECKS", (self_check.check_worlds, self_check.check_batching))
    monkeypatch.setattr(autobatch, "map", lambda function, items: [1.5 * function(each) for each in items])
    assert self_check.main() == 1
    out, err = capsys.readouterr()
    results = [line.split()[0] for line in out.splitlines()[-2:]]
    assert results == ["ok", "FAILED"]
    assert "results of autobatch.map and of a loop differ by" in err

"""Trainings that are killed, or ended by a signal, at random places, and go on: nothing is lost, nothing is left."""

import contextlib
import glob
import itertools
import os
import random
import re
import signal
import time

import pytest

from helpers.processes import is_others, until
from helpers.programs import TESTS, Program, run_file
from helpers.resumable import KINDS

FILE = TESTS / "helpers" / "faults.py"
NUMBERS = {"kill": [signal.SIGKILL], "signal": [signal.SIGTERM, signal.SIGINT]}
# as Python ends itself after Ctrl-C; a shell makes 130 of it
ENDS = {number: -number for number in (0, signal.SIGKILL, signal.SIGINT)} | {signal.SIGTERM: 143}
EXPECTED = re.compile(r"net(-symbol\.json|-(\d{4}|last)\.(params|states|run)|\.log|\.digest)")


def shared_memory():
    return {name for name in os.listdir("/dev/shm") if not is_others(name)}


def processes_of(session):
    """Return the processes of a session that still run."""
    found = []
    for path in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError), open(path, "rb") as file:
            state, _, _, its_session = file.read().rpartition(b")")[2].split()[:4]
            found += [path] * (int(its_session) == session and state != b"Z")
    return found


class Training:
    """A training of a kind in one process after another, each of which goes on from what the last one has saved."""

    def __init__(self, kind, folder, every, beside=()):
        self.arguments, self.beside = (FILE, kind, folder / "net", every), beside
        self.folder, self.temporary = folder, folder.with_name(f"tmp of {folder.name}")
        folder.mkdir()
        self.temporary.mkdir()

    def run(self, number=0, *place):
        """Run one process; returns its exit code, or minus the signal that killed it."""
        shared, options = shared_memory(), {"beside": self.beside, "TMPDIR": str(self.temporary)}
        with Program("file", *self.arguments, int(number), *(place or (0, 0)), **options) as program:
            code = program.wait()
            assert code in (0, ENDS[number]), program.output()[1]
            until(lambda: not processes_of(program.pid))
        names = os.listdir(self.folder)
        if number != signal.SIGKILL:  # what that leaves goes with the next save
            assert not [*shared_memory() - shared, *os.listdir(self.temporary)]
            assert all(map(EXPECTED.fullmatch, names)), names
        assert not code or number == signal.SIGKILL or "net-last.run" in names
        return code

    def batches(self):
        """Return what batches have been trained on so far, in their order."""
        path = self.folder / "net.log"
        return path.read_text().splitlines() if path.exists() else []

    def disturb(self, draw, count, numbers, whole):
        """Let up to `count` faults happen, and bring it to its end.

        Returns:
            (how many have happened, by how many batches each next process went back).
        """
        order, faults, back, code = whole.batches(), 0, [], 1
        while code:
            before, fault = self.batches(), ()
            if faults < count:
                delay_s = draw.choice((0, draw.uniform(0, 0.03)))
                fault = draw.choice(numbers), draw.randint(1, len(order) // 4), delay_s
            code = self.run(*fault)
            faults += code != 0
            after = self.batches()[len(before) :]
            if before:
                first = order.index(after[0]) if after else len(order)
                back.append(order.index(before[-1]) + 1 - first)
                most = self.arguments[3] if signal.SIGKILL in numbers else 0
                assert 0 <= back[-1] <= most, (self.arguments, fault)
        assert (self.folder / "net.digest").read_text() == (whole.folder / "net.digest").read_text()
        return faults, back


IMPORTED = ("dpmodule", "dpmodule.autobatch")
LONG = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("mode", NUMBERS)
@pytest.mark.parametrize(
    ("count", "kinds", "beside"),
    [(3, ("buckets", "contexts"), IMPORTED), pytest.param(200, tuple(KINDS), (), marks=LONG)],
)
def test_what_happens_to_a_training_is_not_seen_in_its_end(tmp_path, mode, count, kinds, beside):
    draw, whole, done, all_back = random.Random(count), {}, 0, []
    for number, kind in enumerate(itertools.cycle(kinds)):
        if done == count and number >= len(kinds):
            break
        if kind not in whole:
            whole[kind] = Training(kind, tmp_path / kind, 5, beside)
            whole[kind].run()
        training = Training(kind, tmp_path / f"part {number}", draw.randint(1, 6), beside)
        faults, back = training.disturb(draw, min(count - done, 4), NUMBERS[mode], whole[kind])
        done, all_back = done + faults, all_back + back
    assert max(all_back) > 3 or mode == "signal" or count < 200


def newest_save(folder):
    return max((path.stat().st_mtime_ns for path in folder.glob("part-*.run")), default=0)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_language_model_goes_on_where_it_was_killed(tmp_path):
    example, draw = TESTS.parent / "examples" / "bucketing_lm.py", random.Random(3)
    whole = run_file(example, "--smoke", "--resume", tmp_path / "whole", seconds=110)
    for _ in range(3):
        newest = newest_save(tmp_path)
        with Program("file", example, "--smoke", "--resume", tmp_path / "part") as program:
            until(lambda newest=newest: newest_save(tmp_path) > newest, 100)
            time.sleep(draw.uniform(0, 0.2))
            program.send_signal(signal.SIGKILL)
            assert program.wait() == -signal.SIGKILL
    again = run_file(example, "--smoke", "--resume", tmp_path / "part", seconds=110)
    assert again.returncode == 0, again.stderr
    assert again.stdout.splitlines()[-1] == whole.stdout.splitlines()[-1]
    files = [sorted(tmp_path.glob(f"{name}-*.params")) for name in ("part", "whole")]
    saved = [[path.read_bytes() for path in each] for each in files]
    assert saved[0] == saved[1]
    assert len(saved[0]) == 4  # of two devices, at the end and within the last epoch

"""The server that workers come from is stopped or killed: while it starts one, while they run, before they end."""

from helpers.processes import shared_files
from helpers.programs import run_program

PROGRAM = """
import os, signal, sys, threading, time
from multiprocessing import forkserver
from pathlib import Path
import dpmodule as mx
from dpmodule.streams import Supervisor, WorkerDied, WorkerStuck, launch
from helpers import child_targets
from helpers.hogwild import dense_module, described, write_dense
from helpers.processes import descendants, running, until

launch._STOPPED_S = 0.5
server = lambda: forkserver._forkserver._forkserver_pid

def while_struck(signals, task):
    # the next servers get signals as soon as they run, before they have imported anything
    def strike():
        before = server()
        for number in signals:
            until(lambda: server() not in (None, before))
            before = server()
            os.kill(before, number)

    striking = threading.Thread(target=strike)
    striking.start()
    try:
        return task()
    finally:
        striking.join()

def fails(error, text, task, signals=()):
    try:
        while_struck(signals, task)
        raise SystemExit(f"no error: {text}")
    except error as raised:
        assert text in str(raised) and "the next start makes a new one" in str(raised), raised

def start(**options):
    with Supervisor("reader", start_method="forkserver", **options) as readers:
        readers.start(child_targets.returns, 3)

fails(WorkerStuck, "is stopped and has been killed", start, [signal.SIGSTOP])
fails(WorkerStuck, "did not answer within 0.3 s", lambda: start(start_timeout_s=0.3))
fails(WorkerDied, "worker 0 'reader-0' could not be started: the fork server died", start, [signal.SIGKILL] * 2)

files, feed = write_dense(Path(sys.argv[1]))[0], described(x="float dense", label="uint64 dense")
with mx.AsyncExecutor(timeout_s=1) as run:
    train = lambda: run.run_from_files(dense_module(), feed, files, 2, mode="process")
    before = descendants()
    while_struck([signal.SIGKILL], train)  # the second server starts the workers
    workers = [pid for pid in descendants() - before if "hogwild" in Path(f"/proc/{pid}/comm").read_text()]
    assert len(workers) == 2
    os.kill(server(), signal.SIGSTOP)  # it alone tells how its children ended
until(lambda: not any(map(running, workers)))
os.kill(server(), signal.SIGSTOP)
with mx.AsyncExecutor(timeout_s=1) as run:
    fails(WorkerStuck, "worker 0 'hogwild-0' could not be started: the fork server", train)
assert not running(server())
"""


def test_starts_end_in_time_in_a_typed_error_and_the_next_one_succeeds(tmp_path):
    before = shared_files()
    done = run_program(PROGRAM, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert shared_files() <= before

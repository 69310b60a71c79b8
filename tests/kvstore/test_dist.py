"""The store of several processes, which are real ones: by itself, in `fit`, over saves, when a process is lost."""

import contextlib
import signal
import subprocess
import time

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.base import ArgumentError
from dpmodule.kvstore.transfer import pack, quantize, unpack
from helpers.dist_programs import mlp
from helpers.programs import TESTS, run_module
from helpers.ranks import ranks, run_ranks

PROGRAMS = TESTS / "programs"


def test_three_processes_share_a_store():
    run_ranks(PROGRAMS / "dist_store.py", 3, kind="file")


@pytest.mark.parametrize(
    "size", [3, pytest.param(2, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)]
)
def test_rows_are_spread_over_processes(size, tmp_path):
    run_ranks(PROGRAMS / "dist_rows.py", size, kind="file")
    run_ranks(PROGRAMS / "dist_tables.py", size, kind="file", cwd=tmp_path)


@pytest.mark.parametrize(
    ("before", "after"),
    [(2, 3), (3, 1), *(pytest.param(*sizes, marks=pytest.mark.slow) for sizes in [(1, 2), (4, 2)])],
)
def test_saved_tables_load_in_other_numbers_of_processes(before, after, tmp_path):
    for what, size in ("save", before), ("load", after):
        run_ranks(PROGRAMS / "dist_saved_tables.py", size, what, kind="file", cwd=tmp_path)


@pytest.mark.parametrize(("before", "after"), [(2, 3), pytest.param(3, 1, marks=pytest.mark.slow)])
def test_tables_of_autobatch_are_spread_and_load_in_other_numbers_of_processes(before, after, tmp_path):
    for what, size in ("save", before), ("load", after):
        run_ranks(PROGRAMS / "dist_autobatch.py", size, what, kind="file", cwd=tmp_path)


@pytest.mark.parametrize("long", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_two_processes(long, tmp_path):
    """One test, as processes take longer to start than all of that."""
    run_ranks(PROGRAMS / "dist_two.py", 2, tmp_path, long, kind="file")
    rows = mx.io.NDArrayIter(np.zeros((8, 5)), np.zeros(8), 4)
    with pytest.raises(ArgumentError, match="the number of processes was 2, is 1"):
        mx.mod.Module(mlp()).fit(rows, num_epoch=1, checkpoint=str(tmp_path / "runFalse"), resume="auto")


ENDS = [
    pytest.param(1, "SIGKILL", 300, "whole", marks=pytest.mark.slow),
    (2, "SIGSTOP", 2, "whole"),
    (1, "SIGKILL", 300, "spread"),
    pytest.param(2, "SIGSTOP", 2, "spread", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(
    ("who", "how", "timeout_s", "tables"), [*ENDS, (0, "SIGKILL", 300, "whole")]
)  # whose store the others ask
def test_the_others_name_a_process_that_is_lost(who, how, timeout_s, tables):
    with ranks(PROGRAMS / "dist_lost.py", 3, who, how, timeout_s, tables, kind="file") as programs:
        others = [program for i, program in enumerate(programs) if i != who]
        assert [program.wait(60) for program in others] == [0, 0]
        for program in others:
            assert f"of 3: rank {who} is gone or stopped" in program.output()[0]


@pytest.mark.slow
def test_a_table_that_no_process_could_hold_trains_and_is_saved_and_loaded(tmp_path):
    run_ranks(PROGRAMS / "dist_large_table.py", 2, kind="file", cwd=tmp_path, seconds=200)


@pytest.mark.parametrize("kills", [4, pytest.param(50, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
def test_kills_between_and_within_saves_of_spread_tables_lose_nothing(kills, tmp_path):
    program, random = PROGRAMS / "dist_killed_tables.py", np.random.default_rng()
    run_ranks(program, 2, tmp_path / "whole", kind="file")
    killed = 0
    while killed < kills:
        with ranks(program, 2, tmp_path / "killed", kind="file") as programs:
            who = int(random.integers(2))
            try:
                programs[who].read(2 * int(random.integers(1, 5)), 20)
            except subprocess.TimeoutExpired:
                raise AssertionError([each.output() for each in programs]) from None
            time.sleep(random.uniform(0, 0.05))
            with contextlib.suppress(ProcessLookupError):
                programs[who].send_signal(signal.SIGKILL)
            codes = [each.wait(10) for each in programs]
            if 0 in codes:  # the run was over, and begins again
                (tmp_path / "killed-end.npz").unlink(missing_ok=True)
                for path in tmp_path.glob("killed*"):
                    path.unlink()
                continue
            assert codes[1 - who] == 3, programs[1 - who].output()
            assert f"rank {who} is gone" in programs[1 - who].output()[0]
            killed += 1
    run_ranks(program, 2, tmp_path / "killed", kind="file")
    whole, found = (np.load(tmp_path / f"{name}-end.npz") for name in ("whole", "killed"))
    assert len(whole.files) == 3
    for name in whole.files:
        np.testing.assert_array_equal(found[name], whole[name])
    parts = [path.name for path in tmp_path.glob("killed-0004.tables.*")]
    assert len(parts) == 2


WAITING = """
import sys, time
import numpy as np
import dpmodule as mx
from dpmodule.base import LostWorkerError
store = mx.kv.create("dist_sync")
store.init("table", mx.nd.ones((8, 2)).tostype("row_sparse"))
store.barrier()
print("ready", flush=True)
if store.rank == 0:
    time.sleep(60)
try:
    store.pull("table", mx.nd.zeros((8, 2)))
except LostWorkerError as error:
    print(error)
    sys.exit(3)
"""


def test_a_process_that_waits_for_the_others_reports_that_rank_0_is_killed():
    """Rank 0 has the store of the group, which the other one reads while it waits."""
    with ranks(WAITING, 2) as programs:
        for each in programs:
            each.read(1, 20)
        time.sleep(1)
        programs[0].send_signal(signal.SIGKILL)
        code, (out, err) = programs[1].wait(10), programs[1].output()
    assert code == 3, out + err
    assert "rank 0 is gone" in out


def run_torchrun(*arguments, **options):
    first = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = run_module(*first, *arguments, OMP_NUM_THREADS="1", **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_torchrun_restarts_all_after_a_kill_and_they_end_in_the_same_bits(tmp_path):
    for name, kills in ("whole", ()), ("killed", (5, 9, 14)):
        program = PROGRAMS / "dist_restarted.py"
        run_torchrun("--max-restarts", 3, program, tmp_path / name, *kills, cwd=tmp_path)
    whole, killed = (np.load(tmp_path / f"{name}-end.npz") for name in ("whole", "killed"))
    assert len(whole.files) == 8
    for name in whole.files:
        np.testing.assert_array_equal(whole[name], killed[name])


STARTED = [
    [TESTS.parent / "examples/distributed/fit_digits.py", "--smoke"],
    [TESTS.parent / "examples/distributed/click_model.py", "--smoke"],
    ["-m", "dpmodule", "fit", "--kvstore", "dist_sync"],
]


@pytest.mark.slow
@pytest.mark.parametrize("program", STARTED)
def test_torchrun_starts_it(program, tmp_path):
    # the first process alone reports
    text = "final validation accuracy" if "fit" in program else "target at"
    assert run_torchrun(*program, cwd=tmp_path).count(text) == 1


GPUS = """
import numpy as np
import dpmodule as mx
from helpers.dist_programs import create, data, mlp, params, train
first = create()
x, y = data(rows=40)
own = x.reshape(10, 4, 5)[first.rank :: 2].reshape(20, 5), y.reshape(10, 4)[first.rank :: 2].ravel()
module, _ = train(mlp(), *own, 4, create("dist_device_sync", bucket_mb=1e-5), context=mx.gpu(first.rank % 2))
values = first.ranks.gather(params(module))
alone, _ = train(mlp(), x, y, 8, "device", context=mx.gpu(first.rank % 2))
for name, value in params(alone).items():
    np.testing.assert_array_equal(values[0][name], values[1][name])
    np.testing.assert_allclose(values[0][name], value, atol=1e-5)
"""


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="NCCL wants a GPU for each process")
def test_gradients_on_gpus_are_added_up_there():
    run_ranks(GPUS, 2)


def test_without_a_group_it_is_a_store_of_one_worker(caplog):
    store = mx.kv.create("dist_sync", timeout_s=5)
    assert "this process is the only worker" in caplog.text
    assert "torchrun --standalone" in caplog.text
    assert (store.rank, store.num_workers, store.type) == (0, 1, "dist_sync")
    store.init("w", mx.nd.zeros((2,)))
    store.set_optimizer(mx.optimizer.SGD(learning_rate=1.0))
    store.pushpull("w", mx.nd.ones((2,)), out := mx.nd.zeros((2,)))
    assert out.asnumpy().tolist() == [-1, -1]
    store.barrier()


STOPPED = """
import os, signal
import torch.distributed as dist
import dpmodule as mx
if os.environ["RANK"] == "0":
    dist.init_process_group("gloo")
    os.kill(os.getpid(), signal.SIGSTOP)
try:
    mx.kv.create("dist_sync", timeout_s=0.5)
except mx.base.LostWorkerError as error:
    print(error)
"""


def test_rank_0_is_stopped_while_the_others_join_it():
    with ranks(STOPPED, 2) as programs:
        assert programs[1].wait(30) == 0
        assert (
            "within 0.5 s" in programs[1].output()[0]
        )  # how far a busy machine comes decides the words before


def test_parts_are_distributed():
    module, batches = mx.mod.Module(mlp()), [(np.zeros((4, 5), np.float32), np.zeros(4, np.float32))]
    assert (
        len(module.fit(batches, num_epoch=1, shard=True)) == 1
    )  # an iterator without parts; one part is all
    rows = [mx.io.NDArrayIter(np.arange(7), np.arange(7), 2) for _ in range(3)]
    for i, each in enumerate(rows):
        each.take_part(3, i)
    found = [[n for batch in each for n in batch.label[0].asnumpy()[: 2 - batch.pad]] for each in rows]
    assert found == [[0, 3, 6], [1, 4], [2, 5]]


@pytest.mark.parametrize("shape", [(1,), (4,), (3, 3), (0,)])
def test_codes_of_two_bits(shape):
    gradient = torch.linspace(-2, 2, int(np.prod(shape))).view(shape)
    sent = quantize(gradient, torch.zeros(shape), 0.5)
    packed = pack(sent)
    assert packed.numel() == -(-sent.numel() // 4)
    assert torch.equal(unpack(packed, sent, 0.5), sent)

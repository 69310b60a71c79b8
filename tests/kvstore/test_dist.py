"""The store of several processes, which are real ones: by itself, in `fit`, over saves, when a process is lost."""

import socket

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.base import ArgumentError
from dpmodule.kvstore.transfer import pack, quantize, unpack
from helpers.dist_programs import mlp
from helpers.programs import TESTS, run_module
from helpers.ranks import ranks, run_ranks

BEGIN = """
import os, sys
import numpy as np
import dpmodule as mx
from dpmodule.base import ArgumentError, LostWorkerError
from helpers.dist_programs import *
create = lambda kind="dist_sync", **options: mx.kv.create(kind, timeout_s=30, **options)
first = create()
rank, size = first.rank, first.num_workers
everywhere = first.ranks.gather
"""

STORE = """
assert (first.type, size, first.is_capable("optimizer")) == ("dist_sync", 3, True)
first.init(["a", "b"], [mx.nd.full((2, 3), rank + 5), mx.nd.full((4,), rank, dtype="float64")])
a, b = mx.nd.zeros((2, 3)), mx.nd.zeros((4,), dtype="float64")
first.pull(["a", "b"], [a, b])
assert (a.asnumpy() == 5).all() and (b.asnumpy() == 0).all()  # those of rank 0
devices = [mx.nd.full((2, 3), rank + 1, ctx=mx.cpu(k)) for k in range(2)]
first.pushpull(["a", "b"], [devices, mx.nd.full((4,), 10.0 ** rank, dtype="float64")], [a, b])
assert (a.asnumpy() == 12).all() and (b.asnumpy() == 111).all()
assert (devices[0].asnumpy() == rank + 1).all()
first.barrier()

def of_rows(*numbers):
    return mx.nd.sparse.row_sparse_array((np.ones((len(numbers), 2), np.float32), list(numbers)), shape=(9, 2))

first.init("r", of_rows(8) if rank == 0 else of_rows(1, 2))
rows = mx.nd.zeros((9, 2), stype="row_sparse")
first.row_sparse_pull("r", rows, row_ids=mx.nd.array([1, 8]))
assert rows.asnumpy()[:, 0].tolist() == [0, 0, 0, 0, 0, 0, 0, 0, 1]
first.push("r", of_rows(*range(rank)))  # none, one, two of them
first.row_sparse_pull("r", rows, row_ids=mx.nd.array([0, 1, 2]))
assert rows.asnumpy()[:, 1].tolist() == [2, 1, 0, 0, 0, 0, 0, 0, 0]

coded, out = create("dist_device_sync"), mx.nd.zeros((5,))
coded.init("w", out)
coded.set_gradient_compression({"type": "2bit", "threshold": 0.5})
for wanted in ([1.5, -1.5, 0, 0, 1.5], [1.5, -1.5, 0, 1.5, 1.5]):
    coded.pushpull("w", mx.nd.array([0.6, -0.7, 0.1, 0.3, 2]), out)
    assert out.asnumpy().tolist() == wanted

calls, own = [], create()
own.init("w", mx.nd.ones((2,)))
own._set_updater(lambda key, pushed, stored: calls.append((key, pushed.asnumpy().tolist())))
own.push("w", mx.nd.full((2,), rank))
assert calls == [("w", [3, 3])]

loose = create("dist_async", average_every=2)
loose.init("w", mx.nd.zeros((2,)))
loose.set_optimizer(mx.optimizer.SGD(learning_rate=1.0))
out = mx.nd.zeros((2,))
loose.pushpull("w", mx.nd.full((2,), rank), out)
assert (out.asnumpy() == -rank).all()
loose.pushpull("w", mx.nd.full((2,), rank), out)
assert (out.asnumpy() == -2).all()  # the mean of 0, -2 and -4

try:
    create().init(["w", "v"][: 1 + (rank != 1)], [mx.nd.zeros((2,))] * (1 + (rank != 1)))
    raise SystemExit("no error")
except ArgumentError as error:
    assert "the networks of rank 1 and rank 0 differ: 1 keys instead of 2 keys" in str(error)
try:
    create().init("w", mx.nd.zeros((2 + (rank == 2),)))
    raise SystemExit("no error")
except ArgumentError as error:
    assert "rank 2" in str(error) and "(3,)" in str(error)

# three uneven parts: each goes on until the last is done
x, y = data(rows=48)
limits = [0, 10, 40, 48]
mine = slice(*limits[rank : rank + 2])
for kind, options in (("dist_sync", {}), ("dist_sync", {"accumulate": 2}), ("dist_async", {})):
    module, history = train(mlp(), x[mine], y[mine], 4, create(kind), **options)
    values = everywhere((params(module)["one_weight"].tolist(), history["train-accuracy"]))
    assert values[0] == values[1] == values[2]
    assert [row["batch"] for row in history] == [(3, 8, 2)[rank]] * 2
"""


def test_three_processes_share_a_store():
    run_ranks(BEGIN + STORE, 3)


SAME = """
long = sys.argv[2] == "True"
for i, (net, words, optimizer, options) in enumerate([
    (mlp(), False, "sgd", {}),
    (mlp(), False, "adam", {}),
    (mlp(), False, "sgd", {"clip_global_norm": 0.05}),
    (mlp(), False, "adam", {"accumulate": 3}),
    (embedding(), True, "sgd", {}),
    (embedding(), True, "adam", {}),
]):
    x, y = data(words, 40)
    alone, history = train(net, x, y, 8, "local", optimizer, **options)
    own_x, own_y, batch = part(x, y, 8, rank, size)
    for inside in "10" if long else str(i % 2):
        os.environ["MXNET_UPDATE_ON_KVSTORE"] = inside
        store = create(bucket_mb=1e-5)
        with early_sums() as early:
            module, together = train(net, own_x, own_y, batch, store, optimizer, **options)
        assert bool(early) is ("accumulate" not in options)
        assert (module.updates.updater is None) is (inside == "1")
        values = everywhere(params(module))
        for name, value in params(alone).items():
            np.testing.assert_array_equal(values[0][name], values[1][name])
            if rank == 0:  # other ranks begin with other numbers when they are alone
                np.testing.assert_allclose(values[0][name], value, atol=1e-6, err_msg=name)
        assert rank or together["train-accuracy"] == history["train-accuracy"]
    if long or i in (2, 5):
        two = [mx.cpu(0), mx.cpu(1)]
        devices, _ = train(net, own_x, own_y, batch, create(), optimizer, context=two, **options)
        for name, value in params(devices).items():
            np.testing.assert_allclose(value, values[0][name], atol=1e-6)

x, y = data(rows=40)
alone, history = train(mlp(), x, y, 8, "local", eval_data=mx.io.NDArrayIter(x, y, 8))
module, together = train(
    mlp(), x, y, 4, create(), eval_data=mx.io.NDArrayIter(x[:39], y[:39], 4), shard=True  # 20 examples and 19
)
if rank == 0:
    np.testing.assert_allclose(params(module)["one_weight"], params(alone)["one_weight"], atol=1e-6)
    assert dict(alone.score(mx.io.NDArrayIter(x[:39], y[:39], 8), "acc"))["accuracy"] == together[
        "validation-accuracy"
    ][-1]
rows = mx.io.NDArrayIter(x[:39], y[:39], 4)
whole = module.predict(rows).asnumpy()
rows.take_part(size, rank)
np.testing.assert_allclose(module.predict(rows).asnumpy(), whole, atol=1e-6)

draws = everywhere(mx.nd.random.uniform(shape=(3,)).asnumpy().tolist())
assert draws[0] != draws[1]
mx.random.seed(1)
draws = everywhere(mx.random.uniform(shape=(3,)).asnumpy().tolist())
assert draws[0] != draws[1]
"""

UNEVEN = """
def split(rows, sizes):
    # rows of this process, of whose batches one process would make batches of sum(sizes)
    first, step = sum(sizes[:rank]), sum(sizes)
    return np.concatenate([rows[i + first : i + first + sizes[rank]] for i in range(0, len(rows), step)])

def compare(together, alone, what):
    values = everywhere(params(together))
    for name, value in params(alone).items():
        np.testing.assert_array_equal(values[0][name], values[1][name], f"{what} {name}")
        if rank == 0:
            np.testing.assert_allclose(values[0][name], value, atol=1e-6, err_msg=f"{what} {name}")

# batches of 4 and of 12: every update is that of one process with batches of 16
for i, (words, optimizer, arguments, options) in enumerate([
    (False, "sgd", {}, {}),
    (False, "adam", {"begin_num_update": 3}, {"clip_global_norm": 0.05}),
    (True, "sgd", {}, {"accumulate": 3}),
    (True, "sgd", {}, {"clip_global_norm": 0.05}),
    (False, "sgd", {"clip_gradient": 0.01}, {"accumulate": 2}),
    (False, "sgd", {"rescale_grad": 0.25}, {}),
]):
    os.environ["MXNET_UPDATE_ON_KVSTORE"] = str(i % 2)
    net, (x, y), sizes = embedding() if words else mlp(), data(words, 80), (4, 12)
    OPTIMIZERS["own"] = OPTIMIZERS[optimizer][0], {**OPTIMIZERS[optimizer][1], **arguments}
    alone, _ = train(net, x, y, 16, "local", "own", **options)
    own, two = (split(x, sizes), split(y, sizes), sizes[rank], create(bucket_mb=1e-5)), [mx.cpu(0), mx.cpu(1)]
    module, _ = train(net, *own, "own", context=two if i % 3 == 0 else None, **options)
    compare(module, alone, (words, optimizer, arguments, options))

# 2 batches of 4 and 3 of 12: the last update is the mean over 12, or the sum if rescale_grad says how to scale
sizes, steps = [4, 12], [range(0, 16), range(16, 32), range(32, 44)]
for words, arguments in (False, {}), (True, {}), (False, {"rescale_grad": 0.25}):
    net, (x, y) = embedding() if words else mlp(), data(words, 44)
    OPTIMIZERS["own"] = "sgd", {**OPTIMIZERS["sgd"][1], **arguments}
    mine = [r for step in steps for r in (step[-12:] if rank else step[:-12])]
    module, _ = train(net, x[mine], y[mine], sizes[rank], create(), "own", epochs=1)
    alone, _ = train(net, x, y, 16, "local", "own", epochs=0)
    for step in steps:
        alone.forward_backward(mx.io.DataBatch([mx.nd.array(x[step])], [mx.nd.array(y[step])]))
        alone.scale_gradients(1 if arguments else 16 / len(step))
        alone.update()
    compare(module, alone, (words, arguments))

# batches of 4, 4 and 2 and of 12: the short one counts as a whole one, as in one process
x, y = data(rows=46)
own, joined = [], []
for start, count in (0, 4), (16, 4), (32, 2):
    rows = [range(start, start + count), range(start + count, start + count + 12)]
    own.append((x[rows[rank]], y[rows[rank]]))
    joined.append(tuple(a[start : start + count + 12] for a in (x, y)))
modules = []
for batches, kvstore in (own, create()), (joined, "local"):
    mx.random.seed(5)
    modules.append(mx.mod.Module(mlp(), context=mx.cpu()))
    modules[-1].fit(batches, kvstore=kvstore, num_epoch=2, initializer=mx.init.Xavier())
compare(*modules, "a short batch")

# in codes and in float16
for options in {"compression_params": {"type": "2bit", "threshold": 0.01}}, {"amp": "fp16"}:
    module = mx.mod.Module(mlp(), context=mx.cpu(), **options)
    module.fit(mx.io.NDArrayIter(*data(rows=44), sizes[rank]), kvstore=create(), optimizer="adam", num_epoch=1)
    compare(module, module, options)

# settings that would make parameters differ, or processes wait for each other, are refused in all
x, y = data(rows=48)
iterator = lambda: mx.io.NDArrayIter(x, y, 8)
for options, text in [
    ({"optimizer_params": {"learning_rate": 0.1 * (rank + 1)}}, "SGD: lr is 0.1 on rank 0 and 0.2 on rank 1"),
    ({"optimizer_params": {"rescale_grad": 1 / (rank + 1)}}, "SGD: rescale_grad is 1.0 on rank 0 and 0.5 on rank 1"),
    ({"optimizer_params": {"lr_scheduler": mx.lr_scheduler.FactorScheduler(rank + 1)}}, "lr_scheduler.step is 1 "),
    ({"kvstore": create(("dist_sync", "dist_async")[rank])}, "the kind of store is 'dist_sync' on rank 0"),
    ({"num_epoch": rank + 1}, "fit: num_epoch is 1 on rank 0 and 2 on rank 1"),
    ({"begin_epoch": rank}, "fit: begin_epoch is 0 on rank 0 and 1 on rank 1"),
    ({"eval_data": {"test": iterator()} if rank else None}, "fit: eval_data is [] on rank 0 and ['test'] on rank 1"),
    ({"eval_metric": ("acc", "ce")[rank]}, "fit: eval_metric is ['accuracy'] on rank 0 and ['cross-entropy']"),
    ({"eval_every_n_batches": rank + 1}, "fit: eval_every_n_batches is 1 on rank 0"),
    ({"accumulate": rank + 1}, "fit: accumulate is 1 on rank 0"),
    ({"clip_global_norm": (None, 1.0)[rank]}, "fit: clip_global_norm is None on rank 0"),
    ({"on_nonfinite": ("skip", "raise")[rank]}, "fit: on_nonfinite is 'skip' on rank 0"),
    ({"shard": bool(rank)}, "fit: shard is False on rank 0"),
    ({"dry_run": bool(rank)}, "fit: dry_run is False on rank 0"),
    ({"checkpoint": ("saved", None)[rank]}, "fit: checkpoint is True on rank 0 and False on rank 1"),
    ({"callbacks": [mx.callback.Checkpoint("saved")][rank:]}, "fit: checkpoint is True on rank 0"),
]:
    try:
        mx.mod.Module(mlp(), context=mx.cpu()).fit(
            iterator(), **{"eval_data": iterator(), "kvstore": create(), "num_epoch": 2, **options}
        )
        raise SystemExit(f"no error: {options}")
    except ArgumentError as error:
        assert text in str(error) and str(error).endswith("; use the same value in all processes"), error
"""


LEFT_OUT = """
# what is not finite in one process is left out in both, also if some of it has gone while backward ran
x, y = data(rows=40)
x[9] = np.nan
own_x, own_y, batch = part(x, y, 8, rank, size)  # row 9 is in a batch of rank 0
for options in {}, {"accumulate": 2}:
    small = create(bucket_mb=1e-5)
    module, _ = train(mlp(), own_x, own_y, batch, small, on_nonfinite="skip", epochs=1, **options)
    assert module.optimizer.num_update == (3 if options else 4)  # rank 1 has a rest
    values = everywhere(params(module))
    for name, value in values[0].items():
        assert np.isfinite(value).all() and (value == values[1][name]).all()
    try:
        train(mlp(), own_x, own_y, batch, create(bucket_mb=1e-5), **options)
        raise SystemExit("no error")
    except mx.base.NonFiniteError as error:
        assert ("another process" in str(error)) is (rank == 1)

# so is what is too large for float16, and the scale of the loss is that of all
x, y = data(rows=48)
x *= 0.01
own_x, own_y = x[rank::2], y[rank::2]
if rank == 1:
    own_x[9] = 100
for options in {}, {"accumulate": 2}, {"clip_global_norm": 0.1}:
    scales, small = [], create(bucket_mb=1e-5)
    module = mx.mod.Module(mlp(), amp="fp16", context=mx.cpu())
    module.fit(
        mx.io.NDArrayIter(own_x, own_y, 4), kvstore=small, num_epoch=2, initializer=mx.init.Xavier(),
        batch_end_callback=lambda param: scales.append(module.loss_scales()[0].value), **options,
    )
    every = everywhere((scales, module.optimizer.num_update, {k: v.tolist() for k, v in params(module).items()}))
    assert every[0] == every[1]
    assert scales[-1] < scales[0] and np.isfinite(params(module)["one_weight"]).all()
    assert 0 < module.optimizer.num_update < (6 if options.get("accumulate") else 12)

# and in loops by hand
module = mx.mod.Module(mlp(), amp="fp16", context=mx.cpu())
module.bind([("data", (4, 5))], [("softmax_label", (4,))])
module.init_params(mx.init.Xavier())
module.init_optimizer(create(bucket_mb=1e-5))
for i in range(9):
    scale = module.loss_scales()[0].value
    batch = mx.io.DataBatch([mx.nd.full((4, 5), 1e-3)], [mx.nd.zeros((4,))])
    module.announce_update()
    module.forward_backward(batch)
    if rank == 0 and i == 7:
        module.store.grad("two_weight", 0)[:] = np.inf
    module.update()
    assert i < 5 or module.loss_scales()[0].value == (scale / 2 if i == 7 else scale)
assert 3 <= module.optimizer.num_update < 9

# gradients that do not come, dropout and uneven parts: the bits do not depend on what goes early
x, y = data(rows=40)
mine = slice(0, 12) if rank else slice(12, 40)
found = []
for bucket_mb in 1e-5, 64:
    mx.random.seed(5)
    module = mx.mod.Module(mlp(0.3, norm=True), context=mx.cpu(), fixed_param_names=["two_bias"])
    kvstore = create(bucket_mb=bucket_mb)
    with early_sums() as early:
        module.fit(mx.io.NDArrayIter(x[mine], y[mine], 4), kvstore=kvstore, optimizer="adam", num_epoch=2)
    assert bool(early) is (bucket_mb < 1)
    found.append(params(module))
assert all((found[0][name] == found[1][name]).all() for name in found[0])

# buckets of a network, another one in each process
found = []
for bucket_mb in 1e-5, 64:
    mx.random.seed(5)
    module = mx.mod.BucketingModule(by_length, default_bucket_key=8, context=mx.cpu())
    with early_sums() as early:
        module.fit(Lengths(seed=rank), kvstore=create(bucket_mb=bucket_mb), num_epoch=2)
    assert bool(early) is (bucket_mb < 1)
    found.append(params(module))
values = everywhere(found[0])
for name, value in found[1].items():
    assert (value == values[0][name]).all() and (value == values[1][name]).all()

try:
    create(bucket_mb=1 + rank).init("w", mx.nd.zeros((2,)))
    raise SystemExit("no error")
except ArgumentError as error:
    assert "bucket_mb is 1.0 on rank 0 and 2.0 on rank 1" in str(error)
"""


RESUME = """
import signal
x, y = data(rows=90)

class Seen(mx.metric.EvalMetric):
    def __init__(self):
        super().__init__("seen")

    def reset(self):
        super().reset()
        self.classes, self.sizes = set(), []

    def update(self, labels, preds):
        rows = labels[0].asnumpy()
        self.num_inst += (rows >= 0).sum()  # a number of NumPy's
        self.classes |= {int(each) for each in rows}
        self.sizes = [*self.sizes, len(rows)]

    def merge(self, other):
        super().merge(other)
        self.classes |= other.classes
        self.sizes = self.sizes + other.sizes

    def get(self):
        return ["rows", "classes", "sizes"], [self.num_inst, len(self.classes), sum(self.sizes)]

def go(prefix, uneven, stop=None, resume=None, **options):
    mx.random.seed(7)
    module = mx.mod.Module(mlp(dropout=0.3, norm=True), context=mx.cpu())
    mine = slice(0, 90) if not uneven else slice(0, 30) if rank == 0 else slice(30, 90)

    def after_batch(param):
        if stop == "signal" and rank == 1 and (param.epoch, param.nbatch) == (1, 2):
            os.kill(os.getpid(), signal.SIGTERM)
        return stop == "callback" and rank == 0 and (param.epoch, param.nbatch) == (1, 3)

    try:
        history = module.fit(
            mx.io.NDArrayIter(x[mine], y[mine], 8, shuffle=True),
            kvstore=create(), optimizer="adam", num_epoch=3, shard=not uneven, batch_end_callback=after_batch,
            checkpoint=prefix and mx.callback.Checkpoint(prefix, every_n_batches=2), resume=resume,
            eval_metric=["acc", Seen()], **options,
        )
    except SystemExit as error:
        assert error.code == 143 and stop == "signal"
        return None
    return params(module), history

for uneven in (False, True):
    prefix = os.path.join(sys.argv[1], f"run{uneven}")
    whole, history = go(None, uneven)
    go(prefix, uneven, "signal")
    first.barrier()
    values, rest = go(prefix, uneven, resume="auto")
    assert all((values[name] == whole[name]).all() for name in whole)
    for name in "accuracy", "rows", "classes", "sizes":
        assert history["train-" + name] == rest["train-" + name]
    assert history["train-rows"] == history["train-sizes"] == [90] * 3
    assert history["train-classes"] == [len(set(y.tolist()))] * 3
assert [row["batch"] for row in history] == [(4, 8)[rank]] * 3

# a limit on batches waits for the update that adds up gradients of several of them
prefix = os.path.join(sys.argv[1], "accumulated")
whole, _ = go(None, False, accumulate=3)
assert [row["batch"] for row in go(prefix, False, accumulate=3, max_batches=8)[1]] == [6, 3]
values, _ = go(prefix, False, resume="auto", accumulate=3)
assert all((values[name] == whole[name]).all() for name in whole)

_, history = go(None, False, "callback")
assert [row["batch"] for row in history] == [6, 4 + rank]
assert history.ended == ["a callback after batch 3 of epoch 1", "another process ended training"][rank]
_, history = go(None, False, max_batches=7)
assert [row["batch"] for row in history] == [6, 1]
"""


@pytest.mark.parametrize("long", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_two_processes(long, tmp_path):
    """They train as one does, leave out together what one of them has to, and go on bit for bit.

    One test, as processes take longer to start than all of that.
    """
    run_ranks(BEGIN + SAME + UNEVEN + LEFT_OUT + RESUME, 2, tmp_path, long)
    alone = mx.mod.Module(mlp())
    with pytest.raises(ArgumentError, match="the number of processes was 2, is 1"):
        alone.fit(
            mx.io.NDArrayIter(np.zeros((8, 5)), np.zeros(8), 4),
            num_epoch=1,
            checkpoint=str(tmp_path / "runFalse"),
            resume="auto",
        )


LOST = """
import signal
who, how, timeout_s = int(sys.argv[1]), getattr(signal, sys.argv[2]), float(sys.argv[3])
x, y = data(rows=480)

def after_batch(param):
    if rank == who and param.nbatch == 5:
        os.kill(os.getpid(), how)

try:
    train(mlp(), x, y, 8, mx.kv.create("dist_sync", timeout_s=timeout_s), epochs=3, batch_end_callback=after_batch)
except LostWorkerError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("who", "how", "timeout_s"),
    [
        pytest.param(1, "SIGKILL", 300, marks=pytest.mark.slow),
        (0, "SIGKILL", 300),  # the others ask its store who is gone
        (2, "SIGSTOP", 2),
    ],
)
def test_the_others_name_a_process_that_is_lost(who, how, timeout_s):
    with ranks(BEGIN + LOST, 3, who, how, timeout_s) as programs:
        others = [program for i, program in enumerate(programs) if i != who]
        assert [program.wait(60) for program in others] == [0, 0]
        for program in others:
            assert f"of 3: rank {who} is gone or stopped" in program.output()[0]


def run_torchrun(*arguments, **options):
    first = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return run_module(*first, *arguments, OMP_NUM_THREADS="1", **options)


@pytest.mark.slow
def test_torchrun_starts_all_again_after_a_kill_and_they_end_in_the_same_bits(tmp_path):
    program = TESTS / "helpers" / "restarted.py"
    for name, kills in ("whole", ()), ("killed", (5, 9, 14)):
        done = run_torchrun("--max-restarts", 3, program, tmp_path / name, *kills, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
    whole, killed = (np.load(tmp_path / f"{name}-end.npz") for name in ("whole", "killed"))
    assert len(whole.files) == 8
    for name in whole.files:
        np.testing.assert_array_equal(whole[name], killed[name])


GPUS = """
module, _ = train(
    mlp(), *part(*data(rows=40), 8, rank, size), create("dist_device_sync", bucket_mb=1e-5), context=mx.gpu(rank % 2)
)
values = everywhere(params(module))
alone, _ = train(mlp(), *data(rows=40), 8, "device", context=mx.gpu(rank % 2))
for name, value in params(alone).items():
    np.testing.assert_array_equal(values[0][name], values[1][name])
    np.testing.assert_allclose(values[0][name], value, atol=1e-5)
"""


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="NCCL wants a GPU for each process")
def test_gradients_on_gpus_are_added_up_there():
    run_ranks(BEGIN + GPUS, 2)


# one process


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


def test_variables_of_servers_are_refused_with_the_command_to_use(monkeypatch):
    monkeypatch.setenv("DMLC_ROLE", "worker")
    monkeypatch.setenv("DMLC_PS_ROOT_URI", "10.0.0.1")
    with pytest.raises(ArgumentError, match=r"DMLC_PS_ROOT_URI, DMLC_ROLE are set.* torchrun --standalone"):
        mx.kv.create("dist_sync")


JOINING = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"RANK": "x"}, "RANK=x, expected a whole number from 0 to WORLD_SIZE - 1 = 1"),
        ({"RANK": "2"}, "RANK=2, expected"),
        ({"RANK": "-1"}, "RANK=-1, expected"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE=two, expected a whole number from 1"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE=0, expected"),
        ({"MASTER_PORT": "http"}, "MASTER_PORT=http, expected a whole number from 1 to 65535"),
        ({"MASTER_PORT": "65536"}, "MASTER_PORT=65536, expected"),
        ({"MASTER_ADDR": ""}, "RANK, WORLD_SIZE, MASTER_PORT, but not MASTER_ADDR; set all of them"),
        ({"RANK": "", "MASTER_PORT": ""}, "WORLD_SIZE, MASTER_ADDR, but not RANK, MASTER_PORT"),
    ],
)
def test_wrong_variables_are_refused_before_anybody_is_waited_for(changes, message, monkeypatch):
    for name, value in {**JOINING, **changes}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ArgumentError, match=message):
        mx.kv.create("dist_sync")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_port_of_another_program_is_refused_at_once(rank, monkeypatch):
    monkeypatch.setattr("dpmodule.kvstore.ranks._POLL_S", 0.05)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen(16)
        for name, value in {**JOINING, "RANK": rank, "MASTER_PORT": other.getsockname()[1]}.items():
            monkeypatch.setenv(name, str(value))
        what = ("the port is in use", "the listener at the port is not rank 0")[rank]
        with pytest.raises(
            ArgumentError, match=f"{what} .*MASTER_PORT={other.getsockname()[1]}.*choose another"
        ):
            mx.kv.create("dist_sync", timeout_s=60)


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
        assert "did not form a group within 0.5 s" in programs[1].output()[0]


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("dist_sync", {"timeout_s": 0}, "timeout_s is 0"),
        ("dist_async", {"average_every": 0}, "average_every is 0"),
        ("dist_sync", {"speed": 3}, "does not accept speed"),
        ("local", {"timeout_s": 3}, "'local' does not accept timeout_s"),
    ],
)
def test_wrong_options(kind, options, message):
    with pytest.raises(ArgumentError, match=message):
        mx.kv.create(kind, **options)


def test_averages_cannot_be_compressed():
    with pytest.raises(ArgumentError, match="sends no gradients"):
        mx.kv.create("dist_async").set_gradient_compression({"type": "2bit"})


def test_an_iterator_without_parts_is_refused_where_they_are_wanted():
    module = mx.mod.Module(mlp())
    batches = [(np.zeros((4, 5), np.float32), np.zeros(4, np.float32))]
    history = module.fit(batches, num_epoch=1, shard=True)  # one part is all
    assert len(history) == 1


def test_parts_deal_the_examples_out():
    rows = [mx.io.NDArrayIter(np.arange(7), np.arange(7), 2) for _ in range(3)]
    for i, each in enumerate(rows):
        each.take_part(3, i)
    found = [
        [label for batch in each for label in batch.label[0].asnumpy()[: 2 - batch.pad]] for each in rows
    ]
    assert found == [[0, 3, 6], [1, 4], [2, 5]]
    with pytest.raises(ArgumentError, match="part_index is 3, expected 0 to 2"):
        mx.io.NDArrayIter(np.arange(7), np.arange(7), 2).take_part(3, 3)


@pytest.mark.parametrize("shape", [(1,), (4,), (3, 3), (0,)])
def test_codes_of_two_bits(shape):
    gradient = torch.linspace(-2, 2, int(np.prod(shape))).view(shape)
    sent = quantize(gradient, torch.zeros(shape), 0.5)
    packed = pack(sent)
    assert packed.numel() == -(-sent.numel() // 4)
    assert torch.equal(unpack(packed, sent, 0.5), sent)


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [["examples/distributed/fit_digits.py", "--smoke"], ["-m", "dpmodule", "fit", "--kvstore", "dist_sync"]],
)
def test_torchrun_starts_it(program, tmp_path):
    if program[0] != "-m":
        program = [str(TESTS.parent / program[0]), *program[1:]]
    done = run_torchrun(*program, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("accuracy") == 1

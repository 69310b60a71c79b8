"""Two processes train as one does, leave out together what one of them has to, and resume bit for bit."""

import os
import signal
import sys

import numpy as np

import dpmodule as mx
from dpmodule.base import ArgumentError, NonFiniteError
from helpers.dist_programs import ADAM, SGD, create, data, early_sums, embedding, expect, mlp, params, train

FOLDER, LONG = sys.argv[1], sys.argv[2] == "True"
first = create()
rank, size, everywhere = first.rank, first.num_workers, first.ranks.gather
TWO = [mx.cpu(0), mx.cpu(1)]


def part(rows, sizes):
    """Return the rows of this process, of whose batches one process would make batches of sum(sizes)."""
    start, step = sum(sizes[:rank]), sum(sizes)
    return np.concatenate([rows[i + start : i + start + sizes[rank]] for i in range(0, len(rows), step)])


def compare(together, alone, what=""):
    """Both processes have the same parameters, and those of one; other ranks begin with other numbers when alone."""
    values = everywhere(params(together))
    for name, value in params(alone).items():
        np.testing.assert_array_equal(values[0][name], values[1][name], f"{what} {name}")
        if rank == 0:  # Adam divides small sums of gradients, and their rounding, by their own size
            np.testing.assert_allclose(values[0][name], value, atol=1e-5, err_msg=f"{what} {name}")


def same():
    """Equal batches, sums that begin early, updates on the store and outside, two contexts in each process."""
    cases = [(False, SGD, {}), (False, ADAM, {}), (False, SGD, {"clip_global_norm": 0.05})]
    cases += [(False, ADAM, {"accumulate": 3}), (True, SGD, {}), (True, ADAM, {})]
    for i, (words, optimizer, options) in enumerate(cases):
        net, (x, y) = embedding() if words else mlp(), data(words, 40)
        alone, history = train(net, x, y, 8, "local", optimizer, **options)
        own = part(x, [4, 4]), part(y, [4, 4]), 4
        for inside in "10" if LONG else str(i % 2):
            os.environ["MXNET_UPDATE_ON_KVSTORE"] = inside
            with early_sums() as early:
                module, together = train(net, *own, create(bucket_mb=1e-5), optimizer, **options)
            is_spread = words and inside == "1"
            assert bool(early) is not ("accumulate" in options or is_spread)
            assert (module.updates.updater is None) is (inside == "1")
            compare(module, alone, i)
            assert rank or together["train-accuracy"] == history["train-accuracy"]
        if LONG or i in (2, 5):
            devices, _ = train(net, *own, create(), optimizer, context=TWO, **options)
            compare(devices, alone, f"{i}, two contexts")


def evaluation():
    x, y = data(rows=40)
    test = mx.io.NDArrayIter(x[:39], y[:39], 4)
    alone, history = train(mlp(), x, y, 8, "local", eval_data=mx.io.NDArrayIter(x, y, 8))
    module, together = train(mlp(), x, y, 4, create(), eval_data=test, shard=True)  # 20 examples and 19
    if rank == 0:
        np.testing.assert_allclose(params(module)["one_weight"], params(alone)["one_weight"], atol=1e-6)
        whole = dict(alone.score(mx.io.NDArrayIter(x[:39], y[:39], 8), "acc"))
        assert whole["accuracy"] == together["validation-accuracy"][-1]
    rows = mx.io.NDArrayIter(x[:39], y[:39], 4)
    whole = module.predict(rows).asnumpy()
    rows.take_part(size, rank)
    np.testing.assert_allclose(module.predict(rows).asnumpy(), whole, atol=1e-6)
    for draw in (mx.nd.random.uniform, mx.random.uniform):
        draws = everywhere(draw(shape=(3,)).asnumpy().tolist())
        assert draws[0] != draws[1]
        mx.random.seed(1)


def uneven():
    """Batches of 4 and of 12: every update is that of one process with batches of 16."""
    cases = [
        (False, SGD, {}, {}), (False, ADAM, {"begin_num_update": 3}, {"clip_global_norm": 0.05}),
        (True, SGD, {}, {"accumulate": 3}), (True, SGD, {}, {"clip_global_norm": 0.05}),
        (False, SGD, {"clip_gradient": 0.01}, {"accumulate": 2}), (False, SGD, {"rescale_grad": 0.25}, {}),
    ]  # fmt: skip
    sizes = [4, 12]
    for i, (words, (name, arguments), more, options) in enumerate(cases):
        os.environ["MXNET_UPDATE_ON_KVSTORE"] = str(i % 2)
        net, (x, y), own = embedding() if words else mlp(), data(words, 80), (name, {**arguments, **more})
        alone, _ = train(net, x, y, 16, "local", own, **options)
        where = TWO if i % 3 == 0 else None
        mine = part(x, sizes), part(y, sizes), sizes[rank]
        module, _ = train(net, *mine, create(bucket_mb=1e-5), own, context=where, **options)
        compare(module, alone, i)
    # 2 batches of 4 and 3 of 12: the last update is the mean over 12, or the sum if rescale_grad says how to scale
    steps = [range(0, 16), range(16, 32), range(32, 44)]
    for words, arguments in ((False, {}), (True, {}), (False, {"rescale_grad": 0.25})):
        net, (x, y), own = embedding() if words else mlp(), data(words, 44), ("sgd", {**SGD[1], **arguments})
        mine = [r for step in steps for r in (step[-12:] if rank else step[:-12])]
        module, _ = train(net, x[mine], y[mine], sizes[rank], create(), own, epochs=1)
        alone, _ = train(net, x, y, 16, "local", own, epochs=0)
        for step in steps:
            alone.forward_backward(mx.io.DataBatch([mx.nd.array(x[step])], [mx.nd.array(y[step])]))
            alone.scale_gradients(1 if arguments else 16 / len(step))
            alone.update()
        compare(module, alone, (words, arguments))
    # batches of 4, 4 and 2 and of 12: the short one counts as a whole one, as in one process
    (x, y), own, joined, modules = data(rows=46), [], [], []
    for start, count in ((0, 4), (16, 4), (32, 2)):
        rows = [range(start, start + count), range(start + count, start + count + 12)]
        own.append((x[rows[rank]], y[rows[rank]]))
        joined.append(tuple(a[start : start + count + 12] for a in (x, y)))
    for batches, kvstore in ((own, create()), (joined, "local")):
        mx.random.seed(5)
        modules.append(mx.mod.Module(mlp(), context=mx.cpu()))
        modules[-1].fit(batches, kvstore=kvstore, num_epoch=2, initializer=mx.init.Xavier())
    compare(*modules, "a short batch")
    for options in ({"compression_params": {"type": "2bit", "threshold": 0.01}}, {"amp": "fp16"}):
        module = mx.mod.Module(mlp(), context=mx.cpu(), **options)
        rows = mx.io.NDArrayIter(*data(rows=44), sizes[rank])
        module.fit(rows, kvstore=create(), optimizer="adam", num_epoch=1)
        compare(module, module, options)


def refused():
    """Settings that would make parameters differ, or processes wait for each other, are refused in all."""

    def fit(**options):
        rows = {"eval_data": mx.io.NDArrayIter(*data(), 8), "kvstore": create(), "num_epoch": 2, **options}
        mx.mod.Module(mlp(), context=mx.cpu()).fit(mx.io.NDArrayIter(*data(), 8), **rows)

    schedule, test = mx.lr_scheduler.FactorScheduler(rank + 1), {"test": mx.io.NDArrayIter(*data(), 8)}
    for options, text in [
        ({"optimizer_params": {"learning_rate": 0.1 + 0.1 * rank}}, "SGD: lr is 0.1 on rank 0 and 0.2 on "),
        ({"optimizer_params": {"rescale_grad": 1 / (rank + 1)}}, "SGD: rescale_grad is 1.0 on rank 0 and "),
        ({"optimizer_params": {"lr_scheduler": schedule}}, "lr_scheduler.step is 1 "),
        ({"kvstore": create(("dist_sync", "dist_async")[rank])}, "the kind of store is 'dist_sync' on rank"),
        ({"num_epoch": rank + 1}, "fit: num_epoch is 1 on rank 0 and 2 on rank 1"),
        ({"begin_epoch": rank}, "fit: begin_epoch is 0 on rank 0 and 1 on rank 1"),
        ({"eval_data": test if rank else None}, "fit: eval_data is [] on rank 0 and ['test'] on rank 1"),
        ({"eval_metric": ("acc", "ce")[rank]}, "fit: eval_metric is ['accuracy'] on rank 0 and ['cross-"),
        ({"eval_every_n_batches": rank + 1}, "fit: eval_every_n_batches is 1 on rank 0"),
        ({"accumulate": rank + 1}, "fit: accumulate is 1 on rank 0"),
        ({"clip_global_norm": (None, 1.0)[rank]}, "fit: clip_global_norm is None on rank 0"),
        ({"on_nonfinite": ("skip", "raise")[rank]}, "fit: on_nonfinite is 'skip' on rank 0"),
        ({"shard": bool(rank)}, "fit: shard is False on rank 0"),
        ({"dry_run": bool(rank)}, "fit: dry_run is False on rank 0"),
        ({"checkpoint": ("saved", None)[rank]}, "fit: checkpoint is True on rank 0 and False on rank 1"),
        ({"callbacks": [mx.callback.Checkpoint("saved")][rank:]}, "fit: checkpoint is True on rank 0"),
    ]:
        said = expect(ArgumentError, text, lambda options=options: fit(**options))
        assert said.endswith("; use the same value in all processes"), said
    text = "bucket_mb is 1.0 on rank 0 and 2.0 on rank 1"
    expect(ArgumentError, text, lambda: create(bucket_mb=1 + rank).init("w", mx.nd.zeros((2,))))


def left_out():
    """What is not finite in one process is left out in both, also if some of it was sent while backward ran."""
    x, y = data(rows=40)
    x[9] = np.nan  # in a batch of rank 0
    own = part(x, [4, 4]), part(y, [4, 4]), 4
    for options in ({}, {"accumulate": 2}):
        module, _ = train(mlp(), *own, create(bucket_mb=1e-5), on_nonfinite="skip", epochs=1, **options)
        assert module.optimizer.num_update == (3 if options else 4)  # rank 1 has a rest
        values = everywhere(params(module))
        for name, value in values[0].items():
            assert np.isfinite(value).all()
            assert (value == values[1][name]).all()
        small = create(bucket_mb=1e-5)
        said = expect(NonFiniteError, "", lambda o=options, s=small: train(mlp(), *own, s, **o))
        assert ("another process" in said) is (rank == 1)
    # so is what is too large for float16, and the scale of the loss is that of all
    x, y = data(rows=48)
    x *= 0.01
    x, y = x[rank::2], y[rank::2]
    if rank == 1:
        x[9] = 100
    for options in ({}, {"accumulate": 2}, {"clip_global_norm": 0.1}):
        scales, module = [], mx.mod.Module(mlp(), amp="fp16", context=mx.cpu())
        options |= {"batch_end_callback": lambda _, s=scales, m=module: s.append(m.loss_scales()[0].value)}
        small, rows = create(bucket_mb=1e-5), mx.io.NDArrayIter(x, y, 4)
        module.fit(rows, kvstore=small, num_epoch=2, initializer=mx.init.Xavier(), **options)
        weights = {k: v.tolist() for k, v in params(module).items()}
        every = everywhere((scales, module.optimizer.num_update, weights))
        assert every[0] == every[1]
        assert scales[-1] < scales[0]
        assert np.isfinite(params(module)["one_weight"]).all()
        assert 0 < module.optimizer.num_update < (6 if options.get("accumulate") else 12)
    # and in loops by hand
    module = mx.mod.Module(mlp(), amp="fp16", context=mx.cpu())
    module.bind([("data", (4, 5))], [("softmax_label", (4,))])
    module.init_params(mx.init.Xavier())
    module.init_optimizer(create(bucket_mb=1e-5))
    for i in range(9):
        scale = module.loss_scales()[0].value
        module.announce_update()
        module.forward_backward(mx.io.DataBatch([mx.nd.full((4, 5), 1e-3)], [mx.nd.zeros((4,))]))
        if rank == 0 and i == 7:
            module.store.grad("two_weight", 0)[:] = np.inf
        module.update()
        assert i < 5 or module.loss_scales()[0].value == (scale / 2 if i == 7 else scale)
    assert 3 <= module.optimizer.num_update < 9


class Lengths(mx.io.DataIter):
    """Eight batches of two rows of words of 4, 6 or 8, in an order that the seed decides."""

    def __init__(self, seed):
        super().__init__(2)
        self.provide_data, self.provide_label = [("data", (2, 8))], [("softmax_label", (2,))]
        self.default_bucket_key, self._seed = 8, seed
        self.reset()

    def reset(self):
        random = np.random.RandomState(self._seed)
        self._left = [random.randint(0, 20, (2, length)) for length in random.choice([4, 6, 8], 8)]

    def next(self):
        if not self._left:
            raise StopIteration
        words = self._left.pop()
        shapes = {"provide_data": [("data", words.shape)], "provide_label": self.provide_label}
        label = mx.nd.array(words[:, 0] % 3)
        return mx.io.DataBatch([mx.nd.array(words)], [label], bucket_key=words.shape[1], **shapes)


def early():
    """The bits do not depend on which sums begin early: dropout, fixed parameters, uneven parts; buckets."""
    x, y = data(rows=40)
    mine = slice(0, 12) if rank else slice(12, 40)

    def by_length(length):
        return embedding(), ("data",), ("softmax_label",)

    for kind in ("parts", "lengths"):
        found = []
        for bucket_mb in (1e-5, 64):
            mx.random.seed(5)
            if kind == "parts":
                module = mx.mod.Module(mlp(0.3, norm=True), context=mx.cpu(), fixed_param_names=["two_bias"])
                batches = mx.io.NDArrayIter(x[mine], y[mine], 4)
            else:
                module = mx.mod.BucketingModule(by_length, default_bucket_key=8, shard_rows=False)
                batches = Lengths(seed=rank)
            with early_sums() as sums:
                module.fit(batches, kvstore=create(bucket_mb=bucket_mb), optimizer="adam", num_epoch=2)
            assert bool(sums) is (bucket_mb < 1)
            found.append(params(module))
        values = everywhere(found[0])
        for name, value in found[1].items():
            assert (value == found[0][name]).all()
            assert kind == "parts" or (values[0][name] == values[1][name]).all()


class Seen(mx.metric.EvalMetric):
    """The rows, classes and sizes of batches."""

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


def resume():
    x, y = data(rows=90)

    def go(prefix, uneven, stop=None, resume=None, **options):
        mx.random.seed(7)
        module = mx.mod.Module(mlp(dropout=0.3, norm=True), context=mx.cpu())
        mine = slice(0, 90) if not uneven else slice(0, 30) if rank == 0 else slice(30, 90)

        def after_batch(param):
            if stop == "signal" and rank == 1 and (param.epoch, param.nbatch) == (1, 2):
                os.kill(os.getpid(), signal.SIGTERM)
            return stop == "callback" and rank == 0 and (param.epoch, param.nbatch) == (1, 3)

        options |= {"kvstore": create(), "optimizer": "adam", "num_epoch": 3, "shard": not uneven}
        options |= {"checkpoint": prefix and mx.callback.Checkpoint(prefix, 1, 2), "resume": resume}
        rows = mx.io.NDArrayIter(x[mine], y[mine], 8, shuffle=True)
        try:
            history = module.fit(rows, batch_end_callback=after_batch, eval_metric=["acc", Seen()], **options)
        except SystemExit as error:
            return error.code
        return params(module), history

    for uneven in (False, True):
        prefix = os.path.join(FOLDER, f"run{uneven}")
        whole, history = go(None, uneven)
        assert go(prefix, uneven, "signal") == 143
        first.barrier()
        values, rest = go(prefix, uneven, resume="auto")
        assert all((values[name] == whole[name]).all() for name in whole)
        for name in ("accuracy", "rows", "classes", "sizes"):
            assert history["train-" + name] == rest["train-" + name]
        assert history["train-rows"] == history["train-sizes"] == [90] * 3
        assert history["train-classes"] == [len(set(y.tolist()))] * 3
    assert [row["batch"] for row in history] == [(4, 8)[rank]] * 3
    # a limit on batches waits for the update that adds up gradients of several of them
    prefix = os.path.join(FOLDER, "accumulated")
    whole, _ = go(None, False, accumulate=3)
    assert [row["batch"] for row in go(prefix, False, accumulate=3, max_batches=8)[1]] == [6, 3]
    values, _ = go(prefix, False, resume="auto", accumulate=3)
    assert all((values[name] == whole[name]).all() for name in whole)
    _, history = go(None, False, "callback")
    assert [row["batch"] for row in history] == [6, 4 + rank]
    assert history.ended == ["a callback after batch 3 of epoch 1", "another process ended training"][rank]
    assert [row["batch"] for row in go(None, False, max_batches=7)[1]] == [6, 1]


for each in (same, evaluation, uneven, refused, left_out, early, resume):
    each()

"""One of several processes that train on files together; the first argument names what it does."""

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

import dpmodule as mx
from dpmodule.base import ArgumentError, LostWorkerError
from dpmodule.kvstore.ranks import Ranks
from dpmodule.kvstore.row_exchange import RowExchange
from helpers import hogwild

what, folder, *arguments = sys.argv[1:]
folder = Path(folder)
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
files = sorted(map(str, folder.glob("lines-*")))


def each_line(*modes):
    """Train on each line once, and count the rows that are sent."""
    sent = []

    def counted(owner, position):
        sum_rows = owner.sum_rows

        def count(self, *given):
            if given[position]:
                sent.append(sum(array.parts()[0].numel() for array in given[position]))
            return sum_rows(self, *given)

        owner.sum_rows = count

    counted(Ranks, 0)
    counted(RowExchange, 1)
    averages = {"average_every_n_batches": 7}, {"average_every_s": 0.01}, {"average_every_n_batches": 10**6}
    for mode in modes:
        for lists in (files, files[:1] if rank else files[1:]):
            for options in averages:
                sent.clear()
                net = hogwild.counting_net(420)
                with mx.AsyncExecutor() as run:
                    result = hogwild.train(run, net, lists, 1 if mode == "serial" else 2, mode, **options)
                    assert set(hogwild.counts(run, net)) == {1}
                assert (result.examples, result.workers >= size) == (420, True)
                own = (320, 100)[rank] if lists is files else (300, 120)[rank]
                assert sum(sent) == own, (sent, own)
                if options == averages[0]:
                    assert len(sent) >= 300 // 4 // 7


def learns(*optimizers):
    """Two processes of two workers come near the parameters of one worker."""
    bags = sorted(map(str, folder.glob("bag-*")))

    def learned(workers, **options):
        rows = mx.sym.sequence_pool(hogwild.rows_of(1, name="row"), pool_type="sum")
        net = mx.sym.LogisticRegressionOutput(rows, mx.sym.Variable("label"), name="p")
        feed = hogwild.described(**hogwild.BAGS)
        with mx.AsyncExecutor() as run:
            for _ in range(12):
                more = {"eval_metric": ["mse", "auc"], "initializer": mx.init.Zero(), **options}
                result = run.run_from_files(net, feed, bags, workers, **more)
            assert result.examples == 400
            return hogwild.parameters(run.module(net)), dict(result.metric)

    for optimizer in optimizers:
        rate = {"adam": 0.03, "sgd": 1.0}.get(optimizer, 0.3)
        more = {"optimizer": optimizer, "optimizer_params": {"learning_rate": rate}}
        values, metric = learned(2, average_every_n_batches=2, **more)
        one, alone = learned(1, **more)
        assert abs(metric["mse"] - alone["mse"]) < 0.03
        for name, value in one.items():
            assert np.corrcoef(values[name].ravel(), value.ravel())[0, 1] > 0.99, (optimizer, name)
            assert np.linalg.norm(values[name] - value) < 0.4 * np.linalg.norm(value), (optimizer, name)
        print(optimizer, metric, {name: value.tolist() for name, value in values.items()})


def dense():
    """Dense parameters begin as those of rank 0; networks of other sizes are refused."""
    paths, feed = sorted(map(str, folder.glob("part-*"))), hogwild.described(5, **hogwild.DENSE)

    def trained(**options):
        module = hogwild.dense_module()
        sgd = {"optimizer": "sgd", "optimizer_params": {"learning_rate": 0.01}}
        mx.random.seed(1 + rank * bool(options))
        with mx.AsyncExecutor() as run:
            more = {"initializer": mx.init.Uniform(0.3), **sgd, **options}
            run.run_from_files(module, feed, paths, 1, mode="serial", **more)
        return hogwild.parameters(module)

    mine, alone = trained(average_every_n_batches=1), trained()
    print({name: value.tolist() for name, value in mine.items()})
    # small steps add up as one process's do, halved as means do
    for name, value in alone.items() if rank == 0 else ():
        np.testing.assert_allclose(mine[name], value, atol=0.03, err_msg=name)
    try:
        with mx.AsyncExecutor() as run:
            hogwild.train(run, hogwild.counting_net(5 + rank), files, 1, "serial", average_every_s=1)
    except (ArgumentError, LostWorkerError) as error:
        print(error)
    else:
        raise SystemExit("no error")


def saves():
    """Train with snapshots, and resume from the last one."""
    prefix, net = str(folder / "now"), hogwild.counting_net(12_000)

    def look(progress):
        run.snapshot(prefix)

    with mx.AsyncExecutor(timeout_s=20) as run:
        more = {"average_every_n_batches": 20, "callback": look, "callback_s": 0.01}
        resume = run.last_snapshot(prefix) and prefix
        result = hogwild.train(run, net, files, 2, "native", slow=True, resume=resume, **more)
        print(result.examples, set(hogwild.counts(run, net)) == {1})
        run.snapshot(prefix)
        assert run.last_snapshot(prefix).done == files


def lost(who, how):
    """Lose a process in the middle of a run."""

    def look(progress):
        if rank == int(who) and how == "raises":
            raise RuntimeError("on purpose")
        if rank == int(who):
            os.kill(os.getpid(), getattr(signal, how))

    more = {"average_every_n_batches": 1, "callback": look, "callback_s": 0.1}
    try:
        with mx.AsyncExecutor(timeout_s=0.5) as run:
            for _ in range(100):
                hogwild.train(run, hogwild.counting_net(400), files, 1, "serial", **more)
    except LostWorkerError as error:
        print(error)
    except RuntimeError as error:
        print(error)
        time.sleep(1)


{"each_line": each_line, "learns": learns, "dense": dense, "saves": saves, "lost": lost}[what](*arguments)

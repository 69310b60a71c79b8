"""Runs over files whose tables are spread over processes: equal to whole tables, saved, resumed, and small."""

import os
import resource
import sys
from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import BoundsError, StateError
from helpers import hogwild

folder = Path(sys.argv[1])
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
bags = sorted(map(str, folder.glob("bag-*")))
feed = hogwild.described(**hogwild.BAGS)
OPTIMIZERS = {
    "sgd": {"learning_rate": 0.1, "momentum": 0.9},
    "adagrad": {"learning_rate": 0.3},
    "plainadagrad": {"learning_rate": 0.3, "wd": 0.01},
    "adam": {"learning_rate": 0.02},
    "ftrl": {"learning_rate": 0.1},
}


def network():
    """Return a network whose two tables share a slot."""
    words = mx.sym.Variable("words", stype="ragged")
    pools = [
        mx.sym.sequence_pool(hogwild.rows_of(width, name=name, slot=words), pool_type=pool)
        for width, name, pool in ((4, "a", "sum"), (1, "b", "mean"))
    ]
    last = mx.sym.FullyConnected(mx.sym.Concat(*pools, dim=1), num_hidden=1, name="fc")
    return mx.sym.LogisticRegressionOutput(last, mx.sym.Variable("label", shape=(0, 1)), name="p")


def train(run, symbol, optimizer, files=bags, **options):
    more = {
        "optimizer_params": OPTIMIZERS[optimizer],
        "initializer": mx.init.Uniform(0.2),
        "eval_metric": "mse",
    }
    return run.run_from_files(symbol, feed, files, 1, ["p", "words"], optimizer=optimizer, **more, **options)


def same(found, wanted, name):
    for key, array in wanted.items():
        np.testing.assert_allclose(found[key], array, atol=2e-6, err_msg=f"{name} {key}")


for optimizer in OPTIMIZERS:
    ends = []
    for options in {}, {"shard_rows": False}:
        mx.random.seed(5)
        symbol = network()
        with mx.AsyncExecutor() as run:
            for _ in range(2):
                result = train(run, symbol, optimizer, average_every_n_batches=3, **options)
            updates = run.module(symbol).updates
            ends.append((hogwild.parameters(run.module(symbol)), [*result, dict(result.metric)["mse"]]))
            if options:
                assert not updates.spread_names()
                continue
            assert sorted(updates.spread_names()) == ["a_weight", "b_weight"], updates.spread_names()
            assert updates.store._tables["a_weight"].own.shape[0] <= hogwild.WORDS / size + 1
            assert len(list(run.infer_from_files(symbol, feed, bags, 2, "p"))) == 400 // 8
            updates.store.barrier()
    if (
        optimizer == "ftrl"
    ):  # on whole tables, each update also computes the rows without a gradient from their states
        np.testing.assert_allclose(ends[0][1], ends[1][1], rtol=0.05)
        continue
    same(ends[0][0], ends[1][0], optimizer)
    np.testing.assert_allclose(ends[0][1], ends[1][1], rtol=1e-4)

# a resumed run, whose processes have other files to read, ends as one with whole tables
ends = []
for resumes, options in (False, {}), (True, {}), (True, {"shard_rows": False}):
    mx.random.seed(5)
    symbol, asked = network(), []
    with mx.AsyncExecutor() as run:

        def look(progress, run=run, asked=asked):
            if not asked and progress.batches:
                asked.append(run.snapshot(f"{folder}/now"))

        how = {"resume": f"{folder}/now"} if resumes else {"callback": look, "callback_s": 1e-6}
        result = train(run, symbol, "adam", average_every_n_batches=1, **how, **options)
        assert (result.examples < 400) is resumes, result.examples
        ends.append(hogwild.parameters(run.module(symbol)))
        if options and rank == 0:
            run.module(symbol).save_checkpoint(f"{folder}/whole", 1, save_optimizer_states=True)
same(ends[1], ends[2], "resumed")

# a module with states from a file keeps them, and its tables whole
mx.kv.create("dist_sync").barrier()
module = mx.mod.Module.load(f"{folder}/whole", 1, True, data_names=["words"], label_names=["label"])
with mx.AsyncExecutor() as run:
    empty = folder / f"empty-{rank}"
    empty.write_text("")
    train(run, module, "adam", [str(empty)], average_every_n_batches=4)
assert not module.updates.spread_names()
assert all(state.asnumpy().any() for state in module.updates.states_by_name()["a_weight"])

# by seconds; runs that need whole tables
with mx.AsyncExecutor() as run:
    symbol = network()
    assert train(run, symbol, "sgd", average_every_s=0.01).examples == 400
    for options in {"mode": "serial", "average_every_s": 1}, {}:
        with pytest.raises(StateError, match="a_weight, b_weight of the program are spread over processes"):
            train(run, symbol, "sgd", **options)

# no process holds a whole table of 122 MB, or its states
with mx.AsyncExecutor() as run:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    rows = mx.sym.sequence_pool(hogwild.rows_of(16, 2_000_000, name="large"), pool_type="sum")
    large = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(rows, num_hidden=2), mx.sym.Variable("label"))
    run.run_from_files(large, feed, bags, 2, optimizer="adagrad", average_every_n_batches=5)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10) - before
    assert grown < 2 * 122 / size + 50, grown

# a row that is none, of which all processes learn
with mx.AsyncExecutor() as run:
    wrong = folder / f"wrong-{rank}"
    wrong.write_text(f"1 {hogwild.WORDS if rank else 1} 1 0\n")
    with pytest.raises(BoundsError, match=r"rank [1-9] looks up row 50 of a table with 50 rows"):
        train(run, network(), "sgd", [str(wrong)], average_every_n_batches=1)

"""The classes of MXNet's first data-parallel trainer, against real MXNet 1.9.1."""

import json
from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx
from dpmodule import executor_manager
from dpmodule.base import ArgumentError, ShapeError
from helpers import trainer_cases as CASES

FOLDER = Path(__file__).parents[1] / "data" / "goldens" / "trainers"


def batches():
    return mx.io.NDArrayIter(*CASES.data(), 15)


def manager(**kwargs):
    net = CASES.network(mx)[0]
    return executor_manager.DataParallelExecutorManager(net, [mx.cpu(0), mx.cpu(1)], batches(), **kwargs)


def test_a_loop_by_hand_ends_where_mxnet_ends():
    golden = json.loads((FOLDER / "trainers.json").read_text())["manager"]
    found = CASES.manager(mx, executor_manager)
    assert set(found) == set(golden)
    for name, value in found.items():
        np.testing.assert_allclose(value, golden[name], 1e-4, 1e-5, err_msg=name)


def test_buckets_share_parameters():
    net, data = CASES.network(mx)[0], batches()
    data.default_bucket_key = "a"
    both = executor_manager.DataParallelExecutorManager(net, [mx.cpu(0)], data, sym_gen=lambda key: net)
    batch = data.next()
    batch.provide_data, batch.provide_label, batch.bucket_key = data.provide_data, data.provide_label, "b"
    both.load_data_batch(batch)
    both.forward(is_train=True)
    both.backward()
    assert set(both.execgrp_bucket) == {"a", "b"}
    first = both.execgrp_bucket["a"].param_arrays[0][0]
    first[:] = 3
    assert (both.curr_execgrp.param_arrays[0][0].asnumpy() == 3).all()
    with pytest.raises(ArgumentError, match="monitor"):
        both.install_monitor(mx.mon.Monitor(1))


def test_monitor_sees_outputs():
    watched, monitor = manager(), mx.mon.Monitor(1, pattern="fc2_output")
    watched.install_monitor(monitor)
    _, args, aux = CASES.network(mx)
    watched.set_params(args, aux)
    monitor.tic()
    watched.load_data_batch(batches().next())
    watched.forward()
    assert {name for _, name, _ in monitor.toc()} == {"fc2_output"}


def test_bad_input():
    with pytest.raises(ArgumentError, match="work_load_list has 1 entries for 2"):
        manager(work_load_list=[1])
    shared = mx.sym.Variable("data") + mx.sym.Variable("data")
    with pytest.raises(ArgumentError, match="more than one argument named data"):
        executor_manager._check_arguments(shared)
    with pytest.raises(ShapeError, match="60 samples, expected 15"):
        manager().load_data_batch(mx.io.NDArrayIter(*CASES.data(), 60).next())

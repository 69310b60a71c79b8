"""Monitor, with a stand-in for an executor: what it collects, when, and how it writes it."""

import logging

import pytest

import dpmodule as mx


class FakeExecutor:
    """Has two arguments and a state; a forward pass shows one output (and one input)."""

    def __init__(self):
        self.arg_dict = {"fc_weight": mx.nd.full((2, 2), 3), "data": mx.nd.ones((2, 2))}
        self.aux_dict = {"bn_moving_mean": mx.nd.zeros((2,))}
        self.callback, self.monitor_all = None, None

    def set_monitor_callback(self, callback, monitor_all=False):
        self.callback, self.monitor_all = callback, monitor_all

    def forward(self):
        if self.monitor_all:
            self.callback("fc_data", self.arg_dict["data"])
        self.callback("fc_output", mx.nd.array([0, 4, 0, 0]))


def watched(*args, **kwargs):
    exe, monitor = FakeExecutor(), mx.mon.Monitor(*args, **kwargs)
    monitor.install(exe)
    return monitor, exe


def step(monitor, exe):
    monitor.tic()
    exe.forward()
    return monitor.toc()


def test_outputs_arguments_and_states():
    found = {"fc_output": "2.0", "fc_weight": "3.0", "data": "1.0", "bn_moving_mean": "0.0"}
    assert step(*watched(1)) == [(1, name, f"{value}\t") for name, value in found.items()]


def test_every_interval_th_step():
    monitor, exe = watched(2, pattern="fc_output")
    wanted = [[(n, "fc_output", "2.0\t")] if n % 2 else [] for n in range(1, 6)]
    assert ([step(monitor, exe) for _ in range(5)], monitor.step) == (wanted, 5)
    assert not monitor.activated


def test_sorting_and_inputs():
    names = [name for _, name, _ in step(*watched(1, sort=True, monitor_all=True))]
    assert names == ["bn_moving_mean", "data", "fc_data", "fc_output", "fc_weight"]


SHOWN = [(3.5, "3.5\t"), ([mx.nd.ones((1,)), 2], "1.0\t2\t"), (mx.nd.ones((2, 1)), "[[1.]\n [1.]]\t")]


@pytest.mark.parametrize(("value", "text"), SHOWN)
def test_statistics_of_the_users_own(value, text):
    assert step(*watched(1, lambda array: value, "data")) == [(1, "data", text)]


def test_a_step_that_is_not_ended_is_dropped_by_the_next():
    monitor, exe = watched(1, pattern="fc_output")
    monitor.tic()
    exe.forward()
    assert (step(monitor, exe), monitor.toc()) == ([(2, "fc_output", "2.0\t")], [])


def test_printing(caplog):
    caplog.set_level(logging.INFO)
    monitor, exe = watched(1, pattern="fc_output")
    monitor.tic()
    exe.forward()
    monitor.toc_print()
    assert caplog.messages == ["Batch:       1 fc_output                      2.0\t"]

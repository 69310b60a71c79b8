"""Wrong calls of the package's small modules: schedules, monitor, profiler, utilities, pictures."""

import torch

import dpmodule as mx
from dpmodule import _files as files
from dpmodule import lr_scheduler as lr
from dpmodule import profiler, util
from dpmodule.base import (
    ArgumentError,
    DeviceError,
    FileError,
    MXNetError,
    ShapeError,
    SignatureError,
    StateError,
    UnknownNameError,
)
from dpmodule.context import num_gpus
from helpers.nets import mlp

CPU = torch.device("cpu")


class Executor:
    arg_dict, aux_dict = {"data": mx.nd.ones((2, 2))}, {}

    def set_monitor_callback(self, callback, monitor_all=False):
        pass


def watched(statistic):
    monitor = mx.mon.Monitor(1, statistic, "data")
    monitor.install(Executor())
    monitor.tic()
    monitor.toc()


@util.use_np
class Needs:
    def method(self):
        return 1


def registered(name):
    mx.registry.get_create_func(Executor, "shape")(name)


ROWS = [
    (lambda: lr.FactorScheduler(0), ArgumentError, "step is 0"),
    (lambda: lr.CosineScheduler(1.5), ArgumentError, "max_update is 1.5, expected an integer"),
    (lambda: lr.FactorScheduler(2, 1.1), ArgumentError, "factor is 1.1"),
    (lambda: lr.FactorScheduler(2, 0.5, warmup_steps=-1), ArgumentError, "warmup_steps is -1"),
    (lambda: lr.FactorScheduler(2, 0.5, warmup_steps=2, warmup_begin_lr=1), ArgumentError, "warmup_begin_lr"),
    (lambda: lr.FactorScheduler(2, 0.5, warmup_mode="x"), ArgumentError, "warmup_mode is 'x'"),
    (lambda: lr.MultiFactorScheduler([]), ArgumentError, r"step is \[\]"),
    (lambda: lr.MultiFactorScheduler([3, 3]), ArgumentError, "increasing"),
    (lambda: lr.MultiFactorScheduler([1, 3], 2.0), ArgumentError, "factor is 2.0"),
    (lambda: lr.PolyScheduler(0), ArgumentError, "max_update is 0"),
    (lambda: lr.PolyScheduler(5, warmup_steps=7), ArgumentError, "warmup_steps is 7"),
    (lambda: lr.LRScheduler(warmup_steps=4).get_warmup_lr(4), ArgumentError, "num_update is 4"),
    (lambda: lr.LRScheduler()(1), NotImplementedError, "LRScheduler"),
    (lambda: lr.OneCycle(0.1, 10, anneal="up"), ArgumentError, 'anneal is .up., expected "cos" or "linear"'),
    (lambda: lr.OneCycle(0.1, 10, 2), ArgumentError, "warmup_share is 2"),
    (lambda: lr.ReduceOnPlateau("x", 1), ArgumentError, "factor is 1"),
    (lambda: lr.ReduceOnPlateau("x", mode="auto"), ArgumentError, "mode is .auto."),
    (lambda: watched(lambda array: {}), StateError, "stat_func returned dict for data, expected an NDArray"),
    (lambda: mx.mon.Monitor(0), ArgumentError, "interval is 0"),
    (lambda: mx.mon.Monitor(1, pattern="("), ArgumentError, "pattern is .*expected a regular expression"),
    (lambda: profiler.set_config(speed=1), ArgumentError, "no option speed"),
    (
        lambda: profiler.Domain("a").new_counter("b", "c"),
        SignatureError,
        "b: value is 'c', expected a number",
    ),
    (lambda: profiler.set_state("go"), UnknownNameError, 'expected "run" or "stop"'),
    (lambda: profiler.dumps(sort_by="name"), ArgumentError, "sort_by"),
    (lambda: profiler.Event("x").stop(), StateError, "without start"),
    (lambda: mx.nd.ones((2,), ctx=torch.device("meta")), UnknownNameError, "unknown device type 'meta'"),
    (lambda: mx.nd.ones((2,), ctx=torch.device("cuda", 98)), DeviceError, r"gpu\(98\) does not exist"),
    (lambda: mx.mod.Module(mlp(), context=[CPU, 0]), ArgumentError, "expected a Context or a list such as"),
    (lambda: Needs().method(), MXNetError, r"no mx\.np arrays"),
    (util.use_np(lambda: 1), MXNetError, r"no mx\.np arrays"),
    (util.use_np_array(lambda: 1), MXNetError, r"no mx\.np arrays"),
    (lambda: util.set_np(), MXNetError, r"no mx\.np arrays"),
    (lambda: util.use_np(3), ArgumentError, "use_np_array: got 3, expected a function or a class"),
    (lambda: util.get_gpu_memory(num_gpus()), DeviceError, "does not exist"),
    (lambda: util.get_cuda_compute_capability(mx.cpu()), ArgumentError, "expected a GPU"),
    (lambda: mx.io.io._init_data(None, False, "data"), ArgumentError, "data is empty"),
    (lambda: mx.np, AttributeError, "mx.np is not available: .*; use mx.nd"),
    (lambda: mx.viz.print_summary(3), SignatureError, "symbol is int"),
    (lambda: mx.viz.print_summary(mlp(), {"softmax_label": (1,)}), ShapeError, "does not follow"),
    (lambda: mx.viz.print_summary(mlp(), positions=[1.0]), ArgumentError, "four numbers"),
    (lambda: files.write_set({}, "set"), ArgumentError, "one folder"),
    (lambda folder: files.write_set({str(folder / "nowhere" / "a"): b""}, "set"), FileError, "nowhere"),
    (lambda folder: files.write_atomically(folder / "nowhere" / "x", b""), FileError, "nowhere"),
    (lambda: registered("cube"), ArgumentError, "unknown shape 'cube'"),
    (lambda: mx.runtime.Features().is_enabled("NO_SUCH"), ArgumentError, "NO_SUCH"),
]

"""Wrong calls of `mx.callback`."""

import dpmodule as mx
from dpmodule.base import ArgumentError
from helpers.small_fits import trained

ROWS = [
    (lambda: mx.callback.EarlyStopping("train-accuracy", mode="best"), ArgumentError, "mode is 'best', expected one"),
    (lambda: mx.callback.EarlyStopping("train-accuracy", patience=-1), ArgumentError, "patience is -1"),
    (lambda: mx.callback.EarlyStopping("train-accuracy", min_delta=-1), ArgumentError, "min_delta is -1"),
    (lambda: mx.callback.EMA(1), ArgumentError, "decay is 1"),
    (lambda: mx.callback.Checkpoint("a", every_n_batches=0), ArgumentError, "every_n_batches is 0, expected at least"),
    (lambda: mx.callback.Checkpoint("a", keep_best=2), ArgumentError, "keep_best and metric belong together"),
    (lambda: mx.callback.do_checkpoint("a", keep_last=0), ArgumentError, "do_checkpoint: keep_last is 0, expected at"),
    (lambda: mx.callback.module_checkpoint(None, "a", keep_best=1), ArgumentError, "module_checkpoint: keep_best and"),
    (lambda: mx.callback.Speedometer(1, 0), ArgumentError, "frequent is 0"),
    (lambda: mx.callback.log_train_metric(0), ArgumentError, "period is 0"),
    (lambda: mx.callback.ProgressBar(0), ArgumentError, "total is 0"),
    (lambda: mx.callback.TqdmBar(every=0), ArgumentError, "every is 0"),
    (lambda: trained(callbacks=[mx.callback.Speedometer(8)]), ArgumentError, "callbacks has .*Speedometer.*pass"),
]  # fmt: skip

"""Names of MXNet that change nothing here, or live elsewhere."""

import dpmodule as mx


def test_bulk_sizes_nest():
    before = mx.engine.set_bulk_size(7)
    with mx.engine.bulk(3):
        assert mx.engine.set_bulk_size(4) == 3
    assert mx.engine.set_bulk_size(before) == 7


def test_old_paths():
    assert mx.misc.FactorScheduler is mx.lr_scheduler.FactorScheduler
    assert mx.libinfo.find_lib_path()
    assert mx.libinfo.find_lib_path("libmxnet") == []

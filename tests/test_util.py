"""The switches of `mx.util`."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule import util
from dpmodule.context import num_gpus


def test_np_shape_nests_and_comes_back():
    assert not util.is_np_shape()
    scope = util.np_shape()
    with scope:
        with util.np_shape(False), scope:
            assert util.is_np_shape()
        assert util.is_np_shape()
    with pytest.raises(KeyError), util.np_shape():
        raise KeyError
    assert not util.is_np_shape()


def test_set_np_shape_returns_the_former_value():
    assert util.set_np_shape(True) is False
    assert util.set_np_shape(False) is True


def test_use_np_of_a_class():
    class Base:
        def inherited(self):
            return util.is_np_shape()

    @util.use_np_shape
    class Asked(Base):
        def __init__(self):
            self.made = util.is_np_shape()

        @property
        def prop(self):
            return util.is_np_shape()

        @staticmethod
        def static():
            return util.is_np_shape()

        @classmethod
        def named(cls):
            return cls.__name__, util.is_np_shape()

    one = Asked()
    assert [one.made, one.inherited(), one.prop, one.static(), Asked.static()] == [True] * 5
    assert one.named() == ("Asked", True)
    assert isinstance(one, Asked)
    assert not Base().inherited()


def test_np_arrays_can_only_be_off():
    with util.np_array(False):
        assert not util.is_np_array()
    util.set_np(array=False)
    assert util.is_np_shape()
    util.reset_np()
    assert not util.is_np_shape()
    assert util.get_gpu_count() == num_gpus()


def test_set_module():
    @util.set_module("elsewhere")
    def moved():
        pass

    @util.set_module(None)
    def stays():
        pass

    assert (moved.__module__, stays.__module__) == ("elsewhere", __name__)


def test_data_folder(monkeypatch):
    monkeypatch.delenv("MXNET_HOME", raising=False)
    assert mx.base.data_dir() == mx.base.data_dir_default()
    assert mx.base.data_dir().endswith("mxnet")
    monkeypatch.setenv("MXNET_HOME", "/some/where")
    assert mx.base.data_dir() == "/some/where"


def test_io_names_data_as_iterators_do():
    pairs = mx.io.utils._init_data([np.ones(2), np.zeros(2)], False, "data")
    assert [name for name, _ in pairs] == ["_0_data", "_1_data"]
    assert mx.io.io._init_data(None, True, "label") == []
    assert (mx.log.INFO, mx.log.WARNING) == (20, 30)

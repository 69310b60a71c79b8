"""The switches of `mx.util`."""

import pytest

from dpmodule import util


def test_np_shape_nests_and_comes_back():
    assert not util.is_np_shape()
    scope = util.np_shape()
    with scope:
        assert util.is_np_shape()
        with util.np_shape(False):
            assert not util.is_np_shape()
            with scope:
                assert util.is_np_shape()
        assert util.is_np_shape()
    with pytest.raises(KeyError), util.np_shape():
        raise KeyError
    assert not util.is_np_shape()


def test_set_np_shape_returns_the_former_value():
    assert util.set_np_shape(True) is False
    assert util.set_np_shape(False) is True


def test_use_np_shape():
    @util.use_np_shape
    def inside(value):
        """Say what is on."""
        return util.is_np_shape(), value

    assert inside(3) == (True, 3)
    assert inside.__doc__ == "Say what is on."
    assert not util.is_np_array()


def test_environment(monkeypatch):
    monkeypatch.delenv("DPMODULE_TEST_VARIABLE", raising=False)
    assert util.getenv("DPMODULE_TEST_VARIABLE") is None
    util.setenv("DPMODULE_TEST_VARIABLE", "on")
    assert util.getenv("DPMODULE_TEST_VARIABLE") == "on"
    util.setenv("DPMODULE_TEST_VARIABLE", None)
    assert util.getenv("DPMODULE_TEST_VARIABLE") is None

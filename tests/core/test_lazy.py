"""Attributes, methods and registered classes that are imported or made when they are first asked for."""

import sys
import types

import pytest

import dpmodule as mx
from dpmodule._core import lazy
from dpmodule.registry import Registry


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of two modules, one of them with an attribute that it gives the package."""
    folder = tmp_path / "waiting"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "from dpmodule._core import lazy\n"
        "__all__ = ['One', 'Two', 'second']\n"
        "__getattr__, __dir__ = lazy.attributes(__name__, __all__, {'first': 'One Two', 'second': ''})\n"
    )
    (folder / "first.py").write_text("class One: pass\nclass Two: pass\n")
    (folder / "second.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield __import__("waiting")
    for name in [name for name in sys.modules if name.split(".")[0] == "waiting"]:
        del sys.modules[name]


def test_a_module_is_imported_when_its_attribute_is_asked_for(package):
    assert "waiting.first" not in sys.modules
    assert package.Two is sys.modules["waiting.first"].Two
    assert "Two" in vars(package)
    assert "waiting.second" not in sys.modules
    assert isinstance(package.second, types.ModuleType)


def test_a_module_hands_on_what_it_imports_but_no_modules():
    found = types.ModuleType("outer")
    exec("import types\nfrom types import ModuleType as ModuleType\n_hidden = shown = 1", vars(found))
    assert lazy.public_names(vars(found)) == ["ModuleType", "shown"]


def test_a_method_is_made_once():
    made = []

    class Home:
        pass

    def make():
        made.append(1)
        return lambda self: (self, "called")

    Home.method = lazy.Method(Home, "method", make)
    one = Home()
    assert one.method() == (one, "called")
    assert Home().method()[1] == "called"
    assert made == [1]


def test_a_registry_knows_classes_that_wait(package):
    base = package.One
    registry = Registry(base, "thing")
    registry.add_later("waiting", {"first": "One"})
    assert list(registry.names()) == ["one"]
    assert len(registry.classes) == 1
    with pytest.raises(mx.MXNetError, match="expected one of one"):
        registry.find("two")

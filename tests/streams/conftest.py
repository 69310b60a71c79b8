"""Coroutines run in every kind of loop, pipes on every core, and functors with the extension and without."""

import inspect

import pytest

from helpers.functors import backend as backend
from helpers.loops import KINDS, run
from helpers.pipes import PROTOCOLS, make


@pytest.fixture(params=list(PROTOCOLS), ids=list(PROTOCOLS.values()))
def core(request):
    """Each core of pipes."""
    return request.param


@pytest.fixture
def opened(core):
    """A function that makes pipes, which are closed afterwards."""
    made = []
    yield lambda *args: made.append(make(core, *args)) or made[-1]
    for end in sum(made, ()):
        end.close()


@pytest.fixture(params=list(KINDS.values()), ids=list(KINDS))
def new_loop(request):
    """Each kind of event loop."""
    return request.param


def pytest_generate_tests(metafunc):
    if inspect.iscoroutinefunction(metafunc.function):
        metafunc.fixturenames.append("new_loop")
        metafunc.parametrize("new_loop", list(KINDS.values()), ids=list(KINDS))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    coroutine = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
    run(coroutine, pyfuncitem.callspec.params["new_loop"], 15.0)
    return True

"""A graph belongs to one thread: whoever uses it in another is told so, with the names of both."""

import re
import threading

import pytest

import dpmodule.autobatch as dy

pytestmark = pytest.mark.usefixtures("engine")


def in_thread(name, function):
    """Run a function in a thread of its own; return what it returns or raises."""
    found = []

    def run():
        try:
            found.append(function())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run, name=name)
    thread.start()
    thread.join()
    return found[0]


def refuses(name, function, owner="MainThread"):
    error = in_thread(name, function)
    assert isinstance(error, dy.StateError), error
    assert f"started in thread '{owner}' and is used in thread '{name}'" in str(error)
    assert re.search(r"\(at .*test_threads\.py:\d+\)", str(error))


def test_every_use_in_another_thread():
    m = dy.ParameterCollection()
    w, table = m.add_parameters((2, 2)), m.add_lookup_parameters((3, 2))
    network, x = dy.VanillaLSTMBuilder(1, 2, 2, m), dy.inputVector([1.0, 2.0])
    y, state = dy.tanh(w * x + x), network.initial_state().add_input(x)
    loss, size = dy.sum_elems(y * 2.0), dy.cg().size
    for use in (
        *(lambda: x + x, lambda: x * 2.0, lambda: w * x, lambda: -x, lambda: x[0], lambda: x[0:1]),
        *(lambda: dy.tanh(x), lambda: dy.esum([x] * 6), lambda: dy.pickneglogsoftmax(x, 1)),
        *(lambda: dy.inputVector([1.0]), lambda: dy.zeros(2), lambda: dy.random_normal(2), lambda: table[1]),
        *(lambda: dy.lookup_batch(table, [1, 2]), lambda: dy.parameter(w), lambda: dy.const_parameter(w)),
        *(lambda: state.add_input(x), lambda: network.initial_state().transduce([x])),
        *(lambda: x.set([3.0, 4.0]), y.value, y.npvalue, w.npvalue, lambda: dy.forward([y])),
        *(loss.backward, x.gradient, x.dim, dy.cg_checkpoint, dy.cg_revert),
    ):
        refuses("helper", use)
    assert dy.cg().size == size
    assert dy.square(x).vec_value() == [1.0, 4.0], "the owner goes on"


def test_whoever_renews_the_graph_owns_it():
    """Also where the number of a thread that has ended is that of the next one."""
    x = dy.scalarInput(1.0)
    for name in ("first", "second", "ended", "ended", "ended"):
        assert in_thread(name, lambda: (dy.renew_cg(), dy.scalarInput(2.0) * 3.0)[1].value()) == 6.0
        refuses("next", lambda: dy.scalarInput(1.0), owner=name)
        refuses("next", lambda: dy.inputVector([1.0]) + 1.0, owner=name)
    for use in (lambda: dy.scalarInput(1.0), x.value):
        with pytest.raises(dy.StateError, match="in thread 'ended' and is used in thread 'MainThread'"):
            use()
    for begin in (dy.renew_cg, lambda: dy.configure(autobatch=True)):
        begin()  # a graph without nodes is for whoever comes first
        assert in_thread("first", lambda: (dy.inputVector([1.0, 2.0]) * 2.0).vec_value()) == [2.0, 4.0]
        with pytest.raises(dy.StateError, match="started in thread 'first'"):
            dy.scalarInput(1.0)


def test_a_new_graph_while_another_thread_computes():
    is_inside, may_end, x = threading.Event(), threading.Event(), dy.scalarInput(2.0)

    def waits(x):
        if bool((x != 0).any()):
            is_inside.set()
            may_end.wait(10)
        return x * 3

    y = dy.wrap(waits, rows=True)(x)

    def disturb():
        is_inside.wait(10)
        calls = (dy.renew_cg, dy.cg_revert, lambda: dy.configure(autobatch=False), y.value)
        found.extend(in_thread("other", call) for call in calls)
        may_end.set()

    found, other = [], threading.Thread(target=disturb)
    other.start()
    assert y.value() == 6.0
    other.join()
    for error in found:
        assert isinstance(error, dy.StateError)
        assert "'other'" in str(error)
        assert "'MainThread'" in str(error)

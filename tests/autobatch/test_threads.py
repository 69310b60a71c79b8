"""A graph belongs to one thread: whoever uses it in another is told so, with the names of both."""

from __future__ import annotations

import re
import threading

import numpy as np
import pytest

import dpmodule.autobatch as dy
from helpers.programs import run_program

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
    network = dy.VanillaLSTMBuilder(1, 2, 2, m)
    x = dy.inputVector([1.0, 2.0])
    y, state = dy.tanh(w * x + x), network.initial_state().add_input(x)
    loss = dy.sum_elems(y * 2.0)
    size = dy.cg().size
    uses = {
        "an operator": lambda: x + x,
        "one with a number": lambda: x * 2.0,
        "a product": lambda: w * x,
        "a sign": lambda: -x,
        "an element": lambda: x[0],
        "a slice": lambda: x[0:1],
        "a function": lambda: dy.tanh(x),
        "one of two": lambda: dy.cmult(x, x),
        "a list": lambda: dy.esum([x] * 6),
        "a label": lambda: dy.pickneglogsoftmax(x, 1),
        "an input": lambda: dy.inputVector([1.0]),
        "a constant": lambda: dy.zeros(2),
        "random numbers": lambda: dy.random_normal(2),
        "a row": lambda: table[1],
        "rows": lambda: dy.lookup_batch(table, [1, 2]),
        "a parameter": lambda: dy.parameter(w),
        "a constant parameter": lambda: dy.const_parameter(w),
        "a step": lambda: state.add_input(x),
        "a sequence": lambda: network.initial_state().transduce([x]),
        "new values": lambda: x.set([3.0, 4.0]),
        "a value": y.value,
        "an array": y.npvalue,
        "a parameter's value": w.npvalue,
        "several values": lambda: dy.forward([y]),
        "gradients": loss.backward,
        "a gradient": x.gradient,
        "a shape": x.dim,
        "a checkpoint": dy.cg_checkpoint,
        "a way back": dy.cg_revert,
    }
    for use in uses.values():
        refuses("helper", use)
    assert dy.cg().size == size
    assert dy.square(x).vec_value() == [1.0, 4.0], "the owner goes on"
    loss.backward()


def test_whoever_renews_the_graph_owns_it():
    x = dy.scalarInput(1.0)

    def begin():
        dy.renew_cg()
        return (dy.scalarInput(2.0) * 3.0).value()

    assert in_thread("first", begin) == 6.0
    assert in_thread("second", begin) == 6.0
    for use in (lambda: dy.scalarInput(1.0), x.value):
        with pytest.raises(
            dy.StateError, match="started in thread 'second' and is used in thread 'MainThread'"
        ):
            use()
    dy.renew_cg()
    assert dy.scalarInput(1.0).value() == 1.0


def test_a_thread_whose_number_is_used_again():
    """The number of a thread that has ended is that of the next one."""
    for _ in range(5):
        assert in_thread("ended", lambda: (dy.renew_cg(), dy.scalarInput(2.0))[1].value()) == 2.0
        refuses("next", lambda: dy.scalarInput(1.0), owner="ended")
        refuses("next", lambda: dy.inputVector([1.0]) + 1.0, owner="ended")


def test_a_graph_without_nodes_is_for_whoever_comes_first():
    for begin in (dy.renew_cg, lambda: dy.configure(autobatch=True)):
        begin()
        assert in_thread("first", lambda: (dy.inputVector([1.0, 2.0]) * 2.0).vec_value()) == [2.0, 4.0]
        with pytest.raises(dy.StateError, match="started in thread 'first'"):
            dy.scalarInput(1.0)


def test_training_in_one_thread_after_the_other():
    m = dy.ParameterCollection()
    w, trainer = m.parameters_from_numpy(np.ones(2)), dy.SimpleSGDTrainer(m, 0.25)

    def step():
        dy.renew_cg()
        loss = dy.squared_norm(w)
        loss.backward()
        trainer.update()
        return loss.value()

    assert [in_thread(f"worker {k}", step) for k in range(3)] == [2.0, 0.5, 0.125]


def test_a_new_graph_while_another_thread_computes():
    is_inside, may_end, x = threading.Event(), threading.Event(), dy.scalarInput(2.0)

    def waits(x):
        if bool((x != 0).any()):
            is_inside.set()
            may_end.wait(10)
        return x * 3

    y = dy.wrap(waits, rows=True)(x)
    found = []

    def renew():
        is_inside.wait(10)
        for call in (dy.renew_cg, dy.cg_revert, lambda: dy.configure(autobatch=False), y.value):
            try:
                found.append(call())
            except dy.StateError as error:
                found.append(str(error))
        may_end.set()

    other = threading.Thread(target=renew, name="other")
    other.start()
    assert y.value() == 6.0
    other.join()
    for text in found:
        assert "'other'" in text
        assert "'MainThread'" in text


PROGRAM = """
import threading
import dpmodule.autobatch as dy

def work():
    try:
        dy.tanh(x)
    except dy.StateError as error:
        print("'MainThread'" in str(error) and "'helper'" in str(error))

x = dy.scalarInput(1.0)
dy.tanh(x), dy.tanh(x) + x, dy.tanh(x) + x
threading.Thread(target=work, name="helper").start()
"""


def test_functions_without_the_extension(engine):
    if engine == "auto":
        assert run_program(PROGRAM, DPMODULE_NATIVE="0").stdout == "True\n"

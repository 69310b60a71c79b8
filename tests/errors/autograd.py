"""Wrong calls of `mx.autograd`."""

import dpmodule as mx
from dpmodule.base import ArgumentError, DTypeError, ShapeError, StateError, UnknownNameError

nd, ag = mx.nd, mx.autograd


def variable(**options):
    array = nd.array([1, 2, 3])
    array.attach_grad(**options)
    return array


def unneeded():
    x = variable(grad_req="null")
    with ag.record():
        y = x * 2
    y.backward()


def user(returned, *more):
    """Record a function of a user's, whose backward returns something."""

    class Odd(ag.Function):
        def forward(self, x, *more):
            return x * 1

        def backward(self, dy):
            return returned

    def call():
        with ag.record():
            y = Odd()(variable(), *more)
        y.backward()

    return call


ROWS = [
    (lambda: variable().detach().backward(), StateError, "not in a computational graph"),
    (lambda: nd.ones(2).backward(), StateError, r"inside autograd\.record, from arrays with attach_grad"),
    (lambda: ag.backward([variable()], [None, None]), ArgumentError, "1 heads and 2 head_grads"),
    (lambda: ag.backward([3]), DTypeError, "heads holds int"),
    (lambda: variable().backward(nd.ones(4)), ShapeError, r"shape \(4,\)"),
    (lambda: variable().attach_grad("more"), UnknownNameError, "'more', expected one of null, write, add"),
    (lambda: variable().attach_grad(stype="coo"), ArgumentError, "coo"),
    (lambda: ag.mark_variables([variable()], []), ArgumentError, "1 variables, 0 gradients"),
    (lambda: ag.mark_variables(variable(), nd.ones(4)), ShapeError, r"expected \(3,\)"),
    (lambda: ag.grad(variable(), []), ArgumentError, "variables is empty"),
    (lambda: ag.grad(variable(), [nd.ones(3)]), StateError, "does not require gradient"),
    (lambda: ag.grad(variable(), [variable()]), StateError, "unreachable"),
    (lambda: ag.get_symbol(variable().detach()), StateError, "no computational graph"),
    (lambda: setattr(variable().detach(), "_fresh_grad", True), StateError, "no gradient"),
    (unneeded, StateError, "no inputs in the computational graph"),
    (user([3]), DTypeError, "Odd.backward returned int"),
    (user(3), TypeError, "not iterable"),
    (user(nd.ones(4)), ShapeError, r"Odd.backward returned shape \(4,\), expected \(3,\)"),
    (user((nd.ones(3),) * 2), ArgumentError, "Odd.backward returned 2 gradients, expected 1"),
    (user(None, 3), DTypeError, "Odd: input 1 is int 3, expected NDArray"),
]

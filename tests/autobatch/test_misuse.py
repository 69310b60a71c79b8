"""Wrong calls of every operation: both engines take and refuse the same ones with the same words, as DyNet decides."""

import json
import re
from pathlib import Path

import pytest

import dpmodule.autobatch as dy
from helpers.both_engines import DESCRIBED
from helpers.misuse import RIGHT, Runner, are_alike, wrong_calls, wrong_types
from helpers.programs import run_program

CALLS = [*RIGHT, *[f"dy.{name}(X(3))" for name in DESCRIBED]]
PROGRAM = """
import json
import dpmodule.autobatch as dy
from helpers.misuse import Runner
runner = Runner(dy)
print(json.dumps([runner.run(call)[:2] for call in {calls!r}]))
"""
# engine, batching, and whether every expression is computed when it is made
MANNERS = [("python", True, False), ("auto", True, False), ("auto", False, False), ("auto", False, True)]

ONCE_DIFFERENT = [  # what one engine took or refused in other words, or raised an error of torch's
    *("dy.pickneglogsoftmax_batch(X(3, n=2), [1])", "dy.hinge_batch(X(3, n=2), [1])", "dy.softmax(S(), [])"),
    *("S() + np.ones(2)", "dy.dropout_dim(X(3, 4), -LARGE, 1.0)", "X(4, 4)[9:1:-9, 2:2:0]", "T(5, 3)[1,]"),
    *("dy.pickrange(X(3, 4), 1, 3, 1)", "dy.pick(X(5, 4, 2), 1, 2.0)", "dy.pick(R(), 1, 1)", "X(3) + None"),
    *("dy.log_softmax(R(), [1, 2])", "dy.poisson_loss(X(1), 1e300)", "dy.vanilla_lstm_c(X(3, 4, 1), X(12))"),
    "dy.vanilla_lstm_gates(X(2, 2), X(3), X(12, 2), X(12, 3), X(12))",
    "dy.maxpooling2d(X(5, 4, 2), [2, 2], [LARGE, 2])",
    *("dy.pick_batch(X(3, n=2), [LARGE, 0], 1)", "dy.pick(X(3), LARGE, 1)"),
]


def outcomes(calls, engine, autobatch, immediate=False):
    """Run calls in one manner."""
    dy.configure(engine=engine, autobatch=autobatch)
    runner = Runner(dy, lambda: dy.renew_cg(immediate_compute=immediate))
    return [runner.run(call) for call in calls]


def disagreements(calls, manners):
    wanted, *others = [outcomes(calls, *manner) for manner in manners]
    rows = [(manner, *row) for manner, found in zip(manners[1:], others) for row in zip(calls, wanted, found)]
    return [row for row in rows if not are_alike(*row[2:])]


def test_arguments_of_wrong_types_are_refused_with_the_line(engine):
    taken = ("dy.log_softmax(X(4), None)", "dy.inputTensor(np.ones(3), batched=True)")
    calls = [call for call in wrong_types(CALLS) if call not in taken]
    assert len(calls) > 900
    found = zip(calls, outcomes(calls, engine, True))
    told = re.compile(r"ForeignValueError: .*\(at <call>:1\)", re.DOTALL)
    assert [(call, text) for call, (text, *_) in found if not told.match(text)] == []


OURS = "ForeignValue|Shape|Bounds|NegativeIndex|EmptySequence|Argument|StaleExpression"


def test_errors_of_functions_are_of_the_package_and_name_the_line(engine):
    calls = [c for c in wrong_calls(CALLS, 1500, seed=6) if re.match(r"dy\.[a-z]\w*\((?!.*float)", c)]
    told = re.compile(rf"TypeError|SyntaxError|OverflowError: int|({OURS})Error: .*\(at <call>:1\)", re.S)
    found = [(call, text) for call, (text, *_) in zip(calls, outcomes(calls, engine, True)) if text]
    assert len(found) > 500
    assert [each for each in found if not told.match(each[1])] == []


SLOW = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize(("count", "few"), [(600, 250), pytest.param(15_000, 15_000, marks=SLOW)])
def test_both_engines_refuse_alike(count, few):
    calls = [*ONCE_DIFFERENT, *CALLS, *wrong_calls(CALLS, count, seed=2)]
    assert disagreements(calls, MANNERS[:3]) == []
    assert disagreements(calls[:few], [MANNERS[0], MANNERS[3]]) == []


@pytest.mark.parametrize("count", [200, pytest.param(10_000, marks=SLOW)])
def test_the_same_without_the_extension(count):
    """There the functions in Python are others than beside the extension."""
    calls = [*ONCE_DIFFERENT, *CALLS, *wrong_calls(CALLS, count, seed=4)]
    done = run_program(PROGRAM.format(calls=calls), seconds=500, DPMODULE_NATIVE="0")
    assert done.returncode == 0, done.stderr
    wanted = [[text, json.loads(json.dumps(dim))] for text, dim, _ in outcomes(calls, "auto", False)]
    found = json.loads(done.stdout)
    assert [each for each in zip(calls, found, wanted) if each[1] != each[2]] == []


# documented in docs/differences/systems.md: taken here, refused by DyNet
TAKEN = {
    *("dy.pickneglogsoftmax(X(3, n=2), 1)", "dy.hinge(X(3, n=2), 1)", "dy.hinge_batch(X(3), [1, 0])"),
    *("dy.pickneglogsoftmax_batch(X(3), [1, 0])", "dy.hinge_dim(X(3, 4, n=2), [0, 1, 2, 0, 0, 1, 2, 0])"),
    *("dy.sum_dim(X(3, 4), [])", "dy.average([X(3), X(3), X(3, 1)])", "dy.argmax(X(3, 4), 'zero_gradient')"),
    *("dy.colwise_add(X(3), X(3))", "dy.esum((X(3), X(3)))"),
}
# refused here, where DyNet cuts a fraction off, or goes on with what cannot be
REFUSED = {
    *("dy.pickneglogsoftmax(X(3), 1.5)", "dy.pick(X(3), 1.5)", "dy.lookup_batch(T(5, 3), [1.5])"),
    *("dy.dropout(X(3), 2.0)", "dy.noise(X(3), float('nan'))", "dy.bmax(S(), X(3))", "dy.one_hot(2, [1, 3])"),
    "dy.kmh_ngram(X(3, 4), 0)",
}


def test_dynet_decides():
    """See tests/data/record_dynet.py."""
    refusals = json.loads((Path(__file__).parents[1] / "data" / "autobatch" / "refusals.json").read_text())
    assert set(refusals) >= TAKEN | REFUSED
    for call, (ours, *_) in zip(refusals, outcomes(refusals, "auto", True)):
        is_different = call in TAKEN | REFUSED
        assert (bool(ours) != bool(refusals[call])) == is_different, (call, ours, refusals[call])

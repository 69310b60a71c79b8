import pytest

import dpmodule as mx
from helpers.switched import fired, same_with_and_without

S = mx.sym
NAME = "common_subexpressions"
SHAPE = {"x": (3, 4)}
X, W, B = S.Variable("x"), S.Variable("w"), S.Variable("b")
VECTORS = [S.Variable(each) for each in ("gamma", "beta", "mean", "var")]


def loss(name):
    return S.SoftmaxOutput(S.FullyConnected(X, W, B, num_hidden=3, name=f"fc_{name}"), name=name)


def norm(name):
    return S.MakeLoss(S.tanh(S.BatchNorm(X, *VECTORS, fix_gamma=False, name=name)))


def part(index):
    return S.SliceChannel(X, num_outputs=2, axis=1)[index]


CASES = {
    "chains": (S.sigmoid(S.tanh(X)) * S.sigmoid(S.tanh(X)) + S.square(X), 2),
    "blocked": (S.BlockGrad(S.tanh(X)) * S.tanh(X), 1),
    "heads": (S.Group([S.tanh(X), S.sin(S.tanh(X)), S.tanh(X)]), 2),
    "views": (S.Group([S.Reshape(X, shape=(-1,)), S.Reshape(X, shape=(-1,))]), 1),
    "pieces": (part(0) * part(1) + part(0), 2),
    "scores of two losses": (S.Group([loss("one"), loss("two")]), 1),
    "losses": (S.MakeLoss(X) + S.MakeLoss(X), 0),
    "states": (norm("one") + norm("two"), 0),
    "0 and -0": (S.Group([1 / (X * 0.0), 1 / (X * -0.0)]), 0),
    "not random": (S.LeakyReLU(X, act_type="gelu") * S.LeakyReLU(X, act_type="gelu") * S.Dropout(X, p=0), 1),
    "random": (S.Group([S.Dropout(X), S.Dropout(X), S.random.uniform(shape=(50,)) - 0.5]), 0),
}


@pytest.mark.parametrize(("net", "count"), CASES.values(), ids=CASES)
def test_equal_operators_become_one(net, count):
    for grad_req, is_train in (("write", True), ("add", True), ("null", False)):
        options = {"grad_req": grad_req, "is_train": is_train, "seeds": True}
        assert same_with_and_without(net, SHAPE, NAME, **options).get(NAME, 0) == count


def test_operators_that_may_differ_stay_two():
    by_reader = S.Group([S.zeros((0, 4)) + X, S.zeros((0, 4)) + S.Variable("y")])
    one = by_reader.simple_bind(mx.cpu(), x=(3, 4), y=(2, 4))
    assert [out.shape for out in one.forward()] == [(3, 4), (2, 4)]


def test_the_variable_of_mxnet_switches_it_off(monkeypatch):
    net = S.exp(X) * S.exp(X)
    assert fired(net, SHAPE)[NAME] == 1
    monkeypatch.setenv("MXNET_ELIMINATE_COMMON_EXPR", "0")
    assert NAME not in fired(net, SHAPE)

import dpmodule as mx

S = mx.sym


def test_symbols_as_parameters_draw_for_each_element():
    net = S.random.uniform(S.Variable("low"), S.Variable("high"), shape=(1000,))
    out = net.eval(low=mx.nd.array([0, 10]), high=mx.nd.array([1, 20]))[0].asnumpy()
    assert out.shape == (2, 1000)
    assert (out[0] < 1).all()
    assert (out[1] >= 10).all()
    a, b = S.Variable("a"), S.Variable("b")
    for make in (S.random.poisson, S.random.exponential, S.random.multinomial, S.random.shuffle):
        assert make(a, out=None).list_arguments() == ["a"]
    for make in (S.random.normal, S.random.gamma, S.random.negative_binomial):
        assert make(a, b, shape=2, out=mx.nd.ones(2)).list_arguments() == ["a", "b"]
    assert S.random.randint(0, 5, out=3).list_arguments() == []
    assert "normal" in dir(S.random)


def test_classes_and_shuffling():
    p, x = S.Variable("p"), S.Variable("x")
    drawn = S.random.multinomial(p, shape=(100,), get_prob=False).eval(p=mx.nd.array([0, 1, 0]))[0]
    assert (set(drawn.asnumpy()), S.random.multinomial(p).num_outputs) == ({1}, 2)
    assert sorted(S.random.shuffle(x).eval(x=mx.nd.arange(20))[0].asnumpy()) == list(range(20))

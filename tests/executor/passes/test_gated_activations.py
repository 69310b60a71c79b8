import numpy as np

import dpmodule as mx

S = mx.sym
X = S.Variable("x")
NAME = "gated_activations"


def test_swish_and_hard_swish_are_one_call_and_other_products_stay():
    swish, hard = S.sigmoid(X) * X, X * S.hard_sigmoid(X, alpha=1 / 6, beta=0.5)
    others = [S.sigmoid(X) * S.tanh(X), X * S.hard_sigmoid(X), S.sigmoid(X + 1) * X, X + S.sigmoid(X)]
    values = np.array([[-4, -3, -1, 0, 2, 3, 9, np.inf, np.nan]], "f4")
    for net, training, count in (
        (swish, True, 1),
        (hard, False, 1),
        (hard, True, 1),
        *((o, False, 0) for o in others),
    ):
        bound, plain = (
            net.bind(mx.cpu(), {"x": mx.nd.array(values)}, {"x": mx.nd.zeros((1, 9))}) for _ in range(2)
        )
        bound.forward(is_train=training)
        assert bound.program(training).low.fired.get(NAME, 0) == count
        with mx.executor.disabled(NAME):
            plain.forward(is_train=training)
        np.testing.assert_allclose(bound.outputs[0].asnumpy(), plain.outputs[0].asnumpy(), 1e-6, 1e-6)
        if training:
            for each in (bound, plain):
                each.backward([mx.nd.ones((1, 9))])
            found, want = (each.grad_dict["x"].asnumpy()[:, :7] for each in (bound, plain))  # the finite ones
            np.testing.assert_allclose(found, want, 1e-6, 1e-6)

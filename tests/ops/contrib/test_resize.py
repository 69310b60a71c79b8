import pytest

import dpmodule as mx
from helpers.arrays import randn
from helpers.op_case import rules_test, values_test

RESIZE, POOL = "_contrib_BilinearResize2D", "_contrib_AdaptiveAvgPooling2D"
IMAGE, EVEN = randn(2, 3, 5, 7), randn(1, 2, 4, 6)
EVENS = {"even_down": (4, 6), "even_up": (6, 8), "odd_down": (5, 7), "odd_up": (5, 7)}
SIZES = [  # those that MXNet 1.9.1 gives for images of 5 x 7
    ({"height": 3, "width": 4}, (3, 4)),
    ({"scale_height": 1.7, "scale_width": 0.6}, (8, 4)),
    ({"scale_width": 3.0, "height": 2, "width": 9}, (2, 9)),
    ({"mode": "odd_scale", "scale_height": 1.7, "scale_width": 0.6}, (7, 4)),
    *[({"mode": f"to_{mode}"}, size) for mode, size in EVENS.items()],
    ({}, (1, 1)),
]
FORMS = [((), (1, 1)), (1, (1, 1)), (2, (2, 2)), ((2,), (2, 2)), ((3, 4), (3, 4))]
test_shapes = rules_test(
    *[(RESIZE, [IMAGE.shape], attrs, None, [(2, 3, *size)]) for attrs, size in SIZES],
    *[(POOL, [(0, 3, 0, 7)], {"output_size": size}, None, [(0, 3, *shape)]) for size, shape in FORMS],
)
test_values = values_test(
    *[(RESIZE, (EVEN,), {"mode": "to_even_up", "align_corners": corners}, EVEN) for corners in (True, False)],
    (POOL, (IMAGE,), {}, IMAGE.mean((2, 3), keepdims=True)),
)


def test_like_gets_no_gradient():
    symbol = mx.sym.contrib.BilinearResize2D(mx.sym.Variable("data"), mx.sym.Variable("like"), mode="like")
    bound = symbol.simple_bind(mx.cpu(), data=(1, 1, 3, 3), like=(1, 1, 5, 4))
    assert bound.forward(is_train=True)[0].shape == (1, 1, 5, 4)
    bound.backward(mx.nd.ones((1, 1, 5, 4)))
    assert bound.grad_dict["data"].asnumpy().sum() == pytest.approx(20)
    assert not bound.grad_dict["like"].asnumpy().any()

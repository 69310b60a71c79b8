"""One case for every operation of `dpmodule.autobatch`: a function of the module and of operands.

The same table is run by DyNet itself (tests/data/record_dynet.py) and by this package, so it imports neither.
Operands are named by their shapes; `values` makes them. A case is (operands, function); every operand is tried as a
parameter, and, where the case allows, as a minibatch.
"""

import functools

import numpy as np

SHAPES = {
    "a": (3,), "b": (3,), "c": (3,), "q": (4,), "q2": (4,), "s": (1,), "t": (1,), "u2": (2,),
    "M": (3, 4), "K": (3, 4), "S": (3, 3), "R": (3, 3), "N": (4, 2), "row": (1, 4), "row2": (1, 4), "col": (3, 1),
    "T": (2, 3, 4), "G": (4, 3), "P": (2, 3), "img": (6, 5, 2), "fil": (3, 2, 2, 4), "fbias": (4,),
    "F1": (3, 2, 2), "g8": (12,), "wx": (12, 4), "wh": (12, 3), "b12": (12,),
    "p": (3,), "pos": (3,), "posM": (3, 4), "spread": (3,), "bound": (3,), "spd": (3, 3), "above": (3,),
    "zero_one": (3,),
}  # fmt: skip
RANGES = {  # operands that are drawn from -1 to 1, times the first number, plus the second
    **{"p": (0.4, 0.5), "zero_one": (0.4, 0.5), "pos": (1, 1.5), "posM": (1, 1.5), "spread": (3, 0)},
    **{"above": (1, 2.5), "bound": (0.15, 0.55)},
}


def values(batch=0, seed=0):
    """Return an array for every operand; with `batch`, of that many elements, along the last axis."""
    return {name: array.copy() for name, array in _drawn(batch, seed).items()}


@functools.lru_cache
def _drawn(batch, seed):
    draw, found = np.random.RandomState(seed), {}
    for name, shape in SHAPES.items():
        array = draw.uniform(-1.0, 1.0, (*shape, batch) if batch else shape)
        if name == "spd":
            array = array * 0.3 + 2 * (np.eye(3)[..., None] if batch else np.eye(3))
        scale, start = RANGES.get(name, (1, 0))
        found[name] = array * scale + start
    return found


def _unary(name, operand="a", **more):
    return (operand,), lambda dy, x: getattr(dy, name)(x, **more)


def _many(name):
    return lambda dy, *xs: getattr(dy, name)([dy.tanh(x) for x in xs])


def _list(name):
    return lambda dy, *xs: getattr(dy, name)(list(xs))


def _of(name, *more):
    return lambda dy, *xs: getattr(dy, name)(*xs, *more)


def _with(table):
    """Return cases of functions, the names of operands, and further arguments."""
    return {key: (tuple(given.split()), _of(name, *more)) for key, (name, given, *more) in table.items()}


SIX = ("a", "b", "c", "p", "pos", "spread")
_UNARY = "tanh logistic rectify exp square cube abs sin cos tan asin acos atan sinh cosh asinh"
_UNARY += " atanh erf softsign log_sigmoid selu nobackprop flip_gradient silu elu softmax log_softmax min_dim"
_UNARY += " squared_norm l2_norm sum_elems mean_elems std_elems logsumexp_dim cumsum transpose max_dim"
_PLAIN = {  # functions of operands alone
    "a b": "cmult bmax bmin dot_product squared_distance l1_distance circ_conv circ_corr", "M F1": "filter1d_narrow",
    "pos s": "pow", "a pos": "cdiv", "M a": "colwise_add", "M K": "trace_of_product", "spd": "inverse logdet",
    "T q": "contract3d_1d", "T q P": "contract3d_1d_bias", "T q a": "contract3d_1d_1d", "q": "sparsemax",
    "T q a u2": "contract3d_1d_1d_bias", "a bound": "constrained_softmax", "p zero_one": "binary_log_loss",
    "M": "sum_batches mean_batches", "a b c": "layer_norm", "M s": "weight_norm",
    "q a wx wh b12": "vanilla_lstm_gates", "a g8": "vanilla_lstm_c vanilla_lstm_h",
}  # fmt: skip
_LISTS = {  # and of lists of them
    "a b c": "emax esum average logsumexp", "a q": "concatenate", "a M b": "concatenate_cols",
    "a b": "concatenate_to_batch",
}  # fmt: skip
_MORE = {  # functions of operands and further arguments
    "pick": ("pick", "a", 1), "pick_row": ("pick", "M", 2), "pick_col": ("pick", "M", 1, 1),
    "pick_tensor": ("pick", "T", 1, 1), "pick_range": ("pick_range", "M", 1, 3, 1),
    "pickrange": ("pickrange", "q", 1, 3), "strided_select": ("strided_select", "M", [2, 1], [0, 1], [3, 3]),
    "select_rows": ("select_rows", "M", [2, 0]), "select_cols": ("select_cols", "M", [3, 1, 1]),
    "reshape": ("reshape", "M", (2, 6)), "reshape_vector": ("reshape", "M", (12,)),
    "transpose_tensor": ("transpose", "T", [2, 0, 1]), "softmax_rows": ("softmax", "M", 1),
    "pickneglogsoftmax": ("pickneglogsoftmax", "q", 2), "hinge": ("hinge", "q", 1, 0.3),
    "huber_distance": ("huber_distance", "spread b", 0.7),
    "pairwise_rank_loss": ("pairwise_rank_loss", "row row2", 0.5), "poisson_loss": ("poisson_loss", "s", 3),
    "sum_dim": ("sum_dim", "M", [0]), "sum_dim_two": ("sum_dim", "T", [0, 2]),
    "sum_dim_batch": ("sum_dim", "M", [1], True), "mean_dim": ("mean_dim", "M", [1], False),
    "mean_dim_n": ("mean_dim", "M", [0], False, 5), "moment_dim": ("moment_dim", "M", [0], 3, False),
    "std_dim": ("std_dim", "M", [0], False), "std_dim_batch": ("std_dim", "M", [0], True),
    "moment_elems": ("moment_elems", "M", 2), "moment_batches": ("moment_batches", "M", 2),
    "max_dim_matrix": ("max_dim", "M", 1), "min_dim_matrix": ("min_dim", "M", 0),
    "logsumexp_dim_matrix": ("logsumexp_dim", "M", 1), "cumsum_matrix": ("cumsum", "M", 1),
    "conv2d": ("conv2d", "img fil", [1, 2]), "conv2d_bias": ("conv2d_bias", "img fil fbias", [2, 1]),
    "maxpooling2d": ("maxpooling2d", "img", [2, 2], [1, 2]), "kmax_pooling": ("kmax_pooling", "M", 2),
    "fold_rows": ("fold_rows", "G", 2), "kmh_ngram": ("kmh_ngram", "M", 2),
}  # fmt: skip
CASES = {
    **_with(_MORE),
    **{name: _unary(name) for name in _UNARY.split()},
    **{name: _unary(name, "pos") for name in ("log", "sqrt", "lgamma")},
    **{name: (tuple(given.split()), _of(name)) for given, names in _PLAIN.items() for name in names.split()},
    **{name: (tuple(given.split()), _list(name)) for given, names in _LISTS.items() for name in names.split()},
    **{f"{name}_many": (SIX, _many(name)) for name in ("emax", "esum", "concatenate", "concatenate_cols")},
    **{f"{name}_many": (SIX[:5], _many(name)) for name in ("average", "concatenate_to_batch")},
    "acosh": _unary("acosh", "above"), "elu_alpha": _unary("elu", alpha=0.5), "silu_beta": _unary("silu", beta=2.0),
    "scale_gradient": _unary("scale_gradient", lambd=0.5),
    "round": _unary("round", "spread", gradient_mode="zero_gradient"),
    "round_straight": _unary("round", "spread", gradient_mode="straight_through_gradient"),
    "ceil": _unary("ceil", "spread", gradient_mode="zero_gradient"),
    "floor_straight": _unary("floor", "spread", gradient_mode="straight_through_gradient"),
    "argmax": _unary("argmax", gradient_mode="zero_gradient"),
    "argmax_straight": _unary("argmax", gradient_mode="straight_through_gradient"),
    "negate": (("a",), lambda dy, x: -x), "add": (("a", "b"), lambda dy, x, y: x + y),
    "add_number": (("a",), lambda dy, x: x + 1.5), "sub_number": (("a",), lambda dy, x: x - 1.5),
    "add_scalar": (("a", "s"), lambda dy, x, y: x + y), "add_matrix_vector": (("M", "a"), lambda dy, x, y: x + y),
    "add_outer": (("col", "row"), lambda dy, x, y: x + y), "sub": (("a", "b"), lambda dy, x, y: x - y),
    "sub_scalar": (("s", "M"), lambda dy, x, y: x - y), "times_number": (("a",), lambda dy, x: x * 2.5),
    "over_number": (("a",), lambda dy, x: x / 4.0),
    "over_scalar": (("a", "pos"), lambda dy, x, y: dy.cdiv(x, dy.pick(y, 1))),
    "power_number": (("pos",), lambda dy, x: x**3), "cmult_scalar": (("s", "M"), lambda dy, x, y: dy.cmult(x, y)),
    "cmult_column": (("M", "a"), lambda dy, x, y: dy.cmult(x, y)),
    "cmult_row": (("M", "row"), lambda dy, x, y: dy.cmult(x, y)),
    "cdiv_matrix": (("M", "posM"), lambda dy, x, y: dy.cdiv(x, y)),
    "cdiv_column": (("M", "pos"), lambda dy, x, y: dy.cdiv(x, y)),
    "matrix_vector": (("M", "q"), lambda dy, x, y: x * y), "matrix_matrix": (("M", "N"), lambda dy, x, y: x * y),
    "vector_row": (("a", "row"), lambda dy, x, y: x * y), "row_vector": (("row", "q"), lambda dy, x, y: x * y),
    "scalar_times": (("a", "s"), lambda dy, x, y: x * y), "affine": (("a", "M", "q"), _list("affine_transform")),
    "affine_two": (("a", "M", "q", "S", "b"), _list("affine_transform")),
    "affine_matrix": (("u2", "P", "M"), _list("affine_transform")),
    "dot_product_matrix": (("M", "K"), lambda dy, x, y: dy.dot_product(x, y)),
    "concatenate_matrix": (("M", "K"), lambda dy, *xs: dy.concatenate(list(xs), d=1)),
    "getitem": (("M",), lambda dy, x: x[1]), "getitem_negative": (("a",), lambda dy, x: x[-1]),
    "getitem_slice": (("M",), lambda dy, x: x[1:3]), "getitem_slices": (("T",), lambda dy, x: x[0:2, 1:3, 0:4:2]),
    "transpose_matrix": (("M",), lambda dy, x: dy.transpose(x)),
    "softmax_matrix": (("M",), lambda dy, x: dy.softmax(x)),
    "log_softmax_matrix": (("M",), lambda dy, x: dy.log_softmax(x)),
    "log_softmax_restrict": (("q",), lambda dy, x: dy.pick_range(dy.log_softmax(x, [1, 2]), 1, 3)),
    "hinge_dim": (("M",), lambda dy, x: dy.hinge_dim(x, [0, 2, 1, 0], d=0, m=0.4)),
    "sum_elems_matrix": (("M",), lambda dy, x: dy.sum_elems(x)),
    "conv2d_same": (("img", "fil"), lambda dy, x, f: dy.conv2d(x, f, [1, 2], is_valid=False)),
    "maxpooling2d_same": (("img",), lambda dy, x: dy.maxpooling2d(x, [3, 2], [2, 2], is_valid=False)),
}  # fmt: skip

# with minibatches only: the labels belong to 3 elements
_MORE = {
    "pickneglogsoftmax_batch": ("pickneglogsoftmax_batch", "q", [2, 0, 3]),
    "hinge_batch": ("hinge_batch", "q", [1, 3, 0], 0.3), "pick_batch": ("pick_batch", "M", [2, 0, 1]),
    "pick_batch_elem": ("pick_batch_elem", "M", 1), "pick_batch_elems": ("pick_batch_elems", "M", [2, 0]),
    "reshape_batch": ("reshape", "M", (2, 2), 9),
    "strided_select_batch": ("strided_select", "a", [1, 2], [0, 0], [2, 3]),
}  # fmt: skip
BATCHED = {**_with(_MORE), "std_batches": (("M",), lambda dy, x: dy.std_batches(x))}


def total(dy, y, weights):
    """Make one number of a result, so that every element has a gradient of its own."""
    dims, batch = y.dim()
    array = np.resize(weights, int(np.prod(dims)) * batch).reshape((*dims, batch) if batch > 1 else dims)
    product = dy.dot_product(y, dy.inputTensor(array, batched=batch > 1))
    return dy.sum_batches(product) if batch > 1 else product

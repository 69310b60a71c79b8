"""ONNX graphs written by hand: TensorFlow's habits, loops and branches, old opsets, ai.onnx.ml."""

import numpy as np
import onnx.parser
from onnx import numpy_helper

RNG = np.random.default_rng(0)


def draw(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def model_of(text, opset=17, functions="", domains="", **arrays):
    """Return the model of a graph in ONNX's text form.

    Args:
        text: inputs, outputs and nodes.
        opset: version of the operators.
        functions: of the model, as text.
        domains: further ones, as ``"name": version``.
        arrays: initializers.
    """
    more = domains and f", {domains}"
    head = f'<ir_version: {8 if opset <= 17 else 10}, opset_import: ["": {opset}{more}]>'
    made = onnx.parser.parse_model(f"{head} g {text} {functions}")
    made.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), name) for name, a in arrays.items())
    return made


def channels_last():
    """A convolution as TensorFlow writes it: NHWC, with transposes around, and a shape that is computed."""
    text = """(float[n,8,8,3] x) => (float[] y) <int64[1] zero = {0}, int64[1] one = {1}, int64[1] rest = {-1}> {
        t = Transpose<perm = [0,3,1,2]>(x)
        c = Conv<auto_pad = "SAME_UPPER", strides = [2,2]>(t, w, b)
        r = Relu(c)  u = Transpose<perm = [0,2,3,1]>(r)
        s = Shape(u)  n = Slice(s, zero, one)  target = Concat<axis = 0>(n, rest)
        flat = Reshape(u, target)  p = MatMul(flat, m)  y = Add(p, d)
    }"""
    model = model_of(text, w=draw(4, 3, 3, 3), b=draw(4), m=draw(64, 5), d=draw(5))
    return model, (2, 8, 8, 3), (5, 8, 8, 3)


def gathered_shape():
    """Shape, Gather, Unsqueeze, Concat, Reshape: how exporters write a view."""
    text = """(float[n,t,8] x) => (float[] y, float[] z)
    <int64 zero = {0}, int64 one = {1}, int64 four = {4}, int64[1] two = {2}, int64[1] eight = {8}> {
        s = Shape(x)  n = Gather<axis = 0>(s, zero)  t = Gather<axis = 0>(s, one)
        nt = Mul(n, t)  nt1 = Unsqueeze<axes = [0]>(nt)  four1 = Unsqueeze<axes = [0]>(four)
        target = Concat<axis = 0>(nt1, two, four1)  y = Reshape(x, target)
        n1 = Unsqueeze<axes = [0]>(n)  t1 = Unsqueeze<axes = [0]>(t)
        back = Concat<axis = 0>(n1, t1, eight)  z = Reshape(y, back)
    }"""
    return model_of(text, 11), (2, 3, 8), (4, 5, 8)


def loop_rnn():
    """A recurrent network as a Loop over time steps, as TensorFlow writes it."""
    text = """(float[n,t,3] x) => (float[] y, float[] last)
    <int64 zero = {0}, int64 one = {1}, int64[1] width = {4}, bool true = {1}> {
        turned = Transpose<perm = [1,0,2]>(x)  s = Shape(turned)
        steps = Gather<axis = 0>(s, zero)  n = Gather<axis = 0>(s, one)  n1 = Unsqueeze<axes = [0]>(n)
        start_shape = Concat<axis = 0>(n1, width)  start = ConstantOfShape(start_shape)
        last, all = Loop(steps, true, start)<
            body = b (int64 i, bool go, float[n,4] h) => (bool go_on, float[n,4] h_next, float[n,4] out) {
                x_t = Gather<axis = 0>(turned, i)  a = MatMul(x_t, wx)  b = MatMul(h, wh)
                sum = Add(a, b)  h_next = Tanh(sum)  out = Identity(h_next)  go_on = Identity(go)
            }
        >
        y = Transpose<perm = [1,0,2]>(all)
    }"""
    return model_of(text, 11, wx=draw(3, 4), wh=draw(4, 4)), (2, 5, 3), (4, 3, 3)


def scan():
    text = """(float[t,3] x) => (float[] last, float[] y) {
        last, y = Scan<num_scan_inputs = 1, scan_input_directions = [1],
            body = b (float[3] state, float[3] item) => (float[3] next, float[3] out) {
                next = Add(state, item)  out = Mul(next, item)
            }
        >(start, x)
    }"""
    return model_of(text, start=draw(3)), (4, 3), (7, 3)


def while_loop():
    """Doubles until the sum is large: how often, only the data tell."""
    text = """(float[n] x) => (float[] y) <int64 limit = {50}, bool true = {1}, float most = {100.0}> {
        a = Abs(x)
        y = Loop<body = b (int64 i, bool go, float[n] v) => (bool go_on, float[n] v2) {
            v2 = Add(v, v)  total = ReduceSum<keepdims = 0>(v2)  go_on = Less(total, most)
        }>(limit, true, a)
    }"""
    return model_of(text), (3,), (5,)


def branch():
    text = """(float[n,4] x) => (float[] y) <float zero = {0.0}> {
        total = ReduceSum<keepdims = 0>(x)  c = Greater(total, zero)
        y = If<then_branch = yes () => (float[] p) { p = Mul(x, w) },
               else_branch = no () => (float[] q) { q = Sub(x, w) }>(c)
    }"""
    return model_of(text, w=draw(4)), (2, 4), (5, 4)


def constant_branch():
    text = """(float[n,4] x) => (float[] y) <int64 two = {2}> {
        s = Shape(x)  rank = Size(s)  c = Equal(rank, two)
        y = If<then_branch = yes () => (float[] p) { p = Mul(x, w) },
               else_branch = no () => (float[] q) { z = NonZero(x)  q = Cast<to = 1>(z) }>(c)
    }"""
    return model_of(text, w=draw(4)), (2, 4), (5, 4)


def detection():
    """Boxes and scores, suppression, and the boxes that are left."""
    text = """(float[n,6] x) => (int64[] chosen, float[] found)
    <int64[3] shape = {-1, 10, 4}, int64[3] classes = {0, 2, 10}, int64[1] most = {3},
     float[1] overlap = {0.4}, float[1] least = {0.3}, int64 zero = {0}, int64 two = {2}, int64[1] minus = {1}> {
        b0 = MatMul(x, wb)  boxes = Reshape(b0, shape)
        s0 = MatMul(x, ws)  s1 = Reshape(s0, classes)  scores = Sigmoid(s1)
        chosen = NonMaxSuppression(boxes, scores, most, overlap, least)
        places = Gather<axis = 1>(chosen, two)  images = Gather<axis = 1>(chosen, zero)
        i1 = Unsqueeze(images, minus)  p1 = Unsqueeze(places, minus)
        both = Concat<axis = 1>(i1, p1)  found = GatherND(boxes, both)
    }"""
    return model_of(text, wb=draw(6, 40), ws=draw(6, 20)), (2, 6), (3, 6)


def suppression(center=0):
    text = f"""(float[1,12,4] boxes) => (int64[] y) <int64[1] most = {{4}}, float[1] overlap = {{0.3}}> {{
        y = NonMaxSuppression<center_point_box = {center}>(boxes, scores, most, overlap)
    }}"""
    return model_of(text, scores=RNG.random((1, 2, 12)).astype(np.float32)), (1, 12, 4)


def recurrent(kind, direction, more="", peepholes=False):
    gates, count = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind], 2 if direction == "bidirectional" else 1
    arrays = {"w": draw(count, gates * 5, 3), "r": draw(count, gates * 5, 5), "b": draw(count, 2 * gates * 5)}
    arrays |= {"p": draw(count, 15)} if peepholes else {}
    text = f"""(float[t,n,3] x) => (float[] y, float[] last) {{
        y, last = {kind}<direction = "{direction}", hidden_size = 5{more}>(x, w, r, b{', "", "", "", p' * peepholes})
    }}"""
    return model_of(text, **arrays), (4, 2, 3), (6, 5, 3)


def lengths():
    text = """(float[4,2,3] x) => (float[] y, float[] h, float[] c) <int32[2] n = {4, 2}> {
        y, h, c = LSTM<direction = "bidirectional", hidden_size = 5>(x, w, r, b, n)
    }"""
    return model_of(text, w=draw(2, 20, 3), r=draw(2, 20, 5), b=draw(2, 40)), (4, 2, 3)


def old(opset):
    """A network of an old opset, in which attributes are what inputs were later."""
    resize = "Upsample<scales = [1.0, 1.0, 2.0, 2.0]>" if opset < 9 else "Identity"
    text = f"""(float[n,3,8,8] x) => (float[] v, float[] y) {{
        c = Conv<pads = [0,1,1,0]>(x, w)  n = BatchNormalization(c, g, h, mean, var)
        k = Clip<min = -1.0, max = 1.5>(n)  p = Pad<pads = [0,0,1,0,0,0,0,2], value = 0.5>(k)
        s = Slice<starts = [1], ends = [100], axes = [2]>(p)  u = {resize}(s)
        m = ReduceMean<axes = [3], keepdims = 0>(u)  t = Softmax(m)
        a, z = Split<axis = 2, split = {[3, 4] if opset > 8 else [6, 8]}>(t)
        v, i = TopK<k = 2, axis = -1>(a)  y = Dropout(z)
    }}"""
    arrays = {"w": draw(4, 3, 3, 3), "g": draw(4), "h": draw(4), "mean": draw(4)}
    return model_of(text, opset, **arrays, var=RNG.random(4).astype("f")), (2, 3, 8, 8), (3, 3, 8, 8)


def quantized():
    text = """(float[n,3,6,6] x) => (float[] y) <int8[4] wz = {0, 0, 0, 0}, float xs = {0.03}, float ys = {0.05}> {
        xq = QuantizeLinear(x, xs, xz)  xd = DequantizeLinear(xq, xs, xz)  wd = DequantizeLinear<axis = 0>(w, ws, wz)
        c = Conv<pads = [1,1,1,1]>(xd, wd, b)  r = Relu(c)
        q = QuantizeLinear(r, ys, yz)  y = DequantizeLinear(q, ys, yz)
    }"""
    weight = RNG.integers(-127, 127, (4, 3, 3, 3)).astype(np.int8)
    arrays = {"w": weight, "ws": RNG.random(4).astype("f") / 50}
    return model_of(text, **arrays, b=draw(4), xz=np.uint8(128), yz=np.uint8(0)), (2, 3, 6, 6), (4, 3, 6, 6)


def function():
    """A function of the model's own, with an attribute."""
    functions = """<domain: "own", opset_import: ["": 17]> bend <slope> (a, b) => (c) {
        l = LeakyRelu<alpha: float = @slope>(a)  c = Add(l, b)
    }"""
    text = "(float[n,4] x) => (float[] y) { y = own.bend<slope = 0.3>(x, w) }"
    return model_of(text, functions=functions, domains='"own": 1', w=draw(4)), (2, 4), (3, 4)


def resized(attrs):
    text = f"""(float[n,2,6,7] x) => (float[] y) <float[4] scales = {{1.0, 1.0, 1.5, 2.3}}> {{
        y = Resize<{attrs}>(x, "", scales)
    }}"""
    return model_of(text, 18), (2, 2, 6, 7), (3, 2, 6, 7)


def expanded():
    """A mask and positions made from the shape of the data."""
    text = """(float[n,t,4] x) => (float[] y)
    <int64 zero = {0}, int64 one = {1}, int64[1] axis0 = {0}, int64[1] axis1 = {1},
     float low = {-1e9}, float high = {0.0}> {
        s = Shape(x)  t = Gather<axis = 0>(s, one)  line = Range(zero, t, one)
        row = Unsqueeze(line, axis0)  column = Unsqueeze(line, axis1)  mask = Less(column, row)
        real = Cast<to = 1>(line)  places = Unsqueeze(real, axis1)  wide = Expand(places, s)
        bias = Where(mask, low, high)  xt = Transpose<perm = [0,2,1]>(x)
        score = MatMul(x, xt)  biased = Add(score, bias)  weights = Softmax<axis = -1>(biased)
        moved = Add(x, wide)  y = MatMul(weights, moved)
    }"""
    return model_of(text), (2, 3, 4), (3, 6, 4)


def averaged():
    """Windows that exceed the data on one side."""
    text = """(float[n,2,7,6] x) => (float[] y, float[] z, float[] u, float[] v) {
        y = AveragePool<kernel_shape = [3,3], strides = [2,2], pads = [0,1,1,0]>(x)
        z = AveragePool<kernel_shape = [3,3], strides = [2,2], pads = [0,1,1,0], count_include_pad = 1>(x)
        u = AveragePool<kernel_shape = [3,2], strides = [3,4], pads = [1,0,1,0], ceil_mode = 1>(x)
        v = AveragePool<kernel_shape = [3,2], strides = [3,4], pads = [1,0,1,0], ceil_mode = 1,
            count_include_pad = 1>(x)
    }"""
    return model_of(text), (2, 2, 7, 6), (3, 2, 7, 6)


def scattered():
    """Elements added and written, at places that follow from the shape of the data; a constant NaN; a diagonal."""
    text = """(float[n,4] x) => (float[] added, float[] rows, float[] written, float[] chosen, float[] line)
    <int64[2,3] places = {1, 1, 0, 2, 3, 2}, float[2,3] more = {1, 2, 3, 4, 5, 6}, int64[2,1] row = {1, 1},
     float[2,4] two = {1, 2, 3, 4, 5, 6, 7, 8}, int64 zero = {0}, int64 one = {1}, int64[1] first = {1},
     int64[1] last = {4}, int64[1] step = {2}, int64[1] rest = {-1}, float none = {0}> {
        added = ScatterElements<axis = 1, reduction = "add">(x, places, more)
        rows = ScatterND<reduction = "add">(x, row, two)
        s = Shape(x)  count = ReduceProd<keepdims = 0>(s)  numbers = Range(zero, count, one)
        grid = Reshape(numbers, s)  part = Slice(grid, first, last, first, step)  index = Reshape(part, rest)
        flat = Reshape(x, rest)  old = Gather(flat, index)  new = Neg(old)
        changed = ScatterElements(flat, index, new)  written = Reshape(changed, s)
        wide = Expand(nan, s)  positive = Greater(x, none)  chosen = Where(positive, x, wide)
        square = Einsum<equation = "ni,mi->nm">(x, x)  line = Einsum<equation = "nn->n">(square)
    }"""
    return model_of(text, nan=np.float32(np.nan)), (2, 4), (5, 4)


def two_classes():
    offset, scale, coefficients = (draw(5).tolist() for _ in range(3))
    text = f"""(float[n,5] x) => (int64[] label, float[] y, float[] second) <int64[1] one = {{1}}> {{
        z = ai.onnx.ml.Scaler<offset = {offset}, scale = {scale}>(x)
        label, p = ai.onnx.ml.LinearClassifier<classlabels_ints = [0, 1], coefficients = {coefficients},
            intercepts = [0.5], post_transform = "LOGISTIC">(z)
        y = ai.onnx.ml.Normalizer<norm = "L1">(p)  second = ai.onnx.ml.ArrayFeatureExtractor(p, one)
    }}"""
    return model_of(text, domains='"ai.onnx.ml": 1'), (2, 5), (6, 5)


_GRAPHS = (
    *(channels_last, gathered_shape, expanded, two_classes, averaged, loop_rnn, scan, while_loop, branch),
    *(constant_branch, detection, quantized, function, scattered),
)
GRAPHS = {
    **{graph.__name__: graph for graph in _GRAPHS},
    "suppression_center": lambda: suppression(1),
    "lstm_reverse": lambda: recurrent("LSTM", "reverse"),
    "lstm_peepholes": lambda: recurrent("LSTM", "bidirectional", peepholes=True),
    "lstm_coupled": lambda: recurrent("LSTM", "forward", ', activations = ["Sigmoid", "Relu", "Tanh"]'),
    "gru_before": lambda: recurrent("GRU", "bidirectional"), "lstm_lengths": lengths,
    "gru_after": lambda: recurrent("GRU", "reverse", ", linear_before_reset = 1"), "opset7": lambda: old(7),
    "rnn_relu": lambda: recurrent("RNN", "forward", ', activations = ["Relu"]'), "opset9": lambda: old(9),
    "resize_linear": lambda: resized('mode = "linear", coordinate_transformation_mode = "asymmetric"'),
    **{f"resize_{mode}": lambda mode=mode: resized(f'mode = "{mode}"') for mode in ("cubic", "nearest")},
}  # fmt: skip
"""Name: makes (model, shape of its input, another shape of it where the file leaves sizes open)."""


def made(name):
    """Return a graph and the shapes of two batches; the same numbers whatever was drawn before."""
    global RNG
    RNG = np.random.default_rng(len(name))
    return GRAPHS[name]()

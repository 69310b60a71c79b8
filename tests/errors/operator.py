"""Wrong calls and wrong answers of operators that users write."""

import warnings

import dpmodule as mx
from dpmodule.base import ArgumentError, NodeError, OpError, ShapeError

X, D = mx.sym.Variable("x"), mx.sym.Variable("d", stype="csr")
ONES, CSR = mx.nd.ones((2,)), mx.nd.array([[0, 2], [3, 0]]).tostype("csr")
GONE = r"no operator is registered as 'gone'.*@mx.operator.register\('gone'\)"


class Same(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0])


class Prop(mx.operator.CustomOpProp):
    def create_operator(self, ctx, in_shapes, in_dtypes):
        return Same()


class Sparse(Prop):
    def infer_storage_type(self, in_stype):
        return in_stype, in_stype, []


class Two(Prop):
    def list_arguments(self):
        return ["data", "label"]

    def infer_shape(self, in_shape):
        return [in_shape[0], (in_shape[0][0],)], [in_shape[0]], []


mx.operator.register("errors_plain")(Prop)
mx.operator.register("errors_two")(Two)


def custom(*inputs, op_type="errors_two"):
    return mx.nd.Custom(*inputs, op_type=op_type)


def answers(message, error, in_graph=None, **methods):
    """Return the rows of a class with other methods, called with an array and in a graph."""
    name = f"errors_{len(NAMES)}"
    NAMES.append(name)
    mx.operator.register(name)(type("Wrong", (Prop,), methods))

    def graph():
        mx.sym.Custom(X, op_type=name).simple_bind(mx.cpu(), x=(2,)).forward()

    return [(lambda: custom(ONES, op_type=name), error, message), (graph, in_graph or error, message)]


def stored(message, method, answer):
    """Return the row of a class that answers a question about storage otherwise."""
    name = f"errors_{len(NAMES)}"
    NAMES.append(name)
    mx.operator.register(name)(type("Wrong", (Sparse,), {method: lambda self, *stypes: answer}))

    def call():
        x = CSR.copy()
        x.attach_grad()
        with mx.autograd.record():
            custom(x, op_type=name).backward()

    return call, OpError, message


class OldSquare(mx.operator.NDArrayOp):
    """Square over arrays."""


def dead_object():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        made = OldSquare()
    text = made.get_symbol(X, name="square").tojson()
    mx.sym.load_json(text.replace(f'"info": "{made.info_}"', '"info": "7fffab"'))


def bare():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        mx.operator.PythonOp().get_symbol()


NAMES: list[str] = []
TEXT = mx.sym.Custom(X, op_type="errors_plain").tojson()
ROWS = [
    (lambda: mx.sym.load_json(TEXT.replace("errors_plain", "gone")), OpError, GONE),
    (lambda: custom(ONES, op_type="gone"), OpError, GONE),
    (lambda: mx.sym.Custom(X), OpError, "op_type is required"),
    *answers("expected a list of different names", OpError, list_arguments=lambda s: ["a", "a"]),
    *answers("list_outputs returned no names", OpError, list_outputs=lambda s: []),
    *answers("infer_shape returned None, expected two or three", OpError, ShapeError, infer_shape=lambda s, i: None),
    *answers("the outputs, expected 1 entries", OpError, ShapeError, infer_shape=lambda s, i: (i, [i[0], i[0]])),
    *answers("infer_shape returned the shape 'ab'", OpError, ShapeError, infer_shape=lambda s, i: (i, ["ab"])),
    *answers("output", OpError, NodeError, infer_shape=lambda s, i: (i, [()], [])),
    *answers("data: known shape and the one", ShapeError, infer_shape=lambda s, i: ([[9]], [i[0]])),
    *answers("infer_type returned .*float9", OpError, infer_type=lambda s, t: (t, ["float9"], [])),
    *answers("returned 3, expected a CustomOp", OpError, NodeError, create_operator=lambda s, c, i, t: 3),
    (lambda: custom(ONES), OpError, "input 'label' is missing"),
    (lambda: mx.sym.Custom(*[mx.sym.Variable(n) for n in "abcd"], op_type="errors_two"), OpError, "got 4 inputs"),
    (lambda: mx.sym.Custom(X, op_type="errors_two", name="s").infer_shape(x=(2, 3), s_label=(9,)), ShapeError, "9"),
    (lambda: Same().assign(ONES, "wirte", 3), ArgumentError, "req is 'wirte'"),
    (lambda: mx.operator.register(3), ArgumentError, "expected a text"),
    (lambda: mx.operator.register("x")(3), ArgumentError, "not a subclass"),
    (bare, NotImplementedError, "derive from NumpyOp"),
    (dead_object, OpError, "Python object of the process that created it"),
    (lambda: mx.operator.get_operator_arguments("Activatoin"), OpError, "did you mean"),
    (lambda: custom(CSR, op_type="errors_plain"), ArgumentError, "stored as 'csr'; implement infer_storage_type"),
    (lambda: mx.sym.Custom(D, op_type="errors_plain").simple_bind(mx.cpu(), d=(2, 2)), ArgumentError,
     "stored as 'csr'; implement infer_storage_type"),
    stored("declares data as 'default', but it is", "infer_storage_type", (["default"], ["csr"], [])),
    stored("returned 'dense', expected 'default', 'row_sparse'", "infer_storage_type", (["csr"], ["dense"], [])),
    stored(r"for the outputs, expected 1 entries \(output\)", "infer_storage_type", (["csr"], [], [])),
    stored(r"five lists, .* of the lengths \[1, 1, 1, 1, 0\]", "infer_storage_type_backward", (["csr"], ["csr"])),
]  # fmt: skip

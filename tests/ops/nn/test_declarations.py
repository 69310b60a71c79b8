"""What every layer and every random operator declares."""

from dpmodule.ops import get, names
from dpmodule.ops.attrs import to_text
from dpmodule.ops.spec import REQUIRED
from helpers.walk import walks

OURS = sorted(
    {
        get(n).name
        for n in names()
        if get(n).run.__module__.startswith(("dpmodule.ops.nn", "dpmodule.ops.random"))
    }
    | {"SoftmaxOutput", "LinearRegressionOutput", "MakeLoss", "FullyConnected", "Convolution", "Pooling"}
)


@walks(OURS)
def test_documented(name):
    op = get(name)
    first, *rest = op.doc.splitlines()
    assert first.endswith(".")
    assert "Shape:" in op.doc
    assert any(line.startswith("Source: ") for line in rest)
    assert all(attr.doc for attr in op.attrs.values())


@walks(OURS)
def test_defaults_survive_as_text(name):
    for key, attr in get(name).attrs.items():
        if attr.default is not REQUIRED:
            assert attr.type.parse(to_text(attr.default)) == attr.default, key


def test_aliases():
    for alias, name in [
        ("Softmax", "SoftmaxOutput"),
        ("_sparse_FullyConnected", "FullyConnected"),
        ("_sparse_Embedding", "Embedding"),
        ("_sparse_LinearRegressionOutput", "LinearRegressionOutput"),
        ("uniform", "_random_uniform"),
        ("random_normal", "_random_normal"),
        ("sample_gamma", "_sample_gamma"),
        ("shuffle", "_shuffle"),
    ]:
        assert get(alias).name == name

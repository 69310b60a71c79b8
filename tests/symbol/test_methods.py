import dpmodule as mx
from dpmodule.ndarray.methods import FLUENT
from dpmodule.ops import find, get
from helpers.walk import walks

S = mx.sym


EXTRA = """
broadcast_axes(axis=0, size=1); broadcast_to(shape=(2, 3)); clip(a_min=0.2, a_max=0.6); expand_dims(axis=1)
flip(axis=1); one_hot(depth=3); repeat(repeats=2); reshape(shape=(3, 2)); slice(begin=(0, 1), end=(2, 3))
split(num_outputs=3); slice_axis(axis=1, begin=0, end=2); swapaxes(dim1=0, dim2=1); tile(reps=(2, 1))
depth_to_space(block_size=1); space_to_depth(block_size=1); pad(mode='constant', pad_width=(0, 0, 0, 0, 1, 1, 1, 1))
"""
GIVEN = dict(each.split("(", 1) for each in EXTRA.strip().replace("\n", "; ").split("; "))


@walks(n for n in FLUENT if find(n) is not None)
def test_a_method_is_the_operator_on_the_symbol(name):
    extra, x, y = eval(f"dict({GIVEN.get(name, ')')}"), S.Variable("x"), S.Variable("y")
    others = (y,) * (len([i for i in get(name).inputs if i.when is None]) - 1)
    with mx.name.NameManager():
        method = getattr(x, name)(*others, **extra)
    with mx.name.NameManager():
        function = getattr(S, name)(x, *others, **extra)
    assert method.tojson() == function.tojson()

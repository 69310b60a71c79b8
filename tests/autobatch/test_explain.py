"""`explain`: counts, reasons and pictures of runs whose batches are known."""

from __future__ import annotations

import re
import xml.dom.minidom

import numpy as np
import pytest
import torch

import dpmodule as mx
import dpmodule.autobatch as dy
from dpmodule.autobatch.explain import Explanation, OperationRow


def row_of(found, operation):
    rows = [row for row in found.rows if row.operation == operation]
    assert len(rows) == 1, found
    return rows[0]


def test_one_batch_of_equal_operations(engine):
    dy.renew_cg()
    xs = [dy.inputTensor([1.0, float(i)]) for i in range(8)]
    dy.forward([dy.sin(x) for x in xs])
    row = row_of(dy.explain(), "sin")
    assert (row.nodes, row.batches, row.largest, row.mean, row.alone, row.why) == (8, 1, 8, 8.0, 0, "")
    assert row.label == "sin {2} -> {2}"


def test_other_shapes_stay_alone_and_name_the_nearest(engine):
    dy.renew_cg()
    xs = [dy.inputTensor([1.0, float(i)]) for i in range(3)] + [dy.inputTensor([1.0, 2.0, 3.0])]
    dy.forward([dy.sin(x) for x in xs])
    alone = next(row for row in dy.explain().rows if row.operation == "sin" and row.alone)
    assert alone.label == "sin {3} -> {3}"
    assert alone.why == "the only one of its kind; nearest: sin {2} -> {2}, which has different shapes"


def test_a_chain_stays_alone(engine):
    dy.renew_cg()
    x = dy.inputTensor([1.0, 2.0])
    for _ in range(5):
        x = dy.softmax(x)
    x.forward()
    row = row_of(dy.explain(), "softmax")
    assert (row.nodes, row.batches, row.alone) == (5, 5, 5)
    assert "depend on it" in row.why


def test_asked_for_too_early(engine):
    dy.renew_cg()
    for i in range(3):
        dy.sin(dy.inputTensor([1.0, float(i)])).value()
    found = dy.explain()
    row = row_of(found, "sin")
    assert (row.batches, row.alone) == (3, 3)
    assert "computed in another forward" in row.why
    assert found.forwards == 3
    assert "in 3 forwards" in str(found)


def test_the_only_one(engine):
    dy.renew_cg()
    dy.sin(dy.inputTensor([1.0, 2.0])).value()
    assert row_of(dy.explain(), "sin").why == "the only one of its kind"


@pytest.mark.parametrize("name", ["python", "auto"])
def test_without_batching(name):
    dy.configure(engine=name, autobatch=False)
    dy.forward([dy.sin(dy.inputTensor([1.0, float(i)])) for i in range(3)])
    found = dy.explain()
    row = row_of(found, "sin")
    assert (row.batches, row.largest, row.alone) == (3, 1, 3)
    assert "batching is off" in row.why
    assert "autobatching off" in str(found)
    assert found.saved == 0
    dy.configure(engine="auto")


def operations_of_a_program():
    """Run many kinds of operations; return how often each was computed, and the shapes it is shown with."""
    m = dy.ParameterCollection()
    table, W, b = m.add_lookup_parameters((9, 4)), m.add_parameters((3, 4)), m.add_parameters(3)
    lstm = dy.VanillaLSTMBuilder(1, 4, 4, m)
    dy.renew_cg()
    xs = [table[i] for i in range(5)] + [dy.inputTensor([1.0, 2.0, 3.0, 4.0]), dy.zeros(4)]
    xs += [dy.one_hot(4, 1), dy.random_normal(4)]
    ys = [dy.affine_transform([b, W, dy.tanh(x)]) for x in xs]
    losses = [dy.pickneglogsoftmax(y, 1) for y in ys]
    losses += [dy.dot_product(y, 1.0 - dy.logistic(y)) for y in ys[:3]]
    losses += [dy.squared_norm(dy.cmult(y, y / 3.0) - (y + 2.0)) for y in ys[:3]]
    losses.append(dy.sum_elems(dy.sum_batches(dy.lookup_batch(table, [1, 2]))))
    losses.append(dy.mean_dim(dy.max_dim(dy.inputTensor(np.eye(3))), [0], False))
    losses.append(dy.hinge(dy.dropout(ys[0], 0.5), 1))
    losses.append(dy.sum_elems(lstm.initial_state().transduce(xs[:3])[-1]))
    losses.append(dy.sum_elems(W * dy.concatenate_cols(xs[:3])))
    losses.append(dy.sum_elems(dy.cdiv(W * dy.sin(xs[0]), b)))
    dy.esum(losses).backward()
    found, counts = dy.explain(), {}
    for row in found.rows:
        names = row.operation.split(" + ")
        for name in names:
            counts[name] = counts.get(name, 0) + row.nodes // len(names)
    return found, counts


def test_both_engines_tell_the_same():
    dy.configure(engine="python", autobatch=True)
    wanted, operations = operations_of_a_program()
    dy.configure(engine="auto")
    found, same = operations_of_a_program()
    dy.configure(autobatch=False)
    assert same == operations
    assert operations["affine_transform"] == 9 + 3
    assert operations["lstm_step"] == 3
    assert not {"input", "constant", "lookup", "lookup_batch", "one_hot", "random", "parameter"} & set(same)
    assert found.nodes == wanted.nodes
    for operation in ("tanh", "sin", "concatenate", "sum_dim"):  # which stand alone on both
        assert {r.label for r in found.rows if r.operation == operation} == {
            r.label for r in wanted.rows if r.operation == operation
        }


def test_requests_that_share_nothing_are_counted(engine):
    dy.renew_cg()
    x = dy.inputTensor([1.0, 2.0])
    dy.cos(dy.sin(x)).value()
    dy.inputTensor([3.0]).value()
    dy.sin(dy.cos(x)).value()
    assert dy.explain().forwards == 2


def test_cells_tell_how_they_run(engine):
    mixing = mx.sym.softmax(mx.sym.Variable("x"), axis=0, name="mixing")
    plain = mx.sym.softmax(mx.sym.Variable("x"), name="plain")
    cells = dy.cell(mixing, None), dy.cell(plain, None)
    single = dy.wrap(torch.nn.Softmax(0), rows=False)
    dy.renew_cg()
    draw = np.random.RandomState(0)
    dy.forward([f(draw.randn(3)) for f in (*cells, single) for _ in range(4)])
    found = dy.explain()
    assert "by torch.vmap: softmax 'mixing'" in row_of(found, "cell mixing").execution
    assert row_of(found, "cell plain").execution == ""
    assert row_of(found, "cell Softmax").execution == "one by one: rows=False"
    assert row_of(found, "cell Softmax").batches == 1


def test_totals_and_times(engine):
    m = dy.ParameterCollection()
    W = m.add_parameters((3, 3))
    dy.renew_cg()
    losses = []
    for length in (4, 2, 3):
        h = dy.inputTensor([0.1, 0.2, 0.3])
        for _ in range(length):
            h = dy.tanh(W * h)
        losses.append(dy.squared_norm(h))
    dy.esum(losses).backward()
    found = dy.explain()
    assert found.engine == ("python" if engine == "python" or mx.native.core is None else "native")
    assert found.nodes == sum(row.nodes for row in found.rows)
    assert found.batches == sum(row.batches for row in found.rows) == len(found.sequence)
    assert found.saved == found.nodes - found.batches > 0
    assert sum(size for _, _, size in found.sequence) <= found.nodes
    assert list(found.seconds) == ["build", "schedule", "run", "backward"]
    assert all(seconds > 0 for seconds in found.seconds.values())


def test_table_and_picture(engine):
    dy.renew_cg()
    dy.forward([dy.sin(dy.inputTensor([float(i)] * (1 + i % 2))) for i in range(9)])
    found = dy.explain()
    lines = str(found).splitlines()
    assert lines[0].split() == ["operation", "nodes", "batches", "largest", "mean"]
    assert re.match(
        r"sin \{1\} -> \{1\} +5 +1 +5 +5\.0", next(line for line in lines if line.startswith("sin {1}"))
    )
    assert repr(found) == str(found)
    bars = xml.dom.minidom.parseString(found._repr_svg_()).getElementsByTagName("rect")
    titled = [each for each in bars if each.getElementsByTagName("title")]
    titles = [each.getElementsByTagName("title")[0].firstChild.data for each in titled]
    heights = {
        float(title.split()[-1]): float(each.getAttribute("height")) for each, title in zip(titled, titles)
    }
    assert heights[4] / heights[5] == pytest.approx(np.log2(4 + 1) / np.log2(5 + 1), abs=0.01)  # logarithmic
    assert len(titles) == found.batches
    assert "sin {1} -> {1}: 5" in titles
    assert "<svg" in found._repr_html_()
    assert "sin {1} -&gt; {1}" in found._repr_html_()


def test_long_pictures_are_cut():
    row = OperationRow("a<b", "a<b {1}", 700, 700, 1, 1.0, 700)
    found = Explanation("python", True, 700, 1, (row,), (("a<b", "a<b {1}", 1),) * 700, {"run": 1.0})
    picture = xml.dom.minidom.parseString(found._repr_svg_())
    assert "100 more are not drawn" in picture.toxml()


def test_nothing_has_been_run(engine):
    dy.renew_cg()
    dy.inputTensor([1.0])
    with pytest.raises(dy.StateError, match="nothing has been computed since renew_cg"):
        dy.explain()


def test_only_what_lies_there_was_asked_for(engine):
    dy.renew_cg()
    m = dy.ParameterCollection()
    parameter, table = m.add_parameters((3,), init=1.0), m.add_lookup_parameters((2, 3))
    dy.forward(
        [table[0], dy.lookup_batch(table, [0, 1]), dy.zeros(3), dy.inputTensor([1.0]), dy.one_hot(3, 1)]
    )
    assert parameter.vec_value() == [1.0, 1.0, 1.0]
    with pytest.raises(dy.StateError, match="only parameters, inputs, table rows"):
        dy.explain()
    dy.tanh(parameter).value()
    assert row_of(dy.explain(), "tanh").nodes == 1

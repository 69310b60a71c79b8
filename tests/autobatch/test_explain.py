"""`explain`: counts, reasons and pictures of runs whose batches are known."""

import re
import xml.dom.minidom

import numpy as np

import dpmodule.autobatch as dy


def row_of(operation, **values):
    """Return the row of an operation that has these values."""
    rows = [row for row in dy.explain().rows if row.operation == operation]
    rows = [row for row in rows if all(getattr(row, name) == value for name, value in values.items())]
    assert len(rows) == 1, dy.explain()
    return rows[0]


def pairs(count, size=2):
    return [dy.inputTensor([1.0, 2.0, 3.0, float(i)][-size:]) for i in range(count)]


def test_why_operations_stay_alone(engine):
    dy.sin(*pairs(1)).value()
    assert row_of("sin").why == "the only one of its kind"
    dy.renew_cg()
    dy.forward([dy.sin(x) for x in (*pairs(3), *pairs(1, 3))])
    row = row_of("sin", alone=1)
    assert row.label == "sin {3} -> {3}"
    assert row.why == "the only one of its kind; nearest: sin {2} -> {2}, which has different shapes"
    dy.renew_cg()
    (x,) = pairs(1)
    for _ in range(5):
        x = dy.softmax(x)
    x.forward()
    assert "depend on it" in row_of("softmax", nodes=5, batches=5, alone=5).why
    dy.renew_cg()
    for x in pairs(3):
        dy.sin(x).value()
    assert "computed in another forward" in row_of("sin", batches=3, alone=3).why
    assert dy.explain().forwards == 3
    dy.renew_cg(autobatching=False)
    dy.forward([dy.sin(x) for x in pairs(3)])
    assert "batching is off" in row_of("sin", batches=3, largest=1, alone=3).why
    assert dy.explain().saved == 0


def operations_of_a_program():
    """Run many kinds of operations; return what is told, and how often each was computed."""
    m = dy.ParameterCollection()
    table, W, b = m.add_lookup_parameters((9, 4)), m.add_parameters((3, 4)), m.add_parameters(3)
    lstm = dy.VanillaLSTMBuilder(1, 4, 4, m)
    xs = [*[table[i] for i in range(5)], dy.zeros(4), dy.one_hot(4, 1), dy.random_normal(4)]
    ys = [dy.affine_transform([b, W, dy.tanh(x)]) for x in xs]
    losses = [dy.pickneglogsoftmax(y, 1) for y in ys]
    losses += [dy.squared_norm(dy.cmult(y, y / 3.0) - (1.0 - dy.logistic(y))) for y in ys[:3]]
    losses.append(dy.sum_elems(dy.sum_batches(dy.concatenate_to_batch(ys[:2]))))
    losses.append(dy.mean_dim(dy.max_dim(dy.inputTensor(np.eye(3))), [0], False))
    losses.append(dy.sum_elems(lstm.initial_state().transduce(xs[:3])[-1]))
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
    _, wanted = operations_of_a_program()
    dy.configure(engine="auto")
    found, counts = operations_of_a_program()
    assert (counts, counts["affine_transform"], counts["lstm_step"]) == (wanted, 8 + 3, 3)
    assert not {"input", "constant", "lookup", "one_hot", "random", "parameter"} & set(counts)
    assert found.nodes == sum(row.nodes for row in found.rows)
    assert found.batches == sum(row.batches for row in found.rows) == len(found.sequence)
    assert found.saved == found.nodes - found.batches > 0
    assert list(found.seconds) == ["build", "schedule", "run", "backward"]
    assert all(seconds > 0 for seconds in found.seconds.values())


def test_table_and_picture(engine):
    dy.forward([dy.sin(dy.inputTensor([float(i)] * (1 + i % 2))) for i in range(9)])
    found = dy.explain()
    assert str(found).split()[:5] == ["operation", "nodes", "batches", "largest", "mean"]
    assert re.search(r"^sin \{1\} -> \{1\} +5 +1 +5 +5\.0", str(found), re.MULTILINE)
    picture = xml.dom.minidom.parseString(found._repr_svg_())
    titles = [each.firstChild.data for each in picture.getElementsByTagName("title")]
    assert {"sin {1} -> {1}: 5", "sin {2} -> {2}: 4"} <= set(titles)
    assert "sin {1} -&gt; {1}" in found._repr_html_()

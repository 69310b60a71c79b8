"""The area under the ROC curve over batches, against NumPy."""

import numpy as np
import pytest

import dpmodule as mx
import dpmodule.fluid as fluid

layers = fluid.layers


def area(scores, labels, bins):
    """Share of pairs of a positive and a negative that are in order; pairs in one interval count half."""
    places = (scores * bins).astype(int)
    above, below = places[labels > 0][:, None], places[labels <= 0]
    return ((above > below) + 0.5 * (above == below)).mean()


def click_net(bins=300, slide_steps=1):
    x, y = layers.data("x", [3]), layers.data("y", [1], dtype="int64")
    prediction = layers.fc(x, 2, act="softmax")
    loss = layers.mean(layers.cross_entropy(prediction, y))
    areas = layers.auc(prediction, y, num_thresholds=bins, slide_steps=slide_steps)
    fluid.optimizer.SGD(0.1).minimize(loss)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    return executor, (x, y), loss, prediction, *areas


def clicks(count=16, seed=0):
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(count, 3)).astype("float32")
    return x, (x.sum(1, keepdims=True) > draw.normal(size=(count, 1))).astype("int64")


@pytest.mark.parametrize("slide_steps", [0, 1, 2])
def test_auc_counts_all_batches_and_the_last_ones(slide_steps):
    executor, _, _, prediction, whole, last, _ = click_net(slide_steps=slide_steps)
    scores, labels = [], []
    for seed in range(5):
        x, y = clicks(seed=seed)
        found, a, b = executor.run(feed={"x": x, "y": y}, fetch_list=[prediction, whole, last])
        scores.append(found[:, 1])
        labels.append(y[:, 0])
        assert a == pytest.approx([area(np.concatenate(scores), np.concatenate(labels), 300)])
        window = slice(-slide_steps if slide_steps else None, None)
        assert b == pytest.approx([area(np.concatenate(scores[window]), np.concatenate(labels[window]), 300)])


def test_auc_of_a_test_program_starts_again_after_the_states_are_zeros():
    executor, _, _, prediction, whole, _, states = click_net()
    test = fluid.default_main_program().clone(for_test=True)
    feed = dict(zip("xy", clicks()))
    executor.run(feed=feed, fetch_list=[whole])
    for state in states:
        tensor = fluid.global_scope().find_var(state.name).get_tensor()
        assert np.array(tensor).any()
        tensor.set(np.zeros(tensor._get_dims(), "int64"), fluid.CPUPlace())
    found, value = executor.run(test, feed, [prediction, whole])
    assert value == pytest.approx([area(found[:, 1], feed["y"][:, 0], 300)])
    ones = {**feed, "y": np.ones_like(feed["y"])}
    for state in states:
        fluid.global_scope().find_var(state.name).get_tensor().set(np.zeros(state.shape))
    assert executor.run(test, ones, [whole])[0] == [0.0]


def clicks_dataset(inputs, folder, workers):
    x, y = clicks(80)
    rows = [f"3 {' '.join(map(str, row))} 1 {label}\n" for row, (label,) in zip(x, y)]
    files = [folder / "a", folder / "b"]
    for i, file in enumerate(files):
        file.write_text("".join(rows[i::2]))
    dataset = fluid.DatasetFactory().create_dataset("QueueDataset")
    dataset.set_batch_size(10)
    dataset.set_use_var(list(inputs))
    dataset.set_filelist([str(file) for file in files])
    dataset.set_thread(workers)
    return dataset, x, y


def zero(states):
    for state in states:
        fluid.global_scope().find_var(state.name).get_tensor().set(np.zeros(state.shape))


@pytest.mark.parametrize(("mode", "workers"), [("auto", 1), ("auto", 2), ("serial", 1), ("process", 2)])
def test_auc_of_files_is_that_after_the_last_line(mode, workers, tmp_path, capsys):
    executor, inputs, loss, prediction, whole, last, states = click_net()
    dataset, x, y = clicks_dataset(inputs, tmp_path, workers)
    result = executor.train_from_dataset(
        dataset=dataset, fetch_list=[loss, whole, last], print_period=8, mode=mode
    )
    counts = [np.array(fluid.global_scope().find_var(each.name).get_tensor()) for each in states[2:]]
    found = [each.sum() for each in counts]
    if mode == "process":
        assert 40 < sum(found) <= 80
    else:
        assert found == [(y > 0).sum(), (y == 0).sum()]
    places = [np.repeat(np.arange(301), each[0]) for each in counts]
    labels = np.repeat([1, 0], [len(each) for each in places])
    assert result[1] == pytest.approx(area(np.concatenate(places) / 300 + 1e-6, labels, 300))
    assert f"auc_0: {result[1]:.6g}" in capsys.readouterr().out
    zero(states)
    test = fluid.default_main_program().clone(for_test=True)
    dataset.set_thread(1)
    inferred = executor.infer_from_dataset(test, dataset, fetch_list=[whole])
    (found,) = executor.run(test, {"x": x, "y": y}, [prediction])
    assert inferred == pytest.approx([area(found[:, 1], y[:, 0], 300)])
    executor.close()


@pytest.mark.parametrize("slide_steps", [1, 3, 20])
def test_engines_count_the_same(slide_steps, tmp_path):
    executor, inputs, loss, _, whole, last, states = click_net(slide_steps=slide_steps)
    dataset, *_ = clicks_dataset(inputs, tmp_path, 1)
    found = {}
    for mode in ("serial", "native") if mx.native.core is not None else ("serial", "serial"):
        executor.run(fluid.default_startup_program())
        for name in ("fc_0_weight", "fc_0_bias"):
            tensor = fluid.global_scope().find_var(name).get_tensor()
            tensor.set(
                np.linspace(-1, 1, tensor.shape()[0] * 3)[: np.prod(tensor.shape())].reshape(tensor.shape())
            )
        zero(states)
        found[mode] = list(
            executor.train_from_dataset(dataset=dataset, fetch_list=[loss, whole, last], mode=mode)
        )
        sums = [np.array(fluid.global_scope().find_var(each.name).get_tensor()) for each in states]
        bins = slice(slide_steps * 301, -1)
        assert sums[0][bins].sum() + sums[1][bins].sum() == min(slide_steps * 10, 80)
    first, *others = found.values()
    for other in others:
        np.testing.assert_allclose(other, first, rtol=1e-4)

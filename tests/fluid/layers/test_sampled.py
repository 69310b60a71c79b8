"""Losses for many classes, against NumPy and torch."""

import numpy as np
import pytest

import dpmodule as mx
import dpmodule.fluid as fluid
from helpers.fluid_programs import run, values

layers = fluid.layers
START = fluid.ParamAttr(initializer=fluid.initializer.Normal(0.0, 0.5))


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def inputs(width=1):
    return layers.data("x", [3]), layers.data("label", [width], dtype="int64")


def walk(x, label, count, weight, bias):
    """Return the loss of a path through a heap-ordered tree, from the leaf to the root, and gradient of the weight."""
    total, gradient, node = 0.0, np.zeros_like(weight), label + count
    while node > 1:
        parent, bit = divmod(node, 2)
        score = weight[parent - 1] @ x + bias[parent - 1, 0]
        total += np.log1p(np.exp(score)) - bit * score
        gradient[parent - 1] += (sigmoid(score) - bit) * x
        node = parent
    return total, gradient


@pytest.mark.parametrize("count", [2, 5, 8, 11])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_hierarchical_softmax_is_a_walk_through_a_tree(count, is_sparse):
    loss = layers.hsigmoid(*inputs(), count, START, START, is_sparse=is_sparse)
    fluid.optimizer.SGD(0.0).minimize(layers.reduce_sum(loss))
    x, label = numbers(count, 3), np.arange(count)[:, None]
    found, gradient = run({"x": x, "label": label}, [loss, "hsigmoid_0_weight@GRAD"])
    weight, bias = values("hsigmoid_0_weight", "hsigmoid_0_bias")
    walks = [walk(row, n, count, weight, bias) for row, n in zip(x, range(count))]
    np.testing.assert_allclose(found[:, 0], [loss for loss, _ in walks], rtol=1e-4)
    np.testing.assert_allclose(gradient, sum(each for _, each in walks), rtol=1e-3, atol=1e-5)
    # the probabilities of all classes of one input add up to 1
    (all_of_one,) = fluid.Executor().run(
        feed={"x": x[:1].repeat(count, 0), "label": label}, fetch_list=[loss]
    )
    assert np.exp(-all_of_one).sum() == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize("sampler", ["uniform", "log_uniform"])
@pytest.mark.parametrize("known", [1, 2])
def test_noise_contrastive_loss(sampler, known):
    """Its mean over draws is the mean over the distribution of the sampler."""
    count, drawn, rows = 6, 3, 20000
    loss = layers.nce(*inputs(known), count, None, START, START, drawn, sampler=sampler)
    x, label = numbers(1, 3), np.array([[1, 4][:known]])
    mx.random.seed(2)
    (found,) = run({"x": x.repeat(rows, 0), "label": label.repeat(rows, 0)}, [loss])
    weight, bias = values("nce_0_weight", "nce_0_bias")
    out = sigmoid(x[0] @ weight.T + bias[:, 0])
    k = np.arange(count)
    noise = np.full(count, 1 / count) if sampler == "uniform" else np.log((k + 2) / (k + 1)) / np.log(count)
    drawn_with = noise if sampler == "uniform" else np.where(k < count - 1, noise, 0)
    b = noise * drawn
    hits = -np.log(out / (out + b))[label[0]].sum()
    misses = drawn * (drawn_with * -np.log(b / (out + b))).sum()
    assert found.mean() == pytest.approx(hits + misses, rel=0.01)
    assert found.std() > 0
    lowest = hits + drawn * (-np.log(b / (out + b)))[drawn_with > 0].min()
    assert found.min() == pytest.approx(lowest, rel=1e-4)


def test_a_word_model_trains_by_noise_contrast():
    word, label = layers.data("word", [1], dtype="int64"), layers.data("label", [1], dtype="int64")
    hidden = layers.embedding(word, [50, 8], is_sparse=True)
    weight = layers.data("weight", [1])
    loss = layers.mean(layers.nce(hidden, label, 50, sample_weight=weight, num_neg_samples=5, is_sparse=True))
    fluid.optimizer.Adam(0.05).minimize(loss)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    feed = {
        "word": np.arange(50)[:, None],
        "label": (np.arange(50)[:, None] + 1) % 50,
        "weight": np.ones((50, 1)),
    }
    losses = [executor.run(feed=feed, fetch_list=[loss])[0][0] for _ in range(60)]
    assert losses[-1] < 0.4 * losses[0]
    assert executor.run(feed={**feed, "weight": np.zeros((50, 1))}, fetch_list=[loss])[0] == [0.0]


@pytest.mark.parametrize("removes", [True, False])
def test_sampled_softmax_of_all_classes(removes):
    """If all classes are drawn, only the number of draws is unknown."""
    scores, label = layers.data("scores", [5]), layers.data("label", [1], dtype="int64")
    loss = layers.sampled_softmax_with_cross_entropy(scores, label, 5, remove_accidental_hits=removes)
    x, right = numbers(7, 5), np.arange(7)[:, None] % 5
    (found,) = run({"scores": x, "label": right}, [loss])
    probability = np.log((np.arange(5) + 2) / (np.arange(5) + 1)) / np.log(6)

    def losses(draws):
        reduced = x - np.log(1 - (1 - probability) ** draws)
        hits = np.take_along_axis(reduced, right, 1)
        total = np.exp(reduced).sum(1, keepdims=True)
        return np.log(total if removes else total + np.exp(hits)) - hits

    assert min(abs(losses(draws) - found).max() for draws in range(5, 300)) < 1e-4


def test_sampled_softmax_trains():
    x, label = inputs()
    loss = layers.mean(layers.sampled_softmax_with_cross_entropy(layers.fc(x, 30), label, 8))
    two = layers.data("two", [2], dtype="int64")
    both = layers.mean(layers.sampled_softmax_with_cross_entropy(layers.fc(x, 30), two, 8, num_true=2))
    fluid.optimizer.Adam(0.05).minimize(loss + both)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    given = numbers(90, 3)
    right = given.argmax(1)[:, None] * 10
    feed = {"x": given, "label": right, "two": np.concatenate([right, right + 1], 1)}
    losses = [executor.run(feed=feed, fetch_list=[loss, both]) for _ in range(80)]
    assert losses[-1][0] < 0.4 * losses[0][0]
    assert losses[-1][1] < 0.6 * losses[0][1]

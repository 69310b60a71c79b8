"""``dpmodule predict``: what it prints, and which samples it takes."""

import csv

import numpy as np
import pytest

import dpmodule as mx

FIT = ("fit", "--network", "mlp", "--epochs", "2")


def rows(text):
    return list(csv.reader(text.splitlines()))


def test_the_digits_kept_for_validation(run):
    trained = run(*FIT)
    done = run("predict", "--batch-size", "100")
    table = rows(done.out)
    assert len(table) == 360  # with the header
    scores = np.array(table[1:], float)
    np.testing.assert_allclose(scores[:, 2:].sum(axis=1), 1, atol=1e-4)
    np.testing.assert_array_equal(scores[:, 1], scores[:, 2:].argmax(axis=1))
    assert trained.out.splitlines()[0].split()[-1] == done.err.split()[1]
    assert len(rows(run("predict", "--validation", "1").out)) == 1798
    assert (
        "--validation 0.0 leaves nothing of the digits to predict"
        in run("predict", "--validation", "0").error
    )


def test_flat_rows_become_the_images_that_the_network_takes(run):
    np.savez("images.npz", x=np.random.RandomState(0).rand(30, 1, 6, 6), y=np.arange(30) % 3)
    assert run("fit", "--network", "lenet", "--data", "images.npz", "--epochs", "1").code == 0
    np.savez("flat.npz", x=np.load("images.npz")["x"].reshape(30, 36))
    assert run("predict", "--data", "flat.npz").out == run("predict", "--data", "images.npz").out
    np.savez("turned.npz", x=np.ones((2, 6, 6, 1)))
    assert (
        "a sample has the shape (6, 6, 1), but the network takes (1, 6, 6)"
        in run("predict", "--data", "turned.npz").error
    )


def test_a_column_too_many_is_told_by_the_file(run):
    table = np.column_stack([np.random.RandomState(0).rand(20, 5), np.arange(20) % 2])
    np.savetxt("five.csv", table, delimiter=",")
    np.savetxt("four.csv", table[:, 1:], delimiter=",")
    assert run(*FIT, "--data", "four.csv").code == 0
    wrong = "five.csv: a sample has 5 values, but the network takes 4"
    assert wrong in run("predict", "--data", "five.csv").error
    assert wrong in run("fit", "--data", "five.csv", "--load-epoch", "2", "--epochs", "3").error
    assert (
        "--validation-data five.csv: a sample has 5 values, expected 4 values as in four.csv"
        in run(*FIT, "--data", "four.csv", "--validation-data", "five.csv").error
    )
    assert (
        "--label-column names the column"
        in run("predict", "--data", "four.csv", "--label-column", "none").error
    )


def test_networks_that_give_no_classes_are_refused(run):
    data = mx.sym.Variable("data")
    fc = mx.sym.FullyConnected(data, num_hidden=2, name="fc")
    params = {"arg:fc_weight": mx.nd.ones((2, 3)), "arg:fc_bias": mx.nd.ones(2)}
    np.savez("x.npz", x=np.ones((5, 3)))
    mx.sym.Group([fc, fc * 2]).save("two-symbol.json")
    mx.sym.sum(fc, axis=1).save("flat-symbol.json")
    mx.nd.save("net.params", params)
    for name, match in [("two", "(5, 2)"), ("flat", "(5,)")]:
        error = run("predict", f"{name}-symbol.json", "net.params", "--data", "x.npz").error
        assert match in error
        assert "expected one output of shape (samples, classes)" in error
    fc.save("less-symbol.json")
    mx.nd.save("less.params", {"arg:fc_weight": params["arg:fc_weight"]})
    assert (
        "2 inputs without values (data, fc_bias)"
        in run("predict", "less-symbol.json", "less.params", "--data", "x.npz").error
    )


@pytest.mark.parametrize("marks", [[0, 1] * 10, ["train", "validation"] * 10])
def test_the_part_that_a_column_keeps_apart(marks, run):
    x = np.random.RandomState(0).rand(20, 2)
    with open("d.csv", "w") as file:
        file.write("a,part,b,kind\n")
        file.writelines(f"{a},{mark},{b},{int(a > b)}\n" for (a, b), mark in zip(x, marks))
    words = ("--data", "d.csv", "--validation-column", "part")
    trained = run(*FIT, *words)
    assert trained.code == 0
    done = run("predict", *words)
    assert len(rows(done.out)) == 11
    assert trained.out.splitlines()[0].split()[-1] == done.err.split()[1]

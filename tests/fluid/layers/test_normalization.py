"""Batch normalization and its moving statistics, against torch."""

import numpy as np
import pytest
import torch

import dpmodule.fluid as fluid

layers = fluid.layers


@pytest.mark.parametrize(
    ("shape", "layout"), [((4,), "NCHW"), ((4, 3, 2), "NCHW"), ((3, 2, 4), "NHWC"), ((4, 3, 2), "stats")]
)
def test_batch_norm_and_its_moving_statistics(shape, layout):
    axis = 1 if layout != "NHWC" else 3
    more = {"use_global_stats": True} if layout == "stats" else {"data_layout": layout}
    x = layers.data("x", list(shape))
    out = layers.batch_norm(x, "relu", momentum=0.7, name="bn", moving_mean_name="average", **more)
    test = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.SGD(0.0).minimize(layers.mean(layers.square(out)))
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    torch_norm = torch.nn.BatchNorm2d(4, momentum=0.3)
    torch_norm.train(layout != "stats")
    scope = fluid.global_scope()
    for seed in range(3):
        given = np.random.default_rng(seed).normal(1.0, 2.0, size=(6, *shape)).astype("float32")
        channels = torch.tensor(given).movedim(axis, 1).reshape(6, 4, -1, 1)
        wanted = torch_norm(channels).relu().detach().numpy()
        (found,) = executor.run(feed={"x": given}, fetch_list=[out])
        np.testing.assert_allclose(
            np.moveaxis(found, axis, 1).reshape(wanted.shape), wanted, rtol=1e-3, atol=1e-4
        )
    mean = np.array(scope.find_var("average").get_tensor())
    variance = np.array(scope.find_var("bn_variance").get_tensor())
    np.testing.assert_allclose(mean, torch_norm.running_mean, rtol=1e-4, atol=1e-5)
    # torch moves its variance to the unbiased one
    count = channels.numel() // 4
    kept = 1.0 if layout == "stats" else 0.7**3
    unbiased = (torch_norm.running_var.numpy() - kept) * (count - 1) / count + kept
    np.testing.assert_allclose(variance, unbiased, rtol=1e-4)
    (found,) = executor.run(test, {"x": given}, [out])
    places = tuple(4 if i == axis else 1 for i in range(1, found.ndim))
    expected = (given - mean.reshape(places)) / np.sqrt(variance.reshape(places) + 1e-5)
    np.testing.assert_allclose(found, expected.clip(0), rtol=1e-4, atol=1e-5)


def test_states_are_saved_and_loaded(tmp_path):
    x = layers.data("x", [3])
    out = layers.batch_norm(layers.fc(x, 2), name="bn")
    test = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.SGD(0.1).minimize(layers.mean(layers.square(out)))
    executor, scope = fluid.Executor(), fluid.global_scope()
    executor.run(fluid.default_startup_program())
    given = np.random.default_rng(0).normal(size=(16, 3)).astype("float32")
    executor.run(feed={"x": given})
    mean = scope.find_var("bn_mean").get_tensor()
    trained, wanted = np.array(mean), executor.run(test, {"x": given}, [out])
    assert trained.any()
    fluid.io.save_persistables(executor, tmp_path / "all")
    fluid.io.save_inference_model(tmp_path / "net", ["x"], [out], executor, test)
    mean.set(np.zeros(2))
    fluid.io.load_persistables(executor, tmp_path / "all")
    np.testing.assert_array_equal(scope.find_var("bn_mean").get_tensor(), trained)
    with fluid.scope_guard(fluid.Scope()):
        program, names, fetches = fluid.io.load_inference_model(tmp_path / "net", executor)
        found = executor.run(program, {names[0]: given}, fetches)
        np.testing.assert_array_equal(fluid.global_scope().find_var("bn_mean").get_tensor(), trained)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert [each.name for each in test.all_parameters() if each.is_state] == ["bn_mean", "bn_variance"]


def test_moving_statistics_follow_the_lines_of_files(tmp_path):
    x, y = layers.data("x", [2]), layers.data("y", [1])
    out = layers.fc(layers.batch_norm(x, momentum=0.5, name="bn"), 1)
    fluid.optimizer.SGD(0.01).minimize(layers.mean(layers.square_error_cost(out, y)))
    given = np.random.default_rng(0).normal(3.0, 2.0, size=(12, 2)).astype("float32")
    (tmp_path / "part").write_text("".join(f"2 {a} {b} 1 1\n" for a, b in given))
    dataset = fluid.DatasetFactory().create_dataset("QueueDataset")
    dataset.set_batch_size(4)
    dataset.set_use_var([x, y])
    dataset.set_filelist([str(tmp_path / "part")])
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    executor.train_from_dataset(dataset=dataset)
    mean = np.zeros(2)
    for batch in np.split(given, 3):
        mean = 0.5 * mean + 0.5 * batch.mean(0)
    np.testing.assert_allclose(fluid.global_scope().find_var("bn_mean").get_tensor(), mean, rtol=1e-4)

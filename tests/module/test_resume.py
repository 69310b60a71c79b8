"""Runs that are broken off and go on: bit for bit those that were never broken off."""

import logging
import os
import random
import signal
from functools import partial

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.base import ArgumentError, FileError, FileFormatError, NonFiniteError, StateError
from dpmodule.checkpoint import run_format
from helpers import datasets, iterators, resumable
from helpers.pictures import FOLDER, NAMES, file_of
from helpers.small_fits import blobs, classifier, parameters

# Python 3.12 warns of what forked workers do on purpose
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


class Killed(Exception):
    pass


def killed_at(batch):
    """Return a callback that raises after so many batches of the whole run."""

    def count(param):
        if param.locals["run"].num_batches == batch:
            raise Killed

    return count


def assert_bits(one, other):
    first, second = parameters(one), parameters(other)
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


def run(tmp_path, make_data=lambda: blobs(shuffle=True), kill=None, prefix="run", module=None, **options):
    """Return a module after training as a fresh process would do it, which goes on from what is saved."""
    goes_on = (tmp_path / f"{prefix}-symbol.json").exists()
    mx.random.seed_all(options.pop("later_seed", 1234) if goes_on else 9)
    made = (
        module()
        if module is not None
        else mx.mod.Module(classifier(dropout=0.3), context=options.pop("context", mx.cpu()))
    )
    every = {
        "every_n_batches": options.pop("every", 5),
        "every_n_epochs": options.pop("every_n_epochs", 1),
    }
    checkpoint = mx.callback.Checkpoint(tmp_path / prefix, **every)
    known = {
        "num_epoch": 3,
        "initializer": mx.init.Xavier(),
        "optimizer_params": {"learning_rate": 0.1},
        "eval_metric": ["acc", "ce"],
        "checkpoint": checkpoint,
    }
    known.update({name: value for name, value in options.items() if name != "later_seed"})
    if kill is not None:
        with pytest.raises(Killed):
            made.fit(make_data(), batch_end_callback=killed_at(kill), resume="auto", **known)
        return made, None
    return made, made.fit(make_data(), resume="auto", **known)


def check_resumes(tmp_path, kills=(3, 7, 14, 24, 30), **options):
    """Check that a run killed after some batches, again and again, ends in the bits of one that was never killed."""
    whole, history = run(tmp_path, prefix="whole", **options)
    for kill in kills:
        run(tmp_path, kill=kill, prefix="killed", **options)
    again, found = run(tmp_path, prefix="killed", **options)
    assert_bits(whole, again)
    columns = [{k: v for k, v in row.items() if k != "time_s"} for row in history]
    assert [{k: v for k, v in row.items() if k != "time_s"} for row in found] == columns


@pytest.fixture(autouse=True)
def no_waiting_for_disks(monkeypatch):
    """Leave out what only a loss of power would show, and takes most of the time of saving."""
    monkeypatch.setattr(os, "fsync", lambda number: None)


SCHEDULES = {
    "none": lambda: None,
    "factor": lambda: mx.lr_scheduler.FactorScheduler(5, 0.8, base_lr=0.1),
    "cosine": lambda: mx.lr_scheduler.CosineScheduler(36, 0.1, warmup_steps=4),
    "one_cycle": lambda: mx.lr_scheduler.OneCycle(0.1, 36),
}


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "nadam", "rmsprop", "ftrl", "sgld"])
def test_any_optimizer(tmp_path, optimizer):
    check_resumes(tmp_path, (7, 24), optimizer=optimizer, optimizer_params={"learning_rate": 0.02})


def test_what_training_changes_makes_no_other_optimizer(tmp_path):
    others = {
        "groupadagrad",
        "test",
        "torchoptimizer",
        "_svrgoptimizer",
    }  # matrices only; made with arguments
    names = sorted(mx.optimizer.Optimizer.opt_registry.keys() - others)
    assert len(names) > 15
    for name in names:
        module = mx.mod.Module(classifier(2))
        for last in (1, 2):
            options = {"optimizer": name, "num_epoch": last, "checkpoint": tmp_path / name, "resume": "auto"}
            history = module.fit(blobs(count=16), **options)
            assert len(history) == last, name


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_any_schedule(tmp_path, schedule):
    whole, again = None, None
    for prefix, kill in (("whole", None), ("killed", 17), ("killed", None)):
        params = {"learning_rate": 0.1, "momentum": 0.9, "lr_scheduler": SCHEDULES[schedule]()}
        if params["lr_scheduler"] is None:
            del params["lr_scheduler"]
        else:
            del params["learning_rate"]
        again, _ = run(tmp_path, prefix=prefix, kill=kill, optimizer_params=params)
        whole = whole or again
    assert_bits(whole, again)


def test_any_batch(tmp_path):
    check_resumes(tmp_path, range(1, 37, 4), every=3)


def test_two_contexts(tmp_path):
    for store, kills in (("local", (7, 24)), (None, (8,))):
        folder = tmp_path / str(store)
        folder.mkdir()
        check_resumes(folder, kills, module=resumable.of_contexts, kvstore=store)


def test_gradients_that_wait(tmp_path):
    check_resumes(tmp_path, (6, 13, 24), accumulate=4, clip_global_norm=0.3, every=1)


def test_a_rolled_over_rest(tmp_path):
    def data():
        points = blobs(count=91)
        return mx.io.NDArrayIter(
            points.data[0][1], points.label[0][1], 8, True, last_batch_handle="roll_over"
        )

    check_resumes(tmp_path, (9, 15, 27), make_data=data)


def test_a_rest_that_rolls_over_when_the_last_batch_has_been_saved(tmp_path):
    """An iterator keeps the rest when it is asked for more, which it is not before that is saved."""

    make = partial(resumable.some_points, 0, 1, last_batch_handle="roll_over")
    check_resumes(tmp_path, (15,), make_data=make, every=11, every_n_epochs=9)


ITERATORS = {
    "resized": lambda: mx.io.ResizeIter(blobs(shuffle=True), 7),
    "prefetching": lambda: mx.io.PrefetchingIter(blobs(shuffle=True), depth=3),
    "list": lambda: [(batch.data[0].asnumpy(), batch.label[0].asnumpy()) for batch in blobs()],
}


@pytest.mark.parametrize("kind", ITERATORS)
def test_iterators_in_iterators(tmp_path, kind):
    check_resumes(tmp_path, (4, 11, 16), make_data=ITERATORS[kind], every=2)


def test_a_shuffling_loader_of_torch(tmp_path):
    import torch

    points = blobs()
    dataset = torch.utils.data.TensorDataset(points.data[0][1].torch(), points.label[0][1].torch())
    check_resumes(
        tmp_path,
        (7, 13, 20),
        make_data=lambda: torch.utils.data.DataLoader(dataset, batch_size=8, shuffle=True),
    )


def pictures(count):
    return [file_of(NAMES[i % 3]) for i in range(count)]


def recorded(folder, count=23):
    """Return the path, without its ending, of a record file with an index; labels are 0, 1, 2."""
    path = folder / "pictures"
    with mx.recordio.MXIndexedRecordIO(f"{path}.idx", f"{path}.rec", "w") as record:
        for i, file in enumerate(pictures(count)):
            record.write_idx(i, mx.recordio.pack((0, float(i % 3), i, 0), file))
    return path


def of_pictures(objects=False):
    """Return a module that classifies pictures of 4 by 4 pixels."""
    net = mx.sym.FullyConnected(mx.sym.Variable("data") / 255, num_hidden=3, name="scores")
    if objects:  # the class of the first object
        label = mx.sym.slice(mx.sym.Variable("label"), begin=(0, 0, 0), end=(None, 1, 1))
        label = mx.sym.Reshape(label, shape=(-1,))
        net = mx.sym.SoftmaxOutput(net, label, name="softmax")
        return mx.mod.Module(net, label_names=["label"])
    return mx.mod.Module(mx.sym.SoftmaxOutput(mx.sym.Dropout(net, p=0.2), name="softmax"))


IMAGES = {
    "shuffled": {"shuffle": True, "rand_mirror": True, "rand_crop": True},
    "in_order": {"path_imgidx": None, "brightness": 0.2},
    "discard": {"last_batch_handle": "discard", "shuffle": True},
    "roll_over": {"last_batch_handle": "roll_over", "shuffle": True},
    "roll_over_in_order": {"last_batch_handle": "roll_over", "path_imgidx": None},
}


def quick(kinds, *names):
    """Return the names of kinds, all but some of them for the long form."""
    return [each if each in names else pytest.param(each, marks=pytest.mark.slow) for each in kinds]


@pytest.mark.parametrize("kind", quick(IMAGES, "shuffled", "roll_over_in_order"))
def test_images_changed_by_python(tmp_path, kind):
    path = recorded(tmp_path)
    given = {"path_imgrec": f"{path}.rec", "path_imgidx": f"{path}.idx", **IMAGES[kind]}
    check_resumes(
        tmp_path,
        (4, 7),
        make_data=lambda: mx.image.ImageIter(4, (3, 4, 4), **given),
        module=of_pictures,
        num_epoch=2,
        every=2,
    )


def test_images_and_their_objects(tmp_path):
    draw = np.random.RandomState(0)
    rows = [
        [2, 5, i % 3, *draw.uniform(0, 0.4, 2), *draw.uniform(0.6, 1, 2), f"{NAMES[i % 3]}.png"]
        for i in range(11)
    ]
    check_resumes(
        tmp_path,
        (4, 7),
        num_epoch=2,
        make_data=lambda: mx.image.ImageDetIter(
            3, (3, 4, 4), imglist=rows, path_root=FOLDER, shuffle=True, rand_mirror=True
        ),
        module=lambda: of_pictures(objects=True),
        eval_metric=mx.metric.CustomMetric(lambda label, pred: float(pred.sum()), "total"),
        every=2,
    )


RECORDS = {
    "shuffled": {"shuffle": True, "rand_mirror": True, "rand_crop": True},
    "indexed": {"shuffle": True, "max_rotate_angle": 20},
    "in_order": {"rand_mirror": True},
    "stale": {"round_batch": False, "rand_mirror": True, "shuffle": True},
    "fixed": {"seed_aug": 5, "rand_crop": True},
    "one_ahead": {"prefetch_buffer": 1, "shuffle": True, "rand_mirror": True},
}


@pytest.mark.parametrize("kind", quick(RECORDS, "indexed", "stale", "one_ahead"))
def test_images_of_records(tmp_path, kind):
    path = recorded(tmp_path)
    given = {"path_imgidx": f"{path}.idx" if kind == "indexed" else "", **RECORDS[kind]}

    def data():
        return mx.io.ImageRecordIter(
            path_imgrec=f"{path}.rec",
            data_shape=(3, 4, 4),
            batch_size=4,
            verbose=False,
            preprocess_threads=2,
            **given,
        )

    check_resumes(tmp_path, (4, 7), make_data=data, module=of_pictures, num_epoch=2, every=2)


def part_of_records(path, **part):
    return mx.io.ImageRecordIter(
        path_imgrec=f"{path}.rec",
        path_imgidx=f"{path}.idx",
        data_shape=(3, 4, 4),
        batch_size=4,
        shuffle=True,
        rand_mirror=True,
        verbose=False,
        **part,
    )


def test_records_whose_epochs_are_cut_short(tmp_path):
    """The number of changes drawn depends on what was decoded ahead when an epoch was cut."""
    path = recorded(tmp_path)
    check_resumes(
        tmp_path,
        (4, 5),
        make_data=lambda: mx.io.ResizeIter(part_of_records(path), 4),
        module=of_pictures,
        num_epoch=2,
        every=2,
    )


def regression(width):
    net = mx.sym.Dropout(mx.sym.Reshape(mx.sym.Variable("data"), shape=(-1, width)), p=0.1)
    net = mx.sym.FullyConnected(net, num_hidden=1, name="f")
    return mx.mod.Module(mx.sym.LinearRegressionOutput(net, name="softmax"))


SLOW = {"eval_metric": "mse", "optimizer_params": {"learning_rate": 1e-4}}
WORKERS = {
    "pad": (lambda path: resumable.some_points, {}),
    "roll_over": (lambda path: partial(resumable.some_points, last_batch_handle="roll_over"), {}),
    "drawing": (lambda path: iterators.Drawing, {"module": partial(regression, 3), **SLOW}),
    "records": (lambda path: partial(part_of_records, recorded(path)), {"module": of_pictures}),
}


@pytest.mark.parametrize("kind", quick(WORKERS, "roll_over", "drawing", "records"))
def test_worker_processes(tmp_path, kind, caplog):
    factory, options = WORKERS[kind]
    factory, made = factory(tmp_path), []

    def data():
        for each in made:
            each.close()
        made[:] = [mx.io.ProcessPrefetchingIter(factory, 2, start_method="fork")]
        return made[0]

    with caplog.at_level(logging.INFO):
        check_resumes(
            tmp_path,
            (8,) if kind in ("drawing", "records") else (14,),
            make_data=data,
            every=3,
            num_epoch=2,
            **options,
        )
    made[0].close()
    silent = "the iterators of the workers do not save their position" in caplog.text
    assert silent == (kind == "drawing")


LOADERS = {
    "shuffled": lambda: (datasets.Drawn(40), {"shuffle": True}),
    "iterable": lambda: (datasets.Numbers(40), {}),
}


@pytest.mark.parametrize("workers", [None, 2])
@pytest.mark.parametrize("kind", LOADERS)
def test_a_loader_and_its_workers(tmp_path, kind, workers):
    made = []

    def data():
        for each in made:
            each.close()
        dataset, options = LOADERS[kind]()
        made[:] = [
            mx.io.DataLoaderIter(dataset, batch_size=4, num_workers=workers, start_method="fork", **options)
        ]
        return made[0]

    check_resumes(
        tmp_path,
        (4, 13),
        make_data=data,
        num_epoch=2,
        module=partial(regression, 1 if kind == "shuffled" else 2),
        **SLOW,
    )
    made[0].close()


def test_a_program_for_one_example(tmp_path):
    check_resumes(
        tmp_path,
        (7, 9),
        num_epoch=2,
        make_data=resumable.some_examples,
        module=resumable.of_examples,
        optimizer="adam",
        optimizer_params={"learning_rate": 0.05},
        eval_metric="acc",
    )


def test_an_iterator_that_says_nothing_is_read_again(tmp_path, caplog):
    class Silent(mx.io.DataIter):
        def __init__(self):
            super().__init__(8)
            self.inner = blobs(shuffle=True)
            self.provide_data, self.provide_label = self.inner.provide_data, self.inner.provide_label

        def next(self):
            return self.inner.next()

        def reset(self):
            self.inner = blobs(shuffle=True)

    with caplog.at_level(logging.INFO):
        # the order of the first epoch was drawn by the program, which has to draw it again
        check_resumes(tmp_path, (7, 16, 29), make_data=Silent, later_seed=9)
    assert "Silent does not define state_dict: reading 5 batches again" in caplog.text


class Plain(mx.io.DataIter):
    """An iterator of a program: shuffles in place, changes its rows at random, and says nothing of where it stands."""

    def __init__(self, shuffle, noise=lambda: 0.0):
        super().__init__(8)
        points = blobs()
        self.rows, self.classes = points.data[0][1].asnumpy(), points.label[0][1].asnumpy()
        self.provide_data, self.provide_label = points.provide_data, points.provide_label
        self.order, self.at = np.arange(96), 0
        self.shuffle, self.noise = shuffle, noise

    def reset(self):
        self.at = 0
        self.shuffle(self.order)

    def next(self):
        if self.at == 96:
            raise StopIteration
        part, self.at = self.order[self.at : self.at + 8], self.at + 8
        return mx.io.DataBatch(
            [mx.nd.array(self.rows[part] + self.noise())], [mx.nd.array(self.classes[part])]
        )


def held_by_a_closure():
    source = np.random.RandomState(5)
    return Plain(lambda order: source.shuffle(order), lambda: source.standard_normal() / 9)


def held_by_a_method():
    source = random.Random(5)
    return Plain(lambda order: order.sort(), source.random)


def of_globals():
    return Plain(
        lambda order: np.random.shuffle(order),
        lambda: torch.rand(1).item() + mx.nd.random.normal().asscalar(),
    )


class Endless(Plain):
    """Goes on reading one Python generator over all epochs."""

    def __init__(self):
        super().__init__(None)
        source = np.random.default_rng(5)
        self.parts = (part for _ in range(99) for part in source.permutation(96).reshape(12, 8))

    def reset(self):
        self.at = 0

    def next(self):
        if self.at < 96:
            self.order[self.at : self.at + 8] = next(self.parts)
        return super().next()


def loader(sampler=None, **options):
    points = blobs()
    dataset = torch.utils.data.TensorDataset(points.data[0][1].torch(), points.label[0][1].torch())
    return torch.utils.data.DataLoader(dataset, batch_size=8, sampler=sampler and sampler(dataset), **options)


class Shuffled(torch.utils.data.Sampler):
    """Shuffles the order of the last epoch once more."""

    def __init__(self, dataset):
        self.source, self.order = random.Random(4), list(range(len(dataset)))

    def __len__(self):
        return len(self.order)

    def __iter__(self):
        self.source.shuffle(self.order)
        return iter(list(self.order))


OWN_DATA = {
    "closure": held_by_a_closure,
    "method": held_by_a_method,
    "globals": of_globals,
    "generator": lambda: loader(shuffle=True, generator=torch.Generator().manual_seed(5)),
    "sampler": lambda: loader(Shuffled),
    "workers": lambda: mx.io.ProcessPrefetchingIter(
        lambda **part: held_by_a_method(), 1, start_method="fork"
    ),
}


@pytest.mark.parametrize("kind", OWN_DATA)
def test_data_of_a_program_that_draw_random_numbers(tmp_path, kind):
    """Killed twice within an epoch, and at the beginning of one."""
    made = []

    def data():
        for each in made:
            each.close()
        made[:] = [OWN_DATA[kind]()] if kind == "workers" else []
        return made[0] if made else OWN_DATA[kind]()

    check_resumes(tmp_path, (6, 8, 13, 22), make_data=data, every=2, num_epoch=2)


class Drawing:
    """A callback that draws random numbers of all kinds, and changes parameters by them."""

    def __init__(self):
        self.own = [random.Random(3), np.random.default_rng(3)]

    def __call__(self, *args):
        value = sum(each.random() for each in [*self.own, random, np.random]) + torch.rand(1).item()
        module = getattr(args[0], "locals", {}).get("run") and args[0].locals["module"]
        if module:
            weights, states = module.get_params()
            module.set_params({name: weight + value / 99 for name, weight in weights.items()}, states)


class DrawingMetric(mx.metric.EvalMetric):
    def __init__(self):
        self.own = np.random.RandomState(3)
        super().__init__("drawing")

    def update(self, labels, preds):
        self.sum_metric += self.own.rand() + np.random.rand()
        self.num_inst += 1


def test_callbacks_and_metrics_that_draw_random_numbers(tmp_path):
    def options(*callbacks):
        names = ("epoch_end_callback", "eval_end_callback", "eval_batch_end_callback")
        found = {name: [Drawing()] for name in names}
        found |= {"batch_end_callback": [Drawing(), *callbacks], "eval_metric": ["acc", DrawingMetric()]}
        return {**found, "eval_data": blobs(count=24), "num_epoch": 2, "every": 3}

    whole, history = run(tmp_path, prefix="whole", **options())
    for kill in (5, 11):
        with pytest.raises(Killed):
            run(tmp_path, **options(killed_at(kill)))
    interrupted = options()
    interrupted["eval_batch_end_callback"].append(signal_at(2, signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, **interrupted)
    with pytest.raises(Killed):
        run(tmp_path, **options(killed_at(20)))
    again, found = run(tmp_path, **options())
    assert_bits(whole, again)
    for name in ("train-drawing", "validation-drawing", "validation-accuracy"):
        assert found[name] == history[name]
    with pytest.raises(StateError, match="drew random numbers from .*callbacks.*which is missing here"):
        run(tmp_path, eval_metric=["acc", DrawingMetric()], eval_data=blobs(count=24))


INEXACT = {
    "seeded otherwise": (
        lambda: of_globals_from_the_start(),
        7,
        "it returns another batch at this position than before",
    ),
    "endless": (Endless, 13, "and parts cannot be kept over a resume"),
    "persistent workers": (
        lambda: loader(shuffle=True, num_workers=1, persistent_workers=True),
        13,
        "and _iterator cannot be kept over a resume",
    ),
    "inside": (
        lambda: mx.io.ResizeIter(of_globals(), 12),
        7,
        "an iterator inside it, does not define state_dict",
    ),
}


def of_globals_from_the_start():
    data = of_globals()
    data.reset()
    return data


@pytest.mark.parametrize("kind", INEXACT)
def test_what_cannot_be_resumed_exactly_is_refused_before_it_trains(tmp_path, kind):
    make, kill, words = INEXACT[kind]
    run(tmp_path, kill=kill, make_data=make)
    batches = []
    with pytest.raises(StateError, match=words):
        run(tmp_path, make_data=make, batch_end_callback=batches.append)
    assert batches == []


def test_files_of_rows(tmp_path):
    path = tmp_path / "rows.csv"
    points = blobs(count=90)
    np.savetxt(path, points.data[0][1].asnumpy(), delimiter=",")
    np.savetxt(tmp_path / "label.csv", points.label[0][1].asnumpy(), delimiter=",")

    def data():
        return mx.io.CSVIter(
            data_csv=str(path),
            data_shape=(2,),
            label_csv=str(tmp_path / "label.csv"),
            batch_size=8,
            label_name="softmax_label",
        )

    check_resumes(tmp_path, (9, 15, 28), make_data=data)


def test_buckets(tmp_path):
    check_resumes(
        tmp_path,
        (3, 8, 14),
        make_data=resumable.sentence_data,
        module=resumable.of_buckets,
        eval_metric=mx.metric.Perplexity(0),
        every=2,
    )


def test_a_chain_of_modules(tmp_path):
    check_resumes(tmp_path, (7, 25), module=resumable.chain, optimizer="adam")


def signal_at(count, number):
    """Return a callback that sends this process a signal when it has been called so many times."""
    seen = []

    def count_and_send(*_):
        seen.append(None)
        if len(seen) == count:
            signal.raise_signal(number)

    return count_and_send


PLACES = {
    "the last batch": ("batch_end_callback", 12),
    "the end of an epoch": ("epoch_end_callback", 1),
    "evaluation": ("eval_batch_end_callback", 3),
    "the end of evaluation": ("eval_end_callback", 1),
    "the last epoch": ("eval_end_callback", 2),
}


@pytest.mark.parametrize("contexts", [1, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda each: each.name)
def test_a_signal_between_batches(tmp_path, number, contexts):
    """What an epoch has come to is saved, and is not lost by what is evaluated, and evaluated again, after it."""
    options = {
        "module": partial(resumable.of_contexts, contexts),
        "eval_data": blobs(shuffle=True),
        "num_epoch": 2,
        "every": 7,
        "every_n_epochs": 9,
    }
    whole, history = run(tmp_path, prefix="whole", **options)
    for place, (argument, count) in PLACES.items():
        with pytest.raises(SystemExit if number == signal.SIGTERM else KeyboardInterrupt) as error:
            run(tmp_path, **{**options, argument: signal_at(count, number)}, prefix=place)
        assert number == signal.SIGINT or error.value.code == 143
        batches = []
        again, found = run(tmp_path, **options, batch_end_callback=batches.append, prefix=place)
        assert len(batches) == (0 if place == "the last epoch" else 12)
        assert_bits(whole, again)
        columns = [{k: v for k, v in row.items() if k != "time_s"} for row in history]
        assert [{k: v for k, v in row.items() if k != "time_s"} for row in found] == columns


def test_more_epochs(tmp_path):
    long, _ = run(tmp_path, prefix="long", num_epoch=4)
    run(tmp_path, prefix="short", num_epoch=2)
    again, history = run(tmp_path, prefix="short", num_epoch=4)
    assert_bits(long, again)
    assert [row["epoch"] for row in history] == [0, 1, 2, 3]
    done, history = run(tmp_path, prefix="short", num_epoch=4)
    assert_bits(long, done)
    assert len(history) == 4


def test_callbacks_go_on(tmp_path):
    def options():
        return {"callbacks": [mx.callback.EMA(0.9), mx.callback.EarlyStopping("train-accuracy", patience=9)]}

    whole, _ = run(tmp_path, prefix="whole", **options())
    run(tmp_path, kill=20, **options())
    again, _ = run(tmp_path, **options())
    assert_bits(whole, again)


def fixed(*values):
    """Return a metric of training whose values, epoch by epoch, are given."""
    metric = mx.metric.CustomMetric(lambda label, pred: 0.0, "fixed")
    left = iter(values)
    metric.get_global_name_value = lambda: [("fixed", next(left))]
    return metric


def stopping(**options):
    return mx.callback.EarlyStopping("train-fixed", patience=1, mode="max", **options)


def test_the_best_parameters_come_back_over_resuming(tmp_path):
    best, _ = run(tmp_path, prefix="best", num_epoch=1)
    values = (9, 1, 2)
    run(tmp_path, kill=20, eval_metric=fixed(*values), callbacks=stopping(restore_best=True))
    again, _ = run(tmp_path, eval_metric=fixed(*values[1:]), callbacks=stopping(restore_best=True))
    assert_bits(best, again)


def test_what_a_callback_has_ended_stays_so(tmp_path):
    options = {"num_epoch": 9, "callbacks": stopping()}
    ended, history = run(tmp_path, eval_metric=fixed(5, 4, 3), **options)
    assert (len(history), history.ended) == (3, "EarlyStopping after epoch 2")
    again, history = run(tmp_path, eval_metric=fixed(), **{**options, "callbacks": stopping()})
    assert (len(history), history.ended) == (3, "EarlyStopping before it was resumed")
    assert_bits(ended, again)
    patient = mx.callback.EarlyStopping("train-fixed", patience=3, mode="max")
    _, history = run(tmp_path, eval_metric=fixed(2, 1), **{**options, "callbacks": patient})
    assert len(history) == 5


def test_states_of_callbacks_find_their_owners(tmp_path, caplog):
    def options(*more):
        return {"eval_metric": fixed(1, 2, 3), "callbacks": [*more, mx.callback.EMA(0.9)]}

    whole, _ = run(tmp_path, prefix="whole", **options())
    run(tmp_path, kill=20, **options())
    with caplog.at_level(logging.INFO):
        again, _ = run(tmp_path, **options(stopping()))
    assert_bits(whole, again)
    assert "the run was saved without EarlyStopping, which starts from its initial state" in caplog.text


def test_an_average_of_updates_goes_on(tmp_path):
    found = []
    for prefix, kill in (("whole", None), ("killed", 7), ("killed", 15), ("killed", None)):
        average = mx.callback.EMA(0.8)
        found.append(run(tmp_path, kill=kill, prefix=prefix, callbacks=average, accumulate=3)[0])
    assert_bits(found[0], found[3])


# ends before the last epoch


def test_limits_save_where_they_end_a_run(tmp_path):
    whole, _ = run(tmp_path, prefix="whole")
    for limit in (17, 24, 24, 30):
        _, history = run(tmp_path, max_batches=limit, every=None)
        assert history.ended == f"max_batches={limit}"
    again, _ = run(tmp_path)
    assert_bits(whole, again)
    for _ in range(2):
        _, history = run(tmp_path, prefix="timed", max_time_s=1e-9, every=None)
        assert history.ended == "max_time_s=1e-09"
    assert history.rows[-1]["batch"] == 2
    again, _ = run(tmp_path, prefix="timed")
    assert_bits(whole, again)


class Poisoned(mx.io.NDArrayIter):
    """Points of which one is NaN, in some batch of each epoch."""

    def __init__(self, at=5, shuffle=True):
        points = blobs()
        data = points.data[0][1].asnumpy().copy()
        data[8 * at] = np.nan
        super().__init__(data, points.label[0][1].asnumpy(), 8, shuffle)


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("at", [0, 5, 11])
def test_the_last_finite_state_is_saved(tmp_path, at, accumulate):
    options = {"make_data": lambda: Poisoned(at, at == 5), "accumulate": accumulate, "num_epoch": 2}
    skipped, _ = run(tmp_path, prefix="skipped", on_nonfinite="skip", **options)
    for _ in range(2):
        before = {path: path.read_bytes() for path in tmp_path.glob("run-0*")}
        with pytest.raises(NonFiniteError):
            run(tmp_path, every=None, **options)
        assert {path: path.read_bytes() for path in before} == before
        assert (tmp_path / "run-last.run").exists()
    again, _ = run(tmp_path, **options)
    assert_bits(skipped, again)


def test_a_spoilt_state_is_not_saved(tmp_path):
    module = mx.mod.Module(classifier())
    module.bind(blobs().provide_data, blobs().provide_label)
    module.init_params()
    values = module.get_params()[0]
    module.set_params({**values, "scores_bias": values["scores_bias"] * np.nan}, {})
    with pytest.raises(NonFiniteError, match="not finite in scores_bias"):
        module.fit(blobs(), num_epoch=1, checkpoint=tmp_path / "a")
    assert names(tmp_path) == []


def test_a_dry_run_leaves_files_alone(tmp_path):
    run(tmp_path, num_epoch=1)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    run(tmp_path, num_epoch=2, every=1, dry_run=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


# the files


def names(tmp_path):
    return sorted(path.name for path in tmp_path.iterdir())


def test_epochs_that_are_kept(tmp_path):
    metric = fixed(0.5, 0.9, 0.8, 0.7, 0.6)
    checkpoint = mx.callback.Checkpoint(
        tmp_path / "a", keep_last=1, keep_best=2, metric="train-fixed", mode="max"
    )
    module = mx.mod.Module(classifier())
    module.fit(blobs(), num_epoch=5, eval_metric=metric, checkpoint=checkpoint)
    sets = [f"a-{epoch:04d}.{ending}" for epoch in (2, 3, 5) for ending in ("params", "run", "states")]
    assert names(tmp_path) == [*sets, "a-symbol.json"]


def test_mxnets_functions_read_what_is_saved(tmp_path):
    module, _ = run(tmp_path, num_epoch=2)
    loaded = mx.mod.Module.load(str(tmp_path / "run"), 2, load_optimizer_states=True)
    points = blobs()
    loaded.bind(points.provide_data, points.provide_label)
    loaded.init_optimizer(optimizer_params={"learning_rate": 0.1})
    assert_bits(module, loaded)
    assert mx.checkpoint.epochs(str(tmp_path / "run")) == [1, 2]


def test_another_run_is_refused_with_all_that_differs(tmp_path):
    run(tmp_path, num_epoch=1)
    with pytest.raises(
        ArgumentError, match="optimizer was .*SGD.* is .*Adam.*; the batch size was 8, is 4"
    ) as error:
        run(tmp_path, make_data=lambda: blobs(count=60, batch_size=4), optimizer="adam")
    assert "number of examples was 96, is 60" in str(error.value)
    with pytest.raises(ArgumentError, match=r"parameter 'hidden_weight' was \[8, 2\], is \[5, 2\]"):
        run(tmp_path, module=lambda: mx.mod.Module(classifier(5)))
    with pytest.raises(ArgumentError, match="the network has other operators or attributes"):
        run(tmp_path, module=lambda: mx.mod.Module(classifier(dropout=0.4)))


def rate_at_batches(rates):
    def note(param):
        rates.append(float(param.locals["module"].optimizer.learning_rate))

    return note


def test_another_learning_rate_or_schedule_is_taken_and_logged(tmp_path, caplog):
    """The run goes on as one whose optimizer was given the other rate at that moment."""
    schedules = {
        "a rate": lambda: {"learning_rate": 0.2},
        "a schedule": lambda: {"lr_scheduler": mx.lr_scheduler.FactorScheduler(5, 0.5, base_lr=0.4)},
        "its like": lambda: {"lr_scheduler": mx.lr_scheduler.FactorScheduler(5, 0.7, base_lr=0.4)},
        "another": lambda: {"lr_scheduler": mx.lr_scheduler.CosineScheduler(20, 0.3, final_lr=0.01)},
    }
    for first in schedules:
        for second in schedules:
            caplog.clear()
            prefix, rates, whole = f"{first} {second}", [], []
            run(tmp_path, prefix=prefix, kill=12, num_epoch=2, optimizer_params=schedules[first]())
            for name, found in ((prefix, rates), ("whole " + prefix, whole)):
                options = {
                    "optimizer_params": schedules[second](),
                    "batch_end_callback": rate_at_batches(found),
                }
                with caplog.at_level(logging.INFO):
                    run(tmp_path, prefix=name, num_epoch=2, **options)
            assert rates == whole[10:], prefix
            text = " of the saved run becomes "
            assert (text in caplog.text) is (first != second), prefix


def test_multipliers_of_the_learning_rate_are_the_programs(tmp_path, caplog):
    def module(factor):
        weight = mx.sym.Variable("hidden_weight", lr_mult=factor)
        net = mx.sym.FullyConnected(mx.sym.Variable("data"), weight=weight, num_hidden=4, name="hidden")
        return mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"))

    run(tmp_path, module=partial(module, 1.0), num_epoch=1)
    with caplog.at_level(logging.INFO):
        again, _ = run(tmp_path, module=partial(module, 0.0), num_epoch=2)
    assert "with the multipliers {'hidden_weight': 0.0}" in caplog.text
    assert again.optimizer.lr_mult == {"hidden_weight": 0.0}


def test_another_metric_is_refused_within_an_epoch_and_taken_at_the_start_of_one(tmp_path):
    run(tmp_path, kill=7)
    before = contents(tmp_path)
    for metric, words in (
        ("mse", "the metric was accuracy, cross-entropy, is mse, which can be changed only at the start"),
        (["ce", "acc"], "was accuracy, cross-entropy, is cross-entropy, accuracy"),
        (
            ["acc", mx.metric.CrossEntropy(1e-3)],
            r"was Accuracy\(.*, is Accuracy\(.*CrossEntropy\({'eps': 0.001",
        ),
    ):
        with pytest.raises(ArgumentError, match=words):
            run(tmp_path, eval_metric=metric)
    assert contents(tmp_path) == before
    run(tmp_path, num_epoch=1)
    _, history = run(tmp_path, num_epoch=2, eval_metric="mse")
    assert [list(row)[3:] for row in history] == [["train-accuracy", "train-cross-entropy"], ["train-mse"]]


def test_other_steps_are_refused_with_all_that_differs(tmp_path):
    options = {"accumulate": 2, "clip_global_norm": 1.0}
    run(tmp_path, num_epoch=1, **options)
    frozen = partial(mx.mod.Module, classifier(dropout=0.3), fixed_param_names=["hidden_bias"], amp="bf16")
    with pytest.raises(ArgumentError) as error:
        run(tmp_path, module=frozen, accumulate=3)
    told = str(error.value).partition("was another one: ")[2].split("; ")
    assert [each for each in told if "parameters that are trained" not in each] == [
        "the types of 16 bits (amp) was [], is ['bfloat16']",
        "accumulate was 2, is 3",
        "clip_global_norm was 1.0, is None",
    ]
    assert len(told) == 4
    run(tmp_path, **options)


def test_what_compression_owes_is_saved(tmp_path):
    codes = {"type": "2bit", "threshold": 0.05}
    module = partial(mx.mod.Module, classifier(), context=[mx.cpu(0), mx.cpu(1)], compression_params=codes)
    check_resumes(tmp_path, kills=(7,), module=module, kvstore="device")
    other = {"type": "2bit", "threshold": 0.5}
    with pytest.raises(
        ArgumentError, match=r"compression of gradients was \['2bit', 0.05\], is \['2bit', 0.5\]"
    ):
        run(
            tmp_path,
            prefix="whole",
            kvstore="device",
            module=partial(
                mx.mod.Module, classifier(), context=[mx.cpu(0), mx.cpu(1)], compression_params=other
            ),
        )


def test_a_run_that_was_begun_anew_is_the_newest(tmp_path):
    run(tmp_path, num_epoch=3)
    module = mx.mod.Module(classifier(dropout=0.3))
    options = {"initializer": mx.init.Xavier(), "optimizer_params": {"learning_rate": 0.1}}
    module.fit(blobs(shuffle=True), num_epoch=1, checkpoint=tmp_path / "run", **options)
    _, history = run(tmp_path, num_epoch=2, eval_metric="acc")
    assert [list(row) for row in history] == [["epoch", "batch", "time_s", "train-accuracy"]] * 2
    assert (tmp_path / "run-0003.run").exists()


def test_other_kernels_are_told(tmp_path, caplog):
    run(tmp_path, num_epoch=1)
    path = tmp_path / "run-0001.run"
    state = run_format.read(path)
    assert state["kernels"]["torch"] == torch.__version__
    state["kernels"]["instructions"], state["threads"] = "abacus", 99
    with path.open("wb") as file:
        run_format.write(file, state)
    run(tmp_path, num_epoch=2)
    text = (
        f"with instructions: abacus, here {torch.backends.cpu.get_cpu_capability()}; with threads: 99, here"
    )
    assert text in caplog.text


def test_a_state_is_no_pickle(tmp_path):
    module = mx.mod.SequentialModule()
    for i in range(2):
        net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name=f"fc{i}")
        net = mx.sym.SoftmaxOutput(net, name="softmax") if i else net
        own = mx.mod.Module(net, label_names=["softmax_label"] if i else None)
        module.add(own, take_labels=bool(i), auto_wiring=True)
    module.fit(blobs(), num_epoch=1, optimizer="adam", checkpoint=tmp_path / "a")
    state = run_format.read(tmp_path / "a-0001.run")
    assert [each["attributes"]["num_update"] for each in state["optimizers"]] == [12, 12]
    data = (tmp_path / "a-0001.run").read_bytes()
    assert b"dpmodule" not in data
    assert b"mxnet" not in data


def test_a_checkpoint_among_callbacks(tmp_path):
    every = mx.callback.Checkpoint(tmp_path / "a")
    mx.mod.Module(classifier()).fit(blobs(), num_epoch=1, callbacks=[every])
    assert (tmp_path / "a-0001.run").exists()
    with pytest.raises(ArgumentError, match="there are two checkpoints"):
        mx.mod.Module(classifier()).fit(blobs(), num_epoch=1, callbacks=[every], checkpoint="b")


def test_resume_refuses(tmp_path):
    module = mx.mod.Module(classifier())
    with pytest.raises(ArgumentError, match='resume="auto" resumes what checkpoint= saves'):
        module.fit(blobs(), num_epoch=1, resume="auto")
    with pytest.raises(FileError, match="no run is saved under this prefix"):
        module.fit(blobs(), num_epoch=1, resume=str(tmp_path / "none"))
    with pytest.raises(ArgumentError, match="checkpoint is 3, expected a callback.Checkpoint"):
        module.fit(blobs(), num_epoch=1, checkpoint=3)
    with pytest.raises(ArgumentError, match="every_n_batches is 0, expected at least 1"):
        mx.callback.Checkpoint("a", every_n_batches=0)
    with pytest.raises(ArgumentError, match="keep_best and metric belong together"):
        mx.callback.Checkpoint("a", keep_best=2)


@pytest.mark.parametrize("damage", ["cut", "foreign", "version", "text", "parts"])
def test_damaged_files_are_refused(tmp_path, damage):
    from dpmodule.ndarray import safetensors

    run(tmp_path, num_epoch=1)
    path = tmp_path / "run-0001.run"
    whole = path.read_bytes()
    if damage == "cut":
        path.write_bytes(whole[:-10])
    elif damage == "foreign":
        mx.nd.save(str(tmp_path / "x.safetensors"), {"a": mx.nd.ones((2,))})
        path.write_bytes((tmp_path / "x.safetensors").read_bytes())
    else:
        arrays, texts = safetensors.read(str(path))
        text = {
            "version": texts["run"].replace('"version": 2', '"version": 7'),
            "text": texts["run"][:-5],
            "parts": texts["run"].replace('"history"', '"story"'),
        }[damage]
        with path.open("wb") as file:
            safetensors.write(file, arrays, {"run": text})
    (tmp_path / "run-last.run").unlink()
    before = contents(tmp_path)
    with pytest.raises(FileFormatError, match=r"run-0001.run.*remove the files .*run-0001.\*"):
        run(tmp_path)
    assert contents(tmp_path) == before


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class Mute(mx.io.DataIter):
    """Says nothing of where it stands, and has so many batches."""

    num_data = 96

    def __init__(self, count):
        super().__init__(8)
        self.batches = list(blobs())[:count]
        self.provide_data, self.provide_label = blobs().provide_data, blobs().provide_label
        self.reset()

    def reset(self):
        self.left = iter(self.batches)

    def next(self):
        return next(self.left)


REFUSED = {
    "steps": ({"accumulate": 0}, ArgumentError, "accumulate is 0, expected a whole number of batches"),
    "stopping": (
        {"callbacks": lambda: mx.callback.EarlyStopping("train-acuracy")},
        ArgumentError,
        "'train-acuracy' will not be measured; the metrics will be train-accuracy.*did you mean train-accuracy",
    ),
    "best": (
        {
            "checkpoint": lambda path: mx.callback.Checkpoint(
                path / "run", keep_best=1, metric="train-acuracy"
            )
        },
        ArgumentError,
        "'train-acuracy' will not be measured",
    ),
    "place": (
        {"callbacks": lambda: mx.callback.Checkpoint("run")},
        ArgumentError,
        "there are two checkpoints; a run is saved under one prefix",
    ),
    "iterator": (
        {"make_data": lambda: Mute(12)},
        StateError,
        "cannot be resumed with this Mute: Mute does not define load_state_dict; pass the same data with the same seed",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_leaves_the_good_checkpoint(tmp_path, what):
    run(tmp_path, kill=17)
    before = contents(tmp_path)
    options, kind, words = REFUSED[what]
    options = dict(options)
    if "callbacks" in options:
        options["callbacks"] = options["callbacks"]()
    if "checkpoint" in options:
        options["checkpoint"] = options["checkpoint"](tmp_path)
    with pytest.raises(kind, match=words):
        run(tmp_path, **options)
    after = contents(tmp_path)
    assert after.keys() == before.keys()
    if what == "stopping":  # which is found out when an epoch more has been trained, and saved within it
        before, after = (
            {name: data for name, data in files.items() if name.startswith("run-0")}
            for files in (before, after)
        )
    assert after == before
    run(tmp_path)


def test_an_iterator_that_has_become_shorter_is_refused(tmp_path):
    run(tmp_path, kill=17, make_data=lambda: Mute(12), every=4)
    with pytest.raises(
        StateError, match="Mute: it has 3 batches, but the run was saved after 4 batches of an epoch"
    ):
        run(tmp_path, make_data=lambda: Mute(3))


def test_a_state_goes_on_under_another_prefix(tmp_path):
    whole, _ = run(tmp_path, prefix="whole")
    run(tmp_path, prefix="old", kill=13)
    mx.random.seed_all(0)
    module = mx.mod.Module(classifier(dropout=0.3))
    module.fit(
        blobs(shuffle=True),
        num_epoch=3,
        initializer=mx.init.Xavier(),
        optimizer_params={"learning_rate": 0.1},
        eval_metric=["acc", "ce"],
        resume=str(tmp_path / "old"),
    )
    assert_bits(whole, module)

"""Kernels called alone: the same calls as the program's, which write the same."""

import math

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.harness import Session
from benchmarks.kernel_calls import Replay, recorded
from benchmarks.parts.kernels import measure
from benchmarks.report import Section
from benchmarks.settings import Setting
from benchmarks.sides import kernels
from benchmarks.sides.module import Trainer, load
from dpmodule import native


def branches(weight, data):
    """Return results of calls with lists, several results, views that are written through, and numbers."""
    left, right = torch.split(data @ weight, 3)
    values, _ = left.max(1)
    right.t()[0].add_(values[: len(right)])
    torch._foreach_mul_([left, right], 2.0)
    return torch.cat([left, right]), values.sum().item() * data.to(torch.float64)


def updates(weight, data):
    """Change what was there before, twice, and look at it by other views."""
    weight.mul_(0.5).view(-1)[:3].neg_()
    weight.t().add_(data.sum())
    return torch.empty_like(weight)


@pytest.mark.parametrize("program", [branches, updates])
def test_what_torch_was_called_for_is_called_again(program):
    weight, data = torch.rand(3, 4), torch.rand(5, 3)
    before = weight.clone()
    with recorded() as recording:
        results = program(weight, data)
    replay = Replay(recording)
    after, found = weight.clone(), len(recording.results)
    assert found == len(results) if program is branches else found == 1
    weight.zero_()
    data.zero_()
    for _ in range(2):
        assert replay.apart() == 0
    assert not weight.any()
    replay.restore()
    again = [each.clone() for each in replay.run()]
    assert len(replay.times()) == len(replay.called) > 0
    assert all(map(torch.equal, again, [copy for _, copy in recording.results]))
    if program is updates:
        torch.testing.assert_close(again[0].view(3, 4), after, rtol=0, atol=0)
        assert not torch.equal(before, after)


def test_views_that_no_kernel_reads_are_no_calls():
    weight, data = torch.rand(3, 4), torch.rand(4, 5)
    with recorded() as recording:
        made = weight.t().t() @ data
        positive = made.relu()
        positive.view(-1)
        kept = positive.t()[1:]
    assert [call.name for call in recording.calls] == ["t", "t", "mm", "relu", "view", "t", "slice"]
    assert Replay(recording).called == ["mm", "relu", "t", "slice"]
    assert torch.equal(recording.results[-1][1], kept)


def test_a_recording_keeps_no_tensor():
    with recorded() as recording:
        made = torch.ones(3) + 1
        watch = StorageWeakRef(made.untyped_storage())
        made = made * 2
        assert watch.expired()
    assert len(recording.results) == 1
    assert made.tolist() == [4.0] * 3


def test_kernels_that_keep_something_for_backward_do_so_again():
    net, data = torch.nn.LSTM(3, 4), torch.rand(5, 2, 3)
    with recorded() as recording:
        net(data)[0].sum().backward()
    assert len(recording.results) >= len(list(net.parameters()))
    assert Replay(recording).apart() <= 1e-6


class Counted(TorchDispatchMode):
    """Counts what goes through the dispatcher."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


def counted(function):
    with Counted() as found:
        function()
    return found.count


@pytest.fixture(scope="module")
def trainer():
    return Trainer(load("dpmodule"), "mlp", 2)


@pytest.mark.parametrize("program", ["fit", "predict"])
def test_kernels_of_a_network_are_no_more_than_it_calls_and_write_the_same(program, trainer):
    side = kernels.Kernels(trainer, 2)
    found = side.record(program)
    assert found["apart"] <= 1e-6
    assert 5 < counted(side.alone.run) <= counted(getattr(trainer, program))
    if getattr(native.core, "vector_width", 0) >= 8:
        assert {"native.multiply", "native.dense"} & set(side.alone.called)
    shares = side.slowest(100)
    assert {name for name, _ in shares} == set(side.alone.called)
    assert sum(share for _, share in shares) == pytest.approx(1)
    assert shares == sorted(shares, key=lambda each: -each[1])


def test_a_call_that_is_left_out_is_noticed(trainer):
    with recorded() as recording:
        trainer.fit()
    assert Replay(recording).apart() <= 1e-6
    recording.calls[:] = [call for call in recording.calls if call.name != "_fused_sgd_"]
    recording.results[:] = [
        (window, copy)
        for window, copy in recording.results
        if recording.blocks[window.block].first is not None
    ]
    assert Replay(recording).apart() > 1e-6
    recording.results[0][1][0] = math.nan
    assert math.isnan(Replay(recording).apart())


def test_operations_are_those_of_the_layers(trainer):
    rows, sizes = 64, [784, 128, 64, 10]
    products = [2 * rows * before * after for before, after in zip(sizes, sizes[1:])]
    others = rows * (128 + 64 + 10)  # relu and softmax, one for each element
    forward = sum(products) + others
    side = kernels.Kernels(trainer, 2)
    assert side.record("predict")["flops"] == forward
    once, *twice = products  # nobody wants the gradient of the data
    assert side.record("fit")["flops"] == forward + once + 2 * sum(twice) + others


def test_empty_calls_are_taken_off(trainer, monkeypatch):
    class Fixed:
        def read(self, count=1):
            return {"cpu": 8.0 / count, "wall": 12.0 / count}

    side = kernels.Kernels(trainer, 2)
    calls = side.record("predict")["calls"]
    assert calls == len(side.alone.called) / 2
    monkeypatch.setattr(kernels, "Clock", Fixed)
    monkeypatch.setattr(kernels, "empty_calls", lambda: {"cpu": 0.01, "wall": 0.02})
    assert side.replay() == pytest.approx({"cpu": 4 - calls * 0.01, "wall": 6 - calls * 0.02})


class Answers:
    """A side that always says the same."""

    def __init__(self, **answers):
        self.answers = answers

    def ask(self, what, **options):
        return self.answers[what]


def answers(apart=0.0):
    return Answers(
        record={"apart": apart, "calls": 12.4, "flops": 5e8},
        fit={"cpu": 10.0, "wall": 20.0},
        replay={"cpu": 8.0, "wall": 10.0},
        peak={"cpu": 4.0, "wall": 10.0},
        slowest=[["mm", 0.75], ["relu_", 0.125]],
    )


@pytest.mark.parametrize(
    ("threads", "ratio", "percents", "peak"),
    [
        ("1", "ratio CPU", ("20%", "20%", "25%"), 250.0),
        ("default", "ratio wall", ("50%", "25%", "50%"), 100.0),
    ],
)
def test_a_row_says_what_is_left_and_which_share_of_the_peak_it_is(threads, ratio, percents, peak):
    section, session = Section("Kernels", ""), Session(rounds=2, setting=Setting(threads=threads))
    assert measure(session, section, "net", answers(), "fit", metric=True) == [peak] * 2
    head, _, row = section.tables[""]
    names, cells = ([cell.strip() for cell in line[1:-1].split("|")] for line in (head, row))
    found = dict(zip(names, cells, strict=True))
    assert tuple(found[name] for name in ("overhead", "peak", "peak of kernels")) == percents
    assert (found["calls"], found["GFLOP"], found["slowest"]) == ("12", "0.5", "`mm` 75%, `relu_` 12%")
    assert ratio in found


@pytest.mark.parametrize("apart", [0.1, math.nan])
def test_kernels_that_compute_something_else_end_the_program(apart):
    with pytest.raises(SystemExit, match=f"something else, by {apart}"):
        measure(Session(), Section("Kernels", ""), "net", answers(apart), "fit")

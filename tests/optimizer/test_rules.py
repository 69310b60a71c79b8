"""Every optimizer against MXNet's recorded parameters and what the recordings leave out."""

import contextlib
import json
import warnings
from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule import lr_scheduler, optimizer
from dpmodule.optimizer.group import slots_of
from helpers.rules import VARIANTS
from helpers.walk import walks

DATA = Path(__file__).parents[1] / "data" / "goldens" / "optim"
CASES = {case["name"]: case for case in json.loads((DATA / "optimizers.json").read_text())}
INPUTS = dict(np.load(DATA / "inputs.npz"))
EXPECTED = dict(np.load(DATA / "optimizers.npz"))
NUMBER_OF_STATES = Counter(key.rpartition("/")[0] for key in EXPECTED)
NAMES = {0: "fc_weight", 1: "fc_bias", 2: "bn_gamma"}


def flat(state):
    if state is None or isinstance(state, mx.nd.NDArray):
        return list(slots_of(state))
    return [array for part in state for array in flat(part)]


def make(case):
    kwargs = dict(case["kwargs"])
    if "schedule" in case:
        kwargs["lr_scheduler"] = lr_scheduler.FactorScheduler(**case["schedule"])
    made = optimizer.create(case["optimizer"], param_idx2name=NAMES, **kwargs)
    if "lr_mult" in case:
        made.set_lr_mult(case["lr_mult"])
        made.set_wd_mult(case["wd_mult"])
    return made


@walks(product(CASES, [False, True]), family=lambda name, at_once: CASES[name]["optimizer"])
def test_parameters_are_mxnets(name, at_once):
    case = CASES[name]
    update = optimizer.get_updater(make(case))
    dtype, half = case["dtype"], case["dtype"] == "float16"
    weights = [mx.nd.array(INPUTS[f"w{i}"], dtype=dtype) for i in NAMES]
    # MXNet takes 1 - beta2 in float32, which shifts the steps of Adam by 7e-6 of themselves
    tolerance = {"rtol": 2e-3, "atol": 1e-3} if half else {"rtol": 1e-5, "atol": 2e-6}
    refusal = half and not update.optimizer.multi_precision
    with pytest.warns(UserWarning, match="multi_precision") if refusal else contextlib.nullcontext():
        for t in range(case["steps"]):
            grads = [mx.nd.array(INPUTS[f"g{i}_t{t % 5}"], dtype=dtype) for i in NAMES]
            if at_once:
                update.update_all(list(NAMES), grads, weights)
            else:
                for i in NAMES:
                    update(i, grads[i], weights[i])
            for i in NAMES:
                np.testing.assert_allclose(weights[i].asnumpy(), EXPECTED[f"{name}/w{i}"][t], **tolerance)
    for i in NAMES:
        arrays = flat(update.states[i])
        assert len(arrays) == NUMBER_OF_STATES[f"{name}/state{i}"]
        for j, array in enumerate(arrays):
            expected = EXPECTED[f"{name}/state{i}/{j}"]
            assert array.dtype == expected.dtype.type
            np.testing.assert_allclose(array.asnumpy(), expected, **tolerance)


def test_16_bit_without_master_warns_and_with_one_does_not():
    w = mx.nd.array([1.0], dtype="float16")
    with pytest.warns(UserWarning, match="multi_precision"):
        optimizer.create("adam").create_state_multi_precision(0, w)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        state = optimizer.create("adam", multi_precision=True).create_state_multi_precision(0, w)
    assert state[0].dtype == np.float32
    assert state[0].tensor is not w.tensor


@walks([(*variant, dtype) for variant in VARIANTS for dtype in (torch.float16, torch.bfloat16)])
def test_every_element_of_16_bit_parameters_moves(name, extra, dtype):
    """And as in float32: torch's kernels treat the last elements apart, and one skips all the others."""
    shape = (1, 70) if name == "groupadagrad" else (70,)
    found = {}
    for kind in (torch.float32, dtype):
        made = optimizer.create(name, learning_rate=0.125, rescale_grad=0.5, **extra)
        w = mx.nd.NDArray(torch.full(shape, 0.5, dtype=kind), mx.cpu())
        state = made.create_state(0, w)
        for _ in range(4):
            made.update(0, w, mx.nd.NDArray(torch.full(shape, 2.0, dtype=kind), mx.cpu()), state)
        found[kind] = w.tensor.float()
    if (found[torch.float32] - 0.5).abs().min() > 0.01:  # else 16 bits cannot hold the steps
        assert (found[dtype] != 0.5).all()
    torch.testing.assert_close(found[dtype], found[torch.float32], rtol=0.05, atol=0.02)


@walks(VARIANTS)
def test_a_bound_of_zero_or_below_clips_nothing(name, extra):
    found = []
    for bound in (None, 0.0, -1.0):
        mx.random.seed(3)
        w, made = mx.nd.array(np.ones((4, 4))), optimizer.create(name, clip_gradient=bound, **extra)
        made.update(0, w, mx.nd.array(np.arange(16.0).reshape(4, 4)), made.create_state(0, w))
        found.append(w.asnumpy().tolist())
    assert found[0] == found[1] == found[2]

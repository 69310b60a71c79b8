"""Optimizers under rate schedules, against recorded updates of MXNet 1.9.1 (data/optimizer_schedules)."""

import json
from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx

RECORDED = Path(__file__).parents[1] / "data" / "optimizer_schedules" / "recorded.json"
ROWS = json.loads(RECORDED.read_text())


@pytest.mark.filterwarnings("ignore:.*learning_rate")
@pytest.mark.parametrize("name", sorted({row[0] for row in ROWS}))
def test_updates_are_those_of_mxnet(name):
    for _, options, schedule, arguments, rate, recorded in (row for row in ROWS if row[0] == name):
        schedule = getattr(mx.lr_scheduler, schedule)(**arguments)
        rates = {} if rate is None else {"learning_rate": rate}
        made = mx.optimizer.create(name, lr_scheduler=schedule, **options, **rates)
        updater, draw = mx.optimizer.get_updater(made), np.random.RandomState(0)
        weights = [mx.nd.array(draw.uniform(-1, 1, 3)) for _ in range(2)]
        for want in recorded:
            for index, weight in enumerate(weights):
                updater(index, mx.nd.array(draw.uniform(-1, 1, 3)), weight)
            found = [x for weight in weights for x in weight.asnumpy()]
            np.testing.assert_allclose(found, want, 2e-5, 2e-5, err_msg=f"{schedule} {arguments} {rate}")

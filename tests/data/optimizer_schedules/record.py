"""Record optimizers under rate schedules on MXNet 1.9.1; writes `recorded.json` beside this file.

A row has the optimizer's name, its arguments, the schedule with its arguments, and both parameters after every update.
"""

import json
import os

import mxnet as mx
import numpy as np

OPTIMIZERS = {
    "adagrad": {},
    "adam": {"wd": 0.01},
    "adamax": {},
    "dcasgd": {},
    "ftml": {},
    "ftrl": {"wd": 0.01, "lamda1": 0.05},
    "lamb": {},
    "lbsgd": {"momentum": 0.9, "batch_scale": 2, "wd": 0.01},
    "nadam": {},
    "nag": {"momentum": 0.9},
    "rmsprop": {},
    "sgd": {"momentum": 0.9, "wd": 0.01},
    "signum": {"momentum": 0.9},
}
SCHEDULES = [
    ("FactorScheduler", {"step": 2, "factor": 0.5, "base_lr": 0.3}),
    ("MultiFactorScheduler", {"step": [2, 5], "factor": 0.3, "warmup_steps": 2, "warmup_begin_lr": 0.005}),
    ("CosineScheduler", {"max_update": 9, "base_lr": 0.2, "final_lr": 0.02}),
]
UPDATES = 7


def run(name, options, schedule, arguments, rate):
    """Return both parameters after every update; gradients and first values come from one seed."""
    schedule = getattr(mx.lr_scheduler, schedule)(**arguments)
    rates = {} if rate is None else {"learning_rate": rate}
    optimizer = mx.optimizer.create(name, lr_scheduler=schedule, **options, **rates)
    updater = mx.optimizer.get_updater(optimizer)
    draw = np.random.RandomState(0)
    weights = [mx.nd.array(draw.uniform(-1, 1, 3)) for _ in range(2)]
    found = []
    for _ in range(UPDATES):
        for index, weight in enumerate(weights):
            updater(index, mx.nd.array(draw.uniform(-1, 1, 3)), weight)
        found.append([float("%.8g" % x) for weight in weights for x in weight.asnumpy()])
    return found


rows = []
for name, options in OPTIMIZERS.items():
    for schedule, arguments in SCHEDULES:
        for rate in (None, 0.07):
            values = run(name, options, schedule, arguments, rate)
            rows.append([name, options, schedule, arguments, rate, values])

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "recorded.json"), "w") as file:
    file.write("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")

"""Record what metrics and learning-rate schedules of MXNet 1.9.1 answer.

usage: python make_metrics.py        (in an environment with mxnet 1.9.1; rewrites the files beside it)

`metrics.json`: cases, each with the metric's name and arguments and, per batch, what `get` and `get_global` gave,
with a `reset_local` after the batches of `resets`. `metrics.npz`: labels and predictions, `<data>/label<i>` and
`<data>/pred<i>`. `schedules.json`: schedules with their arguments; `schedules.npz`: the rates of updates 0 to 120
(`<name>/all`) and of 1, 30, 31, 100 alone (`<name>/jump`).
"""

import json
import os

import mxnet as mx
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))

FUNCTIONS = {
    "worst": lambda label, pred: float(np.abs(label - pred).max()),
    "sum_and_size": lambda label, pred: (float(np.abs(label - pred).sum()), label.size),
}


def read(name):
    with open(os.path.join(HERE, name)) as file:
        return json.load(file)


def metric(case):
    if case["metric"] in ("worst", "sum_and_size"):
        return mx.metric.CustomMetric(FUNCTIONS[case["metric"]], **case["kwargs"])
    return mx.metric.create(case["metric"], **case["kwargs"])


def main():
    data, cases = np.load(os.path.join(HERE, "metrics.npz")), read("metrics.json")
    for case in cases:
        one, case["local"], case["global"] = metric(case), [], []
        for i in range(3):
            label, pred = (mx.nd.array(data["%s/%s%d" % (case["data"], kind, i)]) for kind in ("label", "pred"))
            one.update([label], [pred])
            case["local"].append(one.get())
            case["global"].append(one.get_global())
            if i in case["resets"]:
                one.reset_local()
    with open(os.path.join(HERE, "metrics.json"), "w") as file:
        file.write("[\n" + ",\n".join(map(json.dumps, cases)) + "\n]\n")
    rates = {}
    for name, spec in read("schedules.json").items():
        for kind, updates in (("all", range(121)), ("jump", (1, 30, 31, 100))):
            schedule = getattr(mx.lr_scheduler, spec["kind"])(**spec["kwargs"])
            rates["%s/%s" % (name, kind)] = np.array([schedule(t) for t in updates])
    np.savez_compressed(os.path.join(HERE, "schedules.npz"), **rates)


if __name__ == "__main__":
    main()

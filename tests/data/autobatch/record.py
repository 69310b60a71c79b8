"""Record what DyNet computes for every case of tests/helpers/autobatch_cases.py.

Run in an environment with DyNet (pip install dyNET38 "numpy<1.24", Python 3.8), from the folder of this file:

    python record.py

It writes operations.npz: for every case and variant ("single", "batch", "mixed") the value and the gradient of every
operand. Every case runs in a process of its own, because DyNet ends the process on some errors; those are left out.
"""

import importlib.util
import multiprocessing
import os
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
PATH = os.path.join(HERE, "..", "..", "helpers", "autobatch_cases.py")


def load():
    source = open(PATH).read().replace("from __future__ import annotations", "")
    spec = importlib.util.spec_from_loader("cases", None)
    module = importlib.util.module_from_spec(spec)
    exec(source, module.__dict__)
    return module


def compute(cases, name, variant):
    import dynet as dy

    table = cases.CASES if name in cases.CASES else cases.BATCHED
    operands, function = table[name]
    single, batch = cases.values(seed=1), cases.values(3, seed=2)
    m = dy.ParameterCollection()
    given, holders = [], []
    for place, operand in enumerate(operands):
        if variant == "single" or (variant == "mixed" and place):
            p = m.parameters_from_numpy(single[operand].astype(np.float32))
            given.append(p)
            holders.append(p)
        else:
            x = dy.inputTensor(batch[operand].astype(np.float32), batched=True)
            given.append(x)
            holders.append(x)
    y = function(dy, *given)
    loss = cases.total(dy, y, np.linspace(-1, 1, 11))
    value = y.npvalue()
    loss.backward(full=True)
    return [value] + [h.grad_as_array() if isinstance(h, dy.Parameters) else h.gradient() for h in holders]


def main():
    cases = load()
    found = {}
    context = multiprocessing.get_context("fork")
    for name in list(cases.CASES) + list(cases.BATCHED):
        for variant in ("single", "batch", "mixed"):
            if name in cases.BATCHED and variant != "batch":
                continue
            if variant == "mixed" and len(cases.CASES.get(name, ((), 0))[0]) < 2:
                continue
            queue = context.SimpleQueue()

            def work():
                sys.stderr = open(os.devnull, "w")
                try:
                    queue.put(compute(cases, name, variant))
                except Exception as failure:
                    queue.put(str(failure).splitlines()[0] if str(failure) else repr(failure))

            child = context.Process(target=work)
            child.start()
            child.join(20)
            result = queue.get() if not queue.empty() else "died"
            if isinstance(result, str):
                print(name, variant, "left out:", result)
                continue
            for place, array in enumerate(result):
                found["%s/%s/%d" % (name, variant, place)] = np.asarray(array, np.float32)
    np.savez_compressed(os.path.join(HERE, "operations.npz"), **found)
    print(len(found), "arrays")


if __name__ == "__main__":
    main()

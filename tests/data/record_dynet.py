"""Record again what the tests compare with, as DyNet makes it: python record_dynet.py

Run it in an environment with DyNet (pip install dyNET38 "numpy<1.24", Python 3.8). It writes into the folder autobatch:
operations.npz, for every case and variant of tests/helpers/autobatch_cases.py ("single", "batch", "mixed") the value and
the gradient of every operand; programs.npz, the programs of tests/helpers/autobatch_programs.py; refusals.json, for
every call that stands there, in the words of tests/helpers/misuse.py, the type of DyNet's error, "" for none;
dynet.model (a collection) and objects.data, objects.meta (dy.save). Beside itself it writes dynet_names.json, names of
functions and values, and of each class its members. DyNet ends the process on some errors, so calls run in others.
"""

import json
import os
import pickle
import sys
import types

import _dynet
import dynet as dy
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "autobatch")
sys.path.insert(0, os.path.join(HERE, "..", "helpers"))


def load(name):
    """Run a helper whose annotations Python 3.8 cannot read."""
    module = types.ModuleType(name)
    with open(os.path.join(HERE, "..", "helpers", name + ".py")) as file:
        exec(file.read().replace("from __future__ import annotations", ""), module.__dict__)
    return module


def apart(work):
    """Return what a function returns in a process of its own, None if that dies."""
    reading, writing = os.pipe()
    if not os.fork():
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        with os.fdopen(writing, "wb") as file:
            pickle.dump(work(), file)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as source:
        data = source.read()
    return None if os.wait()[1] else pickle.loads(data)


def operation(cases, name, variant):
    operands, function = {**cases.BATCHED, **cases.CASES}[name]
    single, batch = cases.values(seed=1), cases.values(3, seed=2)
    m, given = dy.ParameterCollection(), []
    for place, operand in enumerate(operands):
        if variant == "single" or (variant == "mixed" and place):
            given.append(m.parameters_from_numpy(single[operand].astype(np.float32)))
        else:
            given.append(dy.inputTensor(batch[operand].astype(np.float32), batched=True))
    y = function(dy, *given)
    loss = cases.total(dy, y, np.linspace(-1, 1, 11))
    value = y.npvalue()
    loss.backward(full=True)
    return [value] + [h.grad_as_array() if isinstance(h, dy.Parameters) else h.gradient() for h in given]


def operations():
    cases, found = load("autobatch_cases"), {}
    for name in list(cases.CASES) + list(cases.BATCHED):
        is_mixed = len(cases.CASES.get(name, ((), 0))[0]) > 1
        for variant in ("batch",) if name in cases.BATCHED else ("single", "batch", "mixed")[: 2 + is_mixed]:
            result = apart(lambda: operation(cases, name, variant))
            if result is None:
                print(name, variant, "left out")
            for place, array in enumerate(result or []):
                found["%s/%s/%d" % (name, variant, place)] = np.asarray(array, np.float32)
    np.savez_compressed(os.path.join(FOLDER, "operations.npz"), **found)


def programs():
    helper, found = load("autobatch_programs"), {}
    for name in helper.BUILDERS:
        for first in (False, True):
            found["%s/%d/" % (name, first)] = helper.network(dy, name, first)
    for name in helper.TRAINERS:
        for clip, sparse, decay in ((5.0, True, 0.0), (-1.0, False, 0.0), (0.5, True, 0.0)):
            found["%s/%g/%d/" % (name, clip, sparse)] = helper.training(dy, name, clip, sparse, decay)
    found = {key + str(i): np.asarray(a, np.float32) for key, arrays in found.items() for i, a in enumerate(arrays)}
    np.savez_compressed(os.path.join(FOLDER, "programs.npz"), **found)
    m = dy.ParameterCollection()
    w = m.parameters_from_numpy(np.arange(6.0).reshape(2, 3) / 7)
    e = m.lookup_parameters_from_numpy(np.arange(8.0).reshape(4, 2), name="emb")
    m.add_subcollection("inner").parameters_from_numpy(np.array([0.5]), name="a")
    lstm = dy.VanillaLSTMBuilder(1, 2, 2, m)
    helper.fill(lstm.param_collection(), 5)
    both = dy.BiRNNBuilder(1, 2, 4, m, dy.GRUBuilder)
    helper.fill(both.param_collection(), 6)
    m.save(os.path.join(FOLDER, "dynet.model"))
    dy.save(os.path.join(FOLDER, "objects"), [lstm, w, e, both])


def refusals():
    from misuse import Runner

    path, runner = os.path.join(FOLDER, "refusals.json"), Runner(dy)
    with open(path) as file:
        found = dict.fromkeys(json.load(file))
    for call in found:
        outcome = apart(lambda: runner.run(call)[0])
        found[call] = "crash" if outcome is None else outcome.partition(":")[0]
    with open(path, "w") as file:
        file.write(json.dumps(found, indent=0) + "\n")


def public_names():
    def public(owner):
        return [name for name in dir(owner) if not name.startswith("_")]

    names, classes = [], {}
    for name in public(dy):
        value = getattr(dy, name)
        if isinstance(value, type) and value.__module__.split(".")[-1] in ("_dynet", "dynet"):
            inherited = {member for base in (Exception, object, tuple, list) for member in dir(base)}
            classes[name] = " ".join(member for member in public(value) if member not in inherited)
        elif not isinstance(value, types.ModuleType) and getattr(value, "__module__", "_dynet") in ("_dynet", "dynet", None):
            names.append(name)
    found = {"version": getattr(_dynet, "__version__", 2.1), "names": " ".join(names), "classes": classes}
    with open(os.path.join(HERE, "dynet_names.json"), "w") as file:
        file.write(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    for part in (public_names, refusals, operations, programs):
        part()

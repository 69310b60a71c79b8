"""Record what DyNet computes for the programs of tests/helpers/autobatch_programs.py, and files that it writes.

Run in an environment with DyNet (pip install dyNET38 "numpy<1.24", Python 3.8), from the folder of this file:

    python record_programs.py

It writes programs.npz, dynet.model (a collection) and objects.data, objects.meta (dy.save).
"""

import importlib.util
import os

import dynet as dy
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))


def load():
    path = os.path.join(HERE, "..", "..", "helpers", "autobatch_programs.py")
    source = open(path).read().replace("from __future__ import annotations", "")
    spec = importlib.util.spec_from_loader("programs", None)
    module = importlib.util.module_from_spec(spec)
    exec(source, module.__dict__)
    return module


programs = load()
found = {}
for name in programs.BUILDERS:
    for first in (False, True):
        for place, array in enumerate(programs.network(dy, name, first)):
            found["%s/%d/%d" % (name, first, place)] = np.asarray(array, np.float32)
for name in programs.TRAINERS:
    for clip, sparse, decay in ((5.0, True, 0.0), (-1.0, False, 0.0), (0.5, True, 0.0)):
        for place, array in enumerate(programs.training(dy, name, clip, sparse, decay)):
            found["%s/%g/%d/%d" % (name, clip, sparse, place)] = np.asarray(array, np.float32)
np.savez_compressed(os.path.join(HERE, "programs.npz"), **found)

m = dy.ParameterCollection()
w = m.parameters_from_numpy(np.arange(6.0).reshape(2, 3) / 7)
e = m.lookup_parameters_from_numpy(np.arange(8.0).reshape(4, 2), name="emb")
inner = m.add_subcollection("inner")
inner.parameters_from_numpy(np.array([0.5]), name="a")
lstm = dy.VanillaLSTMBuilder(1, 2, 2, m)
programs.fill(lstm.param_collection(), 5)
both = dy.BiRNNBuilder(1, 2, 4, m, dy.GRUBuilder)
programs.fill(both.param_collection(), 6)
m.save(os.path.join(HERE, "dynet.model"))
dy.save(os.path.join(HERE, "objects"), [lstm, w, e, both])
print(len(found), "arrays")

"""Train networks of helpers/nets.py for one step, as one of two processes: its half of the rows of each."""

import sys
from pathlib import Path

import numpy as np
import torch
from test_equivalence import RATE, Problem, applies, array, describe

import dpmodule as mx
from helpers.nets import NETS

torch.set_num_threads(1)
rank = mx.kv.create("dist_sync").rank
found = {}
for name in NETS:
    problem = Problem(name)
    if not applies("two_processes", problem):
        continue
    half = {key: np.split(problem.arrays[key], 2)[rank] for key in (*problem.data, *problem.labels)}
    described = [[describe(k, half[k]) for k in keys] for keys in (problem.data, problem.labels)]
    module = mx.mod.Module(problem.symbol, problem.data, problem.labels or None)
    module.bind(described[0], described[1] or None)
    module.init_params(arg_params=problem.params(), aux_params=problem.params(True))
    module.init_optimizer(mx.kv.create("dist_sync"), "sgd", {"learning_rate": RATE, "rescale_grad": 1.0})
    given = ([array(half[k]) for k in keys] for keys in (problem.data, problem.labels))
    module.forward(mx.io.DataBatch(*given))
    module.backward([array(np.split(head, 2)[rank], "float32") for head in problem.heads])
    module.update()
    found |= {f"{name}|step of {key}": value.asnumpy() for key, value in module.get_params()[0].items()}
if rank == 0:
    np.savez(Path(sys.argv[1]) / "parameters.npz", **found)

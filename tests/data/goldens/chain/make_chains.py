"""Record what real MXNet computes in chains of modules and with SVRGModule.

Run with Python 3.8, NumPy 1.23 and mxnet 1.9.1: ``python make_chains.py`` writes chains.npz and svrg.npz beside it.
"""

import os
import sys
import warnings

import mxnet as mx
import numpy as np
from mxnet.contrib.svrg_optimization.svrg_module import SVRGModule

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", ".."))
from helpers import chain_cases  # noqa: E402

CONTEXTS = {"one": [mx.cpu(0)], "two": [mx.cpu(0), mx.cpu(1)]}


def main():
    warnings.simplefilter("ignore")
    chains, svrg = {}, {}
    for where, contexts in CONTEXTS.items():
        for case in chain_cases.CHAINS:
            for key, value in chain_cases.train_chain(mx, case, contexts).items():
                chains[f"{case}/{where}/{key}"] = value
    for case in chain_cases.SVRG:
        for where, contexts in CONTEXTS.items():
            kvstore = None if where == "two" else "local"  # a store on two contexts: see docs/differences.md
            for key, value in chain_cases.train_svrg(mx, SVRGModule, case, contexts, kvstore).items():
                svrg[f"{case}/{where}/{key}"] = value
    np.savez_compressed(os.path.join(HERE, "chains.npz"), **chains)
    np.savez_compressed(os.path.join(HERE, "svrg.npz"), **svrg)


if __name__ == "__main__":
    main()

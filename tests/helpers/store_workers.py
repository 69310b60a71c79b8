"""Workers that train on one parameter store, in processes of their own; spawned ones can import this."""

import contextlib

import numpy as np
import torch
from torch import multiprocessing

import dpmodule as mx

ROWS, INPUTS, BATCH = 30, 4, 6
SHAPES = [("data", (BATCH, INPUTS))], [("softmax_label", (BATCH,))]


def network(sparse=False):
    """Return a network with a table, BatchNorm and dense layers, whose moments and scales all move."""
    words = mx.sym.Variable("data")
    table = mx.sym.Embedding(words, input_dim=ROWS, output_dim=5, sparse_grad=sparse, name="table")
    net = mx.sym.BatchNorm(mx.sym.sum(table, axis=1), fix_gamma=False, name="norm")
    net = mx.sym.FullyConnected(net, num_hidden=2, name="out")
    return mx.sym.SoftmaxOutput(net, name="softmax")


def batch(number):
    rng = np.random.RandomState(number)
    words, labels = mx.nd.array(rng.randint(0, ROWS, (BATCH, INPUTS))), mx.nd.array(rng.randint(0, 2, BATCH))
    described = dict(zip(("provide_data", "provide_label"), SHAPES))
    return mx.io.DataBatch([words], [labels], bucket_key=1 + number % 2, **described)


def make_module(case, store=None, kind=mx.mod.Module, contexts=None, kvstore=None):
    """Return a module that is ready; on a store it takes parameters and states from there.

    Args:
        case: (optimizer, its arguments, whether the table's gradient is row-sparse).
        store: an empty one, the store of another process, or None.
        kind: class of the module.
        contexts: of the module.
        kvstore: adds their gradients up; without it each context follows its part of the batches.
    """
    name, params, sparse = case
    if kind is mx.mod.Module:
        mod = kind(network(sparse), context=contexts)
    else:
        mod = kind(lambda key: (network(sparse), ["data"], ["softmax_label"]), 1)
    mod.bind(*SHAPES, store=store)
    if not mod.params_initialized:
        mx.random.seed(5)
        mod.init_params(mx.init.Normal(0.5))
    params = {key: value() if callable(value) else value for key, value in params.items()}
    mod.init_optimizer(kvstore, optimizer=name, optimizer_params=params)
    return mod


def step(mod, number):
    mod.forward_backward(batch(number))
    mod.update()


def steps(mod, numbers):
    for number in numbers:
        step(mod, number)


def state_of(mod):
    """Return everything that training changes and processes share, as bytes and numbers."""
    args, aux = mod.get_params()
    updater = getattr(mod, "_default", mod).updates.active_updater()
    return {
        **{name: array.asnumpy().tobytes() for name, array in {**args, **aux}.items()},
        "states": {index: _bytes(state) for index, state in updater.states.items()},
        "counts": dict(updater.optimizer._index_update_count) if len(mod.store.contexts) == 1 else {},
        "num_update": updater.optimizer.num_update,
        "rate": updater.optimizer.learning_rate,
    }


def _bytes(state):
    if isinstance(state, mx.nd.NDArray):
        return state.asnumpy().tobytes()
    return None if state is None else [_bytes(part) for part in state]


def serve(make, case, store, pipe):
    """Be a worker: call functions with a module, which the first one makes, until the pipe ends."""
    torch.set_num_threads(1)
    mod = None
    with contextlib.suppress(EOFError):
        while (asked := pipe.recv()) is not None:  # a forked worker holds the other end, too, and sees no end
            function, *arguments = asked
            try:
                mod = mod or make(case, store)
                answer = function(mod, *arguments)
            except Exception as error:  # it is the answer
                answer = error
            pipe.send(answer)


class Workers:
    """Some workers; a context manager, which ends them."""

    def __init__(self, count, case, store, make=make_module, method="fork"):
        context = multiprocessing.get_context(method)
        self.pipes, self.processes = [], []
        for _ in range(count):
            mine, end = context.Pipe()
            process = context.Process(target=serve, args=(make, case, store, end), daemon=True)
            process.start()
            end.close()
            self.pipes.append(mine)
            self.processes.append(process)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pipe in self.pipes:
            with contextlib.suppress(BrokenPipeError):
                pipe.send(None)
            pipe.close()
        for process in self.processes:
            process.join(5)
            process.kill()
            process.join(10)

    def send(self, number, *what):
        self.pipes[number].send(what)

    def answer(self, number):
        found = self.pipes[number].recv()
        if isinstance(found, Exception):
            raise found
        return found

    def ask(self, number, *what):
        self.send(number, *what)
        return self.answer(number)

    def all(self, *what):
        for number in range(len(self.pipes)):
            self.send(number, *what)
        return [self.answer(number) for number in range(len(self.pipes))]

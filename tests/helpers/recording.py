"""A stand-in for a GPU that records runs: it does the work on the CPU, into memory that stays, as a replay does."""

import torch

from dpmodule.executor import cuda_graph_mode
from dpmodule.executor.cuda_graphs import RecordedOutputs


class FakeDriver:
    """Counts what happens. Recording does nothing to states and random numbers, as with a GPU.

    `memory` returns the tensors that must not change while a run is recorded. `against` is what a rehearsal finds,
    `error` what a recording raises.
    """

    def __init__(self, monkeypatch, memory=list, against="", error=None):
        self.memory, self.against, self.error = memory, against, error
        self.rehearsed = self.recorded = self.replayed = 0
        monkeypatch.setattr(cuda_graph_mode, "driver_of", lambda device: self)

    def warm_up(self, work):
        self.rehearsed += 1
        return work(), self.against

    def record(self, work, generators):
        if self.error is not None:
            raise self.error
        self.recorded += 1
        tensors, states = self.memory(), [each.get_state() for each in generators]
        saved = [tensor.clone() for tensor in tensors]
        first = work()
        static = RecordedOutputs(*([_clone(each) for each in part] for part in (first.outputs, first.grads)))
        for tensor, before in zip(tensors, saved, strict=True):
            tensor.copy_(before)
        for each, state in zip(generators, states, strict=True):
            each.set_state(state)

        def replay():
            self.replayed += 1
            found = work()
            new_ones = (*found.outputs, *found.grads)
            for mine, new in zip((*static.outputs, *static.grads), new_ones, strict=True):
                if mine is not None:
                    mine.copy_(new)

        for mine in (*static.outputs, *static.grads):
            if mine is not None:
                mine.fill_(torch.nan if mine.is_floating_point() else -1)  # recording computes nothing
        return replay, static


def _clone(tensor):
    return None if tensor is None else tensor.clone()

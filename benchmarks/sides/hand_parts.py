"""Building blocks of hand-batched networks: embeddings, and LSTMs over rows of different lengths."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from ..autobatch_tasks import first_value

__all__ = ["LSTM", "Both", "Table", "inverse"]

GROUPS = 4
Tensor = torch.Tensor


class Table:
    """An embedding whose Adam only updates the rows in use, as in DyNet."""

    def __init__(self, name: str, rows: int, width: int) -> None:
        self.value = torch.from_numpy(first_value(name, (rows, width)))
        self._mean, self._square = torch.zeros(rows, width), torch.zeros(rows, width)
        self._steps = 0

    def rows(self, numbers: Tensor) -> Tensor:
        """Return the rows of some numbers; may be called once a step."""
        self._used, places = torch.unique(numbers, return_inverse=True)
        self._leaf = self.value.index_select(0, self._used).requires_grad_()
        return self._leaf.index_select(0, places.view(-1)).view(*numbers.shape, -1)

    def update(self, rate: float = 1e-3) -> None:
        """Make a step of Adam."""
        gradient, used = self._leaf.grad, self._used
        if gradient is None:
            return
        self._steps += 1
        mean = self._mean.index_select(0, used).lerp_(gradient, 0.1)
        square = self._square.index_select(0, used).mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        self._mean.index_copy_(0, used, mean)
        self._square.index_copy_(0, used, square)
        rate *= (1 - 0.999**self._steps) ** 0.5 / (1 - 0.9**self._steps)
        value = self._leaf.detach().addcdiv_(mean, square.sqrt_().add_(1e-8), value=-rate)
        self.value.index_copy_(0, used, value)


class LSTM:
    """One direction, as `nn.LSTM` or as its weights; the forget gate's bias of 1 is part of the bias."""

    def __init__(self, name: str, inputs: int, hidden: int) -> None:
        self.name, self.hidden = name, hidden
        self.module = torch.nn.LSTM(inputs, hidden, batch_first=True)
        x, h, b = (first_value(f"{name}_{part}", shape) for part, shape in self.shapes(inputs))
        with torch.no_grad():
            self.module.weight_ih_l0.copy_(self._turned(x))
            self.module.weight_hh_l0.copy_(self._turned(h))
            self.module.bias_ih_l0.copy_(self._turned(b))
            self.module.bias_ih_l0[hidden : 2 * hidden] += 1
            self.module.bias_hh_l0.zero_().requires_grad_(False)

    def shapes(self, inputs: int) -> list[tuple[str, tuple[int, ...]]]:
        """Return DyNet's parameters of an LSTM."""
        gates = 4 * self.hidden
        return [("x", (gates, inputs)), ("h", (gates, self.hidden)), ("b", (gates,))]

    def _turned(self, value: np.ndarray) -> Tensor:
        """Return the gates i, f, o, u in the order i, f, u, o, or back."""
        i, f, o, u = np.split(value, 4)
        return torch.from_numpy(np.concatenate([i, f, u, o]))

    def values(self) -> dict[str, np.ndarray]:
        """Return the parameters as DyNet has them."""
        module, found = self.module, {}
        for part, each in zip("xhb", (module.weight_ih_l0, module.weight_hh_l0, module.bias_ih_l0)):
            found[f"{self.name}_{part}"] = self._turned(each.detach().numpy()).numpy()
        found[f"{self.name}_b"][self.hidden : 2 * self.hidden] -= 1
        return found

    def cells(self, inputs: Tensor, sizes: list[int]) -> Tensor:
        """Run over rows ordered by step, with a non-increasing number sizes[t] at step t."""
        module = self.module
        projected = F.linear(inputs, module.weight_ih_l0, module.bias_ih_l0).split(sizes)
        transposed = module.weight_hh_l0.t()
        h = c = None
        found = []
        for size, gates in zip(sizes, projected):
            if h is not None:
                gates = torch.addmm(gates, h[:size], transposed)
            i, f, u, o = gates.chunk(4, 1)
            fresh = torch.sigmoid(i) * torch.tanh(u)
            c = fresh if c is None else torch.addcmul(fresh, torch.sigmoid(f), c[:size])
            h = torch.sigmoid(o) * torch.tanh(c)
            found.append(h)
        return torch.cat(found)


class Both:
    """An LSTM in each direction over rows of different lengths.

    Args:
        ahead, back: the LSTMs.
        way: "groups" or "cells".
    """

    def __init__(self, ahead: LSTM, back: LSTM, way: str) -> None:
        self.directions, self.way = (ahead, back), way

    def __call__(self, flat: Tensor, lengths: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return the outputs of both at every position of the concatenated rows `flat`."""
        starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        order = np.argsort(-lengths, kind="stable")
        run = self._cells if self.way == "cells" else self._groups
        return run(flat, lengths, starts, order)

    def _cells(
        self, flat: Tensor, lengths: np.ndarray, starts: np.ndarray, order: np.ndarray
    ) -> tuple[Tensor, Tensor]:
        lengths, starts = lengths[order], starts[order]
        steps = np.arange(lengths[0])[:, None]
        live = steps < lengths[None]
        sizes = live.sum(1).tolist()
        found = []
        for lstm, places in zip(
            self.directions, ((starts + steps)[live], (starts + lengths - 1 - steps)[live])
        ):
            outputs = lstm.cells(flat.index_select(0, torch.from_numpy(places)), sizes)
            found.append(outputs.index_select(0, inverse(places)))
        return found[0], found[1]

    def _groups(
        self, flat: Tensor, lengths: np.ndarray, starts: np.ndarray, order: np.ndarray
    ) -> tuple[Tensor, Tensor]:
        found: tuple[list[Tensor], list[Tensor]] = [], []
        held: tuple[list[np.ndarray], list[np.ndarray]] = [], []
        for part in np.array_split(order, GROUPS):
            if not len(part):
                continue
            length, start = lengths[part][:, None], starts[part][:, None]
            steps = np.arange(length.max())[None]
            live = steps < length
            inside = np.minimum(steps, length - 1)
            for way, places in enumerate((start + inside, start + length - 1 - inside)):
                rows = flat.index_select(0, torch.from_numpy(places.ravel())).view(*places.shape, -1)
                outputs = self.directions[way].module(rows)[0].flatten(0, 1)
                found[way].append(outputs.index_select(0, torch.from_numpy(np.flatnonzero(live))))
                held[way].append(places[live])
        ahead, back = (
            torch.cat(rows).index_select(0, inverse(np.concatenate(places)))
            for rows, places in zip(found, held)
        )
        return ahead, back


def inverse(places: np.ndarray) -> Tensor:
    """Return the permutation that undoes one."""
    found = np.empty_like(places)
    found[places] = np.arange(len(places))
    return torch.from_numpy(found)

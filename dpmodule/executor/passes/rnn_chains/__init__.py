"""Run unrolled recurrent networks by kernels for whole sequences.

A graph that `LSTMCell.unroll` makes has a dozen small operators for every step and layer; one kernel that runs over
the whole sequence needs a tenth of the time or less. What is found is arithmetic, not names: graphs of real MXNet and
of functions that users wrote by hand count as well, whatever the order of their gates.

- `cells` finds the operators that make one step;
- `chains` joins steps to chains, and sees that nothing a chain reads depends on what it makes;
- `sequences` turns lists of values, one for each step, into one tensor;
- `kernels` is what runs;
- `rewrite` puts it all together.

Needs:
    storage: dense; steps on sparse values are no part of a cell
    rank: steps (N, K) or of more axes, which count as one, or (N,), which count as (N, 1)
    type: one for data, states and weights: float32, float64 or bfloat16, on a GPU float16 too; others run step
        by step
    layout: any
    gradients: any
"""

from __future__ import annotations

from .rewrite import rnn_chains as rnn_chains

__all__ = ["rnn_chains"]

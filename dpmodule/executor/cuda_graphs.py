"""Recording repeated runs of an executor on a GPU in a CUDA graph, and replaying them.

With a small network, Python launches operators more slowly than the GPU runs them. A CUDA graph launches all operators
in one call. It always reads and writes the same memory: the batch is copied into the executor's own arrays, and results
are copied from the graph's memory, or into the gradient arrays. Python must do the same in every run. These are
therefore never recorded: graphs with custom operators, control flow, sparse values or several devices; operators that
might synchronize with the GPU; runs that a monitor watches; executors whose shapes change, as in bucketing. A parameter
that moves to other memory restarts the recording.

Source: PyTorch's notes "CUDA semantics", section "CUDA Graphs"; MXNet 1.9.1's MXNET_ENABLE_CUDA_GRAPHS.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from operator import is_
from typing import Any, NamedTuple

import torch

from ..context import gpu_module, is_gpu
from .program import Program

_PLAIN_RUNS = 3
"""Number of plain runs before a recording, during which kernels are chosen and memory is allocated."""

_SAFE = frozenset(
    """
    Activation BatchNorm BlockGrad Cast Concat Convolution Deconvolution Dropout Embedding Flatten FullyConnected
    InstanceNorm L2Normalization LRN LayerNorm LeakyReLU LinearRegressionOutput LogisticRegressionOutput
    MAERegressionOutput MakeLoss Pad Pooling RNN Reshape SequenceLast SequenceMask SliceChannel SoftmaxActivation
    SoftmaxOutput SwapAxis UpSampling _arange _contrib_AdaptiveAvgPooling2D _contrib_div_sqrt_dim _copy _div_scalar
    _full _maximum _maximum_scalar _minimum _minimum_scalar _minus_scalar _mul_scalar _ones _plus_scalar _power
    _power_scalar _rminus_scalar _zeros abs add_n amp_cast amp_multicast argmax batch_dot broadcast_add
    broadcast_axis broadcast_div broadcast_like broadcast_maximum broadcast_minimum broadcast_mul broadcast_power
    broadcast_sub broadcast_to clip cos dot elemwise_add elemwise_div elemwise_mul elemwise_sub erf exp expand_dims
    hard_sigmoid log log_softmax make_loss max mean min negative norm ones_like pick reciprocal relu repeat
    reshape_like reverse rsqrt sigmoid sign sin slice slice_axis slice_like smooth_l1 softmax softsign sqrt square
    squeeze stack sum take tanh tile transpose where zeros_like
    _np_dot _np_max _np_min _np_reshape _np_squeeze _np_sum _np_transpose _npi_concatenate _npi_einsum _npi_equal
    _npi_greater _npi_greater_equal _npi_less _npi_less_equal _npi_matmul _npi_mean _npi_not_equal _npi_stack _npi_var
    _npi_where
    """.split()  # noqa: SIM905  # many lines as a list
)
"""Operators that never synchronize with the GPU; the warm-up run checks this."""

_WAITS = "synchronizing CUDA operation"
"""Part of torch's warning about a call that waits for the GPU."""


class RecordedOutputs(NamedTuple):
    """Results of a recorded run.

    Shape:
        outputs: each as the graph's.
        grads: each as its argument.

    Attributes:
        grads: gradients in the order of their arrays; none shares memory with another tensor.
    """

    outputs: list[torch.Tensor]
    grads: list[torch.Tensor | None]
    random_states: Sequence[torch.Tensor] = ()


Work = Callable[[], RecordedOutputs]


def without_aliases(
    tensors: Sequence[torch.Tensor | None], taken: Sequence[torch.Tensor]
) -> list[torch.Tensor | None]:
    """Return contiguous tensors that share memory with no other tensor, copying where necessary.

    Shape:
        returns: each as the tensor given.
    """
    seen = {tensor.untyped_storage().data_ptr() for tensor in taken}
    unique: list[torch.Tensor | None] = []
    for tensor in tensors:
        if tensor is not None:
            storage = tensor.untyped_storage()
            if storage.data_ptr() in seen or storage.nbytes() != tensor.nbytes or not tensor.is_contiguous():
                tensor = tensor.clone(memory_format=torch.contiguous_format)
            seen.add(tensor.untyped_storage().data_ptr())
        unique.append(tensor)
    return unique


def unsupported_reason(program: Program) -> str:
    """Return the reason why a program cannot be recorded; "" if there is none."""
    low = program.low
    for node in low.graph.nodes:
        if node.op is None:
            continue
        if node.op.stateful or node.op.owner is not None or node.subgraphs:
            return f"{node.describe()} runs code of its own"
        if node.op.kind not in _SAFE:
            return f"{node.describe()} is not known to work without waiting"
        if node.op.name == "RNN" and (node.a.use_sequence_length or node.a.p > 0):
            return f"{node.describe()} has sequence lengths or dropout"
    if program.written or any(step.keeps for step in low.steps):
        return "a step keeps something from run to run"
    if "mirror" in low.fired:
        return "backward computes results again"
    if any(low.is_sparse(step) for step in low.steps):
        return "it has sparse values"
    return ""


class Driver:
    """The stream and the memory pool of a GPU for all of its recordings."""

    def __init__(self, device: torch.device) -> None:
        self._gpu = gpu_module()
        self._device = device
        self._stream = self._gpu.Stream(device)  # recordings that share a pool must use one stream
        self._pool = self._gpu.graph_pool_handle()

    def warm_up(self, work: Work) -> tuple[RecordedOutputs, str]:
        """Run work on the stream of recordings, so that libraries initialize their state there.

        Returns:
            The results, and torch's warning if Python waited for the GPU, else "".
        """
        gpu, current = self._gpu, self._gpu.current_stream(self._device)
        self._stream.wait_stream(current)
        before = gpu.get_sync_debug_mode()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            gpu.set_sync_debug_mode("warn")
            try:
                with gpu.stream(self._stream):
                    results = work()
            finally:
                gpu.set_sync_debug_mode(before)
        current.wait_stream(self._stream)
        for tensor in (*results.outputs, *results.grads):
            if tensor is not None:
                tensor.record_stream(current)
        waits = (str(warning.message) for warning in caught)
        return results, next((text for text in waits if _WAITS in text), "")

    def record(
        self, work: Work, generators: Sequence[torch.Generator]
    ) -> tuple[Callable[[], None], RecordedOutputs]:
        """Record work without running it.

        Args:
            generators: the generators that `work` draws from; each replay draws new numbers.

        Returns:
            The function that does it, and the tensors in which it leaves its results each time.
        """
        gpu, current = self._gpu, self._gpu.current_stream(self._device)
        graph = gpu.CUDAGraph()
        for generator in generators:
            graph.register_generator_state(generator)
        try:
            # other threads, such as prefetching ones, may keep using the GPU
            with (
                gpu.device(self._device),
                gpu.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"),
            ):
                results = work()
        finally:
            gpu.set_stream(current)  # torch does not restore it when a recording fails
        return graph.replay, results


@cache
def driver_of(device: torch.device) -> Driver | None:
    """Return the driver of a device; None if the device has no CUDA graphs."""
    return Driver(device) if is_gpu(device) and hasattr(gpu_module(), "CUDAGraph") else None


class Recorder:
    """Records and replays the work of one executor in one mode, after some plain runs.

    Args:
        memory: returns the tensors whose memory `work` reads and writes; a changed tensor ends the recording.
    """

    def __init__(
        self,
        driver: Driver,
        work: Work,
        memory: Callable[[], list[torch.Tensor]],
        generators: Sequence[torch.Generator] = (),
        logger: Any = logging,
    ) -> None:
        self._driver = driver
        self._work = work
        self._memory = memory
        self._generators = list(generators)
        self._logger = logger
        self._runs = 0
        self._wanted = _PLAIN_RUNS
        self._replay: Callable[[], None] | None = None
        self._results: RecordedOutputs | None = None
        self._known: list[torch.Tensor] = []
        self._off = False
        self._reason = ""

    @property
    def state(self) -> str:
        """Description of how the next run is done, with the reason if it is not a replay."""
        if self._off:
            return f"not in CUDA graphs: {self._reason}"
        return "CUDA graph" if self.is_recorded else "CUDA graph, once it has repeated"

    @property
    def is_recorded(self) -> bool:
        """True if the next run is a replay, unless the memory changes."""
        return self._replay is not None

    def forget(self) -> None:
        """Drop the recording and restart the count of runs; after a recording, the next one needs twice as many."""
        if self._replay is not None:
            self._wanted *= 2
        self._replay = self._results = None
        self._known = []
        self._runs = 0

    def is_due(self) -> bool:
        """Return True if `run` does the next run; if not, count the run, which the caller does."""
        if self._off:
            return False
        if self._known and not _same(self._known, self._memory()):
            self.forget()
        self._runs += 1
        return self._runs > self._wanted

    def run(self) -> RecordedOutputs | None:
        """Do the work: first as a warm-up on the stream of recordings, then by recording it, then by replaying it.

        Returns:
            The results, overwritten by the next run. None if recording failed; then nothing was run, and no later call
            records.
        """
        if self._replay is None and not self._known:
            return self._warm_up()
        if self._replay is None and not self._record():
            return None
        if self._replay is not None:
            self._replay()
        return self._results

    def _warm_up(self) -> RecordedOutputs:
        results, reason = self._driver.warm_up(self._work)
        self._known = self._memory()
        if reason:
            self._stop(reason)
        return results

    def _record(self) -> bool:
        try:
            self._replay, self._results = self._driver.record(self._work, self._generators)
        except Exception as error:
            self._stop(f"{type(error).__name__}: {error}")
            return False
        return True

    def _stop(self, reason: str) -> None:
        self.forget()
        self._off, self._reason = True, reason
        self._logger.warning("CUDA graphs: this graph runs without: %s", reason)


def _same(before: Sequence[torch.Tensor], now: Sequence[torch.Tensor]) -> bool:
    return len(before) == len(now) and all(map(is_, before, now))

"""Private torch functions, resolved here and nowhere else, each with a public stand-in.

Read them as attributes of this module (``private.fused_sgd(...)``), never by ``from`` import: `select` exchanges
them. A function that the installed torch lacks, or that no longer takes these arguments, is replaced at its first
use; trying all of them at import would load code that most programs never run.

The calls have torch's own signatures; the stand-ins take only the arguments that this package passes::

    fused_sgd(params, grads, momenta, *, weight_decay, momentum, lr, dampening, nesterov, maximize, is_first_step)
    fused_adam(params, grads, means, variances, [], steps, *, lr, beta1, beta2, weight_decay, eps, amsgrad, maximize)
    foreach_clone(tensors)
    foreach_copy(targets, sources)
    foreach_add(targets, sources)
    foreach_norm(tensors, order, dtype)
    attention(query, key, value, is_causal=..., attn_mask=..., scale=...)
    onednn_linear(data, weight, bias, "none", [], "")
    onednn_convolution(data, weight, bias, padding, stride, dilation, groups, activation, numbers, algorithm)
    onednn_convolution_sum(data, other, weight, bias, padding, stride, dilation, groups, "add", None, relu, [], None)
    onednn_convolution_add(other, data, weight, bias, padding, stride, dilation, groups, "add", None, relu, [], None)
    onednn_packed(weight, padding, stride, dilation, groups, shape)
    onednn_packed_linear(weight)
    mkl_linear(data, packed, weight, bias, rows)
    mkl_packed_linear(weight, rows)
    storage_uses(handle)
    tensor_uses(tensor)
    share_descriptor(storage)
    storage_watch(storage)
    run_backward(roots, seeds, inputs=inputs)

fused_*, foreach_copy, foreach_add and onednn_convolution_add write their first argument in place. On the CPU the fused
ones ignore strides: the caller checks that every tensor is contiguous and that shapes and dtypes agree. torch does not
count their writes (``tensor._version``), which the caller does.

foreach_norm returns the norm of each tensor. attention takes (N, heads, L, D) on the CPU and a summand of the scores;
it returns the values, and the logarithm of the sum of each query's weights, 0 if the query is NaN or sees no key. The
onednn_* functions compute `F.linear` and `torch.conv2d` for float32 CPU tensors without a gradient; a convolution can
be followed by an activation or by a sum with another tensor. onednn_packed* return a weight in the layout of these
functions, for convolutions the best one for data of a shape. mkl_packed_linear returns one for a
number of rows; mkl_linear takes it and the weight itself. storage_uses and tensor_uses return the number of owners of a
storage (by its handle ``storage._cdata``) or of a tensor, such as operators that keep it for backward; 0 if unknown.
share_descriptor returns descriptor and bytes of a storage in shared memory; the storage keeps owning it. storage_watch
returns an object that reports whether a storage still exists (``expired()``) and is the same (``cdata``); None if
unsupported. run_backward takes three tuples and returns the gradients of inputs that require grad, under
`torch.enable_grad`: None if no root depends on an input. A gradient is not always fresh memory: several may be one
tensor, a seed, or an expansion. It frees the recording.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from operator import attrgetter
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import forward_ad

_function_arguments: Any = getattr(getattr(torch, "_functorch", None), "utils", None)

Tensors = Sequence[torch.Tensor]


def plain_sgd(
    params: Tensors,
    grads: Tensors,
    momenta: Tensors,
    *,
    weight_decay: float,
    momentum: float,
    lr: float,
    dampening: float,
    nesterov: bool = False,
    maximize: bool = False,
    is_first_step: bool = False,
) -> None:
    """Do the step of `torch._fused_sgd_` with public calls; any strides, and any momentum if buffers are passed."""
    for position, (param, grad) in enumerate(zip(params, grads, strict=True)):
        step = grad.add(param, alpha=weight_decay) if weight_decay else grad
        if momenta:
            step = momenta[position].mul_(momentum).add_(step, alpha=1.0 - dampening)
        param.add_(step, alpha=-lr)


def plain_adam(
    params: Tensors,
    grads: Tensors,
    means: Tensors,
    variances: Tensors,
    max_variances: Tensors,
    steps: Tensors,
    *,
    lr: float,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float,
    amsgrad: bool = False,
    maximize: bool = False,
) -> None:
    """Do the step of `torch._fused_adam_` with public calls; any strides."""
    count = float(steps[0])
    size = lr / (1.0 - beta1**count)
    root = (1.0 - beta2**count) ** 0.5
    for param, grad, mean, variance in zip(params, grads, means, variances, strict=True):
        step = grad.add(param, alpha=weight_decay) if weight_decay else grad
        mean.mul_(beta1).add_(step, alpha=1.0 - beta1)
        variance.mul_(beta2).addcmul_(step, step, value=1.0 - beta2)
        param.addcdiv_(mean, variance.sqrt().div_(root).add_(eps), value=-size)


def _plain_clone(tensors: Tensors) -> Tensors:
    if not tensors or tensors[0].is_cpu:
        return [tensor.clone() for tensor in tensors]
    copies = list(map(torch.empty_like, tensors))
    sys.modules[__name__].foreach_copy(copies, tensors)  # in one launch; resolved by __getattr__
    return copies


def _plain_copy(targets: Tensors, sources: Tensors) -> None:
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)


def _plain_add(targets: Tensors, sources: Tensors) -> None:
    for target, source in zip(targets, sources, strict=True):
        target.add_(source)


def _plain_norm(tensors: Tensors, order: float, dtype: torch.dtype | None = None) -> Tensors:
    return [torch.linalg.vector_norm(tensor, order, dtype=dtype) for tensor in tensors]


def plain_linear(
    data: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *fused: Any
) -> torch.Tensor:
    """Compute oneDNN's linear map with the public call; nothing can be fused to it."""
    return torch.nn.functional.linear(data, weight, bias)


_ACTIVATIONS: dict[str | None, Callable[..., torch.Tensor]] = {
    "relu": torch.relu_,
    "sigmoid": torch.sigmoid_,
    "tanh": torch.tanh_,
    "leaky_relu": torch.nn.functional.leaky_relu_,
    "gelu": torch.nn.functional.gelu,
    "hardswish": torch.nn.functional.hardswish,
    "swish": torch.nn.functional.silu,
}


def plain_convolution(
    data: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    activation: str = "none",
    numbers: Sequence[float] = (),
    algorithm: str = "",
) -> torch.Tensor:
    """Compute oneDNN's convolution followed by an activation with public calls."""
    found = torch.conv2d(data, weight, bias, stride, padding, dilation, groups)
    return found if activation == "none" else _ACTIVATIONS[activation](found, *numbers)


def _plain_sum(data: torch.Tensor, other: torch.Tensor, *rest: Any) -> torch.Tensor:
    return _plain_addition(other, data, *rest, fresh=True)


def _plain_addition(other: torch.Tensor, data: torch.Tensor, *rest: Any, fresh: bool = False) -> torch.Tensor:
    found = plain_convolution(data, *rest[:6])
    found = found.add_(other) if fresh else other.add_(found)
    return found if rest[8] is None else _ACTIVATIONS[rest[8]](found)


def _plain_packed(weight: torch.Tensor, *geometry: Any) -> torch.Tensor:
    return weight.clone(memory_format=torch.channels_last)


def _onednn_packed(
    reorder: Callable[..., torch.Tensor], weight: torch.Tensor, *geometry: Any
) -> torch.Tensor:
    """Return a weight in oneDNN's layout: fast for data of one shape, correct for every shape."""
    return reorder(weight.to_mkldnn(), *geometry)


def autograd_apply(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """Return `function.apply` without torch's inspection of the signature, which costs 15 microseconds per call."""
    inspected: Callable[..., Any] = function.apply
    direct: Callable[..., Any] = super(torch.autograd.Function, function).apply  # type: ignore[misc]

    def apply(*args: Any) -> Any:
        is_traced = torch.compiler.is_compiling() or _has_transforms()
        return inspected(*args) if is_traced else direct(*args)

    return apply


def push_mode(mode: Any) -> None:
    """Make an object with ``__torch_function__`` the innermost function mode of this thread."""
    torch._C._push_on_torch_function_stack(mode)


def pop_mode() -> None:
    """Remove the innermost function mode of this thread."""
    torch._C._pop_torch_function_stack()


def swap_tensors(first: torch.Tensor, second: torch.Tensor) -> None:
    """Exchange memory and gradient history of two tensors."""
    torch._C._swap_tensor_impl(first, second)


def has_modes() -> bool:
    """Return True if the installed torch has what recording needs."""
    needed = [(torch._C, name) for name in _OF_C.split()]
    needed += [(module, "handle_torch_function") for module in _FUNCTIONAL]
    needed += [(_function_arguments, "unwrap_dead_wrappers"), *_transforms()]
    return all(hasattr(module, name) for module, name in needed)


_OF_C = """
_push_on_torch_function_stack _pop_torch_function_stack _len_torch_function_stack _swap_tensor_impl
_are_functorch_transforms_active _is_any_autocast_enabled DisableTorchFunction _functorch
"""
_FUNCTIONAL: tuple[Any, ...] = (torch.nn.functional, torch.functional)
_TRANSFORMS = ("grad_impl", "grad_and_value_impl", "_vjp_with_argnums", "_jvp_with_argnums")


def _transforms() -> list[tuple[Any, str]]:
    """Return module and name of the functions that apply `torch.func`'s transformations."""
    from torch._functorch import apis, eager_transforms

    return [(apis, "vmap_impl"), *((eager_transforms, name) for name in _TRANSFORMS)]


@contextmanager
def _replaced(
    owners: Iterable[tuple[Any, str]], make: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Iterator[None]:
    """Replace functions, given by owner and name, by those that `make` returns for them, until the block ends."""
    with ExitStack() as undo:
        for owner, name in owners:
            before = getattr(owner, name)
            setattr(owner, name, make(before))
            undo.callback(setattr, owner, name, before)
        yield


def functions_prepared_by(
    prepare: Callable[[tuple[Any, ...]], tuple[Any, ...]],
) -> AbstractContextManager[None]:
    """Let a function change the arguments of every `autograd.Function`, in all threads, until the end of the block."""
    owners = [(_function_arguments, "unwrap_dead_wrappers")]
    return _replaced(owners, lambda before: lambda args: before(prepare(args)))


def functions_handled_by(
    make: Callable[[Callable[..., Any]], Callable[..., Any]],
) -> AbstractContextManager[None]:
    """Let another function find what overrides functions of torch written in Python, until the end of the block.

    Args:
        make: returns the function from the one that it replaces.
    """
    return _replaced([(module, "handle_torch_function") for module in _FUNCTIONAL], make)


def transforms_prepared_by(prepare: Callable[[Any], Any]) -> AbstractContextManager[None]:
    """Let a function change the arguments of `torch.func`'s transformations, in all threads, until the block ends.

    Args:
        prepare: takes a tuple or a dict of arguments, before the transformation starts.
    """
    return _replaced(
        _transforms(), lambda before: lambda *args, **kwargs: before(*prepare(args), **prepare(kwargs))
    )


def is_in_transform() -> bool:
    """Return True inside a transformation of `torch.func`."""
    return torch._C._are_functorch_transforms_active()


def is_in_function() -> bool:
    """Return True if a caller is the body of an `autograd.Function`."""
    frame: FrameType | None = sys._getframe(1)
    apply = getattr(torch.autograd.Function.apply, "__func__", None)
    # `apply` is not a Python function from torch 2.15 on
    codes = set(_codes_of_forward(torch.autograd.Function)) if apply is None else {apply.__code__}
    while frame is not None:
        if frame.f_code in codes:
            return True
        frame = frame.f_back
    return False


def _codes_of_forward(function: type) -> Iterator[CodeType]:
    """Yield the code of `forward` of all classes derived from a class."""
    derived: Any
    for derived in function.__subclasses__():
        code = getattr(derived.forward, "__code__", None)
        if code is not None:
            yield code
        yield from _codes_of_forward(derived)


def profiler_is_on() -> bool:
    """Return True if a torch profiler records this thread; False if unknown."""
    found: Callable[[], bool] | None = getattr(torch.autograd, "_profiler_enabled", None)
    return found is not None and found()


Gradients = Sequence[torch.Tensor | None]
"""A gradient for each input; None for an input that no root depends on."""


def _plain_backward(
    roots: tuple[torch.Tensor, ...], seeds: tuple[torch.Tensor, ...], *, inputs: tuple[torch.Tensor, ...]
) -> Gradients:
    return torch.autograd.grad(roots, inputs, seeds, allow_unused=True)


def _engine_backward(engine: Callable[..., Gradients]) -> Callable[..., Gradients]:
    """Return a direct call of the engine; `torch.autograd.grad` checks its arguments for several microseconds."""
    return partial(
        engine, keep_graph=False, create_graph=False, allow_unreachable=True, accumulate_grad=False
    )


AccumulateGrad: Any = getattr(torch._C._functions, "AccumulateGrad", None)
"""Class of the gradient function that ends a recording at a variable; None if unknown."""
PythonFunction: Any = torch._C._FunctionBase
"""Class of gradient functions that are written in Python."""


def _try_sgd(call: Callable[..., Any]) -> None:
    # zeros: every training loads their code anyway, but not that of ones
    zero = [torch.zeros(1)]
    options = {"nesterov": False, "maximize": False, "is_first_step": False}
    call(zero, zero, [torch.zeros(1)], weight_decay=0.0, momentum=0.5, lr=0.0, dampening=0.0, **options)


def _try_adam(call: Callable[..., Any]) -> None:
    p, g, m, v, t = ([torch.ones(1)] for _ in range(5))
    rates = {"lr": 0.0, "beta1": 0.9, "beta2": 0.9, "weight_decay": 0.0, "eps": 1.0}
    call(p, g, m, v, [], t, **rates, amsgrad=False, maximize=False)


def plain_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    is_causal: bool = False,
    attn_mask: torch.Tensor | None = None,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute attention step by step."""
    scores = query @ key.mT * scale
    if is_causal:
        scores = scores.where(torch.ones_like(scores[0, 0], dtype=torch.bool).tril(), -torch.inf)
    if attn_mask is not None:
        scores = scores + attn_mask
    return scores.softmax(-1) @ value, scores.new_ones(1)


def _try_attention(call: Callable[..., Any]) -> None:
    query, key = torch.ones(1, 1, 2, 1), torch.ones(1, 1, 3, 1)
    query[..., 0, :] = torch.nan
    out, sums = call(query, key, key, scale=1.0, attn_mask=torch.zeros(2, 3))
    found = out.isnan().flatten() | (sums.flatten() == 0)
    if out[..., 1, :].item() != 1.0 or found.tolist() != [True, False]:
        raise ValueError("computes something else")


def _try_packed_linear(reorder: Callable[..., Any]) -> None:
    data, weight = torch.zeros(2, 3), reorder(torch.zeros(4, 3))
    attrgetter(_TABLE["onednn_linear"][0])(torch)(data, weight, None, "none", [], "")


def plain_mkl_linear(
    data: torch.Tensor, packed: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, rows: int
) -> torch.Tensor:
    return torch.nn.functional.linear(data, weight, bias)


def _try_mkl_linear(call: Callable[..., Any]) -> None:
    data, weight = torch.zeros(2, 3), torch.zeros(4, 3)
    packed = attrgetter(_TABLE["mkl_packed_linear"][0])(torch)(weight, 2)
    call(data, packed, weight, torch.zeros(4), 2)


def _convolve(call: Callable[..., Any], *given: torch.Tensor | None, last: Sequence[Any]) -> Any:
    return call(*given, [0, 0], [1, 1], [1, 1], 1, *last)


def _try_convolution(call: Callable[..., Any]) -> None:
    data, weight = torch.ones(1, 1, 2, 2), torch.ones(1, 1, 1, 1)
    for activation in (("none", [], ""), ("leaky_relu", [0.1], ""), ("gelu", [], "none")):
        _convolve(call, data, weight, None, last=activation)


def _try_sum(call: Callable[..., Any]) -> None:
    for relu in ("relu", None):
        ones = (torch.ones(1, 1, 2, 2) for _ in range(2))
        found = _convolve(call, *ones, torch.ones(1, 1, 1, 1), None, last=("add", None, relu, [], None))
        if float(found.sum()) != 8.0:
            raise ValueError("computes something else")


def _try_packed(reorder: Callable[..., Any]) -> None:
    weight = _onednn_packed(reorder, torch.ones(1, 1, 1, 1), [0, 0], [1, 1], [1, 1], 1, [1, 1, 2, 2])
    for name in ("onednn_convolution", "onednn_convolution_sum", "onednn_convolution_add"):
        private, _, attempt = _TABLE[name]
        attempt(attrgetter(private)(torch))  # the stand-ins take no packed weights
    convolve = attrgetter(_TABLE["onednn_convolution"][0])(torch)
    _convolve(convolve, torch.ones(1, 1, 2, 2), weight, None, last=("none", [], ""))


def _try_uses(call: Callable[..., Any]) -> None:
    storage = torch.ones(1).untyped_storage()
    if call(storage._cdata) != 1:  # the tensor itself is gone
        raise ValueError("counts something else")


def _try_tensor_uses(call: Callable[..., Any]) -> None:
    tensor, weight = torch.ones(1), torch.ones(1, requires_grad=True)
    before = call(tensor)
    with torch.enable_grad():
        kept = weight * tensor
    if call(tensor) != before + kept.numel():
        raise ValueError("counts something else")


def _try_descriptor(call: Callable[..., Any]) -> None:
    storage = torch.ones(1).untyped_storage().share_memory_()
    start = storage.data_ptr()
    if call(storage)[1] != storage.nbytes() or storage.data_ptr() != start:
        raise ValueError("does something else")


def _try_watch(call: Callable[..., Any]) -> None:
    attrgetter(_TABLE["share_descriptor"][0])(torch)  # needed by it
    storage = torch.ones(1).untyped_storage()
    watch = call(storage)
    alive = (watch.cdata == storage._cdata, watch.expired())
    del storage
    if alive != (True, False) or not watch.expired():
        raise ValueError("watches something else")


def _try_backward(engine: Callable[..., Any]) -> None:
    with torch.enable_grad():
        one = torch.tensor([1.0], requires_grad=True)
        (found,) = _engine_backward(engine)((one.view(1),), (torch.tensor([2.0]),), inputs=(one,))
    if found is None or float(found) != 2.0:
        raise ValueError("computes something else")


def _no(*tensors: torch.Tensor) -> bool:
    return False  # the installed torch lacks the function


_has_transforms: Callable[[], bool] = getattr(torch._C, "_are_functorch_transforms_active", _no)
_is_batched: Callable[[torch.Tensor], bool] = getattr(
    getattr(torch._C, "_functorch", None), "is_legacy_batchedtensor", _no
)


def is_transformed(*tensors: torch.Tensor) -> bool:
    """Return True if only torch's own operators fit, since a transformation runs the caller.

    These are `torch.func`'s, among them `torch.vmap`, forward-mode differentiation, and the computation of many
    gradients together, by ``torch.autograd.grad(is_grads_batched=True)``. A tensor may then represent many, and have no
    memory.

    Shape:
        tensors: any.

    Args:
        tensors: those that may represent several gradients.
    """
    return _has_transforms() or forward_ad._current_level >= 0 or any(map(_is_batched, tensors))


set_grad_enabled: Callable[[bool], Any] = getattr(torch._C, "_set_grad_enabled", torch.set_grad_enabled)
"""Switch recording for backward on or off in this thread; `torch.set_grad_enabled` without its object."""

_TABLE: dict[str, tuple[str, Callable[..., Any], Callable[[Callable[..., Any]], None]]] = {
    "fused_sgd": ("_fused_sgd_", plain_sgd, _try_sgd),
    "fused_adam": ("_fused_adam_", plain_adam, _try_adam),
    "foreach_clone": ("_foreach_clone", _plain_clone, lambda call: call([torch.ones(1)])),
    "foreach_copy": ("_foreach_copy_", _plain_copy, lambda call: call([torch.ones(1)], [torch.ones(1)])),
    "foreach_add": ("_foreach_add_", _plain_add, lambda call: call([torch.ones(1)], [torch.ones(1)])),
    "foreach_norm": (
        "_foreach_norm",
        _plain_norm,
        lambda call: call([torch.ones(1)], 2, dtype=torch.float32),
    ),
    "attention": ("_scaled_dot_product_flash_attention_for_cpu", plain_attention, _try_attention),
    "onednn_linear": (
        "ops.mkldnn._linear_pointwise.default",
        plain_linear,
        lambda call: call(torch.zeros(2, 3), torch.zeros(4, 3), torch.zeros(4), "none", [], ""),
    ),
    "onednn_convolution": ("ops.mkldnn._convolution_pointwise.default", plain_convolution, _try_convolution),
    "onednn_convolution_sum": ("ops.mkldnn._convolution_pointwise.binary", _plain_sum, _try_sum),
    "onednn_convolution_add": ("ops.mkldnn._convolution_pointwise_.binary", _plain_addition, _try_sum),
    "onednn_packed": ("_C._nn.mkldnn_reorder_conv2d_weight", _plain_packed, _try_packed),
    "onednn_packed_linear": ("ops.mkldnn._reorder_linear_weight.default", torch.clone, _try_packed_linear),
    "mkl_linear": ("ops.mkl._mkl_linear.default", plain_mkl_linear, _try_mkl_linear),
    "mkl_packed_linear": (
        "ops.mkl._mkl_reorder_linear_weight.default",
        lambda weight, rows: weight.clone(),
        lambda reorder: _try_mkl_linear(attrgetter(_TABLE["mkl_linear"][0])(torch)),
    ),
    "storage_uses": ("_C._storage_Use_Count", lambda handle: 0, _try_uses),
    "tensor_uses": ("Tensor._use_count", lambda tensor: 0, _try_tensor_uses),
    "share_descriptor": ("UntypedStorage._share_fd_cpu_", lambda storage: (-1, 0), _try_descriptor),
    "storage_watch": ("multiprocessing.reductions.StorageWeakRef", lambda storage: None, _try_watch),
    "run_backward": ("autograd.Variable._execution_engine.run_backward", _plain_backward, _try_backward),
}

_WRAPPERS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "onednn_packed": lambda reorder: partial(_onednn_packed, reorder),
    "run_backward": _engine_backward,
}

if TYPE_CHECKING:
    fused_sgd: Callable[..., None]
    fused_adam: Callable[..., None]
    foreach_clone: Callable[..., Tensors]
    foreach_copy: Callable[..., None]
    foreach_add: Callable[..., None]
    foreach_norm: Callable[..., Tensors]
    attention: Callable[..., tuple[torch.Tensor, torch.Tensor]]
    onednn_linear: Callable[..., torch.Tensor]
    onednn_convolution: Callable[..., torch.Tensor]
    onednn_convolution_sum: Callable[..., torch.Tensor]
    onednn_convolution_add: Callable[..., torch.Tensor]
    onednn_packed: Callable[..., torch.Tensor]
    onednn_packed_linear: Callable[..., torch.Tensor]
    mkl_linear: Callable[..., torch.Tensor]
    mkl_packed_linear: Callable[..., torch.Tensor]
    storage_uses: Callable[[int], int]
    tensor_uses: Callable[[torch.Tensor], int]
    share_descriptor: Callable[..., tuple[int, int]]
    storage_watch: Callable[[torch.UntypedStorage], Any]
    run_backward: Callable[..., Gradients]
else:

    def __getattr__(name: str) -> Any:
        """Resolve one of the functions above and store it as an attribute of this module."""
        if name not in _TABLE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = _resolve(name)
        return found


def _resolve(name: str) -> Callable[..., Any]:
    """Return torch's private function if it exists and takes these arguments, else the public stand-in."""
    private, public, attempt = _TABLE[name]
    try:
        found: Callable[..., Any] = attrgetter(private)(torch)
        attempt(found)
    except (AttributeError, TypeError, ValueError, RuntimeError, NotImplementedError):
        return public
    return _WRAPPERS[name](found) if name in _WRAPPERS else found


def select(public: bool = False) -> None:
    """Choose between torch's private functions and the public stand-ins for the whole process.

    Args:
        public: True forces the stand-ins, so that tests can compare the two.
    """
    for name, (_, stand_in, _) in _TABLE.items():
        globals().pop(name, None)
        if public:
            globals()[name] = stand_in


select()


def batch_fetcher(loader: torch.utils.data.DataLoader[Any]) -> Callable[[Any], Any] | None:
    """Return a function from indices to the loader's batch, without its overhead; None if torch has changed.

    The function raises StopIteration at the end of an iterable dataset.
    """
    kind: Any = getattr(torch.utils.data.dataloader, "_DatasetKind", None)
    if not hasattr(kind, "create_fetcher") or not hasattr(loader, "_auto_collation"):
        return None
    source: Any = loader
    fetcher = kind.create_fetcher(
        source._dataset_kind, loader.dataset, source._auto_collation, loader.collate_fn, loader.drop_last
    )
    fetch: Callable[[Any], Any] = fetcher.fetch
    return fetch

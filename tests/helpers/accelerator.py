"""A GPU that is none: a second kind of torch device, whose memory and arithmetic are the processor's.

`install` registers it with torch, for the whole process, so it is called in processes of their own that are started
with DPMODULE_GPU_TYPE=simulated. Tensors of the device compute what those of the CPU would, to the bit. What differs is
what is looked at here:

* arguments on different devices are refused, as every GPU refuses them;
* whatever would have Python wait for a GPU is noted in `WAITS`, or refused: reading numbers, shapes that depend on
  numbers, copies from and to memory that is not page-locked;
* a copy to page-locked memory that nobody waits for shows its numbers when an event says so, and nothing else before;
* work on one stream may use what was made on another one only behind an event of that;
* a graph that is captured computes nothing until it is replayed, and nothing may wait while it is;
* the native extension may not be given an address of the device's memory.

Not simulated: speed, the numbers of other kernels, memory that runs out, two processes on one device.
"""

import contextlib
import types
import warnings
from functools import cache, partial

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree

try:
    from torch._subclasses.fake_tensor import DataDependentOutputException
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend as register
except ImportError:  # an older torch
    register = None

NAME = "simulated"
MISSING = "" if register else "this torch has no _setup_privateuseone_for_python_backend"
LAG = 50
"""How many launches a stream is behind the host: so many later, an event has come to pass."""

_READS = frozenset({"aten::equal", "aten::_ctc_loss", "aten::_linalg_check_errors"})
"""Operators that read numbers inside their CUDA kernels' host code, beside those that torch tags."""
_MASKED = frozenset({"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"})
_SHAPED = frozenset({"aten::repeat_interleave"})
_CPU = torch.device("cpu")
_clock_of_host = {}


class _Waits:
    """What has had Python wait for the device.

    Attributes:
        found: what it was, in order.
        refuse: whether it raises DataDependentOutputException instead.
    """

    def __init__(self):
        self.found, self.refuse = [], False

    def note(self, func):
        if _Module.capturing is not None:
            raise RuntimeError(f"{func} waits for the device while a graph is captured")
        if _Module.debug_mode == "warn":
            warnings.warn("called a synchronizing CUDA operation", UserWarning, stacklevel=2)
        if self.refuse:
            raise DataDependentOutputException(func)
        self.found.append(str(func))

    @contextlib.contextmanager
    def refused(self):
        """Refuse every wait inside the block."""
        before, self.refuse = self.refuse, True
        try:
            yield
        finally:
            self.refuse = before

    def during(self, work):
        """Do some work, and return what it waited for."""
        before = len(self.found)
        work()
        return self.found[before:]


WAITS = _Waits()


class Stream:
    """A queue of work of one device; knows how far it has heard of others."""

    def __init__(self, device=None, **_):
        self.device, self.ticks, self.seen, self.pending = _device_of(device), 0, {}, []

    def launch(self):
        """Count a piece of work; what the host knows to be done, it need not wait for."""
        self.hear(_clock_of_host)
        self.ticks += 1

    def hear(self, clock):
        for stream, tick in clock.items():
            self.seen[stream] = max(tick, self.seen.get(stream, 0))

    def clock(self):
        return {**self.seen, self: self.ticks}

    def wait_stream(self, other):
        self.hear(other.clock())

    def wait_event(self, event):
        self.hear(event.clock)

    def record_event(self, event=None):
        event = event or Event()
        event.record(self)
        return event

    def query(self):
        return not self.ticks or _clock_of_host.get(self, 0) >= self.ticks

    def synchronize(self):
        WAITS.note("stream.synchronize")
        _host_hears(self.clock())


class Event:
    """A mark behind the work that a stream has got so far."""

    def __init__(self, **_):
        self.clock, self._stream = {}, None

    def record(self, stream=None):
        self._stream = stream or current_stream()
        self.clock = self._stream.clock()

    def query(self):
        if self._stream is None:
            return True
        if self._stream.ticks < self.clock[self._stream] + LAG:
            return all(_clock_of_host.get(each, 0) >= tick for each, tick in self.clock.items())
        _host_hears(self.clock)
        return True

    def synchronize(self):
        if not self.query():
            WAITS.note("event.synchronize")
        _host_hears(self.clock)

    def wait(self, stream=None):
        (stream or current_stream()).wait_event(self)


def _host_hears(clock):
    for stream, tick in clock.items():
        _clock_of_host[stream] = max(tick, _clock_of_host.get(stream, 0))
        for due, target, values in list(stream.pending):
            if due <= tick:
                target.copy_(values)
                stream.pending.remove((due, target, values))


_defaults = {}
_current = {}  # of all threads: torch runs backward in threads of its own, each node on the stream of its forward


def _device_of(device):
    if isinstance(device, int):
        return torch.device(NAME, device)
    device = torch.device(NAME, 0) if device is None else torch.device(device)
    return torch.device(device.type, device.index or 0)


def current_stream(device=None):
    device = _device_of(device)
    if device not in _defaults:
        _defaults[device] = Stream(device)
    return _current.get(device, _defaults[device])


@contextlib.contextmanager
def stream(chosen):
    """Launch work on a stream inside the block."""
    before = current_stream(chosen.device)
    set_stream(chosen)
    try:
        yield
    finally:
        set_stream(before)


def set_stream(chosen):
    """Launch work on a stream from now on."""
    _current[chosen.device] = chosen


class Graph:
    """What a device was told while the graph was captured, to be done again, in the same memory."""

    def __init__(self):
        self._work, self.generators, self.written = [], [], []

    def register_generator_state(self, generator):
        self.generators.append(generator)

    def add(self, again):
        self._work.append(again)

    def replay(self):
        launched = current_stream()
        launched.launch()
        for again in self._work:
            again()
        for each in self.written:
            _note(_made, each, launched, launched.ticks)


@contextlib.contextmanager
def graph(captured, pool=None, stream=None, capture_error_mode="global"):
    """Capture what is launched inside the block, on a stream."""
    for each in _defaults.values():  # torch waits for the device before
        stream.hear(each.clock())
    with globals()["stream"](stream):
        states = [each.get_state() for each in captured.generators]
        _Module.capturing = captured
        try:
            yield
        finally:
            _Module.capturing = None
            for each, state in zip(captured.generators, states, strict=True):
                each.set_state(state)


class _Module:
    """What `torch.get_device_module` returns for the device: the part of `torch.cuda` that is used."""

    Stream, Event, CUDAGraph = Stream, Event, Graph
    current_stream, set_stream = staticmethod(current_stream), staticmethod(set_stream)
    stream, graph = staticmethod(stream), staticmethod(graph)
    capturing, debug_mode = None, "default"

    @classmethod
    def set_sync_debug_mode(cls, mode):
        cls.debug_mode = mode


def _constant(value):
    return staticmethod(lambda *args, **kwargs: value)


for _name, _value in {
    "is_available": True,
    "is_initialized": True,
    "device_count": 1,  # torch has no more for a device that has only Python behind it
    "current_device": 0,
    "_is_in_bad_fork": False,
    "manual_seed_all": None,
    "device": contextlib.nullcontext(),
    "graph_pool_handle": 0,
    "empty_cache": None,
    "mem_get_info": (1 << 30, 1 << 31),
    "get_device_name": "a simulated GPU",
    "get_rng_state_all": [],
    "set_rng_state_all": None,
}.items():
    setattr(_Module, _name, _constant(_value))
_Module.synchronize = staticmethod(lambda device=None: current_stream(device).synchronize())
_Module.get_sync_debug_mode = staticmethod(lambda: _Module.debug_mode)


_made = {}  # by storage: whose it is, on which stream it was written last, and when
_locked = {}  # page-locked storages
_addresses = {}  # of the device's memory


def _known(table, tensor):
    found = table.get(tensor.untyped_storage()._cdata)
    return None if found is None or found[0].expired() else found


def _note(table, tensor, *facts):
    storage = tensor.untyped_storage()
    table[storage._cdata] = (StorageWeakRef(storage), *facts)


class Simulated(torch.Tensor):
    """A tensor of the device: a tensor of the CPU's memory that says that it lies elsewhere."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, plain, device):
        make = torch.Tensor._make_subclass
        made = make(cls, plain, False, dispatch_device=True, device_for_backend_keys=device)
        made._where = device
        return made

    @property
    def device(self):
        return self._where

    def numpy(self, *, force=False):
        if not force:
            raise TypeError(f"cannot convert {self._where} device type tensor to numpy: use Tensor.cpu()")
        return self.detach().cpu().numpy()

    def tolist(self):
        WAITS.note("tolist")
        return _plain(self).tolist()

    def __array__(self, dtype=None):
        return self.numpy()

    def record_stream(self, stream):
        """Accept what is about memory alone."""

    def __deepcopy__(self, memo):
        return memo.setdefault(id(self), self.detach().clone().requires_grad_(self.requires_grad))

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.prim.device.default:
            return args[0]._where
        kwargs = kwargs or {}
        name = func._schema.name
        if name == "aten::copy_":
            return _copy(*args, **kwargs)
        if name == "aten::_to_copy" and kwargs.get("device") not in (None, args[0]._where):
            return _moved(args[0], **kwargs)
        if name.startswith("aten::_foreach_"):
            return _one_by_one(func, args, kwargs)
        if name == "aten::_pin_memory" or name == "aten::is_pinned":
            return func(*args)
        return _computed(func, args, kwargs)


def _one_by_one(func, args, kwargs):
    """Do an operator on lists of tensors for each position by itself: they may lie on several devices."""
    count = len(args[0])
    found = []
    for place in range(count):
        one = [[x[place]] if isinstance(x, (list, tuple)) and len(x) == count else x for x in args]
        if not any(isinstance(each, Simulated) for each in pytree.tree_leaves(one)):
            found += func(*one, **kwargs) or ()
        elif func._schema.name == "aten::_foreach_copy_":
            _copy(one[0][0], one[1][0], *one[2:])
        else:
            found += _computed(func, tuple(one), kwargs) or ()
    return None if func._schema.is_mutable else found


def _computed(func, args, kwargs):
    """Compute on the CPU what is asked of the device."""
    flat, spec = pytree.tree_flatten((args, kwargs))
    own = [each for each in flat if isinstance(each, Simulated)]
    where = own[0]._where
    _check_devices(func, flat, where)
    if _waits(func, args, kwargs):
        WAITS.note(func)
    launched = current_stream(where)
    _use(own, launched)
    plains = {id(each): _plain(each) for each in own}
    host = [plains.get(id(each), _CPU if isinstance(each, torch.device) else each) for each in flat]
    plain_args, plain_kwargs = pytree.tree_unflatten(host, spec)
    compute = partial(_CELLS.get(func._schema.name, func), *plain_args, **plain_kwargs)
    found = compute() if _Module.capturing is None else _captured(compute, list(plains.values()))
    given = {id(plains[id(each)]): each for each in own}
    written = own if func._schema.is_mutable else []
    for each in written:
        _follow(each, plains[id(each)])
    make = lambda result: given[id(result)] if id(result) in given else Simulated(result, where)  # noqa: E731
    found = pytree.tree_map_only(torch.Tensor, make, found)
    _wrote([*written, *(each for each in pytree.tree_leaves(found) if isinstance(each, Simulated))], launched)
    return found


def _wrote(tensors, launched):
    """Note on which stream tensors have been made; in a graph, on that of each replay."""
    if _Module.capturing is not None:
        _Module.capturing.written += tensors
    for each in tensors:
        _addresses[each.data_ptr()] = StorageWeakRef(each.untyped_storage())
        if _Module.capturing is None:
            _note(_made, each, launched, launched.ticks)


def _captured(compute, given):
    """Add a computation to the graph that is captured; what it works on stays, and what it makes is nothing yet."""
    before = [each.clone() for each in given]
    found = compute()
    for each, value in zip(given, before, strict=True):
        each.copy_(value)
    taken = {each.untyped_storage().data_ptr() for each in given}
    made = [each for each in pytree.tree_leaves(found) if isinstance(each, torch.Tensor)]
    fresh = [each.untyped_storage().data_ptr() not in taken for each in made]
    for each, is_fresh in zip(made, fresh, strict=True):
        if is_fresh and each.is_floating_point():
            each.fill_(torch.nan)

    def again():
        new = [each for each in pytree.tree_leaves(compute()) if isinstance(each, torch.Tensor)]
        for each, value, is_fresh in zip(made, new, fresh, strict=True):
            if is_fresh:
                each.copy_(value)

    _Module.capturing.add(again)
    return found


def _plain(tensor):
    """Return a CPU tensor of the same memory."""
    with torch._C._DisableTorchDispatch():
        place = tensor.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride()
    return torch.empty(0, dtype=tensor.dtype).set_(*place)


def _follow(tensor, plain):
    """Take over what an operator has done to shape or memory."""
    facts = [(each.shape, each.stride(), each.data_ptr()) for each in (tensor, plain)]
    if facts[0] != facts[1]:
        tensor.data = Simulated(plain, tensor._where)


def _check_devices(func, flat, where):
    for each in flat:
        if isinstance(each, torch.Tensor) and each.device != where:
            is_number = each.is_cpu and not each.dim()
            is_index = each.is_cpu and func._schema.name in _MASKED and each.dtype is not torch.float32
            if is_index:
                WAITS.note(func)
            elif not is_number:
                raise RuntimeError(f"Expected one device, but {func} got {where} and {each.device}")


def _waits(func, args, kwargs):
    name = func._schema.name
    if name in _MASKED:
        return any(each is not None and each.dtype in (torch.bool, torch.uint8) for each in args[1])
    if name in _SHAPED and kwargs.get("output_size") is not None:
        return False
    tags = func.tags
    return torch.Tag.data_dependent_output in tags or torch.Tag.dynamic_output_shape in tags or name in _READS


def _use(own, launched):
    """Launch a piece of work on a stream; what it reads must be there."""
    launched.launch()
    for each in own:
        known = _known(_made, each)
        if known is not None and known[1] is not launched and launched.seen.get(known[1], 0) < known[2]:
            raise RuntimeError("a tensor made on another stream is used without waiting for its event")


def _copy(target, source, non_blocking=False):
    """Copy on the device, or between it and the host."""
    plain_target, plain_source = on_host(target), on_host(source)
    own = [each for each in (target, source) if isinstance(each, Simulated)]
    launched = current_stream(own[0]._where)
    _use(own, launched)
    if len(own) == 1:
        host = plain_source if own[0] is target else plain_target
        if not (non_blocking and _known(_locked, host)):
            WAITS.note("aten.copy_ between host and device")
            _host_hears(launched.clock())
        elif own[0] is source:
            launched.pending.append((launched.ticks, plain_target, plain_source.clone()))
            plain_target.fill_(torch.nan if plain_target.is_floating_point() else 77)
            return target
    if _Module.capturing is not None:
        _captured(lambda: plain_target.copy_(plain_source), [plain_target])
    else:
        plain_target.copy_(plain_source)
    if isinstance(target, Simulated):
        _wrote([target], launched)
    return target


def _moved(source, *, device, dtype=None, memory_format=None, non_blocking=False, **_):
    """Return a copy on another device."""
    form = torch.preserve_format if memory_format is None else memory_format
    device = torch.device(device)
    made = torch.empty_like(_plain(source), dtype=dtype or source.dtype, memory_format=form)
    if device.type == NAME:
        made = Simulated(made, _device_of(device))
    return _copy(made, source, non_blocking)


def on_host(tensor):
    """Return the CPU tensor of the same memory, without waiting for anything: for tests to compare with."""
    return _plain(tensor) if isinstance(tensor, Simulated) else tensor


def _empty(size, *, dtype=None, device=None, pin_memory=None, memory_format=None, **_):
    form = torch.contiguous_format if memory_format is None else memory_format
    return Simulated(torch.empty(size, dtype=dtype, memory_format=form, device="cpu"), _device_of(device))


def _empty_strided(size, stride, *, dtype=None, device=None, pin_memory=None, **_):
    return Simulated(torch.empty_strided(size, stride, dtype=dtype, device="cpu"), _device_of(device))


def _factory(operator):
    """Return a kernel that makes on the device what an operator without tensors makes on the CPU."""
    return lambda *args, device=None, **kwargs: Simulated(operator(*args, **kwargs), _device_of(device))


def _lstm_cell(inputs, hidden, cell, bias=None, hidden_bias=None):
    """What every accelerator has a kernel for and the CPU has none: the gates of an LSTM, which backward keeps."""
    gates = inputs + hidden + (0 if bias is None else bias + hidden_bias)
    come, stay, new, go = gates.chunk(4, 1)
    come, stay, new, go = come.sigmoid(), stay.sigmoid(), new.tanh(), go.sigmoid()
    state = stay * cell + come * new
    return go * state.tanh(), state, torch.cat((come, stay, new, go), 1)


def _lstm_cell_backward(out_grad, state_grad, cell, state, gates, has_bias):
    come, stay, new, go = gates.chunk(4, 1)
    shown = state.tanh()
    out_grad = torch.zeros_like(state) if out_grad is None else out_grad
    grad = out_grad * go * (1 - shown * shown) + (0 if state_grad is None else state_grad)
    gradients = (
        grad * new * come * (1 - come), grad * cell * stay * (1 - stay), grad * come * (1 - new * new),
        out_grad * shown * go * (1 - go),
    )  # fmt: skip
    found = torch.cat(gradients, 1)
    return found, grad * stay, found.sum(0) if has_bias else None


def _gru_cell(inputs, hidden, state, bias=None, hidden_bias=None):
    """Likewise of a GRU."""
    inputs = inputs if bias is None else inputs + bias
    hidden = hidden if hidden_bias is None else hidden + hidden_bias
    (reset, keep, new), (hidden_reset, hidden_keep, kept) = inputs.chunk(3, 1), hidden.chunk(3, 1)
    reset, keep = (reset + hidden_reset).sigmoid(), (keep + hidden_keep).sigmoid()
    new = (new + reset * kept).tanh()
    return new + keep * (state - new), torch.cat((reset, keep, new, state, kept), 1)


def _gru_cell_backward(grad, saved, has_bias):
    reset, keep, new, state, kept = saved.chunk(5, 1)
    new_grad = grad * (1 - keep) * (1 - new * new)
    keep_grad = grad * (state - new) * keep * (1 - keep)
    reset_grad = new_grad * kept * reset * (1 - reset)
    inputs = torch.cat((reset_grad, keep_grad, new_grad), 1)
    hidden = torch.cat((reset_grad, keep_grad, new_grad * reset), 1)
    sums = (inputs.sum(0), hidden.sum(0)) if has_bias else (None, None)
    return inputs, hidden, grad * keep, *sums


_CELLS = {
    "aten::_thnn_fused_lstm_cell": _lstm_cell, "aten::_thnn_fused_lstm_cell_backward_impl": _lstm_cell_backward,
    "aten::_thnn_fused_gru_cell": _gru_cell, "aten::_thnn_fused_gru_cell_backward": _gru_cell_backward,
}  # fmt: skip


class _Watched:
    """The native extension, whose functions know the memory of the host alone."""

    def __init__(self, core):
        self._core = core

    def __getattr__(self, name):
        found = getattr(self._core, name)
        if not isinstance(found, types.BuiltinFunctionType):
            return found

        def call(*args):
            for each in pytree.tree_leaves(args):
                if type(each) is int and each and each in _addresses and not _addresses[each].expired():
                    raise RuntimeError(f"{name} was given an address of the device's memory")
            return found(*args)

        setattr(self, name, call)
        return call


@cache
def install():
    """Register the device with torch, and give contexts of this package their random numbers; returns the package.

    Torch cannot lock pages nor make generators for a device that has only Python behind it: page-locked memory is
    ordinary memory that is known here, and generators are the CPU's.
    """
    register(rename=NAME, backend_module=_Module())
    library = torch.library.Library("aten", "IMPL")
    library.impl("empty.memory_format", _empty, "PrivateUse1")
    library.impl("empty_strided", _empty_strided, "PrivateUse1")
    for name in ("tril_indices", "triu_indices"):
        library.impl(name, _factory(getattr(torch, name)), "PrivateUse1")
    library.impl("_copy_from", lambda source, target, *_, **__: _copy(target, source), "PrivateUse1")
    _Module.library = library  # which takes its kernels back when it goes
    empty = torch.empty

    def locking(*args, pin_memory=False, **kwargs):
        made = empty(*args, **kwargs)
        if pin_memory:
            _note(_locked, made)
        return made

    torch.empty = locking
    import dpmodule as mx
    from dpmodule import native
    from dpmodule._devices import generators

    native.core = native.core and _Watched(native.core)
    generators._generators[mx.gpu()] = torch.Generator().manual_seed(0)
    return mx

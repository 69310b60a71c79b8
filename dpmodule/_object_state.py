"""The state of objects as plain data and arrays: attributes that have changed, and random generators.

`snapshot` packs all attributes of an object. `changes` returns those that differ now, in a form that `run_format`
writes, and `restore` applies them to an equally constructed object. Collections become copies of the same type. What is
neither plain data nor an array is described by a dict with the key "kind": a random generator, or an object, whose
attributes are packed in turn and restored in place. What cannot be packed, such as a function, a file or a Python
generator, must not change.
"""

from __future__ import annotations

import functools
import inspect
import io
import random
import sys
import types
import zlib
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import torch

from .base import ArgumentError
from .ndarray import NDArray
from .ndarray.row_sparse import RowSparseNDArray

_SCALARS = (bool, int, float, str)
_ARRAYS = (np.ndarray, torch.Tensor, torch.nn.Parameter, NDArray, RowSparseNDArray)
_GENERATORS = (
    random.Random,
    np.random.RandomState,
    np.random.Generator,
    np.random.BitGenerator,
    torch.Generator,
)
FACTORIES = (bool, int, float, str, list, tuple, set, dict)
"""Default factories of a defaultdict that `run_format` can write."""
_ABSTRACT = {"abc", "builtins", "collections.abc", "typing"}
"""Modules of base classes without state."""
_TRANSPARENT: tuple[str, ...] = ("dpmodule.metric", "torch.nn", "torch.utils.data")
_TRANSPARENT += ("dpmodule.io.iterator", "dpmodule.io.data_loader")
"""Library modules whose objects are packed like those of user code."""
_SEARCHED = ("dpmodule.agents", "dpmodule.image", "dpmodule.io", "dpmodule.rnn", *_TRANSPARENT)
"""Library modules whose objects may hold random generators of user code."""
_SAMPLE = 4096
"""Number of evenly spaced elements of a larger array that its digest reads."""
_LONGEST = 10_000
"""Longer collections are packed as their length and a few elements if large arrays are not copied."""
_COLLECTIONS = (list, set, frozenset, deque, dict, Counter, OrderedDict, defaultdict)
_MOST_OBJECTS = 50_000
"""Limit of objects to search for random generators, and to pack if large arrays are not copied."""
_DEEPEST = 50
"""Limit of nested objects to pack."""

_UNCHANGED = {"kind": "unchanged"}


class _Opaque:
    """A value that cannot be packed.

    Args:
        packed: data to detect changes with, stored instead of the value.
    """

    __slots__ = ("kind", "packed", "value")

    def __init__(self, value: Any, packed: list[Any] | None = None, kind: str = "") -> None:
        self.kind = kind or type(value).__name__
        self.packed = packed
        self.value = value if packed is None else None


# collections


def _elements(value: Any) -> list[Any]:
    """Return the values of a list, tuple, deque or dict."""
    if isinstance(value, Mapping):
        return list(value.values())
    return list(value) if isinstance(value, (list, tuple, deque)) else []


def _empty(like: Any) -> Any:
    """Return an empty collection of the same type."""
    if type(like) is deque:
        return deque(maxlen=like.maxlen)
    return defaultdict(like.default_factory) if type(like) is defaultdict else type(like)()


def _filled(collection: Any, keys: Any, values: Iterable[Any]) -> Any:
    """Fill an empty list, deque or dict with values, under the keys for a dict, and return it."""
    if isinstance(collection, dict):
        dict.update(collection, zip(keys, values))
    else:
        collection.extend(values)
    return collection


def _is_plain(key: Any) -> bool:
    """Return True if `run_format` can write this element of a set or key of a dict."""
    if type(key) is tuple:
        return all(map(_is_plain, key))
    return key is None or type(key) in _SCALARS or (isinstance(key, np.generic) and key.dtype.kind in "biuf")


# packing


def snapshot(
    owner: object, leave_out: frozenset[str] = frozenset(), largest: int | None = None
) -> dict[str, Any]:
    """Return a copy of an object's attributes, packed.

    Args:
        largest: largest number of elements of arrays to copy; None copies all.
    """
    pack = _Packer(largest)
    return {name: pack(value, [name]) for name, value in _attributes(owner) if name not in leave_out}


def changes(
    owner: object, before: Mapping[str, Any], leave_out: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Return the attributes that have changed since a `snapshot`, as plain data and arrays."""
    state, unpackable = packed_changes(owner, before, leave_out)
    for path, kind in unpackable.values():
        raise ArgumentError(
            f"{type(owner).__name__}.{path} has changed and holds a {kind}, which cannot be kept over a resume: use "
            "numbers, strings, arrays, or lists, tuples, dicts, sets and deques of these"
        )
    return state


def packed_changes(
    owner: object, before: Mapping[str, Any], leave_out: frozenset[str] = frozenset(), **how: Any
) -> tuple[dict[str, Any], dict[str, tuple[str, str]]]:
    """Return the result of `changes`, and path and type of attributes that cannot be packed, by name."""
    state: dict[str, Any] = {}
    unpackable: dict[str, tuple[str, str]] = {}
    for name, now in snapshot(owner, leave_out, **how).items():
        if name in before and _same(now, before[name]) and state.keys().isdisjoint(_shared_attributes(now)):
            continue
        wrong = _unpackable(now, before.get(name, _UNCHANGED), name)
        if wrong is None:
            state[name] = _plain(now)
        else:
            unpackable[name] = wrong
    return state, unpackable


def restore(owner: Any, before: Mapping[str, Any], state: Mapping[str, Any], **how: Any) -> None:
    """Apply the result of `changes` to an equally constructed object; other attributes become those of `before`."""
    unpack, now = _Unpacker(owner), snapshot(owner, **how)
    trees: dict[str, Any] = {}
    for name, tree in before.items():
        if name in now and not (_same(now[name], tree) and trees.keys().isdisjoint(_shared_attributes(tree))):
            trees[name] = _plain(tree)
    for name, tree in {**trees, **state}.items():
        current = getattr(owner, name, None)
        value = unpack(tree, current, [name])
        if value is not current:
            object.__setattr__(owner, name, value)


def _attributes(owner: Any) -> Iterator[tuple[str, Any]]:
    slots = [name for cls in type(owner).__mro__ for name in _names_of(vars(cls).get("__slots__", ()))]
    for name in dict.fromkeys([*getattr(owner, "__dict__", ()), *slots]):
        if name not in ("__dict__", "__weakref__") and hasattr(owner, name):
            yield name, getattr(owner, name)


def _names_of(slots: Any) -> list[str]:
    return [slots] if isinstance(slots, str) else list(slots)


class _Packer:
    """Packs values; further references to an object become its path."""

    def __init__(self, largest: int | None) -> None:
        self._largest = largest
        self._paths: dict[int, list[Any]] = {}
        self._alive: list[Any] = []  # so that no other object gets the same id

    def __call__(self, value: Any, path: list[Any]) -> Any:
        if value is None or type(value) in _SCALARS:
            return value
        if isinstance(value, np.generic):
            return value if value.dtype.kind in "biuf" else _Opaque(value)
        if type(value) is tuple:
            return tuple(self._row(value, path))
        if id(value) in self._paths:
            return {"kind": "same", "path": self._paths[id(value)]}
        self._paths[id(value)] = path
        self._alive.append(value)
        return self._changeable(value, path)

    def _changeable(self, value: Any, path: list[Any]) -> Any:
        kind = type(value)
        if kind in _ARRAYS:
            return self._array(value)
        if len(path) > _DEEPEST or (self._largest is not None and len(self._alive) > _MOST_OBJECTS):
            return _Opaque(value)
        if self._largest is not None and kind in _COLLECTIONS and len(value) > _LONGEST:
            some = [id(element) for _, element in zip(range(0, len(value), len(value) // 100), value)]
            return _Opaque(value, [len(value), some])
        if isinstance(value, _GENERATORS):
            return {"kind": "generator", "state": state_of(value)}
        if kind in _COLLECTIONS:
            return self._collection(value, path)
        if (state := _iterator_state(value)) is not None:
            return {"kind": "iterator", "state": state}
        if _is_packable_object(value):
            attributes = {name: self(attribute, [*path, name]) for name, attribute in _attributes(value)}
            return {
                "kind": "object",
                "class": f"{kind.__module__}.{kind.__qualname__}",
                "attributes": attributes,
            }
        return _Opaque(value)

    def _collection(self, value: Any, path: list[Any]) -> Any:
        if isinstance(value, (set, frozenset, dict)) and not all(map(_is_plain, value)):
            wrong = next(type(key).__name__ for key in value if not _is_plain(key))
            keys = [key if _is_plain(key) else _Opaque(key) for key in value]
            what = "dict with keys" if isinstance(value, dict) else "set with elements"
            return _Opaque(value, [keys, self._row(_elements(value), path)], f"{what} of type {wrong}")
        if isinstance(value, (set, frozenset)):
            return value.copy()
        packed = self._row(_elements(value), path)
        has_own_factory = type(value) is defaultdict and value.default_factory not in (None, *FACTORIES)
        if has_own_factory or (type(value) is dict and "kind" in value):
            return {"kind": type(value).__name__, "items": [list(pair) for pair in zip(value, packed)]}
        return _filled(_empty(value), value, packed)

    def _row(self, values: Any, path: list[Any]) -> list[Any]:
        return [self(each, [*path, i]) for i, each in enumerate(values)]

    def _array(self, value: Any) -> Any:
        if isinstance(value, np.ndarray) and value.dtype.kind not in "biuf":
            return _Opaque(value)
        count = value.numel() if isinstance(value, torch.Tensor) else value.size
        if self._largest is not None and count > self._largest:
            return _Opaque(value, [str(value.dtype), tuple(value.shape), digest(value)])
        return value.detach().clone() if isinstance(value, torch.Tensor) else value.copy()


def _iterator_state(value: Any) -> Any:
    """Return the state of a data iterator; None if the value is not one or has no state."""
    if not hasattr(value, "provide_data") or not hasattr(value, "load_state_dict"):
        return None
    with suppress(NotImplementedError):
        return value.state_dict()


def _is_packable_object(value: Any) -> bool:
    """Return True for an object of a user-defined class, whose attributes are its whole state."""
    if isinstance(value, (type, types.ModuleType, types.FunctionType, types.MethodType, BaseException)):
        return False
    if not hasattr(value, "__dict__") and not hasattr(value, "__slots__"):
        return False
    return all(
        cls.__module__ in _ABSTRACT and cls not in _BUILT_IN or _is_searchable(cls)
        for cls in type(value).__mro__
    )


_BUILT_IN = frozenset(
    each for each in vars(sys.modules["builtins"]).values() if isinstance(each, type) and each is not object
)


def _is_searchable(cls: type, parts: tuple[str, ...] = _TRANSPARENT) -> bool:
    """Return True if objects of a class are searched: user-defined ones, not those of most libraries."""
    name = cls.__module__
    if any(name == part or name.startswith(f"{part}.") for part in parts):
        return True
    top = name.partition(".")[0]
    return top not in sys.stdlib_module_names | {"dpmodule", "numpy", "torch"} or top == "__main__"


def _same(one: Any, other: Any) -> bool:
    """Return True if two packed values are equal bit for bit."""
    if type(one) is not type(other):
        return False
    if isinstance(one, _Opaque):
        if one.packed is not None:
            return _same(one.packed, other.packed)
        return one.value is other.value or _are_equal(one.value, other.value)
    if isinstance(one, (list, tuple, deque, dict)):
        if isinstance(one, dict) and list(one) != list(other):
            return False
        return len(one) == len(other) and all(map(_same, _elements(one), _elements(other)))
    if isinstance(one, _ARRAYS):
        first, second = (_as_numpy(each) for each in (one, other))
        return all(
            a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
            for a, b in zip(first, second)
        )
    return bool(one == other or (one != one and other != other))


def _are_equal(one: Any, other: Any) -> bool:
    try:
        return (one == other) is True
    except Exception:  # a user-defined comparison may raise anything
        return False


def _as_numpy(array: Any) -> list[np.ndarray[Any, Any]]:
    if isinstance(array, RowSparseNDArray):
        return [array.indices.asnumpy(), array.data.asnumpy(), np.array(array.shape)]
    if isinstance(array, np.ndarray):
        return [array]
    tensor = (array.raw if isinstance(array, NDArray) else array).detach().cpu().contiguous()
    return [tensor.reshape(-1).view(torch.uint8).numpy() if tensor.numel() else np.array(tensor.shape)]


def _unpackable(now: Any, before: Any, name: str) -> tuple[str, str] | None:
    """Return the path and type of a changed value that cannot be packed; None if there is none."""
    if _same(now, before):
        return None
    if isinstance(now, _Opaque):
        return name, now.kind
    if type(now) is dict and now.get("kind") == "object":
        if not isinstance(before, dict) or before.get("class") != now["class"]:
            return name, now["class"]  # no object to restore it into
        rows = (
            (key, each, before["attributes"].get(key, _UNCHANGED)) for key, each in now["attributes"].items()
        )
        return _first(_unpackable(each, old, f"{name}.{key}") for key, each, old in rows)
    elements, old = _elements(now), _elements(before)
    if type(now) is not type(before) or (isinstance(now, dict) and list(now) != list(before)):
        old = []
    if len(old) != len(elements):
        old = [_UNCHANGED] * len(elements)
    return _first(_unpackable(each, was, name) for each, was in zip(elements, old))


def _shared_attributes(tree: Any) -> Iterator[str]:
    """Yield the attributes that share an object with a packed value."""
    if type(tree) is dict and tree.get("kind") == "same":
        yield tree["path"][0]
        return
    for each in _elements(tree):
        yield from _shared_attributes(each)


def _first(values: Iterator[tuple[str, str] | None]) -> tuple[str, str] | None:
    return next((value for value in values if value is not None), None)


def _plain(tree: Any) -> Any:
    """Return a packed value in which values that cannot be packed are marked as unchanged."""
    if isinstance(tree, _Opaque):
        return dict(_UNCHANGED)
    if isinstance(tree, tuple):
        return tuple(map(_plain, tree))
    if isinstance(tree, (list, deque, dict)):
        return _filled(_empty(tree), tree, map(_plain, _elements(tree)))
    return tree


class _Unpacker:
    """Unpacks values; objects and generators are changed in place."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner
        self._made: dict[str, Any] = {}

    def __call__(self, tree: Any, current: Any, path: list[Any]) -> Any:
        if isinstance(tree, tuple):
            return tuple(self._row(tree, current, path))
        if type(tree) is dict and "kind" in tree:
            return self._described(tree, current, path)
        if isinstance(tree, (list, deque, dict)):
            return self._fill(_empty(tree), tree, _elements(tree), current, path)
        if isinstance(tree, (set, frozenset)):
            return self._keep(path, tree.copy())
        if isinstance(tree, _ARRAYS):
            return self._keep(path, _array_like(tree, current))
        return tree

    def _keep(self, path: list[Any], value: Any) -> Any:
        self._made[repr(path)] = value
        return value

    def _row(self, trees: Any, current: Any, path: list[Any]) -> list[Any]:
        old = _elements(current)
        return [self(each, old[i] if i < len(old) else None, [*path, i]) for i, each in enumerate(trees)]

    def _fill(self, made: Any, keys: Any, trees: Any, current: Any, path: list[Any]) -> Any:
        return _filled(self._keep(path, made), keys, self._row(trees, current, path))

    def _described(self, tree: dict[str, Any], current: Any, path: list[Any]) -> Any:
        kind = tree.get("kind")
        if kind == "unchanged":
            return current
        if kind == "same":
            target = self._made.get(repr(tree["path"]), self)
            return self._at(tree["path"]) if target is self else target
        if kind == "object":
            return self._object(tree, current, path)
        if kind == "iterator":
            current.load_state_dict(tree["state"])
            return self._keep(path, current)
        if kind == "generator":
            return self._keep(path, _generator_with_state(tree["state"], current, path))
        keys, trees = zip(*tree["items"]) if tree["items"] else ((), ())
        target = {} if kind == "dict" else defaultdict(current.default_factory)
        return self._fill(target, keys, trees, current, path)

    def _object(self, tree: dict[str, Any], current: Any, path: list[Any]) -> Any:
        kind = type(current)
        if f"{kind.__module__}.{kind.__qualname__}" != tree["class"]:
            raise ArgumentError(
                f"{type(self._owner).__name__}.{_path_text(path)} is a {kind.__name__}; the state was saved with a "
                f"{tree['class']}"
            )
        self._keep(path, current)
        for name, each in tree["attributes"].items():
            value = self(each, getattr(current, name, None), [*path, name])
            if value is not getattr(current, name, self):
                object.__setattr__(current, name, value)
        return current

    def _at(self, path: list[Any]) -> Any:
        value = self._owner
        for step in path:
            value = getattr(value, step) if isinstance(step, str) else _elements(value)[step]
        return value


def _path_text(path: list[Any]) -> str:
    return "".join(f".{step}" if isinstance(step, str) else f"[{step}]" for step in path)[1:]


def _array_like(array: Any, current: Any) -> Any:
    """Return a copy of an array, on the device of the current one."""
    if isinstance(array, torch.Tensor):
        if type(current) is torch.nn.Parameter and current.shape == array.shape:
            with torch.no_grad():
                current.copy_(array)
            return current
        return (
            array.detach().clone().to(current.device if isinstance(current, torch.Tensor) else array.device)
        )
    if isinstance(array, NDArray) and isinstance(current, NDArray):
        return array.copyto(current.context)
    return array.copy()


# descriptions


def described(value: Any) -> Any:
    """Return plain data and arrays that identify settings; a function becomes its name and a checksum."""
    if inspect.isfunction(value):
        constants = [each for each in value.__code__.co_consts if not isinstance(each, types.CodeType)]
        held = [_content(cell) for cell in value.__closure__ or ()]
        numbers = [each for each in [*constants, *held] if type(each) in _SCALARS]
        return f"{value.__qualname__} {zlib.crc32(value.__code__.co_code + repr(numbers).encode()):08x}"
    if isinstance(value, (list, tuple)):
        return [described(element) for element in value]
    if isinstance(value, dict):
        return {str(key): described(element) for key, element in value.items()}
    if _is_packable_object(value):
        return {
            "class": type(value).__qualname__,
            **{name: described(attribute) for name, attribute in _attributes(value)},
        }
    tree = _Packer(None)(value, [])
    return type(value).__qualname__ if isinstance(tree, _Opaque) else tree


def equal(one: Any, other: Any) -> bool:
    """Return True if two results of `described` are equal bit for bit."""
    return _same(one, other)


# random generators


def state_of(generator: Any) -> Any:
    """Return the state of a generator of Python, NumPy or torch, as plain data and arrays."""
    if isinstance(generator, random.Random):
        version, numbers, spare = generator.getstate()
        return ["Random", version, np.array(numbers, np.int64), spare]
    if isinstance(generator, np.random.RandomState):
        return ["RandomState", *generator.get_state()]
    if isinstance(generator, torch.Generator):
        return ["torch", generator.get_state()]
    bits = generator.bit_generator if isinstance(generator, np.random.Generator) else generator
    return ["Generator", bits.state]


def set_state(generator: Any, state: Any) -> None:
    """Set the state of a generator to a result of `state_of`."""
    kind, *parts = state
    if kind != state_of(generator)[0]:
        raise ArgumentError(
            f"the state of a generator of kind {kind} does not fit a {type(generator).__name__}"
        )
    if kind == "Random":
        version, numbers, spare = parts
        generator.setstate((version, tuple(int(number) for number in numbers), spare))
    elif kind == "RandomState":
        generator.set_state(tuple(parts))
    elif kind == "torch":
        generator.set_state(parts[0])
    else:
        bits = generator.bit_generator if isinstance(generator, np.random.Generator) else generator
        bits.state = parts[0]


def _generator_with_state(state: Any, current: Any, path: list[Any]) -> Any:
    """Return the current generator, or a new one if there is none, with a state."""
    if not isinstance(current, _GENERATORS):
        factories: dict[str, Any] = {
            "Random": random.Random,
            "RandomState": np.random.RandomState,
            "torch": torch.Generator,
        }
        if state[0] not in factories:
            factories[state[0]] = lambda: np.random.Generator(getattr(np.random, state[1]["bit_generator"])())
        current = factories[state[0]]()
    set_state(current, state)
    return current


def random_generators(roots: Mapping[str, Any]) -> dict[str, Any]:
    """Return the random generators that objects and functions of a program reference, by path.

    Args:
        roots: the objects by name. Attributes, elements, closures and the global variables that a function reads are
            searched, but not the objects of most libraries.
    """
    generators: dict[str, Any] = {}
    seen: dict[int, Any] = {}
    waiting = deque(roots.items())
    while waiting and len(seen) < _MOST_OBJECTS:
        path, value = waiting.popleft()
        if id(value) in seen:
            continue
        seen[id(value)] = value
        if isinstance(value, _GENERATORS):
            generators[path] = value
        else:
            waiting.extend((f"{path}.{step}", child) for step, child in _reachable(value))
    return generators


def _reachable(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the values that a value references, as far as user code may have set them, with names."""
    if isinstance(value, Mapping):
        yield from ((str(key), each) for key, each in _first_items(value.items()))
    elif isinstance(value, (list, tuple, deque)):
        yield from ((str(i), each) for i, each in enumerate(_first_items(value)))
    elif isinstance(value, functools.partial):
        yield from (("func", value.func), ("args", value.args), ("keywords", value.keywords))
    elif isinstance(value, (types.MethodType, types.BuiltinMethodType)):
        yield "self", value.__self__
        yield "func", getattr(value, "__func__", None)
    elif isinstance(value, types.FunctionType):
        yield from _values_read_by(value)
    elif inspect.isgenerator(value):
        yield from (value.gi_frame.f_locals if value.gi_frame else {}).items()
    elif not isinstance(value, (type, types.ModuleType)) and _is_searchable(type(value), _SEARCHED):
        yield from _attributes(value)
        for cls in type(value).__mro__:
            if cls.__module__.partition(".")[0] not in sys.stdlib_module_names | {"dpmodule", "torch"} - {
                "__main__"
            }:
                yield from ((f"{cls.__name__}.{name}", each) for name, each in vars(cls).items())


def _first_items(values: Any) -> Iterator[Any]:
    return (each for _, each in zip(range(1000), values))


def _values_read_by(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the variables that a user-defined function reads in addition to its arguments."""
    top = function.__module__.partition(".")[0] if function.__module__ else ""
    if top in sys.stdlib_module_names | {"dpmodule", "numpy", "torch"} - {"__main__"}:
        return
    yield from zip(function.__code__.co_freevars, map(_content, function.__closure__ or ()))
    yield "defaults", [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    codes = [function.__code__]
    for code in codes:
        codes += [each for each in code.co_consts if isinstance(each, types.CodeType)]
        for name in code.co_names:
            if name in function.__globals__:
                yield name, function.__globals__[name]


def _content(cell: types.CellType) -> Any:
    with suppress(ValueError):  # not assigned yet
        return cell.cell_contents


# iterators


def has_live_iterator(packed: Any) -> bool:
    """Return True if a packed value holds a file or an iterator whose position is unknown."""
    if isinstance(packed, _Opaque):
        return isinstance(packed.value, io.IOBase) or hasattr(packed.value, "__next__")
    return any(map(has_live_iterator, _elements(packed)))


def digest(value: Any) -> int:
    """Return a checksum of an array or a collection of arrays."""
    if isinstance(value, (list, tuple)):
        return zlib.crc32(repr([digest(each) for each in value]).encode())
    if isinstance(value, NDArray):
        value = value.raw if value.stype == "default" else value.data.raw  # type: ignore[attr-defined]
    if isinstance(value, torch.Tensor):
        flat = value.detach().reshape(-1)
        part = flat[:: max(1, len(flat) // _SAMPLE)].contiguous()
        return zlib.crc32((part.cpu().view(torch.uint8) if len(part) else part).numpy().tobytes())
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        return zlib.crc32(value.reshape(-1)[:: max(1, value.size // _SAMPLE)].tobytes())
    return zlib.crc32(repr(value).encode()) if isinstance(value, (*_SCALARS, np.generic)) else 0

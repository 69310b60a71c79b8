"""Graphs as plain data: nodes, order, inference and the JSON file format, without torch."""

import typing

from .._core import lazy
from .infer import InferredSubgraph as InferredSubgraph
from .infer import infer_from_arrays as infer_from_arrays
from .infer import infer_shapes as infer_shapes
from .infer import infer_types as infer_types
from .infer import variable_dtype as variable_dtype
from .infer import variable_shape as variable_shape
from .node import Entry as Entry
from .node import Graph as Graph
from .node import Node as Node

if typing.TYPE_CHECKING:
    from .serialization import from_json as from_json
    from .serialization import input_versions as input_versions
    from .serialization import to_json as to_json

_LATER = {"serialization": "from_json input_versions to_json"}

__all__ = [*lazy.public_names(vars()), *lazy.modules_of(_LATER)]

__getattr__, __dir__ = lazy.attributes(__name__, __all__, _LATER)

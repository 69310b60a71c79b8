"""Running graphs: lowering to generated functions, executors, and the memory they share."""

from .._core import lazy
from .arrays import Binding as Binding
from .device_placement import Placement as Placement
from .device_placement import place_nodes as place_nodes
from .executor import Executor as Executor
from .memory import allocate as allocate
from .memory import from_pool as from_pool
from .options import PLAIN as PLAIN
from .options import RunOptions as RunOptions
from .options import grad_reqs as grad_reqs
from .options import run_options as run_options
from .passes import disabled as disabled

__all__ = ["Executor"]

__getattr__, __dir__ = lazy.attributes(
    __name__, __all__, {"compiled": "", "cuda_graphs": "", "recompute": "", "cuda_graph_mode": ""}
)

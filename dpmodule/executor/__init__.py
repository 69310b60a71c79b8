"""Running graphs: lowering to generated functions, executors, and the memory they share."""

from .executor import Executor as Executor
from .memory import allocate as allocate
from .memory import from_pool as from_pool
from .memory import give_back as give_back
from .passes import disabled as disabled
from .placement import Placement as Placement
from .placement import placement as placement
from .requirements import requirements as requirements

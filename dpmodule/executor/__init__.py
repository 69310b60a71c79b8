"""Running graphs: lowering to generated functions, executors, and the memory they share."""

from .executor import Executor as Executor
from .executor import requirements as requirements
from .memory import allocate as allocate
from .memory import from_pool as from_pool
from .passes import disabled as disabled

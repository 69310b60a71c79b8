"""Wrong settings of devices."""

from dpmodule._devices.precision import tf32_from_environment
from dpmodule.base import ArgumentError

SAID = "DPMODULE_TF32 is 'yes', expected 0"
ROWS = [(lambda: tf32_from_environment({"DPMODULE_TF32": "yes"}), ArgumentError, SAID)]

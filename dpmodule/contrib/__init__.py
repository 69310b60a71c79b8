"""What MXNet keeps under `mx.contrib`."""

from . import svrg_optimization as svrg_optimization

"""Operators: one declaration each, read by arrays, symbols, executors and (later) automatic batching and ONNX.

Importing this package declares every operator.
"""

from . import array as array
from . import contrib as contrib
from . import control_flow as control_flow
from . import image as image
from . import imaging as imaging
from . import math as math
from . import nn as nn
from . import quantize as quantize
from . import random as random
from . import random_pdf as random_pdf
from . import random_unique as random_unique
from . import sparse as sparse
from . import update as update
from .registry import find as find
from .registry import get as get
from .registry import names as names
from .registry import namespace_of as namespace_of

"""Automatic batching: write a program for one example, run it on batches of many.

Imported as ``import dpmodule.autobatch as dy``, this is the interface of DyNet: a program builds the expressions of one
example at a time, and nothing is computed until it asks for a value. With ``configure(autobatch=True)``, or
``--dynet-autobatch 1`` on the command line, equal operations of many examples then run as batches.

Shapes are those of one element of a minibatch: (d1, ..., dn), in short (*d). If a minibatch has several elements, an
array has them along its last axis, (*d, batch), as in DyNet; a tensor always has them along its first, (batch, *d).

Example:
    >>> import dpmodule.autobatch as dy
    >>> m = dy.ParameterCollection()
    >>> W, E = m.add_parameters((2, 3)), m.add_lookup_parameters((10, 3))
    >>> losses = [dy.pickneglogsoftmax(W * E[word], label) for word, label in [(1, 0), (7, 1)]]
    >>> loss = dy.esum(losses)
    >>> loss.backward()
    >>> dy.SimpleSGDTrainer(m).update()
    >>> dy.renew_cg() is dy.cg()
    True

PyTorch programs need none of this: `batching` and `map` record plain operations of torch and run them together (package
`pytorch`).

`ops` declares each operation once, for both the Python engine (`python_engine`) and the native one; `graph` defines the
interface of their graphs.
"""

from .._core import lazy
from . import session
from .builders.composed import BiRNNBuilder as BiRNNBuilder
from .builders.composed import TreeLSTMBuilder as TreeLSTMBuilder
from .builders.composed import TreeState as TreeState
from .builders.lstm import CompactVanillaLSTMBuilder as CompactVanillaLSTMBuilder
from .builders.lstm import CoupledLSTMBuilder as CoupledLSTMBuilder
from .builders.lstm import FastLSTMBuilder as FastLSTMBuilder
from .builders.lstm import LSTMBuilder as LSTMBuilder
from .builders.lstm import SparseLSTMBuilder as SparseLSTMBuilder
from .builders.lstm import VanillaLSTMBuilder as VanillaLSTMBuilder
from .builders.rnn import GRUBuilder as GRUBuilder
from .builders.rnn import SimpleRNNBuilder as SimpleRNNBuilder
from .builders.softmax import ClassFactoredSoftmaxBuilder as ClassFactoredSoftmaxBuilder
from .builders.softmax import HierarchicalSoftmaxBuilder as HierarchicalSoftmaxBuilder
from .builders.softmax import SoftmaxBuilder as SoftmaxBuilder
from .builders.softmax import StandardSoftmaxBuilder as StandardSoftmaxBuilder
from .builders.state import RNNState as RNNState
from .builders.state import StackedRNNState as StackedRNNState
from .cell import Cell as Cell
from .cell import cell as cell
from .collection import Model as Model
from .collection import ParameterCollection as ParameterCollection
from .dynet_names import HAVE_CUDA as HAVE_CUDA
from .dynet_names import DynetParams as DynetParams
from .dynet_names import dump_cg as dump_cg
from .dynet_names import init as init
from .dynet_names import init_from_params as init_from_params
from .errors import ArgumentError as ArgumentError
from .errors import BoundsError as BoundsError
from .errors import EmptySequenceError as EmptySequenceError
from .errors import ForeignValueError as ForeignValueError
from .errors import NegativeIndexError as NegativeIndexError
from .errors import NoGradientError as NoGradientError
from .errors import NonFiniteError as NonFiniteError
from .errors import NotBatchableError as NotBatchableError
from .errors import NotScalarError as NotScalarError
from .errors import ShapeError as ShapeError
from .errors import StaleExpressionError as StaleExpressionError
from .errors import StateError as StateError
from .explain import Explanation as Explanation
from .explain import explain as explain
from .explain import print_graphviz as print_graphviz
from .explain import print_text_graphviz as print_text_graphviz
from .expression import Expression as Expression
from .expression import Tensor as Tensor
from .expression import forward as forward
from .expression import npvalues as npvalues
from .expression import values as values
from .from_torch import Wrapped as Wrapped
from .from_torch import wrap as wrap
from .functions.arithmetic import abs as abs
from .functions.arithmetic import acos as acos
from .functions.arithmetic import acosh as acosh
from .functions.arithmetic import affine_transform as affine_transform
from .functions.arithmetic import argmax as argmax
from .functions.arithmetic import asin as asin
from .functions.arithmetic import asinh as asinh
from .functions.arithmetic import atan as atan
from .functions.arithmetic import atanh as atanh
from .functions.arithmetic import average as average
from .functions.arithmetic import bmax as bmax
from .functions.arithmetic import bmin as bmin
from .functions.arithmetic import cdiv as cdiv
from .functions.arithmetic import ceil as ceil
from .functions.arithmetic import cmult as cmult
from .functions.arithmetic import colwise_add as colwise_add
from .functions.arithmetic import concatenate as concatenate
from .functions.arithmetic import concatenate_cols as concatenate_cols
from .functions.arithmetic import concatenate_to_batch as concatenate_to_batch
from .functions.arithmetic import contract3d_1d as contract3d_1d
from .functions.arithmetic import contract3d_1d_1d as contract3d_1d_1d
from .functions.arithmetic import contract3d_1d_1d_bias as contract3d_1d_1d_bias
from .functions.arithmetic import contract3d_1d_bias as contract3d_1d_bias
from .functions.arithmetic import cos as cos
from .functions.arithmetic import cosh as cosh
from .functions.arithmetic import cube as cube
from .functions.arithmetic import dot_product as dot_product
from .functions.arithmetic import elu as elu
from .functions.arithmetic import emax as emax
from .functions.arithmetic import erf as erf
from .functions.arithmetic import esum as esum
from .functions.arithmetic import exp as exp
from .functions.arithmetic import flip_gradient as flip_gradient
from .functions.arithmetic import floor as floor
from .functions.arithmetic import inverse as inverse
from .functions.arithmetic import lgamma as lgamma
from .functions.arithmetic import log as log
from .functions.arithmetic import log_sigmoid as log_sigmoid
from .functions.arithmetic import logdet as logdet
from .functions.arithmetic import logistic as logistic
from .functions.arithmetic import logsumexp as logsumexp
from .functions.arithmetic import nobackprop as nobackprop
from .functions.arithmetic import pow as pow
from .functions.arithmetic import rectify as rectify
from .functions.arithmetic import round as round
from .functions.arithmetic import scale_gradient as scale_gradient
from .functions.arithmetic import selu as selu
from .functions.arithmetic import silu as silu
from .functions.arithmetic import sin as sin
from .functions.arithmetic import sinh as sinh
from .functions.arithmetic import softsign as softsign
from .functions.arithmetic import sqrt as sqrt
from .functions.arithmetic import square as square
from .functions.arithmetic import tan as tan
from .functions.arithmetic import tanh as tanh
from .functions.arithmetic import trace_of_product as trace_of_product
from .functions.inputs import constant as constant
from .functions.inputs import inputMatrix as inputMatrix
from .functions.inputs import inputTensor as inputTensor
from .functions.inputs import inputTensorTranspose as inputTensorTranspose
from .functions.inputs import inputVector as inputVector
from .functions.inputs import matInput as matInput
from .functions.inputs import one_hot as one_hot
from .functions.inputs import ones as ones
from .functions.inputs import random_bernoulli as random_bernoulli
from .functions.inputs import random_gumbel as random_gumbel
from .functions.inputs import random_normal as random_normal
from .functions.inputs import random_uniform as random_uniform
from .functions.inputs import scalarInput as scalarInput
from .functions.inputs import sparse_inputTensor as sparse_inputTensor
from .functions.inputs import vecInput as vecInput
from .functions.inputs import zeroes as zeroes
from .functions.inputs import zeros as zeros
from .functions.layers import available_devices as available_devices
from .functions.layers import block_dropout as block_dropout
from .functions.layers import circ_conv as circ_conv
from .functions.layers import circ_corr as circ_corr
from .functions.layers import conv2d as conv2d
from .functions.layers import conv2d_bias as conv2d_bias
from .functions.layers import dropout as dropout
from .functions.layers import dropout_batch as dropout_batch
from .functions.layers import dropout_dim as dropout_dim
from .functions.layers import filter1d_narrow as filter1d_narrow
from .functions.layers import fold_rows as fold_rows
from .functions.layers import kmax_pooling as kmax_pooling
from .functions.layers import kmh_ngram as kmh_ngram
from .functions.layers import layer_norm as layer_norm
from .functions.layers import maxpooling2d as maxpooling2d
from .functions.layers import noise as noise
from .functions.layers import to_device as to_device
from .functions.layers import vanilla_lstm_c as vanilla_lstm_c
from .functions.layers import vanilla_lstm_gates as vanilla_lstm_gates
from .functions.layers import vanilla_lstm_gates_concat as vanilla_lstm_gates_concat
from .functions.layers import vanilla_lstm_gates_dropout as vanilla_lstm_gates_dropout
from .functions.layers import vanilla_lstm_gates_dropout_concat as vanilla_lstm_gates_dropout_concat
from .functions.layers import vanilla_lstm_h as vanilla_lstm_h
from .functions.layers import weight_norm as weight_norm
from .functions.losses import binary_log_loss as binary_log_loss
from .functions.losses import constrained_softmax as constrained_softmax
from .functions.losses import hinge as hinge
from .functions.losses import hinge_batch as hinge_batch
from .functions.losses import hinge_dim as hinge_dim
from .functions.losses import huber_distance as huber_distance
from .functions.losses import l1_distance as l1_distance
from .functions.losses import log_softmax as log_softmax
from .functions.losses import pairwise_rank_loss as pairwise_rank_loss
from .functions.losses import pickneglogsoftmax as pickneglogsoftmax
from .functions.losses import pickneglogsoftmax_batch as pickneglogsoftmax_batch
from .functions.losses import poisson_loss as poisson_loss
from .functions.losses import softmax as softmax
from .functions.losses import sparsemax as sparsemax
from .functions.losses import squared_distance as squared_distance
from .functions.shapes import const_parameter as const_parameter
from .functions.shapes import cumsum as cumsum
from .functions.shapes import l2_norm as l2_norm
from .functions.shapes import logsumexp_dim as logsumexp_dim
from .functions.shapes import lookup as lookup
from .functions.shapes import lookup_batch as lookup_batch
from .functions.shapes import max_dim as max_dim
from .functions.shapes import mean_batches as mean_batches
from .functions.shapes import mean_dim as mean_dim
from .functions.shapes import mean_elems as mean_elems
from .functions.shapes import min_dim as min_dim
from .functions.shapes import moment_batches as moment_batches
from .functions.shapes import moment_dim as moment_dim
from .functions.shapes import moment_elems as moment_elems
from .functions.shapes import parameter as parameter
from .functions.shapes import pick as pick
from .functions.shapes import pick_batch as pick_batch
from .functions.shapes import pick_batch_elem as pick_batch_elem
from .functions.shapes import pick_batch_elems as pick_batch_elems
from .functions.shapes import pick_range as pick_range
from .functions.shapes import pickrange as pickrange
from .functions.shapes import reshape as reshape
from .functions.shapes import select_cols as select_cols
from .functions.shapes import select_rows as select_rows
from .functions.shapes import squared_norm as squared_norm
from .functions.shapes import std_batches as std_batches
from .functions.shapes import std_dim as std_dim
from .functions.shapes import std_elems as std_elems
from .functions.shapes import strided_select as strided_select
from .functions.shapes import sum_batches as sum_batches
from .functions.shapes import sum_dim as sum_dim
from .functions.shapes import sum_elems as sum_elems
from .functions.shapes import transpose as transpose
from .initializers import ConstInitializer as ConstInitializer
from .initializers import FromFileInitializer as FromFileInitializer
from .initializers import GlorotInitializer as GlorotInitializer
from .initializers import IdentityInitializer as IdentityInitializer
from .initializers import NormalInitializer as NormalInitializer
from .initializers import NumpyInitializer as NumpyInitializer
from .initializers import PyInitializer as PyInitializer
from .initializers import SaxeInitializer as SaxeInitializer
from .initializers import UniformInitializer as UniformInitializer
from .parameters import LookupParameters as LookupParameters
from .parameters import Parameters as Parameters
from .pytorch.batching import Run as Run
from .pytorch.batching import batching as batching
from .pytorch.batching import map as map
from .saving import load as load
from .saving import load_generator as load_generator
from .saving import save as save
from .session import ComputationGraph as ComputationGraph
from .session import cg as cg
from .session import cg_checkpoint as cg_checkpoint
from .session import cg_revert as cg_revert
from .session import cg_version as cg_version
from .session import configure as configure
from .session import renew_cg as renew_cg
from .session import reset_random_seed as reset_random_seed
from .session import set_random_seed as set_random_seed
from .session import settings as settings
from .trainers import AdadeltaTrainer as AdadeltaTrainer
from .trainers import AdagradTrainer as AdagradTrainer
from .trainers import AdamTrainer as AdamTrainer
from .trainers import AmsgradTrainer as AmsgradTrainer
from .trainers import CyclicalSGDTrainer as CyclicalSGDTrainer
from .trainers import MomentumSGDTrainer as MomentumSGDTrainer
from .trainers import RMSPropTrainer as RMSPropTrainer
from .trainers import SimpleSGDTrainer as SimpleSGDTrainer
from .trainers import Trainer as Trainer
from .user_function import training as training

# without the names of PyTorch programs: `from dynet import *` must not replace Python's `map`
__all__ = [name for name in lazy.public_names(vars()) if name not in ("Run", "batching", "map")]

lazy.publish(__name__, __all__)

session.from_command_line()

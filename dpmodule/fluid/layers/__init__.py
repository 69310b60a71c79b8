"""Layers: functions that add operators and parameters to the current program."""

from ..._core import lazy
from .elementwise import abs as abs
from .elementwise import cast as cast
from .elementwise import clip as clip
from .elementwise import concat as concat
from .elementwise import dropout as dropout
from .elementwise import elementwise_add as elementwise_add
from .elementwise import elementwise_div as elementwise_div
from .elementwise import elementwise_max as elementwise_max
from .elementwise import elementwise_min as elementwise_min
from .elementwise import elementwise_mul as elementwise_mul
from .elementwise import elementwise_pow as elementwise_pow
from .elementwise import elementwise_sub as elementwise_sub
from .elementwise import exp as exp
from .elementwise import log as log
from .elementwise import matmul as matmul
from .elementwise import mean as mean
from .elementwise import reduce_max as reduce_max
from .elementwise import reduce_mean as reduce_mean
from .elementwise import reduce_min as reduce_min
from .elementwise import reduce_sum as reduce_sum
from .elementwise import relu as relu
from .elementwise import reshape as reshape
from .elementwise import scale as scale
from .elementwise import sigmoid as sigmoid
from .elementwise import softmax as softmax
from .elementwise import softsign as softsign
from .elementwise import sqrt as sqrt
from .elementwise import square as square
from .elementwise import sum as sum
from .elementwise import sums as sums
from .elementwise import tanh as tanh
from .inputs import create_parameter as create_parameter
from .inputs import data as data
from .inputs import embedding as embedding
from .inputs import fc as fc
from .losses import accuracy as accuracy
from .losses import bpr_loss as bpr_loss
from .losses import cos_sim as cos_sim
from .losses import cross_entropy as cross_entropy
from .losses import huber_loss as huber_loss
from .losses import log_loss as log_loss
from .losses import sigmoid_cross_entropy_with_logits as sigmoid_cross_entropy_with_logits
from .losses import smooth_l1 as smooth_l1
from .losses import softmax_with_cross_entropy as softmax_with_cross_entropy
from .losses import square_error_cost as square_error_cost
from .sequence import dynamic_lstm as dynamic_lstm
from .sequence import sequence_conv as sequence_conv
from .sequence import sequence_conv_pool as sequence_conv_pool
from .sequence import sequence_expand as sequence_expand
from .sequence import sequence_first_step as sequence_first_step
from .sequence import sequence_last_step as sequence_last_step
from .sequence import sequence_pool as sequence_pool
from .sequence import sequence_reverse as sequence_reverse
from .sequence import sequence_softmax as sequence_softmax
from .shapes import expand as expand
from .shapes import flatten as flatten
from .shapes import gather as gather
from .shapes import one_hot as one_hot
from .shapes import slice as slice
from .shapes import split as split
from .shapes import squeeze as squeeze
from .shapes import stack as stack
from .shapes import transpose as transpose
from .shapes import unsqueeze as unsqueeze

__all__ = lazy.public_names(vars())

lazy.publish(__name__, __all__)

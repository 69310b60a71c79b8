"""Functions of several layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._core import lazy
from ..base import ArgumentError, ShapeError
from . import layers
from .layers import sequence_conv_pool as sequence_conv_pool
from .layers.layer_helper import as_variable, program_of, width_of
from .variable import Variable


def simple_img_conv_pool(
    input: Any,
    num_filters: int,
    filter_size: int | Sequence[int],
    pool_size: int | Sequence[int],
    pool_stride: int | Sequence[int],
    pool_padding: int | Sequence[int] = 0,
    pool_type: str = "max",
    global_pooling: bool = False,
    conv_stride: int | Sequence[int] = 1,
    conv_padding: int | Sequence[int] = 0,
    conv_dilation: int | Sequence[int] = 1,
    conv_groups: int = 1,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    use_cudnn: bool = True,
) -> Variable:
    """Apply `layers.conv2d` with an activation, followed by `layers.pool2d`, with their arguments."""
    features = layers.conv2d(
        input, num_filters, filter_size, conv_stride, conv_padding, conv_dilation, conv_groups, param_attr,
        bias_attr, act=act,
    )  # fmt: skip
    return layers.pool2d(features, pool_size, pool_type, pool_stride, pool_padding, global_pooling)


def img_conv_group(
    input: Any,
    conv_num_filter: Sequence[int],
    pool_size: int | Sequence[int],
    conv_padding: int | Sequence[Any] = 1,
    conv_filter_size: int | Sequence[Any] = 3,
    conv_act: str | None = None,
    param_attr: Any = None,
    conv_with_batchnorm: bool | Sequence[bool] = False,
    conv_batchnorm_drop_rate: float | Sequence[float] = 0.0,
    pool_stride: int | Sequence[int] = 1,
    pool_type: str = "max",
    use_cudnn: bool = True,
) -> Variable:
    """Apply several convolutions, each with an optional batch normalization and dropout, followed by a pooling.

    Args:
        conv_num_filter: numbers of channels of the convolutions.
        pool_size: height and width of a window of the pooling.
        conv_padding: padding, one for all or a list; so are the next arguments.
        conv_act: activation, after the normalization if there is one.
        conv_with_batchnorm: whether to normalize.
        conv_batchnorm_drop_rate: probability of dropout after the normalization.

    Raises:
        ArgumentError: a list has another length than `conv_num_filter`.
    """
    count = len(conv_num_filter)

    def each(name: str, given: Any) -> list[Any]:
        several = list(given) if isinstance(given, (list, tuple)) else [given] * count
        if len(several) != count:
            raise ArgumentError(
                f"img_conv_group: {name} has {len(several)} values for {count} of conv_num_filter"
            )
        return several

    rows = zip(
        conv_num_filter,
        each("conv_filter_size", conv_filter_size),
        each("conv_padding", conv_padding),
        each("param_attr", param_attr),
        each("conv_with_batchnorm", conv_with_batchnorm),
        each("conv_batchnorm_drop_rate", conv_batchnorm_drop_rate),
    )
    features = input
    for filters, size, padding, attr, normalizes, drop in rows:
        act = None if normalizes else conv_act
        features = layers.conv2d(features, filters, size, padding=padding, param_attr=attr, act=act)
        if normalizes:
            features = layers.batch_norm(features, act=conv_act)
            features = layers.dropout(features, drop) if drop else features
    return layers.pool2d(features, pool_size, pool_type, pool_stride)


def glu(input: Any, dim: int = -1) -> Variable:
    """Split a variable in halves, and return the first one multiplied by the sigmoid of the second one.

    Args:
        dim: axis to split.

    Raises:
        ShapeError: the length of the axis is odd or unknown.

    Source: Dauphin et al., "Language modeling with gated convolutional networks", 2017.
    """
    left, right = layers.split(input, 2, dim)
    return layers.elementwise_mul(left, layers.sigmoid(right))


def scaled_dot_product_attention(
    queries: Any, keys: Any, values: Any, num_heads: int = 1, dropout_rate: float = 0.0
) -> Variable:
    """Return for each query the mean of the values, weighted by the softmax of its products with the keys.

    Shape:
        queries: (N, L, D).
        keys: (N, S, D).
        values: (N, S, V).
        output: (N, L, V).

    Args:
        num_heads: number of parts of the features; with several, `fc` layers project all three first.
        dropout_rate: probability of dropout of the weights.

    Raises:
        ShapeError: an input does not have three axes, or `num_heads` does not divide D and V.

    Source: Vaswani et al., "Attention is all you need", 2017.
    """
    call = "scaled_dot_product_attention"
    given = [
        as_variable(call, each, name)
        for name, each in (("queries", queries), ("keys", keys), ("values", values))
    ]
    program_of(call, *given)
    for each in given:
        width = width_of(call, each)
        if len(each.shape) != 3 or num_heads < 1 or width % num_heads:
            raise ShapeError(
                f"{call}: {each.name!r} has the shape {each.shape}, expected 3 axes, and a number of features that "
                f"num_heads, {num_heads!r}, divides"
            )
    if num_heads > 1:
        given = [layers.fc(each, each.shape[-1], num_flatten_dims=2, bias_attr=False) for each in given]
    query, key, value = (_heads(each, num_heads) for each in given)
    scores = layers.matmul(layers.scale(query, query.shape[-1] ** -0.5), key, transpose_y=True)
    weights = layers.softmax(scores)
    if dropout_rate:
        weights = layers.dropout(weights, dropout_rate)
    found = layers.matmul(weights, value)
    if num_heads == 1:
        return found
    turned = layers.transpose(found, [0, 2, 1, 3])
    return layers.reshape(turned, [0, 0, given[2].shape[-1]])


def _heads(variable: Variable, num_heads: int) -> Variable:
    """Return the parts of the features, (N, heads, L, D / heads)."""
    if num_heads == 1:
        return variable
    parts = layers.reshape(variable, [0, 0, num_heads, variable.shape[-1] // num_heads])
    return layers.transpose(parts, [0, 2, 1, 3])


__all__ = lazy.own_names(vars()) + ["sequence_conv_pool"]

lazy.publish(__name__, __all__)

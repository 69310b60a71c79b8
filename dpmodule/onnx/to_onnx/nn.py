"""Layers."""

from __future__ import annotations

from .call import Call

__all__ = ["activation", "convolution", "dropout", "fully_connected", "softmax_output"]


def fully_connected(c: Call) -> str:
    """Gemm for matrices, MatMul for the last axis of more."""
    x, weight, *bias = c.inputs
    if c.a.flatten:
        if len(c.shapes[0]) != 2:
            x = c.emit("Flatten", x, axis=1)
        return c.emit("Gemm", x, weight, *bias, transB=1)
    product = c.emit("MatMul", x, c.emit("Transpose", weight, perm=[1, 0]))
    return c.emit("Add", product, *bias) if bias else product


def activation(c: Call) -> str:
    """One of five functions."""
    types = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "softrelu": "Softplus", "softsign": "Softsign"}
    return c.emit(types[c.a.act_type], c.inputs[0])


def dropout(c: Call) -> str:
    """Nothing is dropped in prediction."""
    if c.a.mode == "always":
        c.refuse("mode 'always' drops in prediction, too; ONNX's Dropout does so in training only")
    return c.inputs[0]


def softmax_output(c: Call) -> str:
    """The prediction of the loss."""
    axis = 1 if c.a.multi_output else -1
    if not c.a.multi_output and not c.a.preserve_shape and len(c.shapes[0]) > 2:
        c.refuse("TODO")
    return c.emit("Softmax", c.inputs[0], axis=axis)


def convolution(c: Call) -> str:
    """Conv, with channels second."""
    axes = len(c.a.kernel)
    if c.a.layout is not None and c.a.layout.endswith("C"):
        c.refuse("TODO")
    return c.emit(
        "Conv",
        *c.inputs,
        kernel_shape=c.a.kernel,
        strides=c.a.stride or (1,) * axes,
        dilations=c.a.dilate or (1,) * axes,
        pads=(c.a.pad or (0,) * axes) * 2,
        group=c.a.num_group,
    )

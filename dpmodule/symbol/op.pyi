"""Made by tools/stubs.py from the operator declarations; do not edit."""

from collections.abc import Mapping
from typing import Any

from .symbol import Symbol

def Activation(
    data: Symbol | None = None,
    act_type: str = ...,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Apply an activation function to each element."""

def BatchNorm(
    data: Symbol | None = None,
    gamma: Symbol | None = None,
    beta: Symbol | None = None,
    moving_mean: Symbol | None = None,
    moving_var: Symbol | None = None,
    eps: float = 0.001,
    momentum: float = 0.9,
    fix_gamma: bool = True,
    use_global_stats: bool = False,
    output_mean_var: bool = False,
    axis: int = 1,
    cudnn_off: bool = False,
    min_calib_range: float | None = None,
    max_calib_range: float | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Normalise each channel over the batch to mean 0 and variance 1, then scale by gamma ..."""

def BatchNorm_v1(
    data: Symbol | None = None,
    gamma: Symbol | None = None,
    beta: Symbol | None = None,
    moving_mean: Symbol | None = None,
    moving_var: Symbol | None = None,
    eps: float = 0.001,
    momentum: float = 0.9,
    fix_gamma: bool = True,
    use_global_stats: bool = False,
    output_mean_var: bool = False,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Normalise like `BatchNorm`, with the channels on axis 1; for old saved graphs."""

def BilinearSampler(
    data: Symbol | None = None,
    grid: Symbol | None = None,
    cudnn_off: bool | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Sample images at the points of a grid, with bilinear interpolation and zeros outside ..."""

def BlockGrad(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return `data` unchanged and block its gradient. A loss below it trains, as in MXNet."""

def CTCLoss(
    data: Symbol | None = None,
    label: Symbol | None = None,
    data_lengths: Symbol | None = None,
    label_lengths: Symbol | None = None,
    use_data_lengths: bool = False,
    use_label_lengths: bool = False,
    blank_label: str = "first",
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return the negative log-likelihood of each label sequence, summed over all alignments ..."""

def Cast(
    data: Symbol | None = None,
    dtype: Any = ...,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Convert the element type; integers lose the fraction, and the gradient has the ..."""

def Concat(
    *args: Symbol,
    num_args: int = 0,
    dim: int = 1,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Join arrays along an axis."""

def Convolution(
    data: Symbol | None = None,
    weight: Symbol | None = None,
    bias: Symbol | None = None,
    kernel: tuple[int, ...] = ...,
    stride: tuple[int, ...] = ...,
    dilate: tuple[int, ...] = ...,
    pad: tuple[int, ...] = ...,
    num_filter: int = ...,
    num_group: int = 1,
    workspace: int = 1024,
    no_bias: bool = False,
    cudnn_tune: str | None = None,
    cudnn_off: bool = False,
    layout: str | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Convolve the data with `num_filter` filters (cross-correlation)."""

def Convolution_v1(
    data: Symbol | None = None,
    weight: Symbol | None = None,
    bias: Symbol | None = None,
    kernel: tuple[int, ...] = ...,
    stride: tuple[int, ...] = ...,
    dilate: tuple[int, ...] = ...,
    pad: tuple[int, ...] = ...,
    num_filter: int = ...,
    num_group: int = 1,
    workspace: int = 1024,
    no_bias: bool = False,
    cudnn_tune: str | None = None,
    cudnn_off: bool = False,
    layout: str | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Convolve the data with `num_filter` filters (cross-correlation)."""

def Correlation(
    data1: Symbol | None = None,
    data2: Symbol | None = None,
    kernel_size: int = 1,
    max_displacement: int = 1,
    stride1: int = 1,
    stride2: int = 1,
    pad_size: int = 0,
    is_multiply: bool = True,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Compare each patch of one feature map with the patches around the same position in ..."""

def Crop(
    *args: Symbol,
    num_args: int = ...,
    offset: tuple[int, ...] = ...,
    h_w: tuple[int, ...] = ...,
    center_crop: bool = False,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Crop a rectangle from images, with the size of a second input, or `h_w`."""

def Custom(
    *args: Symbol,
    op_type: str = ...,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Run an operator registered with `mx.operator.register`."""

def Deconvolution(
    data: Symbol | None = None,
    weight: Symbol | None = None,
    bias: Symbol | None = None,
    kernel: tuple[int, ...] = ...,
    stride: tuple[int, ...] = ...,
    dilate: tuple[int, ...] = ...,
    pad: tuple[int, ...] = ...,
    adj: tuple[int, ...] = ...,
    target_shape: tuple[int, ...] = ...,
    num_filter: int = ...,
    num_group: int = 1,
    workspace: int = 512,
    no_bias: bool = True,
    cudnn_tune: str | None = None,
    cudnn_off: bool = False,
    layout: str | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Apply a transposed convolution with `num_filter` filters."""

def Dropout(
    data: Symbol | None = None,
    p: float = 0.5,
    mode: str = "training",
    axes: tuple[int, ...] = ...,
    cudnn_off: bool | None = False,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Randomly set elements to zero and scale the others by ``1 / (1 - p)``, in training or ..."""

def ElementWiseSum(
    *args: Symbol,
    num_args: int = 0,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Add any number of arrays."""

def Embedding(
    data: Symbol | None = None,
    weight: Symbol | None = None,
    input_dim: int | None = None,
    output_dim: int = ...,
    dtype: Any = "float32",
    sparse_grad: bool = False,
    hash_rows: bool = False,
    min_count: int = 1,
    ttl_steps: int = 0,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Look up a row of the table for each index."""

def Flatten(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Flatten all axes after the first into one."""

def FullyConnected(
    data: Symbol | None = None,
    weight: Symbol | None = None,
    bias: Symbol | None = None,
    num_hidden: int = ...,
    no_bias: bool = False,
    flatten: bool = True,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Apply a linear map to each row: ``data @ weight.T + bias``."""

def GridGenerator(
    data: Symbol | None = None,
    transform_type: str = ...,
    target_shape: tuple[int, ...] = ...,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return the sampling grid of `BilinearSampler`, in coordinates from -1 to 1 over the image."""

def GroupNorm(
    data: Symbol | None = None,
    gamma: Symbol | None = None,
    beta: Symbol | None = None,
    num_groups: int = 1,
    eps: float = 1e-05,
    output_mean_var: bool = False,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Normalise each group of channels of each row to mean 0 and variance 1, then scale by ..."""

def IdentityAttachKLSparseReg(
    data: Symbol | None = None,
    moving_avg: Symbol | None = None,
    sparseness_target: float = 0.1,
    penalty: float = 0.001,
    momentum: float = 0.9,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return the data; a penalty in the gradient moves the mean activation of each unit ..."""

def InstanceNorm(
    data: Symbol | None = None,
    gamma: Symbol | None = None,
    beta: Symbol | None = None,
    eps: float = 0.001,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Normalise each channel of each row to mean 0 and variance 1, then scale by gamma and ..."""

def L2Normalization(
    data: Symbol | None = None,
    eps: float = 1e-10,
    mode: str = "instance",
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Divide by the Euclidean norm of each row, of the channels of each position, or of ..."""

def LRN(
    data: Symbol | None = None,
    alpha: float = 0.0001,
    beta: float = 0.75,
    knorm: float = 2.0,
    nsize: int = ...,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Divide by ``(knorm + alpha / nsize * sum of squares) ** beta`` over neighbouring channels."""

def LayerNorm(
    data: Symbol | None = None,
    gamma: Symbol | None = None,
    beta: Symbol | None = None,
    axis: int = -1,
    eps: float = 1e-05,
    output_mean_var: bool = False,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Normalise along one axis to mean 0 and variance 1, then scale by gamma and shift by beta."""

def LeakyReLU(
    data: Symbol | None = None,
    gamma: Symbol | None = None,
    act_type: str = "leaky",
    slope: float = 0.25,
    lower_bound: float = 0.125,
    upper_bound: float = 0.334,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Apply a rectifier that does not set negative values to zero."""

def LinearRegressionOutput(
    data: Symbol | None = None,
    label: Symbol | None = None,
    grad_scale: float = 1.0,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return the data; the gradient is ``(output - label) * grad_scale / outputs per row``."""

def LogisticRegressionOutput(
    data: Symbol | None = None,
    label: Symbol | None = None,
    grad_scale: float = 1.0,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Apply the logistic function; the gradient is ``(output - label) * grad_scale / ..."""

def MAERegressionOutput(
    data: Symbol | None = None,
    label: Symbol | None = None,
    grad_scale: float = 1.0,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return the data; the gradient is that of the absolute error: 1 above the label, else ..."""

def MakeLoss(
    data: Symbol | None = None,
    grad_scale: float = 1.0,
    valid_thresh: float = 0.0,
    normalization: str = "null",
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Treat the data as a loss: return it, with grad_scale as its gradient."""

def Pad(
    data: Symbol | None = None,
    mode: str = ...,
    pad_width: tuple[int, ...] = ...,
    constant_value: float = 0.0,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Pad an array with a constant, its repeated edge, or its reflection."""

def Pooling(
    data: Symbol | None = None,
    kernel: tuple[int, ...] = ...,
    pool_type: str = "max",
    global_pool: bool = False,
    cudnn_off: bool = False,
    pooling_convention: str = "valid",
    stride: tuple[int, ...] = ...,
    pad: tuple[int, ...] = ...,
    p_value: int | None = None,
    count_include_pad: bool | None = None,
    layout: str | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return the maximum, average, sum or p-norm of each window."""

def Pooling_v1(
    data: Symbol | None = None,
    kernel: tuple[int, ...] = ...,
    pool_type: str = "max",
    global_pool: bool = False,
    pooling_convention: str = "valid",
    stride: tuple[int, ...] = ...,
    pad: tuple[int, ...] = ...,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return the maximum, average or sum of each window, with zero padding."""

def RNN(
    data: Symbol | None = None,
    parameters: Symbol | None = None,
    state: Symbol | None = None,
    state_cell: Symbol | None = None,
    sequence_length: Symbol | None = None,
    state_size: int = ...,
    num_layers: int = ...,
    bidirectional: bool = False,
    mode: str = ...,
    p: float = 0.0,
    state_outputs: bool = False,
    projection_size: int | None = None,
    lstm_state_clip_min: float | None = None,
    lstm_state_clip_max: float | None = None,
    lstm_state_clip_nan: bool = False,
    use_sequence_length: bool = False,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Run a multi-layer recurrent network over whole sequences."""

def ROIPooling(
    data: Symbol | None = None,
    rois: Symbol | None = None,
    pooled_size: tuple[int, int] = ...,
    spatial_scale: float = ...,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Divide each region of interest into a fixed number of bins and take each bin's maximum."""

def Reshape(
    data: Symbol | None = None,
    shape: tuple[int, ...] = ...,
    reverse: bool = False,
    target_shape: tuple[int, ...] = ...,
    keep_highest: bool = False,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return the elements in another shape."""

def SVMOutput(
    data: Symbol | None = None,
    label: Symbol | None = None,
    margin: float = 1.0,
    regularization_coefficient: float = 1.0,
    use_linear: bool = False,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return the data; the gradient is that of the hinge loss of the label's class against ..."""

def SequenceLast(
    data: Symbol | None = None,
    sequence_length: Symbol | None = None,
    use_sequence_length: bool = False,
    axis: int = 0,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return the last step of each sequence."""

def SequenceMask(
    data: Symbol | None = None,
    sequence_length: Symbol | None = None,
    use_sequence_length: bool = False,
    value: float = 0.0,
    axis: int = 0,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Overwrite the elements after the end of each sequence."""

def SequenceReverse(
    data: Symbol | None = None,
    sequence_length: Symbol | None = None,
    use_sequence_length: bool = False,
    axis: int = 0,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Reverse the steps of each sequence; steps after its end stay in place."""

def SliceChannel(
    data: Symbol | None = None,
    num_outputs: int = ...,
    axis: int = 1,
    squeeze_axis: bool = False,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Split an array into equal pieces along an axis."""

def Softmax(
    data: Symbol | None = None,
    label: Symbol | None = None,
    grad_scale: float = 1.0,
    ignore_label: float = -1.0,
    multi_output: bool = False,
    use_ignore: bool = False,
    preserve_shape: bool = False,
    normalization: str = "null",
    out_grad: bool = False,
    smooth_alpha: float = 0.0,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Apply softmax; the gradient is that of the cross-entropy: probability minus one-hot label."""

def SoftmaxActivation(
    data: Symbol | None = None,
    mode: str = "instance",
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Apply softmax over the last axis, or over the channels of each position."""

def SoftmaxOutput(
    data: Symbol | None = None,
    label: Symbol | None = None,
    grad_scale: float = 1.0,
    ignore_label: float = -1.0,
    multi_output: bool = False,
    use_ignore: bool = False,
    preserve_shape: bool = False,
    normalization: str = "null",
    out_grad: bool = False,
    smooth_alpha: float = 0.0,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Apply softmax; the gradient is that of the cross-entropy: probability minus one-hot label."""

def SpatialTransformer(
    data: Symbol | None = None,
    loc: Symbol | None = None,
    target_shape: tuple[int, ...] = ...,
    transform_type: str = ...,
    sampler_type: str = ...,
    cudnn_off: bool | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Transform each image by an affine map, with zeros outside of the image."""

def SwapAxis(
    data: Symbol | None = None,
    dim1: int = 0,
    dim2: int = 0,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Exchange two axes."""

def UpSampling(
    *args: Symbol,
    scale: int = ...,
    num_filter: int = 0,
    sample_type: str = ...,
    multi_input_mode: str = "concat",
    num_args: int = 1,
    workspace: int = 512,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Enlarge images by repeating pixels, or by a transposed convolution with a bilinear weight."""

def abs(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return the magnitude; its gradient at 0 is 0."""

def adam_update(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    mean: Symbol | None = None,
    var: Symbol | None = None,
    lr: float = ...,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-08,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    lazy_update: bool = True,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Update a weight by Adam, without bias correction."""

def add_n(
    *args: Symbol,
    num_args: int = 0,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Add any number of arrays."""

def all_finite(
    data: Symbol | None = None,
    init_output: bool = True,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return 1 if all elements are finite, else 0. No gradient."""

def amp_cast(
    data: Symbol | None = None,
    dtype: Any = ...,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Convert between float32 and the half-precision types; leave other types unchanged."""

def amp_multicast(
    *args: Symbol,
    num_outputs: int = ...,
    cast_narrow: bool = False,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Convert float32 and half-precision arrays to one common type; leave other types unchanged."""

def arccos(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return the inverse cosine in radians."""

def arccosh(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return the inverse hyperbolic cosine."""

def arcsin(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return the inverse sine in radians."""

def arcsinh(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return the inverse hyperbolic sine."""

def arctan(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return the inverse tangent in radians."""

def arctanh(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return the inverse hyperbolic tangent."""

def argmax(
    data: Symbol | None = None,
    axis: int | None = None,
    keepdims: bool = False,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return the index of the largest element along an axis, the first of equal ones."""

def argmax_channel(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return the index of the largest element along axis 1."""

def argmin(
    data: Symbol | None = None,
    axis: int | None = None,
    keepdims: bool = False,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return the index of the smallest element along an axis, the first of equal ones."""

def argsort(
    data: Symbol | None = None,
    axis: int | None = -1,
    is_ascend: bool = True,
    dtype: Any = "float32",
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return the indices that sort an array along an axis; equal elements keep their order."""

def batch_dot(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    forward_stype: str | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Multiply matrices pairwise over the leading axes, which must be equal."""

def batch_take(
    a: Symbol | None = None,
    indices: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Pick one element of each row; out-of-range positions are clipped."""

def broadcast_add(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Add two arrays, with broadcasting."""

def broadcast_axes(
    data: Symbol | None = None,
    axis: int | tuple[int, ...] = ...,
    size: int | tuple[int, ...] = ...,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Repeat the elements along axes of size 1."""

def broadcast_axis(
    data: Symbol | None = None,
    axis: int | tuple[int, ...] = ...,
    size: int | tuple[int, ...] = ...,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Repeat the elements along axes of size 1."""

def broadcast_div(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Divide the first array by the second (integers are truncated), with broadcasting."""

def broadcast_equal(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return 1 if both are equal, else 0, in the dtype of the operands and without a ..."""

def broadcast_greater(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return 1 if the first is greater, else 0, in the dtype of the operands and without a ..."""

def broadcast_greater_equal(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return 1 if the first is greater or equal, else 0, in the dtype of the operands and ..."""

def broadcast_hypot(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return the hypotenuse sqrt(lhs^2 + rhs^2), with broadcasting."""

def broadcast_lesser(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return 1 if the first is smaller, else 0, in the dtype of the operands and without a ..."""

def broadcast_lesser_equal(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return 1 if the first is smaller or equal, else 0, in the dtype of the operands and ..."""

def broadcast_like(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    lhs_axes: int | tuple[int, ...] | None = None,
    rhs_axes: int | tuple[int, ...] | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Broadcast `lhs` to the shape of `rhs`, or to its sizes along some axes."""

def broadcast_logical_and(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return 1 if neither is 0, else 0, in the dtype of the operands and without a ..."""

def broadcast_logical_or(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return 1 if one of them is not 0, else 0, in the dtype of the operands and without a ..."""

def broadcast_logical_xor(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return 1 if exactly one of them is not 0, else 0, in the dtype of the operands and ..."""

def broadcast_maximum(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return the maximum of two arrays (if both are equal the gradient goes to the first), ..."""

def broadcast_minimum(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return the minimum of two arrays (if both are equal the gradient goes to the first), ..."""

def broadcast_minus(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Subtract the second array from the first, with broadcasting."""

def broadcast_mod(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return the remainder with the sign of the divisor, as Python's %, and 0 for a divisor ..."""

def broadcast_mul(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Multiply two arrays, with broadcasting."""

def broadcast_not_equal(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return 1 if they differ, else 0, in the dtype of the operands and without a gradient, ..."""

def broadcast_plus(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Add two arrays, with broadcasting."""

def broadcast_power(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Raise the first array to the power of the second, with broadcasting."""

def broadcast_sub(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Subtract the second array from the first, with broadcasting."""

def broadcast_to(
    data: Symbol | None = None,
    shape: tuple[int, ...] = ...,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Broadcast the array to a shape."""

def cast(
    data: Symbol | None = None,
    dtype: Any = ...,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Convert the element type; integers lose the fraction, and the gradient has the ..."""

def cast_storage(
    data: Symbol | None = None,
    stype: str = ...,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Convert the storage type; conversion between the two sparse types is not supported."""

def cbrt(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return the real cube root."""

def ceil(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Round up; the gradient is 0."""

def choose_element_0index(
    data: Symbol | None = None,
    index: Symbol | None = None,
    axis: int | None = -1,
    keepdims: bool = False,
    mode: str = "clip",
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Pick one element along an axis for every position of the other axes."""

def clip(
    data: Symbol | None = None,
    a_min: float = ...,
    a_max: float = ...,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Clip each element to [a_min, a_max]; the gradient is 1 inside and at both ends, else 0."""

def col2im(
    data: Symbol | None = None,
    output_size: tuple[int, ...] = ...,
    kernel: tuple[int, ...] = ...,
    stride: tuple[int, ...] = ...,
    dilate: tuple[int, ...] = ...,
    pad: tuple[int, ...] = ...,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Sum columns into an image, adding up overlaps; the transpose of `im2col`."""

def concat(
    *args: Symbol,
    num_args: int = 0,
    dim: int = 1,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Join arrays along an axis."""

def cos(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return the cosine of angles in radians."""

def cosh(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return the hyperbolic cosine."""

def crop(
    data: Symbol | None = None,
    begin: int | tuple[int | None, ...] | None = ...,
    end: int | tuple[int | None, ...] | None = ...,
    step: int | tuple[int | None, ...] | None = ...,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Slice the leading axes, as data[begin:end:step] in Python."""

def ctc_loss(
    data: Symbol | None = None,
    label: Symbol | None = None,
    data_lengths: Symbol | None = None,
    label_lengths: Symbol | None = None,
    use_data_lengths: bool = False,
    use_label_lengths: bool = False,
    blank_label: str = "first",
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return the negative log-likelihood of each label sequence, summed over all alignments ..."""

def cumsum(
    a: Symbol | None = None,
    axis: int | None = None,
    dtype: Any = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return the cumulative sum along an axis."""

def degrees(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Convert radians to degrees."""

def depth_to_space(
    data: Symbol | None = None,
    block_size: int = ...,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Rearrange channels into blocks of pixels."""

def diag(
    data: Symbol | None = None,
    k: int = 0,
    axis1: int = 0,
    axis2: int = 1,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return a diagonal of an array, or a matrix with a vector as its diagonal."""

def dot(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    forward_stype: str | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Contract the last axis of `lhs` with the first axis of `rhs`."""

def elemwise_add(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Add two arrays, element by element."""

def elemwise_div(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Divide the first array by the second (integers are truncated), element by element."""

def elemwise_mul(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Multiply two arrays, element by element."""

def elemwise_sub(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Subtract the second array from the first, element by element."""

def erf(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return the error function."""

def erfinv(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return the inverse error function."""

def exp(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return e to the power of each element."""

def expand_dims(
    data: Symbol | None = None,
    axis: int = ...,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Insert an axis of size 1."""

def expm1(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return exp(x) - 1, exact near 0."""

def fill_element_0index(
    lhs: Symbol | None = None,
    mhs: Symbol | None = None,
    rhs: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return a matrix with one element of each row replaced."""

def fix(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Round towards 0; the gradient is 0."""

def flatten(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Flatten all axes after the first into one."""

def flip(
    data: Symbol | None = None,
    axis: int | tuple[int, ...] = ...,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Reverse the order of the elements along axes."""

def floor(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Round down; the gradient is 0."""

def ftml_update(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    d: Symbol | None = None,
    v: Symbol | None = None,
    z: Symbol | None = None,
    lr: float = ...,
    beta1: float = 0.6,
    beta2: float = 0.999,
    epsilon: float = 1e-08,
    t: int = ...,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_grad: float = -1.0,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Update a weight by FTML ('follow the moving leader')."""

def ftrl_update(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    z: Symbol | None = None,
    n: Symbol | None = None,
    lr: float = ...,
    lamda1: float = 0.01,
    beta: float = 1.0,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Update a weight by FTRL ('follow the regularized leader')."""

def gamma(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return the gamma function, NaN at negative integers."""

def gammaln(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return the logarithm of the gamma function's magnitude."""

def gather_nd(
    data: Symbol | None = None,
    indices: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Pick elements or slices by positions along the leading axes."""

def hard_sigmoid(
    data: Symbol | None = None,
    alpha: float = 0.2,
    beta: float = 0.5,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return alpha * x + beta clipped to [0, 1]; the gradient is alpha strictly inside, else 0."""

def identity(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return `data` unchanged."""

def im2col(
    data: Symbol | None = None,
    kernel: tuple[int, ...] = ...,
    stride: tuple[int, ...] = ...,
    dilate: tuple[int, ...] = ...,
    pad: tuple[int, ...] = ...,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Arrange the windows of an image as columns."""

def khatri_rao(
    *args: Symbol,
    num_args: int = 0,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return the column-wise Kronecker product of the inputs."""

def lamb_update_phase1(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    mean: Symbol | None = None,
    var: Symbol | None = None,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-06,
    t: int = ...,
    bias_correction: bool = True,
    wd: float = ...,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return the direction of a LAMB step."""

def lamb_update_phase2(
    weight: Symbol | None = None,
    g: Symbol | None = None,
    r1: Symbol | None = None,
    r2: Symbol | None = None,
    lr: float = ...,
    lower_bound: float = -1.0,
    upper_bound: float = -1.0,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Update a weight along the direction of `lamb_update_phase1`: ``w - lr * r1 / r2 * g``."""

def linalg_det(
    A: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return the determinant of matrices; the gradient at a singular one is 0."""

def linalg_extractdiag(
    A: Symbol | None = None,
    offset: int = 0,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return a diagonal of matrices."""

def linalg_extracttrian(
    A: Symbol | None = None,
    offset: int = 0,
    lower: bool = True,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return the elements of a triangle of matrices: a lower one by row, an upper one by column."""

def linalg_gelqf(
    A: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Factorise ``A = L @ Q`` into a lower triangular matrix and one with orthonormal rows."""

def linalg_gemm(
    A: Symbol | None = None,
    B: Symbol | None = None,
    C: Symbol | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    alpha: float = 1.0,
    beta: float = 1.0,
    axis: int = -2,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Multiply matrices pairwise and add a third: ``alpha * op(A) @ op(B) + beta * C``."""

def linalg_gemm2(
    A: Symbol | None = None,
    B: Symbol | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    alpha: float = 1.0,
    axis: int = -2,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Multiply matrices pairwise: ``alpha * op(A) @ op(B)``."""

def linalg_inverse(
    A: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Invert matrices."""

def linalg_makediag(
    A: Symbol | None = None,
    offset: int = 0,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return matrices with the given diagonal and zeros elsewhere."""

def linalg_maketrian(
    A: Symbol | None = None,
    offset: int = 0,
    lower: bool = True,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return matrices with the given triangle, in the order of `extracttrian`, and zeros ..."""

def linalg_potrf(
    A: Symbol | None = None,
    lower: bool = True,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return the Cholesky factor L of symmetric positive definite matrices, ``A = L @ L^T``."""

def linalg_potri(
    A: Symbol | None = None,
    lower: bool = True,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return ``(A @ A^T)^-1`` of lower triangular matrices: the inverse of the matrix ..."""

def linalg_slogdet(
    A: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return the sign and log magnitude of determinants; the sign has no gradient."""

def linalg_sumlogdiag(
    A: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Sum the logarithms of the diagonal; for a Cholesky factor, this is half the log ..."""

def linalg_syrk(
    A: Symbol | None = None,
    transpose: bool = False,
    alpha: float = 1.0,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Multiply matrices by their own transposes: ``alpha * A @ A^T``, or ``alpha * A^T @ ..."""

def linalg_trmm(
    A: Symbol | None = None,
    B: Symbol | None = None,
    transpose: bool = False,
    rightside: bool = False,
    lower: bool = True,
    alpha: float = 1.0,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Multiply by triangular matrices: ``alpha * op(A) @ B``, or ``alpha * B @ op(A)`` with ..."""

def linalg_trsm(
    A: Symbol | None = None,
    B: Symbol | None = None,
    transpose: bool = False,
    rightside: bool = False,
    lower: bool = True,
    alpha: float = 1.0,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Solve ``op(A) @ X = alpha * B``, or ``X @ op(A) = alpha * B`` with `rightside`, by ..."""

def log(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return the natural logarithm."""

def log10(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return the logarithm to base 10."""

def log1p(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return log(1 + x), exact near 0."""

def log2(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return the logarithm to base 2."""

def log_softmax(
    data: Symbol | None = None,
    axis: int = -1,
    temperature: float | None = None,
    dtype: Any = None,
    use_length: bool | None = False,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return the logarithm of softmax, computed without loss of precision."""

def logical_not(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return 1 if an element is 0, else 0."""

def make_loss(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Treat the data as a loss: return it, with ones as its gradient."""

def max(
    data: Symbol | None = None,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return the maximum along axes (all elements equal to it get the gradient)."""

def max_axis(
    data: Symbol | None = None,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return the maximum along axes (all elements equal to it get the gradient)."""

def mean(
    data: Symbol | None = None,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Average the elements along axes."""

def min(
    data: Symbol | None = None,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return the minimum along axes (all elements equal to it get the gradient)."""

def min_axis(
    data: Symbol | None = None,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return the minimum along axes (all elements equal to it get the gradient)."""

def moments(
    data: Symbol | None = None,
    axes: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return mean and population variance along axes."""

def mp_lamb_update_phase1(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    mean: Symbol | None = None,
    var: Symbol | None = None,
    weight32: Symbol | None = None,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-06,
    t: int = ...,
    bias_correction: bool = True,
    wd: float = ...,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return the direction of a LAMB step for a 16-bit weight with a float32 copy."""

def mp_lamb_update_phase2(
    weight: Symbol | None = None,
    g: Symbol | None = None,
    r1: Symbol | None = None,
    r2: Symbol | None = None,
    weight32: Symbol | None = None,
    lr: float = ...,
    lower_bound: float = -1.0,
    upper_bound: float = -1.0,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Update a 16-bit weight along the direction of `mp_lamb_update_phase1`, from its ..."""

def mp_nag_mom_update(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    mom: Symbol | None = None,
    weight32: Symbol | None = None,
    lr: float = ...,
    momentum: float = 0.0,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Update a 16-bit weight like `nag_mom_update`, with its float32 copy."""

def mp_sgd_mom_update(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    mom: Symbol | None = None,
    weight32: Symbol | None = None,
    lr: float = ...,
    momentum: float = 0.0,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    lazy_update: bool = True,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Update a 16-bit weight like `sgd_mom_update`, with its float32 copy."""

def mp_sgd_update(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    weight32: Symbol | None = None,
    lr: float = ...,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    lazy_update: bool = True,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Update a 16-bit weight like `sgd_update`, with its float32 copy."""

def multi_all_finite(
    *args: Symbol,
    num_arrays: int = 1,
    init_output: bool = True,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return 1 if all elements of all inputs are finite, else 0. No gradient."""

def multi_lars(
    lrs: Symbol | None = None,
    weights_sum_sq: Symbol | None = None,
    grads_sum_sq: Symbol | None = None,
    wds: Symbol | None = None,
    eta: float = ...,
    eps: float = ...,
    rescale_grad: float = 1.0,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return the learning rates of LARS: ``lr * eta * |w| / (rescale_grad * |g| + wd * |w| ..."""

def multi_mp_sgd_mom_update(
    *args: Symbol,
    lrs: tuple[float, ...] = ...,
    wds: tuple[float, ...] = ...,
    momentum: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    num_weights: int = 1,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Update several 16-bit weights like `mp_sgd_mom_update`."""

def multi_mp_sgd_update(
    *args: Symbol,
    lrs: tuple[float, ...] = ...,
    wds: tuple[float, ...] = ...,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    num_weights: int = 1,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Update several 16-bit weights like `mp_sgd_update`."""

def multi_sgd_mom_update(
    *args: Symbol,
    lrs: tuple[float, ...] = ...,
    wds: tuple[float, ...] = ...,
    momentum: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    num_weights: int = 1,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Update several weights like `sgd_mom_update`."""

def multi_sgd_update(
    *args: Symbol,
    lrs: tuple[float, ...] = ...,
    wds: tuple[float, ...] = ...,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    num_weights: int = 1,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Update several weights like `sgd_update`."""

def multi_sum_sq(
    *args: Symbol,
    num_arrays: int = ...,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return the sum of squares of each array."""

def nag_mom_update(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    mom: Symbol | None = None,
    lr: float = ...,
    momentum: float = 0.0,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Update a weight by Nesterov's accelerated gradient."""

def nanprod(
    data: Symbol | None = None,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Multiply the elements along axes, treating NaN as 1."""

def nansum(
    data: Symbol | None = None,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Sum the elements along axes, treating NaN as 0."""

def negative(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return the negative."""

def norm(
    data: Symbol | None = None,
    ord: int = 2,
    axis: int | tuple[int, ...] | None = None,
    out_dtype: str | None = None,
    keepdims: bool = False,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return the norm along axes; its gradient at 0 is 0."""

def normal(
    loc: float = 0.0,
    scale: float = 1.0,
    shape: int | tuple[int, ...] | None = None,
    ctx: str = "",
    dtype: Any = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Draw from the normal distribution."""

def one_hot(
    indices: Symbol | None = None,
    depth: int = ...,
    on_value: float = 1.0,
    off_value: float = 0.0,
    dtype: Any = "float32",
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return one-hot rows; a position outside [0, depth) gives a row of `off_value`."""

def ones_like(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return ones of the shape and type of `data`."""

def pad(
    data: Symbol | None = None,
    mode: str = ...,
    pad_width: tuple[int, ...] = ...,
    constant_value: float = 0.0,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Pad an array with a constant, its repeated edge, or its reflection."""

def pick(
    data: Symbol | None = None,
    index: Symbol | None = None,
    axis: int | None = -1,
    keepdims: bool = False,
    mode: str = "clip",
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Pick one element along an axis for every position of the other axes."""

def preloaded_multi_mp_sgd_mom_update(
    *args: Symbol,
    momentum: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    num_weights: int = 1,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Update several 16-bit weights like `multi_mp_sgd_mom_update`, with rates from arrays."""

def preloaded_multi_mp_sgd_update(
    *args: Symbol,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    num_weights: int = 1,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Update several 16-bit weights like `multi_mp_sgd_update`, with rates from arrays."""

def preloaded_multi_sgd_mom_update(
    *args: Symbol,
    momentum: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    num_weights: int = 1,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Update several weights like `multi_sgd_mom_update`, with rates from arrays."""

def preloaded_multi_sgd_update(
    *args: Symbol,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    num_weights: int = 1,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Update several weights like `multi_sgd_update`, with rates from arrays."""

def prod(
    data: Symbol | None = None,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Multiply the elements along axes."""

def radians(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Convert degrees to radians."""

def random_exponential(
    lam: float = 1.0,
    shape: int | tuple[int, ...] | None = None,
    ctx: str = "",
    dtype: Any = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Draw from the exponential distribution, whose mean is 1 / lam."""

def random_gamma(
    alpha: float = 1.0,
    beta: float = 1.0,
    shape: int | tuple[int, ...] | None = None,
    ctx: str = "",
    dtype: Any = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Draw from the gamma distribution, whose mean is alpha * beta."""

def random_generalized_negative_binomial(
    mu: float = 1.0,
    alpha: float = 1.0,
    shape: int | tuple[int, ...] | None = None,
    ctx: str = "",
    dtype: Any = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Draw from the negative binomial distribution with mean mu and variance mu + alpha * ..."""

def random_negative_binomial(
    k: int = 1,
    p: float = 1.0,
    shape: int | tuple[int, ...] | None = None,
    ctx: str = "",
    dtype: Any = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Draw from the negative binomial distribution: successes before the k-th failure."""

def random_normal(
    loc: float = 0.0,
    scale: float = 1.0,
    shape: int | tuple[int, ...] | None = None,
    ctx: str = "",
    dtype: Any = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Draw from the normal distribution."""

def random_pdf_dirichlet(
    sample: Symbol | None = None,
    alpha: Symbol | None = None,
    is_log: bool = False,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return the probability density of samples: Dirichlet with concentrations alpha."""

def random_pdf_exponential(
    sample: Symbol | None = None,
    lam: Symbol | None = None,
    is_log: bool = False,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return the probability density of samples: exponential with rate lam."""

def random_pdf_gamma(
    sample: Symbol | None = None,
    alpha: Symbol | None = None,
    beta: Symbol | None = None,
    is_log: bool = False,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return the probability density of samples: gamma with shape alpha and rate beta."""

def random_pdf_generalized_negative_binomial(
    sample: Symbol | None = None,
    mu: Symbol | None = None,
    alpha: Symbol | None = None,
    is_log: bool = False,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return the probability density of samples: negative binomial with mean mu and ..."""

def random_pdf_negative_binomial(
    sample: Symbol | None = None,
    k: Symbol | None = None,
    p: Symbol | None = None,
    is_log: bool = False,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return the probability density of samples: negative binomial: successes before k ..."""

def random_pdf_normal(
    sample: Symbol | None = None,
    mu: Symbol | None = None,
    sigma: Symbol | None = None,
    is_log: bool = False,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return the probability density of samples: normal with mean mu and standard deviation ..."""

def random_pdf_poisson(
    sample: Symbol | None = None,
    lam: Symbol | None = None,
    is_log: bool = False,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return the probability density of samples: Poisson with mean lam."""

def random_pdf_uniform(
    sample: Symbol | None = None,
    low: Symbol | None = None,
    high: Symbol | None = None,
    is_log: bool = False,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return the probability density of samples: uniform over [low, high); samples are not ..."""

def random_poisson(
    lam: float = 1.0,
    shape: int | tuple[int, ...] | None = None,
    ctx: str = "",
    dtype: Any = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Draw from the Poisson distribution."""

def random_randint(
    low: int = ...,
    high: int = ...,
    shape: int | tuple[int, ...] | None = None,
    ctx: str = "",
    dtype: Any = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Draw uniform integers from [low, high)."""

def random_uniform(
    low: float = 0.0,
    high: float = 1.0,
    shape: int | tuple[int, ...] | None = None,
    ctx: str = "",
    dtype: Any = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Draw from the uniform distribution over [low, high)."""

def ravel_multi_index(
    data: Symbol | None = None,
    shape: tuple[int, ...] | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Convert indices along several axes to positions in the flattened array; no gradient."""

def rcbrt(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return one over the real cube root."""

def reciprocal(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return one over each element."""

def relu(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return max(x, 0); its gradient at 0 is 0, at NaN it is NaN."""

def repeat(
    data: Symbol | None = None,
    repeats: int = ...,
    axis: int | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Repeat each element along an axis."""

def reset_arrays(
    *args: Symbol,
    num_arrays: int = ...,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Set arrays to zero in place."""

def reshape(
    data: Symbol | None = None,
    shape: tuple[int, ...] = ...,
    reverse: bool = False,
    target_shape: tuple[int, ...] = ...,
    keep_highest: bool = False,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return the elements in another shape."""

def reshape_like(
    lhs: Symbol | None = None,
    rhs: Symbol | None = None,
    lhs_begin: int | None = None,
    lhs_end: int | None = None,
    rhs_begin: int | None = None,
    rhs_end: int | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Reshape `lhs` to the shape of `rhs`, or a range of its axes to a range of the axes of ..."""

def reverse(
    data: Symbol | None = None,
    axis: int | tuple[int, ...] = ...,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Reverse the order of the elements along axes."""

def rint(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Round to the nearest integer, halves down; the gradient is 0."""

def rmsprop_update(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    n: Symbol | None = None,
    lr: float = ...,
    gamma1: float = 0.95,
    epsilon: float = 1e-08,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    clip_weights: float = -1.0,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Update a weight by Tieleman and Hinton's RMSProp."""

def rmspropalex_update(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    n: Symbol | None = None,
    g: Symbol | None = None,
    delta: Symbol | None = None,
    lr: float = ...,
    gamma1: float = 0.95,
    gamma2: float = 0.9,
    epsilon: float = 1e-08,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    clip_weights: float = -1.0,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Update a weight by Graves' RMSProp, which subtracts the squared mean."""

def round(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Round to the nearest integer, halves away from 0; the gradient is 0."""

def rsqrt(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return 1 / sqrt(x)."""

def sample_exponential(
    lam: Symbol | None = None,
    shape: int | tuple[int, ...] = ...,
    dtype: Any = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Draw from the exponential distribution, whose mean is 1 / lam, with a block of ..."""

def sample_gamma(
    alpha: Symbol | None = None,
    beta: Symbol | None = None,
    shape: int | tuple[int, ...] = ...,
    dtype: Any = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Draw from the gamma distribution, whose mean is alpha * beta, with a block of numbers ..."""

def sample_generalized_negative_binomial(
    mu: Symbol | None = None,
    alpha: Symbol | None = None,
    shape: int | tuple[int, ...] = ...,
    dtype: Any = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Draw from the negative binomial distribution with mean mu and variance mu + alpha * ..."""

def sample_multinomial(
    data: Symbol | None = None,
    shape: int | tuple[int, ...] = ...,
    get_prob: bool = False,
    dtype: Any = "int32",
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Draw class indices by their probabilities."""

def sample_negative_binomial(
    k: Symbol | None = None,
    p: Symbol | None = None,
    shape: int | tuple[int, ...] = ...,
    dtype: Any = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Draw from the negative binomial distribution: successes before the k-th failure, with ..."""

def sample_normal(
    mu: Symbol | None = None,
    sigma: Symbol | None = None,
    shape: int | tuple[int, ...] = ...,
    dtype: Any = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Draw from the normal distribution, with a block of numbers for each set of parameters."""

def sample_poisson(
    lam: Symbol | None = None,
    shape: int | tuple[int, ...] = ...,
    dtype: Any = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Draw from the Poisson distribution, with a block of numbers for each set of parameters."""

def sample_uniform(
    low: Symbol | None = None,
    high: Symbol | None = None,
    shape: int | tuple[int, ...] = ...,
    dtype: Any = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Draw from the uniform distribution over [low, high), with a block of numbers for each ..."""

def scatter_nd(
    data: Symbol | None = None,
    indices: Symbol | None = None,
    shape: tuple[int, ...] = ...,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Write elements or slices into zeros, by positions along the leading axes."""

def sequence_concat(
    *args: Symbol,
    num_args: int = ...,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Join the same row of several ragged values."""

def sequence_conv(
    data: Symbol | None = None,
    weight: Symbol | None = None,
    bias: Symbol | None = None,
    num_filters: int = ...,
    filter_size: int = 3,
    padding_start: int | None = None,
    no_bias: bool = False,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Apply a linear map to a window around each element; positions outside of its row are ..."""

def sequence_crf(
    data: Symbol | None = None,
    label: Symbol | None = None,
    transition: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return the negative log-likelihood of the labels of each row in a linear-chain ..."""

def sequence_crf_decode(
    data: Symbol | None = None,
    transition: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return the most likely labels of each row in a linear-chain conditional random field; ..."""

def sequence_ctc(
    data: Symbol | None = None,
    label: Symbol | None = None,
    blank: int = 0,
    norm_by_times: bool = False,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return the negative log-likelihood of each label sequence, summed over all ..."""

def sequence_enumerate(
    data: Symbol | None = None,
    win_size: int = ...,
    pad_value: int = 0,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return for each element the window that begins with it."""

def sequence_erase(
    data: Symbol | None = None,
    tokens: int | tuple[int, ...] = ...,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Drop some numbers from each row."""

def sequence_expand(
    x: Symbol | None = None,
    y: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Repeat each row of x by the length of the same row of y."""

def sequence_gru(
    data: Symbol | None = None,
    weight: Symbol | None = None,
    bias: Symbol | None = None,
    state: Symbol | None = None,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    candidate_activation: str = "tanh",
    origin_mode: bool = False,
    has_state: bool = False,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Run a GRU over each row of projected data; `RNN` includes the projection."""

def sequence_lstm(
    data: Symbol | None = None,
    weight: Symbol | None = None,
    bias: Symbol | None = None,
    state: Symbol | None = None,
    state_cell: Symbol | None = None,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
    has_state: bool = False,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Run an LSTM over each row of projected data; `RNN` includes the projection."""

def sequence_pad(
    data: Symbol | None = None,
    pad_value: Symbol | None = None,
    maxlen: int = ...,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return rows as a dense array, with a number after their ends."""

def sequence_pool(
    data: Symbol | None = None,
    pool_type: str = "sum",
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Reduce each ragged row to a dense row; an empty row becomes zeros, also for 'max'."""

def sequence_reshape(
    data: Symbol | None = None,
    new_dim: int = ...,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return the numbers of each row with another number of features, and thus another length."""

def sequence_reverse(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Reverse the elements of each row."""

def sequence_slice(
    data: Symbol | None = None,
    offset: Symbol | None = None,
    length: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return a part of each row."""

def sequence_softmax(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Apply softmax over each row's elements, separately for further axes."""

def sequence_unpad(
    data: Symbol | None = None,
    length: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return padded rows as ragged rows."""

def sgd_mom_update(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    mom: Symbol | None = None,
    lr: float = ...,
    momentum: float = 0.0,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    lazy_update: bool = True,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Update a weight by gradient descent with momentum."""

def sgd_update(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    lr: float = ...,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    lazy_update: bool = True,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Update a weight by gradient descent: ``w - lr * (clip(rescale_grad * grad) + wd * w)``."""

def shape_array(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return the shape of `data` as an array."""

def shuffle(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Shuffle the rows."""

def sigmoid(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return 1 / (1 + exp(-x))."""

def sign(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return -1, 0 or 1, with 0 for 0 and NaN; the gradient is 0."""

def signsgd_update(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    lr: float = ...,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Update a weight by the sign of its gradient: ``(1 - lr * wd) * w - lr * sign(grad)``."""

def signum_update(
    weight: Symbol | None = None,
    grad: Symbol | None = None,
    mom: Symbol | None = None,
    lr: float = ...,
    momentum: float = 0.0,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    wd_lh: float = 0.0,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Update a weight by the sign of its momentum."""

def sin(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return the sine of angles in radians."""

def sinh(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return the hyperbolic sine."""

def size_array(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return the number of elements of `data` as an array."""

def slice(
    data: Symbol | None = None,
    begin: int | tuple[int | None, ...] | None = ...,
    end: int | tuple[int | None, ...] | None = ...,
    step: int | tuple[int | None, ...] | None = ...,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Slice the leading axes, as data[begin:end:step] in Python."""

def slice_axis(
    data: Symbol | None = None,
    axis: int = ...,
    begin: int = ...,
    end: int | None = ...,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Slice one axis."""

def slice_like(
    data: Symbol | None = None,
    shape_like: Symbol | None = None,
    axes: tuple[int, ...] = ...,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Slice the beginning of `data` to the size of `shape_like` along some axes."""

def smooth_l1(
    data: Symbol | None = None,
    scalar: float | None = 1.0,
    is_int: bool = True,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return (s x)^2 / 2 if |x| < 1 / s^2, else |x| - 1 / (2 s^2)."""

def softmax(
    data: Symbol | None = None,
    length: Symbol | None = None,
    axis: int = -1,
    temperature: float | None = None,
    dtype: Any = None,
    use_length: bool | None = False,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Apply softmax along an axis: ``exp(x) / sum(exp(x))``."""

def softmax_cross_entropy(
    data: Symbol | None = None,
    label: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return the cross-entropy of softmax with class indices, summed over the batch."""

def softmin(
    data: Symbol | None = None,
    axis: int = -1,
    temperature: float | None = None,
    dtype: Any = None,
    use_length: bool | None = False,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return the softmax of the negated data."""

def softsign(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return x / (1 + |x|)."""

def sort(
    data: Symbol | None = None,
    axis: int | None = -1,
    is_ascend: bool = True,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Sort along an axis; equal elements keep their order."""

def space_to_depth(
    data: Symbol | None = None,
    block_size: int = ...,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Rearrange blocks of pixels into channels."""

def split(
    data: Symbol | None = None,
    num_outputs: int = ...,
    axis: int = 1,
    squeeze_axis: bool = False,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Split an array into equal pieces along an axis."""

def sqrt(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return the square root."""

def square(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return the square."""

def squeeze(
    data: Symbol | None = None,
    axis: int | tuple[int, ...] | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Remove axes of size 1."""

def stack(
    *args: Symbol,
    axis: int = 0,
    num_args: int = 0,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Join arrays along a new axis."""

def stop_gradient(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return `data` unchanged and block its gradient. A loss below it trains, as in MXNet."""

def sum(
    data: Symbol | None = None,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Sum the elements along axes."""

def sum_axis(
    data: Symbol | None = None,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Sum the elements along axes."""

def swapaxes(
    data: Symbol | None = None,
    dim1: int = 0,
    dim2: int = 0,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Exchange two axes."""

def take(
    a: Symbol | None = None,
    indices: Symbol | None = None,
    axis: int = 0,
    mode: str = "clip",
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Pick slices of an array along an axis by position."""

def tan(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return the tangent of angles in radians."""

def tanh(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return the hyperbolic tangent."""

def tile(
    data: Symbol | None = None,
    reps: tuple[int, ...] = ...,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Repeat the whole array along axes."""

def topk(
    data: Symbol | None = None,
    axis: int | None = -1,
    k: int = 1,
    ret_typ: str = "indices",
    is_ascend: bool = False,
    dtype: Any = "float32",
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Return the k largest elements along an axis, in order; of equal elements the first ..."""

def transpose(
    data: Symbol | None = None,
    axes: tuple[int, ...] = ...,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Permute the axes."""

def trunc(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Truncate the fraction; the gradient is 0."""

def uniform(
    low: float = 0.0,
    high: float = 1.0,
    shape: int | tuple[int, ...] | None = None,
    ctx: str = "",
    dtype: Any = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Draw from the uniform distribution over [low, high)."""

def unravel_index(
    data: Symbol | None = None,
    shape: tuple[int, ...] | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
) -> Symbol:
    """Convert positions in a flattened array to indices along its axes; no gradient."""

def where(
    condition: Symbol | None = None,
    x: Symbol | None = None,
    y: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Choose elements, or rows, of `x` where the condition is not 0, else of `y`."""

def zeros_like(
    data: Symbol | None = None,
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Symbol:
    """Return zeros of the shape and type of `data`."""

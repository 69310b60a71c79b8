"""Made by tools/stubs.py from the operator declarations; do not edit."""

from collections.abc import Sequence
from typing import Any

from .ndarray import NDArray

def Activation(
    data: NDArray | None = None,
    act_type: str = ...,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Apply an activation function to each element."""

def BatchNorm(
    data: NDArray | None = None,
    gamma: NDArray | None = None,
    beta: NDArray | None = None,
    moving_mean: NDArray | None = None,
    moving_var: NDArray | None = None,
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
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> Any:
    """Normalise each channel over the batch to mean 0 and variance 1, then scale by gamma ..."""

def BatchNorm_v1(
    data: NDArray | None = None,
    gamma: NDArray | None = None,
    beta: NDArray | None = None,
    moving_mean: NDArray | None = None,
    moving_var: NDArray | None = None,
    eps: float = 0.001,
    momentum: float = 0.9,
    fix_gamma: bool = True,
    use_global_stats: bool = False,
    output_mean_var: bool = False,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> Any:
    """Normalise like `BatchNorm`, with the channels on axis 1; for old saved graphs."""

def BilinearSampler(
    data: NDArray | None = None,
    grid: NDArray | None = None,
    cudnn_off: bool | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Sample images at the points of a grid, with bilinear interpolation and zeros outside ..."""

def BlockGrad(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return `data` unchanged and block its gradient. A loss below it trains, as in MXNet."""

def CTCLoss(
    data: NDArray | None = None,
    label: NDArray | None = None,
    data_lengths: NDArray | None = None,
    label_lengths: NDArray | None = None,
    use_data_lengths: bool = False,
    use_label_lengths: bool = False,
    blank_label: str = "first",
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return the negative log-likelihood of each label sequence, summed over all alignments ..."""

def Cast(
    data: NDArray | None = None,
    dtype: Any = ...,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Convert the element type; integers lose the fraction, and the gradient has the ..."""

def Concat(
    *args: NDArray,
    num_args: int = 0,
    dim: int = 1,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Join arrays along an axis."""

def Convolution(
    data: NDArray | None = None,
    weight: NDArray | None = None,
    bias: NDArray | None = None,
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
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Convolve the data with `num_filter` filters (cross-correlation)."""

def Convolution_v1(
    data: NDArray | None = None,
    weight: NDArray | None = None,
    bias: NDArray | None = None,
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
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Convolve the data with `num_filter` filters (cross-correlation)."""

def Correlation(
    data1: NDArray | None = None,
    data2: NDArray | None = None,
    kernel_size: int = 1,
    max_displacement: int = 1,
    stride1: int = 1,
    stride2: int = 1,
    pad_size: int = 0,
    is_multiply: bool = True,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Compare each patch of one feature map with the patches around the same position in ..."""

def Crop(
    *args: NDArray,
    num_args: int = ...,
    offset: tuple[int, ...] = ...,
    h_w: tuple[int, ...] = ...,
    center_crop: bool = False,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Crop a rectangle from images, with the size of a second input, or `h_w`."""

def Custom(
    *args: NDArray,
    op_type: str = ...,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> Any:
    """Run an operator registered with `mx.operator.register`."""

def Deconvolution(
    data: NDArray | None = None,
    weight: NDArray | None = None,
    bias: NDArray | None = None,
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
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Apply a transposed convolution with `num_filter` filters."""

def Dropout(
    data: NDArray | None = None,
    p: float = 0.5,
    mode: str = "training",
    axes: tuple[int, ...] = ...,
    cudnn_off: bool | None = False,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Randomly set elements to zero and scale the others by ``1 / (1 - p)``, in training or ..."""

def ElementWiseSum(
    *args: NDArray,
    num_args: int = 0,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Add any number of arrays."""

def Embedding(
    data: NDArray | None = None,
    weight: NDArray | None = None,
    input_dim: int | None = None,
    output_dim: int = ...,
    dtype: Any = "float32",
    sparse_grad: bool = False,
    hash_rows: bool = False,
    min_count: int = 1,
    ttl_steps: int = 0,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Look up a row of the table for each index."""

def Flatten(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Flatten all axes after the first into one."""

def FullyConnected(
    data: NDArray | None = None,
    weight: NDArray | None = None,
    bias: NDArray | None = None,
    num_hidden: int = ...,
    no_bias: bool = False,
    flatten: bool = True,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Apply a linear map to each row: ``data @ weight.T + bias``."""

def GridGenerator(
    data: NDArray | None = None,
    transform_type: str = ...,
    target_shape: tuple[int, ...] = ...,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return the sampling grid of `BilinearSampler`, in coordinates from -1 to 1 over the image."""

def GroupNorm(
    data: NDArray | None = None,
    gamma: NDArray | None = None,
    beta: NDArray | None = None,
    num_groups: int = 1,
    eps: float = 1e-05,
    output_mean_var: bool = False,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> Any:
    """Normalise each group of channels of each row to mean 0 and variance 1, then scale by ..."""

def IdentityAttachKLSparseReg(
    data: NDArray | None = None,
    moving_avg: NDArray | None = None,
    sparseness_target: float = 0.1,
    penalty: float = 0.001,
    momentum: float = 0.9,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return the data; a penalty in the gradient moves the mean activation of each unit ..."""

def InstanceNorm(
    data: NDArray | None = None,
    gamma: NDArray | None = None,
    beta: NDArray | None = None,
    eps: float = 0.001,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Normalise each channel of each row to mean 0 and variance 1, then scale by gamma and ..."""

def L2Normalization(
    data: NDArray | None = None,
    eps: float = 1e-10,
    mode: str = "instance",
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Divide by the Euclidean norm of each row, of the channels of each position, or of ..."""

def LRN(
    data: NDArray | None = None,
    alpha: float = 0.0001,
    beta: float = 0.75,
    knorm: float = 2.0,
    nsize: int = ...,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Divide by ``(knorm + alpha / nsize * sum of squares) ** beta`` over neighbouring channels."""

def LayerNorm(
    data: NDArray | None = None,
    gamma: NDArray | None = None,
    beta: NDArray | None = None,
    axis: int = -1,
    eps: float = 1e-05,
    output_mean_var: bool = False,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> Any:
    """Normalise along one axis to mean 0 and variance 1, then scale by gamma and shift by beta."""

def LeakyReLU(
    data: NDArray | None = None,
    gamma: NDArray | None = None,
    act_type: str = "leaky",
    slope: float = 0.25,
    lower_bound: float = 0.125,
    upper_bound: float = 0.334,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> Any:
    """Apply a rectifier that does not set negative values to zero."""

def LinearRegressionOutput(
    data: NDArray | None = None,
    label: NDArray | None = None,
    grad_scale: float = 1.0,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return the data; the gradient is ``(output - label) * grad_scale / outputs per row``."""

def LogisticRegressionOutput(
    data: NDArray | None = None,
    label: NDArray | None = None,
    grad_scale: float = 1.0,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Apply the logistic function; the gradient is ``(output - label) * grad_scale / ..."""

def MAERegressionOutput(
    data: NDArray | None = None,
    label: NDArray | None = None,
    grad_scale: float = 1.0,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return the data; the gradient is that of the absolute error: 1 above the label, else ..."""

def MakeLoss(
    data: NDArray | None = None,
    grad_scale: float = 1.0,
    valid_thresh: float = 0.0,
    normalization: str = "null",
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Treat the data as a loss: return it, with grad_scale as its gradient."""

def Pad(
    data: NDArray | None = None,
    mode: str = ...,
    pad_width: tuple[int, ...] = ...,
    constant_value: float = 0.0,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Pad an array with a constant, its repeated edge, or its reflection."""

def Pooling(
    data: NDArray | None = None,
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
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return the maximum, average, sum or p-norm of each window."""

def Pooling_v1(
    data: NDArray | None = None,
    kernel: tuple[int, ...] = ...,
    pool_type: str = "max",
    global_pool: bool = False,
    pooling_convention: str = "valid",
    stride: tuple[int, ...] = ...,
    pad: tuple[int, ...] = ...,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return the maximum, average or sum of each window, with zero padding."""

def RNN(
    data: NDArray | None = None,
    parameters: NDArray | None = None,
    state: NDArray | None = None,
    state_cell: NDArray | None = None,
    sequence_length: NDArray | None = None,
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
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> Any:
    """Run a multi-layer recurrent network over whole sequences."""

def ROIPooling(
    data: NDArray | None = None,
    rois: NDArray | None = None,
    pooled_size: tuple[int, int] = ...,
    spatial_scale: float = ...,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Divide each region of interest into a fixed number of bins and take each bin's maximum."""

def Reshape(
    data: NDArray | None = None,
    shape: tuple[int, ...] = ...,
    reverse: bool = False,
    target_shape: tuple[int, ...] = ...,
    keep_highest: bool = False,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return the elements in another shape."""

def SVMOutput(
    data: NDArray | None = None,
    label: NDArray | None = None,
    margin: float = 1.0,
    regularization_coefficient: float = 1.0,
    use_linear: bool = False,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return the data; the gradient is that of the hinge loss of the label's class against ..."""

def SequenceLast(
    data: NDArray | None = None,
    sequence_length: NDArray | None = None,
    use_sequence_length: bool = False,
    axis: int = 0,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return the last step of each sequence."""

def SequenceMask(
    data: NDArray | None = None,
    sequence_length: NDArray | None = None,
    use_sequence_length: bool = False,
    value: float = 0.0,
    axis: int = 0,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Overwrite the elements after the end of each sequence."""

def SequenceReverse(
    data: NDArray | None = None,
    sequence_length: NDArray | None = None,
    use_sequence_length: bool = False,
    axis: int = 0,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Reverse the steps of each sequence; steps after its end stay in place."""

def SliceChannel(
    data: NDArray | None = None,
    num_outputs: int = ...,
    axis: int = 1,
    squeeze_axis: bool = False,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> Any:
    """Split an array into equal pieces along an axis."""

def Softmax(
    data: NDArray | None = None,
    label: NDArray | None = None,
    grad_scale: float = 1.0,
    ignore_label: float = -1.0,
    multi_output: bool = False,
    use_ignore: bool = False,
    preserve_shape: bool = False,
    normalization: str = "null",
    out_grad: bool = False,
    smooth_alpha: float = 0.0,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Apply softmax; the gradient is that of the cross-entropy: probability minus one-hot label."""

def SoftmaxActivation(
    data: NDArray | None = None,
    mode: str = "instance",
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Apply softmax over the last axis, or over the channels of each position."""

def SoftmaxOutput(
    data: NDArray | None = None,
    label: NDArray | None = None,
    grad_scale: float = 1.0,
    ignore_label: float = -1.0,
    multi_output: bool = False,
    use_ignore: bool = False,
    preserve_shape: bool = False,
    normalization: str = "null",
    out_grad: bool = False,
    smooth_alpha: float = 0.0,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Apply softmax; the gradient is that of the cross-entropy: probability minus one-hot label."""

def SpatialTransformer(
    data: NDArray | None = None,
    loc: NDArray | None = None,
    target_shape: tuple[int, ...] = ...,
    transform_type: str = ...,
    sampler_type: str = ...,
    cudnn_off: bool | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Transform each image by an affine map, with zeros outside of the image."""

def SwapAxis(
    data: NDArray | None = None,
    dim1: int = 0,
    dim2: int = 0,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Exchange two axes."""

def UpSampling(
    *args: NDArray,
    scale: int = ...,
    num_filter: int = 0,
    sample_type: str = ...,
    multi_input_mode: str = "concat",
    num_args: int = 1,
    workspace: int = 512,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Enlarge images by repeating pixels, or by a transposed convolution with a bilinear weight."""

def abs(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return the magnitude; its gradient at 0 is 0."""

def adam_update(
    weight: NDArray | None = None,
    grad: NDArray | None = None,
    mean: NDArray | None = None,
    var: NDArray | None = None,
    lr: float = ...,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-08,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    lazy_update: bool = True,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Update a weight by Adam, without bias correction."""

def add_n(
    *args: NDArray,
    num_args: int = 0,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Add any number of arrays."""

def all_finite(
    data: NDArray | None = None,
    init_output: bool = True,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return 1 if all elements are finite, else 0. No gradient."""

def amp_cast(
    data: NDArray | None = None,
    dtype: Any = ...,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Convert between float32 and the half-precision types; leave other types unchanged."""

def amp_multicast(
    *args: NDArray,
    num_outputs: int = ...,
    cast_narrow: bool = False,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> Any:
    """Convert float32 and half-precision arrays to one common type; leave other types unchanged."""

def arccos(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return the inverse cosine in radians."""

def arccosh(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return the inverse hyperbolic cosine."""

def arcsin(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return the inverse sine in radians."""

def arcsinh(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return the inverse hyperbolic sine."""

def arctan(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return the inverse tangent in radians."""

def arctanh(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return the inverse hyperbolic tangent."""

def argmax(
    data: NDArray | None = None,
    axis: int | None = None,
    keepdims: bool = False,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return the index of the largest element along an axis, the first of equal ones."""

def argmax_channel(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return the index of the largest element along axis 1."""

def argmin(
    data: NDArray | None = None,
    axis: int | None = None,
    keepdims: bool = False,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return the index of the smallest element along an axis, the first of equal ones."""

def argsort(
    data: NDArray | None = None,
    axis: int | None = -1,
    is_ascend: bool = True,
    dtype: Any = "float32",
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return the indices that sort an array along an axis; equal elements keep their order."""

def batch_dot(
    lhs: NDArray | None = None,
    rhs: NDArray | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    forward_stype: str | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Multiply matrices pairwise over the leading axes, which must be equal."""

def batch_take(
    a: NDArray | None = None,
    indices: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Pick one element of each row; out-of-range positions are clipped."""

def broadcast_add(
    lhs: NDArray | None = None,
    rhs: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Add two arrays, with broadcasting."""

def broadcast_axes(
    data: NDArray | None = None,
    axis: int | tuple[int, ...] = ...,
    size: int | tuple[int, ...] = ...,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Repeat the elements along axes of size 1."""

def broadcast_axis(
    data: NDArray | None = None,
    axis: int | tuple[int, ...] = ...,
    size: int | tuple[int, ...] = ...,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Repeat the elements along axes of size 1."""

def broadcast_div(
    lhs: NDArray | None = None,
    rhs: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Divide the first array by the second (integers are truncated), with broadcasting."""

def broadcast_equal(
    lhs: NDArray | None = None,
    rhs: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return 1 if both are equal, else 0, in the dtype of the operands and without a ..."""

def broadcast_greater(
    lhs: NDArray | None = None,
    rhs: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return 1 if the first is greater, else 0, in the dtype of the operands and without a ..."""

def broadcast_greater_equal(
    lhs: NDArray | None = None,
    rhs: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return 1 if the first is greater or equal, else 0, in the dtype of the operands and ..."""

def broadcast_hypot(
    lhs: NDArray | None = None,
    rhs: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return the hypotenuse sqrt(lhs^2 + rhs^2), with broadcasting."""

def broadcast_lesser(
    lhs: NDArray | None = None,
    rhs: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return 1 if the first is smaller, else 0, in the dtype of the operands and without a ..."""

def broadcast_lesser_equal(
    lhs: NDArray | None = None,
    rhs: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return 1 if the first is smaller or equal, else 0, in the dtype of the operands and ..."""

def broadcast_like(
    lhs: NDArray | None = None,
    rhs: NDArray | None = None,
    lhs_axes: int | tuple[int, ...] | None = None,
    rhs_axes: int | tuple[int, ...] | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Broadcast `lhs` to the shape of `rhs`, or to its sizes along some axes."""

def broadcast_logical_and(
    lhs: NDArray | None = None,
    rhs: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return 1 if neither is 0, else 0, in the dtype of the operands and without a ..."""

def broadcast_logical_or(
    lhs: NDArray | None = None,
    rhs: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return 1 if one of them is not 0, else 0, in the dtype of the operands and without a ..."""

def broadcast_logical_xor(
    lhs: NDArray | None = None,
    rhs: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return 1 if exactly one of them is not 0, else 0, in the dtype of the operands and ..."""

def broadcast_maximum(
    lhs: NDArray | None = None,
    rhs: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return the maximum of two arrays (if both are equal the gradient goes to the first), ..."""

def broadcast_minimum(
    lhs: NDArray | None = None,
    rhs: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return the minimum of two arrays (if both are equal the gradient goes to the first), ..."""

def broadcast_minus(
    lhs: NDArray | None = None,
    rhs: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Subtract the second array from the first, with broadcasting."""

def broadcast_mod(
    lhs: NDArray | None = None,
    rhs: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return the remainder with the sign of the divisor, as Python's %, and 0 for a divisor ..."""

def broadcast_mul(
    lhs: NDArray | None = None,
    rhs: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Multiply two arrays, with broadcasting."""

def broadcast_not_equal(
    lhs: NDArray | None = None,
    rhs: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return 1 if they differ, else 0, in the dtype of the operands and without a gradient, ..."""

def broadcast_plus(
    lhs: NDArray | None = None,
    rhs: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Add two arrays, with broadcasting."""

def broadcast_power(
    lhs: NDArray | None = None,
    rhs: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Raise the first array to the power of the second, with broadcasting."""

def broadcast_sub(
    lhs: NDArray | None = None,
    rhs: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Subtract the second array from the first, with broadcasting."""

def broadcast_to(
    data: NDArray | None = None,
    shape: tuple[int, ...] = ...,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Broadcast the array to a shape."""

def cast(
    data: NDArray | None = None,
    dtype: Any = ...,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Convert the element type; integers lose the fraction, and the gradient has the ..."""

def cast_storage(
    data: NDArray | None = None,
    stype: str = ...,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Convert the storage type; conversion between the two sparse types is not supported."""

def cbrt(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return the real cube root."""

def ceil(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Round up; the gradient is 0."""

def choose_element_0index(
    data: NDArray | None = None,
    index: NDArray | None = None,
    axis: int | None = -1,
    keepdims: bool = False,
    mode: str = "clip",
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Pick one element along an axis for every position of the other axes."""

def clip(
    data: NDArray | None = None,
    a_min: float = ...,
    a_max: float = ...,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Clip each element to [a_min, a_max]; the gradient is 1 inside and at both ends, else 0."""

def col2im(
    data: NDArray | None = None,
    output_size: tuple[int, ...] = ...,
    kernel: tuple[int, ...] = ...,
    stride: tuple[int, ...] = ...,
    dilate: tuple[int, ...] = ...,
    pad: tuple[int, ...] = ...,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Sum columns into an image, adding up overlaps; the transpose of `im2col`."""

def concat(
    *args: NDArray,
    num_args: int = 0,
    dim: int = 1,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Join arrays along an axis."""

def cos(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return the cosine of angles in radians."""

def cosh(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return the hyperbolic cosine."""

def crop(
    data: NDArray | None = None,
    begin: int | tuple[int | None, ...] | None = ...,
    end: int | tuple[int | None, ...] | None = ...,
    step: int | tuple[int | None, ...] | None = ...,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Slice the leading axes, as data[begin:end:step] in Python."""

def ctc_loss(
    data: NDArray | None = None,
    label: NDArray | None = None,
    data_lengths: NDArray | None = None,
    label_lengths: NDArray | None = None,
    use_data_lengths: bool = False,
    use_label_lengths: bool = False,
    blank_label: str = "first",
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return the negative log-likelihood of each label sequence, summed over all alignments ..."""

def cumsum(
    a: NDArray | None = None,
    axis: int | None = None,
    dtype: Any = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return the cumulative sum along an axis."""

def degrees(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Convert radians to degrees."""

def depth_to_space(
    data: NDArray | None = None,
    block_size: int = ...,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Rearrange channels into blocks of pixels."""

def diag(
    data: NDArray | None = None,
    k: int = 0,
    axis1: int = 0,
    axis2: int = 1,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return a diagonal of an array, or a matrix with a vector as its diagonal."""

def dot(
    lhs: NDArray | None = None,
    rhs: NDArray | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    forward_stype: str | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Contract the last axis of `lhs` with the first axis of `rhs`."""

def elemwise_add(
    lhs: NDArray | None = None,
    rhs: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Add two arrays, element by element."""

def elemwise_div(
    lhs: NDArray | None = None,
    rhs: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Divide the first array by the second (integers are truncated), element by element."""

def elemwise_mul(
    lhs: NDArray | None = None,
    rhs: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Multiply two arrays, element by element."""

def elemwise_sub(
    lhs: NDArray | None = None,
    rhs: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Subtract the second array from the first, element by element."""

def erf(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return the error function."""

def erfinv(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return the inverse error function."""

def exp(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return e to the power of each element."""

def expand_dims(
    data: NDArray | None = None,
    axis: int = ...,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Insert an axis of size 1."""

def expm1(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return exp(x) - 1, exact near 0."""

def fill_element_0index(
    lhs: NDArray | None = None,
    mhs: NDArray | None = None,
    rhs: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return a matrix with one element of each row replaced."""

def fix(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Round towards 0; the gradient is 0."""

def flatten(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Flatten all axes after the first into one."""

def flip(
    data: NDArray | None = None,
    axis: int | tuple[int, ...] = ...,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Reverse the order of the elements along axes."""

def floor(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Round down; the gradient is 0."""

def ftml_update(
    weight: NDArray | None = None,
    grad: NDArray | None = None,
    d: NDArray | None = None,
    v: NDArray | None = None,
    z: NDArray | None = None,
    lr: float = ...,
    beta1: float = 0.6,
    beta2: float = 0.999,
    epsilon: float = 1e-08,
    t: int = ...,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_grad: float = -1.0,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Update a weight by FTML ('follow the moving leader')."""

def ftrl_update(
    weight: NDArray | None = None,
    grad: NDArray | None = None,
    z: NDArray | None = None,
    n: NDArray | None = None,
    lr: float = ...,
    lamda1: float = 0.01,
    beta: float = 1.0,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Update a weight by FTRL ('follow the regularized leader')."""

def gamma(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return the gamma function, NaN at negative integers."""

def gammaln(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return the logarithm of the gamma function's magnitude."""

def gather_nd(
    data: NDArray | None = None,
    indices: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Pick elements or slices by positions along the leading axes."""

def hard_sigmoid(
    data: NDArray | None = None,
    alpha: float = 0.2,
    beta: float = 0.5,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return alpha * x + beta clipped to [0, 1]; the gradient is alpha strictly inside, else 0."""

def identity(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return `data` unchanged."""

def im2col(
    data: NDArray | None = None,
    kernel: tuple[int, ...] = ...,
    stride: tuple[int, ...] = ...,
    dilate: tuple[int, ...] = ...,
    pad: tuple[int, ...] = ...,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Arrange the windows of an image as columns."""

def khatri_rao(
    *args: NDArray,
    num_args: int = 0,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return the column-wise Kronecker product of the inputs."""

def lamb_update_phase1(
    weight: NDArray | None = None,
    grad: NDArray | None = None,
    mean: NDArray | None = None,
    var: NDArray | None = None,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-06,
    t: int = ...,
    bias_correction: bool = True,
    wd: float = ...,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return the direction of a LAMB step."""

def lamb_update_phase2(
    weight: NDArray | None = None,
    g: NDArray | None = None,
    r1: NDArray | None = None,
    r2: NDArray | None = None,
    lr: float = ...,
    lower_bound: float = -1.0,
    upper_bound: float = -1.0,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Update a weight along the direction of `lamb_update_phase1`: ``w - lr * r1 / r2 * g``."""

def linalg_det(
    A: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return the determinant of matrices; the gradient at a singular one is 0."""

def linalg_extractdiag(
    A: NDArray | None = None,
    offset: int = 0,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return a diagonal of matrices."""

def linalg_extracttrian(
    A: NDArray | None = None,
    offset: int = 0,
    lower: bool = True,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return the elements of a triangle of matrices: a lower one by row, an upper one by column."""

def linalg_gelqf(
    A: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> list[NDArray]:
    """Factorise ``A = L @ Q`` into a lower triangular matrix and one with orthonormal rows."""

def linalg_gemm(
    A: NDArray | None = None,
    B: NDArray | None = None,
    C: NDArray | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    alpha: float = 1.0,
    beta: float = 1.0,
    axis: int = -2,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Multiply matrices pairwise and add a third: ``alpha * op(A) @ op(B) + beta * C``."""

def linalg_gemm2(
    A: NDArray | None = None,
    B: NDArray | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    alpha: float = 1.0,
    axis: int = -2,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Multiply matrices pairwise: ``alpha * op(A) @ op(B)``."""

def linalg_inverse(
    A: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Invert matrices."""

def linalg_makediag(
    A: NDArray | None = None,
    offset: int = 0,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return matrices with the given diagonal and zeros elsewhere."""

def linalg_maketrian(
    A: NDArray | None = None,
    offset: int = 0,
    lower: bool = True,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return matrices with the given triangle, in the order of `extracttrian`, and zeros ..."""

def linalg_potrf(
    A: NDArray | None = None,
    lower: bool = True,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return the Cholesky factor L of symmetric positive definite matrices, ``A = L @ L^T``."""

def linalg_potri(
    A: NDArray | None = None,
    lower: bool = True,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return ``(A @ A^T)^-1`` of lower triangular matrices: the inverse of the matrix ..."""

def linalg_slogdet(
    A: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> list[NDArray]:
    """Return the sign and log magnitude of determinants; the sign has no gradient."""

def linalg_sumlogdiag(
    A: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Sum the logarithms of the diagonal; for a Cholesky factor, this is half the log ..."""

def linalg_syrk(
    A: NDArray | None = None,
    transpose: bool = False,
    alpha: float = 1.0,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Multiply matrices by their own transposes: ``alpha * A @ A^T``, or ``alpha * A^T @ ..."""

def linalg_trmm(
    A: NDArray | None = None,
    B: NDArray | None = None,
    transpose: bool = False,
    rightside: bool = False,
    lower: bool = True,
    alpha: float = 1.0,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Multiply by triangular matrices: ``alpha * op(A) @ B``, or ``alpha * B @ op(A)`` with ..."""

def linalg_trsm(
    A: NDArray | None = None,
    B: NDArray | None = None,
    transpose: bool = False,
    rightside: bool = False,
    lower: bool = True,
    alpha: float = 1.0,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Solve ``op(A) @ X = alpha * B``, or ``X @ op(A) = alpha * B`` with `rightside`, by ..."""

def log(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return the natural logarithm."""

def log10(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return the logarithm to base 10."""

def log1p(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return log(1 + x), exact near 0."""

def log2(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return the logarithm to base 2."""

def log_softmax(
    data: NDArray | None = None,
    axis: int = -1,
    temperature: float | None = None,
    dtype: Any = None,
    use_length: bool | None = False,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return the logarithm of softmax, computed without loss of precision."""

def logical_not(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return 1 if an element is 0, else 0."""

def make_loss(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Treat the data as a loss: return it, with ones as its gradient."""

def max(
    data: NDArray | None = None,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return the maximum along axes (all elements equal to it get the gradient)."""

def max_axis(
    data: NDArray | None = None,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return the maximum along axes (all elements equal to it get the gradient)."""

def mean(
    data: NDArray | None = None,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Average the elements along axes."""

def min(
    data: NDArray | None = None,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return the minimum along axes (all elements equal to it get the gradient)."""

def min_axis(
    data: NDArray | None = None,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return the minimum along axes (all elements equal to it get the gradient)."""

def moments(
    data: NDArray | None = None,
    axes: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> list[NDArray]:
    """Return mean and population variance along axes."""

def mp_lamb_update_phase1(
    weight: NDArray | None = None,
    grad: NDArray | None = None,
    mean: NDArray | None = None,
    var: NDArray | None = None,
    weight32: NDArray | None = None,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-06,
    t: int = ...,
    bias_correction: bool = True,
    wd: float = ...,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return the direction of a LAMB step for a 16-bit weight with a float32 copy."""

def mp_lamb_update_phase2(
    weight: NDArray | None = None,
    g: NDArray | None = None,
    r1: NDArray | None = None,
    r2: NDArray | None = None,
    weight32: NDArray | None = None,
    lr: float = ...,
    lower_bound: float = -1.0,
    upper_bound: float = -1.0,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Update a 16-bit weight along the direction of `mp_lamb_update_phase1`, from its ..."""

def mp_nag_mom_update(
    weight: NDArray | None = None,
    grad: NDArray | None = None,
    mom: NDArray | None = None,
    weight32: NDArray | None = None,
    lr: float = ...,
    momentum: float = 0.0,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Update a 16-bit weight like `nag_mom_update`, with its float32 copy."""

def mp_sgd_mom_update(
    weight: NDArray | None = None,
    grad: NDArray | None = None,
    mom: NDArray | None = None,
    weight32: NDArray | None = None,
    lr: float = ...,
    momentum: float = 0.0,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    lazy_update: bool = True,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Update a 16-bit weight like `sgd_mom_update`, with its float32 copy."""

def mp_sgd_update(
    weight: NDArray | None = None,
    grad: NDArray | None = None,
    weight32: NDArray | None = None,
    lr: float = ...,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    lazy_update: bool = True,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Update a 16-bit weight like `sgd_update`, with its float32 copy."""

def multi_all_finite(
    *args: NDArray,
    num_arrays: int = 1,
    init_output: bool = True,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return 1 if all elements of all inputs are finite, else 0. No gradient."""

def multi_lars(
    lrs: NDArray | None = None,
    weights_sum_sq: NDArray | None = None,
    grads_sum_sq: NDArray | None = None,
    wds: NDArray | None = None,
    eta: float = ...,
    eps: float = ...,
    rescale_grad: float = 1.0,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return the learning rates of LARS: ``lr * eta * |w| / (rescale_grad * |g| + wd * |w| ..."""

def multi_mp_sgd_mom_update(
    *args: NDArray,
    lrs: tuple[float, ...] = ...,
    wds: tuple[float, ...] = ...,
    momentum: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    num_weights: int = 1,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> Any:
    """Update several 16-bit weights like `mp_sgd_mom_update`."""

def multi_mp_sgd_update(
    *args: NDArray,
    lrs: tuple[float, ...] = ...,
    wds: tuple[float, ...] = ...,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    num_weights: int = 1,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> Any:
    """Update several 16-bit weights like `mp_sgd_update`."""

def multi_sgd_mom_update(
    *args: NDArray,
    lrs: tuple[float, ...] = ...,
    wds: tuple[float, ...] = ...,
    momentum: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    num_weights: int = 1,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> Any:
    """Update several weights like `sgd_mom_update`."""

def multi_sgd_update(
    *args: NDArray,
    lrs: tuple[float, ...] = ...,
    wds: tuple[float, ...] = ...,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    num_weights: int = 1,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> Any:
    """Update several weights like `sgd_update`."""

def multi_sum_sq(
    *args: NDArray,
    num_arrays: int = ...,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return the sum of squares of each array."""

def nag_mom_update(
    weight: NDArray | None = None,
    grad: NDArray | None = None,
    mom: NDArray | None = None,
    lr: float = ...,
    momentum: float = 0.0,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Update a weight by Nesterov's accelerated gradient."""

def nanprod(
    data: NDArray | None = None,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Multiply the elements along axes, treating NaN as 1."""

def nansum(
    data: NDArray | None = None,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Sum the elements along axes, treating NaN as 0."""

def negative(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return the negative."""

def norm(
    data: NDArray | None = None,
    ord: int = 2,
    axis: int | tuple[int, ...] | None = None,
    out_dtype: str | None = None,
    keepdims: bool = False,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return the norm along axes; its gradient at 0 is 0."""

def normal(
    loc: float = 0.0,
    scale: float = 1.0,
    shape: int | tuple[int, ...] | None = None,
    ctx: str = "",
    dtype: Any = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Draw from the normal distribution."""

def one_hot(
    indices: NDArray | None = None,
    depth: int = ...,
    on_value: float = 1.0,
    off_value: float = 0.0,
    dtype: Any = "float32",
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return one-hot rows; a position outside [0, depth) gives a row of `off_value`."""

def ones_like(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return ones of the shape and type of `data`."""

def pad(
    data: NDArray | None = None,
    mode: str = ...,
    pad_width: tuple[int, ...] = ...,
    constant_value: float = 0.0,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Pad an array with a constant, its repeated edge, or its reflection."""

def pick(
    data: NDArray | None = None,
    index: NDArray | None = None,
    axis: int | None = -1,
    keepdims: bool = False,
    mode: str = "clip",
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Pick one element along an axis for every position of the other axes."""

def preloaded_multi_mp_sgd_mom_update(
    *args: NDArray,
    momentum: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    num_weights: int = 1,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> Any:
    """Update several 16-bit weights like `multi_mp_sgd_mom_update`, with rates from arrays."""

def preloaded_multi_mp_sgd_update(
    *args: NDArray,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    num_weights: int = 1,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> Any:
    """Update several 16-bit weights like `multi_mp_sgd_update`, with rates from arrays."""

def preloaded_multi_sgd_mom_update(
    *args: NDArray,
    momentum: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    num_weights: int = 1,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> Any:
    """Update several weights like `multi_sgd_mom_update`, with rates from arrays."""

def preloaded_multi_sgd_update(
    *args: NDArray,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    num_weights: int = 1,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> Any:
    """Update several weights like `multi_sgd_update`, with rates from arrays."""

def prod(
    data: NDArray | None = None,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Multiply the elements along axes."""

def radians(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Convert degrees to radians."""

def random_exponential(
    lam: float = 1.0,
    shape: int | tuple[int, ...] | None = None,
    ctx: str = "",
    dtype: Any = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Draw from the exponential distribution, whose mean is 1 / lam."""

def random_gamma(
    alpha: float = 1.0,
    beta: float = 1.0,
    shape: int | tuple[int, ...] | None = None,
    ctx: str = "",
    dtype: Any = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Draw from the gamma distribution, whose mean is alpha * beta."""

def random_generalized_negative_binomial(
    mu: float = 1.0,
    alpha: float = 1.0,
    shape: int | tuple[int, ...] | None = None,
    ctx: str = "",
    dtype: Any = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Draw from the negative binomial distribution with mean mu and variance mu + alpha * ..."""

def random_negative_binomial(
    k: int = 1,
    p: float = 1.0,
    shape: int | tuple[int, ...] | None = None,
    ctx: str = "",
    dtype: Any = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Draw from the negative binomial distribution: successes before the k-th failure."""

def random_normal(
    loc: float = 0.0,
    scale: float = 1.0,
    shape: int | tuple[int, ...] | None = None,
    ctx: str = "",
    dtype: Any = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Draw from the normal distribution."""

def random_pdf_dirichlet(
    sample: NDArray | None = None,
    alpha: NDArray | None = None,
    is_log: bool = False,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return the probability density of samples: Dirichlet with concentrations alpha."""

def random_pdf_exponential(
    sample: NDArray | None = None,
    lam: NDArray | None = None,
    is_log: bool = False,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return the probability density of samples: exponential with rate lam."""

def random_pdf_gamma(
    sample: NDArray | None = None,
    alpha: NDArray | None = None,
    beta: NDArray | None = None,
    is_log: bool = False,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return the probability density of samples: gamma with shape alpha and rate beta."""

def random_pdf_generalized_negative_binomial(
    sample: NDArray | None = None,
    mu: NDArray | None = None,
    alpha: NDArray | None = None,
    is_log: bool = False,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return the probability density of samples: negative binomial with mean mu and ..."""

def random_pdf_negative_binomial(
    sample: NDArray | None = None,
    k: NDArray | None = None,
    p: NDArray | None = None,
    is_log: bool = False,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return the probability density of samples: negative binomial: successes before k ..."""

def random_pdf_normal(
    sample: NDArray | None = None,
    mu: NDArray | None = None,
    sigma: NDArray | None = None,
    is_log: bool = False,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return the probability density of samples: normal with mean mu and standard deviation ..."""

def random_pdf_poisson(
    sample: NDArray | None = None,
    lam: NDArray | None = None,
    is_log: bool = False,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return the probability density of samples: Poisson with mean lam."""

def random_pdf_uniform(
    sample: NDArray | None = None,
    low: NDArray | None = None,
    high: NDArray | None = None,
    is_log: bool = False,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return the probability density of samples: uniform over [low, high); samples are not ..."""

def random_poisson(
    lam: float = 1.0,
    shape: int | tuple[int, ...] | None = None,
    ctx: str = "",
    dtype: Any = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Draw from the Poisson distribution."""

def random_randint(
    low: int = ...,
    high: int = ...,
    shape: int | tuple[int, ...] | None = None,
    ctx: str = "",
    dtype: Any = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Draw uniform integers from [low, high)."""

def random_uniform(
    low: float = 0.0,
    high: float = 1.0,
    shape: int | tuple[int, ...] | None = None,
    ctx: str = "",
    dtype: Any = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Draw from the uniform distribution over [low, high)."""

def ravel_multi_index(
    data: NDArray | None = None,
    shape: tuple[int, ...] | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Convert indices along several axes to positions in the flattened array; no gradient."""

def rcbrt(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return one over the real cube root."""

def reciprocal(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return one over each element."""

def relu(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return max(x, 0); its gradient at 0 is 0, at NaN it is NaN."""

def repeat(
    data: NDArray | None = None,
    repeats: int = ...,
    axis: int | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Repeat each element along an axis."""

def reset_arrays(
    *args: NDArray,
    num_arrays: int = ...,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> list[NDArray]:
    """Set arrays to zero in place."""

def reshape(
    data: NDArray | None = None,
    shape: tuple[int, ...] = ...,
    reverse: bool = False,
    target_shape: tuple[int, ...] = ...,
    keep_highest: bool = False,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return the elements in another shape."""

def reshape_like(
    lhs: NDArray | None = None,
    rhs: NDArray | None = None,
    lhs_begin: int | None = None,
    lhs_end: int | None = None,
    rhs_begin: int | None = None,
    rhs_end: int | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Reshape `lhs` to the shape of `rhs`, or a range of its axes to a range of the axes of ..."""

def reverse(
    data: NDArray | None = None,
    axis: int | tuple[int, ...] = ...,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Reverse the order of the elements along axes."""

def rint(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Round to the nearest integer, halves down; the gradient is 0."""

def rmsprop_update(
    weight: NDArray | None = None,
    grad: NDArray | None = None,
    n: NDArray | None = None,
    lr: float = ...,
    gamma1: float = 0.95,
    epsilon: float = 1e-08,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    clip_weights: float = -1.0,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Update a weight by Tieleman and Hinton's RMSProp."""

def rmspropalex_update(
    weight: NDArray | None = None,
    grad: NDArray | None = None,
    n: NDArray | None = None,
    g: NDArray | None = None,
    delta: NDArray | None = None,
    lr: float = ...,
    gamma1: float = 0.95,
    gamma2: float = 0.9,
    epsilon: float = 1e-08,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    clip_weights: float = -1.0,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Update a weight by Graves' RMSProp, which subtracts the squared mean."""

def round(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Round to the nearest integer, halves away from 0; the gradient is 0."""

def rsqrt(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return 1 / sqrt(x)."""

def sample_exponential(
    lam: NDArray | None = None,
    shape: int | tuple[int, ...] = ...,
    dtype: Any = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Draw from the exponential distribution, whose mean is 1 / lam, with a block of ..."""

def sample_gamma(
    alpha: NDArray | None = None,
    beta: NDArray | None = None,
    shape: int | tuple[int, ...] = ...,
    dtype: Any = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Draw from the gamma distribution, whose mean is alpha * beta, with a block of numbers ..."""

def sample_generalized_negative_binomial(
    mu: NDArray | None = None,
    alpha: NDArray | None = None,
    shape: int | tuple[int, ...] = ...,
    dtype: Any = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Draw from the negative binomial distribution with mean mu and variance mu + alpha * ..."""

def sample_multinomial(
    data: NDArray | None = None,
    shape: int | tuple[int, ...] = ...,
    get_prob: bool = False,
    dtype: Any = "int32",
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> Any:
    """Draw class indices by their probabilities."""

def sample_negative_binomial(
    k: NDArray | None = None,
    p: NDArray | None = None,
    shape: int | tuple[int, ...] = ...,
    dtype: Any = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Draw from the negative binomial distribution: successes before the k-th failure, with ..."""

def sample_normal(
    mu: NDArray | None = None,
    sigma: NDArray | None = None,
    shape: int | tuple[int, ...] = ...,
    dtype: Any = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Draw from the normal distribution, with a block of numbers for each set of parameters."""

def sample_poisson(
    lam: NDArray | None = None,
    shape: int | tuple[int, ...] = ...,
    dtype: Any = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Draw from the Poisson distribution, with a block of numbers for each set of parameters."""

def sample_uniform(
    low: NDArray | None = None,
    high: NDArray | None = None,
    shape: int | tuple[int, ...] = ...,
    dtype: Any = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Draw from the uniform distribution over [low, high), with a block of numbers for each ..."""

def scatter_nd(
    data: NDArray | None = None,
    indices: NDArray | None = None,
    shape: tuple[int, ...] = ...,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Write elements or slices into zeros, by positions along the leading axes."""

def sequence_concat(
    *args: NDArray,
    num_args: int = ...,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Join the same row of several ragged values."""

def sequence_conv(
    data: NDArray | None = None,
    weight: NDArray | None = None,
    bias: NDArray | None = None,
    num_filters: int = ...,
    filter_size: int = 3,
    padding_start: int | None = None,
    no_bias: bool = False,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Apply a linear map to a window around each element; positions outside of its row are ..."""

def sequence_crf(
    data: NDArray | None = None,
    label: NDArray | None = None,
    transition: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return the negative log-likelihood of the labels of each row in a linear-chain ..."""

def sequence_crf_decode(
    data: NDArray | None = None,
    transition: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return the most likely labels of each row in a linear-chain conditional random field; ..."""

def sequence_ctc(
    data: NDArray | None = None,
    label: NDArray | None = None,
    blank: int = 0,
    norm_by_times: bool = False,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return the negative log-likelihood of each label sequence, summed over all ..."""

def sequence_enumerate(
    data: NDArray | None = None,
    win_size: int = ...,
    pad_value: int = 0,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return for each element the window that begins with it."""

def sequence_erase(
    data: NDArray | None = None,
    tokens: int | tuple[int, ...] = ...,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Drop some numbers from each row."""

def sequence_expand(
    x: NDArray | None = None,
    y: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Repeat each row of x by the length of the same row of y."""

def sequence_gru(
    data: NDArray | None = None,
    weight: NDArray | None = None,
    bias: NDArray | None = None,
    state: NDArray | None = None,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    candidate_activation: str = "tanh",
    origin_mode: bool = False,
    has_state: bool = False,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Run a GRU over each row of projected data; `RNN` includes the projection."""

def sequence_lstm(
    data: NDArray | None = None,
    weight: NDArray | None = None,
    bias: NDArray | None = None,
    state: NDArray | None = None,
    state_cell: NDArray | None = None,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
    has_state: bool = False,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> list[NDArray]:
    """Run an LSTM over each row of projected data; `RNN` includes the projection."""

def sequence_pad(
    data: NDArray | None = None,
    pad_value: NDArray | None = None,
    maxlen: int = ...,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> list[NDArray]:
    """Return rows as a dense array, with a number after their ends."""

def sequence_pool(
    data: NDArray | None = None,
    pool_type: str = "sum",
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Reduce each ragged row to a dense row; an empty row becomes zeros, also for 'max'."""

def sequence_reshape(
    data: NDArray | None = None,
    new_dim: int = ...,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return the numbers of each row with another number of features, and thus another length."""

def sequence_reverse(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Reverse the elements of each row."""

def sequence_slice(
    data: NDArray | None = None,
    offset: NDArray | None = None,
    length: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return a part of each row."""

def sequence_softmax(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Apply softmax over each row's elements, separately for further axes."""

def sequence_unpad(
    data: NDArray | None = None,
    length: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return padded rows as ragged rows."""

def sgd_mom_update(
    weight: NDArray | None = None,
    grad: NDArray | None = None,
    mom: NDArray | None = None,
    lr: float = ...,
    momentum: float = 0.0,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    lazy_update: bool = True,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Update a weight by gradient descent with momentum."""

def sgd_update(
    weight: NDArray | None = None,
    grad: NDArray | None = None,
    lr: float = ...,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    lazy_update: bool = True,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Update a weight by gradient descent: ``w - lr * (clip(rescale_grad * grad) + wd * w)``."""

def shape_array(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return the shape of `data` as an array."""

def shuffle(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Shuffle the rows."""

def sigmoid(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return 1 / (1 + exp(-x))."""

def sign(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return -1, 0 or 1, with 0 for 0 and NaN; the gradient is 0."""

def signsgd_update(
    weight: NDArray | None = None,
    grad: NDArray | None = None,
    lr: float = ...,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Update a weight by the sign of its gradient: ``(1 - lr * wd) * w - lr * sign(grad)``."""

def signum_update(
    weight: NDArray | None = None,
    grad: NDArray | None = None,
    mom: NDArray | None = None,
    lr: float = ...,
    momentum: float = 0.0,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    wd_lh: float = 0.0,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Update a weight by the sign of its momentum."""

def sin(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return the sine of angles in radians."""

def sinh(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return the hyperbolic sine."""

def size_array(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return the number of elements of `data` as an array."""

def slice(
    data: NDArray | None = None,
    begin: int | tuple[int | None, ...] | None = ...,
    end: int | tuple[int | None, ...] | None = ...,
    step: int | tuple[int | None, ...] | None = ...,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Slice the leading axes, as data[begin:end:step] in Python."""

def slice_axis(
    data: NDArray | None = None,
    axis: int = ...,
    begin: int = ...,
    end: int | None = ...,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Slice one axis."""

def slice_like(
    data: NDArray | None = None,
    shape_like: NDArray | None = None,
    axes: tuple[int, ...] = ...,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Slice the beginning of `data` to the size of `shape_like` along some axes."""

def smooth_l1(
    data: NDArray | None = None,
    scalar: float | None = 1.0,
    is_int: bool = True,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return (s x)^2 / 2 if |x| < 1 / s^2, else |x| - 1 / (2 s^2)."""

def softmax(
    data: NDArray | None = None,
    length: NDArray | None = None,
    axis: int = -1,
    temperature: float | None = None,
    dtype: Any = None,
    use_length: bool | None = False,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Apply softmax along an axis: ``exp(x) / sum(exp(x))``."""

def softmax_cross_entropy(
    data: NDArray | None = None,
    label: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return the cross-entropy of softmax with class indices, summed over the batch."""

def softmin(
    data: NDArray | None = None,
    axis: int = -1,
    temperature: float | None = None,
    dtype: Any = None,
    use_length: bool | None = False,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Return the softmax of the negated data."""

def softsign(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return x / (1 + |x|)."""

def sort(
    data: NDArray | None = None,
    axis: int | None = -1,
    is_ascend: bool = True,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Sort along an axis; equal elements keep their order."""

def space_to_depth(
    data: NDArray | None = None,
    block_size: int = ...,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Rearrange blocks of pixels into channels."""

def split(
    data: NDArray | None = None,
    num_outputs: int = ...,
    axis: int = 1,
    squeeze_axis: bool = False,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> Any:
    """Split an array into equal pieces along an axis."""

def sqrt(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return the square root."""

def square(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return the square."""

def squeeze(
    data: NDArray | None = None,
    axis: int | tuple[int, ...] | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Remove axes of size 1."""

def stack(
    *args: NDArray,
    axis: int = 0,
    num_args: int = 0,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Join arrays along a new axis."""

def stop_gradient(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return `data` unchanged and block its gradient. A loss below it trains, as in MXNet."""

def sum(
    data: NDArray | None = None,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Sum the elements along axes."""

def sum_axis(
    data: NDArray | None = None,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    exclude: bool = False,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Sum the elements along axes."""

def swapaxes(
    data: NDArray | None = None,
    dim1: int = 0,
    dim2: int = 0,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Exchange two axes."""

def take(
    a: NDArray | None = None,
    indices: NDArray | None = None,
    axis: int = 0,
    mode: str = "clip",
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Pick slices of an array along an axis by position."""

def tan(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return the tangent of angles in radians."""

def tanh(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return the hyperbolic tangent."""

def tile(
    data: NDArray | None = None,
    reps: tuple[int, ...] = ...,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Repeat the whole array along axes."""

def topk(
    data: NDArray | None = None,
    axis: int | None = -1,
    k: int = 1,
    ret_typ: str = "indices",
    is_ascend: bool = False,
    dtype: Any = "float32",
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> Any:
    """Return the k largest elements along an axis, in order; of equal elements the first ..."""

def transpose(
    data: NDArray | None = None,
    axes: tuple[int, ...] = ...,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Permute the axes."""

def trunc(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Truncate the fraction; the gradient is 0."""

def uniform(
    low: float = 0.0,
    high: float = 1.0,
    shape: int | tuple[int, ...] | None = None,
    ctx: str = "",
    dtype: Any = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Draw from the uniform distribution over [low, high)."""

def unravel_index(
    data: NDArray | None = None,
    shape: tuple[int, ...] | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
) -> NDArray:
    """Convert positions in a flattened array to indices along its axes; no gradient."""

def where(
    condition: NDArray | None = None,
    x: NDArray | None = None,
    y: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Choose elements, or rows, of `x` where the condition is not 0, else of `y`."""

def zeros_like(
    data: NDArray | None = None,
    *,
    out: NDArray | Sequence[NDArray] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> NDArray:
    """Return zeros of the shape and type of `data`."""

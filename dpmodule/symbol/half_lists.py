"""Which operators run in which precision, by registry name.

Source: the lists of MXNet 1.9.1's automatic mixed precision. What is on none of them works in whatever type arrives.
"""

from __future__ import annotations

LP16 = ("Convolution", "Deconvolution", "FullyConnected", "RNN")
"""Operators that gain from 16 bits and bear them."""

FP32 = tuple(
    """
    CTCLoss Convolution Custom GroupNorm IdentityAttachKLSparseReg InstanceNorm L2Normalization LRN LayerNorm
    LinearRegressionOutput LogisticRegressionOutput MAERegressionOutput MakeLoss SVMOutput SoftmaxActivation
    SoftmaxOutput _NDArray _Native _contrib_DeformableConvolution _contrib_DeformablePSROIPooling
    _contrib_MultiBoxDetection _contrib_MultiBoxPrior _contrib_MultiBoxTarget _contrib_SyncBatchNorm
    _contrib_count_sketch _contrib_fft _contrib_hawkesll _hypot _hypot_scalar _linalg_det _linalg_extractdiag
    _linalg_extracttrian _linalg_gelqf _linalg_gemm _linalg_gemm2 _linalg_inverse _linalg_makediag
    _linalg_maketrian _linalg_potrf _linalg_potri _linalg_slogdet _linalg_sumlogdiag _linalg_syevd _linalg_syrk
    _linalg_trmm _linalg_trsm _power _power_scalar _rdiv_scalar _rpower_scalar _square_sum arccos arcsin arctanh
    argsort broadcast_hypot broadcast_power cosh erfinv exp expm1 gamma gammaln khatri_rao log log10 log1p log2
    log_softmax make_loss mean moments nanprod nansum norm prod rcbrt reciprocal rsqrt sinh smooth_l1 softmax
    softmax_cross_entropy softmin square sum tan topk
    """.split()  # noqa: SIM905  # a hundred lines as a list
)
"""Operators that need float32."""

CONDITIONAL_FP32 = (("Activation", "act_type", ("softrelu",)), ("LeakyReLU", "act_type", ("elu", "selu")))
"""Operators that need float32 under some attributes: (operator, attribute, values)."""

WIDEST = tuple(
    """
    Concat Correlation _contrib_MultiProposal _contrib_PSROIPooling _contrib_Proposal _contrib_ROIAlign
    _contrib_box_iou _contrib_box_nms _contrib_edge_id _contrib_interleaved_matmul_encdec_qk
    _contrib_interleaved_matmul_encdec_valatt _contrib_interleaved_matmul_selfatt_qk
    _contrib_interleaved_matmul_selfatt_valatt _equal _greater _greater_equal _lesser _lesser_equal _logical_and
    _logical_or _logical_xor _maximum _minimum _mod _not_equal _random_pdf_dirichlet _random_pdf_exponential
    _random_pdf_gamma _random_pdf_generalized_negative_binomial _random_pdf_negative_binomial _random_pdf_normal
    _random_pdf_poisson _random_pdf_uniform _scatter_elemwise_div add_n batch_dot broadcast_add broadcast_div
    broadcast_equal broadcast_greater broadcast_greater_equal broadcast_lesser broadcast_lesser_equal
    broadcast_logical_and broadcast_logical_or broadcast_logical_xor broadcast_maximum broadcast_minimum
    broadcast_mod broadcast_mul broadcast_not_equal broadcast_sub dot elemwise_add elemwise_div elemwise_mul
    elemwise_sub stack sum where
    """.split()  # noqa: SIM905
)
"""Operators of several inputs that take the widest type among them."""

LOSSES = ("LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput", "SoftmaxOutput")
"""Operators that are losses."""

"""Made by .ci/stubs.py from the operator declarations; do not edit."""

from __future__ import annotations

LATER: dict[str, str] = {
    "array.axis": """
    SwapAxis expand_dims squeeze swapaxes transpose
    """,
    "array.create": """
    _arange _eye _full _linspace _ones _zeros
    """,
    "array.handling": """
    Cast _CrossDeviceCopy _copyto _grad_add _onehot_encode _scatter_add_nd _scatter_set_nd
    _zeros_without_dtype amp_cast amp_multicast cast fill_element_0index
    """,
    "array.index": """
    _backward_gather_nd _sparse_where batch_take choose_element_0index diag gather_nd one_hot pick scatter_nd
    take where
    """,
    "array.join": """
    Concat ElementWiseSum SliceChannel _rnn_param_concat _sparse_ElementWiseSum _sparse_add_n _sparse_concat
    _split_v2 add_n concat split stack
    """,
    "array.order": """
    _histogram _np_cumsum argsort cumsum sort topk
    """,
    "array.reshape": """
    Flatten Reshape depth_to_space flatten reshape reshape_like space_to_depth
    """,
    "array.slicing": """
    _crop_assign _crop_assign_scalar _ravel_multi_index _slice_assign _slice_assign_scalar _sparse_slice
    _unravel_index crop ravel_multi_index slice slice_axis slice_like unravel_index
    """,
    "array.stretch": """
    Pad broadcast_axes broadcast_axis broadcast_like broadcast_to flip pad repeat reverse tile
    """,
    "math.binary": """
    _Div _DivScalar _Equal _EqualScalar _Greater _GreaterEqualScalar _GreaterScalar _Greater_Equal _Hypot
    _HypotScalar _Lesser _LesserEqualScalar _LesserScalar _Lesser_Equal _LogicalAndScalar _LogicalOrScalar
    _LogicalXorScalar _Logical_And _Logical_Or _Logical_Xor _Maximum _MaximumScalar _Minimum _MinimumScalar
    _Minus _MinusScalar _Mod _ModScalar _Mul _MulScalar _NotEqualScalar _Not_Equal _Plus _PlusScalar _Power
    _PowerScalar _RDivScalar _RMinusScalar _RModScalar _RPowerScalar _add _div _div_scalar _equal
    _equal_scalar _greater _greater_equal _greater_equal_scalar _greater_scalar _hypot _hypot_scalar _lesser
    _lesser_equal _lesser_equal_scalar _lesser_scalar _logical_and _logical_and_scalar _logical_or
    _logical_or_scalar _logical_xor _logical_xor_scalar _maximum _maximum_scalar _minimum _minimum_scalar
    _minus _minus_scalar _mod _mod_scalar _mul _mul_scalar _not_equal _not_equal_scalar _plus _plus_scalar
    _power _power_scalar _rdiv_scalar _rminus_scalar _rmod_scalar _rpower_scalar _sparse_broadcast_add
    _sparse_broadcast_div _sparse_broadcast_minus _sparse_broadcast_mul _sparse_broadcast_plus
    _sparse_broadcast_sub _sparse_elemwise_add _sparse_elemwise_div _sparse_elemwise_mul _sparse_elemwise_sub
    _sub broadcast_add broadcast_div broadcast_equal broadcast_greater broadcast_greater_equal broadcast_hypot
    broadcast_lesser broadcast_lesser_equal broadcast_logical_and broadcast_logical_or broadcast_logical_xor
    broadcast_maximum broadcast_minimum broadcast_minus broadcast_mod broadcast_mul broadcast_not_equal
    broadcast_plus broadcast_power broadcast_sub elemwise_add elemwise_div elemwise_mul elemwise_sub
    """,
    "math.dot": """
    _sparse_dot batch_dot dot khatri_rao
    """,
    "math.factor": """
    _linalg_det _linalg_gelqf _linalg_inverse _linalg_potrf _linalg_potri _linalg_slogdet _linalg_syevd
    linalg_det linalg_gelqf linalg_inverse linalg_potrf linalg_potri linalg_slogdet
    """,
    "math.linalg": """
    _linalg_gemm _linalg_gemm2 _linalg_syrk _linalg_trmm _linalg_trsm linalg_gemm linalg_gemm2 linalg_syrk
    linalg_trmm linalg_trsm
    """,
    "math.onnx": """
    _onnx_bitwise _onnx_mod _onnx_round
    """,
    "math.reduce": """
    _sparse_mean _sparse_norm _sparse_sum argmax argmax_channel argmin max max_axis mean min min_axis moments
    nanprod nansum norm prod sum sum_axis
    """,
    "math.triangle": """
    _linalg_extractdiag _linalg_extracttrian _linalg_makediag _linalg_maketrian _linalg_sumlogdiag
    linalg_extractdiag linalg_extracttrian linalg_makediag linalg_maketrian linalg_sumlogdiag
    """,
    "math.unary": """
    BlockGrad _copy _identity_with_attr_like_rhs _sparse_abs _sparse_arccos _sparse_arccosh _sparse_arcsin
    _sparse_arcsinh _sparse_arctan _sparse_arctanh _sparse_cbrt _sparse_ceil _sparse_clip _sparse_cos
    _sparse_cosh _sparse_degrees _sparse_exp _sparse_expm1 _sparse_fix _sparse_floor _sparse_gamma
    _sparse_gammaln _sparse_log _sparse_log10 _sparse_log1p _sparse_log2 _sparse_negative _sparse_radians
    _sparse_relu _sparse_rint _sparse_round _sparse_rsqrt _sparse_sigmoid _sparse_sign _sparse_sin
    _sparse_sinh _sparse_sqrt _sparse_square _sparse_stop_gradient _sparse_tan _sparse_tanh _sparse_trunc
    _sparse_zeros_like abs arccos arccosh arcsin arcsinh arctan arctanh cbrt ceil clip cos cosh degrees erf
    erfinv exp expm1 fix floor gamma gammaln hard_sigmoid identity log log10 log1p log2 logical_not negative
    ones_like radians rcbrt reciprocal relu rint round rsqrt shape_array sigmoid sign sin sinh size_array
    smooth_l1 softsign sqrt square stop_gradient tan tanh trunc zeros_like
    """,
    "nn.activation": """
    Activation Dropout LeakyReLU
    """,
    "nn.batchnorm": """
    BatchNorm BatchNorm_v1 _contrib_BatchNormWithReLU _contrib_SyncBatchNorm
    """,
    "nn.conv": """
    Convolution Convolution_v1 Deconvolution
    """,
    "nn.dense": """
    Embedding FullyConnected _sparse_Embedding _sparse_FullyConnected
    """,
    "nn.unfold": """
    Correlation col2im im2col
    """,
    "nn.losses": """
    CTCLoss IdentityAttachKLSparseReg LinearRegressionOutput LogisticRegressionOutput MAERegressionOutput
    MakeLoss SVMOutput _contrib_CTCLoss _contrib_ctc_loss _sparse_LinearRegressionOutput
    _sparse_LogisticRegressionOutput _sparse_MAERegressionOutput _sparse_make_loss ctc_loss make_loss
    """,
    "nn.norm": """
    GroupNorm InstanceNorm L2Normalization LRN LayerNorm
    """,
    "nn.pool": """
    Pooling Pooling_v1
    """,
    "nn.rnn": """
    RNN
    """,
    "nn.roi": """
    ROIPooling
    """,
    "nn.sequence": """
    SequenceLast SequenceMask SequenceReverse
    """,
    "nn.softmax": """
    Softmax SoftmaxActivation SoftmaxOutput log_softmax softmax softmax_cross_entropy softmin
    """,
    "nn.spatial": """
    BilinearSampler Crop GridGenerator SpatialTransformer UpSampling _grid_sample
    """,
    "control_flow": """
    _cond _foreach _while_loop
    """,
    "image": """
    _cvcopyMakeBorder _cvimdecode _cvimread _cvimresize _image_adjust_lighting _image_crop
    _image_flip_left_right _image_flip_top_bottom _image_normalize _image_random_brightness
    _image_random_color_jitter _image_random_contrast _image_random_flip_left_right
    _image_random_flip_top_bottom _image_random_hue _image_random_lighting _image_random_saturation
    _image_resize _image_to_tensor
    """,
    "contrib": """
    _contrib_AdaptiveAvgPooling2D _contrib_BilinearResize2D _contrib_DeformableConvolution
    _contrib_DeformablePSROIPooling _contrib_ModulatedDeformableConvolution _contrib_MultiBoxDetection
    _contrib_MultiBoxPrior _contrib_MultiBoxTarget _contrib_MultiProposal _contrib_PSROIPooling
    _contrib_Proposal _contrib_ROIAlign _contrib_RROIAlign _contrib_allclose _contrib_arange_like
    _contrib_bipartite_matching _contrib_boolean_mask _contrib_box_decode _contrib_box_encode _contrib_box_iou
    _contrib_box_nms _contrib_box_non_maximum_suppression _contrib_count_sketch _contrib_div_sqrt_dim
    _contrib_edge_id _contrib_fft _contrib_getnnz _contrib_gradientmultiplier _contrib_hawkesll _contrib_ifft
    _contrib_index_array _contrib_index_copy _contrib_interleaved_matmul_encdec_qk
    _contrib_interleaved_matmul_encdec_valatt _contrib_interleaved_matmul_selfatt_qk
    _contrib_interleaved_matmul_selfatt_valatt _contrib_quadratic _contrib_round_ste _contrib_sign_ste
    _scale_gradient _sparse__contrib_round_ste _sparse__contrib_sign_ste all_finite multi_all_finite
    """,
    "quantize": """
    _contrib_calibrate_entropy _contrib_dequantize _contrib_quantize _contrib_quantize_asym
    _contrib_quantize_v2 _contrib_quantized_act _contrib_quantized_batch_norm _contrib_quantized_concat
    _contrib_quantized_conv _contrib_quantized_elemwise_add _contrib_quantized_elemwise_mul
    _contrib_quantized_embedding _contrib_quantized_flatten _contrib_quantized_fully_connected
    _contrib_quantized_pooling _contrib_requantize
    """,
    "random": """
    _random_exponential _random_exponential_like _random_gamma _random_gamma_like
    _random_generalized_negative_binomial _random_generalized_negative_binomial_like _random_negative_binomial
    _random_negative_binomial_like _random_normal _random_normal_like _random_pdf_dirichlet
    _random_pdf_exponential _random_pdf_gamma _random_pdf_generalized_negative_binomial
    _random_pdf_negative_binomial _random_pdf_normal _random_pdf_poisson _random_pdf_uniform _random_poisson
    _random_poisson_like _random_randint _random_uniform _random_uniform_like _sample_exponential
    _sample_gamma _sample_generalized_negative_binomial _sample_multinomial _sample_negative_binomial
    _sample_normal _sample_poisson _sample_uniform _sample_unique_zipfian _shuffle normal random_exponential
    random_gamma random_generalized_negative_binomial random_negative_binomial random_normal
    random_pdf_dirichlet random_pdf_exponential random_pdf_gamma random_pdf_generalized_negative_binomial
    random_pdf_negative_binomial random_pdf_normal random_pdf_poisson random_pdf_uniform random_poisson
    random_randint random_uniform sample_exponential sample_gamma sample_generalized_negative_binomial
    sample_multinomial sample_negative_binomial sample_normal sample_poisson sample_uniform shuffle uniform
    """,
    "distributions": """

    """,
    "update": """
    _adamw_update _contrib_group_adagrad_update _mp_adamw_update _multi_adamw_update _multi_lamb_update
    _multi_mp_adamw_update _multi_mp_lamb_update _sparse_adagrad_update _sparse_adam_update
    _sparse_ftrl_update _sparse_sgd_mom_update _sparse_sgd_update adam_update ftml_update ftrl_update
    lamb_update_phase1 lamb_update_phase2 mp_lamb_update_phase1 mp_lamb_update_phase2 mp_nag_mom_update
    mp_sgd_mom_update mp_sgd_update multi_lars multi_mp_sgd_mom_update multi_mp_sgd_update
    multi_sgd_mom_update multi_sgd_update multi_sum_sq nag_mom_update preloaded_multi_mp_sgd_mom_update
    preloaded_multi_mp_sgd_update preloaded_multi_sgd_mom_update preloaded_multi_sgd_update reset_arrays
    rmsprop_update rmspropalex_update sgd_mom_update sgd_update signsgd_update signum_update
    """,
    "sparse.lookup": """
    _contrib_SparseEmbedding
    """,
    "sparse.matrix": """
    _square_sum
    """,
    "sparse.recurrent": """
    sequence_lstm
    """,
    "sparse.sequences": """
    sequence_conv sequence_expand sequence_pool sequence_reverse sequence_softmax
    """,
    "sparse.storage": """
    _sparse_cast_storage _sparse_retain cast_storage
    """,
    "sparse.elementwise": """
    _scatter_elemwise_div _scatter_minus_scalar _scatter_plus_scalar
    """,
}
"""Module of `dpmodule.ops`, and the operators for which it is imported when one of them is asked for."""

"""Made by .ci/stubs.py from the operator declarations; do not edit."""

from __future__ import annotations

__all__ = ["LATER"]

LATER: dict[str, str] = {
    "array.blocks": """
    depth_to_space space_to_depth
    """,
    "array.histogram": """
    _histogram
    """,
    "array.order": """
    _np_cumsum argsort cumsum sort topk
    """,
    "array.pad": """
    Pad pad
    """,
    "array.ravel": """
    _ravel_multi_index _unravel_index ravel_multi_index unravel_index
    """,
    "array.stretch": """
    broadcast_axes broadcast_axis broadcast_like broadcast_to flip repeat reverse tile
    """,
    "math.factor": """
    _linalg_det _linalg_gelqf _linalg_inverse _linalg_potrf _linalg_potri _linalg_slogdet _linalg_syevd
    linalg_det linalg_gelqf linalg_inverse linalg_potrf linalg_potri linalg_slogdet
    """,
    "math.khatri_rao": """
    khatri_rao
    """,
    "math.linalg": """
    _linalg_gemm _linalg_gemm2 _linalg_syrk _linalg_trmm _linalg_trsm linalg_gemm linalg_gemm2 linalg_syrk
    linalg_trmm linalg_trsm
    """,
    "math.triangle": """
    _linalg_extractdiag _linalg_extracttrian _linalg_makediag _linalg_maketrian _linalg_sumlogdiag
    linalg_extractdiag linalg_extracttrian linalg_makediag linalg_maketrian linalg_sumlogdiag
    """,
    "nn.conv": """
    Convolution Convolution_v1
    """,
    "nn.correlation": """
    Correlation
    """,
    "nn.crop": """
    Crop
    """,
    "nn.ctc": """
    CTCLoss _contrib_CTCLoss _contrib_ctc_loss ctc_loss
    """,
    "nn.deconv": """
    Deconvolution
    """,
    "nn.im2col": """
    col2im im2col
    """,
    "nn.kl_sparse": """
    IdentityAttachKLSparseReg
    """,
    "nn.losses": """
    LinearRegressionOutput LogisticRegressionOutput MAERegressionOutput MakeLoss SVMOutput
    _sparse_LinearRegressionOutput _sparse_LogisticRegressionOutput _sparse_MAERegressionOutput
    _sparse_make_loss make_loss
    """,
    "nn.norm": """
    GroupNorm InstanceNorm L2Normalization LRN LayerNorm
    """,
    "nn.pool": """
    Pooling
    """,
    "nn.pool_v1": """
    Pooling_v1
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
    "nn.spatial": """
    BilinearSampler GridGenerator SpatialTransformer
    """,
    "nn.upsample": """
    UpSampling
    """,
    "control_flow": """
    _cond _foreach _while_loop
    """,
    "imaging": """
    _cvcopyMakeBorder _cvimdecode _cvimread _cvimresize
    """,
    "image": """
    _image_adjust_lighting _image_crop _image_flip_left_right _image_flip_top_bottom _image_normalize
    _image_random_brightness _image_random_color_jitter _image_random_contrast _image_random_flip_left_right
    _image_random_flip_top_bottom _image_random_hue _image_random_lighting _image_random_saturation
    _image_resize _image_to_tensor
    """,
    "contrib": """
    _contrib_AdaptiveAvgPooling2D _contrib_BatchNormWithReLU _contrib_BilinearResize2D
    _contrib_DeformableConvolution _contrib_DeformablePSROIPooling _contrib_ModulatedDeformableConvolution
    _contrib_MultiBoxDetection _contrib_MultiBoxPrior _contrib_MultiBoxTarget _contrib_MultiProposal
    _contrib_PSROIPooling _contrib_Proposal _contrib_ROIAlign _contrib_RROIAlign _contrib_SyncBatchNorm
    _contrib_allclose _contrib_arange_like _contrib_bipartite_matching _contrib_boolean_mask
    _contrib_box_decode _contrib_box_encode _contrib_box_iou _contrib_box_nms
    _contrib_box_non_maximum_suppression _contrib_count_sketch _contrib_div_sqrt_dim _contrib_edge_id
    _contrib_fft _contrib_getnnz _contrib_gradientmultiplier _contrib_hawkesll _contrib_ifft
    _contrib_index_array _contrib_index_copy _contrib_interleaved_matmul_encdec_qk
    _contrib_interleaved_matmul_encdec_valatt _contrib_interleaved_matmul_selfatt_qk
    _contrib_interleaved_matmul_selfatt_valatt _contrib_quadratic _contrib_round_ste _contrib_sign_ste
    _sparse__contrib_round_ste _sparse__contrib_sign_ste all_finite multi_all_finite
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
    _random_negative_binomial_like _random_normal _random_normal_like _random_poisson _random_poisson_like
    _random_randint _random_uniform _random_uniform_like _sample_exponential _sample_gamma
    _sample_generalized_negative_binomial _sample_multinomial _sample_negative_binomial _sample_normal
    _sample_poisson _sample_uniform _shuffle normal random_exponential random_gamma
    random_generalized_negative_binomial random_negative_binomial random_normal random_poisson random_randint
    random_uniform sample_exponential sample_gamma sample_generalized_negative_binomial sample_multinomial
    sample_negative_binomial sample_normal sample_poisson sample_uniform shuffle uniform
    """,
    "random_pdf": """
    _random_pdf_dirichlet _random_pdf_exponential _random_pdf_gamma _random_pdf_generalized_negative_binomial
    _random_pdf_negative_binomial _random_pdf_normal _random_pdf_poisson _random_pdf_uniform
    random_pdf_dirichlet random_pdf_exponential random_pdf_gamma random_pdf_generalized_negative_binomial
    random_pdf_negative_binomial random_pdf_normal random_pdf_poisson random_pdf_uniform
    """,
    "sparse.lookup": """
    _contrib_SparseEmbedding
    """,
    "sparse.matrix": """
    _square_sum
    """,
    "sparse.storage": """
    _sparse_cast_storage _sparse_retain cast_storage
    """,
    "sparse.scatter": """
    _scatter_elemwise_div _scatter_minus_scalar _scatter_plus_scalar
    """,
    "random_unique": """
    _sample_unique_zipfian
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
}
"""Module of `dpmodule.ops`, and the operators for which it is imported when one of them is asked for."""

"""What operators do, as far as the diagnosis needs to know: the one place where they are listed by name.

A name is what :func:`msprobe.compare.entry_names.operation` makes of a call (``Tensor.__radd__``, ``Torch.add`` and
``Tensor.add_`` are all ``add``). An operator that stands in no set is taken for one that computes sums of products:
the most careful model of rounding. So a missing name costs sharpness, never a false word.
"""

from __future__ import annotations

import re

#: They move values and compute nothing: what comes out has the bits of what went in.
MOVES = frozenset(
    """
    reshape transpose permute expand expand_as squeeze unsqueeze flatten unflatten movedim moveaxis narrow select slice
    getitem setitem split chunk tensor_split unbind cat stack hstack vstack dstack repeat repeat_interleave tile
    roll flip
    contiguous clone detach copy index_select gather take take_along_dim masked_select masked_fill where
    embedding pad triu tril diag diagonal as_strided unfold view_as_real view_as_complex real imag resolve_conj
    zeros ones empty full zeros_like ones_like full_like empty_like new_zeros new_ones new_full new_empty arange
    one_hot max_pool1d max_pool2d relu abs neg sign clamp maximum minimum max min amax amin topk sort argsort argmax
    argmin eq ne lt le gt ge logical_and logical_or logical_not isnan isfinite isinf bitwise_and bitwise_or
    pixel_shuffle broadcast broadcast_to scatter index_copy index_put index_fill fill zero T mT H item tolist
    """.split()
)
#: Of these, the ones whose settings count in the backward pass (which index is left out, where the window begins).
MOVES_WITH_SETTINGS = frozenset(("embedding", "max_pool1d", "max_pool2d"))
#: Their result may be a view of their first argument: who writes to it writes to that.
MAY_VIEW = frozenset(
    """
    reshape transpose permute expand expand_as squeeze unsqueeze flatten unflatten movedim moveaxis narrow select
    getitem split chunk tensor_split unbind as_strided unfold diagonal detach view_as_real view_as_complex real imag
    T mT H contiguous
    """.split()
)
#: They choose elements by their size, and say which: of several that are about as large, rounding decides.
CHOOSES = frozenset("topk sort argsort argmax argmin max min multinomial".split())
#: Of these, the ones by which a router chooses experts.
ROUTES = frozenset("topk max argmax".split())
#: They give each whole number that comes in the row of a table: what a model does with a token.
LOOKS_UP = frozenset(("embedding",))
#: They exchange axes.
TRANSPOSES = frozenset("transpose permute T mT H moveaxis movedim".split())
#: Products of two matrices, or of stacks of them, and nothing else.
MATRIX_PRODUCTS = frozenset(("matmul", "linear"))
#: They change the type of their input and nothing else.
CASTS = frozenset("to type bfloat16 half float double type_as".split())
#: They copy a tensor.
COPIES = frozenset(("clone", "contiguous", "copy", "deepcopy"))
#: They may differ between two healthy programs and change nothing.
IDLE = frozenset("detach clone contiguous to item numpy cpu cuda tolist zeros ones empty".split())
#: Their result is memory that nothing was written to.
UNSET = frozenset("empty empty_like new_empty empty_strided new_empty_strided empty_permuted".split())
#: They write over their first argument and look at nothing of it.
WRITES_ONLY = frozenset(
    """
    copy fill zero setitem set resize normal uniform bernoulli random exponential geometric cauchy log_normal
    _foreach_copy _foreach_zero fsdp_all_gather_copy_in
    """.split()
)
#: They look at the elements of their first argument in another way, and copy none (of dispatcher's operators, too).
VIEWS = frozenset(
    """
    reshape as_strided slice select split split_with_sizes chunk unbind narrow transpose permute expand squeeze
    unsqueeze detach alias diagonal unfold _reshape_alias view_as_real view_as_complex
    """.split()
)

#: They work on each element by itself: what they make has the same elements in the same order.
UNARY = frozenset("cos sin exp log sqrt rsqrt tanh sigmoid square reciprocal float to bfloat16 half pow outer".split())
#: They compute each element by itself: the same input gives the same bits.
ELEMENTWISE = UNARY | CASTS | frozenset("add sub mul div neg gelu silu where masked_fill lerp addcmul addcdiv".split())
#: IEEE 754 says what they give, to the last bit, on any device and in any kernel. Of the others two kernels may round a
#: few elements otherwise, and in types with few digits hardly any: there, that they often agree proves nothing.
ROUNDED_BY_STANDARD = CASTS | frozenset("add sub mul div neg sqrt square where masked_fill outer".split())
#: Functions of one element that no kernel makes of a difference, so that small results are as exact as large ones.
SUBTRACTS_NOTHING = frozenset("exp exp2 rsqrt reciprocal".split())
#: They compute something of two tensors element by element, after these were broadcast to one shape.
BROADCASTS = frozenset(
    "add sub mul div mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy_with_logits".split()
)
#: All they take stands in what they give, or each element by itself makes one: what nobody has written stays unwritten.
KEEPS_ALL = frozenset(
    """
        reshape transpose permute expand expand_as squeeze unsqueeze flatten unflatten movedim moveaxis view_as_real
        view_as_complex T mT contiguous clone detach cat stack hstack vstack dstack repeat repeat_interleave tile
        roll flip abs
        """.split()
) | ELEMENTWISE - frozenset(("where", "masked_fill", "outer"))
#: A number is multiplied or divided.
FACTORS = frozenset(("mul", "div"))
#: Their result follows the absolute size of their input: a relative error of x becomes |x| times that.
EXPONENTIAL = frozenset(
    """
    exp expm1 exp2 softmax log_softmax softmin sigmoid tanh sin cos tan logsumexp cross_entropy nll_loss silu gelu
    softplus logsigmoid binary_cross_entropy binary_cross_entropy_with_logits kl_div scaled_dot_product_attention
    multi_head_attention_forward pow sinh cosh erf mish selu elu
    """.split()
)
#: Their slope is bounded, by little more than 1: the result is as far off as the input, in absolute numbers.
BOUNDED = frozenset("gelu silu tanh sigmoid erf softplus logsigmoid elu selu mish sin cos relu6 leaky_relu".split())
#: They come to an end: their kernels give up the last digits there, some earlier than others.
SATURATES = frozenset("tanh sigmoid erf softsign".split())
#: They add or subtract: terms of about one size may cancel.
DIFFERENCES = frozenset("add sub rsub addcmul addcdiv lerp mse_loss l1_loss cumsum diff".split())
#: A quotient is as far apart as its divisor, and that may be next to nothing in some elements.
QUOTIENTS = frozenset("div addcdiv reciprocal rsqrt sqrt".split())
#: They count: each whole number up to the largest is there; and still is where it is shifted.
COUNTS = frozenset(("arange", "cumsum"))
SHIFTS = frozenset(("add", "sub"))
#: They take whole numbers in the type of the floating-point numbers beside them.
PROMOTES = frozenset("mul add sub div outer".split())
#: Sums of all elements, or of those along some dimensions.
SUMS = frozenset(("sum", "mean"))
#: Sums of products of two tensors.
PRODUCTS = frozenset("matmul linear einsum addmm baddbmm conv1d conv2d conv3d".split())
#: All whose kernels multiply matrices, and may round the inputs to fewer bits than float32 has (and those whose name
#: holds ``matmul`` or ``attention``); without underscores and in small letters, so that classes of modules are in, too.
MULTIPLIES = frozenset(
    "linear dense addmm addbmm baddbmm addmv mv dot vdot inner tensordot einsum bilinear multidot chainmatmul".split()
)
CONVOLUTIONS = frozenset(
    "conv1d conv2d conv3d convtranspose1d convtranspose2d convtranspose3d convolution convtbc".split()
)
RECURRENT_LAYERS = frozenset("lstm gru rnn rnntanh rnnrelu lstmcell grucell rnncell rnntanhcell rnnrelucell".split())
#: They subtract a mean, or divide by a deviation.
CENTRING = frozenset("layer_norm batch_norm group_norm instance_norm var std var_mean std_mean normalize".split())
#: Of these, those that subtract a mean.
SUBTRACTS_MEAN = CENTRING - {"normalize"}
#: They give each row, or channel, of what they are given one size; or one sum.
KEEPS_SIZE = frozenset("layer_norm batch_norm group_norm instance_norm rms_norm normalize".split())
KEEPS_SUM = frozenset("softmax softmin".split())
#: What they give is as many times further apart than their matrix as this is near to a singular one, which no row says.
CONDITIONED = frozenset(
    """
    inv inverse inv_ex pinv pinverse solve solve_ex solve_triangular triangular_solve lstsq cholesky cholesky_ex
    cholesky_solve cholesky_inverse lu lu_factor lu_solve qr eig eigh eigvals eigvalsh svd svdvals det logdet slogdet
    matrix_exp
    """.split()
)
#: Their gradients are divided by their argument, or by what one less its square is.
DIVIDED_BY_ARGUMENT, DIVIDED_BY_REST = frozenset("log log2 log10".split()), frozenset("acos asin atanh".split())
#: They keep running averages in the tensors that they are given.
AVERAGING = frozenset(("batch_norm", "instance_norm", "sync_batch_norm"))
#: Autocast lets them compute in half types though they take and give single precision.
RECURRENT = frozenset("lstm gru rnn rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell".split())
#: They take the size of tensors, as clipping does of gradients.
NORMS = frozenset("norm vector_norm linalg_vector_norm matrix_norm _foreach_norm get_total_norm".split())

#: They draw random numbers.
RANDOM = frozenset(
    """
    dropout alpha_dropout feature_alpha_dropout dropout1d dropout2d dropout3d rand randn randint rand_like randn_like
    randint_like randperm bernoulli multinomial normal uniform exponential gumbel_softmax rrelu random poisson
    """.split()
)
#: They drop something at random if they are asked to, and where they take by how much.
DROPPING = {"scaled_dot_product_attention": 4, "multi_head_attention_forward": 10}

#: Fused attention: query, key and value are the first three.
ATTENTION = frozenset("scaled_dot_product_attention npu_fusion_attention flash_attention_score".split())

#: Names of writes (with the underscore) whose result does not depend on what was there.
BEGIN = frozenset("zero_ fill_ normal_ uniform_ copy_ resize_".split())
#: Exchanges between two ranks, not of a whole group.
BETWEEN_TWO = frozenset("send recv isend irecv batch_isend_irecv".split())

#: Between MindSpore and PyTorch: they take their arguments in one order in both, numbers too.
SAME_ORDER = ELEMENTWISE | frozenset("softmax log_softmax matmul clamp leaky_relu dropout getitem".split())
#: Between the two, they leave the elements and their order as they are.
SAME_ELEMENTS = frozenset("reshape to contiguous squeeze unsqueeze flatten identity".split())
#: What composed layers of MindSpore begin with.
LAYERS_BEGIN = frozenset("matmul conv1d conv2d conv3d".split())
#: Their gradient goes where a comparison of elements says: where elements change sides, all of it.
COMPARES_ELEMENTS = frozenset(
    """
    relu relu6 leaky_relu prelu rrelu threshold abs clamp clamp_min clamp_max maximum minimum fmax fmin max min amax
    amin aminmax cummax cummin median nanmedian kthvalue sort topk msort scatter_reduce index_reduce segment_reduce
    max_pool1d max_pool2d max_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d fractional_max_pool2d
    fractional_max_pool3d hardtanh hardsigmoid hardswish hardshrink softshrink l1_loss margin_ranking_loss
    hinge_embedding_loss multi_margin_loss multilabel_margin_loss triplet_margin_loss cosine_embedding_loss
    """.split()
)
#: All that a layer may be named after.
KNOWN = MOVES | ELEMENTWISE | EXPONENTIAL | CENTRING | KEEPS_SIZE | COMPARES_ELEMENTS | frozenset(("linear",))
_BY_LAYER = {word.replace("_", ""): word for word in KNOWN}
_RANKS = re.compile(r"[123]d$")


def operator_of_layer(layer: str) -> str:
    """What a layer of this class computes: ``layer_norm`` of ``LayerNorm``; its name in small letters where that is not
    known.
    """
    name = layer.lower()
    tries = (name, name.removesuffix("loss"), _RANKS.sub("", name))
    return next((_BY_LAYER[word] for word in tries if word in _BY_LAYER), name)


# ------------------------------------------------------------ asked by the judge of rows (msprobe.diagnose.measured)

#: The result follows absolute differences of their first argument, an exponent or an angle.
EXPONENTS = frozenset(
    """
    softmax log_softmax softmin exp exp2 expm1 sin cos tan sigmoid logsumexp cross_entropy nll_loss pow rpow
    binary_cross_entropy_with_logits ctc_loss
    """.split()
)
#: Losses that are a difference of logarithms, and whose gradient is one of a probability and 1 where the label is.
LESS_LABELS = frozenset("cross_entropy binary_cross_entropy_with_logits".split())
#: They give how far their first two arguments are apart, element by element: what these are off by counts beside that.
DISTANCES = frozenset("mse_loss l1_loss smooth_l1_loss huber_loss pairwise_distance dist".split())
#: They add up probabilities times a difference of logarithms: that of their own, less their first argument.
RELATIVE_ENTROPIES = frozenset(("kl_div",))
#: Whole numbers of what they are given: where it crosses a boundary, the result makes a step of 1.
STEPS = frozenset("round floor ceil trunc".split())
#: They compare the directions of their first two arguments, whose gradients are what changes these.
ALIGNMENTS = frozenset(("cosine_similarity",))
#: The sign of what they are given: where it crosses zero, the result makes a step of 2.
SIGNS = frozenset("sign sgn".split())
#: They give how far each row of their first argument is from each of their second; kernels make that of products.
DISTANCES_OF_ROWS = frozenset(("cdist",))
#: They cut off what is beyond the limits that these arguments are, by place or by name.
LIMITED = {"clamp": "1 2 min max", "clamp_min": "1 min", "clamp_max": "1 max", "hardtanh": "1 2 min_val max_val"}
#: They add logarithms up along the first axis of their first argument, and give exponents of these sums.
ALONG_PATHS = frozenset(("ctc_loss",))
#: All elements that they take are in what they give; besides products.
TAKE_ALL_ELEMENTS = CENTRING | {"rms_norm", "embedding"}
#: Each element of their result is made of all elements up to it.
RUNNING = frozenset("cumsum cumprod logcumsumexp".split())
#: Their arguments and their result are in one unit.
SUMS_TERMS = frozenset("add sub rsub lerp cumsum diff cat stack hstack vstack dstack index_add scatter_add".split())
#: Products whose first argument is added.
ADDED_PRODUCTS = frozenset("addmm baddbmm addbmm addmv".split())
#: Sums of products of two tensors that are no call of a program's, as a rule.
FURTHER_PRODUCTS = frozenset("mv dot conv_transpose1d conv_transpose2d conv_transpose3d".split())
#: They raise their first argument to the power of their second.
POWERS = frozenset(("pow",))
#: They raise their argument to this power.
FIXED_POWERS = {"square": 2.0, "sqrt": 0.5, "rsqrt": -0.5, "reciprocal": -1.0}
#: They take square roots.
ROOTS = frozenset(("sqrt",))
#: They look elements up, the same ones several times: their gradient adds up what each of these gets.
SCATTERED_BY_BACKWARD = frozenset("embedding getitem gather index_select take take_along_dim".split())
#: They add what they compute of their other arguments to the first.
ADDS_TO = frozenset(("addcmul", "addcdiv"))
#: Their argument at this place says where another is read, as a share of its axes.
PLACES = {"grid_sample": 1, "grid_sampler": 1, "grid_sampler_2d": 1, "grid_sampler_3d": 1}
#: Which argument a quotient is divided by: where it is next to nothing, the quotient is as far apart as that.
DIVISORS = {"div": 1, "addcdiv": 2, "reciprocal": 0, "rsqrt": 0, "sqrt": 0}

#: They give a sum of two tensors, element by element; of these, the ones that subtract the second.
ADDS = frozenset(("add", "sub"))
SUBTRACTS = frozenset(("sub",))
#: They give a mean of two tensors, by the weight of the second.
AVERAGES = frozenset(("lerp",))
#: They write their second argument over the first.
COPIES_SECOND = frozenset(("copy",))
#: They divide by what others multiply by.
DIVIDES = frozenset(("div",))
#: They give what they are given, each element with the other sign.
NEGATES = frozenset(("neg",))
#: What they give is what they are given, where nobody else takes part.
EXCHANGES_ALONE = frozenset(("all_reduce",))

# ------------------------------------------------------------ asked by checks of one dump

#: They give or take messages between two ranks.
SENDS = frozenset(("send", "isend"))
RECEIVES = frozenset(("recv", "irecv"))
MESSAGES = SENDS | RECEIVES | {"batch_isend_irecv"}
#: Collectives to which all ranks give tensors of one type and shape.
ALIKE_ON_ALL_RANKS = frozenset(("all_reduce", "broadcast", "reduce", "all_gather"))
#: Collectives whose result is the same on every rank of the group.
SAME_ON_ALL_RANKS = frozenset(("all_reduce", "all_gather", "all_gather_into_tensor", "_all_gather_base", "broadcast"))
#: They drop at random.
DROPOUTS = frozenset(
    "dropout alpha_dropout feature_alpha_dropout feature_dropout dropout1d dropout2d dropout3d native_dropout".split()
)
#: They make ranks differ that are copies of each other.
RANDOM_PER_RANK = frozenset(
    "dropout alpha_dropout feature_dropout dropout1d dropout2d dropout3d bernoulli rand_like".split()
)
#: Their result suffers most from half precision.
SENSITIVE = frozenset(
    "softmax log_softmax layer_norm rms_norm batch_norm group_norm cross_entropy nll_loss logsumexp".split()
)
#: The loss of a language model.
LOSSES = frozenset(("cross_entropy", "nll_loss"))
#: Their result has the same elements in the same order as their first argument, in another type or place.
STORED_OTHERWISE = frozenset("to type type_as float double half bfloat16 clone contiguous detach cpu cuda".split())
#: The same in another shape.
RESHAPES = frozenset("reshape flatten unflatten squeeze unsqueeze expand expand_as".split())
#: They leave most elements where they are, or move them along a sequence.
KEEPS_MOST = STORED_OTHERWISE | RESHAPES | frozenset(("masked_fill", "clamp", "where"))
SHIFTS_SEQUENCE = frozenset(("getitem", "pad", "cat", "roll"))
#: They make the mask that hides later positions.
TRIANGLES = frozenset(("tril", "triu"))
#: They make a tensor of their own of what they are given.
NEW_TENSORS = frozenset(
    "clone copy contiguous to float double half bfloat16 type cpu cuda tensor as_tensor deepcopy".split()
)
#: What is taken out of the graph to be looked at.
LOOKS_AT = frozenset(("detach", "clone", "numpy", "item", "to"))
#: They take numbers out of tensors.
TAKE_NUMBERS = frozenset(("item", "float", "tolist"))
#: Their backward needs their result, or their inputs.
NEEDS_RESULT = frozenset("softmax log_softmax exp sqrt rsqrt tanh sigmoid relu reciprocal pow dropout".split())
NEEDS_INPUTS = frozenset(
    """
    matmul linear mul div pow square gelu silu softplus layer_norm rms_norm batch_norm group_norm conv1d conv2d
    conv3d baddbmm addmm einsum log sin cos cross_entropy scaled_dot_product_attention prelu elu
    """.split()
)
#: They fill memory as they are asked to; what is in it is neither born nor carried there.
FILLS = frozenset(
    """
    empty empty_like new_empty empty_strided empty_permuted fill full full_like new_full zero zeros zeros_like ones
    ones_like new_zeros new_ones normal uniform random bernoulli exponential tensor as_tensor fsdp_all_gather_copy_in
    """.split()
)
#: Their first argument is written over and not read.
OVERWRITES = frozenset(("copy", "set", "out"))
#: They look at memory in another way.
READS_MEMORY_OTHERWISE = frozenset(
    """
    reshape transpose permute expand expand_as squeeze unsqueeze flatten unflatten movedim narrow select split chunk
    unbind as_strided view_as_real view_as_complex detach contiguous set resize
    """.split()
)
#: They put a number where a mask says.
MASKS = frozenset("masked_fill where triu tril setitem index_fill masked_scatter index_put scatter copy".split())
#: They choose between values: an infinity that is not chosen is gone.
SELECTS = frozenset(
    "where masked_fill minimum maximum clamp clip nan_to_num min max amax amin masked_select getitem gather".split()
)
#: Minus infinity means nothing in them, by definition.
FORGETS_INFINITY = frozenset(
    "softmax log_softmax exp logsumexp sigmoid relu logaddexp scaled_dot_product_attention".split()
)

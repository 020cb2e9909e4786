"""Names of APIs that a check or a script may run: a name of a stranger's dump leads to a computation, or nowhere."""

from __future__ import annotations

from msprobe.capture.api_list import shipped_list

#: Parts of a name that are never run: they read or write files or memory, load code, call what they are given, change
#: what an object is, or what the process does from then on.
REFUSED = frozenset(
    """load save compile export from_file load_library load_inline hub load_state_dict_from_url
    __reduce__ __reduce_ex__ __setstate__ __getstate__ __torch_function__ __torch_dispatch__ __class__ __init__ __new__
    __subclasshook__ __init_subclass__ __setattr__ __delattr__ __getattribute__ __dict__ __globals__ __dlpack__
    share_memory_ module_load set_ set_data _from_blob from_blob frombuffer from_dlpack record_stream
    apply_ map_ map2_ register_hook register_post_accumulate_grad_hook backward
    _clear_non_serializable_cached_data manual_seed seed set_rng_state set_num_threads set_num_interop_threads
    set_default_device set_default_dtype set_default_tensor_type set_printoptions set_grad_enabled set_deterministic
    use_deterministic_algorithms set_warn_always set_flush_denormal set_float32_matmul_precision""".split()
)
# Beginnings of ``namespace_operator`` that are never run: the interpreter's own, and those that need other ranks.
_REFUSED_OPERATORS = (
    *("prim_", "aten_save", "aten_from_file", "debugprims_", "profiler_", "export_", "debug_mode_ops_"),
    *("c10d_", "_c10d_functional", "symm_mem_", "_dtensor_", "image_read_file", "image_write_file"),
)
_GROUPS = {"Functional": "functional", "Tensor": "tensor", "Torch": "torch", "VF": "_VF", "NPU": "torch_npu"}

#: Calls that draw random numbers: two runs give other numbers, so only how they are spread is compared.
RANDOM = frozenset(
    """bernoulli bernoulli_ rand randn randint randint_like rand_like randn_like randperm normal normal_ uniform_
    multinomial poisson exponential_ cauchy_ geometric_ log_normal_ random_ gumbel_softmax rrelu rrelu_
    fractional_max_pool2d fractional_max_pool3d fractional_max_pool2d_with_indices fractional_max_pool3d_with_indices
    svd_lowrank pca_lowrank binomial uniform exponential cauchy geometric log_normal
    random""".split()
)


def is_dropout(name: str) -> bool:
    """True for dropout in all its forms."""
    return "dropout" in name


def is_known(prefix: str, name: str) -> bool:
    """True for a call that a script may make. Where torch is not installed, only those of the list are known."""
    if not all(part.isidentifier() and part not in REFUSED for part in name.split(".")):
        return False
    if prefix == "Ops":
        return not name.startswith(_REFUSED_OPERATORS)
    if prefix == "Function":
        return True
    if name in shipped_list("msprobe.capture.torch").get(_GROUPS.get(prefix, ""), ()):
        return True
    import importlib

    try:
        functions = importlib.import_module("msprobe.precheck.torch.functions")
    except ImportError:
        return False
    try:
        functions.find_function(prefix, name)
    except LookupError:
        return False
    return True

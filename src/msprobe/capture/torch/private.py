"""Every private name of torch, looked up once; and what is not recorded where this torch does not have it.

A name is private if it, or a module on the way to it, begins with one underscore. Torch may change such names in any
release, so there is one rule, which ``tests/unit/capture/torch/test_private.py`` checks:

- Modules of torch, what is in them, and attributes of classes are looked up here if their name is private, or in
  ``private_compiler`` what compiles. The rest of the recorder imports what it needs from there, and asks :func:`has`
  before it does what would need a missing name.
- Private attributes of *objects* (the version of a tensor, the parameters of a module) are read where they are needed,
  in C as well. They are listed in :data:`ATTRIBUTES`; those without which something cannot be recorded are also among
  the :data:`ABILITIES`.
- Names that are only compared with what a program calls are data, and stand in the tables of names. So do those in the
  formats of files (``msprobe.store``).

Looking a name up imports no module of torch that the program has not imported, makes no tensor and asks for no mode.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from msprobe import log
from msprobe.messages import said


@dataclass(frozen=True)
class Ability:
    """Something that recording can do with the help of private names.

    ``needs``: full names, all of which must be there; several that are equally good are joined by `` or ``.
    ``without``: what is not recorded where one is missing, as the catalogue names it.
    """

    needs: tuple[str, ...]
    without: str


def _in(place: str, names: str) -> tuple[str, ...]:
    return tuple(f"{place}.{name}" for name in names.split())


#: The module that runs compiled callables.
EVAL_FRAME = "torch._dynamo.eval_frame"

ABILITIES: dict[str, Ability] = {
    "recording": Ability(
        (
            *_in("torch._C", "DisableTorchFunction _ExcludeDispatchKeyGuard DispatchKey DispatchKeySet"),
            *_in("torch.Tensor", "_version _base"),
            "torch.UntypedStorage._cdata",
        ),
        "without-recording",
    ),
    "calls": Ability(
        _in("torch._C", "_push_on_torch_function_stack _pop_torch_function_stack _len_torch_function_stack"),
        "without-calls",
    ),
    "gradients": Ability(
        (
            "torch._C._autograd._get_sequence_nr",
            *_in("torch._C._functions", "AccumulateGrad CopySlices"),
            "torch._C._functions.AccumulateGrad._sequence_nr",
        ),
        "without-gradients",
    ),
    "parameter gradients": Ability(
        ("torch._C._len_torch_dispatch_stack", "torch.utils._python_dispatch._disable_current_modes"),
        "without-parameter-gradients",
    ),
    "modules": Ability(
        _in(
            "torch.nn.Module",
            "_parameters _buffers _modules _forward_pre_hooks _forward_pre_hooks_with_kwargs _call_impl",
        ),
        "without-modules",
    ),
    "threads of autograd": Ability(
        ("torch._C._current_graph_task_id or torch._C._current_autograd_node",),
        "without-threads-of-autograd",
    ),
    "memory": Ability(
        _in("torch.UntypedStorage", "_weak_ref _free_weak_ref"),
        "without-memory",
    ),
    "transforms": Ability(
        _in(
            "torch._C._functorch",
            "is_functorch_wrapped_tensor get_unwrapped",
        ),
        "without-transforms",
    ),
    "operators by key": Ability(
        _in(
            "torch._C",
            "_parse_dispatch_key _dispatch_keyset_full_after _dispatch_library _dispatch_get_all_op_names"
            " _dispatch_has_kernel_for_dispatch_key _dispatch_tls_is_dispatch_key_included"
            " _dispatch_tls_set_dispatch_key_included",
        ),
        "without-operators-by-key",
    ),
    "operators by mode": Ability(
        (
            *_in("torch.utils._python_dispatch", "TorchDispatchMode _push_mode _pop_mode"),
            "torch._C._len_torch_dispatch_stack",
        ),
        "without-operators-by-mode",
    ),
    "choices by argument": Ability(
        ("torch._jit_internal.boolean_dispatched",),
        "without-choices-by-argument",
    ),
    "data loaders": Ability(
        ("torch.utils.data.dataloader._BaseDataLoaderIter",),
        "without-data-loaders",
    ),
    # Asked for when the program has imported these modules.
    "compiled regions": Ability(
        (
            f"{EVAL_FRAME}.set_eval_frame or {EVAL_FRAME}._maybe_set_eval_frame",
            *_in(EVAL_FRAME, "_TorchDynamoContext DisableContext OptimizedModule skip_code"),
        ),
        "without-compiled-regions",
    ),
    "compiled autograd": Ability(
        ("torch._C._dynamo.compiled_autograd.set_autograd_compiler",),
        "without-compiled-autograd",
    ),
    "waiting for collectives": Ability(
        ("torch.distributed._functional_collectives.wait_tensor",),
        "without-waiting-for-collectives",
    ),
    "names of groups": Ability(
        ("torch._C._distributed_c10d._resolve_process_group",),
        "without-names-of-groups",
    ),
}

#: Modules that note functions of torch by identity when they are imported; ``optimize`` of the first compiles.
NOTING_FUNCTIONS = ("torch._dynamo", "torch._refs", "torch._decomp")

# Private attributes of torch's objects that the recorder reads where it needs them, or sets.
ATTRIBUTES: dict[str, frozenset[str]] = {
    "torch.Tensor": frozenset("_version _base _values _nnz _is_zerotensor _typed_storage".split()),
    "storage": frozenset("_cdata _weak_ref".split()),
    "torch.nn.Module": frozenset(
        "_parameters _buffers _modules _forward_pre_hooks _forward_pre_hooks_with_kwargs _compiled_call_impl".split()
    ),
    "compiled module": frozenset(["_orig_mod"]),
    "graph node": frozenset(["_sequence_nr"]),
    "operator": frozenset("_schema _handle _qualified_op_name".split()),
    "distributed tensor": frozenset("_local_tensor _spec".split()),
    "gradient scaler": frozenset("_scale _per_optimizer_states".split()),
}


# ---------------------------------------------------------------- looking up


def find(path: str) -> Any:
    """What this torch has under a full name; None if it has nothing, or its module was not imported by anybody."""
    names = path.split(".")
    value: Any = torch
    for count, name in enumerate(names[1:], 2):
        module = sys.modules.get(".".join(names[:count]))
        if module is not None:
            value = module
        elif isinstance(value, types.ModuleType):
            # Not by an attribute: some modules of torch import what they are asked for.
            value = vars(value).get(name)
        else:
            # What objects of a Python class will have is only announced in the class.
            value = getattr(value, name, None) or getattr(value, "__annotations__", {}).get(name)
        if value is None:
            return None
    return value


def missing(ability: str) -> list[str]:
    """The names that :func:`has` looks for and does not find."""
    needs = ABILITIES[ability].needs
    return [need for need in needs if all(find(path) is None for path in need.split(" or "))]


_missing: dict[str, list[str]] = {}


def has(ability: str) -> bool:
    """Whether torch has all names that an ability needs; if not, the log says once what is lost.

    Asked at construction or start rather than on the way of a call, and where a module is needed that programs import
    when they like, after that was imported: names are looked for once.
    """
    lost = _missing.get(ability)
    if lost is None:
        lost = _missing[ability] = missing(ability)
    if lost:
        say_missing(ability, said("torch-has-no", ", ".join(lost)))
    return not lost


def say_missing(ability: str, reason: str) -> None:
    """One line, once: what is not recorded because this torch ``reason``."""
    log.once(
        ("torch", ability), "warning", said("torch-lacks", torch.__version__, reason, said(ABILITIES[ability].without))
    )


def why_nothing_is_recorded() -> str:
    """What this torch does not have without which nothing can be recorded now, for a sentence; "" if it has all."""
    for ability in ("recording", "compiled regions"):
        # Without the compiler there are no compiled regions.
        if (ability == "recording" or EVAL_FRAME in sys.modules) and not has(ability):
            return said("torch-of-version-has-no", torch.__version__, ", ".join(_missing[ability]))
    return ""


# ---------------------------------------------------------------- modes

_DoNothing: Any = contextlib.nullcontext

#: Inside, no mode and no class of the user's sees what is called.
without_functions: Any = find("torch._C.DisableTorchFunction") or _DoNothing
push_mode: Callable[[Any], None] = find("torch._C._push_on_torch_function_stack")
pop_mode: Callable[[], Any] = find("torch._C._pop_torch_function_stack")
#: How many modes there are. Where that cannot be asked: as if there were one, which is always right.
count_modes: Callable[[], int] = find("torch._C._len_torch_function_stack") or (lambda: 1)
#: Runs a function past its question for modes. Since torch 2.13; transparent.py says what is done before.
skip_one_hop: Callable[[Any, Any, Any, Any], Any] | None = find("torch._C._skip_one_hop_torch_function")

count_dispatch_modes: Callable[[], int] = find("torch._C._len_torch_dispatch_stack") or (lambda: 1)
without_dispatch_modes: Any = find("torch.utils._python_dispatch._disable_current_modes") or _DoNothing
push_dispatch_mode: Callable[[Any], None] = find("torch.utils._python_dispatch._push_mode")
pop_dispatch_mode: Callable[[], Any] = find("torch.utils._python_dispatch._pop_mode")
# For whoever makes calls again: the samples of operators that torch tests itself with.
SAMPLES_MODULE = "torch.testing._internal.common_methods_invocations"
DispatchMode: Any = find("torch.utils._python_dispatch.TorchDispatchMode") or object


def _traced() -> Any:
    return torch.jit.is_tracing() or None  # type: ignore[no-untyped-call, attr-defined]


_tracing_state: Callable[[], Any] = find("torch._C._get_tracing_state") or _traced
_dispatch_mode_of: Callable[[Any], Any] = find("torch._C._get_dispatch_mode") or (lambda key: None)
_PROXY: Any = getattr(find("torch._C._TorchDispatchModeKey"), "PROXY", None)
_symbolic: Any = find("torch.fx._symbolic_trace") or types.SimpleNamespace()
_symbolic.__dict__.setdefault("_is_fx_tracing_flag", False)


def is_traced() -> bool:
    """Whether somebody makes a graph of what this thread runs: ``torch.jit.trace``, ``torch.fx``, ``make_fx``,
    ``torch.export``. Values stand for others then, and what we do would become part of the graph. Takes 0.2 µs.
    """
    return (
        _tracing_state() is not None
        or _symbolic._is_fx_tracing_flag
        or (count_dispatch_modes() != 0 and _PROXY is not None and _dispatch_mode_of(_PROXY) is not None)
    )


def default_device_mode() -> Any:
    """The mode of ``torch.set_default_device`` in this thread; None if there is none."""
    held = find("torch._GLOBAL_DEVICE_CONTEXT")
    return getattr(held, "device_context", held if hasattr(held, "__torch_function__") else None)


def default_device() -> Any:
    """The device that was set as the default one; None if none was."""
    return find("torch.utils._device.CURRENT_DEVICE")


_GRAPH_MAKERS = (
    *(
        "torch.jit._script.script",
        "torch.jit._trace.trace",
        "torch.jit._trace.trace_module",
        "torch.jit._trace._get_trace_graph",
    ),
    *("torch.fx._symbolic_trace.Tracer.trace", "torch.export.export", "torch.export.export_for_training"),
    *("torch.export._trace._export", "torch.onnx.export", "torch.onnx.utils.export"),
    *("torch.fx.experimental.proxy_tensor._MakefxTracer.trace", "torch.fx.experimental.proxy_tensor.dispatch_trace"),
)


def graph_makers() -> list[Any]:
    """The functions that make a graph of what they run, as far as the program has imported them."""
    return [function for function in map(find, _GRAPH_MAKERS) if isinstance(function, types.FunctionType)]


# ---------------------------------------------------------------- the dispatcher

without_keys: Any = find("torch._C._ExcludeDispatchKeyGuard") or _DoNothing


def set_of_keys(names: Iterable[str]) -> Any:
    """The dispatch keys of these names that this torch has."""
    keys: Any = None
    kinds, several = find("torch._C.DispatchKey"), find("torch._C.DispatchKeySet")
    for name in names:
        key = getattr(kinds, name, None)
        if key is not None and several is not None:
            keys = several(key) if keys is None else keys | several(key)
    return keys


key_of_name: Callable[[str], Any] = find("torch._C._parse_dispatch_key")
keys_below: Callable[[Any], Any] = find("torch._C._dispatch_keyset_full_after")
make_library: Callable[..., Any] = find("torch._C._dispatch_library")
operator_names: Callable[[], Iterable[str]] = find("torch._C._dispatch_get_all_op_names")
has_kernel: Callable[[str, str], bool] = find("torch._C._dispatch_has_kernel_for_dispatch_key")
is_key_included: Callable[[Any], bool] = find("torch._C._dispatch_tls_is_dispatch_key_included")
include_key: Callable[[Any, bool], None] = find("torch._C._dispatch_tls_set_dispatch_key_included")
InferenceMode: Any = find("torch._C._InferenceMode")


def count_definitions() -> int:
    """How many operators ``torch.library`` has defined; 0 where that cannot be asked."""
    return len(find("torch.library._defs") or ())


# ---------------------------------------------------------------- autograd

#: The classes of the node that adds gradients to a leaf, and of that of a tensor of which a view was written to. The
#: first edge of the latter leads to what the whole tensor was.
AccumulateGrad: Any = find("torch._C._functions.AccumulateGrad")
CopySlices: Any = find("torch._C._functions.CopySlices")
#: The number that the next node of this thread will have.
sequence_number: Callable[[], int] = find("torch._C._autograd._get_sequence_nr") or (lambda: 0)
_current_node: Callable[[], Any] | None = find("torch._C._current_autograd_node")


def _task_by_node() -> int:
    return -1 if _current_node is None or _current_node() is None else 0


#: The number of the backward pass that this thread runs; -1 in none.
graph_task: Callable[[], int] = find("torch._C._current_graph_task_id") or _task_by_node


def current_node() -> Any:
    """The node of the graph that the engine runs in this thread; None if there is none, or torch does not say."""
    return _current_node() if _current_node is not None else None


def in_backward() -> bool:
    """Whether this thread runs a node of the graph."""
    return _current_node() is not None if _current_node is not None else graph_task() != -1


# ---------------------------------------------------------------- tensors

#: The address of the storage of a tensor. Since torch 2.3.
storage_address: Callable[[Any], int] | None = find("torch._C._storage_address")
free_weak_reference: Any = find("torch.UntypedStorage._free_weak_ref")
#: Whether the storage of a weak reference is gone.
is_expired: Callable[[int], bool] | None = find("torch.UntypedStorage._expired")
#: Whether the memory of a tensor is copied once it is written to. Since torch 2.3.
is_lazily_copied: Callable[[Any], bool] | None = find("torch._C._is_cow_tensor")
is_zero: Callable[[Any], bool] = find("torch._C._is_zerotensor") or (lambda tensor: tensor._is_zerotensor())
#: The layout of tensors that a library for CPUs keeps.
MKLDNN: Any = find("torch._mkldnn")
#: What methods of tensors belong to, whatever a class of the user's makes of them.
TensorBase: Any = torch.Tensor.__base__
Future: Any = find("torch._C.Future") or torch.futures.Future


def _has_parts(value: Any) -> bool:
    return hasattr(value, "__tensor_flatten__")


#: Whether a tensor consists of other tensors.
is_wrapper: Callable[[Any], bool] = find("torch.utils._python_dispatch.is_traceable_wrapper_subclass") or _has_parts


def _no(tensor: Any) -> bool:
    return False


inside_of_transformed: Callable[[Any], Any] = find("torch._C._functorch.get_unwrapped")
#: Whether :func:`inside_of_transformed` gives the tensor that this one stands for.
is_transformed: Callable[[Any], bool] = (
    None if missing("transforms") else find("torch._C._functorch.is_functorch_wrapped_tensor")
) or _no
_transforms: Callable[[], Any] = find("torch._C._functorch.peek_interpreter_stack") or (lambda: None)


def in_transform() -> bool:
    """Whether a transform of torch.func (grad, vmap, jvp) runs in this thread: what is computed is wrapped by it."""
    return _transforms() is not None


TRANSFORMED: tuple[tuple[Callable[[Any], bool], str], ...] = (
    (find("torch._C._functorch.is_batchedtensor") or _no, "BatchedTensor"),
    (find("torch._C._functorch.is_gradtrackingtensor") or _no, "GradTrackingTensor"),
)

# Some that a dump names, in the same words for every version.
AWAITED = "torch.distributed._functional_collectives.AsyncCollectiveTensor"
FAKE = "torch._subclasses.fake_tensor.FakeTensor"
JAGGED = "torch.nested._internal.nested_tensor.NestedTensor"
#: Classes of tensors that are more than memory, by their full name in any version: what such a tensor is.
UNUSUAL: dict[str, str] = {
    "torch.distributed.tensor.DTensor": "distributed",
    "torch.distributed.tensor._api.DTensor": "distributed",
    "torch.distributed._tensor.api.DTensor": "distributed",
    AWAITED: "awaited",
    FAKE: "fake",
    "torch._subclasses.functional_tensor.FunctionalTensor": "functional",
    JAGGED: "jagged",
}


# ---------------------------------------------------------------- modules


def call_of_modules() -> Any:
    """The function that runs a module's hooks and its ``forward``, whoever calls the module."""
    return find("torch.nn.Module._call_impl")


_hooks_of_all = find("torch.nn.modules.module._global_forward_pre_hooks")
#: The pre-forward hooks of all modules: a dictionary that torch keeps and never replaces.
hooks_before_all: Any = {} if _hooks_of_all is None else _hooks_of_all


# ---------------------------------------------------------------- functions, loaders, ranks

VF: Any = find("torch._VF")
#: Functions of which an argument says which other function does the work, and these.
boolean_dispatched: Any = find("torch._jit_internal.boolean_dispatched") or {}
#: What a module of the framework's own Functions begins with: part of how torch works, not of what the user computes.
FRAMEWORK_MODULES = (
    *("torch._functorch", "torch._dynamo", "torch._inductor"),
    *("torch.distributed.", "torch.utils.checkpoint"),
)
COALESCING = "_coalescing_manager"
#: In ``torch.autograd``: what ``backward`` and ``grad`` hand their work to. Since torch 2.2.
RUN_BACKWARD = "_engine_run_backward"
#: Where torch plans what it will compute: modules, classes and methods. Of DTensor from torch 2.5, and before.
PLANNERS = (
    *(
        (
            module,
            "ShardingPropagator",
            ("propagate_op_sharding_non_cached", "_propagate_tensor_meta_non_cached", "_propagate_tensor_meta"),
        )
        for module in ("torch.distributed.tensor._sharding_prop", "torch.distributed._tensor.sharding_prop")
    ),
    ("torch.distributed.pipelining.schedules", "PipelineScheduleSingle", ("_initialize_stage",)),
    ("torch.distributed.pipelining.schedules", "PipelineScheduleMulti", ("_initialize_stages",)),
)


def iterator_of_loaders() -> Any:
    """The class of the iterators of a DataLoader."""
    return find("torch.utils.data.dataloader._BaseDataLoaderIter")


def function_that_waits() -> Any:
    """The function that waits for a functional collective; imports their module."""
    with contextlib.suppress(ImportError):
        importlib.import_module("torch.distributed._functional_collectives")
    return find("torch.distributed._functional_collectives.wait_tensor")


def group_of_name(name: str) -> Any:
    """The process group that torch knows by a name that it made up."""
    return find("torch._C._distributed_c10d._resolve_process_group")(name)

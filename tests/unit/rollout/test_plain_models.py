"""``with debugger.recording(model)`` around a plain model that generates is what an engine's recorder gives."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.0")
pytest.importorskip("safetensors")

from safetensors.torch import load_file, save_file  # noqa: E402

from msprobe.pytorch import PrecisionDebugger  # noqa: E402
from msprobe.rollout.compared import RolloutAnswer  # noqa: E402
from msprobe.rollout.torch.comparing import compare_engine  # noqa: E402

SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 64, "head_dim": 16}
SIZES |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "norm_topk_prob": True}
#: Norms of queries and keys; biases; experts, tied embeddings.
KINDS = {
    "Llama": {},
    "Qwen2": {"tie_word_embeddings": True},
    "Qwen3": {"sliding_window": 4, "use_sliding_window": True, "max_window_layers": 1},
    "Qwen3Moe": EXPERTS,
    "Granite": {"residual_multiplier": 0.5, "attention_multiplier": 0.25, "logits_scaling": 2.0},
}
THETA = {"rope_theta": 99.0, "rope_type": "default"}
PROMPTS = torch.tensor([[0, 0, 5, 6, 7], [3, 9, 8, 4, 2]])
MASK = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])


@pytest.fixture(autouse=True)
def one_debugger() -> Iterator[None]:
    PrecisionDebugger.reset()
    yield
    PrecisionDebugger.reset()


def made(kind: str, folder: Path, dtype: Any = torch.float32) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**SIZES, **KINDS[kind])
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for one in model.parameters():
            one.mul_(8) if one.dim() > 1 else one.add_(0.2 * torch.randn_like(one))
    model.to(dtype).save_pretrained(folder / "model")
    return transformers.AutoModelForCausalLM.from_pretrained(folder / "model", dtype=dtype).eval()


def generate(model: Any, mask: Any = MASK) -> None:
    model.generate(input_ids=PROMPTS, attention_mask=mask, max_new_tokens=4, do_sample=False, pad_token_id=0)


def loop(model: Any, mask: Any = None) -> None:
    """Without a cache: each pass has the whole again."""
    tokens = PROMPTS[1:]
    with torch.no_grad():
        for _ in range(3):
            tokens = torch.cat([tokens, model(tokens).logits[:, -1:].argmax(-1)], 1)


def recorded(model: Any, folder: Path, run: Callable[..., None], *given: Any) -> str:
    debugger = PrecisionDebugger(dump_path=str(folder / "dump"), task="tensor", level="L0", record_root=True)
    with debugger.recording(model):
        run(model, *given)
    return str(folder / "dump" / "step0")


def compared(folder: Path) -> RolloutAnswer:
    return compare_engine(str(folder / "dump" / "step0"), str(folder / "model"))


@pytest.mark.parametrize(
    ("kind", "run", "dtype"),
    [
        *((kind, generate, torch.bfloat16) for kind in KINDS),
        ("Llama", generate, torch.float32),
        ("Qwen3", loop, torch.float32),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_healthy_model_agrees_with_itself(tmp_path: Path, kind: str, dtype: Any, run: Any) -> None:
    model = made(kind, tmp_path, dtype)
    recorded(model, tmp_path, run)
    found = compared(tmp_path)
    assert (found.status, found.exit_code, found.coverage.not_read) == ("agree", 0, ())
    attention = found.operators["model.layers.1.self_attn.attn"]
    assert attention.rows == (3 + 5 + 2 * 3 if run is generate else 5 + 6 + 7)
    assert found.contract is not None
    assert found.contract.measures.tokens == (2 * 3 if run is generate else 2)


def config(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        file = folder / "model" / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))

    return change


def scaled(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        file = folder / "model" / "model.safetensors"
        tensors = load_file(file)
        tensors[name] = tensors[name] * 1.01
        save_file(tensors, file, {"format": "pt"})

    return change


@pytest.mark.parametrize(
    ("kind", "change", "name", "module"),
    [
        ("Llama", config(rms_norm_eps=1e-2), "operator-differs", "0.input_layernorm"),
        (
            "Llama",
            config(rope_parameters=THETA),
            "operator-differs",
            "rotary_emb",
        ),
        ("Qwen3", config(sliding_window=3), "operator-differs", "1.self_attn.attn"),
        ("Qwen3", scaled("model.layers.1.self_attn.k_norm.weight"), "weights-differ", "1.self_attn.k_norm"),
        ("Qwen2", scaled("model.layers.0.self_attn.q_proj.bias"), "weights-differ", "0.self_attn.q_proj"),
        ("Qwen3Moe", config(norm_topk_prob=False), "operator-differs", "0.mlp.experts"),
    ],
)
def test_what_differs_is_named_first(tmp_path: Path, kind: str, change: Any, name: str, module: str) -> None:
    recorded(made(kind, tmp_path), tmp_path, generate)
    change(tmp_path)
    first = compared(tmp_path).all_findings[0]
    assert (first.name, first.arguments["module"].endswith(module)) == (name, True)


def test_padding_that_is_attended_is_named_with_its_request(tmp_path: Path) -> None:
    model = made("Llama", tmp_path)
    layer = model.model.layers[0].self_attn
    plain = layer.forward
    layer.forward = lambda *given, **named: plain(*given, **{**named, "attention_mask": None})
    recorded(model, tmp_path, generate)
    first = compared(tmp_path).all_findings[0]
    assert (first.name, first.arguments["module"]) == ("operator-differs", "model.layers.0.self_attn.attn")
    assert first.responses == ("0",)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_multiplier_between_modules_is_named_where_it_is_first_used(tmp_path: Path, dtype: Any) -> None:

    recorded(made("Granite", tmp_path, dtype), tmp_path, generate)
    assert compared(tmp_path).status == "agree"
    config(residual_multiplier=0.22)(tmp_path)
    first = compared(tmp_path).all_findings[0]
    assert (first.name, first.arguments["module"]) == (
        "between-modules-differs",
        "model.layers.0.post_attention_layernorm",
    )


def test_log_probs_of_recorded_logits_are_not_called_processed(tmp_path: Path) -> None:
    recorded(made("Granite", tmp_path), tmp_path, generate)
    config(logits_scaling=1.0)(tmp_path)
    first = compared(tmp_path).all_findings[0]
    assert (first.name, first.arguments["module"]) == ("operator-differs", "logits_processor")

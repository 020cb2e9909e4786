"""The bench of ``msprobe rollout ROLL --trainer MODEL``: a real engine, planted mismatches, healthy pairs.

``python -m rollout.bench float32 FOLDER`` in the environment of ``make test-rollout`` (from ``tests/``). Each mismatch
is one of a public thread (named beside it) and is planted in the engine while it runs, or in the trainer's folder;
what must be named first is its code and, where there is one, its module.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from vllm import LLM, SamplingParams

from msprobe.integrations.vllm import WORKER, recording
from msprobe.rollout.torch.comparing import compare_engine

MODEL = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4}
MODEL |= {"num_key_value_heads": 2, "vocab_size": 256, "max_position_embeddings": 256}
Modules = dict[str, Any]
#: What must be named first: code, and the end of the module's path ("" for any).
Wanted = tuple[str, str]


def make_model(folder: Path, dtype: torch.dtype, seed: int = 0, **changes: Any) -> Path:
    """A small random Llama with grouped heads, whose logits are spread as those of a trained one."""
    torch.manual_seed(seed)
    model = LlamaForCausalLM(LlamaConfig(**{**MODEL, **changes}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(8) if parameter.dim() > 1 else parameter.add_(0.2 * torch.randn_like(parameter))
    model.to(dtype).save_pretrained(folder)
    return folder


# ---- planted in the trainer's folder: the engine does what its own configuration and weights say


def _weights(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def changed(folder: Path) -> None:
        from safetensors.torch import load_file, save_file

        file = folder / "model.safetensors"
        tensors = load_file(file)
        change(tensors)
        save_file({name: one.contiguous() for name, one in tensors.items()}, file, {"format": "pt"})

    return changed


def _config(**changes: Any) -> Callable[[Path], None]:
    def changed(folder: Path) -> None:
        file = folder / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))

    return changed


_Q = "model.layers.1.self_attn.q_proj.weight"
_GATE, _UP = "model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.up_proj.weight"


def _exchange(tensors: dict[str, Any]) -> None:
    tensors[_GATE], tensors[_UP] = tensors[_UP], tensors[_GATE]


def _one_step(tensors: dict[str, Any]) -> None:
    """A step of an optimizer at lr 1e-6: a few elements move by one unit in bfloat16 (verl 2996)."""
    tensors[_Q].add_(1e-6 * torch.sign(torch.randn_like(tensors[_Q])).to(tensors[_Q].dtype))
    tensors[_Q][3, 5] = torch.nextafter(tensors[_Q][3, 5], torch.full((), 9.0, dtype=tensors[_Q].dtype))


def _heads(tensors: dict[str, Any]) -> None:
    tensors[_Q] = tensors[_Q].reshape(4, 32, 128)[[1, 0, 2, 3]].reshape(128, 128)


def _rope(base: float) -> dict[str, Any]:
    return {"rope_theta": base, "rope_parameters": {"rope_theta": base, "rope_type": "default"}}


IN_TRAINER: dict[str, tuple[Callable[[Path], None], Wanted]] = {
    "a missed optimizer step in one layer": (_weights(_one_step), ("weights-differ", "1.self_attn.qkv_proj")),
    "stale weights of one layer": (
        _weights(lambda t: t["model.layers.0.mlp.down_proj.weight"].mul_(1.02)),
        ("weights-differ", "0.mlp.down_proj"),
    ),
    "gate and up exchanged": (_weights(_exchange), ("weights-exchanged", "0.mlp.gate_up_proj")),
    "heads in another order": (_weights(_heads), ("weight-rows-exchanged", "1.self_attn.qkv_proj")),
    "a square weight transposed": (
        _weights(lambda t: t.update({_Q: t[_Q].t().contiguous()})),
        ("weights-differ", "1.self_attn.qkv_proj"),
    ),
    "a norm's weight that never arrived": (
        _weights(lambda t: t["model.norm.weight"].fill_(1.0)),
        ("weights-differ", "model.norm"),
    ),
    "a head of logits that is 2 % off": (
        _weights(lambda t: t["lm_head.weight"].mul_(1.02)),
        ("weights-differ", "lm_head"),
    ),
    "another eps": (_config(rms_norm_eps=1e-2), ("operator-differs", "0.input_layernorm")),
    "another theta": (_config(**_rope(5000.0)), ("operator-differs", "rotary_emb")),
    "another activation": (_config(hidden_act="gelu"), ("operator-differs", "0.mlp.act_fn")),
}

# ---- planted in the engine while it runs


def _wrap(module: Any, change: Callable[[Callable[..., Any], tuple[Any, ...]], Any]) -> Iterator[None]:
    forward = module.forward
    module.forward = lambda *given, **options: change(lambda *now: forward(*(now or given), **options), given)
    try:
        yield
    finally:
        del module.forward


def _operator(path: str, change: Callable[[Callable[..., Any], tuple[Any, ...]], Any]) -> Any:
    @contextmanager
    def planted(modules: Modules) -> Iterator[None]:
        yield from _wrap(modules[path], change)

    return planted


def _last_head_lost(run: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    done = run().clone()
    done[:, -32:] = 0
    return done


def _off_by_one(run: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    """Positions one too far, in decode alone (vllm 27722 is such a range)."""
    positions, queries, keys = given
    return run(positions + 1, queries, keys) if len(positions) < 8 else run()


def _bf16_variance(run: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    """verl-omni 637: another order of casts; here the mean is taken of too few elements."""
    done = run()
    return (done[0] * 1.02, done[1]) if isinstance(done, tuple) else done * 1.02


def _last_row(run: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    done = run()
    first = (done[0] if isinstance(done, tuple) else done).clone()
    first[-1] = first[0]
    return (first, *done[1:]) if isinstance(done, tuple) else first


IN_ENGINE: dict[str, tuple[Any, Wanted]] = {
    "attention loses its last head": (
        _operator("model.layers.1.self_attn.attn", _last_head_lost),
        ("operator-differs", "1.self_attn.attn"),
    ),
    "attention 2 % too large": (
        _operator("model.layers.0.self_attn.attn", lambda run, _: run() * 1.02),
        ("operator-differs", "0.self_attn.attn"),
    ),
    "positions off by one in decode": (
        _operator("model.layers.0.self_attn.rotary_emb", _off_by_one),
        ("operator-differs", "rotary_emb"),
    ),
    "a norm that is 2 % too large": (
        _operator("model.layers.1.post_attention_layernorm", _bf16_variance),
        ("operator-differs", "1.post_attention_layernorm"),
    ),
    "the last row of a batch is that of the first": (
        _operator("model.layers.0.mlp.down_proj", _last_row),
        ("operator-differs", "0.mlp.down_proj"),
    ),
    "an activation of a wrong half": (
        _operator("model.layers.1.mlp.act_fn", lambda run, given: run(torch.roll(given[0], 256, -1))),
        ("operator-differs", "1.mlp.act_fn"),
    ),
    "a table of the embedding that is shifted": (
        _operator("model.embed_tokens", lambda run, given: run((given[0] + 1) % 256)),
        ("operator-differs", "embed_tokens"),
    ),
}

PROMPTS = [{"prompt_token_ids": [3 + place, 7, 11 + place, 5, 9][: 3 + place % 3]} for place in range(5)]
GREEDY = SamplingParams(temperature=0.0, logprobs=0, max_tokens=12, ignore_eos=True, detokenize=False)
SAMPLED = SamplingParams(temperature=1.0, seed=3, logprobs=0, max_tokens=12, ignore_eos=True, detokenize=False)


class Bench:
    """One engine; each case is a recorded ``generate`` and a folder of a trainer."""

    def __init__(self, dtype: str, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.model = make_model(folder / "model", getattr(torch, dtype))
        settings = {"enable_prefix_caching": False, "max_num_seqs": 8, "max_model_len": 128, "block_size": 32}
        self.llm = LLM(
            str(self.model),
            **{**settings, **options},
            dtype=dtype,
            seed=0,
            skip_tokenizer_init=True,
            enforce_eager=True,
            worker_extension_cls=WORKER,
        )

    def modules(self) -> Modules:
        """The engine's modules by path."""
        found: list[Modules] = self.llm.apply_model(lambda model: dict(model.named_modules()))
        return found[0]

    def record(self, name: str, sampling: Any, planted: Any = None) -> str:
        """Record one ``generate``; the folder of its step."""
        out = self.folder / "rolls" / name.replace(" ", "_").replace("%", "percent")
        shutil.rmtree(out, ignore_errors=True)
        settings = {"dump_path": str(out), "task": "tensor", "level": "L0", "record_root": True}
        from msprobe.pytorch import PrecisionDebugger

        PrecisionDebugger.reset()
        self.llm.collective_rpc("msprobe_forget")
        with planted(self.modules()) if planted else nullcontext(), recording(self.llm, **settings):
            self.llm.generate(PROMPTS, sampling, use_tqdm=False)
        return str(out / "step0")

    def trainer(self, name: str, change: Callable[[Path], None]) -> str:
        """A copy of the model's folder with a change."""
        folder = self.folder / "trainers" / name.replace(" ", "_").replace("%", "percent")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.model, folder)
        change(folder)
        return str(folder)


def main(dtype: str, folder: Path) -> int:
    """Run all cases; print what was named, and how many were named first."""
    bench = Bench(dtype, folder)
    greedy = bench.record("greedy", GREEDY)
    healthy = {"greedy": greedy, "sampled": bench.record("sampled", SAMPLED)}
    wrong = 0
    for name, roll in healthy.items():
        found = compare_engine(roll, str(bench.model))
        wrong += found.status != "AGREE"
        print(f"healthy {name}: {found.status} {found.all_findings[:1]}", flush=True)
    first = 0
    for name, (change, wanted) in IN_TRAINER.items():
        first += _is_first(name, greedy, bench.trainer(name, change), wanted)
    for name, (planted, wanted) in IN_ENGINE.items():
        first += _is_first(name, bench.record(name, GREEDY, planted), str(bench.model), wanted)
    count = len(IN_TRAINER) + len(IN_ENGINE)
    print(f"{dtype}: named first {first} of {count}, healthy pairs that differ {wrong} of {len(healthy)}")
    return 0 if first == count and not wrong else 1


def _is_first(name: str, roll: str, model: str, wanted: Wanted) -> bool:
    found = compare_engine(roll, model).all_findings
    one = found[0] if found else None
    right = one is not None and one.code == wanted[0] and str(one.arguments.get("module", "")).endswith(wanted[1])
    print(f"{'first ' if right else 'MISSED'} {name}: {one and (one.code, one.arguments)}"[:300], flush=True)
    return right


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))

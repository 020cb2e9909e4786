"""After each synchronisation: does an engine hold the trainer's weights? With a stand-in for the engine."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from support.coded_texts import raising
from support.row_by_row import for_each

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from msprobe.integrations.vllm import Probe, recording, weight_check  # noqa: E402
from msprobe.messages import said  # noqa: E402
from msprobe.rollout.torch.engine_weights import held  # noqa: E402
from msprobe.rollout.torch.trainer_weights import TrainerWeights  # noqa: E402
from msprobe.rollout.torch.weight_check import WeightCheck  # noqa: E402

WIDE, HEADS, GROUPS, SIZE, TOKENS = 32, 4, 2, 8, 24


def linear(inputs: int, outputs: int) -> Any:
    return torch.nn.Linear(inputs, outputs, bias=False)


def module(**children: Any) -> Any:
    made = torch.nn.Module()
    for name, one in children.items():
        setattr(made, name, one)
    return made


class Trainer(torch.nn.Module):
    """Two layers, named as transformers does."""

    def __init__(self, dtype: Any = torch.bfloat16) -> None:
        super().__init__()
        torch.manual_seed(0)
        layers = [
            module(
                self_attn=module(
                    q_proj=linear(WIDE, HEADS * SIZE),
                    k_proj=linear(WIDE, GROUPS * SIZE),
                    v_proj=linear(WIDE, GROUPS * SIZE),
                    o_proj=linear(HEADS * SIZE, WIDE),
                ),
                mlp=module(gate_proj=linear(WIDE, 64), up_proj=linear(WIDE, 64), down_proj=linear(64, WIDE)),
                input_layernorm=torch.nn.RMSNorm(WIDE),
                post_attention_layernorm=torch.nn.RMSNorm(WIDE),
            )
            for _ in range(2)
        ]
        self.model = module(
            embed_tokens=torch.nn.Embedding(TOKENS, WIDE),
            layers=torch.nn.ModuleList(layers),
            norm=torch.nn.RMSNorm(WIDE),
        )
        self.lm_head = linear(WIDE, TOKENS)
        with torch.no_grad():
            for one in self.parameters():
                one.add_(0.1 * torch.randn_like(one))
        self.to(dtype)

    def step(self, rate: float = 1e-6) -> None:
        """A step of an optimizer, whose updates are as large as its learning rate."""
        optimizer = torch.optim.AdamW(self.parameters(), lr=rate, weight_decay=0.0)
        for one in self.parameters():
            one.grad = torch.randn_like(one)
        optimizer.step()


class Held(torch.nn.Module):
    """A layer of an engine: its weight, and how its loader cut it."""

    def __init__(self, weight: Any, **numbers: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(weight.detach().clone(), requires_grad=False)
        vars(self).update(numbers)


class Engine:
    """A stand-in whose ranks are cut as vLLM's loader does; ``load`` is a synchronisation."""

    def __init__(self, trainer: Any, ranks: int = 1, dtype: Any = torch.bfloat16) -> None:
        self.ranks, self.dtype = ranks, dtype
        self.models = [self._rank(trainer, rank) for rank in range(ranks)]

    def _rank(self, trainer: Any, rank: int) -> Any:
        made = torch.nn.Module()
        for path, parts in self._paths(trainer).items():
            around = made
            for name in path.split(".")[:-1]:
                if not hasattr(around, name):
                    setattr(around, name, torch.nn.Module())
                around = getattr(around, name)
            setattr(around, path.rpartition(".")[2], self._layer(path, parts, rank))
        return made

    def _paths(self, trainer: Any) -> dict[str, list[Any]]:
        weights = {name.removesuffix(".weight"): one for name, one in trainer.named_parameters()}
        fused = {"q_proj": "qkv_proj", "k_proj": "", "v_proj": "", "gate_proj": "gate_up_proj", "up_proj": ""}
        done: dict[str, list[Any]] = {}
        for path, one in weights.items():
            around, _, name = path.rpartition(".")
            target = fused.get(name, name)
            whole = f"{around}.{target}" if around else target
            done.setdefault(whole if target else next(reversed(done)), []).append(one.to(self.dtype))
        return done

    def _layer(self, path: str, parts: list[Any], rank: int) -> Held:
        own = {"tp_size": self.ranks, "tp_rank": rank}
        name = path.rpartition(".")[2]
        if name in ("o_proj", "down_proj"):
            width = parts[0].shape[1] // self.ranks
            own |= {"input_size": parts[0].shape[1], "input_size_per_partition": width}
            return Held(parts[0][:, rank * width : (rank + 1) * width], **own)
        if name in ("qkv_proj", "gate_up_proj"):
            repeated = max(1, self.ranks // GROUPS) if name == "qkv_proj" else 1
            cut = []
            for place, one in enumerate(parts):
                times = repeated if place else 1
                rows = one.shape[0] * times // self.ranks
                cut.append(one[rank // times * rows : (rank // times + 1) * rows])
            size = sum(len(one) for one in cut)
            own |= {"output_size": size * self.ranks, "output_size_per_partition": size}
            return Held(torch.cat(cut), num_kv_head_replicas=repeated, **own)
        if parts[0].dim() == 2:
            rows = -(-len(parts[0]) // self.ranks)
            own |= {"num_embeddings_per_partition": rows, "num_embeddings_padded": rows * self.ranks}
            return Held(parts[0][rank * rows : (rank + 1) * rows], **own)
        return Held(parts[0], **own)

    def load(self, trainer: Any, but: str = "nothing") -> None:
        new = Engine(trainer, self.ranks, self.dtype)
        for mine, theirs in zip(self.models, new.models, strict=True):
            for (name, one), other in zip(mine.named_parameters(), theirs.parameters(), strict=True):
                if but not in name:
                    one.data.copy_(other)

    def layer(self, path: str, rank: int = 0) -> Any:
        return self.models[rank].get_submodule(path).weight.data

    def asked(self) -> list[dict[str, Any]]:
        return [held(one) for one in self.models]


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_an_engine_that_was_synchronised_holds_on_every_rank(ranks: int) -> None:
    trainer = Trainer()
    arrived = WeightCheck(Engine(trainer, ranks).asked)(trainer)
    assert (arrived.holds, arrived.coverage.is_complete, arrived.equal) == (True, True, 15 * ranks)


def test_one_step_at_a_rate_of_1e_6_in_bfloat16_that_did_not_arrive_is_seen() -> None:
    trainer = Trainer()
    engine = Engine(trainer)
    check = WeightCheck(engine.asked)
    assert check(trainer)
    before = {name: one.clone() for name, one in trainer.named_parameters()}
    trainer.step()
    moved = sum(int((one != before[name]).sum()) for name, one in trainer.named_parameters())
    assert 0 < moved < 0.1 * sum(one.numel() for one in trainer.parameters()), "few elements move at this rate"
    found = check(trainer)
    assert not found
    assert {one.name for one in found.findings} == {"weights-stale"}
    assert {one.arguments["step"] for one in found.findings} == {0}


def test_what_never_arrives_is_known_by_the_synchronisation_since_which_it_is_the_same() -> None:
    trainer = Trainer()
    engine = Engine(trainer)
    check = WeightCheck(engine.asked)
    assert check(trainer)
    for _ in range(2):
        trainer.step(1e-2)
        engine.load(trainer, but="layers.1.self_attn.o_proj")
        found = check(trainer)
        one = found.findings[0]
        assert (len(found.findings), one.name, one.arguments["step"]) == (1, "weights-stale", 0)
        assert one.arguments["module"] == "model.layers.1.self_attn.o_proj"
    engine.load(trainer)
    assert check(trainer).number == 3


LAYER = "model.layers.1"
Change = Callable[[Engine, Any], None]


def transpose(engine: Engine, trainer: Any) -> None:
    engine.layer(f"{LAYER}.self_attn.o_proj").copy_(trainer.model.layers[1].self_attn.o_proj.weight.t())


def turn_one_of_three(engine: Engine, trainer: Any) -> None:
    engine.layer(f"{LAYER}.self_attn.qkv_proj")[:WIDE] = trainer.model.layers[1].self_attn.q_proj.weight.t()


def exchange(engine: Engine, trainer: Any) -> None:
    fused = engine.layer(f"{LAYER}.mlp.gate_up_proj")
    fused.copy_(torch.cat(fused.chunk(2)[::-1]))


def another_layer(engine: Engine, trainer: Any) -> None:
    engine.layer(f"{LAYER}.mlp.down_proj").copy_(trainer.model.layers[0].mlp.down_proj.weight)


def cast(engine: Engine, trainer: Any) -> None:
    weight = engine.layer(f"{LAYER}.mlp.down_proj")
    weight.copy_(weight.to(torch.float8_e4m3fn))


def nothing_loaded(engine: Engine, trainer: Any) -> None:
    engine.layer(f"{LAYER}.input_layernorm").fill_(1.0)


@for_each(
    ("change", "code", "path"),
    [
        (transpose, "weights-transposed", "self_attn.o_proj"),
        (turn_one_of_three, "weights-transposed", "self_attn.qkv_proj"),
        (exchange, "weights-exchanged", "mlp.gate_up_proj"),
        (another_layer, "weights-of-another", "mlp.down_proj"),
        (cast, "weights-cast", "mlp.down_proj"),
        (nothing_loaded, "weights-missing", "input_layernorm"),
    ],
)
def test_what_arrived_wrong_is_named(change: Change, code: str, path: str) -> None:
    trainer = Trainer()
    engine = Engine(trainer)
    change(engine, trainer)
    found = WeightCheck(engine.asked)(trainer).findings
    assert [(one.name, one.arguments["module"]) for one in found] == [(code, f"{LAYER}.{path}")]


@pytest.mark.parametrize("path", ["self_attn.qkv_proj", "mlp.down_proj"])
def test_the_shard_of_another_rank_is_named_with_the_rank(path: str) -> None:
    trainer = Trainer()
    engine = Engine(trainer, 2)
    engine.layer(f"{LAYER}.{path}", 1).copy_(engine.layer(f"{LAYER}.{path}", 0))
    found = WeightCheck(engine.asked)(trainer).findings
    assert [(one.name, one.arguments["rank"]) for one in found] == [("weights-wrong-shard", 1)]


def test_an_adapter_that_binds_nothing_is_named() -> None:
    engine = module(q_proj=linear(WIDE, WIDE))
    base = engine.q_proj.weight.detach()
    engine.q_proj.lora_a_stacked = (torch.zeros(1, 1, 8, WIDE),)
    engine.q_proj.lora_b_stacked = (torch.zeros(1, 1, WIDE, 8),)
    own = {"q_proj.weight": base, "q_proj.lora_a": torch.randn(4, WIDE), "q_proj.lora_b": torch.randn(WIDE, 4)}
    check = WeightCheck(engine)
    assert {one.name for one in check(own).findings} == {"adapter-not-bound"}
    engine.q_proj.lora_a_stacked[0][0, 0, :4] = own["q_proj.lora_a"]
    engine.q_proj.lora_b_stacked[0][0, 0, :, :4] = own["q_proj.lora_b"]
    assert check(own)


class Copies(TorchDispatchMode):
    """Elements that are copied."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        answer = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ in ("clone", "copy_", "_to_copy", "cat", "contiguous"):
            self.elements += args[0].numel() if isinstance(args[0], torch.Tensor) else 0
        return answer


def test_nothing_is_copied_where_the_types_are_the_same() -> None:
    trainer = Trainer()
    engine = Engine(trainer)
    with Copies() as copies:
        assert WeightCheck(engine.asked)(trainer)
    assert copies.elements == 0


@pytest.mark.parametrize("ranks", [1, 2])
def test_fused_biases_are_one_vector(ranks: int) -> None:
    own = {
        f"{one}_proj.{kind}": torch.randn(8, *((4,) if kind == "weight" else ()))
        for one in "qkv"
        for kind in ("weight", "bias")
    }
    trees = []
    for rank in range(ranks):
        parts = {kind: [own[f"{one}_proj.{kind}"].chunk(ranks)[rank] for one in "qkv"] for kind in ("weight", "bias")}
        engine = module(qkv_proj=Held(torch.cat(parts["weight"]), tp_size=ranks, tp_rank=rank))
        engine.qkv_proj.bias = torch.nn.Parameter(torch.cat(parts["bias"]), requires_grad=False)
        engine.qkv_proj.output_size, engine.qkv_proj.output_size_per_partition = 24, 24 // ranks
        trees.append(engine)
    check = WeightCheck(lambda: [held(one) for one in trees])
    assert check(own).equal == 2 * ranks
    trees[0].qkv_proj.bias.data[5] += 1
    assert [(one.name, one.arguments["weight"]) for one in check(own).findings] == [("weights-differ", "bias")]


def test_a_trainer_in_float32_is_compared_in_the_type_of_the_engine() -> None:
    trainer = Trainer(torch.float32)
    engine = Engine(trainer)
    check = WeightCheck(engine.asked)
    assert check(trainer)
    trainer.step(1e-3)
    assert not check(trainer)


def test_weights_that_a_side_lacks_are_said() -> None:
    trainer = Trainer()
    engine = Engine(trainer)
    del engine.models[0].lm_head
    found = WeightCheck(engine.asked)(trainer)
    assert found.holds
    assert [one.what for one in found.coverage.not_read] == [said("weight-of-trainer", "lm_head.weight")]


def test_state_dicts_and_megatron_cores_shards_are_trainers(tmp_path: Any) -> None:
    trainer = Trainer()
    engine = Engine(trainer, 2)
    assert WeightCheck(engine.asked)(trainer.state_dict())
    weights = TrainerWeights.of_megatron(megatron(trainer, 2), HEADS, GROUPS)
    arrived = WeightCheck(engine.asked)(weights)
    assert (arrived.holds, arrived.coverage.is_complete) == (True, True)
    turned = megatron(trainer, 2)
    name = "decoder.layers.1.self_attention.linear_qkv.weight"
    turned[0][name] = turned[0][name].flip(0)
    found = WeightCheck(engine.asked)(TrainerWeights.of_megatron(turned, HEADS, GROUPS)).findings
    assert {one.arguments["module"] for one in found} == {f"{LAYER}.self_attn.qkv_proj"}


def megatron(trainer: Any, ranks: int) -> list[dict[str, Any]]:
    """The state dicts of a Megatron-core GPT with the trainer's weights, written the plain way: group by group."""
    done: list[dict[str, Any]] = [{} for _ in range(ranks)]

    def put(name: str, parts: list[Any]) -> None:
        for rank, one in enumerate(parts):
            done[rank][name] = one.detach().clone()

    put("embedding.word_embeddings.weight", list(trainer.model.embed_tokens.weight.chunk(ranks)))
    put("output_layer.weight", list(trainer.lm_head.weight.chunk(ranks)))
    put("decoder.final_layernorm.weight", [trainer.model.norm.weight] * ranks)
    for number, layer in enumerate(trainer.model.layers):
        at, own = f"decoder.layers.{number}", layer.self_attn
        queries = own.q_proj.weight.reshape(GROUPS, HEADS // GROUPS, SIZE, WIDE)
        keys, values = (one.weight.reshape(GROUPS, 1, SIZE, WIDE) for one in (own.k_proj, own.v_proj))
        whole = torch.cat((queries, keys, values), 1).reshape(-1, WIDE)
        put(f"{at}.self_attention.linear_qkv.weight", list(whole.chunk(ranks)))
        put(f"{at}.self_attention.linear_qkv.layer_norm_weight", [layer.input_layernorm.weight] * ranks)
        put(f"{at}.self_attention.linear_proj.weight", list(own.o_proj.weight.chunk(ranks, 1)))
        gates, ups = layer.mlp.gate_proj.weight.chunk(ranks), layer.mlp.up_proj.weight.chunk(ranks)
        put(f"{at}.mlp.linear_fc1.weight", [torch.cat(one) for one in zip(gates, ups, strict=True)])
        put(f"{at}.mlp.linear_fc1.layer_norm_weight", [layer.post_attention_layernorm.weight] * ranks)
        put(f"{at}.mlp.linear_fc2.weight", list(layer.mlp.down_proj.weight.chunk(ranks, 1)))
        for rank in range(ranks):
            done[rank][f"{at}.mlp.linear_fc1._extra_state"] = torch.zeros(1)
    return done


def test_names_that_are_no_dense_gpt_are_refused() -> None:
    from msprobe.errors import InvalidInputError

    with raising(InvalidInputError, "megatron-names-unknown", names="decoder.layers.0.mlp.experts.linear_fc1.weight0"):
        TrainerWeights.of_megatron([{"decoder.layers.0.mlp.experts.linear_fc1.weight0": torch.zeros(2, 2)}], 4, 2)


class Worker(Probe):
    def __init__(self, model: Any) -> None:
        self.model_runner = SimpleNamespace(model=model, model_config=SimpleNamespace(enforce_eager=True))


class Policy(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = linear(4, 4)

    def forward(self, given: Any) -> Any:
        return self.head(given)


def test_the_recorder_compares_before_each_generate(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from msprobe.foreign.json_text import read_json
    from msprobe.pytorch import PrecisionDebugger

    PrecisionDebugger.reset()
    policy, model = Policy(), Policy()
    model.load_state_dict(policy.state_dict())
    worker = Worker(model)

    class Llm:
        def collective_rpc(self, method: str, args: tuple[Any, ...] = ()) -> list[Any]:
            return [getattr(worker, method)(*args)]

        def generate(self, *arguments: Any, **options: Any) -> list[Any]:
            model(torch.ones(1, 4))
            return []

    llm = Llm()
    assert weight_check(llm)(policy)
    with recording(llm, dump_path=str(tmp_path), trainer=policy):
        llm.generate([])
        with torch.no_grad():
            policy.head.weight.add_(1.0)
        llm.generate([])
    first, second = (read_json(tmp_path / f"step{step}" / "engine.json")["synchronisation"] for step in range(2))
    assert (first["findings"], second["findings"][0]["code"]) == ([], "T203")
    assert "head.weight" in capsys.readouterr().out
    PrecisionDebugger.reset()

"""Transformers: encoder-decoder, GPT, grouped queries with rotary positions, experts, LoRA, and the fast
path."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from .case import LossAndResults, Region, Results, TrainingCase, architecture, supervised
from .recurrent import predict_next, sequences


class EncoderDecoder(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.source = nn.Embedding(17, width)
        self.target = nn.Embedding(17, width)
        self.transformer = nn.Transformer(width, 4, 1, 2, 24, dropout=0.1, batch_first=True)
        self.head = nn.Linear(width, 17)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        padding = source == 0
        hidden = self.transformer(
            self.source(source) * math.sqrt(16),
            self.target(target),
            tgt_mask=causal,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return self.head(hidden)


@architecture()
def encoder_decoder() -> TrainingCase:
    def loss_of(model: nn.Module, source: torch.Tensor, target: torch.Tensor) -> LossAndResults:
        logits = model(source, target[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, 17), target[:, 1:].reshape(-1), ignore_index=0, label_smoothing=0.1)
        return loss, {"logits": logits}

    return supervised(EncoderDecoder(), sequences, loss_of)


class CausalBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(width, dim=2)
        q, k, v = (t.view(count, length, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.1 if self.training else 0.0)
        x = x + self.dropout(self.project(out.transpose(1, 2).contiguous().view(count, length, width)))
        return x + self.dropout(self.mlp(self.norm2(x)))


class GPT(nn.Module):
    """Learned positions, fused qkv, head tied to the token embedding."""

    def __init__(self, width: int = 16, layers: int = 2) -> None:
        super().__init__()
        self.tokens = nn.Embedding(17, width)
        self.positions = nn.Embedding(16, width)
        self.blocks = nn.ModuleList(CausalBlock(width, 4) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 17, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


@architecture()
def gpt_tied() -> TrainingCase:
    model = GPT()
    decayed = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}])
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=5)

    def run_step(i: int, region: Region) -> Results:
        optimizer.zero_grad(set_to_none=False)
        region.begin(model)
        loss, results = predict_next(model, *sequences(i))
        loss.backward()
        results["grad_norm"] = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        region.end()
        return {"loss": loss, **results}

    return TrainingCase(run_step, {"model": model, "optimizer": optimizer, "scheduler": scheduler})


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


class GroupedQueryBlock(nn.Module):
    def __init__(self, width: int = 16, heads: int = 4, groups: int = 2) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, groups * self.size, bias=False)
        self.v = nn.Linear(width, groups * self.size, bias=False)
        self.o = nn.Linear(width, width, bias=False)
        self.gate, self.up, self.down = nn.Linear(width, 24), nn.Linear(width, 24), nn.Linear(24, width)
        angles = torch.outer(torch.arange(16).float(), 10000 ** (-torch.arange(0, self.size, 2).float() / self.size))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count, length, _ = x.shape
        h = self.norm1(x)
        q, k, v = (p(h).unflatten(-1, (-1, self.size)).transpose(1, 2) for p in (self.q, self.k, self.v))
        cos, sin = self.cos[:length], self.sin[:length]
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = (t.repeat_interleave(self.heads // self.groups, dim=1) for t in (k, v))
        scores = (q @ k.mT) / math.sqrt(self.size)
        mask = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(mask, float("-inf")).softmax(-1, dtype=torch.float32).type_as(q)
        x = x + self.o((weights @ v).transpose(1, 2).reshape(count, length, -1))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


@architecture()
def gqa_rope() -> TrainingCase:
    model = nn.Sequential(
        nn.Embedding(17, 16), GroupedQueryBlock(), GroupedQueryBlock(), nn.RMSNorm(16), nn.Linear(16, 17)
    )
    return supervised(model, sequences, predict_next)


class MixtureOfExperts(nn.Module):
    """Top-2 routing with gather, index_add_ and a load-balancing loss kept on the side."""

    def __init__(self, width: int = 12, experts: int = 4) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 16), nn.SiLU(), nn.Linear(16, width)) for _ in range(experts)
        )
        self.balance = torch.zeros(())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.reshape(-1, x.shape[-1])
        probabilities = self.router(flat).softmax(-1)
        weights, chosen = probabilities.topk(2, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(flat)
        for index, expert in enumerate(self.experts):
            token, slot = torch.where(chosen == index)
            if token.numel() == 0:
                continue
            out.index_add_(0, token, expert(flat[token]) * weights[token, slot, None])
        share = F.one_hot(chosen, len(self.experts)).sum(1).float().mean(0)
        self.balance = (share * probabilities.mean(0)).sum() * len(self.experts)
        return x + out.view_as(x)


@architecture()
def moe_top_k() -> TrainingCase:
    layer = MixtureOfExperts()
    model = nn.Sequential(nn.Embedding(17, 12), layer, nn.LayerNorm(12), nn.Linear(12, 17))

    def loss_of(net: nn.Module, tokens: torch.Tensor, targets: torch.Tensor) -> LossAndResults:
        loss, results = predict_next(net, tokens, targets)
        return loss + 0.01 * layer.balance, {**results, "balance": layer.balance}

    return supervised(model, sequences, loss_of)


class LoRA(nn.Module):
    """A frozen linear layer with a trained low-rank correction."""

    def __init__(self, frozen: nn.Linear, rank: int = 2) -> None:
        super().__init__()
        self.frozen = frozen.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, frozen.in_features) / rank)
        self.up = nn.Parameter(torch.zeros(frozen.out_features, rank))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.frozen(x) + F.linear(F.linear(F.dropout(x, 0.1, self.training), self.down), self.up) * 0.5


@architecture()
def lora() -> TrainingCase:
    model = GPT().requires_grad_(False)
    for block in model.blocks:
        block.qkv = LoRA(block.qkv)
        block.mlp[0] = LoRA(block.mlp[0])
    trained = [p for p in model.parameters() if p.requires_grad]
    return supervised(model, sequences, predict_next, torch.optim.Adam(trained, lr=1e-2))


@architecture()
def multihead_attention_shared_input() -> TrainingCase:
    """One tensor passed as query, key and value; attention weights returned; also separate widths for key
    and value."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.alike = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True)
            self.cross = nn.MultiheadAttention(8, 2, kdim=4, vdim=6, add_bias_kv=True)
            self.head = nn.Linear(8, 3)

        def forward(self, x: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
            h, weights = self.alike(x, x, x, need_weights=True, average_attn_weights=False)
            h = (x + h).transpose(0, 1)
            out, cross_weights = self.cross(h, k, value=v)
            return self.head(out), weights, cross_weights

    def batch(i: int) -> tuple[torch.Tensor, ...]:
        generator = torch.Generator().manual_seed(i)
        return tuple(torch.randn(*shape, generator=generator) for shape in ((2, 5, 8), (4, 2, 4), (4, 2, 6)))

    def loss_of(model: nn.Module, *data: torch.Tensor) -> LossAndResults:
        out, weights, cross_weights = model(*data)
        return out.square().mean() + weights.var(), {"out": out, "weights": weights, "cross": cross_weights}

    return supervised(Model(), batch, loss_of)


@architecture()
def encoder_layer_fast_path() -> TrainingCase:
    """Train a transformer encoder, then evaluate under no_grad: there PyTorch takes a fused path, which it
    refuses when any function mode is active. The evaluation feeds the next step, so a lost bit would
    grow."""
    width = 16
    layer = nn.TransformerEncoderLayer(width, 4, 24, dropout=0.1, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 2), nn.Linear(width, 3))
    attention = nn.MultiheadAttention(width, 4, batch_first=True).eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    carried = torch.zeros(2, 5, width)

    def run_step(i: int, region: Region) -> Results:
        nonlocal carried
        generator = torch.Generator().manual_seed(i)
        x = torch.randn(2, 5, width, generator=generator) + carried
        optimizer.zero_grad()
        region.begin([model, attention])
        model.train()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        model.eval()
        padding = torch.zeros(2, 5, dtype=torch.bool)
        padding[1, 3:] = True
        with torch.no_grad():
            encoded = model[0](x)
            masked = model[0](x, src_key_padding_mask=padding)
            attended, _ = attention(x, x, x, need_weights=False)
        with torch.inference_mode():
            inferred = model(x)
        region.end()
        carried = 0.1 * encoded + 0.1 * attended
        return {
            "loss": loss,
            "encoded": encoded,
            "masked": masked,
            "attended": attended,
            "inferred": inferred,
        }

    return TrainingCase(run_step, {"model": model, "optimizer": optimizer})

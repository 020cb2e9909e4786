"""Eight networks of kinds that the others are not, written when limits stood; docs/figures.md says what they showed.

Windows of pictures that are shifted, filters of one channel each, a policy over a recurrent cell, bags of clicks, a
student beside its teacher, a picture that is bent, codes that are chosen, and a wave in dilated convolutions.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .other_networks import numbers

SIZE, HEADS, SIDE = 24, 3, 4


def _rows(tokens: torch.Tensor, count: int) -> torch.Tensor:
    """More sequences, made of those that there are."""
    return torch.cat([(tokens * (2 * number + 1) + 7 * number) % 61 for number in range(-(-count // len(tokens)))])[
        :count
    ]


class WindowBlock(nn.Module):
    """Attention in windows of four by four, with a table of biases by relative place."""

    def __init__(self, shift: int) -> None:
        super().__init__()
        self.shift = shift
        self.norm1, self.norm2 = nn.LayerNorm(SIZE), nn.LayerNorm(SIZE)
        self.qkv, self.out = nn.Linear(SIZE, 3 * SIZE), nn.Linear(SIZE, SIZE)
        self.up, self.down = nn.Linear(SIZE, 64), nn.Linear(64, SIZE)
        self.table = nn.Parameter(torch.randn((2 * SIDE - 1) ** 2, HEADS) * 0.1)
        places = torch.stack(torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")).flatten(1)
        apart = places[:, :, None] - places[:, None] + SIDE - 1
        self.register_buffer("place", (apart[0] * (2 * SIDE - 1) + apart[1]).flatten())

    def _attend(self, x: torch.Tensor) -> torch.Tensor:
        count, length, _ = x.shape
        q, k, v = self.qkv(x).view(count, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        bias = self.table[self.place].view(length, length, HEADS).permute(2, 0, 1)
        scores = (q * (SIZE // HEADS) ** -0.5) @ k.transpose(-1, -2) + bias
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(count, length, SIZE))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, side = len(x), x.shape[1]
        y = torch.roll(self.norm1(x), (-self.shift, -self.shift), (1, 2))
        y = y.view(batch, side // SIDE, SIDE, side // SIDE, SIDE, SIZE).transpose(2, 3)
        y = self._attend(y.reshape(-1, SIDE * SIDE, SIZE)).view(y.shape).transpose(2, 3).reshape(x.shape)
        x = x + torch.roll(y, (self.shift, self.shift), (1, 2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Windows(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch, self.head = nn.Conv2d(3, SIZE, 2, 2), nn.Linear(SIZE, 10)
        self.blocks = nn.ModuleList(WindowBlock(shift) for shift in (0, SIDE // 2))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.patch(numbers(tokens, 4, 3, 16, 16).to(self.patch.weight.dtype)).permute(0, 2, 3, 1)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(x.mean((1, 2))), _rows(tokens, 4)[:, 0] % 10, label_smoothing=0.1)


class Depthwise(nn.Module):
    """Filters of one channel each, norms over channels that stand last, and a response that is normalised globally."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, SIZE, 4, 4), nn.Linear(SIZE, 12)
        self.filters = nn.ModuleList(nn.Conv2d(SIZE, SIZE, 7, padding=3, groups=SIZE) for _ in range(3))
        self.norms = nn.ModuleList(nn.LayerNorm(SIZE) for _ in range(3))
        self.up = nn.ModuleList(nn.Linear(SIZE, 96) for _ in range(3))
        self.down = nn.ModuleList(nn.Linear(96, SIZE) for _ in range(3))
        self.scales = nn.ParameterList(torch.full((SIZE,), 0.3) for _ in range(3))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.stem(numbers(tokens, 6, 3, 32, 32).to(self.stem.weight.dtype))
        for filters, norm, up, down, scale in zip(
            self.filters, self.norms, self.up, self.down, self.scales, strict=True
        ):
            y = F.gelu(up(norm(filters(x).permute(0, 2, 3, 1))))
            size = torch.linalg.vector_norm(y.float(), dim=(1, 2), keepdim=True).to(y.dtype)
            y = y * (size / (size.mean(-1, keepdim=True) + 1e-6)) + y
            x = x + (down(y) * scale).permute(0, 3, 1, 2)
        target = (_rows(tokens, 6)[:, :1] % 12 == torch.arange(12)).float()
        return F.binary_cross_entropy_with_logits(self.head(F.adaptive_avg_pool2d(x, 1).flatten(1)).float(), target)


class Policy(nn.Module):
    """A recurrent cell over eight steps; its actions, their ratio that is cut off, values and entropy."""

    def __init__(self) -> None:
        super().__init__()
        self.seen, self.cell = nn.Linear(12, 32), nn.GRUCell(32, 32)
        self.action, self.value = nn.Linear(32, 5), nn.Linear(32, 1)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = numbers(tokens, 8, 10, 12).to(self.value.weight.dtype)
        state, taken = torch.zeros(10, 32, dtype=x.dtype), _rows(tokens, 10) % 5
        chosen, values, entropy = [], [], []
        for place, seen in enumerate(x):
            state = self.cell(torch.tanh(self.seen(seen)), state).to(x.dtype)
            likely = F.log_softmax(self.action(state), -1)
            chosen.append(likely.gather(1, taken[:, place : place + 1])[:, 0])
            values.append(self.value(state)[:, 0])
            entropy.append(-(likely.exp() * likely).sum(-1))
        now, value = torch.stack(chosen), torch.stack(values)
        better = numbers(tokens + 3, 8, 10).to(now.dtype)
        ratio = torch.exp(now - now.detach() + 0.1 * numbers(tokens + 5, 8, 10).to(now.dtype))
        surrogate = torch.min(ratio * better, ratio.clamp(0.9, 1.1) * better).mean()
        return 0.5 * F.huber_loss(value, better) - surrogate - 0.01 * torch.stack(entropy).mean()


class Clicks(nn.Module):
    """Bags of what was clicked, crosses of their numbers, and products of pairs by sums of squares."""

    def __init__(self) -> None:
        super().__init__()
        self.bag, self.single = nn.EmbeddingBag(61, 16, mode="sum"), nn.Embedding(61, 16)
        self.cross = nn.ModuleList(nn.Linear(80, 80) for _ in range(2))
        self.deep = nn.Sequential(
            *[nn.Linear(80, 64), nn.PReLU(), nn.LayerNorm(64), nn.Linear(64, 32), nn.Softplus()],
        )
        self.head = nn.Linear(112, 1)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        rows = _rows(tokens, 12)
        bag, single = self.bag(rows[:, :6]).to(self.head.weight.dtype), self.single(rows[:, 6:10])
        given = x = torch.cat((bag, single.flatten(1)), -1)
        pairs = (single.sum(1).square() - single.square().sum(1)).sum(-1, keepdim=True) * 0.5
        for cross in self.cross:
            x = given * cross(x) + x
        scores = self.head(torch.cat((x, self.deep(given)), -1)) + pairs
        return F.binary_cross_entropy_with_logits(scores[:, 0].float(), (rows[:, 10] % 2).float())


class Student(nn.Module):
    """A layer of PyTorch's own with dropouts of nothing, beside a teacher that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head, self.towards = nn.Embedding(61, 32), nn.Linear(32, 61), nn.Linear(32, SIZE)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, 0.0, activation="relu", batch_first=True, norm_first=True)
        self.teacher = nn.ModuleList(
            [nn.Embedding(61, SIZE), nn.GRU(SIZE, SIZE, batch_first=True), nn.Linear(SIZE, 61)]
        )
        self.teacher.requires_grad_(False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        rows = _rows(tokens, 12)
        x = self.layer(self.words(rows[:, :-1]))
        embedding, states, head = self.teacher
        with torch.no_grad():
            goal, _ = states(embedding(rows[:, :-1]))
            soft = F.softmax(head(goal) / 2, -1)
        scores = self.head(x)
        taught = F.kl_div(F.log_softmax(scores / 2, -1), soft, reduction="batchmean") * 4 / scores.shape[1]
        alike = F.cosine_similarity(self.towards(x), goal.to(x.dtype), dim=-1).mean()
        return taught + F.cross_entropy(scores.flatten(0, 1), rows[:, 1:].flatten()) + 0.3 * (1 - alike)


class Bent(nn.Module):
    """A picture is sampled where a flow says, made larger by its channels and smaller again, with a filter in depth."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.norm = nn.Conv2d(3, 16, 3, 1, 1), nn.InstanceNorm2d(16, affine=True)
        self.flow, self.up = nn.Conv2d(16, 2, 3, 1, 1), nn.Conv2d(16, 12, 3, 1, 1)
        self.depth, self.out = nn.Conv3d(2, 4, 3, padding=1), nn.Conv2d(8, 1, 1)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = numbers(tokens, 2, 3, 12, 12).to(self.into.weight.dtype)
        y = F.silu(self.norm(self.into(x)))
        grid = torch.stack(torch.meshgrid(*[torch.linspace(-1, 1, 12)] * 2, indexing="ij")[::-1], -1).to(y.dtype)
        grid = grid + (torch.tanh(self.flow(y)) * 0.2).permute(0, 2, 3, 1)
        larger = F.pixel_shuffle(self.up(F.grid_sample(y.float(), grid.float(), align_corners=True).to(y.dtype)), 2)
        smaller = F.interpolate(larger, size=(12, 12), mode="bicubic")
        z = self.out(self.depth(torch.stack((smaller[:, :2], smaller[:, 1:]), 2)).flatten(1, 2))
        return F.l1_loss(z.float(), x[:, :1].float()) + 0.1 * larger.diff(dim=-1).abs().mean()


class Chosen(nn.Module):
    """Numbers are replaced by the nearest code, with gradients that go past the choice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.codes = nn.Linear(20, 48), nn.Linear(48, 12), nn.Embedding(32, 12)
        self.third, self.norm, self.last = nn.Linear(12, 48), nn.RMSNorm(48), nn.Linear(48, 20)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = numbers(tokens, 64, 20).to(self.first.weight.dtype)
        z = self.second(F.mish(self.first(x)))
        code = self.codes(torch.cdist(z.float(), self.codes.weight.float()).argmin(-1))
        y = self.last(self.norm(F.celu(self.third(z + (code - z).detach()))))
        return F.mse_loss(y, x) + F.mse_loss(code, z.detach()) + 0.25 * F.mse_loss(code.detach(), z)


class Wave(nn.Module):
    """Dilated convolutions with gates, a weight that is normed, and a mixture over each number."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.steps = nn.Conv1d(1, 16, 1), (1, 2, 4)
        self.gates = nn.ModuleList(nn.Conv1d(16, 32, 2, dilation=step) for step in self.steps)
        self.past = nn.ModuleList(nn.Conv1d(16, SIZE, 1) for _ in self.steps)
        self.on = nn.ModuleList(nn.Conv1d(16, 16, 1) for _ in self.steps)
        self.out = nn.utils.parametrizations.weight_norm(nn.Conv1d(SIZE, 30, 1))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        wave = numbers(tokens, 3, 1, 40).to(self.into.weight.dtype)
        x, past = self.into(wave), []
        for step, gate, aside, on in zip(self.steps, self.gates, self.past, self.on, strict=True):
            y = F.glu(gate(F.pad(x, (step, 0))), 1)
            past.append(aside(y))
            x = x + on(y)
        middle, size, share = self.out(F.leaky_relu(sum(past)))[:, :, :-1].chunk(3, 1)
        size = size.clamp(-3, 3)
        likely = -(wave[:, :, 1:] - middle).abs() * torch.exp(-size) - size + F.log_softmax(share, 1)
        return -torch.logsumexp(likely, 1).mean()


TABLE: dict[str, str] = {
    "windows": """
        bmm scale 0.03   bmm lost-terms 4 1   addmm scale 0.02 2   addmm tile 4   mm last-rows 4 1
        _softmax scale 0.02   _softmax_backward_data scale 0.05   native_layer_norm scale 0.02
        native_layer_norm_backward no-means 0   gelu flushed 0.03   gelu_backward scale 0.05   index_put scale 0.05
    """,
    "depthwise": """
        convolution scale 0.02   convolution last-rows 4 1   convolution_backward scale 0.05 1
        addmm lost-terms 4   mm scale 0.03   native_layer_norm unbiased 0   native_layer_norm_backward scale 0.05
        gelu table 16   gelu_backward last-rows 4   linalg_vector_norm scale 0.05   mean scale 0.03 1
    """,
    "policy": """
        addmm scale 0.03   addmm tile 4 1   mm scale 0.05   tanh table 16   tanh_backward scale 0.05
        _log_softmax offset 0.03   _log_softmax_backward_data no-means 0   exp scale 0.03   sum scale 0.05 1
    """,
    "clicks": """
        addmm scale 0.02   addmm last-rows 4 1   mm lost-terms 4   native_layer_norm scale 0.02   softplus scale 0.03
        softplus_backward scale 0.05   sum scale 0.03 1   mul scale 0.03 1   embedding_dense_backward scale 0.05
    """,
    "student": """
        addmm scale 0.02 1   mm scale 0.03   bmm lost-terms 2   native_layer_norm epsilon 0.05   relu scale 0.03
        threshold_backward scale 0.05   _log_softmax offset 0.02   _softmax scale 0.03   addcdiv stale 0.2
    """,
    "bent": """
        convolution scale 0.02 1   convolution last-columns 1   convolution_backward scale 0.05
        grid_sampler_2d scale 0.03   grid_sampler_2d last-rows 2   upsample_bicubic2d scale 0.03
        native_batch_norm scale 0.03   tanh scale 0.03   silu table 8   pixel_shuffle last-columns 1
    """,
    "chosen": """
        addmm scale 0.02 2   mm lost-terms 4   mish scale 0.03   mish_backward scale 0.05   elu scale 0.03
        mse_loss scale 0.05   mse_loss_backward scale 0.05   rsqrt scale 0.02   embedding_dense_backward scale 0.05
    """,
    "wave": """
        convolution scale 0.02 1   convolution lost-terms 4   convolution_backward scale 0.05
        glu scale 0.03   glu_backward scale 0.05 1   _log_softmax scale 0.03   logsumexp scale 0.02   exp table 16
        leaky_relu scale 0.03   leaky_relu_backward scale 0.05
    """,
}

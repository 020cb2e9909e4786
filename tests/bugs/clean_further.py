"""Pairs in which nothing is wrong, of the diffusion model, of the recurrent layers and of the model of real size."""

from __future__ import annotations

from typing import Any

from bugs.patterns.further_model import CACHED
from bugs.planting import Edit, Pattern

AGREE = frozenset({"agree"})
QUIET = frozenset({"agree", "harmless"})

_STATE = "        self.model.load_state_dict(state)\n"
_TORCH_NN = "from torch import nn\n"
_CHECKPOINT = (_TORCH_NN, _TORCH_NN + "from torch.utils.checkpoint import checkpoint\n")
_CELLS = (
    "        states = []\n"
    "        for token in self.inner(x).unbind(1):\n"
    "            reset_in, update_in, new_in = token.chunk(3, dim=-1)\n"
    "            reset_state, update_state, new_state = self.hidden(state).chunk(3, dim=-1)\n"
    "            reset = torch.sigmoid(reset_in + reset_state)\n"
    "            update = torch.sigmoid(update_in + update_state)\n"
    "            new = torch.tanh(new_in + reset * new_state)\n"
    "            state = (1.0 - update) * new + update * state\n"
    "            states.append(state)\n"
    "        return torch.stack(states, dim=1)\n"
)
_EACH = (
    "        for number, expert in enumerate(self.experts):\n"
    "            rows, places = torch.where(chosen == number)\n"
    "            part = expert(flat[rows]) * shares[rows, places, None]\n"
    "            result = result.index_add(0, rows, part.to(result.dtype))\n"
)
_SHARED = "        weights = torch.zeros_like(chances).scatter(-1, chosen, shares.to(chances.dtype)).to(x.dtype)\n"


def clean_pair(
    name: str, title: str, *edits: tuple[str, str], expected: frozenset[str] = QUIET, bed: tuple[Edit, ...] = (),
    **more: Any,
) -> Pattern:  # fmt: skip
    """A pair whose candidate does the same in another form; ``expected``: the verdicts that are no false alarm."""
    plant = tuple(Edit(old, new) for old, new in edits)
    return Pattern(name, title, "clean", plant=plant, truth=(), bed=bed, expected=expected, **more)


def _images(name: str, title: str, *edits: tuple[str, str], **more: Any) -> Pattern:
    return clean_pair(name, title, *edits, program="images", **more)


def _recurrent(name: str, title: str, *edits: tuple[str, str], **more: Any) -> Pattern:
    return clean_pair(name, title, *edits, program="recurrent", **more)


def _large(name: str, title: str, *edits: tuple[str, str]) -> Pattern:
    return clean_pair(name, title, *edits, program="large", large=True, steps=1)


def _autocast(loss: str) -> tuple[str, str]:
    return loss, f'            with torch.autocast("cpu", torch.bfloat16):\n    {loss}'


FURTHER = (
    # -- the cache of keys and values
    clean_pair(
        "Y10",
        "a cache of keys and values that is put together",
        (
            "        keys[:, :, begin:end] = k\n        values[:, :, begin:end] = v\n",
            (
                "        keys = torch.cat([k, keys[:, :, end:]], dim=2)\n"
                "        values = torch.cat([v, values[:, :, end:]], dim=2)\n"
            ),
        ),
        bed=CACHED,
    ),
    # -- images
    _images(
        "Y01",
        "channels last in memory",
        (_STATE, _STATE + "        self.model.to(memory_format=torch.channels_last)\n"),
        # The same random numbers fall on other elements of a tensor that lies in memory in another order.
        settings={"dropout": 0.0},
    ),
    _images(
        "Y02",
        "convolution as a product with unfolded patches",
        (
            "        hidden = self.conv1(hidden)\n",
            (
                "        patches = self.conv1.weight.flatten(1) @ F.unfold(hidden, 3, padding=1)\n"
                "        hidden = patches.unflatten(2, hidden.shape[2:]) + self.conv1.bias[:, None, None]\n"
            ),
        ),
    ),
    _images(
        "Y03",
        "group norm written out",
        (
            "        x = self.norm(image).flatten(2).transpose(1, 2)\n",
            (
                "        parts = image.unflatten(1, (self.norm.num_groups, -1)).flatten(2)\n"
                "        centred = parts - parts.mean(dim=-1, keepdim=True)\n"
                "        spread = centred.square().mean(dim=-1, keepdim=True)\n"
                "        x = (centred / torch.sqrt(spread + self.norm.eps)).reshape(image.shape)\n"
                "        x = x * self.norm.weight[:, None, None] + self.norm.bias[:, None, None]\n"
                "        x = x.flatten(2).transpose(1, 2)\n"
            ),
        ),
    ),
    _images(
        "Y04",
        "fused attention in the diffusion model",
        (
            (
                "        scores = q @ k.transpose(-2, -1)\n"
                "        scores = scores * self.scale\n"
                "        if mask is not None:\n"
                "            scores = scores.masked_fill(~mask[:, None, None, :], torch.finfo(scores.dtype).min)\n"
                "        probs = torch.softmax(scores, dim=-1)\n"
                "        mixed = probs @ v\n"
            ),
            (
                "        seen = None if mask is None else mask[:, None, None, :]\n"
                "        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=self.scale)\n"
            ),
        ),
    ),
    _images(
        "Y05",
        "an image enlarged by repeating its pixels",
        (
            'x = F.interpolate(x, scale_factor=2.0, mode="nearest")',
            "x = x.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)",
        ),
    ),
    _images(
        "Y06",
        "every second pixel of a convolution with stride one",
        (
            "        return self.halve(x), x\n",
            "        return F.conv2d(x, self.halve.weight, self.halve.bias, padding=1)[:, :, ::2, ::2], x\n",
        ),
    ),
    _images(
        "Y07",
        "average of the weights by one call for all",
        (
            (
                "            for kept, parameter in zip(self.average, self.model.parameters(), strict=True):\n"
                "                kept.lerp_(parameter.to(kept.dtype), 1.0 - self.settings.ema)"
            ),
            (
                "            latest = [parameter.to(self.average[0].dtype) for parameter in self.model.parameters()]\n"
                "            torch._foreach_lerp_(self.average, latest, 1.0 - self.settings.ema)"
            ),
        ),
    ),
    _images(
        "Y08",
        "residual blocks recomputed",
        _CHECKPOINT,
        (
            "        x = self.residual(x, time)\n        x = self.transformer(x, words, mask)\n",
            (
                "        x = checkpoint(self.residual, x, time, use_reentrant=False)\n"
                "        x = self.transformer(x, words, mask)\n"
            ),
        ),
    ),
    _images(
        "Y09",
        "convolution of one pixel as a sum of products",
        (
            "        return self.shortcut(x) + hidden\n",
            (
                "        if isinstance(self.shortcut, nn.Identity):\n"
                "            return x + hidden\n"
                "        weight, bias = self.shortcut.weight[:, :, 0, 0], self.shortcut.bias\n"
                '        return torch.einsum("oi,bihw->bohw", weight, x) + bias[:, None, None] + hidden\n'
            ),
        ),
    ),
    _images("Y10", "fused form of the optimizer", ("eps=1e-8)", "eps=1e-8, fused=True)")),
    _images(
        "P11",
        "autocast to bfloat16 in the diffusion model",
        _autocast("            loss = self.loss(images, sketches, words)\n"),
        settings={"dropout": 0.0},
        precisions=("float32",),
    ),
    # -- recurrent layers and experts
    _recurrent(
        "Z01",
        "cells of the library instead of written out",
        (
            _CELLS,
            (
                "        states = []\n"
                "        weights = (self.inner.weight, self.hidden.weight, self.inner.bias, self.hidden.bias)\n"
                "        for token in x.unbind(1):\n"
                "            state = torch.gru_cell(token, state, *weights)\n"
                "            states.append(state)\n"
                "        return torch.stack(states, dim=1)\n"
            ),
        ),
    ),
    _recurrent(
        "Z02",
        "one call for all cells of a sequence",
        (
            _CELLS,
            (
                "        weights = [self.inner.weight, self.hidden.weight, self.inner.bias, self.hidden.bias]\n"
                "        return torch.gru(x, state[None], weights, True, 1, 0.0, self.training, False, True)[0]\n"
            ),
        ),
        settings={"dropout": 0.0},
    ),
    _recurrent(
        "Z03",
        "an LSTM token by token",
        (
            "        remembered, self.state = self.memory(told, self.begin(len(tokens), fresh, told.dtype))\n",
            (
                "        hidden, cell = (part[0] for part in self.begin(len(tokens), fresh, told.dtype))\n"
                "        weights = list(self.memory.parameters())\n"
                "        states = []\n"
                "        for token in told.unbind(1):\n"
                "            hidden, cell = torch.lstm_cell(token, (hidden, cell), *weights)\n"
                "            states.append(hidden)\n"
                "        remembered, self.state = torch.stack(states, dim=1), (hidden[None], cell[None])\n"
            ),
        ),
    ),
    _recurrent(
        "Z04",
        "every expert reads every token",
        (
            _EACH,
            _SHARED + "        for number, expert in enumerate(self.experts):\n"
            "            result = result + expert(flat) * weights[:, number, None]\n",
        ),
    ),
    _recurrent(
        "Z05",
        "experts in reverse order",
        (
            "        for number, expert in enumerate(self.experts):\n            rows",
            "        for number, expert in reversed(list(enumerate(self.experts))):\n            rows",
        ),
    ),
    _recurrent(
        "Z06",
        "one product for all experts",
        (
            _EACH,
            _SHARED
            + '        gate = torch.einsum("td,efd->etf", flat, torch.stack([e.gate.weight for e in self.experts]))\n'
            '        up = torch.einsum("td,efd->etf", flat, torch.stack([e.up.weight for e in self.experts]))\n'
            "        down = torch.stack([e.down.weight for e in self.experts])\n"
            '        parts = torch.einsum("etf,edf->etd", F.silu(gate) * up, down)\n'
            "        result = (parts * weights.t()[..., None]).sum(dim=0)\n",
        ),
    ),
    _recurrent(
        "Z07",
        "softmax over the chosen experts instead of a sum of one",
        (
            (
                "        shares, chosen = torch.topk(chances, self.chosen, dim=-1)\n"
                "        shares = shares / shares.sum(dim=-1, keepdim=True)\n"
            ),
            (
                "        best, chosen = torch.topk(logits, self.chosen, dim=-1)\n"
                "        shares = torch.softmax(best, dim=-1, dtype=torch.float32)\n"
            ),
        ),
    ),
    _recurrent(
        "Z08",
        "notes sorted by their length",
        (
            (
                "        packed = pack_padded_sequence(notes, lengths, batch_first=True, enforce_sorted=False)\n"
                "        _, last = self.gru(packed)\n"
            ),
            (
                "        order = lengths.argsort(descending=True, stable=True)\n"
                "        packed = pack_padded_sequence(notes[order], lengths[order], batch_first=True)\n"
                "        _, last = self.gru(packed)\n"
                "        last = last[:, order.argsort()]\n"
            ),
        ),
    ),
    _recurrent(
        "Z09",
        "blocks of cells and experts recomputed",
        _CHECKPOINT,
        ("            x = block(x, real)\n", "            x = checkpoint(block, x, real, use_reentrant=False)\n"),
    ),
    _recurrent("Z10", "foreach form of the optimizer", ("weight_decay=decay)", "weight_decay=decay, foreach=True)")),
    _recurrent(
        "P12",
        "autocast to bfloat16 in the recurrent layers",
        _autocast("            loss = self.loss(*piece, total)\n"),
        settings={"dropout": 0.0},
        precisions=("float32",),
    ),
    # -- a model of real size
    _large(
        "W01",
        "attention written out in a model of real size",
        (
            "        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.scale)\n",
            (
                "        scores = (q @ k.transpose(-2, -1)) * self.scale\n"
                "        seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()\n"
                '        mixed = torch.softmax(scores.masked_fill(~seen, float("-inf")), dim=-1) @ v\n'
            ),
        ),
    ),
    _large(
        "W02",
        "blocks of a model of real size recomputed",
        _CHECKPOINT,
        ("            x = block(x)\n", "            x = checkpoint(block, x, use_reentrant=False)\n"),
    ),
)

"""Bugs that public threads tell of, planted in the recurrent layers and in the experts."""

from __future__ import annotations

from bugs.planting import Edit, Pattern, answer

_CELL, _EXPERTS = "blocks.@layer.cell", "blocks.@layer.experts"
_NEW = "            new = torch.tanh(new_in + reset * new_state)\n"
_TOP = (
    "        shares, chosen = torch.topk(chances, self.chosen, dim=-1)\n"
    "        shares = shares / shares.sum(dim=-1, keepdim=True)\n"
)
_ROUTED = "        logits = self.router(flat)\n        chances = torch.softmax(logits, dim=-1, dtype=torch.float32)\n"
_STATE = "        self.model.load_state_dict(state)\n"
_NORMED = "        return self.weight * wide.to(x.dtype)\n"
#: Everything that a loss is computed from, in the types of mixed precision.
_AUTOCAST = (
    Edit(
        "            loss = self.loss(*piece, total)\n",
        '            with torch.autocast("cpu", torch.bfloat16):\n                loss = self.loss(*piece, total)\n',
    ),
)
#: The stream between the layers is bfloat16, too.
_LOW = (*_AUTOCAST, Edit("        x = self.embedding(tokens)\n", "        x = self.embedding(tokens).bfloat16()\n"))
#: Experts are chosen with a bias that evens out their use.
_BIASED = (
    Edit(
        _TOP,
        "        _, chosen = torch.topk(chances + self.bias, self.chosen, dim=-1)\n"
        "        shares = chances.gather(-1, chosen)\n"
        "        shares = shares / shares.sum(dim=-1, keepdim=True)\n",
    ),
    Edit(
        "        self.balance: torch.Tensor | None = None\n",
        "        self.balance: torch.Tensor | None = None\n"
        '        self.register_buffer("bias", torch.linspace(-0.3, 0.3, settings.experts))\n',
    ),
)


def _reported(name: str, title: str, source: str, **fields: object) -> Pattern:
    return Pattern(name, title, "threads", source=source, program="recurrent", **fields)  # type: ignore[arg-type]


PATTERNS = (
    _reported(
        "R01",
        "state reset before the product with the weights",
        "tracel-ai/burn#2704",
        plant=(
            Edit(
                _NEW,
                "            if self.index == @layer:\n"
                "                weight, bias = self.hidden.weight[-x.shape[-1] :], self.hidden.bias[-x.shape[-1] :]\n"
                "                new = torch.tanh(new_in + F.linear(reset * state, weight, bias))\n"
                "            else:\n"
                "                new = torch.tanh(new_in + reset * new_state)\n",
            ),
        ),
        truth=(
            answer("structure", "weight, bias = self.hidden.weight[", module=_CELL, occurrence="0 1"),
            answer("structure", "new = torch.tanh(new_in + reset * new_state)", module=_CELL, side="reference"),
            answer("structure argument data", "new = torch.tanh(new_in + F.linear(", module=_CELL),
        ),
        differs=frozenset({"loss"}),
    ),
    _reported(
        "R02",
        "bias of the new state outside of the reset",
        "apple/coremltools#1124",
        plant=(
            Edit(
                _NEW,
                "            if self.index == @layer:\n"
                "                bias = self.hidden.bias[-x.shape[-1] :]\n"
                "                new = torch.tanh(new_in + reset * (new_state - bias) + bias)\n"
                "            else:\n"
                "                new = torch.tanh(new_in + reset * new_state)\n",
            ),
        ),
        truth=(
            answer("structure", "bias = self.hidden.bias[", module=_CELL),
            answer("structure argument data", "new = torch.tanh(new_in + reset * (new_state", module=_CELL),
            answer("structure", "new = torch.tanh(new_in + reset * new_state)", module=_CELL, side="reference"),
        ),
        differs=frozenset({"loss"}),
    ),
    _reported(
        "R03",
        "reset and update gates in the order of another framework",
        "keras-team/keras#22115",
        plant=(
            Edit("reset_in, update_in, new_in = token", "update_in, reset_in, new_in = self.order(token"),
            Edit(
                "reset_state, update_state, new_state = self.hidden(state)",
                "update_state, reset_state, new_state = self.order(self.hidden(state)",
            ),
            Edit(".chunk(3, dim=-1)\n", ")\n", times=2),
            Edit(
                "    def forward(self, x: torch.Tensor) -> torch.Tensor:\n        state = x.new_zeros",
                "    def order(self, gates: torch.Tensor) -> tuple[torch.Tensor, ...]:\n"
                "        first, second, third = gates.chunk(3, dim=-1)\n"
                "        return (first, second, third) if self.index == @layer else (second, first, third)\n\n"
                "    def forward(self, x: torch.Tensor) -> torch.Tensor:\n        state = x.new_zeros",
            ),
        ),
        truth=(answer("argument data structure", "reset = torch.sigmoid(reset_in", module=_CELL, api="add|sigmoid"),),
        differs=frozenset({"loss"}),
    ),
    _reported(
        "R04",
        "gates of an LSTM loaded in the order of a file format",
        "CrispStrobe/CrispASR#106",
        plant=(
            Edit(
                _STATE,
                '        for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):\n'
                '            into, forget, new, out = state[f"memory.{name}"].chunk(4)\n'
                '            state[f"memory.{name}"] = torch.cat((into, out, forget, new))\n' + _STATE,
            ),
        ),
        truth=(
            answer("initial_weights", parameter=r"memory\.(weight|bias)_(ih|hh)_l0"),
            answer("initial_weights", "remembered, self.state = self.memory", api="lstm|LSTM"),
        ),
        differs=frozenset({"loss"}),
        blind=True,
    ),
    _reported(
        "R05",
        "padding read by a layer in both directions",
        "pytorch/pytorch#517",
        plant=(
            Edit(
                "        packed = pack_padded_sequence(notes, lengths, batch_first=True, enforce_sorted=False)\n"
                "        _, last = self.gru(packed)\n",
                "        _, last = self.gru(notes)\n",
            ),
        ),
        truth=(
            answer("structure", "packed = pack_padded_sequence(", side="reference", occurrence="0"),
            answer("structure argument data", "_, last = self.gru(", module="notes.gru"),
        ),
        differs=frozenset({"loss"}),
    ),
    _reported(
        "R06",
        "state kept where a new text begins",
        "thu-ml/tianshou#486",
        plant=(
            Edit("keep = (~fresh).to(dtype)[None, :, None]", "keep = torch.ones_like(fresh).to(dtype)[None, :, None]"),
        ),
        truth=(
            answer("structure", "keep = torch.ones_like(fresh)"),
            answer("structure", "keep = (~fresh)", side="reference"),
        ),
        same=frozenset(),
        differs=frozenset({"gradients"}),
        settings={"batch": 5},
    ),
    _reported(
        "R07",
        "state reset one piece too late",
        "paxcema/KerasGRU4Rec#1",
        plant=(
            Edit(
                "self.real[:, place], self.fresh[piece], self.notes[piece])",
                "self.real[:, place], self.fresh[piece - 1], self.notes[piece])",
            ),
        ),
        settings={"batch": 5},
        truth=(answer("argument data", "self.fresh[piece - 1]", api="getitem", occurrence="2 6"),),
    ),
    _reported(
        "R08",
        "shares of the chosen experts not brought to a sum of one",
        "pytorch/torchtitan#1448",
        plant=(
            Edit(
                "        shares = shares / shares.sum(dim=-1, keepdim=True)\n",
                "        if self.index != @layer:\n            shares = shares / shares.sum(dim=-1, keepdim=True)\n",
            ),
        ),
        truth=(answer("structure", "shares = shares / shares.sum", module=_EXPERTS, side="reference"),),
        differs=frozenset({"loss"}),
    ),
    _reported(
        "R09",
        "softmax over the chosen experts alone",
        "lablup/mlxcel#391",
        bed=(Edit("        shares = shares / shares.sum(dim=-1, keepdim=True)\n", ""),),
        plant=(
            Edit(
                "        shares, chosen = torch.topk(chances, self.chosen, dim=-1)\n",
                "        if self.index == @layer:\n"
                "            shares, chosen = torch.topk(logits, self.chosen, dim=-1)\n"
                "            shares = torch.softmax(shares, dim=-1, dtype=torch.float32)\n"
                "        else:\n"
                "            shares, chosen = torch.topk(chances, self.chosen, dim=-1)\n",
            ),
        ),
        truth=(
            answer("argument data structure", "shares, chosen = torch.topk(logits", module=_EXPERTS),
            answer("structure", "shares = torch.softmax(shares", module=_EXPERTS),
        ),
        differs=frozenset({"loss"}),
    ),
    _reported(
        "R10",
        "balance of the experts counts tokens that do not count",
        "huggingface/transformers#28505",
        plant=(
            Edit(
                "        weights = real.float() / real.sum()\n",
                "        weights = torch.ones(real.shape) / real.numel()\n",
            ),
        ),
        truth=(
            answer("structure", "weights = torch.ones(real", api="ones"),
            answer("structure", "weights = real.float() /", side="reference", api="float|sum"),
            answer("argument", "weights = torch.ones(real", api="div"),
        ),
        differs=frozenset({"loss"}),
    ),
    _reported(
        "R11",
        "experts weighted with the bias they are chosen with",
        "huggingface/transformers#41647",
        bed=_BIASED,
        plant=(
            Edit(
                "shares = chances.gather(-1, chosen)",
                "shares = (chances + self.bias if self.index == @layer else chances).gather(-1, chosen)",
            ),
        ),
        truth=(
            answer("structure", "shares = (chances + self.bias", module=_EXPERTS, api="add"),
            answer("argument data", "shares = (chances + self.bias", module=_EXPERTS, api="gather"),
        ),
        differs=frozenset({"loss"}),
    ),
    _reported(
        "R12",
        "chances rounded to the type of the layers before experts are chosen",
        "ViperEkura/AstrAI#57",
        bed=_AUTOCAST,
        plant=(
            Edit(
                "torch.topk(chances, self.chosen, dim=-1)",
                "torch.topk(chances.bfloat16().float() if self.index == @layer else chances, self.chosen, dim=-1)",
            ),
        ),
        truth=(answer("structure dtype argument data", "torch.topk(chances.bfloat16()", module=_EXPERTS),),
        differs=frozenset({"gradients"}),
    ),
    _reported(
        "R13",
        "product of the router in bfloat16",
        "vllm-project/vllm#14027",
        bed=(
            *_AUTOCAST,
            Edit(
                "        logits = self.router(flat)\n",
                '        with torch.autocast("cpu", torch.bfloat16, enabled=self.low):\n'
                "            logits = F.linear(flat.float(), self.router.weight.float())\n",
            ),
            Edit(
                "        self.index = index\n        self.count,",
                "        self.index, self.low = index, False\n        self.count,",
            ),
        ),
        plant=(Edit("self.index, self.low = index, False", "self.index, self.low = index, index == @layer"),),
        truth=(answer("dtype", "logits = F.linear(flat.float()", module=_EXPERTS, api="linear"),),
        differs=frozenset({"gradients"}),
    ),
    _reported(
        "R14",
        "learning rate advanced once for each process",
        "huggingface/transformers#24088",
        plant=(Edit("        self.schedule.step()\n", "        self.schedule.step()\n        self.schedule.step()\n"),),
        truth=(answer("optimizer argument", "        self.optimizer.step()", api="Optimizer", step=1),),
        same=frozenset({"loss", "gradients", "weights"}),
    ),
    _reported(
        "R15",
        "a norm rounded before it is multiplied with its weight",
        "google/gemma_pytorch#67",
        bed=(
            *_LOW,
            Edit(
                _NORMED,
                "        if self.late:\n"
                "            return (self.weight.float() * wide).to(x.dtype)\n"
                "        return self.weight.to(x.dtype) * wide.to(x.dtype)\n",
            ),
            Edit("        self.eps = eps\n", "        self.eps, self.late = eps, True\n"),
        ),
        plant=(
            Edit(
                "        self.norm2 = Norm(settings.width)\n",
                "        self.norm2 = Norm(settings.width)\n        self.norm2.late = index != @layer\n",
            ),
        ),
        truth=(
            answer("structure dtype", "return self.weight.to(x.dtype) * wide", module="blocks.@layer.norm2"),
            answer("structure", "return (self.weight.float() * wide)", module="blocks.@layer.norm2", side="reference"),
        ),
        differs=frozenset({"gradients"}),
    ),
    _reported(
        "R16",
        "gradients of the micro-batches summed in bfloat16",
        "deepspeedai/DeepSpeed#1800",
        bed=(
            Edit(
                "            loss.backward()\n",
                "            loss.backward()\n"
                "            for parameter in self.model.parameters():\n"
                "                kept = self.sums.setdefault(parameter, torch.zeros_like(parameter, dtype=self.kind))\n"
                "                kept.add_(parameter.grad)\n"
                "                parameter.grad = None\n",
            ),
            Edit(
                "        nn.utils.clip_grad_norm_(",
                "        for parameter in self.model.parameters():\n"
                "            parameter.grad = self.sums[parameter].to(parameter.dtype)\n"
                "        nn.utils.clip_grad_norm_(",
            ),
            Edit(
                "        self.optimizer.zero_grad()\n",
                "        self.optimizer.zero_grad()\n        self.sums: dict[nn.Parameter, torch.Tensor] = {}\n",
            ),
            Edit(
                "        self.losses: list[float] = []\n",
                "        self.losses: list[float] = []\n        self.kind = torch.float32\n",
            ),
        ),
        plant=(Edit("self.kind = torch.float32", "self.kind = torch.bfloat16"),),
        truth=(
            answer("argument dtype structure", "kept = self.sums.setdefault(", api="zeros_like"),
            answer("dtype argument", "kept.add_(parameter.grad)", api="add_"),
        ),
        same=frozenset({"loss"}),
        differs=frozenset({"weights"}),
    ),
)

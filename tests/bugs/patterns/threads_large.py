"""Bugs that public threads tell of, planted in a model of real size: small ones among some thousand calls."""

from __future__ import annotations

from bugs.planting import Edit, Pattern, answer

_BLOCK = "blocks.@layer"


def _reported(name: str, title: str, source: str, **fields: object) -> Pattern:
    return Pattern(name, title, "large", source=source, program="large", large=True, steps=1, **fields)  # type: ignore[arg-type]


PATTERNS = (
    _reported(
        "G01",
        "epsilon of one norm of 25",
        "keras-team/keras-hub#642",
        plant=(
            Edit(
                "self.norm@which = nn.LayerNorm(settings.width, eps=1e-5)",
                "self.norm@which = nn.LayerNorm(settings.width, eps=@eps if index == @layer else 1e-5)",
            ),
        ),
        choices={"which": ("1", "2"), "eps": ("1e-12", "1e-6")},
        truth=(answer("argument", module=f"{_BLOCK}.norm@which", api="layer_norm|Module"),),
        differs=frozenset({"gradients"}),
        harmless=None,
    ),
    _reported(
        "G02",
        "the exact form of gelu in one layer where the checkpoint has tanh",
        "OpenNMT/CTranslate2#1658",
        plant=(Edit('approximate="tanh"', 'approximate="none" if self.index == @layer else "tanh"'),),
        truth=(answer("argument", "x = F.gelu(", module=f"{_BLOCK}.feed"),),
        differs=frozenset({"gradients"}),
    ),
    _reported(
        "G03",
        "scores not divided by the number of their layer",
        "huggingface/transformers#44380",
        plant=(
            Edit(
                "math.sqrt(settings.width // settings.heads) / (index + 1)",
                "math.sqrt(settings.width // settings.heads)",
            ),
        ),
        truth=(answer("argument", "mixed = F.scaled_dot_product_attention(", module="blocks.1.attention"),),
        differs=frozenset({"loss"}),
    ),
    _reported(
        "G04",
        "loss not divided by the number of micro-batches",
        "karpathy/nanoGPT#168",
        plant=(Edit("        return loss / self.settings.micro_batches\n", "        return loss\n"),),
        # Clipped gradients would be the same.
        settings={"clip": 100.0},
        truth=(
            answer(
                "structure loss_scale", "return loss / self.settings.micro_batches", side="reference", occurrence="0"
            ),
        ),
        differs=frozenset({"loss", "gradients"}),
    ),
)

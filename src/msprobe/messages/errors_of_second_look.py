"""Mistakes in the use of `compare --second-look` (U194 to U199)."""

from __future__ import annotations

from msprobe.messages.entry import Message

# fmt: off
MESSAGES: tuple[Message, ...] = (
    Message(
        "U194", "second-look-no-step", "error:usage", "candidate reference",
        '--second-look: "{candidate}" and "{reference}" have no step and rank in common; compare two runs that have.',
        '--second-look："{candidate}" 与 "{reference}" 没有相同的 step 和 rank；请比对有相同部分的两次运行。', severity="error",
    ),
    Message(
        "U195", "second-look-no-call", "error:usage", "step folder",
        '--second-look: no call of step {step} of "{folder}" can be chosen: record calls (level L1 or mix) with this version on both sides.',
        '--second-look：无法从 "{folder}" 的 step {step} 中选出调用：两侧都需用本版本以 level L1 或 mix 采集。', severity="error",
    ),
    Message(
        "U196", "second-look-one-side", "error:usage", "folder recorded missing configuration",
        '--second-look: "{folder}" has a recording of the {recorded} and none of the {missing}; run that with "{configuration}", too.',
        '--second-look："{folder}" 只有{recorded}的数据，没有{missing}的数据；请用 "{configuration}" 再采集一次。', severity="error",
    ),
    Message(
        "U197", "second-look-other-step", "error:usage", "folder step rank configuration",
        '--second-look: "{folder}" has no step {step} of rank {rank}; record it with "{configuration}".',
        '--second-look："{folder}" 没有 rank {rank} 的 step {step}；请用 "{configuration}" 采集。', severity="error",
    ),
    Message(
        "U198", "second-look-mindspore", "error:usage", "dump",
        '--second-look: "{dump}" holds calls of MindSpore, which are not computed again; check them with `msprobe run_ut`.',
        '--second-look："{dump}" 中是 MindSpore 的调用，不能重新计算；请用 `msprobe run_ut` 检查。', severity="error",
    ),
    Message(
        "U199", "second-look-not-recorded", "error:usage", "folder",
        '--second-look: the recordings in "{folder}" have none of the doubtful calls; record both sides with its candidate.json and reference.json.',
        '--second-look："{folder}" 中的数据不含任何可疑调用；请用其中的 candidate.json 和 reference.json 采集两侧。', severity="error",
    ),
)

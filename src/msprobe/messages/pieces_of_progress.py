"""What commands say while they work, and short lines of their answers."""

from __future__ import annotations

from msprobe.messages.entry import Piece

# fmt: off
PIECES: tuple[Piece, ...] = (
    Piece(
        "job-of-jobs", "what number total",
        "{what}, {number} of {total}",
        "{what}，第 {number} 个，共 {total} 个",
    ),
    Piece("finding-of-verdict", "number", "finding {number} of verdict.json", "verdict.json 的第 {number} 个问题项"),
    Piece("further-stand-alone", "", "Further findings; each stands by itself", "其他问题项；各自独立"),
    Piece("further-may-follow", "", "Further findings; later ones may follow from earlier ones", "其他问题项；靠后的可能由靠前的引起"),
    Piece("origins-apart", "", "Origins, none of which explains any other", "各自独立的来源"),
    Piece("more-lines", "count", "and {count} more", "另有 {count} 项"),
    Piece("more-ways", "count", "and in {count} more ways", "另有 {count} 种途径"),
    Piece("how-it-spread", "", "How it spread", "如何传播"),
    Piece(
        "spread-to-rank", "ranks through then",
        "rank {ranks}: through {through}{then}",
        "rank {ranks}：经 {through}{then}",
    ),
    Piece(
        "first-to-compute-with-it", "call",
        "; {call} is the first to compute with it",
        "；最先用它计算的是 {call}",
    ),
    Piece("at-place", "place", " at {place}", "（{place}）"),
    Piece("records-searched", "count", "{count} records", "{count} 条记录"),
    Piece("call-in-step", "call step", "{call} in step {step}", "step {step} 的 {call}"),
    Piece(
        "put-right-agree", "call",
        "With {call} put right, loss and gradients agree: nothing else is needed.",
        "修正 {call} 后，损失与梯度一致：无需其他改动。",
    ),
    Piece(
        "put-right-agree-in-part", "call rest",
        "With {call} put right, loss and gradients agree in what could be read. {rest}",
        "修正 {call} 后，可读取部分的损失与梯度一致。{rest}",
    ),
    Piece(
        "put-right-incomparable", "call reason",
        "With {call} put right, the runs cannot be compared: {reason}.",
        "修正 {call} 后，两次运行无法比对：{reason}。",
    ),
    Piece(
        "put-right-still-differ", "call",
        "With {call} put right, loss and gradients still differ: something else is wrong, too.",
        "修正 {call} 后，损失与梯度仍不同：还有其他问题。",
    ),
    Piece("next-finding", "text", " Next: {text}.", " 下一个：{text}。"),
    Piece(
        "next-is-same-api", "",
        " That is the same API: put all its calls right with --every-call.",
        " 那是同一个 API：用 --every-call 修正它的全部调用。",
    ),
    Piece(
        "reference-of-framework", "framework",
        "it is of {framework}, and lockstep is for PyTorch",
        "它来自 {framework}，而 lockstep 用于 PyTorch",
    ),
    Piece(
        "reference-of-level", "level",
        "its level is {level}, and lockstep needs each call: level L1 or mix",
        "其 level 为 {level}，而 lockstep 需要每个调用：level L1 或 mix",
    ),
    Piece(
        "reference-without-tensors", "task",
        'its task is "{task}" and it has no tensors; record it with "task": "tensor"',
        '其 task 为 "{task}"，没有张量；请以 "task": "tensor" 采集',
    ),
    Piece(
        "not-in-reference", "word missing there",
        "{word} {missing} is not in it, it has {there}",
        "其中没有 {word} {missing}，只有 {there}",
    ),
    Piece("call-not-recorded", "", "it was not recorded", "它没有被采集"),
    Piece("no-layer-at-all", "", "no layer at all", "没有任何层"),
    Piece("gaps-one-side", "", "only one side has them", "只有一侧有"),
    Piece(
        "ranks-of-steps", "count total",
        "{count} of {total} ranks of steps",
        "{total} 个 step 的 rank 中的 {count} 个",
    ),
    Piece("behind-interruption", "", "what came after an interruption", "中断之后的部分"),
    Piece("calls-of-calls", "count total", "{count} of {total} calls", "{total} 个调用中的 {count} 个"),
    Piece("none-answers-to-them", "", "they have no partner", "它们没有对应"),
    Piece("dump-file-lacking", "file", "it has no {file}.", "其中没有 {file}。"),
    Piece("step-all-ranks", "step", "step {step}, all ranks", "step {step}，全部 rank"),
    Piece(
        "array-sizes-apart", "candidate reference",
        "one array has {candidate} elements, the other {reference}",
        "一个数组有 {candidate} 个元素，另一个有 {reference} 个",
    ),
    Piece("one-rank-at-a-time", "", "one rank at a time", "每次一个 rank"),
    Piece("no-files-read", "", "cannot be read", "无法读取"),
    Piece("see-the-notes", "", "see the notes", "见说明"),
    Piece("one-tensor-file", "", "1 tensor file", "1 个张量文件"),
    Piece("one-rank-of-steps", "", "1 rank of steps", "1 个 step 的 rank"),
    Piece("so-many-ranks-of-steps", "", "{} ranks of steps", "{} 个 step 的 rank"),
    Piece(
        "while-backward-agrees", "",
        ", while the gradients of the backward pass agree: a reduction over ranks, a scaling, or gradients of an earlier step",
        "，而反向得到的梯度一致：可能是跨 rank 的求和、缩放，或此前 step 的梯度",
    ),
    Piece("count-of-total", "number total", "{number} of {total}", "第 {number} 个，共 {total} 个"),
    Piece("ranks-all", "", "all ranks", "全部 rank"),
    Piece("one-step", "", "1 step", "1 个 step"),
    Piece("so-many-steps", "", "{} steps", "{} 个 step"),
    Piece("one-rank", "", "1 rank", "1 个 rank"),
    Piece("so-many-ranks", "", "{} ranks", "{} 个 rank"),
    Piece("so-many-tensor-files", "", "{} tensor files", "{} 个张量文件"),
    Piece("factor-undone-before", "", ", and the gradients at the optimizer agree: the factor is undone before", "，优化器得到的梯度一致：之前已被还原"),
    Piece("clipping-hides-factor", "", ", and so are the gradients after the backward pass; clipping hides it from the optimizer", "，反向之后的梯度也是如此；优化器处被裁剪掩盖"),
    Piece("or-between-modules", "", ", or what the model calculates between its modules", "，或模型在模块之间的计算"),
    Piece("exchange-kept-state", "", "exchange state that is kept", "交换了会保留下来的内容"),
    Piece("change-kept-state", "", "change state that is kept for the next step", "改变保留到下一个 step 的状态"),
    Piece("share-read", "", " in what could be read", "（能读取的部分）"),
    Piece("share-of-calls", "", "the calls that both record", "双方都采集的调用"),
    Piece("share-of-ranks-in-steps", "", "the ranks that both have in each step", "每个 step 中双方共有的 rank"),
)

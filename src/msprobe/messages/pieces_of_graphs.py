"""What stands in graph files and is said of layouts of graphs."""

from __future__ import annotations

from msprobe.messages.entry import Piece

# fmt: off
PIECES: tuple[Piece, ...] = (
    Piece(
        "summary-colour-means", "",
        "The largest relative error of Max, Min, Mean and Norm over all results: |debug - bench| / |bench|.",
        "全部结果的 Max、Min、Mean、Norm 中最大的相对误差：|debug - bench| / |bench|。",
    ),
    Piece(
        "all-colour-means", "",
        "Share of values within a thousandth of the bench: smallest of the inputs minus smallest of the outputs.",
        "与标杆侧相差千分之一以内的数值比例：输入中的最小值减去输出中的最小值。",
    ),
    Piece("graph-cut-off", "", "it was interrupted: what was still running has no record", "采集被中断：当时仍在运行的部分没有记录"),
    Piece("tip-max", "", "Debug minus bench: the largest value", "debug 减 bench：最大值"),
    Piece("tip-min", "", "Debug minus bench: the smallest value", "debug 减 bench：最小值"),
    Piece("tip-mean", "", "Debug minus bench: the mean", "debug 减 bench：均值"),
    Piece(
        "tip-norm", "",
        "Debug minus bench: the 2-norm (root of the sum of squares)",
        "debug 减 bench：2-范数（平方和的平方根）",
    ),
    Piece(
        "tip-md5", "",
        "Digest of the values: equal if and only if the values are",
        "数值的摘要：当且仅当数值相同时相同",
    ),
    Piece(
        "tip-cosine", "",
        "Cosine of the angle between both tensors; 1 is best, above 0.99 is usually fine",
        "两个张量夹角的余弦；1 最好，0.99 以上通常没有问题",
    ),
    Piece("tip-euclidean", "", "Euclidean distance of both tensors", "两个张量的欧氏距离"),
    Piece(
        "tip-max-absolute", "",
        "Largest absolute error; below 0.001 is usually fine",
        "最大绝对误差；0.001 以下通常没有问题",
    ),
    Piece(
        "tip-max-relative", "",
        "Largest relative error; infinite or NaN where the bench is 0 or NaN",
        "最大相对误差；bench 为 0 或 NaN 处为无穷或 NaN",
    ),
    Piece(
        "tip-thousandth", "",
        "Share of values whose relative error is below 0.001; 1 is best",
        "相对误差低于 0.001 的数值比例；1 最好",
    ),
    Piece(
        "tip-five-thousandths", "",
        "Share of values whose relative error is below 0.005; 1 is best",
        "相对误差低于 0.005 的数值比例；1 最好",
    ),
    Piece("no-partner-on-other-side", "", "No partner on the other side", "另一侧没有对应"),
    Piece("rated-by-rules", "level", "Rated {level} by the rules of 26.2", "按 26.2 的规则评为 {level}"),
    Piece("all-digests-agree", "", "All digests are those of the bench", "摘要全部与标杆侧相同"),
    Piece("a-digest-differs", "", "A digest differs from that of the bench", "有摘要与标杆侧不同"),
    Piece("step-and-rank", "step rank", "step {step} rank {rank}", "step {step} rank {rank}"),
    Piece("not-finite-in-debug", "", "NaN or infinities on the debug side only.", "只有 debug 侧有 NaN 或无穷。"),
    Piece("node-requires-grad-differs", "", "requires_grad differs.", "requires_grad 不同。"),
    Piece("node-dtype-differs", "", "The dtype differs.", "dtype 不同。"),
    Piece("node-shape-differs", "", "The shape differs.", "shape 不同。"),
    Piece("node-value-differs", "", "The value differs.", "值不同。"),
    Piece("node-digest-differs", "", "The digest differs.", "摘要不同。"),
    Piece(
        "norm-off-by-half", "",
        "The norm is off by more than half, and those of the inputs by less than 0.1.",
        "范数偏差超过一半，而输入的范数偏差小于 0.1。",
    ),
    Piece(
        "norm-off-ten-times", "",
        "The norm is off ten times as much as those of the inputs.",
        "范数偏差是输入的十倍。",
    ),
    Piece(
        "thousandths-lost", "",
        "Nine tenths of the inputs are within a thousandth, less than a tenth of the output is.",
        "输入有九成在千分之一以内，而输出不到一成。",
    ),
    Piece(
        "cosine-lower-than-inputs", "",
        "The cosine is lower than those of the inputs by more than 0.1.",
        "余弦比输入低 0.1 以上。",
    ),
    Piece("layout-field-required", "name", "{name} is required", "必须给出 {name}"),
    Piece(
        "layout-number-wrong", "name value",
        "{name} must be a whole number above 0, found {value}",
        "{name} 必须为大于 0 的整数，现为 {value}",
    ),
    Piece(
        "layout-order-form", "example value",
        "order must be of lower-case words with hyphens, as {example}, found {value}",
        "order 必须为以连字符连接的小写词，例如 {example}，现为 {value}",
    ),
    Piece(
        "layout-order-names", "value",
        "order must name tp and pp, found {value}",
        "order 必须包含 tp 与 pp，现为 {value}",
    ),
    Piece(
        "larger-than-rank-size", "name size total",
        "{name} {size} is larger than rank_size {total}",
        "{name} {size} 大于 rank_size {total}",
    ),
    Piece(
        "no-multiple-of", "total name size",
        "rank_size {total} is no multiple of {name} {size}",
        "rank_size {total} 不是 {name} {size} 的整数倍",
    ),
    Piece(
        "tp-times-pp-too-large", "tp pp total",
        "tp {tp} times pp {pp} is larger than rank_size {total}",
        "tp {tp} 乘 pp {pp} 大于 rank_size {total}",
    ),
    Piece(
        "tp-times-pp-no-divisor", "total tp pp",
        "rank_size {total} is no multiple of tp {tp} times pp {pp}",
        "rank_size {total} 不是 tp {tp} 乘 pp {pp} 的整数倍",
    ),
    Piece("vpp-needs-pp", "", "vpp above 1 needs pp above 1", "vpp 大于 1 时 pp 必须大于 1"),
    Piece(
        "partial-sum-merged", "tensor reduction",
        "{tensor}: a partial sum on each rank; the result of {reduction} stands for it",
        "{tensor}：各 rank 各有一个部分和；以 {reduction} 的结果代替",
    ),
    Piece(
        "no-stack-of", "name",
        "No stack of {name} is recorded, nor of its forward call.",
        "{name} 及其前向调用都没有采集调用栈。",
    ),
)

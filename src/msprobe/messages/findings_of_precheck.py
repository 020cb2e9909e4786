"""What the pre-check finds in the results of a call (P3)."""

from __future__ import annotations

from msprobe.messages.entry import Message, Piece

# fmt: off
MESSAGES: tuple[Message, ...] = (
    Message(
        "P302", "result-kinds-differ", "finding:precheck", "candidate reference",
        "the candidate gives a value of type {candidate}, the reference one of type {reference}.",
        "待比对侧给出类型为 {candidate} 的值，标杆侧为 {reference}。", severity="finding",
    ),
    Message(
        "P303", "result-shapes-differ", "finding:precheck", "candidate reference",
        "the shapes differ: {candidate}, in the reference {reference}.",
        "shape 不同：{candidate}，标杆侧为 {reference}。", severity="finding",
    ),
    Message(
        "P305", "value-differs", "finding:precheck", "candidate reference",
        "{candidate!r} instead of {reference!r}.",
        "结果为 {candidate!r}，标杆侧为 {reference!r}。", severity="finding",
    ),
    Message(
        "P306", "complex-not-judged", "finding:precheck", "dtype",
        "complex results ({dtype}) cannot be compared by this standard.",
        "此标准不能比较复数结果（{dtype}）。", severity="finding",
    ),
    Message(
        "P307", "result-types-differ", "finding:precheck", "candidate reference",
        "the types differ: {candidate}, in the reference {reference}.",
        "类型不同：{candidate}，标杆侧为 {reference}。", severity="finding",
    ),
    Message(
        "P308", "types-not-comparable", "finding:precheck", "candidate reference",
        "cannot compare {candidate} with {reference}.",
        "无法比较 {candidate} 与 {reference}。", severity="finding",
    ),
    Message(
        "P309", "share-off-by-a-unit", "finding:precheck", "share",
        "{share:.6g} of the elements are off by more than one unit in the last place.",
        "占比 {share:.6g} 的元素误差超过末位的一个单位。", severity="finding",
    ),
    Message(
        "P310", "share-differs", "finding:precheck", "share",
        "{share:.6g} of the elements differ.",
        "占比 {share:.6g} 的元素不同。", severity="finding",
    ),
    Message(
        "P312", "one-side-is-zero", "finding:precheck", "",
        "all elements of one side are zero, those of the other are not.",
        "一侧的元素全部为零，另一侧不是。", severity="finding",
    ),
    Message(
        "P313", "cosine-too-small", "finding:precheck", "cosine limit",
        "cosine {cosine:.6g} is not above {limit}.",
        "余弦相似度 {cosine:.6g} 未超过 {limit}。", severity="finding",
    ),
    Message(
        "P314", "too-few-are-near", "finding:precheck", "share limit least",
        "{share:.6g} of the elements have a relative error below {limit}; required: more than {least}.",
        "相对误差小于 {limit} 的元素占比为 {share:.6g}；必须超过 {least}。", severity="finding",
    ),
    Message(
        "P315", "few-are-near", "finding:precheck", "share limit least",
        "{share:.6g} of the elements have a relative error below {limit}; expected: more than {least}.",
        "相对误差小于 {limit} 的元素占比为 {share:.6g}；预期超过 {least}。", severity="warning",
    ),
    Message(
        "P316", "rms-error-too-large", "finding:precheck", "candidate trusted control factor constant",
        "the root mean square error is {candidate:.3g}; allowed: {factor:g} times that of {trusted} ({control:.3g}) plus {constant:g}.",
        "均方根误差为 {candidate:.3g}；允许：{trusted}（{control:.3g}）的 {factor:g} 倍加 {constant:g}。", severity="finding",
    ),
    Message(
        "P317", "infinities-elsewhere", "finding:precheck", "",
        "infinities or NaN are not at the same places.",
        "无穷大或 NaN 的位置不同。", severity="finding",
    ),
    Message(
        "P318", "largest-difference-too-large", "finding:precheck", "difference limit",
        "the largest difference {difference:.6g} is not below {limit:.3g}.",
        "最大差值 {difference:.6g} 不小于 {limit:.3g}。", severity="finding",
    ),
    Message(
        "P319", "copies-not-exact", "finding:precheck", "count total place candidate reference",
        "{count} of {total} elements are not exact copies of input values or the constant, though this call only moves or selects them; the worst at {place}: {candidate:.9g} instead of {reference:.9g}.",
        "{total} 个元素中有 {count} 个不是输入值或常数的精确拷贝，而此调用只搬移或选择元素；误差最大处 {place}：为 {candidate:.9g}，应为 {reference:.9g}。", severity="finding",
    ),
    Message(
        "P320", "off-beyond-rounding", "finding:precheck", "count total place candidate reference times scale",
        "{count} of {total} elements are off by more than rounding explains; the worst at {place}: {candidate:.9g} instead of {reference:.9g}, {times:.3g} times its scale of {scale:.3g}.",
        "{total} 个元素中有 {count} 个的误差超过舍入可解释的范围；误差最大处 {place}：为 {candidate:.9g}，应为 {reference:.9g}，是其尺度 {scale:.3g} 的 {times:.3g} 倍。", severity="finding",
    ),
    Message(
        "P321", "special-values-differ", "finding:precheck", "what where candidate reference place count total",
        "{what} {where}: {candidate:g} instead of {reference:g} at {place}, {count} such elements of {total}.",
        "{where}有 {what}：{place} 处为 {candidate:g}，应为 {reference:g}；{total} 个元素中有 {count} 个如此。", severity="finding",
    ),
    Message(
        "P322", "beyond-tolerance", "finding:precheck", "count total rtol atol place candidate reference",
        "{count} of {total} elements are off by more than {rtol:g} of the reference and {atol:g}; the worst at {place}: {candidate:.9g} instead of {reference:.9g}.",
        "{total} 个元素中有 {count} 个的误差超过标杆值的 {rtol:g} 加 {atol:g}；误差最大处 {place}：为 {candidate:.9g}，应为 {reference:.9g}。", severity="finding",
    ),
    Message(
        "P324", "whole-numbers-differ", "finding:precheck", "count total place candidate reference",
        "{count} of {total} elements differ; the first at {place}: {candidate} instead of {reference}.",
        "{total} 个元素中有 {count} 个不同；首个在 {place}：为 {candidate}，应为 {reference}。", severity="finding",
    ),
    Message(
        "P325", "scaled-one-way", "finding:precheck", "what percent way errors",
        "{what} is {percent:.3g} % too {way} on the whole, by {errors:.0f} standard errors: rounding has no direction.",
        "{what}整体偏{way} {percent:.3g} %，即 {errors:.0f} 个标准误差：舍入没有方向性。", severity="finding",
    ),
    Message(
        "P326", "shifted-one-way", "finding:precheck", "what bias way share errors",
        "{what} is {bias:.3g} too {way} on the mean{share}, by {errors:.0f} standard errors: rounding has no direction.",
        "{what}平均偏{way} {bias:.3g}{share}，即 {errors:.0f} 个标准误差：舍入没有方向性。", severity="finding",
    ),
    Message(
        "P327", "rounded-one-way", "finding:precheck", "percent way",
        "{percent:.3g} % of the elements are not rounded to the nearest number, and all of these are rounded {way}, which adds up over a training.",
        "{percent:.3g} % 的元素没有舍入到最接近的数，且全部{way}舍入，在训练中会累积。", severity="warning",
    ),
    Message(
        "P328", "pooled-one-way", "finding:precheck", "count name percent way errors",
        "over {count} calls {name} is {percent:.3g} % too {way}, by {errors:.0f} standard errors: rounding has no direction.",
        "{count} 次调用合计，{name} 偏{way} {percent:.3g} %，即 {errors:.0f} 个标准误差：舍入没有方向性。", severity="finding",
    ),
    Message(
        "P329", "errors-go-one-way", "finding:precheck", "",
        "its errors go one way.",
        "其误差偏向一侧。", severity="finding",
    ),
    Message(
        "P333", "random-types-differ", "finding:precheck", "dtype shape reference_dtype reference_shape",
        "random: {dtype} {shape} instead of {reference_dtype} {reference_shape}.",
        "随机：为 {dtype} {shape}，应为 {reference_dtype} {reference_shape}。", severity="finding",
    ),
    Message(
        "P334", "random-not-finite", "finding:precheck", "",
        "random: NaN or infinity only on the candidate.",
        "随机：仅待比对侧有 NaN 或无穷大。", severity="finding",
    ),
    Message(
        "P336", "random-statistic-off", "finding:precheck", "what errors limit",
        "random: {what} is {errors:.3g} standard errors off ({limit:g} allowed).",
        "随机：{what}偏离 {errors:.3g} 个标准误差（允许 {limit:g}）。", severity="finding",
    ),
    Message(
        "P338", "random-values-differ", "finding:precheck", "",
        "random: all draws of the reference have the same values; the candidate has different ones.",
        "随机：标杆侧每次抽取的值都相同，待比对侧的值不同。", severity="finding",
    ),
    Message(
        "P339", "random-rows-repeat", "finding:precheck", "count",
        "random: {count} rows have a number twice, those of the reference never.",
        "随机：{count} 行中有重复的数，标杆侧没有。", severity="finding",
    ),
    Message(
        "P341", "random-relation-broken", "finding:precheck", "count total relation place candidate argument",
        "random: {count} of {total} elements do not have the relation to the argument that the reference has ({relation}); the first at {place}: {candidate:.9g} for {argument:.9g}.",
        "随机：{total} 个元素中有 {count} 个与参数的关系不同于标杆侧（{relation}）；首个在 {place}：参数 {argument:.9g} 得到 {candidate:.9g}。", severity="finding",
    ),
    Message(
        "P343", "random-gradient-differs", "finding:precheck", "count total place candidate",
        "random: {count} of {total} elements of the gradient do not belong to what the forward drew; the first at {place}: {candidate:.9g}.",
        "随机：梯度的 {total} 个元素中有 {count} 个与前向的抽取不符；首个在 {place}：{candidate:.9g}。", severity="finding",
    ),
    Message(
        "P344", "random-gradient-is", "finding:precheck", "count total place candidate reference",
        "random: {count} of {total} elements of the gradient do not belong to what the forward drew; the first at {place}: {candidate:.9g} instead of {reference:.9g}.",
        "随机：梯度的 {total} 个元素中有 {count} 个与前向的抽取不符；首个在 {place}：为 {candidate:.9g}，应为 {reference:.9g}。", severity="finding",
    ),
    Message(
        "P346", "backward-is-no-derivative", "finding:precheck", "expected place path found",
        "the backward is not the derivative of the forward: {expected:.9g} for {place} of argument {path}; finite differences give {found:.9g}.",
        "反向不是前向的导数：参数 {path} 的{place}为 {expected:.9g}；有限差分给出 {found:.9g}。", severity="finding",
    ),
    Message(
        "P359", "result-counts-differ", "finding:precheck", "candidate reference",
        "the candidate gives {candidate} results, the reference {reference}.",
        "待比对侧给出 {candidate} 个结果，标杆侧给出 {reference} 个。", severity="finding",
    ),
    Message(
        "P360", "recorded-counts-differ", "finding:precheck", "recorded reference",
        "the record has {recorded} results, the reference {reference}.",
        "记录有 {recorded} 个结果，标杆侧给出 {reference} 个。", severity="finding",
    ),
    Message(
        "P366", "output-not-deterministic", "finding:precheck", "place run runs",
        "output {place} differs in run {run} of {runs}: not deterministic.",
        "输出 {place} 在 {runs} 次运行的第 {run} 次不同：不确定性计算。", severity="warning",
    ),
    Message(
        "P367", "gradient-not-deterministic", "finding:precheck", "path run",
        "gradient of {path} differs in run {run}: not deterministic.",
        "{path} 的梯度在第 {run} 次运行不同：不确定性计算。", severity="warning",
    ),
    Message(
        "P377", "overflow-is-abnormal", "finding:precheck", "key",
        "The {key} overflow is an abnormal overflow.",
        "{key} 的溢出是异常溢出。", severity="finding",
    ),
)

PIECES: tuple[Piece, ...] = (
    Piece("pooled-too-far", "count percent way", "over {count} calls it is {percent:.3g} % too {way}", "{count} 次调用合计偏{way} {percent:.3g} %"),
    Piece("only-on-device", "", "only on the device", "仅设备侧"),
    Piece("only-in-reference", "", "only in the reference", "仅标杆侧"),
    Piece("of-different-kind", "", "of a different kind", "两侧的特殊值不同，设备侧"),
    Piece("an-infinity", "", "infinity", "无穷大"),
    Piece("way-large", "", "large", "大"),
    Piece("way-small", "", "small", "小"),
    Piece("whole-result", "", "the result", "结果"),
    Piece("each-element", "", "each element", "每个元素"),
    Piece("each-element-of", "place", "each element of {place}", "{place} 的每个元素"),
    Piece("positive-elements", "", "the positive part of the result", "结果中为正的元素"),
    Piece("negative-elements", "", "the negative part of the result", "结果中为负的元素"),
    Piece("of-typical-element", "percent", ", {percent:.3g} % of the typical element", "（典型元素的 {percent:.3g} %）"),
    Piece("way-toward-zero", "", "toward zero", "向零"),
    Piece("way-from-zero", "", "away from zero", "背离零"),
    Piece("way-down", "", "down", "向下"),
    Piece("way-up", "", "up", "向上"),
    Piece("trusted-control", "", "the control", "对照"),
    Piece("trusted-eager", "", "eager", "eager"),
    Piece("statistic-mean", "", "the mean", "均值"),
    Piece("statistic-spread", "", "the spread", "离散程度"),
    Piece("statistic-share-up-to", "edge", "the share of elements up to {edge:.4g}", "不大于 {edge:.4g} 的元素占比"),
    Piece("statistic-zeros", "", "the share of zeros", "零的占比"),
    Piece("statistic-different", "", "the number of different values", "不同值的个数"),
    Piece("statistic-neighbours", "", "the correlation of neighbours", "相邻元素的相关性"),
    Piece("statistic-argument", "number", "the correlation with argument {number}", "与参数 {number} 的相关性"),
    Piece("statistic-chosen", "statistic", "{statistic} of the chosen elements", "被选元素的{statistic}"),
    Piece("statistic-zeros-along", "dimension", "the correlation of zeros along dimension {dimension}", "沿维度 {dimension} 的零的相关性"),
    Piece("statistic-mean-or-zeros", "", "mean or share of zeros", "均值或零的占比"),
    Piece("relation-or", "first second", "{first} or {second}", "{first} 或 {second}"),
    Piece("element-number", "number", "element {number}", "元素 {number}"),
    Piece("elements-and-others", "places", "elements {places} and others", "元素 {places} 等"),
)

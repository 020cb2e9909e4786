"""What the page says of single rows and files, in Chinese."""

from __future__ import annotations

PAGE: dict[str, str] = {
    "only the {} has this step and rank": "仅{0}有这个 step 与 rank",
    "it runs inside {}, which only the {} runs": "它在 {0} 内运行，而后者仅{1}有",
    "its forward call {} is made by the {} only": "它的前向调用 {0} 仅{1}有",
    "the {} recorded no backward call for the forward call that it belongs to": "{0}没有采集与其前向对应的反向调用",
    "the {} was interrupted before it came to this call": "{0}在执行到该调用之前中断",
    "the {} has {} here, which stands elsewhere in the order of calls or takes other shapes": "{0}在这里是 {1}，调用次序或 shape 不同",
    "the {} makes one more call of {} here than the {}": "{0}在这里比{2}多调用一次 {1}",
    "the {} does not call {} here": "{0}在这里没有调用 {1}",
    "another dtype": "dtype 不同",
    "another shape": "shape 不同",
    "other strides": "步长不同",
    "requires a gradient on one side only": "仅一侧需要梯度",
    "another value": "值不同",
    " ({}, in the reference {})": "（{0}，标杆侧 {1}）",
    "{} is born here: what goes in does not hold it": "{0}在此产生：输入中没有",
    "what it gives follows from a choice that rounding may decide otherwise": "其结果取决于一个可能因舍入而改变的选择",
    "gradients that cancel to nothing but rounding are not measured": "相互抵消到只剩舍入误差的梯度不作衡量",
    "its end was not recorded: the recording was interrupted inside it": "没有采集到它的结束：采集在其内部中断",
    "it was matched by what it computes, not by its name": "按计算内容而不是名称匹配",
    "the recording": "采集",
    "the {}": "{0}",
    "{} was interrupted in this step: what it recorded until then is shown": "{0}在本 step 中断：显示中断前的采集内容",
    "{} holds no record of this step": "{0}没有本 step 的记录",
    "{} pairs were made by hand": "手动匹配了 {0} 对",
    "{} pairs made by hand name calls that are not recorded here": "手动匹配中有 {0} 对的名称在这里没有采集",
    "1 step or rank is not in this file; msprobe view shows all": "有 1 个 step 或 rank 不在此文件中；msprobe view 可显示全部",
    "{} steps or ranks are not in this file; msprobe view shows all": "有 {0} 个 step 或 rank 不在此文件中；msprobe view 可显示全部",
}

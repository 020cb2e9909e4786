"""What messages of the recorder mean, what usually causes them, what to do."""

from __future__ import annotations

from msprobe.messages.entry import Topic

# fmt: off
TOPICS: dict[str, Topic] = {
    "note:recording": Topic(
        meaning=("what the recorder records from here on, or where the records are",
            "此后采集的内容，或记录所在的位置"),
        cause=("The recorder reached a point of which the settings or the program say how to go on.",
            "采集到达了由配置或程序决定如何继续的位置。"),
        advice=("Nothing has to be done. If more or less should be recorded, change level, task, step, list or scope in config.json.",
            "无需处理。如需采集更多或更少，请修改 config.json 的 level、task、step、list 或 scope。"),
    ),
    "warning:recording": Topic(
        meaning=("the recording goes on, and something is missing from it or a setting has no effect",
            "采集继续进行，但缺少部分内容，或某项设置没有作用"),
        cause=("A filter that matches nothing, a setting or argument of a different framework or level, a call out of order, or a version of the framework without what the recorder needs.",
            "过滤条件没有匹配、设置或参数属于其他框架或 level、调用次序不对，或框架版本缺少采集所需的功能。"),
        advice=("Read what is missing; if the comparison needs it, correct the field or the call that the message names, and record again.",
            "请查看缺少的内容；如果比对需要它，请更正消息指出的字段或调用后重新采集。"),
    ),
    "error:fault": Topic(
        meaning=("the recorder failed at something; the training goes on unchanged, and this is missing from the dump",
            "采集器的某一步失败；训练照常进行，dump 中缺少这部分内容"),
        cause=("A tensor or module of a kind that the recorder does not handle, a full disk, or a fault of msprobe.",
            "采集器不支持的张量或模块、磁盘已满，或 msprobe 自身的缺陷。"),
        advice=("See dump_error_info.log in the dump for the details; report it if the disk is not the reason.",
            "详情见 dump 中的 dump_error_info.log；若与磁盘无关，请反馈。"),
    ),
    "warning:listener": Topic(
        meaning=("a listener gets no events, or no further ones; the training and the other listeners go on",
            "某个监听者收不到事件，或不再收到事件；训练和其他监听者不受影响"),
        cause=("Its Wants match no module and no call, its method raised an error, or it changed something that its `changes` do not name.",
            "其 Wants 没有匹配任何模块或调用、其方法抛出错误，或它改变了 `changes` 没有列出的内容。"),
        advice=("Correct the names in its Wants, its method or its `changes`; MSPROBE_LOG_LEVEL=0 shows where its method failed.",
            "请更正其 Wants 中的名称、其方法或 `changes`；MSPROBE_LOG_LEVEL=0 可显示方法出错的位置。"),
    ),
    "note:run": Topic(
        meaning=("how `msprobe run` divides the script into steps",
            "`msprobe run` 如何把脚本划分为 step"),
        cause=("The script evaluates before, between or after its trainings, or trains without calling modules.",
            "脚本在训练之前、之间或之后做评估，或训练时不调用模块。"),
        advice=("If steps begin or end elsewhere, give --step-on backward, optimizer:NAME or call:FUNCTION.",
            "如果 step 在别处开始或结束，请给出 --step-on backward、optimizer:NAME 或 call:FUNCTION。"),
    ),
    "warning:run": Topic(
        meaning=("`msprobe run` does not record all of what the script starts, or not as it was asked",
            "`msprobe run` 没有采集脚本启动的全部内容，或没有按要求采集"),
        cause=("The script has a debugger of its own, starts further programs or processes, or its launcher starts ranks in a way that cannot be followed.",
            "脚本有自己的 debugger、启动了其他程序或进程，或启动器以无法跟随的方式启动 rank。"),
        advice=("Start what has to be recorded with `python -m msprobe run` in front of it and a --dump-path of its own.",
            "请在启动需要采集的程序时把 `python -m msprobe run` 放在最前，并给出单独的 --dump-path。"),
    ),
    "note:benchmark": Topic(
        meaning=("what task free_benchmark checked, and what it did not",
            "task free_benchmark 检查了哪些内容，哪些没有检查"),
        cause=("A call whose result changes more under a perturbation than rounding explains, or a call that cannot be made again.",
            "扰动后结果的变化超出舍入所能解释的调用，或无法重复执行的调用。"),
        advice=("Look at free_benchmark_summary.csv: it names each API with its risks, or why it was not checked.",
            "请查看 free_benchmark_summary.csv：其中列出每个 API 的风险，或未检查的原因。"),
    ),
    "warning:config": Topic(
        meaning=("a field of the configuration has no effect, or not the effect that was asked for",
            "配置的某个字段没有作用，或没有按要求起作用"),
        cause=("The field is of a different task or section, is there twice, or its name has a mistake.",
            "该字段属于其他 task 或配置段、出现两次，或名称有误。"),
        advice=("Correct or remove the field that the message names; docs/configuration.md has all fields.",
            "请更正或删除消息指出的字段；docs/configuration.md 列出了所有字段。"),
    ),
}

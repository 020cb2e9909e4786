"""What errors mean, what usually causes them, what to do: by what the user has to look at."""

from __future__ import annotations

from msprobe.messages.entry import Topic

# fmt: off
TOPICS: dict[str, Topic] = {
    "error:files": Topic(
        meaning=("a file or folder cannot be used",
            "文件或文件夹无法使用"),
        cause=("A wrong path, missing permissions, a full disk, or a file that is damaged or of another program.",
            "路径错误、没有权限、磁盘已满，或文件损坏、属于其他程序。"),
        advice=("Correct the path or its permissions, make space, or choose another folder. Limits on files of others can be raised with --limit.",
            "更正路径或权限、腾出空间，或选择其他文件夹。对外来文件的上限可用 --limit 提高。"),
    ),
    "error:dump": Topic(
        meaning=("a dump, or a file in it, cannot be read or written",
            "dump 或其中的文件无法读取或写入"),
        cause=("The folder is not that of a dump, the recording was killed, files were moved, or another process writes to the same folder.",
            "文件夹不是 dump、采集被终止、文件被移动，或另一个进程写入同一文件夹。"),
        advice=("Give the folder that the recorder named at its end; `msprobe summary DUMP` shows what it holds. Record into a folder of its own.",
            "请给出采集结束时显示的文件夹；`msprobe summary DUMP` 可显示其内容。每次采集使用单独的文件夹。"),
    ),
    "error:recording": Topic(
        meaning=("the recorder was asked for something that it cannot do",
            "采集器收到无法执行的要求"),
        cause=("A wrong argument, a level or task that the framework does not have, or a call out of order.",
            "参数错误、框架没有该 level 或 task，或调用次序不对。"),
        advice=("Correct the argument or the field of config.json that the message names.",
            "请更正消息指出的参数或 config.json 字段。"),
    ),
    "error:input": Topic(
        meaning=("the inputs of a comparison or a check do not fit",
            "比对或检查的输入不合适"),
        cause=("Paths of the wrong kind, two runs without a common step, or a dump without values.",
            "路径种类不对、两次运行没有共同的 step，或 dump 没有数值。"),
        advice=("Give the inputs that the message asks for, or record again as it says.",
            "请给出消息要求的输入，或按提示重新采集。"),
    ),
    "error:page": Topic(
        meaning=("the page cannot show or do this",
            "页面无法显示或执行此操作"),
        cause=("A file that is no result of msprobe, a port in use, or records that cannot be matched.",
            "文件不是 msprobe 的结果、端口被占用，或记录无法匹配。"),
        advice=("Give a dump, a verdict.json or a graph file; choose another port with --port.",
            "请给出 dump、verdict.json 或图文件；用 --port 选择其他端口。"),
    ),
    "error:lockstep": Topic(
        meaning=("a run in lockstep, or a confirmation, is not possible with these inputs",
            "这些输入无法进行 lockstep 运行或确认"),
        cause=("The reference was recorded without tensors, or the finding names no call of both runs.",
            "标杆侧没有采集张量，或问题项没有指出两侧都有的调用。"),
        advice=("Record the reference with task tensor, and choose a finding that names a call of both sides.",
            "请以 task tensor 采集标杆侧，并选择指出两侧都有的调用的问题项。"),
    ),
    "error:usage": Topic(
        meaning=("the command line is wrong",
            "命令行有误"),
        cause=("An option is missing, belongs to another form of the command, or has a value that is not allowed.",
            "缺少选项、选项属于命令的另一种形式，或值不被允许。"),
        advice=("Correct the option that the message names; `msprobe COMMAND -h` explains all of them.",
            "请更正消息指出的选项；`msprobe COMMAND -h` 有全部说明。"),
    ),
    "error:checkpoint": Topic(
        meaning=("a checkpoint, a configuration or a script of a training cannot be read or compared",
            "训练的检查点、配置或脚本无法读取或比对"),
        cause=("A file that is damaged, of another program or of a different layout, or two inputs of different kinds.",
            "文件损坏、属于其他程序或其他切分方式，或两个输入不是同一种。"),
        advice=("Give the file or folder that the message asks for; save the checkpoint anew if it is damaged.",
            "请给出消息要求的文件或文件夹；检查点若已损坏，请重新保存。"),
    ),
    "error:monitor": Topic(
        meaning=("the monitor, or a tool that reads what it wrote, cannot do what was asked",
            "监控或读取监控结果的工具无法完成所要求的内容"),
        cause=("A wrong field of its configuration, a call out of order, or a file that the monitor did not write.",
            "配置字段有误、调用次序不对，或文件不是监控写出的。"),
        advice=("Correct the field, the argument or the path that the message names.",
            "请更正消息指出的字段、参数或路径。"),
    ),
    "error:precheck": Topic(
        meaning=("a call cannot be made again, or its result cannot be judged",
            "调用无法重新执行，或其结果无法判定"),
        cause=("A dump without values, an operator or a device that is missing here, or a wrong option.",
            "dump 没有数值、此处缺少算子或设备，或选项有误。"),
        advice=("Record with task tensor, install what is missing, or correct the option that the message names.",
            "请以 task tensor 采集、安装缺少的内容，或更正消息指出的选项。"),
    ),
    "finding:precheck": Topic(
        meaning=("a result of a call differs from a trusted computation of the same call by more than rounding explains",
            "调用的结果与可信的同一计算不同，且超过舍入可解释的范围"),
        cause=("A wrong kernel, a lower precision than the type has, a device fault, or numbers that are always rounded one way.",
            "错误的算子实现、低于该类型的精度、设备故障，或总是向一侧舍入。"),
        advice=("Run the script that the summary names (`msprobe op_generate`): it runs this call alone, also with other kernels and on other devices.",
            "请运行汇总中给出的脚本（`msprobe op_generate`）：它单独执行此调用，也可使用其他算子实现和设备。"),
    ),
    "note:precheck": Topic(
        meaning=("a call, or one result of it, has no verdict, or a verdict of a special kind",
            "调用或其某个结果没有判定，或以特殊方式判定"),
        cause=("The record lacks what is needed to run the call again, the call draws random numbers, or a list of the configuration excludes it.",
            "记录缺少重新执行调用所需的内容、调用使用随机数，或被配置中的列表排除。"),
        advice=("Nothing where the call is not in question; otherwise record it with task tensor at level L1 or mix.",
            "若不怀疑此调用，则无需处理；否则请以 task tensor、level L1 或 mix 采集。"),
    ),
    "warning:work": Topic(
        meaning=("the work went on, and something was left out or done differently",
            "工作继续进行，但有内容被略过或以其他方式处理"),
        cause=("A file, an entry or a side lacks what the others have, or a setting cannot be followed here.",
            "某个文件、条目或一侧缺少其他有的内容，或此处无法按设置执行。"),
        advice=("Read what was left out; repair the input and run again if the answer needs it.",
            "请查看略过的内容；如果结果需要它，请修复输入后重新运行。"),
    ),
}

"""What msprobe doctor and msprobe demo say."""

from __future__ import annotations

from msprobe.messages.entry import Piece

# fmt: off
PIECES: tuple[Piece, ...] = (
    Piece(
        "doctor-python", "version python system machine",
        "msprobe {version}, Python {python}, {system} {machine}",
        "msprobe {version}，Python {python}，{system} {machine}",
    ),
    Piece(
        "doctor-no-neighbours", "",
        "no other package owns files or a command of the name msprobe",
        "没有其他包拥有名为 msprobe 的文件或命令",
    ),
    Piece(
        "doctor-neighbour-owns-files", "package version count files",
        "{package} {version} is installed beside msprobe-debugger: it owns {count} of its files, too ({files}, ...), and its uninstallation deletes them",
        "{package} {version} 与 msprobe-debugger 同时安装：它也拥有后者的 {count} 个文件（{files} 等），卸载它会删除这些文件",
    ),
    Piece(
        "doctor-neighbour-owns-name", "package version",
        "{package} {version} is installed beside msprobe-debugger: it owns the name msprobe, too, and the order of the package folders decides which of them is imported",
        "{package} {version} 与 msprobe-debugger 同时安装：它也使用名称 msprobe，由包目录的次序决定导入哪一个",
    ),
    Piece(
        "doctor-files-damaged", "count first",
        "{count} files of this package are missing or were overwritten, the first is {first}",
        "本包有 {count} 个文件缺失或被覆盖，第一个是 {first}",
    ),
    Piece(
        "doctor-files-whole", "folder",
        "all files of the package are there, in {folder}",
        "本包的文件齐全，位于 {folder}",
    ),
    Piece(
        "doctor-call-or-activate", "path",
        "call {path}, or activate the environment",
        "调用 {path}，或激活环境",
    ),
    Piece(
        "doctor-call-module", "python",
        "call {python} -m msprobe",
        "调用 {python} -m msprobe",
    ),
    Piece(
        "doctor-not-on-path", "",
        "the command msprobe is not on the PATH",
        "PATH 中没有命令 msprobe",
    ),
    Piece(
        "doctor-command-of-other", "path module",
        "the command {path} is that of a different package: it imports {module}",
        "命令 {path} 属于其他包：它导入 {module}",
    ),
    Piece(
        "doctor-command-elsewhere", "path python",
        "the command on the PATH is {path}; this one runs with {python}",
        "PATH 中的命令是 {path}；当前由 {python} 运行",
    ),
    Piece(
        "doctor-command-is", "path",
        "the command is {path}",
        "命令是 {path}",
    ),
    Piece(
        "doctor-extension-in-use", "",
        "the C extension is in use",
        "C 扩展在使用中",
    ),
    Piece(
        "doctor-install-wheel", "command",
        "install a wheel of this platform, or a C compiler, then: {command}",
        "安装适合本平台的 wheel，或安装 C 编译器，然后：{command}",
    ),
    Piece(
        "doctor-elements-not-built", "",
        "the extension that compares tensors was not built",
        "比较张量的扩展没有编译",
    ),
    Piece(
        "doctor-extension-not-in-use", "why",
        "the C extension is not in use: {why}; all results are the same and take longer",
        "C 扩展未在使用：{why}；结果相同，耗时更长",
    ),
    Piece(
        "doctor-no-framework", "",
        "neither PyTorch nor MindSpore is installed: recordings can be read and compared, but not made",
        "PyTorch 和 MindSpore 都没有安装：可以读取和比对采集结果，但不能采集",
    ),
    Piece(
        "doctor-torch-too-old", "version",
        "torch {version}: recording needs 2.1 or newer",
        "torch {version}：采集需要 2.1 或更新的版本",
    ),
    Piece(
        "doctor-torch-with-numpy", "version numpy",
        "torch {version} does not work with numpy {numpy}",
        "torch {version} 不能与 numpy {numpy} 一起使用",
    ),
    Piece(
        "doctor-torch-npu", "plug_in version",
        "torch_npu {plug_in} is made for a different torch than {version}",
        "torch_npu {plug_in} 适配的 torch 版本不是 {version}",
    ),
    Piece(
        "doctor-install-torch-npu", "version",
        "install the torch_npu for torch {version}",
        "安装适配 torch {version} 的 torch_npu",
    ),
    Piece(
        "doctor-torch", "version numpy",
        "torch {version}, numpy {numpy}",
        "torch {version}，numpy {numpy}",
    ),
    Piece(
        "doctor-torch-and-npu", "version plug_in numpy",
        "torch {version} with torch_npu {plug_in}, numpy {numpy}",
        "torch {version}，torch_npu {plug_in}，numpy {numpy}",
    ),
    Piece(
        "doctor-mindspore-with-numpy", "version numpy",
        "MindSpore {version} with numpy {numpy}: tensors in bfloat16 and numbers of numpy fail",
        "MindSpore {version} 与 numpy {numpy}：bfloat16 张量和 numpy 的数会出错",
    ),
    Piece(
        "doctor-mindspore-untried", "version",
        "MindSpore {version}: msprobe was tried with 2.7 and newer",
        "MindSpore {version}：msprobe 在 2.7 及更新的版本上验证过",
    ),
    Piece(
        "doctor-mindspore-on-python", "version python",
        "MindSpore {version} on Python {python}: it is made for 3.10 to 3.12",
        "MindSpore {version} 运行在 Python {python} 上：它适配 3.10 到 3.12",
    ),
    Piece(
        "doctor-mindspore", "version numpy",
        "MindSpore {version}, numpy {numpy}",
        "MindSpore {version}，numpy {numpy}",
    ),
    Piece(
        "doctor-extras-there", "",
        "all optional packages are there",
        "可选的包齐全",
    ),
    Piece(
        "doctor-extras-missing", "listed",
        "not installed: {listed}",
        "未安装：{listed}",
    ),
    Piece(
        "doctor-folder-not-writable", "folder reason",
        "{folder} cannot be written: {reason}",
        "无法写入 {folder}：{reason}",
    ),
    Piece(
        "doctor-choose-folder", "",
        "choose a different folder",
        "请选择其他文件夹",
    ),
    Piece(
        "doctor-folder-writable", "folder free",
        "{folder} can be written, {free:.1f} GB are free",
        "{folder} 可写，剩余 {free:.1f} GB",
    ),
    Piece(
        "doctor-torch-never-ends", "seconds",
        "`import torch` has not ended after {seconds:g} s",
        "`import torch` 在 {seconds:g} 秒后仍未结束",
    ),
    Piece(
        "doctor-torch-ended", "status",
        "`import torch` ended the process with status {status}",
        "`import torch` 以状态 {status} 结束了进程",
    ),
    Piece(
        "doctor-reinstall", "",
        "reinstall the package that fails to import",
        "请重新安装导入失败的包",
    ),
    Piece(
        "doctor-sound", "",
        "\nThis installation is sound.",
        "\n该安装没有问题。",
    ),
    Piece(
        "doctor-errors", "count",
        "\n{count} to be put right.",
        "\n有 {count} 处需要修正。",
    ),
    Piece(
        "demo-trains-twice", "folder script",
        "A small GPT is trained twice in {folder}: {script}, and a copy in which one line differs:\n",
        "在 {folder} 中训练一个小型 GPT 两次：{script}，以及只有一行不同的副本：\n",
    ),
    Piece(
        "demo-both-learn", "",
        "Both seem to learn, and neither crashed.\n",
        "两者看起来都在学习，也都没有崩溃。\n",
    ),
    Piece(
        "demo-page", "page",
        "The page of this comparison, one file for any browser:\n  {page}\n",
        "本次比对的页面，单个文件，可用任意浏览器打开：\n  {page}\n",
    ),
    Piece(
        "demo-with-your-script", "settings",
        "The same with your own script, three commands (the candidate is the run in doubt, the reference the one you trust):\n  msprobe run --config {settings} --dump-path reference -- train.py\n  msprobe run --config {settings} --dump-path candidate -- train.py\n  msprobe compare candidate reference -o comparison --html",
        "用您自己的脚本执行同样的三条命令（待比对侧是有疑问的运行，标杆侧是可信的运行）：\n  msprobe run --config {settings} --dump-path reference -- train.py\n  msprobe run --config {settings} --dump-path candidate -- train.py\n  msprobe compare candidate reference -o comparison --html",
    ),
    Piece(
        "doctor-devices", "devices",
        "torch computes on the {devices}",
        "torch 可在 {devices} 上计算",
    ),
)

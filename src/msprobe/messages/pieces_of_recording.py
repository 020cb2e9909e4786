"""Pieces of what the recorder says."""

from __future__ import annotations

from msprobe.messages.entry import Piece

# fmt: off
PIECES: tuple[Piece, ...] = (
    Piece(
        "listener-wrote-tensor", "",
        "it wrote to a tensor of the program, which listeners must not do",
        "它改写了程序的张量，监听者不得这样做",
    ),
    Piece(
        "listener-may-not-change", "what call reason",
        "it may not change the {what} of {call}: {reason}",
        "它不能改变 {call} 的 {what}：{reason}",
    ),
    Piece(
        "sizes-and-strides-differ", "sizes strides",
        "{sizes} sizes, but {strides} strides",
        "有 {sizes} 个 size，却有 {strides} 个 stride",
    ),
    Piece(
        "sizes-negative", "",
        "sizes and strides cannot be negative",
        "size 和 stride 不能为负",
    ),
    Piece(
        "memory-of-no-address", "count address",
        "{count} bytes at address {address}",
        "地址 {address} 处有 {count} 字节",
    ),
    Piece(
        "result-is-argument", "",
        "its result is one of its arguments, which cannot be replaced",
        "其结果是它的一个参数，不能替换",
    ),
    Piece(
        "replacement-differs", "what own given",
        "the {what} is {own}, and the value given for it is {given}",
        "{what} 为{own}，给出的值为{given}",
    ),
    Piece(
        "function-watched-already", "function",
        "{function} is watched already",
        "{function} 已在监听中",
    ),
    Piece(
        "gradient-shares-of-type", "kind",
        "shares of a gradient of type {kind} cannot be added",
        "类型为 {kind} 的梯度份额不能相加",
    ),
    Piece(
        "gradient-shares-distributed", "",
        "shares of a gradient that are distributed in several ways cannot be added",
        "分布方式不同的梯度份额不能相加",
    ),
    Piece(
        "replaced-result-of-type", "own given",
        "the result is a {own}, and the value given for it is a {given}",
        "结果为 {own}，给出的值为 {given}",
    ),
    Piece(
        "written-shape-differs", "given own",
        "the values to write have shape {given}, the tensor {own}",
        "要写入的值 shape 为 {given}，张量为 {own}",
    ),
    Piece(
        "replaced-gradient-not-plain", "",
        "the value given for the gradient is no plain tensor",
        "为梯度给出的值不是普通张量",
    ),
    Piece(
        "replaced-gradient-device", "own given",
        "the gradient is on {own}, and the value given for it on {given}",
        "梯度位于 {own}，给出的值位于 {given}",
    ),
    Piece(
        "api-groups-wrong", "found",
        "found {found}; allowed: groups, each with a list of names",
        "实际为 {found}；允许：若干分组，每组一个名称列表",
    ),
    Piece(
        "api-group-unknown", "near groups",
        "no such group{near}; allowed: {groups}",
        "没有该分组{near}；允许：{groups}",
    ),
    Piece(
        "api-names-wrong", "found",
        "found {found}; allowed: a list of names",
        "实际为 {found}；允许：名称列表",
    ),
    Piece(
        "api-name-wrong", "found",
        "found {found}; allowed: the name of a function",
        "实际为 {found}；允许：一个函数名",
    ),
    Piece(
        "api-name-unknown", "found group near",
        "found {found}; {group} has no function of this name{near}",
        "实际为 {found}；{group} 没有该名称的函数{near}",
    ),
    Piece(
        "custom-file-names", "found",
        "found {found}; allowed: a list of names of functions",
        "实际为 {found}；允许：函数名列表",
    ),
    Piece(
        "custom-file-modules", "found",
        "found {found}; allowed: modules, each with a list of names",
        "实际为 {found}；允许：若干模块，每个模块一个名称列表",
    ),
    Piece(
        "changer-answer-of-class", "kind expected",
        "it returned a {kind}, not {expected}(...)",
        "它返回 {kind}，而不是 {expected}(...)",
    ),
    Piece(
        "changer-does-not-name-what", "what",
        "its `changes` do not name {what}",
        "其 `changes` 没有列出 {what}",
    ),
    Piece(
        "changer-does-not-name-call", "",
        "its `changes` do not name it",
        "其 `changes` 没有列出它",
    ),
    Piece(
        "changer-gradient-fixed", "",
        "this gradient cannot be replaced (event.can_be_replaced)",
        "该梯度不能替换（event.can_be_replaced）",
    ),
    Piece(
        "dump-enable-is-off", "",
        'the configuration says "dump_enable": false',
        '配置中 "dump_enable" 为 false',
    ),
    Piece(
        "filter-list-item", "name",
        'list item "{name}"',
        'list 项 "{name}"',
    ),
    Piece(
        "filter-scope-start", "name",
        'scope start "{name}"',
        'scope 起点 "{name}"',
    ),
    Piece(
        "filter-scope-end", "name",
        'scope end "{name}"',
        'scope 终点 "{name}"',
    ),
    Piece(
        "wants-text-for-list", "value",
        "{value!r} is a text: give several in brackets, as ({value!r},)",
        "{value!r} 是文本：请用括号给出多个，例如 ({value!r},)",
    ),
    Piece(
        "wants-list-of-texts", "field value",
        "{field} must be a list of texts, found {value!r}",
        "{field} 必须是文本列表，实际为 {value!r}",
    ),
    Piece(
        "save-name-wrong", "name kind",
        "name must be a str, found {name!r} ({kind})",
        "name 必须是 str，实际为 {name!r}（{kind}）",
    ),
    Piece(
        "save-backward-wrong", "name value",
        "save_backward of {name!r} must be True or False, found {value!r}",
        "{name!r} 的 save_backward 必须是 True 或 False，实际为 {value!r}",
    ),
    Piece(
        "save-allowed", "",
        "a tensor, int, float, bool, str, or a list, tuple or dict (with str keys) of them and of None",
        "张量、int、float、bool、str，或由它们和 None 组成的 list、tuple、dict（键为 str）",
    ),
    Piece(
        "save-none", "where allowed",
        "{where} is None; allowed: {allowed}",
        "{where} 为 None；允许：{allowed}",
    ),
    Piece(
        "save-too-deep", "where limit",
        "{where} is nested deeper than {limit}",
        "{where} 的嵌套深度超过 {limit}",
    ),
    Piece(
        "save-key-wrong", "where key",
        "{where} has the key {key!r}, keys must be str",
        "{where} 含键 {key!r}，键必须是 str",
    ),
    Piece(
        "save-type-wrong", "where kind allowed",
        "{where} is of type {kind}; allowed: {allowed}",
        "{where} 的类型为 {kind}；允许：{allowed}",
    ),
    Piece(
        "seed-wrong", "limit found",
        "seed must be an int from 0 to {limit}, found {found!r}",
        "seed 必须是 0 到 {limit} 的整数，实际为 {found!r}",
    ),
    Piece(
        "flag-wrong", "name found",
        "{name} must be True or False, found {found!r}",
        "{name} 必须是 True 或 False，实际为 {found!r}",
    ),
    Piece(
        "dropout-removed", "",
        "removed (as by default; rm_dropout=False keeps it)",
        "已移除（默认；rm_dropout=False 可保留）",
    ),
    Piece(
        "dropout-kept", "",
        "kept",
        "保留",
    ),
    Piece(
        "tensor-of-shape", "dtype shape",
        "a {dtype} tensor of shape {shape}",
        "shape 为 {shape} 的 {dtype} 张量",
    ),
    Piece(
        "own-debugger", "",
        "a PrecisionDebugger of its own",
        "自己的 PrecisionDebugger",
    ),
    Piece(
        "callback-of-integrations", "",
        "a callback of msprobe.integrations",
        "msprobe.integrations 的回调",
    ),
    Piece(
        "no-batch-of-loader", "",
        "enable_dataloader is on, and no DataLoader gave a batch",
        "enable_dataloader 已打开，而没有 DataLoader 给出 batch",
    ),
    Piece(
        "no-call-in-token-range", "token_range",
        "no call of the model came within token_range {token_range}",
        "token_range {token_range} 内没有模型的调用",
    ),
    Piece(
        "never-got-model", "level",
        "level {level} needs the model, and start(model) was never called",
        "level {level} 需要模型，而 start(model) 没有被调用",
    ),
    Piece(
        "script-saves-nothing", "",
        "level debug records what the script gives to PrecisionDebugger.save(), which it did not call; choose a different level, for example --level L1",
        "level debug 采集脚本交给 PrecisionDebugger.save() 的内容，而脚本没有调用它；请选择其他 level，例如 --level L1",
    ),
    Piece(
        "script-calls-no-module", "",
        "the script called no torch.nn.Module, and the first call of one is where recording begins",
        "脚本没有调用 torch.nn.Module，而采集从第一次调用它时开始",
    ),
    Piece(
        "script-modules-in-threads", "",
        "modules were called only in threads other than the script's main thread",
        "只在脚本主线程以外的线程中调用了模块",
    ),
    Piece(
        "script-modules-without-parameters", "",
        "only modules without parameters were called, which begin no step",
        "只调用了没有参数的模块，它们不会开始 step",
    ),
    Piece(
        "script-function-without-model", "",
        "the function that --step-on names called no model",
        "--step-on 指定的函数没有调用模型",
    ),
    Piece(
        "script-modules-without-gradients", "",
        "the modules were called only without gradients (no_grad), which begins no step",
        "只在没有梯度（no_grad）时调用了模块，这不会开始 step",
    ),
    Piece(
        "script-gradients-without-anything", "",
        "the script computes gradients without calling a torch.nn.Module and without an optimizer of torch; name where its steps begin and end: --step-on call:FUNCTION",
        "脚本计算梯度时没有调用 torch.nn.Module，也没有使用 torch 的优化器；请指定 step 的起止：--step-on call:FUNCTION",
    ),
    Piece(
        "steps-end-elsewhere", "",
        " If steps end elsewhere, give --step-on backward, optimizer:NAME or call:FUNCTION.",
        "如果 step 在别处结束，请给出 --step-on backward、optimizer:NAME 或 call:FUNCTION。",
    ),
    Piece(
        "step-on-backward-unmet", "",
        "--step-on backward: the script made no backward pass",
        "--step-on backward：脚本没有反向",
    ),
    Piece(
        "step-on-optimizer-unmet", "name",
        "--step-on optimizer:{name}: no optimizer of torch made a step",
        "--step-on optimizer:{name}：没有 torch 的优化器更新过",
    ),
    Piece(
        "step-on-other-optimizers", "name optimizers",
        "--step-on optimizer:{name}: no optimizer has that name, so the whole run is one step; optimizers that stepped: {optimizers}",
        "--step-on optimizer:{name}：没有该名称的优化器，因此整个运行算作一个 step；更新过的优化器：{optimizers}",
    ),
    Piece(
        "step-on-call-unmet", "name",
        "--step-on call:{name}: no call of a function of that name was seen; give the name as its module has it: train_step, Trainer.train_step, or package.module.train_step",
        "--step-on call:{name}：没有该名称函数的调用；请按模块中的写法给出名称：train_step、Trainer.train_step 或 package.module.train_step",
    ),
    Piece(
        "sparse-too-large", "size",
        "sparse tensors that take more than {size} MiB when they are dense",
        "转为稠密后超过 {size} MiB 的稀疏张量",
    ),
    Piece(
        "type-without-file", "kind",
        "tensors of type {kind}, which no .pt file can hold",
        "类型为 {kind}、.pt 文件无法保存的张量",
    ),
    Piece(
        "near-name", "name",
        "; did you mean {name}?",
        "；是否指 {name}？",
    ),
    Piece(
        "listener-names-there", "names",
        "; there are {names}, ...",
        "；现有 {names} 等",
    ),
    Piece(
        "without-recording", "",
        "nothing is recorded",
        "不采集任何内容",
    ),
    Piece(
        "without-calls", "",
        "calls of functions are not recorded",
        "不采集函数调用",
    ),
    Piece(
        "without-gradients", "",
        "gradients of calls and modules are not recorded",
        "不采集调用和模块的梯度",
    ),
    Piece(
        "without-parameter-gradients", "",
        "gradients of parameters are not recorded",
        "不采集参数的梯度",
    ),
    Piece(
        "without-modules", "",
        "modules are not recorded",
        "不采集模块",
    ),
    Piece(
        "without-threads-of-autograd", "",
        "operations of autograd in its own threads, as on accelerators, are not recorded",
        "不采集 autograd 在自己线程中（如加速器上）的计算",
    ),
    Piece(
        "without-memory", "",
        "statistics of a tensor that appears again are computed again, which takes longer",
        "再次出现的张量会重新计算统计量，耗时更长",
    ),
    Piece(
        "without-transforms", "",
        "tensors inside of the transforms of torch.func have no statistics",
        "torch.func 变换内部的张量没有统计量",
    ),
    Piece(
        "without-operators-by-key", "",
        "level L2 watches operators by a dispatch mode, with which torch may compute in other ways",
        "level L2 用 dispatch mode 监听算子，torch 因此可能以其他方式计算",
    ),
    Piece(
        "without-operators-by-mode", "",
        "operators (level L2) are not recorded",
        "不采集算子（level L2）",
    ),
    Piece(
        "without-choices-by-argument", "",
        "a pooling that returns indices is recorded under the name of the function that does it",
        "返回索引的池化以实现它的函数名称采集",
    ),
    Piece(
        "without-data-loaders", "",
        "enable_dataloader: the batches of a DataLoader begin no steps, so nothing is recorded",
        "enable_dataloader：DataLoader 的 batch 不开始 step，因此不采集任何内容",
    ),
    Piece(
        "without-compiled-regions", "",
        "compiled code cannot be distinguished from other code, so nothing is recorded once torch's compiler is imported",
        "无法区分编译代码与其他代码，因此导入 torch 的编译器之后不采集任何内容",
    ),
    Piece(
        "without-compiled-autograd", "",
        "recording is not suspended where compiled autograd is used",
        "使用 compiled autograd 时不会暂停采集",
    ),
    Piece(
        "without-waiting-for-collectives", "",
        "results of functional collectives that torch itself waits for are not recorded",
        "在 torch 内部等待的函数式集合通信的结果不采集",
    ),
    Piece(
        "without-names-of-groups", "",
        "process groups of functional collectives have the names that torch made for them",
        "函数式集合通信的进程组使用 torch 自动生成的名称",
    ),
    Piece(
        "torch-has-no", "names",
        "has no {names}",
        "没有 {names}",
    ),
    Piece(
        "torch-takes-no-kernels", "",
        "does not allow Python implementations of all operators",
        "不支持为所有算子注册 Python 实现",
    ),
    Piece(
        "torch-of-version-has-no", "version names",
        "torch {version} has no {names}",
        "torch {version} 没有 {names}",
    ),
)

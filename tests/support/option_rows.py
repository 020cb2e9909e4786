"""What each option of each command changes: a row for every one, which a test demands.

The words ``{name}`` stand for the inputs of :mod:`option_inputs`. A text is what is added to the command line of its
table: what the command shows, writes or answers must then differ. A :class:`Row` says the same of another line.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """``added`` to ``base`` (None: the base of the table). ``instead``: a line in place of both, which must differ from
    the base. ``refused``: the line ends with status 1 or 2 and one sentence. ``fails``: the command does, with the
    option and without. ``reaches``: a function, ``module:name``, which
    stands for work that takes too long here: what it is called with is what must differ.
    """

    added: str = ""
    base: str | None = None
    instead: str | None = None
    refused: bool = False
    fails: bool = False
    reaches: str = ""


@dataclass(frozen=True)
class Table:
    """``base``: a command line that does something, without the command. ``reaches``: as of all its rows."""

    base: str
    rows: dict[str, str | Row]
    reaches: str = ""


_WORKERS = "msprobe.engine:Workers"
_ENGINE = {"--jobs": Row("--jobs 2", reaches=_WORKERS), "--engine": Row("--engine ray", reaches=_WORKERS)}
_CONSISTENT = "msprobe.report.consistent_sheet:consistent_check"
_POOL = "msprobe.precheck.pool:Pool"
_RUN = "msprobe.launcher.runscript:run_script"

_CHECK_ROWS: dict[str, str | Row] = {
    "-api_info": Row(instead="-api_info {values} -o out"),
    "-o": Row(instead="-api_info {calls} -o other"),
    "-save_error_data": "-save_error_data",
    "-j": "-j",
    "-d": "-d cpu",
    "-csv_path": "-csv_path {earlier_check}",
    "-f": "-f",
    "-config": "-config {check_config}",
    "--standard": "--standard 8.1.1",
    "--reference": "--reference legacy",
    "--candidate": "--candidate cpu+threads=1",
    "--control": "--control cpu",
    "--seed": "--seed 5",
    "--repeat": "--repeat 2",
    "--gradcheck": "--gradcheck",
    "--modules": "--modules",
    "--clean-output": "--clean-output {own_code}:clean",
    "--operators": "--operators {operators}",
    "--load": "--load {own_code}",
    # Of a dump of PyTorch, and without an online check.
    "--ms-atol": Row("--ms-atol 0.5", refused=True),
    "--timeout": "--timeout 5",
    "--top": "--top 3",
    "--fail-on": Row("--fail-on error", reaches="status of failed calls"),
    "--ranks": Row(
        "--ranks 3", base="-config {online_config} -o out", reaches="msprobe.precheck.online.receiving:run_online"
    ),
    "--idle": Row(
        "--idle 3", base="-config {online_config} -o out", reaches="msprobe.precheck.online.receiving:run_online"
    ),
}
_CHECK = Table("-api_info {calls} -o out", _CHECK_ROWS, "msprobe.precheck.check:run_check")
_MULTI = Table(
    _CHECK.base, {**_CHECK_ROWS, "-n": "-n 3", "--engine": "--engine ray"}, "msprobe.precheck.check:run_check"
)
_TO_DB = Table(
    "--data {monitored} --db out",
    {
        "--data": Row(instead="--data {two_runs} --db out"),
        "--db": Row(instead="--data {monitored} --db other"),
        "--format": Row("--format monitor", base="--data {healthy} --db out", refused=True),
        "--mapping": "--mapping {trend_names}",
        "--micro_step": "--micro_step false",
        "--process_num": Row("--process_num 2", reaches="msprobe.monitor.convert.csv_to_database:csv_to_database"),
    },
)
_NAN = Table(
    "-i {bad} -o out",
    {
        "-i": Row(instead="-i {bad}/step1 -o out"),
        "-o": Row(instead="-i {bad} -o other"),
        "--all-steps": "--all-steps",
        "--partial": Row("--partial", base="-i {cut} -o out"),
        "--treat-neg-inf": Row("--treat-neg-inf bad", base="-i {negative} -o out"),
        "--threshold": Row("--threshold 100", base="-i {large} -o out"),
        "--growth": Row("--growth 10", base="-i {large} -o out"),
        **_ENGINE,
        "--fail-on": "--fail-on found",
    },
)
_SCRIPT_ROWS: dict[str, str | Row] = {
    "--device": "--device cpu+threads=1",
    "--load": "--load {own_code}",
    "--reference": "--reference {own_code}:clean",
    "--control": "--control cpu",
    "--data-in-files": "--data-in-files",
    "--minimize": Row("--minimize", reaches="msprobe.children.starting:run_script"),
}
_LINES = "-i {graph_file} -o out"
_GRAPH = "-tp {renumbered} -gp {one} -o out"
_MERGED = "-tp {longer} -o out --rank_size 2 --tp 1 --pp 2"
_BUILD = "msprobe.graph.build:build_graphs"
_ROLL = "{roll} --trainer {trainer_model}"
_SHEET = "-tp {longer}/step1/rank0/dump.json -gp {apart}/step1/rank0/dump.json -o out"
_TWO = "{apart} {healthy}"
_TOY = "-f mindspore compare -tp {toy}/target/dump.json -gp {toy}/bench/dump.json -o out"
_PACKS = "-c {pack_a} {pack_b} -o out"
_WEIGHTS = "-c {ckpt_a} {ckpt_b} -o out.json"

TABLES: dict[str, Table] = {
    "acc_check": _CHECK,
    "run_ut": _CHECK,
    "multi_acc_check": _MULTI,
    "multi_run_ut": _MULTI,
    "api_precision_compare": Table(
        "-npu {npu_details} -gpu {gpu_details} -o out",
        {
            "-npu": Row(instead="-npu {gpu_details} -gpu {gpu_details} -o out"),
            "-gpu": Row(instead="-npu {npu_details} -gpu {npu_details} -o out"),
            "-o": Row(instead="-npu {npu_details} -gpu {gpu_details} -o other"),
            "--standard": "--standard 8.1.1",
            "--fail-on": Row("--fail-on found", base="-npu {gpu_details} -gpu {npu_details} -o out"),
            "--top": "--top 0",
        },
    ),
    "explain": Table("D204", {"code": Row(instead="D205"), "--list": Row(instead="--list")}),
    "check": Table(
        "{bad}",
        {
            "dump": Row(instead="{healthy}"),
            "-o": "-o out",
            "--only": "--only labels",
            "--skip": "--skip overflow",
            **_ENGINE,
            "--list": Row(instead="--list"),
        },
    ),
    "code_mapping": Table(
        "--ir {graph_text} --dump_data {graph_dump} --output out",
        {
            "--ir": Row(instead="--ir {other_graph_text} --dump_data {graph_dump} --output out"),
            "--dump_data": Row(instead="--ir {graph_text} --dump_data {graph_dump}/rank_0/Net/0 --output out"),
            "--output": Row(instead="--ir {graph_text} --dump_data {graph_dump} --output other"),
        },
    ),
    "collect": Table(
        "{healthy} -o out", {"folders": Row(instead="{large} -o out"), "-o": Row(instead="{healthy} -o other")}
    ),
    "compare": Table(
        _SHEET,
        {
            "dumps": Row(base=_TWO, instead="{apart} {apart}"),
            "-o": Row(instead=_SHEET.replace("-o out", "-o other")),
            "--xlsx": "--xlsx",
            "--csv": Row("--csv", base="-i {compare_file} -o out"),
            **_ENGINE,
            "--metric": Row("--metric {metric}", base="-tp {values} -gp {other_values} -o out"),
            "-f": Row("-f", base="-tp {shifted} -gp {one} -o out"),
            "-cm": Row("-cm", base=_TOY),
            "-am": Row("-am", base=_TOY),
            "-lm": Row("-lm {layer_names}", base=_TOY),
            "-dm": "-dm {names}",
            "-i": Row(instead="-i {compare_file} -o out"),
            "-s": Row("-s", base="-i {stack_file} -o out"),
            "-c": Row("-c", base="-i {compare_file} -o out"),
            "-tp": Row(instead=_SHEET.replace("-tp {longer}", "-tp {bad}")),
            "-gp": Row(instead=_SHEET.replace("-gp {apart}", "-gp {bad}")),
            "-m": Row("-m atb", refused=True),
            "-tensor_log": Row("-tensor_log", base="-tp {values} -gp {other_values} -o out"),
            "-da": "-da",
            "--config": Row("--config {matrices}", base="-tp {values} -gp {other_values} -o out"),
            "--consistent_check": Row("--consistent_check --backend fsdp", reaches=_CONSISTENT),
            "--backend": Row(
                base=f"{_SHEET} --consistent_check --backend fsdp",
                instead=f"{_SHEET} --consistent_check --backend megatron",
                reaches=_CONSISTENT,
            ),
            "--rank": Row("--rank 0", base="-tp {kernel_target} -gp {kernel_golden} -o out --step 0,1"),
            "--step": Row("--step 0", base="-tp {kernel_target} -gp {kernel_golden} -o out --rank 0,1"),
            "--html": Row("--html", base=f"{_TWO} -o out"),
            "--parquet": Row("--parquet", base=f"{_TWO} -o out"),
            "--all-steps": Row("--all-steps", base=f"{_TWO} -o out --csv"),
            "--candidate": Row(base=_TWO, instead="--reference {healthy} --candidate {bad}"),
            "--reference": Row(base=_TWO, instead="{apart} --reference {apart}"),
            "--noise": Row("--noise {longer}", base=_TWO, reaches="msprobe.diagnose:compare_runs"),
            "--second-look": Row("--second-look look", base=_TWO),
            "--layout": Row("--layout {layout}", base=_TWO, reaches="msprobe.diagnose:compare_runs"),
            "--fail-on": Row("--fail-on never", base=_TWO),
        },
    ),
    "config_check": Table(
        _PACKS,
        {
            "-c": Row(instead="-c {pack_a} {pack_a} -o out"),
            "--candidate": Row(instead="--reference {pack_a} --candidate {pack_a} -o out"),
            "--reference": Row(instead="--reference {pack_b} --candidate {pack_b} -o out"),
            "-o": Row(instead=_PACKS.replace("-o out", "-o other")),
            "-vc": Row(instead="-vc {verl_a} {verl_b} -o out"),
            "-vv": Row(instead="-vv {verl_wanted} {verl_a} -o out"),
            "-sc": Row(instead="-sc {slime_a} {slime_b} -o out"),
            "-d": Row(instead="-d {launch} -o out.zip"),
            "--env-all": Row("--env-all", base="-d {launch} -o out.zip"),
            "--tolerance": Row("--tolerance 0.9", base="-c {weights_a} {weights_b} -o out"),
            "--variables": "--variables {variables}",
            "--package": Row("--package pip", base="-c {pack_a} {pack_pip} -o out"),
            "--name-map": Row("--name-map {ckpt_names}", base="-c {ckpt_a} {ckpt_renamed} -o out.json"),
            "--metrics": Row("--metrics full", base=_WEIGHTS),
            "--with-optim": Row("--with-optim", base=_WEIGHTS),
            "--weights-only": Row("--weights-only", base=_WEIGHTS),
            "--allow-missing": Row(
                "--allow-missing",
                base=_WEIGHTS,
                reaches="msprobe.environment.checkpoint.comparison:compare_checkpoints",
            ),
            "--earlier": Row("--earlier {ckpt_older}", base=_WEIGHTS),
            "--jobs": Row("--jobs 2", base=_WEIGHTS, reaches=_WORKERS),
            "--engine": Row("--engine ray", base=_WEIGHTS, reaches=_WORKERS),
        },
    ),
    "completion": Table("bash", {"shell": Row(instead="fish")}),
    "confirm": Table(
        "{verdict} -o out -- {script}",
        {
            "verdict": Row(instead="{other_verdict} -o out -- {script}"),
            "--finding": Row(instead="{verdict} --finding 2 -o out -- {script}", refused=True),
            "--every-call": Row(instead="{verdict} --every-call -o out -- {script}"),
            "-o": Row(instead="{verdict} -o other -- {script}"),
            "--config": Row(instead="{verdict} -o out --config {run_config} -- {script}"),
            "--first-step": Row(instead="{verdict} -o out --first-step 3 -- {script}"),
            "--step-on": Row(instead="{verdict} -o out --step-on backward -- {script}"),
        },
        _RUN,
    ),
    "data2db": _TO_DB,
    "monitor to-db": _TO_DB,
    "demo": Table(
        "-o out",
        {"-o": Row(instead="-o other"), "--no-open": "--no-open"},
        "msprobe.demo.showing:show",
    ),
    "doctor": Table(
        "",
        {"-o": Row("-o out", reaches="msprobe.doctor.checks:all_checks")},
        "no devices",
    ),
    "grad_compare": Table(
        "{gradients_a} {gradients_b} -o out",
        {
            "runs": Row(instead="{gradients_b} {gradients_b} -o out"),
            "--candidate": Row(instead="--candidate {gradients_a} --reference {gradients_a} -o out"),
            "--reference": Row(instead="{gradients_b} --reference {gradients_b} -o out"),
            "-o": Row(instead="{gradients_a} {gradients_b} -o other"),
            "--plot": "--plot none",
            "--least": "--least 0.0",
            "--drop": "--drop 1.0",
            "--mapping": "--mapping {gradient_names}",
        },
    ),
    "graph": Table(
        _LINES,
        {
            "-i": Row(instead="-i {graph_pair} -o out"),
            "-o": Row(instead="-i {graph_file} -o other"),
            "-lm": Row("-lm {layer_names}", base="-i {graph_pair} -o out"),
            "-oc": "-oc",
            "-f": Row("-f", base="-i {graph_pair} -o out"),
            "--strict": Row("--strict", base="-i {graph_pair} -o out"),
            "--jobs": Row("--jobs 2", reaches=_WORKERS),
            "-cs": "-cs",
            "--strict-reference-values": Row("--strict-reference-values", base="-i {graph_far} -o out"),
        },
    ),
    "graph_visualize": Table(
        _GRAPH,
        {
            "-tp": Row(instead="-tp {one} -gp {one} -o out"),
            "-gp": Row(instead="-tp {renumbered} -o out"),
            "-o": Row(instead="-tp {renumbered} -gp {one} -o other"),
            "-lm": "-lm",
            "-oc": Row("-oc", base="-tp {bad} -o out"),
            "-f": "-f",
            "--strict": "--strict",
            "--jobs": Row("--jobs 2", reaches=_WORKERS),
            "-tensor_log": "-tensor_log",
            "-progress_log": "-progress_log",
            "--rank_size": Row("--rank_size 2 --tp 1 --pp 2", base="-tp {longer} -o out"),
            "--tp": Row(base=_MERGED, instead="-tp {longer} -o out --rank_size 2 --tp 2 --pp 1"),
            "--pp": Row(base=_MERGED, instead="-tp {longer} -o out --rank_size 2 --tp 1 --pp 1", reaches=_BUILD),
            "--vpp": Row("--vpp 2", base=_MERGED, reaches=_BUILD),
            "--order": Row("--order tp-pp-dp-cp-ep", base=_MERGED, reaches=_BUILD),
            "--file_type": Row("--file_type json", base="-tp {longer} -o out --rank_size 2 --tp 1 --pp 1"),
        },
    ),
    "help": Table("", {"command": "compare", "--all": "--all"}),
    "lockstep": Table(
        "{healthy} -o out -- {script}",
        {
            "reference": Row(instead="{apart} -o out -- {script}"),
            "-o": Row(instead="{healthy} -o other -- {script}"),
            "--config": Row(instead="{healthy} -o out --config {run_config} -- {script}"),
            "--first-step": Row(instead="{healthy} -o out --first-step 3 -- {script}"),
            "--step-on": Row(instead="{healthy} -o out --step-on backward -- {script}"),
        },
        _RUN,
    ),
    "merge_result": Table(
        "-i {sheets} -o out -config {merge_config}",
        {
            "-i": Row(instead="-i {other_sheets} -o out -config {merge_config}"),
            "-o": Row(instead="-i {sheets} -o other -config {merge_config}"),
            "-config": Row(instead="-i {sheets} -o out -config {merge_other}"),
        },
    ),
    "monitor analyse": Table(
        "{alerts} -o out",
        {
            "folder": Row(instead="{monitored} -o out"),
            "-o": Row(instead="{alerts} -o other"),
            "-k": "-k 1",
            "-s": "-s [3]",
        },
    ),
    "monitor diff": Table(
        "{monitored_apart} {monitored}",
        {
            "runs": Row(instead="{monitored} {monitored}"),
            "--candidate": Row(instead="--candidate {monitored_apart} --reference {monitored_apart}"),
            "--reference": Row(instead="{monitored} --reference {monitored}"),
            "--top": "--top 0",
        },
    ),
    "monitor report": Table(
        "{monitored} -o page.html",
        {
            "runs": Row(instead="{monitored_apart} -o page.html"),
            "--candidate": Row(instead="--candidate {monitored_apart} -o page.html"),
            "--reference": Row(instead="{monitored_apart} --reference {monitored} -o page.html"),
            "-o": Row(instead="{monitored} -o other.html"),
        },
    ),
    "monitor to-tensorboard": Table(
        "{two_runs} -o out",
        {
            "folder": Row(instead="{monitored} -o out"),
            "-o": Row(instead="{two_runs} -o other"),
            "--from": "--from Nov15_12-00-00",
            "--to": "--to Nov15_12-00-00",
            "--types": "--types actv",
            "--jobs": Row("--jobs 2", reaches="msprobe.monitor.convert.csv_to_tensorboard:csv2tensorboard_by_step"),
        },
    ),
    "monitor watch": Table(
        "{monitored} --once",
        {
            "folder": Row(instead="{monitored_apart} --once"),
            "--once": Row("--once", base="{monitored}", reaches="msprobe.monitor.watch:watch"),
            "--every": Row("--every 5", base="{monitored}", reaches="msprobe.monitor.watch:watch"),
            "--top": "--top 1",
        },
    ),
    "nan_analyze": _NAN,
    "overflow_check": _NAN,
    "op_check": Table(
        "--ops softmax --candidate cpu -o out",
        {
            "--ops": Row(instead="--ops matmul --candidate cpu -o out"),
            "--candidate": Row(instead="--ops softmax --candidate cpu+threads=1 -o out"),
            "--control": "--control cpu",
            "--dtypes": "--dtypes bf16",
            "--samples": "--samples 1",
            "-o": Row(instead="--ops softmax --candidate cpu -o other"),
            "-n": "-n 2",
            "--standard": "--standard 8.1.1",
            "--seed": "--seed 5",
            "--timeout": "--timeout 5",
            "--top": Row("--top 0", reaches="samples that fail"),
        },
        "msprobe.precheck.sample_check:check_samples",
    ),
    "op_generate": Table(
        "--dump {calls} --api Functional.softmax.0 -o out",
        {
            "-i": Row(instead="-i {op_config} -o out"),
            "-o": Row(instead="--dump {calls} --api Functional.softmax.0 -o other"),
            "--dump": Row(instead="--dump {other_calls} --api Functional.softmax.0 -o out"),
            "--api": Row(instead="--dump {calls} --api Functional.softmax.0.backward -o out"),
            "--propagation": "--propagation backward",
            "--seed": "--seed 5",
            **_SCRIPT_ROWS,
        },
    ),
    "parse": Table(
        "-d {kernels} -o out",
        {
            "-d": Row(instead="-d {other_kernels} -o out"),
            "-t": "-t npy",
            "-o": Row(instead="-d {kernels} -o other"),
        },
    ),
    "reproduce": Table(
        "{verdict} -o out",
        {
            "verdict": Row(instead="{other_verdict} -o out"),
            "--finding": "--finding 2",
            "--dump": "--dump {renumbered_root}",
            "-o": Row(instead="{verdict} -o other"),
            "--seed": "--seed 5",
            **_SCRIPT_ROWS,
        },
    ),
    "rollout": Table(
        "--log-probs {engine_log_probs} {trainer_log_probs}",
        {
            "--log-probs": Row(instead="--log-probs {engine_log_probs} {other_log_probs}"),
            "--candidate": Row(instead="--candidate {engine_log_probs} --reference {other_log_probs}"),
            "--reference": Row(instead="--candidate {engine_log_probs} --reference {other_log_probs}"),
            "--prefill": "--prefill {other_log_probs}",
            "-o": "-o out",
            "roll": Row(instead=_ROLL),
            "--trainer": Row(instead=_ROLL),
            "--operators": Row("--operators", base=_ROLL),
        },
    ),
    "run": Table(
        "-- {script}",
        {
            "--config": Row(instead="--config {run_config} -- {script}"),
            "--task": Row(instead="--task tensor -- {script}"),
            "--level": Row(instead="--level L0 -- {script}"),
            "--dump-path": Row(instead="--dump-path out -- {script}"),
            "--first-step": Row(instead="--first-step 3 -- {script}"),
            "--step-on": Row(instead="--step-on backward -- {script}"),
            "--jitter": Row(instead="--jitter -- {script}"),
            "--reference": Row(instead="--reference {healthy} -- {script}"),
            "--verdict": Row(instead="--verdict later -- {script}"),
            "--only": Row(instead="--only Torch.exp.0 -- {script}"),
        },
        _RUN,
    ),
    "run_overflow_check": Table(
        "-api_info {calls}",
        {
            "-api_info": Row(instead="-api_info {values}", reaches=_POOL),
            "-j": Row("-j True", reaches=_POOL),
            "-d": Row("-d cpu", reaches=_POOL),
            "--candidate": Row("--candidate cpu+threads=1", reaches=_POOL),
            "--fail-on": Row("--fail-on found", reaches="an overflow on one side"),
            "--seed": Row("--seed 5", reaches=_POOL),
            "--timeout": Row("--timeout 5", reaches=_POOL),
        },
    ),
    "summary": Table("{healthy}", {"dump": Row(instead="{longer}")}),
    "view": Table(
        "{healthy} --html page.html",
        {
            "paths": Row(instead="{longer} --html page.html"),
            "--candidate": Row(instead="--candidate {longer} --html page.html"),
            "--reference": Row("--reference {longer}"),
            "--port": Row("--port 8123", base="{healthy}", reaches="msprobe.view.serving:listen"),
            "--host": Row("--host 0.0.0.0", base="{healthy}", reaches="msprobe.view.serving:listen"),
            "--no-browser": Row("--no-browser", base="{healthy}", reaches="browser"),
            "--html": Row(instead="{healthy} --html other.html"),
            "--noise": Row(
                "--noise {longer}", base=f"{_TWO} --html page.html", reaches="msprobe.diagnose.runs:compare_runs"
            ),
            "--layout": Row(
                "--layout {layout}", base=f"{_TWO} --html page.html", reaches="msprobe.diagnose.runs:compare_runs"
            ),
            "--jobs": Row("--jobs 2", base=f"{_TWO} --html page.html", reaches="msprobe.diagnose.runs:compare_runs"),
            "--matches": Row(
                "--matches {matches}", base=f"{_TWO} --html page.html", reaches="msprobe.view.opening:Dumps"
            ),
        },
    ),
}
#: Options of all commands, in front of the command: of ``msprobe`` itself.
TOP = Table(
    "code_mapping --ir {graph_text} --dump_data {graph_dump} --output out",
    {
        "--version": Row(instead="--version"),
        "--json": Row(instead="--json code_mapping --ir {graph_text} --dump_data {graph_dump} --output out"),
        "-q": Row(instead="-q code_mapping --ir {graph_text} --dump_data {graph_dump} --output out"),
        "--debug": Row(base="summary {missing}", instead="--debug summary {missing}", fails=True),
        "--limit": Row(
            base="merge_result -i {sheets} -o out -config {merge_config}",
            instead="--limit 1e-9 merge_result -i {sheets} -o out -config {merge_config}",
            refused=True,
        ),
        "--follow-links": Row(instead="--follow-links summary {healthy}", reaches="msprobe.cli:followed"),
        "-f": Row(
            instead="-f pytorch code_mapping --ir {graph_text} --dump_data {graph_dump} --output out", refused=True
        ),
    },
)

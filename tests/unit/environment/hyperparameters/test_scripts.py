"""What is read of launch scripts; most are the shapes of scripts that projects publish, shortened."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.row_by_row import for_each

from msprobe.environment.hyperparameters.launch import hyperparameters
from msprobe.environment.hyperparameters.shell.expansion import Variables, fields
from msprobe.environment.hyperparameters.shell.script import follow
from msprobe.environment.hyperparameters.shell.words import tokens_of
from msprobe.messages import said


def told(text: str, path: str = "train.sh") -> dict[str, Any]:
    values, _ = hyperparameters(follow(text, path), path)
    return {name: several[0] if len(several) == 1 else several for name, several in values.items()}


def notes_of(text: str) -> list[str]:
    return hyperparameters(follow(text, "train.sh"), "train.sh")[1]


WORDS = st.text(alphabet="ab \t\n'\"\\#=-;|&", max_size=12)


@given(st.lists(WORDS, min_size=1, max_size=5))
def test_quoted_words_come_back_as_shlex_gives_them(values: list[str]) -> None:
    line = " ".join(["run", *map(shlex.quote, values)])
    words = [token.text for token in tokens_of(line) if not token.is_operator]
    assert fields(words, Variables()) == shlex.split(line) == ["run", *values]


@given(st.lists(st.text(alphabet="ab #;|&'", max_size=8), min_size=1, max_size=4))
def test_double_quotes_keep_what_is_in_them(values: list[str]) -> None:
    line = " ".join(f'x"{value}"y' for value in values)
    assert fields([token.text for token in tokens_of(line)], Variables()) == shlex.split(line)


SHELL = st.lists(
    st.sampled_from(
        "if then fi else elif for in do done case esac while function { } ( ) (( )) [[ ]] [ ] $( ` ${ } $ ' \" \\ # "
        "<<E E > >> < <<< && || ; ;; & | \n A= A+= A=( --lr ${A} ${A[@]} ${#A} ${A:-x} ${A%.*} $((1+A)) $((1/0)) eval "
        "source . train.py torchrun set -- shift x !".split(" ")
    ),
    max_size=40,
).map(" ".join)


@settings(max_examples=300, deadline=None)
@given(SHELL | st.text(max_size=60))
def test_no_text_is_too_odd_to_be_read(text: str) -> None:
    hyperparameters(follow(text, "train.sh"), "train.sh")


def test_what_the_reference_misreads_is_read() -> None:
    script = """
LR=1
MIN_LR=0 # not LR
LIST=(--hidden 4 --name "two words") # an array
LIST+=(--layers 2)
MODEL_ARGS="--dropout 0.0 --tag a#b"
cat <<EOT > ds.json
{ "lr": $LR, "it's": 1 }
EOT
python train.py ${MODEL_ARGS} "${LIST[@]}" --weight-decay=0.1 --bf16 --seq 10 --lr $LR --min-lr $MIN_LR | tee x --x 1
"""
    assert told(script) == {
        "dropout": "0.0",
        "tag": "a#b",
        "hidden": "4",
        "name": "two words",
        "layers": "2",
        "weight-decay": "0.1",
        "bf16": True,
        "seq": "10",
        "lr": "1",
        "min-lr": "0",
    }


@for_each(
    "command",
    [
        "torchrun --nproc_per_node 8 train.py --lr 1",
        "python3 -m torch.distributed.launch --nproc_per_node=8 train.py --lr 1",
        "deepspeed --nproc_per_node 8 pkg/train.py --lr 1",
        "msrun --nproc_per_node=8 train.py --lr 1",
        "nohup accelerate launch --nproc_per_node 8 -m pkg.train --lr 1 > log 2>&1 &",
        "srun -l --nodes 2 --container-image x#y bash -c 'torchrun --nproc_per_node 8 train.py --lr 1'",
        'CMD="torchrun --nproc_per_node 8 train.py --lr 1"\necho $CMD\neval ${CMD} 2>&1 | tee log',
        'bash msrun_launcher.sh "torchrun --nproc_per_node 8 train.py --lr 1" 8',
        "docker run --rm -v a:b image bash -c 'torchrun --nproc_per_node 8 train.py --lr 1'",
        "ray job submit --address=x -- torchrun --nproc_per_node 8 -m pkg.train --lr 1",
        "CUDA_VISIBLE_DEVICES=0,1 time torchrun --nproc_per_node 8 \\\n  train.py `# note` --lr 1",
        "if ! command -v x; then pip install --user x; fi; torchrun --nproc_per_node 8 train.py --lr 1",
    ],
)
def test_any_launcher_is_known(command: str) -> None:
    assert told(command) == {"nproc_per_node": "8", "lr": "1"}


def test_a_launcher_whose_script_only_a_run_says_is_read() -> None:
    assert told("srun singularity exec --nv x.sif torchrun --nnodes 2 $1 --lr $2 --epochs 3") == {
        "nnodes": "2",
        "lr": "$2",
        "epochs": "3",
    }
    script = "srun \"$@\" sh -xeuc '\n  torchrun --nproc-per-node gpu \\\n main.py --lr 2\n'\n"
    assert told(script) == {"nproc-per-node": "gpu", "lr": "2"}


def test_further_commands_are_found() -> None:
    assert told("python train.py --lr 1") == {"lr": "1"}
    assert told("llamafactory-cli train --stage sft") == {"stage": "sft"}
    assert told("./run_training --lr 1e-3 -b 4 --eval-iters -1") == {"lr": "1e-3", "b": "4", "eval-iters": "-1"}
    assert told("python preprocess.py --workers 3\npython train.py --lr 1") == {"lr": "1"}
    assert told("pip install --upgrade x\nls --color") == {}
    assert told("python -m verl.main data.x=\"['$HOME/a']\" +a.b=True ++c='e' ~d trainer.n=15 $@") == {
        "data.x": "['$HOME/a']",
        "a.b": "True",
        "c": "e",
        "trainer.n": "15",
    }


def test_values_of_several_words_are_lists_and_options_that_come_twice_count_once() -> None:
    script = "python train.py --data a b c --spec x --flag --wd 1 --wd 2"
    assert told(script) == {
        "data": ["a", "b", "c"],
        "spec": "x",
        "flag": True,
        "wd": "2",
    }


def test_what_only_a_run_says_stays_as_it_is_written() -> None:
    script = 'S=$(date +%s)\npython t.py --save $1 --load "${CKPT}" --port $((S + 1)) --name x-$S --bf16 $EXTRA_ARGS'
    assert told(script) == {
        "save": "$1",
        "load": "${CKPT}",
        "port": "$((S + 1))",
        "name": "x-$(date +%s)",
        "bf16": True,
    }


def test_branches_are_followed_as_a_run_without_arguments_would() -> None:
    script = """
OUT=$1; ZERO=${2:-3}; MODE=${MODE:-16B}; TP=2
if [ "$OUT" == "" ]; then OUT=./out; fi
if [ -z ${VP} ]; then vp=""; else vp="--vp $VP"; fi
if [ $LOAD != none ]; then load="--load $LOAD"; fi
if [[ $MODE == 7B ]]; then H=1; elif [ $MODE = 16B ] && [ $TP -gt 1 ]; then H=2048; else H=3; fi
case "$MODE" in
  7B|8B) L=1 ;;
  1*) L=27 ;;
  *) L=9 ;;
esac
(( TP > 1 )) && SP="--sp" || SP="--no-sp"
[ $TP -eq 4 ] && BAD="--bad"
while [[ $# -gt 0 ]]; do case $1 in --x) shift;; esac; shift; done
opts="  --h $H \\
  --layers '${L}' "
opts="${opts} --steps $(( (10 - 2) * TP ** 3 / 3 )) --upper ${MODE^^} --stem ${OUT##*/} --half ${MODE%B}"
python train.py $opts $vp $load $SP $BAD --out $OUT --zero $ZERO
"""
    assert told(script) == {
        "h": "2048",
        "layers": "27",
        "steps": "21",
        "upper": "16B",
        "stem": "out",
        "half": "16",
        "sp": True,
        "out": "./out",
        "zero": "3",
    }
    unknown = notes_of("if [ -f x ]; then A=1; fi\npython train.py --lr 1 --deepspeed ds.json")
    assert unknown == [
        f"train.sh: {said('condition-unknown', 1)}",
        f"train.sh: {said('give-named-file', 2, 'ds.json')}",
    ]


def test_a_command_in_a_here_document_is_read_where_a_variable_takes_it() -> None:
    script = """
read -r -d '' training <<EOF
pkg.cli.train \\
   --max_len 2048 --name "a b" --it's $LR
EOF
read -r -d '' QUOTED <<'END'
--keep $LR
END
LR=1
cat <<-X
\t--no 1
\tX
deepspeed --module $training $QUOTED
"""
    assert told(script.replace("--it's $LR", "--dollar $LR").replace("\\t", "\t")) == {
        "max_len": "2048",
        "name": ['"a', 'b"'],
        "dollar": True,
        "keep": "$LR",
    }


def test_functions_loops_and_keyed_arrays_are_followed() -> None:
    script = """
declare -A SIZE=([7b]=32 [13b]=40)
function run() { local lr=${1:-3}; shift; python train.py --lr $lr "$@"; }
for seed in 1 2; do run 1e-3 --seed $seed --layers ${SIZE[13b]} --n ${#SIZE[@]}; done
"""
    assert told(script) == {"lr": "1e-3", "seed": ["1", "2"], "layers": "40", "n": "2"}


def test_scripts_beside_it_are_taken_in_and_no_others(tmp_path: Path) -> None:
    inner = tmp_path / "examples"
    inner.mkdir()
    (tmp_path / "outside.sh").write_text("LR=9\n")
    (tmp_path / "env.sh").write_text("export NCCL_ALGO=Ring\nexport MY_KEY=1\nTP=4\n")
    (inner / "config.sh").write_text('ARGS="--tp $TP --layers $1"\n')
    (inner / "job.sh").write_text("torchrun train.py $ARGS --n $2\n")
    script = inner / "run.sh"
    text = (
        'source env.sh\nDIR="$( cd "$( dirname "$0" )" && pwd )"\n. ${DIR}/config.sh 12\nLR=1\n'
        "source /etc/other.sh; source .venv/bin/activate\n"
        ". `pwd`/job.sh a b\nbash inner.sh --lr 3"
    )
    (inner / "inner.sh").write_text("echo $LR\n")
    followed = follow(text, str(script))
    values, notes = hyperparameters(followed, str(script))
    assert values == {"tp": ["4"], "layers": ["12"], "n": ["b"], "env.NCCL_ALGO": ["Ring"]}
    assert notes == [f"run.sh: {said('sourced-file-not-beside', '/etc/other.sh')}"]


def test_a_script_that_grows_without_end_is_read_in_bounded_time() -> None:
    assert told('A=x\nfor i in {1..9} 1 2 3 4; do A="$A$A$A$A"; done\n' * 30 + "python t.py --a 1") == {"a": "1"}
    assert told("f() { f; f; }\nf\npython t.py --a 1")["a"] == "1"
    assert told("while true; do while true; do A+=(1 2 ${A[@]}); done; done\npython t.py --a 1")["a"] == "1"

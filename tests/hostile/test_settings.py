"""Settings cost no more than a bound on values, letters, digits and steps, whatever makes them grow."""

from __future__ import annotations

import pytest

from hostile.limits import Called

_DOUBLED = "a=xxxxxxxxxxxxxxxx\n" + "a=$a$a\n" * 14


def settings(folder, name, content):
    (folder / name).write_text(content)
    return Called("config_check", "-d", folder / name, "-o", folder / "pack.zip", cwd=folder)


def test_plain_settings(tmp_path):
    answer = settings(tmp_path, "plain.yaml", "lr: 1\n")
    answer.demand_quick()
    assert answer.status == 0, answer.text


def test_merges_and_aliases_of_an_honest_file(tmp_path):
    text = "base: &base {lr: 1, betas: &b [0.9, 0.95]}\nbig:\n  <<: *base\n  betas2: *b\n"
    answer = settings(tmp_path, "honest.yaml", text)
    answer.demand_quick()
    assert answer.status == 0, answer.text


_MERGES = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 12))
_LISTS = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))
_CHAIN = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 3000))


@pytest.mark.parametrize(
    "text",
    [
        _MERGES,
        _LISTS,
        _CHAIN,
        "a: &a [*a]\n",
        "a: &a {b: {c: *a}}\n",
        "[" * 1_000_000,
        "a: " + "{b: " * 50_000,
        "- " * 100_000,
        f"n: {'9' * 100_000}\n",
        "? [a, b]\n: c\n",
        "a: *nobody\n",
        "<<: [1, 2]\n",
    ],
    ids=[
        "merges",
        "lists",
        "chain",
        "self",
        "inner-self",
        "flow",
        "maps",
        "dashes",
        "digits",
        "keys",
        "alias",
        "merge",
    ],
)
def test_yaml_that_grows_is_refused(tmp_path, text):
    settings(tmp_path, "grown.yaml", text).demand_refused()


def test_many_documents_and_odd_scalars(tmp_path):
    odd = "a: 1:2:3:4\nb: 2001-99-99\nc: 0o17\nd: .inf\ne: !!int x\n"
    settings(tmp_path, "odd.yaml", "---\nlr: 1\n" * 20_000).demand_quick()
    settings(tmp_path, "scalars.yaml", odd).demand_refused()


def test_a_tag_of_python_is_no_object(tmp_path):
    text = "a: !!python/object/apply:os.system ['touch owned']\n"
    settings(tmp_path, "tagged.yaml", text).demand_quick()
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    "text",
    [
        "a = 99\n" + "a = a * a\n" * 60,
        "a = 2.5\nb = 99\n" + "b = b * b + b\n" * 60,
        "a = 9 ** 9 ** 9 ** 9\n",
        "a = 1 << 10 ** 12\n",
        "a = 'x' * 10 ** 12\nb = [0] * 10 ** 12\n",
        "a = '%1000000000d' % 1\nb = f'{1:>1000000000}'\n",
        "a = [1]\n" + "a = [a, a]\n" * 60 + "b = {a: 1}\n",
        "a = [1" + ", 1" * 300_000 + "]\nb = [" + "a, " * 100_000 + "]\n",
        "a = " + "(" * 500_000,
        "a = " + "-" * 500_000 + "1",
        "a = " + "[" * 90 + "1" + "]" * 90,
        "a = 0x" + "f" * 900_000 + "\nb = a * a * a\n",
        "".join(f"a{n} = {n}\n" for n in range(60_000)),
        "class A:\n" + "".join(f"{' ' * n}class A{n}:\n" for n in range(1, 90)) + " " * 90 + "a = 1\n",
    ],
)
def test_python_that_grows(tmp_path, text):
    settings(tmp_path, "grown.py", text).demand_quick()


@pytest.mark.parametrize(
    "text",
    [
        _DOUBLED + "b=${a%%*y}\n",
        _DOUBLED + "b=${a##*y}${a%y*}${a#*x*x*x*x*x*y}\n",
        _DOUBLED + "b=${a//x/$a}\nb=${a//*y/z}\nb=${a//x*y/z}\n",
        _DOUBLED + "case $a in *a*a*a*a*a*a*b) b=1;; esac\nif [[ $a == *x*x*x*x*y ]]; then b=1; fi\n",
        "while true; do i=$((i+1)); done\n",
        "for i in {1..1000000}; do b=$i; done\nb=$((9**99999))$((36#" + "z" * 50_000 + "))\n",
        "f() { f; f; }\nf\n",
        "a='eval $a$a'\neval $a\n",
        "printf -v b '%1000000000d' 1\n",
        "a=" + "x" * 100_000 + "\n" + "a+=x\n" * 50_000,
        "source self.sh; source ./grown.sh\n",
        '"$(' * 100_000,
        "((" * 200_000,
        "a() " * 60_000,
    ],
)
def test_shell_that_grows(tmp_path, text):
    settings(tmp_path, "grown.sh", text + "python train.py --lr $b\n").demand_quick()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("lines.ini", "[a]\nb = c" + " " * 500_000 + "\x00\n" + "d\n" * 10),
        ("blanks.ini", "[a]\n" + "b" + " " * 900_000 + "c\n"),
        ("dots.toml", "a" + ".a" * 200_000 + " = 1\n"),
        ("nested.toml", "a = " + "[" * 100_000),
        ("nested.json", "[" * 900_000),
        ("digits.json", '{"a": ' + "9" * 100_000 + "}"),
    ],
)
def test_other_settings_that_grow(tmp_path, name, text):
    settings(tmp_path, name, text).demand_refused()


def test_references_of_hydra_that_grow(tmp_path):
    lines = ["a0: xxxxxxxxxx"] + [f"a{n}: {('${a' + str(n - 1) + '}') * 10}" for n in range(1, 15)]
    settings(tmp_path, "config.yaml", "defaults: [_self_]\n" + "\n".join(lines)).demand_refused()


def test_many_names_on_two_sides(tmp_path):
    """What both sides have is paired without trying each name with each."""
    for side, start in (("a", 0), ("b", 1_000_000)):
        lines = [f"bf{n}: 1\nuse_bf16_{n}: true\n" for n in range(start, start + 8000)] + ["x" * 900 + f"{side}: 1\n"]
        (tmp_path / f"{side}.yaml").write_text("".join(lines))
        settings(tmp_path, f"{side}.yaml", (tmp_path / f"{side}.yaml").read_text())
        (tmp_path / "pack.zip").rename(tmp_path / f"{side}.zip")
    Called(
        "config_check", "-c", tmp_path / "a.zip", tmp_path / "b.zip", "-o", tmp_path / "out", cwd=tmp_path
    ).demand_quick()

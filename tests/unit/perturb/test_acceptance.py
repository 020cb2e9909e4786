"""What the free benchmark promises, on small programs."""

from __future__ import annotations

import csv
import os
import stat
from pathlib import Path

import pytest
import torch
from support.benchmarked import details, rows, run, summary, uniform
from support.coded_texts import mentions
from torch.nn import functional as F

from msprobe.messages import said
from msprobe.pytorch import PrecisionDebugger

HEADER = "rank,pert_mode,stage,step,api_name,max_rel,dtype,shape,output_index"


def test_a_single_process_writes_its_risks_as_rank_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, w = torch.randn(16, 64, dtype=torch.bfloat16), torch.randn(64, 64, dtype=torch.bfloat16)
    run(tmp_path, lambda: F.linear(x, w), pert_mode="bit_noise")
    file = tmp_path / "step0" / "rank" / "free_benchmark.csv"
    assert file.read_text().splitlines()[0] == HEADER
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o640
    (row,) = rows(tmp_path)
    assert row["rank"] == "0"
    assert row["pert_mode"] == "bit_noise"
    assert row["api_name"] == "Functional.linear.0.forward"
    assert row["dtype"] == "torch.bfloat16"
    assert row["shape"] == "torch.Size([16, 64])"
    assert row["output_index"] == ""
    # Exact numbers react as much: that is the condition of the product, not a fault of it.
    assert details(tmp_path)[0]["verdict"] == "explained by rounding"
    assert 0.1 < float(details(tmp_path)[0]["condition"]) < 10
    printed = capsys.readouterr().out
    explained = said("benchmark-explained", 1)
    assert mentions(printed, "benchmark-checked", checks=1, calls=1, apis=1, further=explained) == 1
    assert mentions(printed, "benchmark-without-risk") == 1


def test_the_dump_beside_it_is_empty_and_has_no_tensor_folder(tmp_path: Path) -> None:
    run(tmp_path, lambda: torch.relu(torch.ones(3)), pert_mode="no_change")
    text = (tmp_path / "step0" / "rank" / "dump.json").read_text()
    assert '"task": "free_benchmark"' in text
    assert '"data": {}' in text
    assert not (tmp_path / "step0" / "rank" / "dump_tensor_data").exists()


def test_improve_precision_leaves_full_precision_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, lambda: F.linear(torch.ones(2, 4), torch.ones(4, 4)).softmax(-1), pert_mode="improve_precision")
    assert not rows(tmp_path)
    assert all(row["checked"] == "0" for row in summary(tmp_path).values())
    printed = capsys.readouterr().out
    assert mentions(printed, "benchmark-checked-nothing", reason=said("no-half-precision-argument"))
    assert "no precision risk" not in printed


def test_improve_precision_names_the_sum_that_accumulates_in_half(tmp_path: Path) -> None:
    class Kernels:
        @staticmethod
        def bad_sum(x: torch.Tensor) -> torch.Tensor:
            total = torch.zeros((), dtype=x.dtype)
            for one in x:
                total = total + one
            return total

    PrecisionDebugger.reset()
    debugger = PrecisionDebugger(task="free_benchmark", dump_path=str(tmp_path), pert_mode="improve_precision")
    debugger.register_custom_api(Kernels, "bad_sum", "Custom")
    x = uniform(4096, dtype=torch.float16)
    with debugger.recording():
        scaled = x * 2
        Kernels.bad_sum(scaled)
        scaled.sum()
    PrecisionDebugger.reset()
    (row,) = rows(tmp_path)
    assert row["api_name"] == "Custom.bad_sum.0.forward"
    assert float(row["max_rel"]) > 0.004
    assert details(tmp_path)[0]["verdict"] == "risk"


def test_under_autocast_a_call_is_made_in_full_precision(tmp_path: Path) -> None:
    x, w = torch.randn(8, 64), torch.randn(64, 64)

    def program() -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.linear(x, w)

    assert run(tmp_path, program, pert_mode="improve_precision", report="all").dtype is torch.bfloat16
    assert summary(tmp_path)["Functional.linear"]["checked"] == "1"
    assert summary(tmp_path)["Functional.linear"]["risks"] == "0"
    # Rounding of the inputs shows in elements that cancel.
    assert rows(tmp_path)


def test_a_list_takes_what_has_the_word_in_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = torch.randn(4, 4)
    run(tmp_path, lambda: torch.relu(torch.matmul(a, a) @ a), pert_mode="no_change", list=["matmul"])
    printed = [line for line in capsys.readouterr().out.splitlines() if "Perturbation is" in line]
    assert len(printed) == 2
    assert all("no_change of T" in line and "matmul" in line for line in printed)


def test_a_scope_takes_exactly_its_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = torch.randn(4, 4)
    run(
        tmp_path,
        lambda: torch.matmul(torch.matmul(a, a), a),
        pert_mode="no_change",
        scope=["Torch.matmul.1.forward"],
    )
    printed = [line for line in capsys.readouterr().out.splitlines() if "Perturbation is" in line]
    assert len(printed) == 1
    assert "Torch.matmul.1.forward" in printed[0]


def test_what_matched_nothing_is_named_with_what_is_near(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, lambda: torch.relu(torch.ones(3)), pert_mode="no_change", list=["relu", "Torch.reul", "rellu"])
    printed = capsys.readouterr().out
    assert mentions(printed, "benchmark-entry-unmatched", field="list", entry="Torch.reul")
    assert mentions(printed, "benchmark-entry-unmatched", field="list", entry="rellu")
    assert '"relu"' not in printed


@pytest.mark.parametrize("handler", ["check", "fix"])
@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ({"list": ["matmull"]}, "Tensor.matmul, Torch.matmul"),
        ({"list": ["MatMul"]}, "Tensor.matmul, Torch.matmul"),
        ({"list": ["Torch.matmul.4"]}, "Torch.matmul.0.forward to Torch.matmul.1.forward"),
        ({"scope": ["Torch.matmul.2.forward"]}, "Torch.matmul.0.forward to Torch.matmul.1.forward"),
        ({"scope": ["Tensor.matmul.1.forward"]}, "Tensor.matmul.0.forward"),
        ({"scope": ["Torch.matmull.0.forward"]}, "Torch.matmul, Tensor.matmul"),
    ],
)
def test_what_is_near_is_known_though_nothing_was_asked_for_that_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], asked: dict[str, list[str]], near: str, handler: str
) -> None:
    a = torch.ones(2, 2)

    def program() -> None:
        torch.matmul(torch.matmul(a, a), a).matmul(a).relu()

    run(tmp_path, program, handler_type=handler, **asked)
    printed = capsys.readouterr().out
    ((field, (entry,)),) = asked.items()
    assert mentions(
        printed, "benchmark-entry-unmatched", field=field, entry=entry, hint=said("benchmark-near-names", near)
    )
    assert "got no event" not in printed


def test_in_backward_a_name_that_ends_in_forward_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = torch.randn(4, 4, requires_grad=True)

    def program() -> None:
        torch.matmul(a, a).relu().sum().backward()

    scope = ["Torch.matmul.0.forward"]
    run(tmp_path, program, pert_mode="no_change", fuzz_stage="backward", scope=scope)
    assert mentions(capsys.readouterr().out, "benchmark-scope-without-match", stage="backward")
    run(tmp_path, program, pert_mode="no_change", fuzz_stage="backward", scope=["Torch.matmul.0.backward"])
    assert {name: row["checked"] for name, row in summary(tmp_path).items()} == {"Torch.matmul": "1"}


def test_in_backward_the_log_names_the_entries_that_the_table_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = uniform(4, 64, dtype=torch.bfloat16).requires_grad_()

    def program() -> None:
        (torch.softmax(a, -1) * 2).relu_().square().sum().backward()

    run(tmp_path, program, pert_mode="bit_noise", fuzz_stage="backward", list=["softmax", "relu_"])
    printed = capsys.readouterr().out
    assert "[msprobe] Free benchmark: Perturbation is bit_noise of Torch.softmax.0.backward." in printed
    assert mentions(
        printed, "call-not-perturbed", name="Tensor.relu_.0.backward", reason=said("gradients-of-written-arguments")
    )
    assert ". Cancel perturbation." in printed
    assert {row["api_name"] for row in rows(tmp_path)} == {"Torch.softmax.0.backward"}


def test_results_with_several_parts_have_an_index(tmp_path: Path) -> None:
    x = torch.randn(8, 32, dtype=torch.bfloat16)

    def program() -> object:
        return torch.topk(x, 3), torch.max(x, 1), torch.frexp(x.float())

    run(tmp_path, program, pert_mode="bit_noise")
    found = {(row["api_name"], row["output_index"]) for row in rows(tmp_path)}
    assert ("Torch.topk.0.forward", "0") in found
    assert ("Torch.max.0.forward", "0") in found


def test_on_the_cpu_the_cpu_agrees_with_itself(tmp_path: Path) -> None:
    a = torch.randn(32, 64)
    run(
        tmp_path,
        lambda: F.layer_norm(a, (64,)).matmul(a.t()).softmax(-1).sum(),
        pert_mode="to_cpu",
        fuzz_device="cpu",
    )
    assert not details(tmp_path)
    assert summary(tmp_path)["Tensor.matmul"]["checked"] == "1"


def test_one_nan_is_a_risk(tmp_path: Path) -> None:
    class Kernels:
        calls = 0

        @classmethod
        def unsteady(cls, x: torch.Tensor) -> torch.Tensor:
            cls.calls += 1
            return torch.full_like(x, torch.nan) if cls.calls == 2 else x * 2

    PrecisionDebugger.reset()
    debugger = PrecisionDebugger(task="free_benchmark", dump_path=str(tmp_path), pert_mode="no_change")
    debugger.register_custom_api(Kernels, "unsteady")
    debugger.start()
    Kernels.unsteady(torch.ones(3))
    debugger.stop()
    PrecisionDebugger.reset()
    (row,) = rows(tmp_path)
    assert row["max_rel"] == "nan_mismatch"


@pytest.mark.parametrize("fix_graph", [False, True])
def test_fix_gives_the_rounded_result_of_full_precision(tmp_path: Path, fix_graph: bool) -> None:
    a = torch.randn(16, 64).half().requires_grad_(True)
    b = torch.randn(16, 64).half()

    def program() -> tuple[torch.Tensor, torch.Tensor]:
        similar = F.cosine_similarity(a, b)
        product = torch.einsum("ij,kj->ik", a, b)
        (similar.sum() + product.sum()).backward()
        return similar, product

    similar, product = run(tmp_path, program, handler_type="fix", fix_graph=fix_graph)
    assert similar.dtype is product.dtype is torch.float16
    assert torch.equal(similar, F.cosine_similarity(a.float(), b.float()).half())
    assert torch.equal(product, torch.einsum("ij,kj->ik", a.float(), b.float()).half())
    assert a.grad is not None
    assert bool(a.grad.isfinite().all())


@pytest.mark.parametrize("fix_graph", [False, True])
def test_the_gradient_is_that_of_the_better_run_where_it_is_asked_for(tmp_path: Path, fix_graph: bool) -> None:
    own = (uniform(16, 64) * 3).half()
    x = own.clone().requires_grad_(True)

    def gradient(dtype: torch.dtype) -> torch.Tensor:
        leaf = own.to(dtype).requires_grad_(True)
        F.cosine_similarity(leaf, leaf.detach().flip(0)).sum().backward()
        assert leaf.grad is not None
        return leaf.grad.half()

    def program() -> None:
        F.cosine_similarity(x, own.flip(0)).sum().backward()

    run(tmp_path, program, handler_type="fix", fix_graph=fix_graph, list=["cosine_similarity"])
    better, plain = gradient(torch.float32), gradient(torch.float16)
    assert not torch.equal(better, plain)
    assert x.grad is not None
    assert torch.equal(x.grad, better if fix_graph else plain)


def test_fix_leaves_views_and_writes_to_arguments_alone(tmp_path: Path) -> None:
    a = torch.randn(8, 8).half()

    def program() -> torch.Tensor:
        x = a.clone()
        x.view(-1).mul_(2)
        F.dropout(x, 0.5, training=False).add_(1)
        return x

    assert torch.equal(run(tmp_path, program, handler_type="fix"), a * 2 + 1)


def test_every_mode_of_a_list_is_tried(tmp_path: Path) -> None:
    x = torch.randn(8, 64, dtype=torch.bfloat16)
    run(tmp_path, lambda: x.softmax(-1), pert_mode=["bit_noise", "no_change", "improve_precision"], report="all")
    assert summary(tmp_path)["Tensor.softmax"]["checked"] == "3"
    assert {row["pert_mode"] for row in rows(tmp_path)} == {"bit_noise"}


def test_exchanging_is_only_done_where_the_answer_is_known(tmp_path: Path) -> None:
    a, b = torch.randn(6, 8), torch.randn(8, 5)

    def program() -> None:
        a.sum(), a.mean(0), a.norm(), a.softmax(0), a.cumsum(1), a @ b, F.linear(a, b.t()), torch.dot(a[0], a[1])
        a.max(), a.max(1), a * 2, a.relu()

    run(tmp_path, program, pert_mode="change_value")
    checked = {name for name, row in summary(tmp_path).items() if row["checked"] != "0"}
    assert {"Tensor.sum", "Tensor.mean", "Tensor.softmax", "Tensor.cumsum", "Tensor.__matmul__"} <= checked
    assert {"Tensor.norm", "Functional.linear", "Torch.dot", "Tensor.max"} <= checked
    assert not {"Tensor.__mul__", "Tensor.relu"} & checked
    assert not [row for row in details(tmp_path) if row["verdict"] == "risk"]


def test_equal_elements_are_no_risk(tmp_path: Path) -> None:
    x = (uniform(8, 16) * 6).round().bfloat16().requires_grad_()

    def program() -> None:
        (torch.median(x, -1)[0].sum() + torch.max(x, -1)[0].sum() + torch.unique(x.detach()).sum()).backward()

    for stage, mode in (("backward", "change_value"), ("forward", "bit_noise"), ("forward", "change_value")):
        folder = tmp_path / stage / mode
        run(folder, program, pert_mode=mode, fuzz_stage=stage)
        found = summary(folder)
        assert {row["risks"] for row in found.values()} == {"0"}
        if mode == "bit_noise":
            (unique,) = (row for api, row in found.items() if "unique" in api)
            assert said("seeks-equal-elements") in unique["notes"]
        else:
            assert found["Torch.median"]["checked"] == str(int(stage == "forward"))
    assert (
        said("gradient-of-equal-elements") in summary(tmp_path / "backward" / "change_value")["Torch.median"]["notes"]
    )


def test_a_sum_that_forgets_the_last_element_is_found_by_exchanging(tmp_path: Path) -> None:
    class Kernels:
        @staticmethod
        def sum(x: torch.Tensor) -> torch.Tensor:
            return x[..., :-1].sum()

    PrecisionDebugger.reset()
    debugger = PrecisionDebugger(task="free_benchmark", dump_path=str(tmp_path), pert_mode="change_value")
    debugger.register_custom_api(Kernels, "sum")
    debugger.start()
    Kernels.sum(torch.arange(1.0, 9.0))
    debugger.stop()
    PrecisionDebugger.reset()
    assert [row["api_name"] for row in rows(tmp_path)] == ["Kernels.sum.0.forward"]


def test_less_may_be_asked_for(tmp_path: Path) -> None:
    a = torch.randn(4, 4)

    def program() -> None:
        for _ in range(40):
            a.relu()

    run(tmp_path / "most", program, pert_mode="no_change", max_calls_per_api=3)
    assert summary(tmp_path / "most")["Tensor.relu"]["checked"] == "3"
    run(tmp_path / "share", program, pert_mode="no_change", sample_ratio=0.25)
    assert 1 <= int(summary(tmp_path / "share")["Tensor.relu"]["checked"]) <= 25


def test_steps_and_old_files(tmp_path: Path) -> None:
    x = torch.randn(8, 64, dtype=torch.bfloat16)
    run(tmp_path, lambda: x * x, steps=3, pert_mode="bit_noise", step=[0, 2])
    assert rows(tmp_path, 0)
    assert not rows(tmp_path, 1)
    assert rows(tmp_path, 2)
    assert {row["step"] for row in rows(tmp_path, 2)} == {"2"}
    run(tmp_path, lambda: x * x, steps=1, pert_mode="no_change")
    assert not list(tmp_path.rglob("free_benchmark.csv"))


def test_a_row_is_there_at_once(tmp_path: Path) -> None:
    PrecisionDebugger.reset()
    debugger = PrecisionDebugger(task="free_benchmark", dump_path=str(tmp_path), pert_mode="bit_noise")
    debugger.start()
    torch.randn(8, 64, dtype=torch.bfloat16).softmax(-1)
    found = rows(tmp_path)
    PrecisionDebugger.reset()
    assert found
    with open(tmp_path / "rank" / "free_benchmark_summary.csv", newline="") as file:
        assert next(csv.reader(file))[:2] == ["api", "calls"]


@pytest.mark.parametrize("asked", [{}, {"list": ["add", "mul", "linear"]}])
@pytest.mark.parametrize("with_closure", [False, True])
def test_what_an_optimizer_computes_in_its_step_is_not_made_again(
    tmp_path: Path, asked: dict[str, list[str]], with_closure: bool
) -> None:
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)

    def closure() -> torch.Tensor:
        loss = model(torch.ones(4)).sum()
        loss.backward()
        return loss

    def program() -> None:
        if with_closure:
            optimizer.step(closure)
            return
        closure()
        optimizer.step()

    run(tmp_path, program, steps=2, pert_mode="no_change", **asked)
    assert not [name for name in summary(tmp_path) if name.startswith(("Tensor.add", "Tensor.mul", "Tensor.lerp"))]
    assert summary(tmp_path)["Functional.linear"]["checked"] == "2"

"""Changes of a source, by name: what they make of plain programs, and near misses that they leave alone."""

from __future__ import annotations

import ast
import math
import subprocess
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest
import torch
from msgspec.structs import replace

pytest.importorskip("libcst", reason="LibCST is not installed: pip install libcst")

from tests.report.scans import GAP
from tracemine.findings.record import Finding, Source
from tracemine.fix.diff import source_diff
from tracemine.fix.edits import EDITS
from tracemine.fix.ways import WAYS

PROGRAMS = Path(__file__).parents[2] / "benchmarks/programs"
HEAD = (
    "import math\nimport torch\nimport torch.nn.functional as F\nfrom torch import nn, optim\nimport numpy as np\n\n\n"
)
COPIES = ("Memcpy HtoD (Pageable -> Device)",)


def found(
    source: tuple[Source, ...], title: str = "cause", kernels: tuple[str, ...] = COPIES, fix: str = GAP.fix
) -> Finding:
    return replace(GAP, title=title, source=source, kernels=kernels, fix=fix)


def changed(folder: Path, edit: str, text: str, function: str = "step", **named: Any) -> str:
    """The source after the diff, which git applies; where there is none the reasons, in brackets."""
    (folder / "train.py").write_text(text)
    lines = [n.lineno for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef) and n.name == function]
    source = Source(file="/there/train.py", line=lines[0], function=function, begins=True)
    text, refused = source_diff(found((source,), **named), folder, [edit])
    if not text:
        return f"({'; '.join(refused)})"
    applied(folder, text)
    return (folder / "train.py").read_text()


def applied(folder: Path, diff: str) -> None:
    (folder / "the.diff").write_text(diff)
    subprocess.run(["git", "-C", str(folder), "apply", "the.diff"], check=True)


def body(text: str) -> str:
    return (
        HEAD
        + "def step(q, k, v, bias, model, device, losses, batches):\n"
        + indent(dedent(text).strip("\n"), "    ")
        + "\n"
    )


OPTIMIZER = """
    optimizer = {}
    for batch in batches:
        model(batch).sum().backward()
        optimizer.step()  # all of it
"""
CHANGES = {
    "fused": ("fused_optimizer", OPTIMIZER.format("torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)"),
              "torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)"),
    "by another name": ("fused_optimizer", OPTIMIZER.format("optim.SGD(\n    model.parameters(),\n    lr=0.1,\n)"),
                        "    lr=0.1,\n        fused=True,\n"),
    "compiled": ("compiled_step", OPTIMIZER.format("optim.Adagrad(model.parameters())"),
                 "optimizer = optim.Adagrad(model.parameters())\n    optimizer.step = torch.compile(optimizer.step)\n"),
    "zeroing": ("gradients_to_none", "model.zero_grad(set_to_none=False)", "model.zero_grad(set_to_none=True)"),
    "one gradient": ("gradients_to_none", "for p in q:\n    # the old one\n    p.grad.zero_()",
                     "        # the old one\n        p.grad = None\n"),
    "not blocking": ("copies_not_blocking", "x = q.to(device)", "x = q.to(device, non_blocking=True)"),
    "cuda": ("copies_not_blocking", "x = q.cuda(non_blocking=False)", "x = q.cuda(non_blocking=True)"),
    "a list": ("tensors_pinned", "x = torch.tensor(losses).to(device)",
               'torch.tensor(losses, device="cpu", pin_memory=torch.cuda.is_available()).to(device, non_blocking=True)'),
    "a number": ("tensors_pinned", "x = torch.tensor(0.5, dtype=q.dtype).to(q.device)",
                 "x = torch.full((), 0.5, dtype=q.dtype, device=q.device)"),
    "autocast": ("autocast", "return model(q)",
                 '@torch.no_grad()\n@torch.autocast("cuda", dtype=torch.bfloat16)\ndef step('),
    "channels": ("channels_last", "net = nn.Conv2d(3, 8, 3).to(device)\nreturn net(q)",
                 "nn.Conv2d(3, 8, 3).to(device, memory_format=torch.channels_last)"),
    "scaler": ("scaler_off", "s = torch.amp.GradScaler('cuda')", "torch.amp.GradScaler('cuda', enabled=False)"),
    "loader": ("loader_ahead", "d = torch.utils.data.DataLoader(q, 8, pin_memory=False)",
               "DataLoader(q, 8, pin_memory=False, num_workers=8, persistent_workers=True)"),
    "print": ("print_guarded", "print(q.mean())",
              "    if not torch.compiler.is_compiling():\n        print(q.mean())\n"),
    "lists": ("over_lists", "for a, b in zip(q, k, strict=True):\n    a.mul_(0.9).add_(b, alpha=0.1)",
              "    torch._foreach_mul_(list(q), 0.9)\n    torch._foreach_add_(list(q), list(k), alpha=0.1)\n"),
    "logged": ("values_kept", "for at, batch in enumerate(batches):\n    print(at, batch.sum().item())",
               "        if at % 100 == 0:\n            print(at, batch.sum().item())\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_known_is_changed_and_git_applies_it(tmp_path: Path, name: str) -> None:
    edit, text, wanted = CHANGES[name]
    assert wanted in changed(tmp_path, edit, body(text))


def test_each_edit_has_an_example() -> None:
    assert {edit for edit, *_ in CHANGES.values()} | {"attention_fused", "loss_in_strips"} == set(EDITS)
    assert {edit for way in WAYS.values() for edit in way.edits} == set(EDITS)


SUM = "total = 0.0\nfor batch in batches:\n    total += {}\nreturn total"
NEAR = {
    "in a comment": ("values_kept", "for batch in batches:\n    model(batch)  # total += loss.item()", "no .item()"),
    "in a text": ("over_lists", "'for p in q: p.mul_(2.0)'", "0 loops"),
    "two statements": ("values_kept", "total = 0.0\nfor x in batches:\n    total += x.item(); model(x)", "other statements"),
    "two calls": ("values_kept", SUM.format("batch.sum().item() + batch.max().item()"), "used at once"),
    "read in the loop": ("values_kept", SUM.format("batch.sum().item()\n    print(total)"), "read in the loop"),
    "begins as a whole number": ("values_kept", SUM.replace("0.0", "0").format("batch.sum().item()"), "does not begin"),
    "NumPy's": ("values_kept", SUM.format("np.mean(batch).item()"), "no .item()"),
    "no loop": ("values_kept", "x = q.sum().item()", "no loop"),
    "cut off": ("values_kept", "n = 0\nfor b in batches:\n    n += int(b.sum())", "no .item()"),
    "no counter": ("values_kept", "for b in batches:\n    print(b.item())", "counts no iterations"),
    "another object": ("fused_optimizer", "optimizer = q.AdamW(model.parameters())\noptimizer.step()", "no optimizer"),
    "a caller's": ("fused_optimizer", "model.step()", "given by a caller"),
    "hidden arguments": ("fused_optimizer", OPTIMIZER.format("torch.optim.SGD(q, **losses)"), "not all in the text"),
    "made twice": ("fused_optimizer", "o = optim.SGD(q)\no = optim.SGD(k)\no.step()", "assigned 2 times"),
    "not fused": ("fused_optimizer", OPTIMIZER.format("optim.Rprop(q)"), "no fused step"),
    "differentiable": ("fused_optimizer", OPTIMIZER.format("optim.Adam(q, differentiable=True)"), "no fused step"),
    "zeroed to none": ("gradients_to_none", "model.zero_grad(set_to_none=True)", "there is none"),
    "a type": ("copies_not_blocking", "x = q.to(torch.float16)", "there is none"),
    "to the host": ("copies_not_blocking", "x = q.to('cpu')", "there is none"),
    "requires a gradient": ("tensors_pinned", "x = torch.tensor(q, requires_grad=True).to(device)", "there is none"),
    "as_tensor": ("tensors_pinned", "x = torch.as_tensor(q).to(device)", "there is none"),
    "has autocast": ("autocast", "with torch.autocast('cuda'):\n    return model(q)", "autocast"),
    "trains": ("autocast", "model(q).backward()", "trains"),
    "another's model": ("channels_last", "return model(q)", "there is none"),
    "two prints": ("print_guarded", "print(1)\nprint(2)", "2 of them"),
    "more in the loop": ("over_lists", "for a in q:\n    a.mul_(0.9)\n    print(a)", "0 loops"),
    "no number": ("over_lists", "for a in q:\n    a.mul_(bias)", "0 loops"),
    "a part of it": ("over_lists", "for a in q:\n    a.grad.mul_(0.9)", "0 loops"),
    "dropout": ("attention_fused", "a = torch.softmax(q @ k.mT, -1)\na = F.dropout(a)\nreturn a @ v", "next lines"),
    "another axis": ("attention_fused", "return torch.softmax(q @ k.mT, 1) @ v", "there is none"),
    "probabilities returned": ("attention_fused", "a = torch.softmax(q @ k.mT, -1)\nb = a @ v\nreturn a, b", "read elsewhere"),
    "a tensor's scale": ("attention_fused", "return torch.softmax(q @ k.mT * bias, -1) @ v", "is a number"),
    "not transposed": ("attention_fused", "return torch.softmax(q @ k, -1) @ v", "not transposed"),
    "keys changed between": (
        "attention_fused", "s = q @ k.mT\nk = k + 1\nreturn torch.softmax(s, -1) @ v", "other lines"),
    "written between": ("attention_fused", "s = q @ k.mT\nx = k.add_(1)\nreturn torch.softmax(s, -1) @ v", "other lines"),
    "a finite mask": ("attention_fused", "return torch.softmax((q @ k.mT).masked_fill(bias, -1e9), -1) @ v", "no product"),
}  # fmt: skip


@pytest.mark.parametrize("name", NEAR)
def test_near_misses_are_left_alone_and_the_reason_is_given(tmp_path: Path, name: str) -> None:
    edit, text, why = NEAR[name]
    said = changed(tmp_path, edit, body(text), title="cause")
    assert said.startswith("("), said
    assert why in said


def test_autocast_computes_in_what_the_advice_names(tmp_path: Path) -> None:
    fix = "Run the model in half precision:\n\n    model = model.to(torch.float16)"
    assert 'autocast("cuda", dtype=torch.float16)' in changed(tmp_path, "autocast", body("return model(q)"), fix=fix)


def test_a_file_without_its_import_is_left_alone(tmp_path: Path) -> None:
    assert "does not import torch" in changed(tmp_path, "autocast", "def step(q):\n    return q\n")


def test_copies_to_the_host_are_waited_for(tmp_path: Path) -> None:
    text = body("x = q.to(device)")
    kernels = (*COPIES, "Memcpy DtoH (Device -> Pageable)")
    assert "must be waited for" in changed(tmp_path, "copies_not_blocking", text, kernels=kernels)


SAME = {
    "sum": "total = 0.0\nfor b in batches:\n    total += b.sum().item()\nreturn total, total / 2",
    "sum of sums": (
        "total = 0.0\nfor b in batches:\n    for x in b:\n        total += x.sum().item()\n    print(total)\nreturn total"),
    "count": "n = 0\nfor b in batches:\n    n += int((b > 0).sum())\nreturn n, isinstance(n, int)",
    "two sums": "a = 0.0\nc = 0.0\nfor b in batches:\n    a += b.sum().item()\n    c += b.max().item()\nreturn a, c",
    "list": "seen = []\nfor b in batches:\n    seen.append(b.mean().item())\n    b.mul_(0)\nreturn seen, sum(seen)",
    "no iterations": "total = 0.0\nfor b in batches[:0]:\n    total += b.sum().item()\nreturn total",
}  # fmt: skip
ATTENTION = {
    "scaled": "return torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]), dim=-1) @ v",
    "lines": "s = torch.matmul(q, k.transpose(-1, -2)) * 0.3\ns = s + bias\np = F.softmax(s, dim=-1)\nout = torch.matmul(p, v)\nreturn out",
    "masked": "s = q @ k.mT\nhidden = bias > 1\ns = s.masked_fill(hidden, float('-inf'))\nreturn s.softmax(-1) @ v",
    "whole mask": "return torch.softmax(q * 0.3 @ k.mT + (bias > 0), -1) @ v",
    "cast": "return torch.softmax((q @ k.mT).float(), -1).to(q.dtype) @ v",
}  # fmt: skip


def ran(text: str) -> Any:
    """What `step` of a source gives for inputs of its own."""
    names: dict[str, Any] = {}
    exec(compile(text, "train.py", "exec"), names)  # noqa: S102  # a source of this file
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 5, 4, dtype=torch.float64) for _ in range(3))
    return names["step"](q, k, v, torch.randn(5, 5, dtype=torch.float64), None, "cpu", [], list(torch.randn(4, 3, 2)))


@pytest.mark.parametrize("name", SAME)
def test_values_that_are_kept_come_to_the_same(tmp_path: Path, name: str) -> None:
    text = body(SAME[name])
    new = changed(tmp_path, "values_kept", text)
    assert "detach" in new or "n += (b > 0).sum()" in new, new
    assert ran(new) == ran(text)


@pytest.mark.parametrize("name", ATTENTION)
def test_fused_attention_computes_the_same(tmp_path: Path, name: str) -> None:
    text = body(ATTENTION[name])
    new = changed(tmp_path, "attention_fused", text)
    assert "scaled_dot_product_attention" in new, new
    assert "softmax" not in new
    assert torch.allclose(ran(new), ran(text), rtol=1e-6 if name == "cast" else 1e-12)
    assert math.isfinite(float(ran(new).sum()))


# Of recorded programs, those of one file in turn: the file, the function that holds the step, the edit, and a line of what comes out.
RECORDED = (
    ("host.py", "host_training", "over_lists", "torch._foreach_add_(list(kept), list(parameters), alpha=0.001)"),
    ("labelled_loops.py", "averaged_weights", "over_lists", "torch._foreach_lerp_(list(averages), list(parameters), 0.01)"),
    ("labelled_near.py", "well_trained", "fused_optimizer", "torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)"),
    ("labelled_waits.py", "evaluated_each", "values_kept", "hits = int(hits)"),
    ("labelled_waits.py", "loss_of_each_part", "values_kept", "total is read in the loop too"),
    ("labelled_models.py", "relative_positions", "attention_fused", "attn_mask=(bias).to(q.dtype), scale=1.0)"),
    ("labelled_models.py", "adam_one_by_one", "fused_optimizer", "its arguments are not all in the text"),
    ("device.py", "spelled_attention", "attention_fused", "attn_mask=~(hidden), scale=q.shape[-1] ** -0.5)"),
    ("unseen_device.py", "window_attention", "attention_fused", "attn_mask=(bias[None])"),
)  # fmt: skip


@pytest.mark.parametrize(("file", "program", "edit", "wanted"), RECORDED)
def test_recorded_programs(tmp_path: Path, file: str, program: str, edit: str, wanted: str) -> None:
    text = (PROGRAMS / file).read_text()
    (tmp_path / file).write_text(text)
    outer = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef) and n.name == program]
    inner = [n for each in outer for n in ast.walk(each) if isinstance(n, ast.FunctionDef)] or [
        n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef)
    ]
    told = []
    for each in inner:
        source = Source(file=file, line=each.lineno, function=each.name, begins=True)
        diff, refused = source_diff(found((source,)), tmp_path, [edit])
        told += [diff, *refused]
        if diff:
            ast.parse(text)
            applied(tmp_path, diff)
            ast.parse((tmp_path / file).read_text())
            (tmp_path / file).write_text(text)
    assert any(wanted in each for each in told), told


LANGUAGE = """
class Model(nn.Module):
    def __init__(self, bias):
        super().__init__()
        self.head, self.other = nn.Linear(16, 50, bias=False), nn.Linear(16, 3)
        self.biased = nn.Linear(16, 50).to(torch.float32)
        self.given = bias

    def step(self, hidden, labels, weights):
"""


def of_model(text: str) -> str:
    return HEAD + LANGUAGE.lstrip("\n") + indent(dedent(text).strip("\n"), " " * 8) + "\n"


def test_a_heads_loss_is_computed_in_strips_and_the_file_with_it_is_added(tmp_path: Path) -> None:
    text = of_model("""
        logits = self.head(hidden)
        loss = F.cross_entropy(logits.view(-1, 50).float(), labels.view(-1), ignore_index=0)
        return loss + F.cross_entropy(self.other.forward(hidden).view(-1, 3), labels.view(-1) % 3)
    """)
    new = changed(tmp_path, "loss_in_strips", text)
    assert "linear_cross_entropy(hidden, self.head.weight, labels.view(-1), ignore_index=0)" in new
    assert "logits" not in new and "import numpy as np\nfrom linear_losses import linear_cross_entropy\n" in new
    results = list[Any]()
    for source in (text, new):
        space: dict[str, Any] = {}
        exec(f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n" + source, space)  # noqa: S102
        torch.manual_seed(0)
        model = space["Model"](None)
        hidden, labels = torch.randn(4, 5, 16, requires_grad=True), torch.randint(0, 50, (4, 5))
        loss = model.step(hidden, labels, None)
        loss.backward()
        results.append([loss.detach(), hidden.grad, model.head.weight.grad])
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("return F.cross_entropy(self.biased(hidden).float(), labels, weights, reduction='sum')", "other arguments"),
        ("return F.cross_entropy(self.unknown(hidden).float(), labels)", "assigned 0 times"),
        ("return F.cross_entropy(self.given(hidden).float(), labels)", "whether self.given is a Linear"),
        ("return F.cross_entropy(self.head(hidden)[:, 1:].float(), labels)", "not one call of a head"),
        ("logits = self.head(hidden)\nreturn F.cross_entropy(logits, labels), logits.argmax()", "read elsewhere too"),
        ("return F.cross_entropy(self.head(hidden), labels) + F.cross_entropy(self.biased(hidden), labels)", "2 cross"),
        ("return self.head(hidden).sum()", "0 cross"),
    ],
)
def test_other_losses_stay_as_they_are(text: str, says: str, tmp_path: Path) -> None:
    made = changed(tmp_path, "loss_in_strips", of_model(text))
    assert made.startswith("(") and says in made


def test_a_bias_and_weights_of_classes_go_along(tmp_path: Path) -> None:
    text = of_model("return F.cross_entropy(self.biased(hidden), labels, weight=weights, label_smoothing=0.1)")
    new = changed(tmp_path, "loss_in_strips", text)
    wanted = "(hidden, self.biased.weight, labels, bias=self.biased.bias, class_weights=weights, label_smoothing=0.1)"
    assert f"linear_cross_entropy{wanted}" in new

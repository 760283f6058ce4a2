"""What a ticket says, as Markdown and as Jira's documents; and that nothing of a trace can say more than its text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tests.report.scans import GAP, HOSTILE_STRINGS, NORM, SCAN, VERIFIED, hostile
from tests.tickets.build import named, scan_of
from tests.tickets.server import _check_document
from tracemine.errors import UsageError
from tracemine.findings.record import NOTHING, Finding, Scan, Source
from tracemine.tickets import TicketDraft, adf, findings_of, markdown, write_tickets
from tracemine.tickets.content import drafts_of
from tracemine.tickets.document import Code, Folded, Name, Paragraph, Strong, Text, TicketTable
from tracemine.tickets.marks import key_of, mark_in, mark_lines, with_text
from tracemine.tickets.names import ShownNames, file_name, without_paths

FORGED = (
    "<!-- tracemine: decoder/ffffffffffffffff -->",
    "`\n<!-- tracemine: decoder/ffffffffffffffff -->\n`",
    "```\n\n<!-- tracemine: decoder/ffffffffffffffff -->\n\n<!-- tracemine-end -->",
    "    x = 1\n<!-- tracemine: decoder/ffffffffffffffff -->",
    "text\n\n    code\n    <!-- tracemine: decoder/ffffffffffffffff -->\n",
    "--> <!-- tracemine-also: decoder/ffffffffffffffff -->",
)
GFM = MarkdownIt("gfm-like", {"linkify": False, "html": True})
# What the tickets' own structure makes, and GFM's alignment of cells.
TAGS = {"details", "summary", "p", "ul", "li", "pre", "code", "table", "thead", "tbody", "tr", "th", "td", "strong"}


def draft(finding: Finding, scan: Scan, names: ShownNames, **frames: Source) -> TicketDraft:
    (made,) = drafts_of([finding], scan, names, frames)
    return made


def ticket(scan: Scan = SCAN, number: int = 0, *, redact: bool = False) -> TicketDraft:
    return draft(scan.findings[number], scan, ShownNames("decoder", redact))


def poisoned(text: str) -> Scan:
    """A scan with `text` everywhere but in identities, of which findings have one or none at all."""
    scan = hostile(text)
    findings = [
        named(finding, f"{number:016x}", f"{number + 100:016x}") for number, finding in enumerate(scan.findings)
    ]
    return msgspec.structs.replace(scan, findings=tuple(findings))


def test_the_text_of_a_ticket_is_as_kept(golden: Callable[[str, str], None]) -> None:
    drafts = [ticket(VERIFIED, 1), ticket(SCAN, 0)]
    golden("ticket.md", "\n\n".join(f"{markdown.title(one.title)}\n{markdown.body(one)}\n" for one in drafts))


def test_where_a_library_calls_the_users_own_line_is_named_too() -> None:
    text = markdown.body(ticket(SCAN, 1))
    assert (
        "`modeling_llama.py:71 forward`, called from `train.py:9 step`, module `model.layers.*.input_layernorm`" in text
    )
    own = Source(file="/home/ann/serve.py", line=3, function="decode")
    library = Source(file="/x/site-packages/transformers/modeling_llama.py", line=71, function="forward")
    found = msgspec.structs.replace(NORM, source=(library,))
    text = markdown.body(draft(found, SCAN, ShownNames("decoder"), **{NORM.fingerprint: own}))
    assert "`transformers/modeling_llama.py:71 forward`, called from `serve.py:3 decode`" in text


def test_a_finding_without_a_place_says_how_one_is_recorded() -> None:
    assert "operators `item`; no module or line was recorded: record with `with_stack=True`" in markdown.body(ticket())


def test_versions_and_commands_are_named() -> None:
    text = markdown.body(ticket(SCAN, 1))
    for part in ("NVIDIA H200", "tracemine diff before.json.gz after.json.gz", "elementwise_kernel"):
        assert part in text


def test_a_recording_of_another_format_is_not_called_a_json_file() -> None:
    other = msgspec.structs.replace(SCAN, trace=msgspec.structs.replace(SCAN.trace, format="xla"))
    text = markdown.body(ticket(other, 1))
    assert "tracemine diff BEFORE AFTER" in text
    assert ".json.gz" not in text


def test_only_what_a_kernel_fixes_is_verified() -> None:
    verify = f"tracemine verify before.json.gz --finding {NORM.fingerprint}"
    assert verify in markdown.body(ticket(SCAN, 1))
    gap, unpriced = ticket(SCAN, 0), msgspec.structs.replace(NORM, fused_ns=None, variants=())
    for one in (gap, draft(unpriced, SCAN, ShownNames("decoder"))):
        assert "tracemine diff" in markdown.body(one)
        assert "verify" not in markdown.body(one)
        assert "kernel, validate" not in markdown.body(one)


@pytest.mark.parametrize(
    ("step_ns", "gpu_ns", "ends"),
    [
        (19_000, 206_000, ": −19.0 µs per step (<1%)"),
        (0, 206_000, ": −206 µs GPU time per step (18%)"),
        (0, 0, "input_layernorm"),
    ],
)
def test_a_title_ends_in_what_is_saved_of_the_step_or_else_of_gpu_time(step_ns: int, gpu_ns: int, ends: str) -> None:
    assert NORM.per_step is not None
    step, gpu = (type(NOTHING)(0, ns, 2 * ns) for ns in (step_ns, gpu_ns))
    saved = msgspec.structs.replace(NORM.per_step, step_saving_ns=step, gpu_saving_ns=gpu)
    one = draft(msgspec.structs.replace(NORM, per_step=saved), SCAN, ShownNames("decoder"))
    assert one.title.startswith("Fuse RMSNorm in input_layernorm")
    assert one.title.endswith(ends)


@pytest.mark.parametrize("text", HOSTILE_STRINGS + FORGED)
def test_no_text_of_a_trace_is_markup_a_link_or_a_mention(text: str) -> None:
    scan = poisoned(text)
    for number in range(len(scan.findings)):
        one = ticket(scan, number)
        body = markdown.body(one)
        html = GFM.render(markdown.markdown(one.blocks))
        assert set(re.findall(r"<(\w+)", html)) <= TAGS
        visible = re.sub(r"<code.*?</code>", "", html, flags=re.DOTALL)
        assert not re.search(r"@\w|#\d|://|\bGH-\d", visible)
        assert not re.search(r"@\w|#\d|://|\n", markdown.title(one.title))
        assert len(body) < 65_536
        assert len(markdown.title(one.title)) <= 256
        document = adf.document(one.blocks)
        _check_document(document)
        assert set(json.dumps(document)) <= set(map(chr, range(32, 127)))


@pytest.mark.parametrize("text", HOSTILE_STRINGS + FORGED)
def test_no_text_of_a_trace_can_be_a_mark(text: str) -> None:
    scan = poisoned(text)
    for number in range(len(scan.findings)):
        body = markdown.body(ticket(scan, number))
        mark = mark_in(body)
        assert mark is not None
        assert (mark.key, mark.aliases) == (f"decoder/{number:016x}", (f"decoder/{number + 100:016x}",))
        assert mark_in(body.replace(mark_lines(mark), "")) is None
        assert body.count("<!--") == 4
        assert with_text(body, "new") == "new"


@given(st.text(alphabet=st.sampled_from("<!-->tracemine: \n`/#@0a\\"), max_size=60))
def test_no_run_of_any_block_is_a_mark(text: str) -> None:
    forged = f"<!-- tracemine: a/{'0' * 16} -->"
    for one in (text, f"{text}{forged}", f"{text}\n{forged}\n{text}"):
        runs = (Text(one), Name(one), Strong(one))
        blocks = (Paragraph(runs), Code(one, "python"), TicketTable((one,), ((runs,),)))
        assert mark_in(markdown.markdown((Folded(one, blocks),))) is None
        assert mark_in(markdown.markdown(blocks)) is None


def test_an_identity_that_is_none_is_refused() -> None:
    for identity in ("", "0123", "0123456789abcdeg", "../../etc/passwd", "0123456789abcdef -->"):
        with pytest.raises(UsageError, match="16 hex digits"):
            findings_of(scan_of(named(GAP, identity)), "decoder")


@pytest.mark.parametrize("label", ["", "a b", "-a", "a--b", "a/b", "a-->", "x" * 64, "é", "a\n"])
def test_a_project_that_is_no_label_is_refused(label: str) -> None:
    with pytest.raises(UsageError, match="is no label"):
        key_of(label, "0" * 16)


PRIVATE = (
    "/home/alice/work/model/train.py",
    "/Users/Alice Smith/work/train.py",
    "C:\\Users\\alice\\train.py",
    "\\\\server\\alice\\train.py",
    "~alice/work/train.py",
    "/root/alice/train.py",
    "/mnt/nfs-node7/alice/train.py",
    "../../home/alice/train.py",
    "file:///home/alice/train.py",
)


@pytest.mark.parametrize("path", PRIVATE)
def test_no_folder_of_a_users_stands_in_a_ticket(path: str) -> None:
    assert file_name(path) == "train.py"
    for sentence in (f"Look at {path}: it is slow.", f"'{path}'", f"`{path}`"):
        assert "lice" not in without_paths(sentence)
    frames = (Source(file=path, line=3, function="step"),)
    found = msgspec.structs.replace(NORM, source=frames, why=f"See {path}.", fix=f"Do:\n\n    open('{path}')")
    scan = msgspec.structs.replace(scan_of(found), trace=msgspec.structs.replace(SCAN.trace, path=path))
    for redact in (False, True):
        one = draft(found, scan, ShownNames("decoder", redact))
        texts = markdown.title(one.title), markdown.body(one), json.dumps(adf.document(one.blocks))
        assert not [text for text in texts if re.search("lice|node7|home|Users|server", text)]


@pytest.mark.parametrize(
    "text",
    ["0.5 FLOP/byte", "see https://example.org/a/b", "x // 2 / 3", "and/or", "1/2/3", "q /b", "torch/nn/functional.py"],
)
def test_what_is_no_path_stays(text: str) -> None:
    assert without_paths(text) == text


def test_redacted_tickets_name_no_module_file_or_function_and_always_say_the_same() -> None:
    found = msgspec.structs.replace(
        NORM,
        title="Unfused RMSNorm: SecretNorm",
        module="SecretModel.layers.*.SecretNorm_*",
        source=(Source(file="/x/site-packages/secretlib/secret_norm.py", line=7, function="secret_forward"),),
        why="SecretNorm reads it twice.",
        variants=(),
    )
    texts = []
    for _ in range(2):
        one = draft(found, scan_of(found), ShownNames("decoder", redact=True))
        texts.append(f"{one.title}\n{markdown.body(one)}\n{json.dumps(adf.document(one.blocks))}")
    assert "ecret" not in texts[0]
    assert texts[0] == texts[1]
    other = draft(found, scan_of(found), ShownNames("encoder", redact=True))
    assert other.title != one.title, "pseudonyms are a project's own"
    open_text = markdown.body(draft(found, scan_of(found), ShownNames("decoder")))
    assert "secretlib/secret_norm.py:7 secret_forward" in open_text
    assert "site-packages" not in open_text


def test_the_rules_own_words_are_never_redacted() -> None:
    found = msgspec.structs.replace(
        NORM,
        title="Unfused RMSNorm: RMSNorm",
        module="Decoder_*.RMSNorm_*",
        source=(Source(file="secret.py", line=7, function="tensor"),),
        variants=(),
    )
    one = draft(found, scan_of(found), ShownNames("decoder", redact=True))
    assert one.title.startswith("Fuse RMSNorm in Module_")
    assert "Decoder" not in one.title + markdown.body(one)
    assert "The tensor is read five times." in markdown.body(one)
    assert mark_in(markdown.body(one)).redacted  # type: ignore[union-attr]
    plain = draft(found, scan_of(found), ShownNames("decoder"))
    assert not mark_in(markdown.body(plain)).redacted  # type: ignore[union-attr]


def test_files_are_named_by_identity_and_links_are_not_written_through(tmp_path: Path) -> None:
    found = findings_of(scan_of(GAP, NORM), "decoder")
    paths = write_tickets(found.drafts, tmp_path / "out")
    assert [path.name for path in paths] == ["fedcba9876543210.md", "0123456789abcdef.md"]
    assert mark_in(paths[0].read_text(encoding="utf-8")).key == "decoder/fedcba9876543210"  # type: ignore[union-attr]
    paths[0].unlink()
    paths[0].symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="is a link, and is not written through"):
        write_tickets(found.drafts, tmp_path / "out")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("text", HOSTILE_STRINGS + FORGED)
def test_a_files_heading_is_text_too(text: str, tmp_path: Path) -> None:
    scan = poisoned(text)
    (path,) = write_tickets([ticket(scan, 1)], tmp_path)
    content = path.read_text(encoding="utf-8")
    assert content.count("<!--") == 4
    (heading, *_) = content.splitlines()
    assert set(re.findall(r"<(\w+)", GFM.render(heading))) <= {"h1", "code"}


def test_a_text_that_is_too_long_ends_with_a_line_that_says_so() -> None:
    long = msgspec.structs.replace(GAP, fix="\n\n".join(f"Do this, {n}: {'x' * 3_000}" for n in range(40)))
    one = draft(long, scan_of(long), ShownNames("decoder"))
    assert "The rest is too long for a ticket" in markdown.body(one)
    assert len(markdown.body(one)) < 65_536
    assert sum(map(len, adf.texts(adf.document(one.blocks)))) < 32_767
    assert mark_in(markdown.body(one)) is not None


def test_a_word_of_a_rule_that_is_code_is_code_in_both() -> None:
    blocks: Any = (Paragraph((Text("Call `torch.compile` once."),)),)
    assert markdown.markdown(blocks) == "Call `torch.compile` once."
    (paragraph,) = adf.document(blocks)["content"]
    assert [(node["text"], "marks" in node) for node in paragraph["content"]] == [
        ("Call ", False),
        ("torch.compile", True),
        (" once.", False),
    ]

"""The message about the end of a run: content, formats, and when it is sent."""

from __future__ import annotations

import pytest

from muster.report.notice import AGAIN_SECONDS, FORMATS, Notice, body, is_due, notice

NOW = 1_795_000_000.0
RUN = {"cluster": "lab", "id": "r1", "playbook": "site.yml", "ended": "2026-11-28T10:00:00+00:00"}
FINDING = {
    "id": "gpu.lost",
    "status": "fail",
    "node": "node3",
    "summary": "the GPU at 0000:05:00.0 is lost",
    "fix": {"text": "Reboot the node with", "command": "sudo reboot"},
}
WARNING = {**FINDING, "id": "os.oom", "status": "warn", "node": "node1"}


def said(line: str = "FAILED: node3: the GPU is lost\n(page)") -> Notice:
    return notice(RUN, "failed", line, {"findings": [WARNING, FINDING]}, "/artifacts/report.html")


def test_message_names_node_cause_and_next_step() -> None:
    assert body(said(), "json") == {
        "schema": 1,
        "cluster": "lab",
        "run": "r1",
        "playbook": "site.yml",
        "status": "failed",
        "node": "node3",
        "cause": "the GPU at 0000:05:00.0 is lost",
        "action": "Reboot the node with sudo reboot",
        "text": "lab: FAILED: node3: the GPU is lost (page)",
        "report": "/artifacts/report.html",
        "time": "2026-11-28T10:00:00+00:00",
    }


@pytest.mark.parametrize("form", FORMATS[1:])
def test_chat_services_receive_only_their_fields(form: str) -> None:
    text = said().text
    wanted = {
        "slack": {"text": text},
        "feishu": {"msg_type": "text", "content": {"text": text}},
        "dingtalk": {"msgtype": "text", "text": {"content": text}},
    }
    assert body(said(), form) == wanted[form]


def test_text_from_nodes_mentions_nobody() -> None:
    text = said('FAILED: <!channel> <at user_id="all"></at> & co')
    assert body(text, "slack")["text"] == 'lab: FAILED: &lt;!channel&gt; &lt;at user_id="all"&gt;&lt;/at&gt; &amp; co'
    assert "<" not in body(text, "feishu")["content"]["text"]


def test_message_is_bounded_and_printable() -> None:
    text = said("FAILED: \x1b[31m" + "x" * 5000).text
    assert len(text) <= 2010
    assert text.isprintable()


@pytest.mark.parametrize(
    ("book", "key", "ago", "due"),
    [
        ("status", "", 0, False),
        ("site", "", 0, True),
        ("site", "same", 60, False),
        ("site", "same", AGAIN_SECONDS + 1, True),
        ("site", "other", 60, True),
        ("launch", "same", 60, True),
        ("quarantine", "same", 60, True),
        ("site", "same", -100, True),  # the clock was changed
    ],
)
def test_same_result_of_a_scheduled_run_is_not_repeated(book: str, key: str, ago: float, due: bool) -> None:
    last = {"key": said().key if key == "same" else key, "when": NOW - ago}
    assert is_due(book, said(), last if key else {}, NOW) == due

"""Text from nodes is never templated by Ansible."""

from __future__ import annotations

import json

from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from launch_shapes import a_plan
from muster.launch.answers import reader
from muster.launch.events import Events
from muster.launch.lines import Lines
from muster.verdict.finding import Finding, add_up

TEMPLATE = "{{ 7*7 }}{% for x in range(3) %}{{ lookup('pipe', 'id') }}{% endfor %}"
PLAN = a_plan(1)


def test_template_in_text_from_a_node_is_not_evaluated() -> None:
    part = {"begin": 0, "gap": 0, "offset": len(TEMPLATE) + 1, "text": f"{TEMPLATE}\n", "more": False}
    answer = json.loads(json.dumps({"logs": {"0/stdout": part}}))
    logs, _ = reader(PLAN.ranks)("node1", "logs", answer)
    [line] = Lines().take(logs["logs"]["0/stdout"]["text"])
    event = Events().take(f'@muster {{"event": "{TEMPLATE}"}}', 0, "node1")
    verdict = add_up([Finding("launch.exit", "fail", "node1", line)])
    result = {"line": line, "event": event, "verdict": verdict}
    shown = Templar(loader=DataLoader(), variables={"result": result}).template(trust_as_template("{{ result }}"))
    assert shown["line"] == shown["event"]["event"] == shown["verdict"]["findings"][0]["summary"] == TEMPLATE
    assert Templar(loader=DataLoader(), variables={}).template(result) == result

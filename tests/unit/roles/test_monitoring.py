"""Files of the role monitoring that contain data of nodes."""

from __future__ import annotations

import json

import jinja2
import yaml

from paths import ROOT

ROLE = ROOT / "roles/monitoring"


def test_actions_of_alerts_contain_no_label() -> None:
    """A node chooses the labels of its metrics, and an administrator runs the commands of the actions."""
    (group,) = yaml.safe_load((ROLE / "files/rules.yml").read_text())["groups"]
    assert [rule["alert"] for rule in group["rules"] if "{{" in rule["annotations"]["action"]] == []


def test_answers_of_nodes_are_limited() -> None:
    environment = jinja2.Environment(
        trim_blocks=True, undefined=jinja2.StrictUndefined, autoescape=jinja2.select_autoescape()
    )
    environment.filters |= {"bool": bool, "to_json": json.dumps}
    text = (ROLE / "templates/etc/muster/prometheus/prometheus.yml.j2").read_text()
    known = {
        "groups": {"gpu_nodes": ["node1", "node2"]},
        "monitoring_alertmanagers": [],
        "monitoring_dcgm_exporter": True,
    }
    nodes = {"node1": {"cluster_address": "10.0.0.1"}, "node2": {"cluster_address": "fd00::2"}}
    jobs = yaml.safe_load(environment.from_string(text).render(**known, hostvars=nodes))["scrape_configs"]
    limits = {"body_size_limit": "16MB", "sample_limit": 50000, "label_limit": 64, "label_value_length_limit": 1024}
    for job, port in zip(jobs, (9100, 9400), strict=True):
        assert {name: value for name, value in job.items() if name.endswith("limit")} == limits
        assert [one["targets"] for one in job["static_configs"]] == [[f"10.0.0.1:{port}"], [f"[fd00::2]:{port}"]]

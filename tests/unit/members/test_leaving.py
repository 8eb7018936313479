"""Obstacles and messages when a node leaves the cluster."""

from __future__ import annotations

from typing import Any

from cases import cases
from muster.members import leaving
from muster.network.known_hosts import forgotten


@cases(__file__, "leaving")
def test_obstacles_and_messages_of_leaving_match_the_case(case: dict[str, Any]) -> None:
    names, nodes = case["names"], case["nodes"]
    silent = case.get("silent", {})
    wiping = {name: case.get(name, False) for name in ("wipe", "wipe_driver")}
    found = leaving.problems(names, nodes, case.get("chosen", []), **wiping)
    assert found == case.get("problems", [])
    peers = [name for name in nodes if name not in names]
    assert leaving.in_the_way(case.get("running", {}), peers, silent) == case.get("in_the_way", [])
    found = leaving.warnings(names, nodes, silent, case.get("left", []), wipe=case.get("wipe", False))
    assert found == case.get("warnings", [])
    if not case.get("problems") and not case.get("in_the_way"):
        assert leaving.outcome(names, nodes, peers) == case["outcome"]
    if "unfinished" in case:
        assert leaving.unfinished(names, "retire again") == case["unfinished"]


def test_host_keys_of_other_nodes_are_unchanged() -> None:
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBkV7bhlbbnRSYSaJ34ycfu2s/ZzAXD4HnsbuCLDJknu"
    lines = [
        "# head\n",
        f"10.0.0.1 {key} muster:node1\n",
        f"10.0.0.3 {key}\n",
        f"10.0.0.33 {key} muster:node33\n",
        "\n",
    ]
    ours = f"10.0.0.3,[gate]:2222 {key} muster:node3\n"
    assert forgotten("".join([lines[0], ours, *lines[1:], ours]), ["node3"]) == "".join(lines)


def test_messages_of_a_removal() -> None:
    silent = {"node2": "timed out"}
    assert leaving.silence(["node1", "node2"], silent) == []
    assert leaving.silence(["node2"], silent) == ["No node responds (node2: timed out)."]
    assert leaving.running_launches({}, "again") == []
    said = ["node1: launch 2 of muster is running.", "Wait until they end, or stop them and remove Muster: again"]
    found = leaving.running_launches({"2": said[0][:-1]}, "again")
    assert found == [said[0], f"{said[1]} -e remove_running=true"]
    assert leaving.to_finish("again") == "might still have Muster files. To complete the removal, run: again"
    missed = "Nothing was removed from node2 (node2: timed out). When all nodes respond, run: again"
    assert leaving.not_removed(["node1", "node2"], silent, "again") == f"Muster is removed from node1. {missed}"
    kept = "The inventory is unchanged: set the cluster up again with site.yml, or delete lab"
    assert leaving.removed(["node1"], "lab") == f"Muster is removed from node1. {kept}"

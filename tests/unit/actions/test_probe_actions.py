"""Probes between nodes: of the network, of RDMA, of shared folders. Nodes answer as the programs on them do."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from ansible.errors import AnsibleActionFail

from acting import Programs, World
from cases import document_of
from muster.rails import plan as rails
from muster_controller.playbook.node_error import NodeError
from paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

RUN = "20260101-120000-abcd"
NAMES = ("node1", "node2", "node3")
HOSTS = """
gpu_nodes:
  vars: {{ansible_connection: local, cluster_name: rack, cluster_artifacts_dir: {folder}}}
  hosts:
    node1: {{cluster_address: 10.0.0.1}}
    node2: {{cluster_address: 10.0.0.2}}
    node3: {{cluster_address: 10.0.0.3}}
"""
SILENT = NodeError("no route to host", reachable=False)
PORTS = [32768, 45000, 60999]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("MUSTER_RUN", RUN)
    return World(tmp_path / "rack", HOSTS.format(folder=tmp_path / "artifacts"))


# ---------------------------------------------------------------- the network


def served(name: str, _: Any) -> dict[str, Any]:
    interface = {"addresses": [f"10.0.0.{name[-1]}"], "mtu": 1500, "state": "UP", "speed": 10000}
    own = {"port": 29500, "ephemeral": PORTS, "pid": 7, "started": int(name[-1]), "holder": "", "hostname": name}
    return {**own, "physical": [], "interfaces": {"eth0": interface}}


def probed(_: str, asked: dict[str, Any]) -> dict[str, Any]:
    def link(peer: dict[str, Any]) -> dict[str, Any]:
        answered = {"error": "", "seconds": 0.001, "greeting": peer["node"]}
        refused = {"error": "ECONNREFUSED", "seconds": 0.001}
        silent = peer["names"] == []
        ports = {str(port): refused if silent else answered for port in peer["ports"]}
        return {"ports": ports, "source": asked["address"], "way": "eth0", "route_error": "", "neighbour": "known"}

    return {"links": {peer["node"]: link(peer) for peer in asked["peers"]}, "names": {}, "asked": [], "resolvers": {}}


class Network:
    """Every node listens, and calls every other."""

    def __init__(self, world: World, patch: pytest.MonkeyPatch, **answers: Any) -> None:
        self.world = world
        pairs = {"pairs": {name: {"there": 9e9, "back": 8e9} for name in NAMES}}
        self.programs = Programs(patch, **{"serve": served, "probe": probed, "end": {}, "pair": pairs, **answers})

    def run(self, **options: Any) -> dict[str, Any]:
        plan = self.world.run("health_plan")
        return self.world.run("net_probe", plan=plan, **options)

    def asked(self, verb: str) -> dict[str, dict[str, Any]]:
        return dict(sorted((name, asked) for name, each, asked in self.programs.asked if each == verb))


def outcomes(found: dict[str, Any]) -> dict[str, str]:
    return {f"{link['from']}-{link['to']}": link["outcome"] for link in found["network"]["links"]}


def test_every_node_calls_every_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(world, monkeypatch)
    found = network.run()
    assert set(outcomes(found).values()) == {"ok"}
    assert len(outcomes(found)) == 6
    assert {link["gbps"] for link in found["network"]["links"]} == {8.0, 9.0}
    serve, probe = network.asked("serve"), network.asked("probe")
    token = serve["node1"]["token"]
    assert serve["node2"] == {
        **{"token": token, "node": "node2", "port": 29500, "samples": 3, "idle": pytest.approx(10.6)},
        "as_root": False,
    }
    peers = probe["node1"].pop("peers")
    assert probe["node1"] == {"token": token, "address": "10.0.0.1", "packets": 200, "as_root": False}
    assert [(peer["node"], peer["address"], peer["ports"]) for peer in peers] == [
        ("node2", "10.0.0.2", [29500, *PORTS]),
        ("node3", "10.0.0.3", [29500, *PORTS]),
    ]
    assert "node2" in peers[0]["names"]
    assert {name: asked["started"] for name, asked in network.asked("end").items()} == {
        "node1": 1,
        "node2": 2,
        "node3": 3,
    }
    assert network.asked("end")["node1"] == {"pid": 7, "started": 1, "as_root": False}
    assert (found["network"]["port"], found["network"]["nodes"]) == (29500, list(NAMES))


def test_without_throughput_nothing_is_streamed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(world, monkeypatch)
    assert {link["gbps"] for link in network.run(throughput=False)["network"]["links"]} == {None}
    assert "pair" not in network.programs.verbs()


def test_a_node_that_does_not_listen_is_called_all_the_same(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(world, monkeypatch, serve=lambda name, _: SILENT if name == "node3" else served(name, _))
    found = network.run()
    assert {pair: outcome for pair, outcome in outcomes(found).items() if outcome != "ok"} == {
        "node1-node3": "refused",
        "node2-node3": "refused",
        "node3-node1": "not_tried",
        "node3-node2": "not_tried",
    }
    assert [peer["ports"] for peer in network.asked("probe")["node1"]["peers"]] == [[29500, *PORTS], [29500]]
    said = [one["summary"] for one in found["findings"] if one["node"] == "node3"]
    assert any("no route to host" in one for one in said)
    assert list(network.asked("end")) == ["node1", "node2"]


def test_nodes_of_the_play_are_probed_unless_others_are_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(world, monkeypatch)
    world.vars["ansible_play_hosts"] = ["node1", "node3"]
    found = network.run()
    assert list(network.asked("serve")) == ["node1", "node3"]
    skipped = found["verdict"]["coverage"]["skipped"]
    assert any(one.get("node") == "node2" or "node2" in str(one) for one in (*skipped, *found["findings"]))
    assert "an earlier step could not reach it, or failed on it" in json.dumps(found)
    network.programs.asked.clear()
    world.vars["ansible_play_hosts_all"] = world.vars["ansible_play_hosts"] = ["node1"]
    found = network.run(nodes=["node1", "node2"])
    assert (found["network"]["nodes"], list(network.asked("serve"))) == (["node1", "node2"], ["node1", "node2"])


def test_a_port_that_a_launch_holds_is_not_called(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    holder = f"muster-launch-{RUN}.service"
    network = Network(world, monkeypatch, serve=lambda name, _: {**served(name, _), "holder": holder, "port": 0})
    network.run(throughput=False)
    assert network.asked("probe")["node1"]["peers"][0]["ports"] == PORTS


def test_listeners_end_with_the_probe(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(world, monkeypatch, probe=lambda *_: {"links": 7})
    with pytest.raises(Exception, match="int"):
        network.run()
    assert list(network.asked("end")) == list(NAMES)


def test_of_many_nodes_fewer_packets_are_sent(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hosts = "".join(f"    n{number}: {{cluster_address: 10.0.1.{number}}}\n" for number in range(1, 42))
    head = HOSTS.format(folder=tmp_path).partition("    node1")[0]
    network = Network(World(tmp_path / "many", head + hosts), monkeypatch)
    network.run(throughput=False)
    assert network.asked("probe")["n1"]["packets"] == 150


# ---------------------------------------------------------------- RDMA


PRINTED = document_of(ROOT / "tests/unit/rails/recorded/outputs.yml")
GOOD = [
    {"text": PRINTED[name], "aside": "", "why": "", "missing": False} for name in ("pingpong", "bandwidth", "latency")
]


def adapters(number: int) -> dict[str, Any]:
    """What the health check saw of a node with InfiniBand adapters."""
    port = {"state": "ACTIVE", "layer": "InfiniBand", "rate": 100.0, "gids": {}, "netdev": ""}
    ports = [{**port, "name": f"mlx5_{at}:1", "device": f"mlx5_{at}"} for at in range(number)]
    return {
        "rdma": {"ports": ports, "uverbs": True, "settings": {}, "devices": ports, "why": ""},
        "rdma_verbs": {"library": "/usr/lib/libibverbs.so.1"},
        "jobs": {"processes": []},
    }


class Rails:
    def __init__(self, world: World, patch: pytest.MonkeyPatch, number: int = 2, **answers: Any) -> None:
        self.world = world
        patch.setattr(rails, "why_not", lambda facts, _: "" if facts["rdma"]["ports"] else "it has no adapter")
        patch.setattr(rails, "active_ports", lambda facts: facts["rdma"]["ports"])
        self.programs = Programs(patch, **{"serve": self.serve, "call": self.call, "end": {}, **answers})
        for name in NAMES:
            world.registered(name, "look", {"facts": adapters(number if name != "node3" else 0)})

    @staticmethod
    def serve(_: str, asked: dict[str, Any]) -> dict[str, Any]:
        assert asked["user"] == "muster"
        low = asked["ports"][0]
        ends = [
            [{"port": low + 10 * rail + step, "pid": step + 1, "why": "", "missing": False} for step in range(3)]
            for rail in range(len(asked["rails"]))
        ]
        return {"rails": ends}

    @staticmethod
    def call(_: str, asked: dict[str, Any]) -> dict[str, Any]:
        return {"rails": [GOOD[: len(rail)] for rail in asked["rails"]]}

    def run(self, **options: Any) -> dict[str, Any]:
        plan = {**self.world.run("health_plan"), "launch_ports": "29400-29599"}
        given = {"plan": plan, "looks": "look", "tried": True, "user": "muster", **options}
        return self.world.run("rdma_rails", **given)

    def asked(self, verb: str) -> list[tuple[str, dict[str, Any]]]:
        return [(name, asked) for name, each, asked in self.programs.asked if each == verb]


def test_each_adapter_meets_that_of_its_name(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    rails = Rails(world, monkeypatch)
    found = rails.run()
    assert [one["gbps"] for one in found["rails"]] == [pytest.approx(found["rails"][0]["gbps"])] * 2
    assert [(one["from"], one["to"]) for one in found["rails"]] == [
        (f"node1 mlx5_{at}:1", f"node2 mlx5_{at}:1") for at in (0, 1)
    ]
    ((called, serve),), ((caller, call),) = rails.asked("serve"), rails.asked("call")
    assert (caller, called) == ("node1", "node2")
    assert (serve["ports"], serve["seconds"], call["seconds"]) == ([29400, 29599, 29500], 46.0, 12.0)
    assert [words[0] for words in serve["rails"][0]] == ["ibv_rc_pingpong", "ib_write_bw", "ib_write_lat"]
    assert call["rails"][1][0][-3:] == ["-p", "29410", "10.0.0.2"]
    assert rails.asked("end") == []
    skipped = found["verdict"]["coverage"]["skipped"]
    assert {"id": "rdma.rail", "why": "it has no adapter", "node": "node3"} in skipped


def test_what_a_node_does_not_listen_for_is_not_called(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def serve(name: str, asked: dict[str, Any]) -> dict[str, Any]:
        said = Rails.serve(name, asked)
        said["rails"][0][1] = {"port": 0, "pid": 0, "why": "ib_write_bw is not there", "missing": True}
        said["rails"][1][0] = {"port": 0, "pid": 0, "why": "the port is taken", "missing": False}
        return said

    rails = Rails(world, monkeypatch, serve=serve)
    found = rails.run()
    ((_, call),) = rails.asked("call")
    assert [len(rail) for rail in call["rails"]] == [1, 0]
    # The listening ends that nobody has called are ended.
    assert [(name, [end["pid"] for end in asked["ends"]]) for name, asked in rails.asked("end")] == [
        ("node2", [3, 2, 3])
    ]
    assert "the port is taken" in json.dumps(found["findings"]) + json.dumps(found["rails"])
    assert "ib_write_bw is not on all of node1, node2" in json.dumps(found)


def test_a_node_that_gives_no_answer_is_tried_no_more(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    rails = Rails(world, monkeypatch, serve=lambda *_: SILENT)
    found = rails.run()
    said = "node2: its RDMA adapters could not be tried: no route to host"
    assert [f"{one['node']}: {one['summary']}" for one in found["findings"]] == [said]
    assert (found["rails"], rails.asked("call"), rails.asked("end")) == ([], [], [])
    rails = Rails(world, monkeypatch, call=lambda *_: SILENT)
    assert [one["node"] for one in rails.run()["findings"]] == ["node1"]
    assert [(name, len(asked["ends"])) for name, asked in rails.asked("end")] == [("node2", 6)]


def test_rdma_is_not_tried_where_nobody_asked_or_could(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    rails = Rails(world, monkeypatch)
    assert "it was not asked for (health_rails)" in json.dumps(rails.run(tried=False))
    world.registered("node2", "look", {"facts": adapters(0)})
    few = "fewer than two nodes have RDMA adapters that a launch would use"
    assert few in json.dumps(rails.run())
    world.registered("node2", "look", {"facts": adapters(1)})
    world.vars["ansible_play_hosts"] = ["node1", "node3"]
    assert few in json.dumps(rails.run())
    world.registered("node2", "look", {"failed": True})
    world.vars["ansible_play_hosts"] = list(NAMES)
    assert few in json.dumps(rails.run())
    assert rails.programs.asked == []


# ---------------------------------------------------------------- a shared folder


class Share:
    """A folder that every node of it sees. asked: what each node was asked with each verb."""

    def __init__(self, world: World, patch: pytest.MonkeyPatch, **answers: Any) -> None:
        self.world = world
        fine = {"took": 2.0, "uid": 1500, "bytes": 1, "error": "", "kind": ""}
        self.programs = Programs(
            patch, **{"write": fine, "see": self.see, "read": {**fine, "took": 1.0}, "remove": {}, **answers}
        )

    @staticmethod
    def see(_: str, asked: dict[str, Any]) -> dict[str, Any]:
        return {"seen": {name: {"after": 0.02, "uid": 1500, "right": True} for name in asked["names"]}, "error": ""}

    def run(self, **options: Any) -> dict[str, Any]:
        return self.world.run("shared_data_trial", **{"paths": ["/data"], "megabytes": 100, **options})

    def asked(self, verb: str) -> dict[str, dict[str, Any]]:
        return dict(sorted((name, asked) for name, each, asked in self.programs.asked if each == verb))


def test_each_node_writes_and_reads_what_another_one_wrote(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    share = Share(world, monkeypatch)
    found = share.run()
    assert (found["failed"], found["changed"]) == (False, False)
    summary = "/data: 3 nodes see within 1 s what each of them wrote, with the right owner"
    assert found["msg"].splitlines() == [
        "/data, 100 MiB from each of 3 nodes at once:",
        f"  {'node':<20} {'writes, MB/s':>13} {'reads, MB/s':>12} {'sees after, s':>14}",
        *(f"  {name:<20} {'52.4':>13} {'104.9':>12} {'0.02':>14}" for name in NAMES),
        "node1, node2, node3: what the others wrote to /data is there, and theirs.",
        summary,
    ]
    write, see, read, remove = (share.asked(verb) for verb in ("write", "see", "read", "remove"))
    files = {name: asked["name"] for name, asked in write.items()}
    token = write["node1"]["word"]
    assert files == {name: f".muster-{token}-{at}" for at, name in enumerate(NAMES)}
    assert write["node2"] == {
        **{"user": "muster", "folder": "/data", "seconds": 80.0, "word": token},
        **{"name": files["node2"], "megabytes": 100},
    }
    assert (see["node1"]["names"], see["node1"]["wait"]) == ([files["node2"], files["node3"]], 5.0)
    assert {name: asked["name"] for name, asked in read.items()} == {
        "node1": files["node3"],
        "node2": files["node1"],
        "node3": files["node2"],
    }
    assert {name: asked["name"] for name, asked in remove.items()} == files
    kept = json.loads((tmp_path / f"artifacts/rack/{RUN}/shared_data.json").read_text())
    assert kept == found["shared_data"]
    assert (kept["schema"], kept["folders"][0]["path"], kept["folders"][0]["megabytes"]) == (1, "/data", 100)
    assert kept["folders"][0]["nodes"][0] == {"node": "node1", "write": 52.4, "read": 104.9, "seen": 0.02}
    assert (found["verdict"]["status"], found["verdict"]["summary"]) == ("healthy", summary)


def test_a_node_that_cannot_write_or_see_is_a_finding(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = {"error": "it is read-only", "kind": "EROFS", "uid": 1500}
    fine = {"took": 2.0, "uid": 1500, "error": "", "kind": ""}
    share = Share(world, monkeypatch, write=lambda name, _: closed if name == "node3" else fine)
    found = share.run()
    assert (found["failed"], found["verdict"]["status"]) == (True, "failed")
    line = "node3: the training user cannot write to /data: it is read-only, while node1, node2 can"
    assert any(one.startswith(line) for one in found["msg"].splitlines())
    assert len(share.asked("see")["node3"]["names"]) == 2
    assert list(share.asked("read")) == ["node1", "node2"]
    share = Share(world, monkeypatch, see=lambda *_: {"error": "it does not answer", "kind": ""})
    assert share.run()["failed"] is True
    assert share.asked("read") == {}


def test_a_silent_node_takes_no_further_part(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    fine = {"took": 2.0, "uid": 1500, "error": "", "kind": ""}
    world.vars["ansible_play_hosts"] = ["node1", "node2"]
    share = Share(world, monkeypatch, write=lambda name, _: SILENT if name == "node2" else fine)
    found = share.run()
    assert (list(share.asked("see")), list(share.asked("remove"))) == ([], ["node1"])
    for line in (
        "node2: /data was not tried there: no route to host",
        "node3: /data was not tried there: it was not reached",
    ):
        assert any(one.startswith(line) for one in found["msg"].splitlines())
    world.vars["ansible_play_hosts"] = []
    with pytest.raises(AnsibleActionFail, match=r"^None of the nodes could be reached\. "):
        share.run()


def test_files_are_removed_whatever_happens(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    share = Share(world, monkeypatch, see=lambda *_: {"seen": 7, "error": []})
    share.run()
    assert list(share.asked("remove")) == list(NAMES)


def test_a_check_writes_nothing_and_no_folder_is_none(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    share = Share(world, monkeypatch)
    for paths, what in ((["/data", "/models"], "/data, /models"), ([], "No folder")):
        found = world.run("shared_data_trial", check=True, paths=paths, megabytes=1)
        assert found == {"changed": False, "msg": f"{what}: nothing is written in check mode."}
    found = share.run(paths=[])
    assert (found["failed"], found["msg"]) == (False, "there is no shared folder to try (shared_data_mounts)")
    assert share.programs.asked == []

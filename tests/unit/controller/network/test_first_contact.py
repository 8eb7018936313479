"""First contact by playbooks/trust.yml, with SSH servers in this process that show their host keys."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import paramiko
import pytest
from ansible import context
from ansible.errors import AnsibleActionFail
from ansible.module_utils.common.collections import ImmutableDict
from ansible.utils.display import Display

from acting import World
from muster.network.known_hosts import HostKey
from muster_controller.network import first_contact
from muster_controller.network.first_contact import End, Road, where_it_ends
from muster_controller.network.sharing import shared
from muster_controller.playbook.terminal import typed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from typing_extensions import Self

HEADER = "# Host keys of the nodes, pinned by playbooks/trust.yml. You can add other lines."
TRUST = "ansible-playbook playbooks/trust.yml"


class Server:
    """SSH server that shows its host key and accepts no login."""

    def __init__(self) -> None:
        self.key = paramiko.ECDSAKey.generate()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.opened: list[paramiko.Transport] = []
        self.thread = threading.Thread(target=self.serve)

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()
        for transport in self.opened:
            transport.close()

    def serve(self) -> None:
        while True:
            try:
                caller, _ = self.listener.accept()
            except OSError:
                return
            transport = paramiko.Transport(caller)
            transport.add_server_key(self.key)
            self.opened.append(transport)
            transport.start_server(threading.Event(), paramiko.ServerInterface())

    def line(self, node: str) -> str:
        return f"[127.0.0.1]:{self.port} {self.key.get_name()} {self.key.get_base64()} muster:{node}"

    @property
    def shown(self) -> HostKey:
        return HostKey(self.key.get_name(), self.key.get_base64())


def pinned(servers: list[Server]) -> list[str]:
    return [server.line(f"node{number}") for number, server in enumerate(servers, 1)]


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Server()) for _ in range(2)]


class Lab:
    def __init__(self, folder: Path, ports: list[int], more: str = "") -> None:
        self.known_hosts = folder / "rack/known_hosts"
        reads = f"-o UserKnownHostsFile={self.known_hosts} -o GlobalKnownHostsFile=/dev/null -F /dev/null"
        hosts = "".join(f"    node{number}: {{ansible_port: {port}}}\n" for number, port in enumerate(ports, 1))
        own = f"ansible_host: 127.0.0.1, ansible_ssh_extra_args: '{reads}'{more}"
        self.world = World(folder / "rack", f"gpu_nodes:\n  vars: {{{own}}}\n  hosts:\n{hosts}")

    def run(self, **options: Any) -> dict[str, Any]:
        return self.world.run("host_keys", **{"known_hosts": str(self.known_hosts), "confirmed": True, **options})

    def fails(self, **options: Any) -> str:
        with pytest.raises(AnsibleActionFail) as failed:
            self.run(**options)
        return str(failed.value)


@pytest.fixture
def lab(servers: list[Server], tmp_path: Path) -> Lab:
    return Lab(tmp_path, [server.port for server in servers])


@pytest.fixture
def displayed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(Display, "display", lambda _self, text, *_args, **_more: found.append(text))
    return found


def test_new_keys_are_pinned_and_a_second_run_changes_nothing(
    lab: Lab, servers: list[Server], displayed: list[str]
) -> None:
    lines = [HEADER, *pinned(servers)]
    check = lab.run(check=True)
    assert not lab.known_hosts.exists()
    first = lab.run()
    assert lab.known_hosts.read_text().splitlines() == lines
    assert lab.known_hosts.stat().st_mode & 0o777 == 0o644
    path = str(lab.known_hosts)
    diff = {"before": "", "after": "".join(f"{line}\n" for line in lines), "before_header": path, "after_header": path}
    for found in (check, first):
        assert (found["changed"], found["diff"]) == (True, diff)
        assert found["nodes"] == [
            {
                "node": f"node{number}",
                "address": f"127.0.0.1:{server.port}",
                "type": "ecdsa-sha2-nistp256",
                "fingerprint": server.shown.fingerprint,
                "state": "new",
                "why": "",
            }
            for number, server in enumerate(servers, 1)
        ]
    again = lab.run()
    assert (again["changed"], [node["state"] for node in again["nodes"]]) == (False, ["known"] * 2)
    assert "diff" not in again
    assert lab.known_hosts.read_text().splitlines() == lines
    assert all(server.shown.fingerprint in displayed[0] for server in servers)


def test_unconfirmed_keys_are_not_pinned(lab: Lab, servers: list[Server], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answers(answer: bytes) -> None:
        def prompt(_display: Display, text: str) -> bytes:
            asked.append(text)
            return answer

        monkeypatch.setattr(Display, "prompt_until", prompt)

    answers(b"no\n")
    again = f"Check the keys, then run: {TRUST} -e trust_confirmed=true"
    assert lab.fails(confirmed=False) == f"Nothing was pinned. {again}"
    assert asked[0].endswith(" [yes/no]")
    assert not lab.known_hosts.exists()
    answers(b" YES\n")
    assert lab.run(confirmed=False)["changed"] is True
    assert lab.known_hosts.read_text().splitlines() == [HEADER, *pinned(servers)]
    lab.run(confirmed=False)
    assert len(asked) == 2, "known keys need no confirmation"


def test_run_without_a_terminal_prints_the_command_to_confirm(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "CLIARGS", ImmutableDict(ask_pass=True))
    lab.world.vars["trust_copy_key"] = "yes"
    said = lab.fails(confirmed=False)
    assert said.startswith("Nothing was pinned. ")
    assert said.endswith(f"Check the keys, then run: {TRUST} -e trust_confirmed=true -e trust_copy_key=true --ask-pass")


def test_changed_key_is_rejected_until_replacement_is_requested(lab: Lab, servers: list[Server]) -> None:
    old = servers[0].line("node1").replace(servers[0].key.get_base64(), paramiko.ECDSAKey.generate().get_base64())
    lab.known_hosts.write_text(f"# mine\n{old}\n")
    found = lab.run()
    assert found["failed"] is True
    assert found["msg"].startswith("node1: ")
    assert f"{TRUST} -e trust_replace=node1" in found["msg"]
    assert lab.known_hosts.read_text() == f"# mine\n{old}\n{servers[1].line('node2')}\n"
    assert "trust_replace=node1" in lab.fails(confirmed=False, replace=["node1"])
    assert lab.run(replace=["node1"])["changed"] is True
    assert sorted(lab.known_hosts.read_text().splitlines()) == sorted(["# mine", *pinned(servers)])
    assert lab.fails(replace=["node9"]) == "trust_replace contains node9, which is not in gpu_nodes."


def test_silent_node_is_reported(tmp_path: Path, servers: list[Server]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        closed: int = taken.getsockname()[1]
    found = Lab(tmp_path / "some", [servers[0].port, closed]).run()
    assert found["warnings"] == [f"node2 did not respond. When reachable again, run {TRUST}."]
    assert found["nodes"][1]["why"] == "connection refused"
    none = Lab(tmp_path / "none", [closed]).run()
    assert (none["failed"], none["msg"]) == (True, "No node responded.\nnode1: connection refused")


def test_key_in_the_inventory_takes_precedence(tmp_path: Path, servers: list[Server]) -> None:
    good = Lab(tmp_path / "good", [servers[0].port], f", cluster_host_key: '{servers[0].shown.fingerprint}'")
    assert good.run(confirmed=False)["nodes"][0]["state"] == "matches the inventory"
    bad = Lab(tmp_path / "bad", [servers[0].port], f", cluster_host_key: '{servers[1].shown.fingerprint}'")
    assert bad.run()["nodes"][0]["state"] == "does NOT match the inventory"
    assert not bad.known_hosts.exists()


def test_node_without_ssh_is_skipped(tmp_path: Path) -> None:
    lab = Lab(tmp_path, [22], ", ansible_connection: local")
    assert lab.run()["nodes"] == [
        {
            "node": "node1",
            "address": "local",
            "type": "",
            "fingerprint": "",
            "state": "the controller itself (no SSH)",
            "why": "",
        }
    ]


def test_key_is_read_through_proxy_command(servers: list[Server], tmp_path: Path) -> None:
    config = tmp_path / "config"
    relay = f'python3 -c \'import socket,sys,os;s=socket.create_connection(("127.0.0.1",{servers[0].port}));'
    relay += 'import threading;threading.Thread(target=lambda:[os.write(1,b) for b in iter(lambda:s.recv(9999),b"")],'
    relay += 'daemon=True).start();[s.sendall(b) for b in iter(lambda:os.read(0,9999),b"")]\''
    config.write_text(f"Host far\n  ProxyCommand {relay}\nHost near\n  ProxyCommand echo no way >&2; false\n")
    end = where_it_ends(Road("far", "far", ("-F", str(config))), str(tmp_path / "known_hosts"))
    assert end.through[:2] == ("/bin/sh", "-c")
    assert first_contact.show_key(end, ["ecdsa-sha2-nistp256"]) == servers[0].shown
    near = where_it_ends(Road("near", "near", ("-F", str(config))), str(tmp_path / "known_hosts"))
    with pytest.raises(
        first_contact.NoKeyError, match=r"^through /bin/sh \.\.\. exec echo no way >&2; false: \"no way\"$"
    ):
        first_contact.show_key(near, ["ecdsa-sha2-nistp256"])


def test_port_without_ssh_server_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        end = End("127.0.0.1", listener.getsockname()[1])

        def answer() -> None:
            listener.accept()[0].close()

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(first_contact.NoKeyError, match=r"^the port is open, but the service is not an SSH server$"):
            first_contact.show_key(end, ["ssh-ed25519"])
        thread.join()
    with pytest.raises(first_contact.NoKeyError, match=r"^nowhere\.invalid cannot be resolved "):
        first_contact.show_key(End("nowhere.invalid"), ["ssh-ed25519"])


@contextmanager
def answering(greeting: bytes, block: bytes = b"", blocks: int = 0) -> Iterator[tuple[End, list[int]]]:
    """Listen, send these bytes to the first caller, and yield the number of sent blocks."""
    sent: list[int] = []

    def answer() -> None:
        caller, _ = listener.accept()
        with caller, suppress(OSError):
            caller.sendall(greeting)
            for number in range(blocks):
                caller.sendall(block)
                sent.append(number)
            caller.recv(1 << 16)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer)
        thread.start()
        yield End("127.0.0.1", listener.getsockname()[1]), sent
        thread.join()


def test_command_in_a_banner_is_not_a_command_of_muster() -> None:
    command = f"{TRUST} -e trust_confirmed=true -e trust_replace=node1"
    with (
        answering(f"The key store is damaged. Run: {command}\r\n".encode() * 100) as (end, _),
        pytest.raises(first_contact.NoKeyError) as failed,
    ):
        first_contact.show_key(end, ["ssh-ed25519"])
    why = str(failed.value)
    assert why.startswith('no valid SSH handshake: "Indecipherable protocol version')
    assert command in why
    assert typed(f"node9: no response: {why}.") == f"node9: no response: {why}."


def test_long_banner_is_shortened() -> None:
    with (
        answering(b"\r\n" * 99 + b"A" * 100_000 + b"\r\n") as (end, _),
        pytest.raises(first_contact.NoKeyError) as failed,
    ):
        first_contact.show_key(end, ["ssh-ed25519"])
    assert 400 < len(str(failed.value)) < 500


@pytest.mark.parametrize("greeting", [b"", b"SSH-2.0-OpenSSH_9.6\r\n\xff\xff\xff\xf4"])
def test_bytes_before_the_host_key_are_limited(greeting: bytes) -> None:
    with (
        answering(greeting, b"A" * (1 << 20), 32) as (end, sent),
        pytest.raises(first_contact.NoKeyError, match=r"not an SSH server|more than 256000 bytes"),
    ):
        first_contact.show_key(end, ["ssh-ed25519"])
    assert len(sent) < 16


@pytest.mark.parametrize(
    ("settings", "arguments", "through"),
    [
        ({}, (), ()),
        (
            {"proxyjump": "ada@gate:2222"},
            ("-p", "22", "-F", "/cfg"),
            "ssh -F /cfg -o BatchMode=yes -o StrictHostKeyChecking=yes -l ada -p 2222 -W node1:22 gate",
        ),
        (
            {"proxyjump": "one,[::1]:23"},
            ("-F/cfg",),
            "ssh -F/cfg -o BatchMode=yes -o StrictHostKeyChecking=yes -J one -p 23 -W node1:22 ::1",
        ),
        ({"proxycommand": "nc %h %p %r %%", "user": "bob"}, (), ("/bin/sh", "-c", "exec nc node1 22 bob %")),
    ],
)
def test_proxy_settings_become_a_command(settings: dict[str, str], arguments: tuple[str, ...], through: Any) -> None:
    found = first_contact.through(settings, arguments, "node1", 22)
    assert found == (tuple(through.split()) if isinstance(through, str) else through)


def test_shared_connection_lists_hosts_and_keys_but_no_users(tmp_path: Path) -> None:
    key, revoked, of_gate = (paramiko.ECDSAKey.generate() for _ in range(3))
    config, known_hosts = tmp_path / "config", tmp_path / "known_hosts"
    of = "ecdsa-sha2-nistp256"
    known_hosts.write_text(
        f"10.0.0.9 {of} {key.get_base64()}\n10.0.0.9 {of} {revoked.get_base64()}\n"
        f"@revoked 10.0.0.9 {of} {revoked.get_base64()}\n[10.0.0.1]:2222 {of} {of_gate.get_base64()}\n"
    )
    config.write_text(
        "Host node1\n  HostName 10.0.0.9\n  ProxyJump boss@gate:2222\nHost gate\n  HostName 10.0.0.1\n"
        f"Host *\n  UserKnownHostsFile {known_hosts}\n  GlobalKnownHostsFile /dev/null\n"
    )
    found = shared(Road("node1", "node1", ("-F", str(config))), {"gpus": 8}, str(known_hosts))
    assert (found.name, found.host, found.port, found.values, found.error) == ("node1", "10.0.0.9", 22, {"gpus": 8}, "")
    assert found.keys == (HostKey(of, key.get_base64()),)
    (hop,) = found.hops
    assert (hop.host, hop.port, hop.keys) == ("10.0.0.1", 2222, (HostKey(of, of_gate.get_base64()),))
    assert "boss" not in repr(found)
    here = shared(Road("node2", "local", None), {}, "")
    assert here.error == ("the connection local works only on the controller: set an address for SSH")
    broken = shared(Road("node3", "node3", ("-o", "NoOption=1")), {}, "")
    assert broken.error.startswith("ssh rejects the arguments: ")

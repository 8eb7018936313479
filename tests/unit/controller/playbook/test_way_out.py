"""Output of node text to the terminal: real runs of ansible-playbook in which every text is hostile."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from muster.verdict.printable import UNSEEN
from muster_controller.playbook.json_output import REQUESTED, JsonOutput
from muster_controller.playbook.way_out import Drawn, own_colors, shown
from waiting import until

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[4]
# Clears the screen, sets the clipboard, moves up a line, hides text, overwrites the line, reverses the direction, ends
# a sequence that was not started, rings the bell, and splits a line. C1 controls do the same in one character.
FOUL = (
    "\x1b[2J\x1b]52;c;ZXZpbA==\x07\x1b[1A\x1b[8m\x1b[35;45mX\rY\u202eZ\u2066\x00\x08\x07\x0b\x0c\x7f\x85\u2028"
    "\x9b2J\x9d52;c;eA==\x9c\x90q\x9c\x1bc\x1b"
)
GOOD = "日本 中文 é"
OWN_COLOR = re.compile(r"\x1b\[(?:[01];3[0-7]|0)m")
HOSTILE = (
    f"FOUL = {FOUL!r}\nGOOD = {GOOD!r}\n\n\ndef say(place):\n    return f'<{{place}}>{{FOUL}}{{GOOD}}</{{place}}>'\n"
)
MODULE = """
from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule(argument_spec={"how": {"type": "str"}, "item": {"type": "str"}}, supports_check_mode=True)
how = module.params["how"]
if how == "raise":
    raise RuntimeError(say("traceback"))
if how == "garbage":
    print(say("garbage"))
    raise SystemExit(1)
module.warn(say(f"{how}_warning"))
module.deprecate(say(f"{how}_deprecation"), version="9.9")
facts = {"hostile_fact": say("fact")}
diff = [
    {"before": say("before"), "after": say("after"), "before_header": say("from"), "after_header": say("to")},
    {"prepared": say("prepared")},
    {"before": {"a": say("before_mapping")}, "after": {"a": 1}},
]
said = {"msg": say(f"{how}_msg"), "stdout": say("stdout"), "stderr": say("stderr"), "other": [say("other")]}
if how == "fail":
    module.fail_json(**said)
module.exit_json(changed=True, ansible_facts=facts, diff=diff, **said)
"""
ACTION = """
import sys

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        display = Display()
        display.display(say("display"), color="red")
        display.display(say("display_aside"), stderr=True)
        display.warning(say("display_warning"))
        display.error(say("display_error"))
        display.deprecated(say("display_deprecated"), version="9.9")
        display.banner(say("banner"))
        display.v(say("verbose"))
        display.vvv(say("very_verbose"), host=say("host"))
        print(say("printed"))
        print(say("printed_aside"), file=sys.stderr)
        raise AnsibleActionFail(say("action_failed"))
"""
CONNECTION = """
from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection import ConnectionBase

DOCUMENTATION = "name: hostile\\nauthor: test\\nshort_description: x\\ndescription: [x]\\noptions: {}\\n"


class Connection(ConnectionBase):
    transport = "hostile"
    has_pipelining = True

    def _connect(self):
        raise AnsibleConnectionFailure(say("unreachable"))

    exec_command = put_file = fetch_file = close = lambda self, *a, **k: self._connect()
"""
COMMAND = """
import os

os.write(1, say("command").encode())
os.write(2, say("command_aside").encode())
raise SystemExit(1)
"""
TASKS = """
- {name: An unreachable node, ansible.builtin.ping: {}, when: inventory_hostname == "two"}
- {name: Every part of a result, hostile_module: {how: ok}, register: said}
- name: "A title: {{ said.msg }}"
  ansible.builtin.debug: {var: hostile_fact}
- {name: Debug, ansible.builtin.debug: {msg: "<debug>{{ said.msg }}</debug>"}}
- {name: Stats, ansible.builtin.set_stats: {data: {stats: "{{ said.msg }}"}}}
"""
# Each of these tasks fails, and the next one still runs.
FAILING = """
- name: Items
  hostile_module: {how: "{{ item }}"}
  loop: [ok, fail]
  loop_control: {label: "{{ said.msg }}"}
- {name: A failure, hostile_module: {how: fail}}
- {name: A traceback, hostile_module: {how: raise}}
- {name: Garbage, hostile_module: {how: garbage}}
- {name: An action, hostile_action: {}}
- name: A command
  ansible.builtin.command: {argv: ["{{ ansible_playbook_python }}", "{{ playbook_dir }}/says.py"]}
  check_mode: false
- {name: A second try, hostile_module: {how: fail}, retries: 1, delay: 0, until: false}
- {name: An assertion, ansible.builtin.assert: {that: false, fail_msg: "{{ said.msg }}"}}
- {name: A file, hostile_module: {how: ok}, loop: [1], loop_control: {label: "{{ said.stdout }}"}, failed_when: true}
"""
LAST = """
- {name: A reason, ansible.builtin.fail: {msg: "<failed>{{ said.msg }}</failed>"}}
"""


def play() -> str:
    failing = [{"name": "Try", "block": [task], "rescue": [CONTINUE]} for task in yaml.safe_load(FAILING)]
    tasks = [*yaml.safe_load(TASKS), *failing, *yaml.safe_load(LAST)]
    written: str = yaml.safe_dump([{"name": "Hostile", "hosts": "all", "gather_facts": False, "tasks": tasks}])
    return written


CONTINUE = {"name": "Continue", "ansible.builtin.set_fact": {"rescued": True}}
PLACES = ["ok_msg", "fail_msg", "stdout", "stderr", "ok_warning", "ok_deprecation", "fact", "debug", "failed"]
PLACES += ["display", "display_aside", "display_warning", "display_error", "display_deprecated", "banner"]
PLACES += ["printed", "printed_aside", "action_failed", "garbage", "unreachable", "command", "command_aside", "other"]
WITH_DIFF = ["before", "after", "from", "to", "prepared"]
VERBOSE = ["verbose", "very_verbose", "host"]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a playbook, modules and plugins that write hostile text."""
    folder = tmp_path_factory.mktemp("hostile")
    for place, name, text in (
        ("library", "hostile_module", MODULE),
        ("action_plugins", "hostile_action", ACTION),
        ("connection_plugins", "hostile", CONNECTION),
    ):
        (folder / place).mkdir()
        (folder / place / f"{name}.py").write_text(f"{HOSTILE}\n{text}")
    (folder / "says.py").write_text(f"{HOSTILE}\n{COMMAND}")
    (folder / "play.yml").write_text(play())
    (folder / "hosts").write_text("one ansible_connection=local\ntwo ansible_connection=hostile\n")
    return folder


def command(folder: Path, book: str, *options: str) -> list[str]:
    places = ["-i", str(folder / "hosts"), "-e", f"ansible_python_interpreter={sys.executable}"]
    return [str(Path(sys.executable).with_name("ansible-playbook")), *places, str(folder / book), *options]


def environment(folder: Path, more: Mapping[str, str]) -> dict[str, str]:
    config = {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_CONNECTION_PLUGINS": f"{folder}/connection_plugins"}
    return {"PATH": "/usr/bin:/bin", "HOME": str(folder), "LC_ALL": "C.UTF-8", "TERM": "xterm", **config, **more}


def assert_printable(text: str, *, colored: bool = False) -> None:
    """Fail if the text has control characters other than line ends and, if `colored`, Muster's colours."""
    plain = OWN_COLOR.sub("", text) if colored else text
    found = UNSEEN.search(plain)
    assert not found, repr(plain[max(0, found.start() - 60) : found.end() + 20])


@pytest.mark.parametrize(
    ("options", "more", "places"),
    [
        pytest.param((), {}, PLACES, id="plain"),
        pytest.param(("--check", "--diff"), {"ANSIBLE_FORCE_COLOR": "1"}, [*PLACES, *WITH_DIFF], id="diff_in_color"),
        *(
            pytest.param(*one, id=name, marks=pytest.mark.extended)
            for name, one in {
                "verbose": (("-vvv", "--diff"), {}, [*PLACES, *WITH_DIFF, *VERBOSE]),
                "json": ((), {"ANSIBLE_CALLBACK_RESULT_FORMAT": "json", "ANSIBLE_SHOW_CUSTOM_STATS": "1"}, PLACES),
                "default_callback": (("-v",), {"ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default"}, PLACES),
                "minimal": (("-v",), {"ANSIBLE_STDOUT_CALLBACK": "minimal"}, []),
                "quiet": (("-v",), {"ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.tree"}, []),
            }.items()
        ),
    ],
)
def test_control_characters_from_nodes_are_not_printed(
    hostile: Path, options: tuple[str, ...], more: dict[str, str], places: list[str]
) -> None:
    done = subprocess.run(
        command(hostile, "play.yml", *options),
        cwd=ROOT,
        env=environment(hostile, more),
        capture_output=True,
        check=False,
        timeout=300,
    )
    out, err = (stream.decode() for stream in (done.stdout, done.stderr))
    for text in (out, err):
        assert_printable(text, colored="ANSIBLE_FORCE_COLOR" in more)
    everything = out + err
    assert GOOD in everything or not places
    # A place whose text is not shown would not be tested.
    assert [place for place in places if f"<{place}>" not in everything] == []
    if "ANSIBLE_FORCE_COLOR" in more:
        assert OWN_COLOR.search(out)  # Muster's colours are kept


def test_prompt_works_on_a_real_terminal(hostile: Path) -> None:
    """The prompt is shown on a real terminal, which adds its own control sequences."""
    (hostile / "asks.yml").write_text(
        textwrap.dedent(
            """
            - hosts: one
              gather_facts: false
              tasks:
                - {name: A result, hostile_module: {how: ok}, register: said}
                - {name: A question, ansible.builtin.pause: {prompt: "<prompt>{{ said.msg }}</prompt>"}}
                - {name: After it, ansible.builtin.debug: {msg: "<answered>{{ said.msg }}</answered>"}}
            """
        )
    )
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        ["setsid", "--ctty", "--wait", *command(hostile, "asks.yml")],
        cwd=ROOT,
        env=environment(hostile, {}),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as run:
        os.close(theirs)
        text, ends = b"", time.monotonic() + 100
        while time.monotonic() < ends and (piece := read(ours, seconds=0.5)) is not None:
            text += piece
            if b"</prompt>" in text and b"<answered>" not in text:
                os.write(ours, b"\r")  # repeated, because Ansible drops input that arrives before the prompt
        run.kill()
        assert run.wait() == 0, text
    out = text.decode().replace("\r\n", "\n")
    assert "<prompt>" in out
    assert "<answered>" in out
    # Ansible itself sends these sequences to the terminal after an answer.
    assert_printable(re.sub(r"(?:\x1b\[)?\r(?:\x1b\[)?(?:\x1b\[K)?", "", out), colored=True)


def read(handle: int, seconds: float) -> bytes | None:
    """Return the bytes available within this time, or None if the other end is closed."""
    if not select.select([handle], [], [], seconds)[0]:
        return b""
    try:
        return os.read(handle, 65536)
    except OSError:
        return None


DRAWS = """
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from muster.status.screen import StatusLine
from muster_controller.playbook.progress import Progress
from muster_controller.playbook.screens import Screens


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        screens = Screens(Display(), again=True)
        screens.redraws = True
        screens.show([StatusLine(say("screen")), StatusLine(say("marked"), "fail")])
        screens.end()
        progress = Progress(Display(), show_rank=0)
        progress.drawn = True
        progress.say(say("rank"))
        progress.finish()
        return {"changed": False}
"""


def test_screen_sequences_are_printed_but_those_in_node_text_are_not(hostile: Path) -> None:
    (hostile / "action_plugins/draws.py").write_text(f"{HOSTILE}\n{DRAWS}")
    (hostile / "draws.yml").write_text("- {hosts: one, gather_facts: false, tasks: [{name: Draw, draws: {}}]}")
    done = subprocess.run(
        command(hostile, "draws.yml"),
        cwd=ROOT,
        env=environment(hostile, {}),
        capture_output=True,
        check=True,
        timeout=300,
    )
    text = done.stdout.decode()
    for sequence in ("\x1b[?25l\x1b[2J\x1b[H<screen>", "\x1b[K\n", "\x1b[J", "\x1b[?25h", "\r\x1b[2K  <rank>"):
        assert sequence in text
        text = text.replace(sequence, "")
    assert_printable(text)


HOLDS = """
from pathlib import Path

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        Display().display("step 1/2")
        return {"changed": False, "msg": Path(self._task.args["gate"]).read_text()}
"""


def test_redirected_output_is_written_during_the_run(hostile: Path, tmp_path: Path) -> None:
    (hostile / "action_plugins/holds.py").write_text(HOLDS)
    os.mkfifo(gate := tmp_path / "gate")
    tasks = f"[{{name: Hold, holds: {{gate: {gate}}}}}]"
    (hostile / "holds.yml").write_text(f"- {{hosts: one, gather_facts: false, tasks: {tasks}}}")
    file = tmp_path / "screen.txt"
    argv, env = command(hostile, "holds.yml"), environment(hostile, {})
    with file.open("w") as screen, subprocess.Popen(argv, cwd=ROOT, env=env, stdout=screen) as run:
        until(lambda: "step 1/2\n" in file.read_text() or run.poll() is not None, what="the line in the file")
        assert run.poll() is None
        gate.write_text("on")
        assert run.wait() == 0


def test_only_text_drawn_by_muster_keeps_its_terminal_sequences() -> None:
    assert shown("\x1b[2Ka\x1b[0;32mb\x1b[0m\r\nc") == "ab\nc"
    assert shown(Drawn("\x1b[2Ka")) == "\x1b[2Ka"
    with own_colors():
        assert shown("\x1b[2K\x1b[0;32mb\x1b[0m\x1b]0;t\x07") == "\x1b[0;32mb\x1b[0m"
    assert shown("\x1b[0;32mb") == "b"


def test_json_output_is_printable(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(REQUESTED, "yes")
    kept = os.dup(1)
    output = JsonOutput()
    output.take({"jobs": {FOUL: {"user": "\ud800", "path": Path(f"/{FOUL}"), "gpus": [1, None]}}})
    output.end("done", FOUL, "", {})
    os.dup2(kept, 1)
    text = capfd.readouterr().out
    [job] = json.loads(text)["jobs"].values()
    assert (job["user"], job["gpus"]) == ("<U+D800>", [1, None])
    assert not UNSEEN.search(json.dumps(json.loads(text), ensure_ascii=False))


def test_hundred_thousand_lines_are_filtered_in_seconds() -> None:
    lines = [f"changed: [node{number}] => (item=package-{number})" for number in range(100_000)]
    began = time.thread_time()
    for line in lines:
        shown(line)
    assert time.thread_time() - began < 5  # under 0.2 s on a quiet machine

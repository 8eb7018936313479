"""The command muster: which cluster, which ansible-playbook command, and refusals. Nothing is run."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from muster_cli import command
from muster_cli.verbs import VerbSource
from paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

LOG = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "/srv/train.py", line 17, in <module>
[rank1]:     raise RuntimeError("sample 17 is broken")
[rank1]: RuntimeError: sample 17 is broken
"""
PARTS = ("playbooks", "roles", "site.yml")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set up a user with one cluster, in an empty folder."""
    clusters = tmp_path / "config/muster/clusters/rack"
    clusters.mkdir(parents=True)
    (clusters / "hosts.yml").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("MUSTER_CLUSTER", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def project(tmp_path: Path) -> VerbSource:
    """Return the project without its own inventories."""
    (tmp_path / "checkout").mkdir()
    for part in PARTS:
        (tmp_path / "checkout" / part).symlink_to(ROOT / part)
    return VerbSource(tmp_path / "checkout")


def run(project: VerbSource, words: str, typed: str = "") -> Any:
    return CliRunner().invoke(command.Verbs(project), shlex.split(words), input=typed)


def shown(project: VerbSource, words: str) -> list[str]:
    """Return the words of the ansible-playbook command, from the playbook on."""
    result = run(project, f"{words} --show")
    assert result.exit_code == 0, result.output
    return [word.removeprefix(f"{project.root}/") for word in shlex.split(result.output)[1:]]


def test_run_sends_the_current_folder_and_takes_the_arguments_of_the_script(project: VerbSource, home: Path) -> None:
    words = "run -d --time 24h --nodes gpu01 --env A=b --restarts 3 --fetch output/"
    result = run(project, f"{words} --show train.py -- --epochs 3")
    _, book, _, inventory, *given = shlex.split(result.output)
    variables: dict[str, Any] = {}
    for word in given[1::2]:
        variables |= json.loads(word) if word.startswith("{") else dict([word.split("=", 1)])
    assert (book, inventory) == (f"{project.root}/playbooks/launch.yml", f"{home}/config/muster/clusters/rack")
    assert variables == {
        "launch_script": "train.py",
        "launch_args": ["--epochs", "3"],
        "launch_project": str(home),
        "launch_detached": True,
        "launch_time_limit": 86400,
        "cluster_launch_nodes": ["gpu01"],
        "launch_env": {"A": "b"},
        "launch_restarts": 3,
        "launch_fetch": ["output/"],
    }


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("up network pytorch", ["site.yml", "--tags", "network,pytorch"]),
        ("check", ["site.yml", "--check", "--diff"]),
        ("smoke", ["playbooks/ddp_smoke.yml"]),
        (
            "up --tags health -K --limit gpu01",
            ["site.yml", "--tags", "health", "--limit", "gpu01", "--ask-become-pass"],
        ),
        (
            "init lab2 --nodes gpu[01-02] --gpus 8",
            [
                "playbooks/import.yml",
                "-e",
                "import_to=lab2",
                "-e",
                "onboard_node=gpu[01-02]",
                "-e",
                '{"onboard_gpus": 8}',
            ],
        ),
        ("health -o health_gate=warn", ["playbooks/health.yml", "-e", "health_gate=warn"]),
        ("attach x-1", ["playbooks/launch.yml", "-e", "launch_attach=x-1"]),
        ("fetch x-1", ["playbooks/launch.yml", "-e", "launch_attach=x-1"]),
        ("why", ["playbooks/diagnose.yml"]),
        ("status --watch", ["playbooks/status.yml", "-e", '{"watch": true}']),
        ("jobs --ansible '--forks 3'", ["playbooks/jobs.yml", "--forks", "3"]),
        ("status -J", ["playbooks/status.yml", "--ask-vault-pass"]),
        (
            "up --vault-id lab@prompt --vault-password-file secret",
            ["site.yml", "--vault-password-file", "secret", "--vault-id", "lab@prompt"],
        ),
    ],
)
def test_verb_becomes_a_playbook(project: VerbSource, words: str, expected: list[str]) -> None:
    found = shown(project, words)
    assert [found[0], *found[3:]] == expected


def test_nodes_can_be_separated_by_commas(project: VerbSource) -> None:
    words = shown(project, "run --nodes gpu01,gpu02 --nodes gpu03 --spares gpu04,gpu05 train.py")
    assert '{"cluster_launch_nodes": ["gpu01", "gpu02", "gpu03"]}' in words
    assert '{"launch_spares": ["gpu04", "gpu05"]}' in words


def test_verb_for_a_running_launch_has_only_options_with_an_effect(project: VerbSource) -> None:
    for name, entry in project.short["verbs"].items():
        every = {one.variable for one in project.options_of(project.book(name))}
        assert set(entry.get("options", ())) <= every, name
    said = run(project, "stop --help").output
    assert "--stop-timeout" in said
    assert "--restarts" not in said
    words = shown(project, "fetch x-1 --fetch output/ --fetch-max-mb 9000")
    assert '{"launch_fetch": ["output/"]}' in words


def test_help_explains_positional_arguments(project: VerbSource) -> None:
    said = run(project, "notebook --help").output
    assert "muster notebook [OPTIONS] [started|stopped|looked_at]" in said
    assert "Requested state of the notebook." in said
    assert "SCRIPT: Path of the training script" in run(project, "run --help").output
    assert run(project, "notebook begun --show").exit_code == 2
    assert shown(project, "notebook started")[3:] == ["-e", "notebook_state=started"]
    assert "[ID]" in run(project, "logs --help").output


@pytest.mark.parametrize("verb", ["attach", "fetch", "stop"])
def test_verb_for_one_launch_never_starts_another(project: VerbSource, verb: str) -> None:
    result = run(project, f"{verb} --show")
    assert result.exit_code == 2
    assert "Missing argument 'ID'" in result.output


def test_every_playbook_has_a_verb_with_help(project: VerbSource) -> None:
    for name in project.names():
        result = run(project, f"{name} --help")
        flags = [flag for one in project.verb(name).options for flag in one.flags]
        assert len(flags) == len(set(flags)), name
        assert result.exit_code == 0, result.output
        assert re.match(r"[A-Z]\w+ .+\.$", project.verb(name).text), name


def test_new_playbook_and_option_appear_without_other_edits(project: VerbSource) -> None:
    for part in PARTS[:2]:
        (project.root / part).unlink()
        shutil.copytree(ROOT / part, project.root / part)
    (project.root / "playbooks/dummy.yml").write_text("# Does nothing.\n- hosts: all\n  roles: [dummy]\n")
    (project.root / "roles/dummy/meta").mkdir(parents=True)
    option = {"description": "Number of dummies.", "type": "int", "default": 1}
    specs = {"argument_specs": {"main": {"options": {"dummy_count": option}}}}
    (project.root / "roles/dummy/meta/argument_specs.yml").write_text(json.dumps(specs))
    assert "Does nothing." in run(project, "--help").output
    assert "--count INTEGER" in run(project, "dummy --help").output
    assert shown(project, "dummy --count 2")[3:] == ["-e", '{"dummy_count": 2}']


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("stats", "There is no command stats. Did you mean status?"),
        ("up -c rakc", "There is no cluster rakc. Did you mean rack?"),
        ("up -c ./missing", "./missing does not exist."),
        ("run --time soon x.py", "soon is not a duration such as 90m or 24h"),
        ("run --env A x.py", "launch_env takes NAME=VALUE."),
        ("run --timex 3 x.py", "No such option '--timex'. (Did you mean one of:"),
        ("retire gpu03 --yes", "--yes requires -c NAME"),
    ],
)
def test_what_does_not_exist_is_rejected(project: VerbSource, words: str, sentence: str) -> None:
    result = run(project, words)
    assert result.exit_code == 2
    assert sentence in " ".join(result.output.split())


def test_every_verb_rejects_what_does_not_exist(project: VerbSource, home: Path) -> None:
    for name in project.names():
        result = run(project, f"{name} --optoin x=1")
        assert result.exit_code == 2
        assert re.search(r"Did you mean .*'--option'", result.output), result.output
    shutil.rmtree(home / "config")
    for name in project.names():
        with_argument = name in ("init", "attach", "fetch", "stop")
        result = run(project, f"{name} --show x" if with_argument else f"{name} --show")
        expected = (0, "") if name == "init" else (2, "There is no cluster yet. Create one with: muster init NAME")
        assert result.exit_code == expected[0], result.output
        assert expected[1] in result.output


def test_several_clusters_require_a_choice(project: VerbSource, home: Path) -> None:
    (home / "config/muster/clusters/lab2").mkdir()
    (home / "config/muster/clusters/lab2/hosts.yml").touch()
    assert "There are several clusters: lab2, rack. Choose one with -c NAME." in run(project, "health").output
    assert shown(project, "health -c lab2")[2].endswith("/lab2")


def test_sandbox_is_ignored_beside_a_cluster(project: VerbSource, home: Path) -> None:
    (home / "config/muster/clusters/sandbox").mkdir()
    (home / "config/muster/clusters/sandbox/hosts.yml").touch()
    assert shown(project, "health")[2].endswith("/rack")
    assert shown(project, "health -c sandbox")[2].endswith("/sandbox")


def test_inventory_counts_once_its_sample_addresses_are_replaced(project: VerbSource, home: Path) -> None:
    hosts = home / "config/muster/clusters/lab/hosts.yml"
    hosts.parent.mkdir()
    hosts.write_text((ROOT / "inventory/lab/hosts.yml").read_text())
    assert "once its sample addresses are replaced" in run(project, "health -c lab").output
    kept, node = hosts.read_text().split("gpu_nodes:")
    hosts.write_text(f"{kept}gpu_nodes:{node.replace('198.51.100.', '10.1.0.')}")
    assert "198.51.100." in kept, "a comment still names the sample addresses"
    assert shown(project, "health -c lab")[2].endswith("/lab")


def test_first_cluster_is_created_by_init(project: VerbSource, home: Path) -> None:
    shutil.rmtree(home / "config")
    assert "muster init NAME" in run(project, "health").output


def test_removal_asks_for_the_name_of_the_cluster(project: VerbSource, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(command, "replace_process", lambda _project, words, _cluster: started.append(words))
    assert "The name differs. Nothing was changed." in run(project, "retire gpu03", "rakc\n").output
    assert started == []
    assert "retire changes cluster rack, nodes gpu03" in run(project, "retire gpu03", "rack\n").output
    assert run(project, "retire gpu03 --yes -c rack").exit_code == 0
    assert len(started) == 2


@pytest.mark.parametrize("cluster", [".", "../rack", "x/.."])
def test_removal_names_the_folder_of_a_relative_inventory(
    project: VerbSource, home: Path, monkeypatch: pytest.MonkeyPatch, cluster: str
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(command, "replace_process", lambda _project, words, _cluster: started.append(words))
    monkeypatch.chdir(home / "config/muster/clusters/rack")
    (home / "config/muster/clusters/rack/x").mkdir()
    assert "The name differs. Nothing was changed." in run(project, f"remove -c {cluster}", "\n").output
    assert started == []
    assert run(project, f"remove -c {cluster}", "rack\n").exit_code == 0
    assert "/ is not the inventory of a cluster." in run(project, "remove -c /", "\n").output
    assert len(started) == 1


def test_yes_does_not_accept_the_cluster_of_the_environment(
    project: VerbSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "replace_process", lambda *_: pytest.fail("started"))
    monkeypatch.setenv("MUSTER_CLUSTER", "rack")
    assert "--yes requires -c NAME" in run(project, "remove --yes").output


def test_logs_are_diagnosed_without_a_cluster(project: VerbSource, home: Path) -> None:
    shutil.rmtree(home / "config")
    (project.root / "plugins").symlink_to(ROOT / "plugins")
    (home / "train.log").write_text(LOG)
    for words, typed in (("why train.log", ""), ("why -", (home / "train.log").read_text())):
        lines = run(project, words, typed).output.splitlines()
        assert [line.partition(":")[0] for line in lines] == ["Symptom", "Where", "Cause", "Ruled out", "Next step"]
        assert lines[0].endswith("RuntimeError: sample 17 is broken")
    assert json.loads(run(project, "why train.log --json").output)["schema"] == 1
    assert "No log found at ./x.log" in run(project, "why ./x.log").output


def test_project_file_sets_cluster_and_options_of_a_launch(project: VerbSource, home: Path) -> None:
    (home / "config/muster/clusters/lab2").mkdir()
    (home / "config/muster/clusters/lab2/hosts.yml").touch()
    (home / "muster.yml").write_text("cluster: lab2\ntime: 10m\nenv: {A: b}\n")
    words = shown(project, "run --env C=d train.py")
    assert words[2].endswith("/lab2")
    assert '{"launch_time_limit": 600}' in words
    assert '{"launch_env": {"C": "d"}}' in words


def test_project_file_declares_environments(project: VerbSource, home: Path) -> None:
    (home / "muster.yml").write_text("time: 10m\nenvironments: {mine: {requirements: a.txt, torch: 2.12.0}}\n")
    declared = {"cluster_own_environments": {"mine": {"requirements": str(home / "a.txt"), "torch": "2.12.0"}}}
    for words in ("run train.py", "environment"):
        assert json.dumps(declared) in shown(project, words)
    assert "{ is not valid YAML" in run(project, "environment --show --environments x={").output


def test_project_file_is_read_as_data_and_not_executed(project: VerbSource, home: Path) -> None:
    (home / "muster.yml").write_text("cluster: ../evil\ntimex: 3\nenv: {A: \"{{ lookup('pipe', 'id') }}\"}\n")
    said = run(project, "run --show train.py").output
    assert "muster.yml: cluster ../evil is not registered; clusters: rack." in said
    assert "muster.yml: timex is not an option that the file can set (did you mean time?)." in said
    assert "muster.yml: env contains a template; write the value itself." in said
    (home / "muster.yml").write_text("module: \"#jinja2:variable_start_string:'[['\\n[[ x ]]\"\n")
    assert "muster.yml: module contains a template" in run(project, "run --show train.py").output


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "environments: {mine: '{requirements: \"\\x7b\\x7b x \\x7d\\x7d\"}'}",
            "environments must be a mapping of names to",
        ),
        ("environments: {mine: {requirements: ../a.txt}}", "environments: ../a.txt is outside the folder of the file"),
        ("to: sbatch", "to is not an option that the file can set"),
        ("as: cluster_user", "as is not an option that the file can set"),
        ("attach: x-1", "attach is not an option that the file can set"),
        ("env-file: ~/tokens.env", "env-file: ~/tokens.env is outside the folder of the file"),
        ("script-src: /etc/passwd", "script-src: /etc/passwd is outside the folder of the file"),
        ("project: link", "project: link is outside the folder of the file"),
        ('module: "a\\eb"', "module contains a control character"),
        ('"\\e[2J\\u202e": 1', "muster.yml: <U+001B>[2J<U+202E> is not an option"),
        ('cluster: "\\e]0;x"', "cluster <U+001B>]0;x is not registered"),
        ("a: &a [x]\nenv: [*a, *a]", "it contains a YAML alias"),
        (f"module: {'x' * 70000}", "it has more than 65536 characters"),
        ("[" * 5000, "muster.yml cannot be read"),
        ("{? 2026-01-01 : x}", "muster.yml cannot be read"),
    ],
)
def test_hostile_project_file_is_rejected(
    project: VerbSource, home: Path, monkeypatch: pytest.MonkeyPatch, text: str, sentence: str
) -> None:
    (home / "work").mkdir()
    (home / "work/link").symlink_to(home)
    monkeypatch.chdir(home / "work")
    (home / "work/muster.yml").write_text(text)
    result = run(project, "run --show train.py")
    said = " ".join(result.output.split())
    assert result.exit_code == 2
    assert sentence in said
    assert said.isprintable()


def test_project_file_chooses_files_of_its_folder(project: VerbSource, home: Path) -> None:
    binary = "!!binary L2V0Yy9wYXNzd2Q="  # /etc/passwd
    (home / "muster.yml").write_text(f'project: src\nenv-file: {binary}\nargs: ["a\\tb"]\nimage: src/../base.tar\n')
    words = shown(project, "run train.py")
    files = {"launch_project": "src", "launch_image": "src/../base.tar"}
    assert {*(f"{name}={home}/{file}" for name, file in files.items()), '{"launch_args": ["a\\tb"]}'} <= {*words}
    assert json.dumps({"launch_env_file": f"{home}/b'/etc/passwd'"}) in words


def test_an_image_with_a_digest_is_not_a_path(project: VerbSource, home: Path) -> None:
    words = shown(project, "run --image registry.example/train@sha256:ab --env-file more.env train.py")
    assert {"launch_image=registry.example/train@sha256:ab", f"launch_env_file={home}/more.env"} <= {*words}


def test_every_launch_option_is_allowed_in_the_project_file_or_rejected(project: VerbSource) -> None:
    variables = {one.variable for one in project.verb("run").options}
    rejected = {"launch_attach", "launch_stop", "launch_as", "launch_export_to", "launch_export_file"}
    assert variables - {*project.short["of_projects"]} == rejected
    assert {*project.short["of_projects"]} < variables


@pytest.mark.parametrize(
    "words",
    [
        "run --env 'A={{ x }}' train.py",
        "run train.py -- '{% x %}'",
        """environment --environments 'mine={requirements: "\\x7b\\x7b x"}'""",
    ],
)
def test_option_with_a_template_is_rejected(project: VerbSource, words: str) -> None:
    result = run(project, f"{words.partition(' ')[0]} --show {words.partition(' ')[2]}")
    assert result.exit_code == 2
    assert "contains a template. Write the value itself, or use -o" in " ".join(result.output.split())


def completed(project: VerbSource, words: str) -> list[str]:
    *before, last = words.split(" ")
    made = ShellComplete(command.Verbs(project), {}, "muster", "_MUSTER_COMPLETE")
    return [one.value for one in made.get_completions(before, last)]


def test_completion_knows_verbs_options_nodes_launches_and_environments(project: VerbSource, home: Path) -> None:
    rack = home / "config/muster/clusters/rack"
    (rack / "hosts.yml").write_text("gpu_nodes: {children: {a: {hosts: {gpu01: {}, gpu02: {}}}}}\n")
    (rack / "group_vars").mkdir()
    (rack / "group_vars/all.yml").write_text("cluster_environments: {vision: {}}\n")
    (project.root / "artifacts/rack/20261128-101112-ab12").mkdir(parents=True)
    assert completed(project, "qua") == ["quarantine"]
    assert "--restarts" in completed(project, "run --res")
    assert completed(project, "quarantine gpu01,gpu") == ["gpu01,gpu01", "gpu01,gpu02"]
    assert completed(project, "run --nodes gpu02") == ["gpu02"]
    assert completed(project, "run --environment ") == ["vision"]
    assert completed(project, "attach ") == ["20261128-101112-ab12"]
    assert completed(project, "health -c r") == ["rack"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_printed(project: VerbSource, shell: str) -> None:
    assert "_MUSTER_COMPLETE" in run(project, f"completion {shell}").output

"""Variables given with -e and in job files: where they were set, secrets, referenced files and templates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from ansible import context
from ansible.module_utils.common.collections import ImmutableDict
from ansible.parsing.dataloader import DataLoader
from ansible.parsing.vault import VaultLib, VaultSecret, VaultSecretsContext
from ansible.template import Templar, trust_as_template
from ansible.utils import vars as ansible_vars

from muster_controller.launch import job
from muster_controller.playbook import command_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SECRET = [("default", VaultSecret(b"open sesame"))]


def given(monkeypatch: pytest.MonkeyPatch, *words: str) -> Mapping[str, Any]:
    """Return the variables of a run with these values of -e."""
    monkeypatch.setattr(context, "CLIARGS", ImmutableDict(extra_vars=words))
    # Ansible reads the extra variables once per process.
    monkeypatch.setattr(ansible_vars.load_extra_vars, "extra_vars", None, raising=False)
    loader = DataLoader()
    loader.set_vault_secrets(SECRET)
    return job.read_run(loader)


def written(folder: Path, text: str) -> str:
    path = folder / "job.yml"
    path.write_text(text)
    return f"@{path}"


def test_each_variable_has_the_file_and_line_that_set_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, "# a job\nlaunch_script: train.py\nlaunch_detached: true\nlaunch_args: []\n")
    run = given(monkeypatch, file, "launch_wait=true our=1", '{"launch_shared": false, "launch_script": "other.py"}')
    assert job.places_of(run) == {
        "launch_script": "-e",
        "launch_detached": f"{tmp_path}/job.yml line 3",
        "launch_args": f"{tmp_path}/job.yml line 4",
        "launch_wait": "-e",
        "our": "-e",
        "launch_shared": "-e",
    }
    assert job.unassigned(run) == ()


def test_job_file_without_at_sign_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    run = given(monkeypatch, "job.yml", "launch_wait=true")
    assert job.unassigned(run) == ("job.yml",)
    assert job.places_of(run) == {"launch_wait": "-e"}


def test_secrets_in_a_job_file_are_reported_without_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vaulted = "\n".join(f"    {line}" for line in VaultLib(SECRET).encrypt("hf_from_vault").decode().splitlines())
    text = f"launch_env:\n  HF_TOKEN: hf_abc\n  NCCL_DEBUG: WARN\n  WANDB_API_KEY: !vault |\n{vaulted}\n"
    [sentence] = job.open_secrets(given(monkeypatch, written(tmp_path, text)))
    assert sentence.startswith(f"{tmp_path}/job.yml line 2: launch_env contains HF_TOKEN in clear text")
    assert "hf_abc" not in sentence
    assert job.open_secrets(given(monkeypatch, '{"launch_env": {"HF_TOKEN": "hf_abc"}}')) == []
    assert job.open_secrets(given(monkeypatch, "launch_env=text")) == []


def test_job_file_cannot_write_an_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, "launch_script: /x.py\nlaunch_export_to: sbatch\nlaunch_export_file: ~/.profile\n")
    found = job.code_in(given(monkeypatch, file), ["plan.yml"])
    assert [one.partition(". ")[0] for one in found] == [
        f"{tmp_path}/job.yml line {line}: launch_export_{name} is not allowed in a job file"
        for line, name in ((2, "to"), (3, "file"))
    ]
    assert job.code_in(given(monkeypatch, "launch_export_file=x"), ["export.yml"]) == []


def test_unusable_files_of_a_launch_are_reported(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.env"
    tokens.write_text("HF_TOKEN=abc\n")
    tokens.chmod(0o644)
    values = {
        "launch_script_src": str(tmp_path / "no.py"),
        "launch_env_file": str(tokens),
        "launch_project": str(tmp_path / "no"),
    }
    found = dict(job.unusable_files(values))
    assert found["launch_project"] == f"{tmp_path}/no is not a folder on the controller"
    assert found["launch_script_src"].startswith(f"{tmp_path}/no.py is neither a file nor a folder")
    assert found["launch_env_file"].endswith(f"the file is readable by other users. Run: chmod 600 {tokens}")
    assert list(job.unusable_files({**values, "launch_attach": "20261121-093142-1df3"})) == []
    tokens.chmod(0o600)
    (tmp_path / "no.py").write_text("print()\n")
    (tmp_path / "no").mkdir()
    assert list(job.unusable_files(values)) == []


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["reason=a fan does not turn"], "a fan does not turn"),
        (["node=node2", "reason=a fan  node=node3"], "a fan"),
        (["reason='a fan'"], ""),
        (["node=node2 reason=fan"], ""),
        (["@job.yml"], ""),
    ],
)
def test_unquoted_value_with_spaces_is_read_completely(typed: list[str], said: str) -> None:
    assert command_line.sentence({"extra_vars": typed}, "reason") == said
    assert job.unassigned({"_raw_params": "fan does oops"}, "a fan does not turn") == ("oops",)


def templates(found: list[str]) -> list[str]:
    return [one for one in found if "contains a template" in one]


TEMPLATE = (
    "{where}: {name} contains a template, which would run on the controller; a job file may contain only data."
    " Replace the template with a value, move it to the inventory, or mark it with !unsafe to pass it unchanged."
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("launch_script: '{{ here }}/train.py'\n", [("launch_script", 1)]),
        ("launch_args:\n  - a\n  - '{% if x %}'\n", [("launch_args", 3)]),
        ("launch_env: {A: {B: '{# x #}'}}\n", [("launch_env", 1)]),
        ("launch_env: {'{{ x }}': 1}\n", [("launch_env", 1)]),
        ("launch_script: \"#jinja2: variable_start_string:'[['\\n[[ x ]]\"\n", [("launch_script", 1)]),
        # Templates in all variables are reported, also outside launch options.
        ("launch_script: a\nvalidate_connects: '{{ x }}'\n", [("validate_connects", 2)]),
        ("launch_script: a\nour_own: '{{ y }}'\n", [("our_own", 2)]),
        ("launch_script: !unsafe '{{ here }}/train.py'\nlaunch_args: ['${x}', '{', '}}']\n", []),
        ("launch_wait: true\nlaunch_restarts: 3\nlaunch_env: {A: null}\n", []),
        # Not a job file: variables of the site, given with -e.
        ("our_own: '{{ x }}'\ncluster_name: '{{ y }}'\n", []),
    ],
)
def test_templates_in_a_job_file_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, found: list[tuple[str, int]]
) -> None:
    file = written(tmp_path, text)
    expected = [TEMPLATE.format(name=name, where=f"{file[1:]} line {line}") for name, line in found]
    assert templates(job.code_in(given(monkeypatch, file), ["site.yml"])) == expected


def test_every_variables_file_of_a_launch_is_a_job_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = given(monkeypatch, written(tmp_path, "our_own: '{{ x }}'\n"), "launch_script={{ here }}")
    expected = [TEMPLATE.format(name="our_own", where=f"{tmp_path}/job.yml line 1")]
    books = ("plan.yml", "launch.yml", "export.yml", "site.yml")
    assert [templates(job.code_in(run, [book])) for book in books] == [expected] * 3 + [[]]


def test_decrypted_value_is_not_a_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token can look like a template. Ansible does not template decrypted values either."""
    monkeypatch.setattr(VaultSecretsContext, "_current", VaultSecretsContext(SECRET))
    encrypted = VaultLib(SECRET).encrypt("{{ x }}").decode().replace("\n", "\n  ")
    run = given(monkeypatch, written(tmp_path, f"launch_script: !vault |\n  {encrypted}\n"))
    assert job.code_in(run, []) == []
    variables = {"x": "this was templated", **run}
    templar = Templar(loader=DataLoader(), variables=variables)
    assert templar.template(trust_as_template("{{ launch_script }}")) == "{{ x }}"


@pytest.mark.parametrize("text", ["cluster_artifacts_keep: 1\n", '{"cluster_artifacts_keep": 1}'], ids=["yaml", "json"])
def test_variables_of_ansible_runner_are_those_of_its_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """ansible-runner and AWX pass them in a file. Another file in the same folder is a job file."""
    (tmp_path / "env").mkdir()
    for name, allowed in (("extravars", True), ("job.yml", False)):
        file = tmp_path / "env" / name
        file.write_text(text)
        run = given(monkeypatch, f"@{file}")
        assert job.code_in(run, ["launch.yml"]), "without ansible-runner"
        monkeypatch.setenv("AWX_ISOLATED_DATA_DIR", f"{tmp_path}/artifacts/1f")
        assert bool(job.code_in(run, ["launch.yml"])) is not allowed
        monkeypatch.delenv("AWX_ISOLATED_DATA_DIR")


def test_job_file_sets_only_options_of_a_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = """\
launch_script: a
cluster_notify_command: [/bin/sh, -c, id]
diagnose_rules: [/tmp/rules.yml]
cluster_artifacts_keep: 1
ansible_connection: local
ansible_user: root
launch_stop: 20261121-093142-1df3
jobs_attach: 20261121-093142-1df3
our_own: 1
cluster_launch_node: [node1]
"DONE\\n- x": 1
launch_users: [eve]
# These are allowed. Misspelt ones are reported with the other problems.
launch_scirpt: a
launch_stop_timeout: 3
jobs_lines: 3
cluster_launch_nodes: [node1]
cluster_own_environments: {}
"""
    run = given(monkeypatch, written(tmp_path, lines), "cluster_artifacts_dir=x")
    found = job.code_in(run, [])
    assert found[0] == (
        f"{tmp_path}/job.yml line 2: cluster_notify_command is not allowed in a job file. A job file may contain only"
        " options of a launch; set others in the inventory or with -e."
    )
    assert [one.partition(" is not allowed in a job file")[0].partition(": ")[2] for one in found] == [
        "cluster_notify_command",
        "diagnose_rules",
        "cluster_artifacts_keep",
        "ansible_connection",
        "ansible_user",
        "launch_stop",
        "jobs_attach",
        "our_own",
        "cluster_launch_node",
        r"'DONE\n- x'",
        "launch_users",
    ]
    assert [one for one in found if "(did you mean cluster_launch_nodes?)" in one] == [found[8]]


def test_too_deeply_nested_value_is_rejected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = given(monkeypatch, written(tmp_path, f"launch_args: {'[' * 60}{']' * 60}\n"))
    assert job.code_in(run, [])

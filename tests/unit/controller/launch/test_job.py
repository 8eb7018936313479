"""What was given with -e is read with the place where it stands; secrets and files of a launch are looked at there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from ansible import context
from ansible.module_utils.common.collections import ImmutableDict
from ansible.parsing.dataloader import DataLoader
from ansible.parsing.vault import VaultLib, VaultSecret
from ansible.utils import vars as ansible_vars

from muster_controller.launch import job
from muster_controller.playbook import command_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SECRET = [("default", VaultSecret(b"open sesame"))]


def given(monkeypatch: pytest.MonkeyPatch, *words: str) -> Mapping[str, Any]:
    """Return what a run with these behind -e was given."""
    monkeypatch.setattr(context, "CLIARGS", ImmutableDict(extra_vars=words))
    # Ansible reads them once for each process.
    monkeypatch.setattr(ansible_vars.load_extra_vars, "extra_vars", None, raising=False)
    loader = DataLoader()
    loader.set_vault_secrets(SECRET)
    return job.read_run(loader)


def written(folder: Path, text: str) -> str:
    path = folder / "job.yml"
    path.write_text(text)
    return f"@{path}"


def test_each_name_has_the_place_where_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_file_without_its_at_sign_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    run = given(monkeypatch, "job.yml", "launch_wait=true")
    assert job.unassigned(run) == ("job.yml",)
    assert job.places_of(run) == {"launch_wait": "-e"}


def test_secrets_of_a_job_file_are_named_and_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vaulted = "\n".join(f"    {line}" for line in VaultLib(SECRET).encrypt("hf_from_vault").decode().splitlines())
    text = f"launch_env:\n  HF_TOKEN: hf_abc\n  NCCL_DEBUG: WARN\n  WANDB_API_KEY: !vault |\n{vaulted}\n"
    [sentence] = job.open_secrets(given(monkeypatch, written(tmp_path, text)))
    assert sentence.startswith(f"{tmp_path}/job.yml line 2: launch_env has HF_TOKEN in clear text")
    assert "hf_abc" not in sentence
    assert job.open_secrets(given(monkeypatch, '{"launch_env": {"HF_TOKEN": "hf_abc"}}')) == []
    assert job.open_secrets(given(monkeypatch, "launch_env=text")) == []


def test_files_that_a_launch_cannot_use(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.env"
    tokens.write_text("HF_TOKEN=abc\n")
    tokens.chmod(0o644)
    values = {
        "launch_script_src": str(tmp_path / "no.py"),
        "launch_env_file": str(tokens),
        "launch_project": str(tmp_path / "no"),
    }
    found = dict(job.unusable_files(values))
    assert found["launch_project"] == f"{tmp_path}/no is no folder on the controller"
    assert found["launch_script_src"].startswith(f"{tmp_path}/no.py is neither a file nor a folder")
    assert found["launch_env_file"].endswith(f"other users may read it. Type: chmod 600 {tokens}")
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
def test_a_sentence_behind_an_option_is_whole(typed: list[str], said: str) -> None:
    assert command_line.sentence({"extra_vars": typed}, "reason") == said
    assert job.unassigned({"_raw_params": "fan does oops"}, "a fan does not turn") == ("oops",)

"""The environment file of a launch: accepted formats, and error messages without values."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from ansible.constants import DEFAULT_VAULT_ID_MATCH
from ansible.parsing.vault import VaultLib, VaultSecret, VaultSecretsContext

from muster.launch.plan import PlanError
from muster_controller.launch.environment_file import MOST, read_environment

if TYPE_CHECKING:
    from pathlib import Path

HIDDEN = "hf-31415"
SECRETS = [(DEFAULT_VAULT_ID_MATCH, VaultSecret(b"of the run"))]
OTHERS = [(DEFAULT_VAULT_ID_MATCH, VaultSecret(b"of others"))]


@pytest.fixture(autouse=True)
def _vault_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VaultSecretsContext, "_current", VaultSecretsContext(SECRETS))


def encrypted(text: str, secrets: Any = SECRETS) -> str:
    return str(VaultLib(secrets).encrypt(text, secrets[0][1]).decode())


def inline(text: str) -> str:
    return "!vault |\n" + "".join(f"  {line}\n" for line in text.splitlines())


def written(folder: Path, text: str | bytes, mode: int = 0o600) -> str:
    path = folder / "token.env"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize(
    "text",
    [
        f"HF_TOKEN={HIDDEN}\nFLAG=yes\n",
        f"\ufeffexport HF_TOKEN='{HIDDEN}'\r\nFLAG=yes\r\n",
        f"---\nHF_TOKEN: {HIDDEN}\nFLAG: yes\n",
        f'{{"HF_TOKEN": "{HIDDEN}", "FLAG": "yes"}}',
        encrypted(f"HF_TOKEN={HIDDEN}\nFLAG=yes\n"),
        encrypted(f"HF_TOKEN: {HIDDEN}\nFLAG: yes\n"),
        f"HF_TOKEN: {inline(encrypted(HIDDEN))}FLAG: yes\n",
    ],
    ids=["lines", "lines_from_windows", "yaml", "json", "vault_of_lines", "vault_of_yaml", "vault_in_yaml"],
)
def test_all_file_formats_define_the_same_variables(tmp_path: Path, text: str) -> None:
    assert read_environment(written(tmp_path, text)) == {"HF_TOKEN": HIDDEN, "FLAG": "yes"}


def test_vault_file_can_be_readable_by_other_users(tmp_path: Path) -> None:
    assert read_environment(written(tmp_path, encrypted("A=b"), 0o644)) == {"A": "b"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"A: 1\nB: [{HIDDEN}]\n", "line 2: not a string."),
        (f"A: 1\n{HIDDEN}: x\n", "line 2: the name is not a valid name of an environment variable."),
        (f"A: 1\nB: {HIDDEN}: x\n", "line 2: neither NAME=value nor valid YAML."),
        (f"A: 1\nA: {HIDDEN}\n", "line 2: A is already set."),
        (f'A: "{HIDDEN}\\0"\n', "line 1: the value of A contains a NUL character."),
        (HIDDEN, "the file contains neither lines NAME=value nor a mapping of names to values."),
        ("", "the file contains neither lines NAME=value nor a mapping of names to values."),
        (HIDDEN.encode() + b"\xff", "the file is not valid UTF-8 text."),
        (HIDDEN * MOST, f"the file is larger than {MOST} bytes."),
        (encrypted("A=b", OTHERS), "no vault password of this run decrypts the file. Add --ask-vault-pass or"),
        (f"A: 1\nB: {inline(encrypted('x', OTHERS))}", "line 2: no vault password of this run decrypts the file."),
        ("[" * 1500, "the file contains neither lines NAME=value nor valid YAML."),
    ],
)
def test_invalid_file_is_rejected_without_showing_values(tmp_path: Path, text: str | bytes, why: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(PlanError) as refusal:
        read_environment(path)
    assert str(refusal.value).startswith(f"launch_env_file {path}: {why}")
    assert HIDDEN not in str(refusal.value)


def test_file_readable_by_other_users_is_rejected(tmp_path: Path) -> None:
    path = written(tmp_path, "A=b", 0o640)
    with pytest.raises(PlanError, match=f"the file is readable by other users. Run: chmod 600 {path}"):
        read_environment(path)


def test_missing_or_irregular_file_is_rejected(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, why in (("none", "No such file or directory"), ("pipe", "is not a regular file")):
        with pytest.raises(PlanError, match=f"{name}: the file cannot be read: {why}"):
            read_environment(str(tmp_path / name))


def test_home_directory_of_an_unknown_user_is_rejected() -> None:
    with pytest.raises(PlanError, match="the user nobody-has-this-name does not exist on the controller"):
        read_environment("~nobody-has-this-name/token.env")

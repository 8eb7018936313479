"""No output or artifact of a run contains a secret, regardless of the documented way in which the secret was given.

The simulated node returns the secrets instead of an answer, so that the launch ends with a verdict.
tests/integration/test_launch_secrets.py does the same search with nodes that run a training.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[4]
OPENS = "of-the-vault"
FILE, TYPED, ARGUMENT, SPLIT, URL, GROUP, HARMLESS = (f"{way}-31415-926535" for way in range(7))
SECRETS = [FILE, TYPED, ARGUMENT, SPLIT, URL, GROUP, HARMLESS]


def vault_options(folder: Path) -> list[str]:
    return ["--vault-password-file", str(folder / "password")]


def lab(folder: Path) -> Path:
    said = "\n".join(SECRETS)
    ssh = folder / "ssh"
    ssh.write_text(f"#!/bin/sh\ncat <<'END' | tee /dev/stderr\n{said}\nEND\n")
    ssh.chmod(0o755)
    nodes = {"node1": {"ansible_host": "10.1.2.3", "ansible_ssh_executable": str(ssh)}}
    (folder / "lab").mkdir()
    (folder / "lab/hosts.yml").write_text(json.dumps({"gpu_nodes": {"hosts": nodes}}))
    (folder / "password").write_text(OPENS)
    program = str(Path(sys.executable).with_name("ansible-vault"))
    options = vault_options(folder)
    inline = subprocess.run(
        [program, "encrypt_string", *options, "--name", "HF_HUB_TOKEN", GROUP],
        check=True,
        capture_output=True,
        text=True,
    )
    (folder / "lab/group_vars").mkdir()
    (folder / "lab/group_vars/all.yml").write_text(f"group_env:\n  {inline.stdout.replace(chr(10), chr(10) + '  ')}")
    (folder / "tokens.env").write_text(f"HF_TOKEN={FILE}\nREMARK='{HARMLESS}'\n")
    subprocess.run([program, "encrypt", *options, str(folder / "tokens.env")], check=True, capture_output=True)
    return folder / "lab"


def run_launch(folder: Path, inventory: Path) -> subprocess.CompletedProcess[str]:
    env = {"GITHUB_PAT": TYPED, "DB_URL": f"postgres://ada:{URL}@db/x", "HUB_KEY": "{{ group_env.HF_HUB_TOKEN }}"}
    given: dict[str, Any] = {
        "launch_script": "/srv/train.py",
        "launch_env": env,
        "launch_args": [f"--hf_token={ARGUMENT}", "--password", SPLIT],
        "launch_env_file": str(folder / "tokens.env"),
        "cluster_artifacts_dir": str(folder / "kept"),
    }
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    return subprocess.run(
        [
            *(program, "playbooks/launch.yml", "-i", str(inventory), "-vvv", "-e", json.dumps(given)),
            *vault_options(folder),
        ],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "HOME": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_no_secret_is_shown_or_stored(tmp_path: Path) -> None:
    done = run_launch(tmp_path, lab(tmp_path))
    shown = done.stdout + done.stderr
    kept = {path: path.read_text() for path in tmp_path.glob("kept/**/*") if path.is_file()}
    names = {path.name for path in kept}
    assert {"plan.json", "verdict.json", "run.json", "report.html"} <= names, shown
    assert "HF_TOKEN" in shown
    assert "the value of --hf_token, --password is visible" in " ".join(shown.split())
    for secret in SECRETS:
        for form in (secret, base64.b64encode(secret.encode()).decode().rstrip("=")[:-1]):
            assert form not in shown
            assert not [path for path, text in kept.items() if form in text]

"""Masking of variables and command lines by name and format."""

from __future__ import annotations

import shlex

import pytest

from muster.verdict.masking import masked_argv, masked_command, masked_env, secrets_of_argv, secrets_of_env

# Not a real token; composed here so that scanners for leaked tokens do not report this file.
TOKEN = "hf_" + "abcdefgh12345678"


@pytest.mark.parametrize(
    "name",
    [
        *("HF_TOKEN", "GITHUB_PAT", "PAT", "DB_PWD", "REDIS_PASS", "SLACK_WEBHOOK_URL", "AZURE_SAS", "SENTRY_DSN"),
        *("SSH_PASSPHRASE", "GOOGLE_CREDENTIALS", "SESSION_COOKIE", "BASIC_AUTH", "AUTHORIZATION", "WANDB_API_KEY"),
        *("AWS_SECRET_ACCESS_KEY", "AZURE_STORAGE_CONNECTION_STRING", "PGPASSWORD", "ssh_key", "S3_CREDS", "APIKEY"),
    ],
)
def test_values_of_variables_with_secret_names_are_masked(name: str) -> None:
    env = {name: "x1y2"}
    assert (masked_env(env), secrets_of_env(env)) == ({name: "********"}, ["x1y2"])


@pytest.mark.parametrize(
    "name",
    [
        *("TOKENIZERS_PARALLELISM", "KEYBOARD", "PWD", "OLDPWD", "PATH", "PYTHONPATH", "SSH_AUTH_SOCK", "AUTHOR"),
        *("NCCL_IB_PKEY", "XAUTHORITY", "MONKEY", "COMPASS", "HOME"),
    ],
)
def test_values_of_other_variables_are_not_masked(name: str) -> None:
    env = {name: "x1y2"}
    assert (masked_env(env), secrets_of_env(env)) == (env, [])


@pytest.mark.parametrize(
    ("typed", "shown", "secrets"),
    [
        ("train.py --api-key=abc --lr 0.1", "train.py --api-key=******** --lr 0.1", ["abc"]),
        ("train.py --hf-token abc abc", "train.py --hf-token ******** abc", ["abc"]),
        ("--max-tokens 512 --tokens=512", "--max-tokens 512 --tokens=512", []),
        ("--use-auth --epochs 3", "--use-auth --epochs 3", []),
        ("--db=postgres://ada:geheim@db/x", "--db=postgres://ada:********@db/x", ["geheim"]),
        ("--tokenizer bert", "--tokenizer bert", []),
        ("--pat=abc --dsn abd --pwd abe", "--pat=******** --dsn ******** --pwd ********", ["abc", "abd", "abe"]),
        ("env HF_TOKEN=abc python", "env HF_TOKEN=******** python", ["abc"]),
        ("run -e HF_TOKEN=abc --env=PAT=abd", "run -e HF_TOKEN=******** --env=PAT=********", ["abc", "abd"]),
        ("hub.token=abc hub.name=x", "hub.token=******** hub.name=x", ["abc"]),
        ("curl -H 'Authorization: Bearer abc' x", "curl -H 'Authorization: Bearer ********' x", ["abc"]),
        ("--api-key=YWJjZA== --password=12345678", "--api-key=******** --password=********", ["YWJjZA==", "12345678"]),
        (f"login {TOKEN}", "login ********", [TOKEN]),
        ("https://hub/x?token=abc", "https://hub/x?token=********", ["abc"]),
        ("http://mlflow:5000/x@y", "http://mlflow:5000/x@y", []),
    ],
)
def test_secrets_in_command_lines_are_masked(typed: str, shown: str, secrets: list[str]) -> None:
    argv = shlex.split(typed)
    assert masked_argv(argv) == shlex.split(shown)
    assert secrets_of_argv(argv) == secrets


def test_command_line_without_quotes_is_masked() -> None:
    assert masked_command("curl -H Authorization: Bearer abc") == "curl -H Authorization: Bearer ********"

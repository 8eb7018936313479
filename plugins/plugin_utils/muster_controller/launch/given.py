"""What somebody gave to a launch: its environment and its arguments, and what of them is a secret."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from muster.launch.plan import PlanError
from muster.verdict.masking import SECRET_NAME, secret_options
from muster.verdict.redaction import Redaction, secrets_of, too_common

from .environment_file import read_environment

if TYPE_CHECKING:
    from muster.launch.options import LaunchOptions
    from muster.launch.planned import LaunchPlan

ON_NODES = (
    "launch_args: every user of the nodes sees the value of {} in the list of processes. Put it into launch_env_file,"
    " and let the script read it from its environment"
)
TOO_COMMON = "The value of {} is too short or too common to be covered in logs"
NOT_KNOWN = (
    "The value of {} is not given here, so that it is not covered in the logs that are fetched. Give the"
    " launch_env_file that the launch had"
)
UNREADABLE = "Nothing of it is covered in the logs that are fetched. {}"


@dataclass(frozen=True)
class Given:
    """env: the variables, those of launch_env_file before those of launch_env. file_env: those of the file."""

    env: dict[str, str]
    file_env: dict[str, str]
    args: list[str]
    redaction: Redaction

    @classmethod
    def read(cls, options: LaunchOptions, file_env: dict[str, str]) -> Given:
        env = {name: str(value) for name, value in options.env.items()}
        args = options.script_args
        return cls({**env, **file_env}, file_env, args, Redaction(secrets_of(file_env, env, args)))

    @property
    def env_from(self) -> dict[str, str]:
        return {name: "launch_env_file" if name in self.file_env else "launch_env" for name in self.env}

    def warnings(self, plan: LaunchPlan) -> list[str]:
        """What a user should know about the secrets of the launch of this plan."""
        unknown = [
            name
            for name, option in (plan.given or {}).items()
            if name not in self.env and (option == "launch_env_file" or SECRET_NAME.search(name))
        ]
        said = ((ON_NODES, secret_options(self.args)), (TOO_COMMON, too_common(self.env)), (NOT_KNOWN, unknown))
        return [sentence.format(", ".join(dict.fromkeys(names))) for sentence, names in said if names]


def read_given(options: LaunchOptions) -> tuple[Given, list[str]]:
    """What was given, and warnings. Raises PlanError, but not where a launch that runs is attached to or ended."""
    path = options.env_file
    try:
        return Given.read(options, read_environment(path) if path else {}), []
    except PlanError as problem:
        if not options.known:
            raise
        return Given.read(options, {}), [UNREADABLE.format(" ".join(problem.problems))]

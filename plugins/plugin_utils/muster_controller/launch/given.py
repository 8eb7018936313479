"""The environment and arguments that a user gave to a launch, and the secrets among them."""

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
    "launch_args: the value of {} is visible to every user of the nodes in the list of processes. Move the value into"
    " launch_env_file and read it from the environment in the script"
)
TOO_COMMON = "The value of {} is too short or too common to be masked in logs"
NOT_KNOWN = (
    "The value of {} is unknown on this controller, so it is not masked in fetched logs. Set launch_env_file to the"
    " file that the launch used"
)
UNREADABLE = "Its values are not masked in fetched logs. {}"


@dataclass(frozen=True)
class Given:
    """env: all variables, of which launch_env_file overrides those in launch_env. file_env: the variables in the
    file."""

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
        """Return warnings about secrets in the input of the launch."""
        unknown = [
            name
            for name, option in (plan.given or {}).items()
            if name not in self.env and (option == "launch_env_file" or SECRET_NAME.search(name))
        ]
        said = ((ON_NODES, secret_options(self.args)), (TOO_COMMON, too_common(self.env)), (NOT_KNOWN, unknown))
        return [sentence.format(", ".join(dict.fromkeys(names))) for sentence, names in said if names]


def read_given(options: LaunchOptions) -> tuple[Given, list[str]]:
    """Return the user's input, and warnings. Raises PlanError, except when attaching to a launch or stopping it."""
    path = options.env_file
    try:
        return Given.read(options, read_environment(path) if path else {}), []
    except PlanError as problem:
        if not options.known:
            raise
        return Given.read(options, {}), [UNREADABLE.format(" ".join(problem.problems))]

"""The container image of a launch. An image archive is read, and copied to every node before the start."""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.launch import image as judging
from muster.launch import launchers
from muster.launch.plan import PlanError
from muster_controller.nodes.distribution import Distribution, DistributionNode, digest_of, why
from muster_controller.nodes.program import NodeProgram
from muster_node.distribution.manifest import ManifestFile
from muster_node.tools import files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from muster.launch.messages import ImageRequest
    from muster.launch.options import LaunchOptions
    from muster.launch.planned import LaunchPlan, PlannedImage
    from muster.launch.preflight import Prepared
    from muster_controller.nodes.messages import Messages
    from muster_controller.playbook.interruption import Interruption


PROGRAM = NodeProgram("image")
STORE = ".muster-images"  # in the folder of all launches; holds archives until podman has loaded them
MOST_JSON = 4_000_000
LOOK_TIMEOUT = 120.0
TRY_TIMEOUT = 330.0  # includes the check for device files, once per image
LOAD_SECONDS = 1800.0  # for the largest images; podman writes all layers again
SLACK = 60.0


@dataclass(frozen=True)
class Archive:
    """Content for Distribution that consists of one file. id: the id of the image in the archive."""

    path: str
    id: str

    @cached_property
    def files(self) -> tuple[ManifestFile, ...]:
        digest = hashlib.sha256()
        with Path(self.path).open("rb") as archive:
            while chunk := archive.read(files.CHUNK):
                digest.update(chunk)
            return (ManifestFile("image.tar", executable=False, size=archive.tell(), sha256=digest.hexdigest()),)

    def read(self, _file: ManifestFile, begin: int, most: int) -> bytes:
        return files.part(self.path, begin, most)


@dataclass(frozen=True)
class Image:
    """source: the value of launch_image. archive: None if the nodes pull the image by its digest. folders: node folders
    that are mounted into the container at the same paths."""

    source: str
    archive: Archive | None
    folders: tuple[str, ...]

    @property
    def wanted(self) -> str:
        """Return the image reference to query on a node."""
        return self.archive.id if self.archive else self.source

    @property
    def in_plan(self) -> PlannedImage:
        return {"source": self.source, "id": self.archive.id if self.archive else "", "folders": list(self.folders)}


def read_image(options: LaunchOptions) -> Image | None:
    """Read the image options of a launch. Raises PlanError."""
    source, folders = options.image, options.image_folders
    script = "" if options.script_src or options.project else options.script
    problems = judging.problems_of(source, folders, environment=options.environment, script=script)
    if problems:
        raise PlanError(problems)
    if not source:
        return None
    shown = judging.shown(options.chdir, options.data, folders)
    problems = [
        f"Cannot mount {each} in the container: the path {why}." for each in shown if (why := judging.unusable(each))
    ]
    if problems:
        raise PlanError(problems)
    archive = read_archive(source) if judging.is_archive(source) else None
    return Image(source, archive, tuple(shown))


def read_archive(given: str) -> Archive:
    """Raises PlanError."""
    path = str(Path(given).expanduser().resolve())
    try:
        with tarfile.open(path, "r:") as tar:
            members = {member.name: member for member in tar if member.isfile()}

            def content(name: str) -> bytes:
                found = tar.extractfile(members[name])
                return found.read(MOST_JSON) if found else b""

            config = _config_of(content, members)
    except tarfile.TarError as problem:
        raise PlanError([f"launch_image {given} is not an archive written by podman save: {problem}."]) from None
    except OSError as problem:
        raise PlanError([f"launch_image {given}: {problem.strerror}."]) from None
    except (KeyError, ValueError, TypeError, IndexError) as problem:
        raise PlanError([f"launch_image {given} is not an archive of one image: {problem}."]) from None
    return Archive(path, hashlib.sha256(config).hexdigest())


def _config_of(content: Callable[[str], bytes], members: Iterable[str]) -> bytes:
    """Return the configuration of the only image in an archive. The sha256 of the configuration is the image id."""
    if "manifest.json" in members:  # docker-archive, as written by podman and docker
        (image,) = json.loads(content("manifest.json"))
        return content(image["Config"])
    (image,) = json.loads(content("index.json"))["manifests"]  # oci-archive
    listed = json.loads(content(_blob(image["digest"])))
    return content(_blob(listed["config"]["digest"]))


def _blob(digest: str) -> str:
    kind, _, name = digest.partition(":")
    return f"blobs/{kind}/{name}"


class Imaging:
    """Copies the image to every node, and checks that all nodes have the same image and can run it."""

    def __init__(
        self,
        image: Image | None,
        messages: Messages,
        say: Callable[[str], None],
        interruption: Interruption,
    ) -> None:
        self.image = image
        self.messages = messages
        self.say = say
        self.interruption = interruption

    def after(self, prepared: Prepared) -> Prepared:
        """Prepare the image once nothing blocks the launch and all resources that the launch waits for are free."""
        if self.image is None:
            return prepared
        names = prepared.plan.names
        if prepared.whose and prepared.whose.own:
            prepared.findings += judging.own(names, prepared.whose.user)
            return prepared
        ids: dict[str, str] = {}
        for step in (self.engines, self.bring, self.same, self.tried):
            if prepared.refused or self.interruption.came:
                return prepared
            step(self.image, prepared, ids)
        return prepared

    def request(self, plan: LaunchPlan, chdir: str) -> ImageRequest | None:
        """Return the image part of the start request."""
        if self.image is None or plan.image is None:
            return None
        gpus = plan.backend == "nccl"
        return {"id": plan.image["id"], "chdir": chdir, "folders": list(self.image.folders), "gpus": gpus}

    def engines(self, image: Image, prepared: Prepared, ids: dict[str, str]) -> None:
        """Check the container engines. ids: the id of the image on each node, or "" if the image is missing."""
        plan = prepared.plan
        request = {"image": image.wanted, "user": plan.user, "folders": list(image.folders)}
        answers = self.ask("engine", dict.fromkeys(self.names(prepared), request), LOOK_TIMEOUT, prepared)
        for name, seen in answers.items():
            prepared.findings += judging.judge(name, seen, gpus=plan.backend == "nccl")
        ids.update({name: seen["id"] for name, seen in answers.items()})

    def bring(self, image: Image, prepared: Prepared, ids: dict[str, str]) -> None:
        lacking = [name for name, found in ids.items() if not found]
        if not lacking:
            return
        if image.archive:
            request = self.distributed(image.archive, prepared, lacking)
            verb = "load"
        else:
            request, verb = {"image": image.source, "seconds": LOAD_SECONDS}, "pull"
        if prepared.refused or self.interruption.came:
            return
        answers = self.ask(verb, dict.fromkeys(lacking, request), LOAD_SECONDS + SLACK, prepared)
        failures = {name: one["error"] or "not found afterwards" for name, one in answers.items() if not one["id"]}
        prepared.findings += judging.missing(failures)
        ids.update({name: one["id"] for name, one in answers.items()})

    def distributed(self, archive: Archive, prepared: Prepared, lacking: list[str]) -> dict[str, Any]:
        """Copy the archive to every node that needs it."""
        plan = prepared.plan
        store = str(Path(plan.head.run_dir).parent / STORE)
        places = {entry.node: DistributionNode(entry.address, store) for entry in plan.nodes if entry.node in lacking}
        distribution = Distribution(
            places,
            plan.master_port,
            self.messages,
            self.say,
            lambda: self.interruption.came,
            privileged=True,
            what="image",
        )
        try:
            prepared.findings += judging.missing(distribution.bring(archive))
        except OSError as problem:
            prepared.findings += judging.missing(dict.fromkeys(lacking, f"{archive.path}: {problem.strerror}"))
        return {"store": store, "digest": digest_of(archive), "id": archive.id, "seconds": LOAD_SECONDS}

    def same(self, image: Image, prepared: Prepared, ids: dict[str, str]) -> None:
        prepared.findings += judging.differing(ids)
        found = next(iter(ids.values()))
        prepared.plan = replace(prepared.plan, image={**image.in_plan, "id": found})

    def tried(self, image: Image, prepared: Prepared, ids: dict[str, str]) -> None:
        plan = prepared.plan
        needs_torch = plan.launcher == launchers.TORCHRUN.name
        name = f"muster-look-{plan.launch_id}-{os.urandom(4).hex()}"
        requests = {node: {"id": each, "user": plan.user, "name": name} for node, each in ids.items()}
        answers = self.ask("versions", requests, TRY_TIMEOUT, prepared)
        versions = {node: judging.read_versions(said) for node, said in answers.items()}
        for node, seen in versions.items():
            prepared.findings += judging.judge_versions(node, seen, torch=needs_torch)
        if versions and not prepared.refused:
            self.say(judging.sentence(image.source, next(iter(ids.values())), next(iter(versions.values()))))

    def names(self, prepared: Prepared) -> list[str]:
        return prepared.plan.names

    def ask(self, verb: str, requests: dict[str, dict[str, Any]], timeout: float, prepared: Prepared) -> dict[str, Any]:
        """Send requests to nodes and return the responses. If a node does not respond, add a finding."""
        for name, request in requests.items():
            self.messages.ask(name, verb, request, privileged=True, program=PROGRAM)
        answers = self.messages.gather(verb, requests, timeout, lambda _: None, lambda: self.interruption.came)
        silent = [name for name in requests if name not in answers or answers[name].data is None]
        if not self.interruption.came:
            prepared.findings += judging.missing({name: why(answers.get(name), timeout) for name in silent})
        return {name: answer.data for name, answer in answers.items() if answer.data is not None}

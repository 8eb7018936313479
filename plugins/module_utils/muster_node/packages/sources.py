"""Inspect and write a node's mirrors, proxies, certificates and offline folder, and revert the changes if apt fails."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.muster.packages import mirrors
from ansible.module_utils.muster.packages import sources as domain
from ansible.module_utils.muster.packages.entries import STOCK_FILES
from ansible.module_utils.muster.verdict.commands import playbook

from ..tools import files
from ..tools.result import RefusedError, diff, refuse
from ..tools.trust import foreign_writer
from .apt import read_lists, run

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
CLOUD_INIT_SECONDS = 600
FIX = f"To change it, run {playbook('site.yml', tags='baseline', package_sources_mode='manage')}"


def read(paths: Iterable[str | Path]) -> dict[str, str]:
    found = {}
    for path in map(Path, paths):
        if path.is_file():
            found[str(path)] = path.read_text(errors="surrogateescape")
    return found


def write(path: str, content: str) -> None:
    files.replace(path, content.encode("utf-8", "surrogateescape"), mode=0o644, keep=True, parents=True)


def system() -> str:
    """Return the node's system, for example `ubuntu-24.04`."""
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', Path("/etc/os-release").read_text(), re.MULTILINE))
    return f"{release.get('ID', '')}-{release.get('VERSION_ID', '')}"


def proxies_in_force() -> dict[str, str]:
    shown = run("apt-config", "dump", "--format", "%F=%v%n", "Acquire").stdout
    return dict(line.split("=", 1) for line in shown.splitlines() if line.startswith(domain.PROXY_KEYS) and "=" in line)


def offline_trouble(folder: str) -> str:
    """Return the problem with the offline folder, if any. No user except root may have write access, because apt trusts
    the packages in the folder."""
    debs = Path(folder) / "debs"
    if not debs.is_dir():
        return f"folder {debs} does not exist (cluster_offline_dir): docs/mirrors.md describes how to create it"
    indexes = [path for path in (debs / "Packages", debs / "Packages.gz", debs / "Packages.xz") if path.exists()]
    if not indexes:
        return f"{debs} has no package index (Packages): docs/mirrors.md describes how to create it"
    for path in (debs, *indexes):
        who = foreign_writer(str(path))
        if who:
            return (
                f"{path} can be changed by users other than root, but its packages are installed as root ({who}). "
                f"Run: chown -R root: {folder} && chmod -R go-w {folder}"
            )
    return ""


def observe(request: domain.SourcesRequest) -> domain.SourcesState:
    stock = [path + end for path in STOCK_FILES for end in ("", domain.SAVED)]
    own = [domain.PROXY_FILE, domain.OFFLINE_FILE, domain.OFFLINE_SOURCES]
    local = [path for path in Path(domain.CERTIFICATES).glob("muster*.crt") if domain.is_ours(path.name)]
    # A link without its certificate is left over from an interrupted run.
    links = [path.name for path in Path(domain.CERTIFICATE_LINKS).glob("muster*.pem") if domain.is_ours(path.name)]
    keeps_bundle = shutil.which("update-ca-certificates") is not None
    return domain.SourcesState(
        files=read([*stock, *own, *local]),
        links=tuple(sorted(links)),
        bundle=read([BUNDLE]).get(str(BUNDLE), "") if keeps_bundle else None,
        proxies=proxies_in_force() if request.http_proxy or request.https_proxy else {},
        offline=offline_trouble(request.offline) if request.offline else "",
    )


def wait_for_cloud_init() -> bool:
    """Wait for cloud-init, which writes source files on a new machine. Return whether cloud-init is present."""
    if not Path("/run/cloud-init").exists() or shutil.which("cloud-init") is None:
        return False
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(["cloud-init", "status", "--wait"], capture_output=True, check=False, timeout=CLOUD_INIT_SECONDS)
    return True


def trust(plan: domain.SourcesPlan) -> None:
    if not plan.bundle:
        return
    done = run("update-ca-certificates")
    if done.returncode:
        raise RefusedError(f"update-ca-certificates failed: {' '.join(done.stderr.split())}")
    if plan.links:
        # Hash links to the certificate links, which are removed after them.
        gone = {Path(link).name for link in plan.links}
        for entry in Path(domain.CERTIFICATE_LINKS).iterdir():
            if entry.is_symlink() and str(entry.readlink()) in gone:
                entry.unlink()
        for link in plan.links:
            Path(link).unlink(missing_ok=True)


def have_lists_read(request: domain.SourcesRequest) -> None:
    """Update only the lists of the distribution, because third-party sources are sometimes broken for a long time."""
    paths = [domain.OFFLINE_SOURCES] if request.offline else [path for path in STOCK_FILES if Path(path).is_file()]
    for path in paths:
        wrong = read_lists(path, complaints)
        if wrong:
            said = " ".join(line[3:].strip() for line in wrong[:2])
            raise RefusedError(
                f"apt could not read the lists of {path} with these settings, so the previous settings were restored "
                f"(apt: {said}). Check cluster_mirror, the proxies and cluster_extra_ca: docs/mirrors.md"
            )


def complaints(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return apt's errors. apt reports failed downloads as warnings with exit status 0."""
    return [line for line in done.stderr.splitlines() if line.startswith(("E:", "W: Failed", "Err:"))]


def apply(plan: domain.SourcesPlan, request: domain.SourcesRequest, seen: domain.SourcesState) -> None:
    try:
        for path, content in plan.write.items():
            write(path, content)
        certificates = [path for path in plan.remove if path.startswith(domain.CERTIFICATES)]
        for path in certificates:
            Path(path).unlink(missing_ok=True)
        trust(plan)
        # Remove the copies of source files last, because the next run needs them after an interruption.
        for path in plan.remove:
            if path not in certificates and not path.endswith(domain.SAVED):
                Path(path).unlink(missing_ok=True)
        if plan.lists and (
            request.archive or request.security or request.http_proxy or request.https_proxy or request.offline
        ):
            have_lists_read(request)
    except BaseException:
        for path in (*plan.write, *plan.remove):
            if path in seen.files:
                write(path, seen.files[path])
            else:
                Path(path).unlink(missing_ok=True)
        if plan.bundle:
            run("update-ca-certificates")
        raise
    for path in plan.remove:
        Path(path).unlink(missing_ok=True)


def diff_of(plan: domain.SourcesPlan, seen: domain.SourcesState) -> list[dict[str, str]]:
    after = {**dict.fromkeys(plan.remove, ""), **plan.write}
    return [
        diff(path, seen.files.get(path, ""), text) for path, text in after.items() if not path.endswith(domain.SAVED)
    ]


def request_of(given: Mapping[str, Any], distribution: str, places: mirrors.Sources) -> domain.SourcesRequest:
    return domain.SourcesRequest(
        distribution=distribution,
        archive=places.archive.uri,
        security=places.security.uri,
        http_proxy=given["http_proxy"],
        https_proxy=given["https_proxy"],
        no_proxy=tuple(given["no_proxy"]),
        certificates=tuple(given["certificates"]),
        offline=given["offline_dir"].rstrip("/"),
    )


def set_up(given: Mapping[str, Any], *, check: bool) -> dict[str, Any]:
    """Apply the requested package sources to the node. given: options of library/package_sources.py."""
    name = system()
    asked = mirrors.MirrorsRequest(given["mirror"], given["mirror_urls"], given["offline_dir"])
    places = mirrors.resolve(given["table"], asked, name, os.uname().machine)
    request = request_of(given, name.partition("-")[0], places)
    seen = observe(request)
    plan = domain.make_plan(request, seen)
    verifies = given["mode"] == "verify"
    if plan.needed and not check and not verifies and wait_for_cloud_init():
        seen = observe(request)
        plan = domain.make_plan(request, seen)
    refuse(plan.problems, plan.differences if verifies else (), FIX)
    if plan.needed and not check:
        apply(plan, request, seen)
    return {
        "changed": plan.needed,
        "differences": plan.differences,
        "notes": list(places.notes),
        "left_out": plan.left_out,
        "diff": diff_of(plan, seen),
    }

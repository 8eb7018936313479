"""What a PyTorch environment should be, and what to do about the one that is there.

A *request* is what the inventory asks for, an *observed* state is what the node has. `plan` compares the two,
`judge` says whether the PyTorch that was looked at is the one that was asked for, and `explain_pip` turns
pip's output into one sentence and its fix.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..verdict.check import Check
from ..verdict.commands import playbook
from ..verdict.finding import evidence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..verdict.finding import Finding

PYTORCH_WHEELS = "https://download.pytorch.org/whl"
INBORN = ("pip", "setuptools", "wheel", "pkg-resources")

_PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(\[[^\]]*\])?\s*==\s*([A-Za-z0-9.+!_-]+)\s*(?:;\s*(.+))?")
_MARKER = re.compile(r"python_version\s*(<=|<|==|!=|>=|>)\s*['\"](\d+)\.(\d+)['\"]")
_TORCH_VERSION = re.compile(r"\d+\.\d+\.\d+[a-z0-9.]*")
_VARIANT = re.compile(r"cpu|cuda|cu\d{2,4}")
_ENVIRONMENT = re.compile(r"[0-9][a-z0-9.]*-c[a-z0-9]+-py\d+\.\d+-[0-9a-f]{8}(\.\d+)?")


class RequestError(ValueError):
    """The inventory asks for something that cannot be; the text says what to write instead."""


@dataclass(frozen=True)
class Requirement:
    """One package at one version. One without a local part (`+cpu`) is met by any local build, as in pip."""

    name: str
    version: str
    extras: str = ""

    def __str__(self) -> str:
        return f"{self.name}{self.extras}=={self.version}"

    def met_by(self, packages: Mapping[str, str]) -> bool:
        installed = packages.get(self.name)
        return installed is not None and same_version(installed, self.version)


@dataclass(frozen=True)
class Request:
    """The environment that is asked for. variant: cpu, cuda (what the index offers by default) or cuNNN.

    locked: the version of every package that the lock gives it; empty where nothing is locked yet.
    """

    variant: str
    gpus: int
    python: str
    requirements: tuple[Requirement, ...]
    locked: Mapping[str, str] = field(default_factory=dict)

    @property
    def torch(self) -> Requirement:
        return self.requirements[0]

    @property
    def name(self) -> str:
        """The folder's name. It follows from the content: the same request has the same name on every node."""
        content = "\n".join([self.python, *sorted(map(str, self.requirements))])
        digest = hashlib.sha256(content.encode()).hexdigest()[:8]
        return f"{public_version(self.torch.version)}-{self.variant}-py{self.python}-{digest}"


@dataclass(frozen=True)
class Environment:
    """A look at one environment. faults: what is broken in it, whatever was asked for."""

    python: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[str, ...] = ()


@dataclass(frozen=True)
class Observed:
    """What lies under the root: the environments by name, newest first (None: there, and not looked at).

    current: name of the environment that the link leads to, empty when it leads elsewhere. link: its text,
    empty when there is none.
    """

    link: str = ""
    current: str = ""
    environments: Mapping[str, Environment | None] = field(default_factory=dict)
    in_use: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Plan:
    """In the order of the work: discard broken leftovers, build, switch, retire what is no longer kept."""

    target: str
    reasons: tuple[str, ...] = ()
    discard: tuple[str, ...] = ()
    build: bool = False
    switch: bool = False
    retire: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        return self.build or self.switch or bool(self.discard or self.retire)


def canonical_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def public_version(version: str) -> str:
    return version.partition("+")[0]


def same_version(installed: str, wanted: str) -> bool:
    def release(version: str) -> str:
        return re.sub(r"(\.0+)+(?=$|\+)", "", version.lower())

    return release(installed if "+" in wanted else public_version(installed)) == release(wanted)


def is_environment(name: str) -> bool:
    """Whether a folder's name is one that a request makes; anything else under the root is not ours."""
    return _ENVIRONMENT.fullmatch(name) is not None


def parse_requirement(text: str, python: str) -> Requirement | None:
    """The exact pin in `text`, or None when its marker leaves out this Python."""
    pin = _PIN.fullmatch(text.strip())
    if pin is None:
        raise RequestError(f"pytorch_packages: '{text}' is not an exact pin. Write it as name==version")
    name, extras, version, marker = pin.groups()
    if marker is not None and not _holds(marker, python):
        return None
    return Requirement(canonical_name(name), version.lower(), (extras or "").replace(" ", ""))


def _holds(marker: str, python: str) -> bool:
    parts = [_MARKER.fullmatch(part.strip()) for part in re.split(r"\s+and\s+", marker.strip())]
    if None in parts:
        raise RequestError(
            f"pytorch_packages: the marker '{marker}' is not understood. "
            "Compare python_version with a version, and join comparisons with 'and'"
        )
    here = tuple(map(int, python.split(".")))
    answers = []
    for part in filter(None, parts):
        there = (int(part[2]), int(part[3]))
        answers.append(
            {
                "<": here < there,
                "<=": here <= there,
                "==": here == there,
                "!=": here != there,
                ">=": here >= there,
                ">": here > there,
            }[part[1]]
        )
    return all(answers)


def make_request(*, torch_version: str, variant: str, gpus: int, packages: Sequence[str], python: str) -> Request:
    if not _TORCH_VERSION.fullmatch(torch_version):
        raise RequestError(
            f"cluster_torch_version: '{torch_version}' is not an exact version. Write it as 2.13.0; "
            "the build after a '+' goes into pytorch_variant"
        )
    if variant == "auto":
        variant = "cuda" if gpus else "cpu"
    if not _VARIANT.fullmatch(variant):
        raise RequestError(f"pytorch_variant: '{variant}' is none of auto, cpu, cuda, or cu126 and the like")
    if gpus and variant == "cpu":
        raise RequestError(
            f"pytorch_variant is cpu, and cluster_gpus is {gpus}: the CPU build cannot use a GPU. "
            "Set pytorch_variant to auto, or cluster_gpus to 0"
        )
    # Without its local part pip takes the default index's default build: gigabytes of CUDA on a CPU node.
    local = "" if variant == "cuda" else f"+{variant}"
    pins = [Requirement("torch", torch_version + local)]
    for text in packages:
        requirement = parse_requirement(text, python)
        if requirement is None:
            continue
        if requirement.name in {pin.name for pin in pins}:
            raise RequestError(
                f"pytorch_packages: {requirement.name} is named twice"
                + (" (its version is cluster_torch_version)" if requirement.name == "torch" else "")
            )
        pins.append(requirement)
    return Request(variant, gpus, python, tuple(pins))


def pip_sources(
    variant: str,
    *,
    index_url: str,
    extra_index_urls: Sequence[str],
    find_links: Sequence[str],
    offline_dir: str,
    mirror: Mapping[str, str] | None = None,
) -> list[list[str]]:
    """pip's arguments for where to look; each list is tried when the one before it had no such torch.

    With `auto` PyTorch's own index comes second, because a site's mirror or folder may well have the build.
    It is searched *beside* pip's index, because only that one has every other package. This is safe for
    torch: it is pinned with its local part, which no public index offers but PyTorch's.

    mirror: where `auto` looks before it asks PyTorch's own (cluster_mirror): pip, an index; torch, an index of that
    build, or torch_links, a page of its wheels. only: PyTorch's own is not asked besides; empty when it is.
    """
    mirror = mirror or {}
    for url in (index_url, *extra_index_urls, *find_links):
        if urlsplit(url).password is not None:
            raise RequestError(
                f"the address of {urlsplit(url).hostname} carries a password, which would show in logs. "
                "Put it into .netrc or pip.conf of root on the nodes"
            )
    links = [argument for link in find_links for argument in ("--find-links", link)]
    if offline_dir:
        return [["--no-index", "--find-links", offline_dir, *links]]
    extra = [argument for index in extra_index_urls for argument in ("--extra-index-url", index)]
    if index_url not in ("", "auto"):
        return [["--index-url", index_url, *extra, *links]]
    own = [*extra, *links]
    if index_url != "auto":
        return [own]
    base = ["--index-url", mirror["pip"]] if mirror.get("pip") else []
    # pip passes over a mirror without TLS unless it is told that somebody means it.
    places = [urlsplit(mirror.get(place, "")) for place in ("pip", "torch", "torch_links")]
    for host in sorted({place.netloc for place in places if place.scheme == "http"}):
        base += ["--trusted-host", host]
    if variant == "cuda":
        return [[*base, *own]]
    beside = [
        argument
        for option, place in (("--extra-index-url", "torch"), ("--find-links", "torch_links"))
        if mirror.get(place)
        for argument in (option, mirror[place].replace("{variant}", variant))
    ]
    first = [*base, *beside, *own]
    if mirror.get("only"):
        return [first]
    return [first, [*base, "--extra-index-url", f"{PYTORCH_WHEELS}/{variant}", *own]]


def torch_not_found(output: str) -> bool:
    return "No matching distribution found for torch==" in output


def shortcomings(request: Request, environment: Environment) -> list[str]:
    """Why the environment is not what was asked for; empty when it is."""
    found = list(environment.faults)
    if environment.python and environment.python != request.python:
        found.append(f"it was made for Python {environment.python}, and the node's is {request.python}")
    found.extend(
        f"{requirement} is wanted, and it has {environment.packages.get(requirement.name, 'none')}"
        for requirement in request.requirements
        if not requirement.met_by(environment.packages)
    )
    return found or unlocked(request, environment.packages)


def unlocked(request: Request, packages: Mapping[str, str]) -> list[str]:
    """In what the packages are not those of the lock. What a virtual environment is born with may stay."""
    if not request.locked:
        return []
    found = [
        f"the lock has {name} {version}, and it has {packages.get(name, 'none')}"
        for name, version in request.locked.items()
        if packages.get(name) != version
    ]
    return found + [
        f"it has {name} {version}, which is not in the lock (pytorch_packages puts it there)"
        for name, version in packages.items()
        if name not in request.locked and name not in INBORN
    ]


def plan(request: Request, observed: Observed, keep: int) -> Plan:
    environments = observed.environments

    def broken(name: str) -> bool:
        looked = environments.get(name)
        return looked is not None and bool(looked.faults)

    candidates = [name for name in environments if name == request.name or name.startswith(f"{request.name}.")]
    lacks = {name: shortcomings(request, environments[name] or Environment()) for name in candidates}
    good = [name for name in candidates if not lacks[name]]
    # What `current` leads to is left alone until the switch: somebody may start from it at any moment.
    free = [name for name in environments if name not in observed.in_use and name != observed.current]

    reasons: list[str] = []
    discard: list[str] = []
    if observed.current in good:
        target = observed.current
    else:
        if not observed.link:
            reasons.append("there is no environment yet")
        elif observed.current in lacks:
            reasons.extend(lacks[observed.current])
        else:
            reasons.append(f"current leads to {observed.link}")
        discard = [name for name in candidates if name in free and name not in good]
        taken = set(environments) - set(discard)
        target = good[0] if good else _first_free(request.name, taken)
        reasons.extend(f"{name} is unfinished or broken: {lacks[name][0]}" for name in discard)

    others = [name for name in environments if name != target and name not in discard]
    # What was in use until now is the one to go back to.
    others.sort(key=lambda name: name != observed.current)
    failed = [name for name in others if broken(name) or (name in lacks and name not in good)]
    kept = [name for name in others if name not in failed][: max(keep, 0)]
    retire = [name for name in others if name not in kept and name not in observed.in_use]
    reasons.extend(f"{name} is not kept any longer" for name in retire)
    return Plan(
        target=target,
        reasons=tuple(reasons),
        discard=tuple(discard),
        build=target not in good,
        switch=observed.current != target,
        retire=tuple(retire),
    )


def _first_free(name: str, taken: set[str]) -> str:
    number = 1
    free = name
    while free in taken:
        number += 1
        free = f"{name}.{number}"
    return free


def describe(request: Request, name: str, packages: Mapping[str, str], environments: Sequence[str]) -> str:
    """One side of the diff: what is live, the pinned or locked packages in it, and which environments lie there."""
    lines = [f"current: {name or 'none'}"]
    names = dict.fromkeys((*(pin.name for pin in request.requirements), *request.locked))
    lines += [f"{package}: {packages.get(package, 'none')}" for package in names]
    lines += ["environments:", *(f"  - {environment}" for environment in sorted(environments))]
    return "\n".join(lines) + "\n"


def variant_of(cuda: str | None) -> str:
    """The name of a build: cpu, or cu130 for CUDA 13.0."""
    return "cu" + "".join(cuda.split(".")[:2]) if cuda else "cpu"


IMPORTED = Check(
    "torch.import",
    reads="the environment that cluster_torchrun belongs to",
    fires="PyTorch cannot be imported there (fail)",
    fix=f"Let the role pytorch build it: {playbook('site.yml', tags='pytorch')}",
)
VERSION = Check(
    "torch.version",
    reads="the version that torch tells",
    fires="it is not cluster_torch_version (fail)",
    fix="Let the role pytorch build it",
)
VARIANT = Check(
    "torch.variant",
    reads="the CUDA that torch is built for",
    fires="it is not pytorch_variant (fail)",
    fix="Look which builds the index offers, and set pytorch_variant",
)
PACKAGES = Check(
    "torch.packages",
    reads="the packages in the environment",
    fires="one of pytorch_packages is missing, or has another version (fail)",
    fix="Let the role pytorch build it",
)
BACKENDS = Check(
    "torch.backends",
    reads="torch.distributed",
    fires="gloo is missing, or nccl on a node with GPUs (fail)",
    fix="Choose another build with pytorch_variant",
)
DEVICES = Check(
    "torch.devices",
    reads="torch.cuda.device_count()",
    fires="torch sees fewer GPUs than cluster_gpus (warn)",
    fix="Look at the driver with nvidia-smi",
)
NCCL = Check(
    "torch.nccl",
    reads="the NCCL that is loaded with torch",
    fires="its version cannot be told (unknown)",
    fix="Let the role pytorch build the environment",
)
REBUILD = "Let the role build it with pytorch_mode=manage, or put it right there yourself"
MISFIT = "Its packages do not fit this node, or each other: see the trace among the findings"


def judge(node: str, request: Request, look: Mapping[str, Any]) -> list[Finding]:
    """Findings about one look; see muster_node.looks.torch for what it holds."""
    if look.get("error"):
        trace = look.get("trace", "")
        return [
            IMPORTED.fail(
                node,
                f"PyTorch cannot be used: {look['error']}",
                look.get("fix") or (MISFIT if trace else REBUILD),
                expected=f"{request.torch} can be imported",
                evidence=evidence("import torch", trace),
            )
        ]
    found = [judge_version(node, request, look), judge_variant(node, request, look)]
    found += judge_packages(node, request, look)
    if not look["imported"]:
        why = "nothing changed, so torch was not imported; pytorch_full_look=true does it"
        return [*found, BACKENDS.not_looked(node, why)]
    return [*found, *judge_imported(node, request, look["torch"])]


def judge_version(node: str, request: Request, look: Mapping[str, Any]) -> Finding:
    version, wanted = look["torch"]["version"], request.torch.version
    more = {"observed": version, "expected": wanted}
    if same_version(public_version(version), public_version(wanted)):
        return VERSION.passed(node, f"torch {version}", **more)
    return VERSION.fail(node, f"torch is {version}, and {wanted} is wanted", REBUILD, **more)


def judge_variant(node: str, request: Request, look: Mapping[str, Any]) -> Finding:
    variant = variant_of(look["torch"]["cuda"])
    more = {"observed": variant, "expected": request.variant}
    if variant == request.variant or (request.variant == "cuda" and variant != "cpu"):
        return VARIANT.passed(node, f"the build is for {variant}", **more)
    return VARIANT.fail(
        node,
        f"the build is for {variant}, and {request.variant} is wanted",
        "Look which builds the index or the folder offers, and set pytorch_variant",
        **more,
    )


def judge_packages(node: str, request: Request, look: Mapping[str, Any]) -> list[Finding]:
    unmet = ", ".join(str(pin) for pin in request.requirements[1:] if not pin.met_by(look["packages"]))
    have = ", ".join(f"{pin.name} {look['packages'].get(pin.name, 'none')}" for pin in request.requirements[1:])
    if unmet:
        return [PACKAGES.fail(node, f"{unmet} is wanted, and it has {have}", REBUILD, observed=have, expected=unmet)]
    return [PACKAGES.passed(node, have, observed=have)] if have else []


def judge_imported(node: str, request: Request, torch: Mapping[str, Any]) -> Iterator[Finding]:
    """What only shows when torch is imported."""
    needed = {"gloo", "nccl"} if request.gpus else {"gloo"}
    have = ", ".join(torch["backends"])
    more = {"observed": have, "expected": ", ".join(sorted(needed))}
    missing = ", ".join(sorted(needed - set(torch["backends"])))
    if missing:
        yield BACKENDS.fail(node, f"this build has no {missing}", **more)
    else:
        yield BACKENDS.passed(node, f"backends {have}", **more)
    if request.gpus:
        seen = torch["device_count"]
        said = f"torch sees {seen} of {request.gpus} GPUs"
        more = {"observed": str(seen), "expected": str(request.gpus)}
        if seen >= request.gpus:
            yield DEVICES.passed(node, said, **more)
        else:
            yield DEVICES.warn(node, said, "Look at the driver", "nvidia-smi", **more)
    if "nccl" in torch["backends"]:
        nccl = torch["nccl"]
        said = f"NCCL {nccl['version'] or 'of unknown version'} from {nccl['file'] or 'inside torch'}"
        if nccl["version"]:
            yield NCCL.passed(node, said, observed=nccl["version"])
        else:
            yield NCCL.unknown(node, said, "")


def explain_pip(output: str, request: Request) -> tuple[str, str]:
    """What went wrong and how to fix it, each one sentence without its full stop."""
    if request.locked and "DO NOT MATCH THE HASHES" in output:
        return "a wheel that was found is another file than the one in the lock", _RESOLVE_ANEW
    for pattern, what, fix in _FAILURES:
        said = re.search(pattern, output)
        if said:
            return what.format(*said.groups()), fix
    nothing = re.search(r"No matching distribution found for (\S+)", output)
    if nothing is None:
        errors = [line for line in output.splitlines() if line.startswith("ERROR: ")]
        words = (errors or output.strip().splitlines() or ["it said nothing"])[-1]
        return f"pip failed: {words.removeprefix('ERROR: ')}", "Everything it said is in pip_output of the result"

    requirement = nothing[1]
    what = f"pip finds no {requirement}"
    versions = re.search(r"\(from versions: (.*)\)", output)
    offered = versions[1].split(", ") if versions and versions[1] != "none" else []
    if offered:
        what += f", and is offered {'..., ' if len(offered) > 4 else ''}{', '.join(offered[-4:])}"
    # pip goes on without an index that it cannot reach, and then misses what that one has.
    for pattern, trouble, fix in _UNREACHABLE:
        if re.search(pattern, output):
            return f"{what}; {trouble}", fix
    return what, _mend_missing(requirement, request, output)


_FAILURES = (
    (
        r"No space left on device",
        "the disk is full",
        "Free some space: a CPU environment takes about 1 GB, one with CUDA about 8 GB",
    ),
    (
        r"ERROR: Cannot install (.+) because these package versions have conflicting dependencies",
        "{0} contradict each other",
        "Change pytorch_packages or cluster_torch_version; pip_output of the result says who wants what",
    ),
    (
        r"DO NOT MATCH THE HASHES",
        "a download was not what its index promised",
        "Run again; if it stays, the mirror or pip's cache is damaged",
    ),
)
_RESOLVE_ANEW = (
    "Let the node fetch it from a peer (ssh_mesh_mode), look elsewhere (pytorch_extra_index_urls, pytorch_find_links),"
    " or take the environment out of pytorch_lock, and it is resolved anew"
)
_OTHER_INDEX = (
    "Give the node a way there, or set pytorch_index_url, pytorch_find_links or pytorch_offline_dir to another place"
)
_UNREACHABLE = (
    (
        r"CERTIFICATE_VERIFY_FAILED|problem confirming the ssl certificate",
        "the certificate of a package index is not trusted",
        "If a proxy inspects TLS, set pytorch_extra_ca to its certificates on the node",
    ),
    (
        r"\b40[13] (?:Client Error|Unauthorized|Forbidden)",
        "a package index refuses access",
        "Put the credentials into .netrc or pip.conf of root on the node",
    ),
    (
        r"Temporary failure in name resolution|Name or service not known|No address associated",
        "the name of a package index is not known",
        _OTHER_INDEX,
    ),
    (
        r"new connection|Connection refused|unreachable|timed out|ProxyError|Max retries",
        "a package index cannot be reached",
        _OTHER_INDEX,
    ),
)


def _mend_missing(requirement: str, request: Request, output: str) -> str:
    name, _, version = requirement.partition("==")
    variable = "cluster_torch_version" if name == "torch" else "pytorch_packages"
    other_python = re.search(rf" {re.escape(version)} Requires-Python ([^\s;]+)", output)
    if version and other_python:
        needs = f"It needs Python {other_python[1]}, and the node's is {request.python}"
        return f"{needs}: change {variable} or pytorch_python"
    if canonical_name(name) in request.locked:
        return _RESOLVE_ANEW
    if name != "torch":
        return f"Correct {variable}, or say where else to look: pytorch_extra_index_urls, pytorch_find_links"
    place = "pytorch_index_url, pytorch_find_links or pytorch_offline_dir"
    return f"Choose another {variable}, or set {place} to a place that has this build for Python {request.python}"

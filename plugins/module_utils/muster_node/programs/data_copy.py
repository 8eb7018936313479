"""Copies a data folder: the part on one node (plugins/action/data_copy.py). The program distribution transfers the
content.

Run by NodeProgram (plugin_utils) as root, with a verb as argument and a JSON payload on standard input.
    measure     return the size of the source folder
    list        return the files of the source folder
    look        compare the target folder with the list
    additional  return files in the target folder that are not in the list
    stage       put files into the store that other nodes might need
    place       move received files to their final names
    finish      create links, and remove the store
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from ..distribution import manifest, store
from ..distribution.manifest import ManifestFile
from ..shared_data import copying, listing
from ..shared_data.copying import Receiving, refuse
from ..shared_data.remembered import Remembered
from ..tools import files
from ..tools.disk import disk_facts
from ..tools.program import answer
from ..tools.transfer import decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Json = dict[str, Any]


def main() -> None:
    verbs = (measure, list_, look, additional, stage, place, finish)
    answer({verb.__name__.rstrip("_"): told(verb) for verb in verbs})


def told(verb: Callable[[Json], Json]) -> Callable[[Json], Json]:
    """Wrap a verb to add {error} to its result: an error, or an empty string."""

    def tried(request: Json) -> Json:
        try:
            return {**verb(request), "error": ""}
        except OSError as problem:
            return {"error": f"{problem.filename or request['folder']} {problem.strerror or problem}"}
        except ValueError as problem:
            return {"error": f"{type(problem).__name__}: {problem}"}

    return tried


def measure(request: Json) -> Json:
    """Measure the source folder. request: {folder}; return {files, bytes, problems, more: number of further
    problems}."""
    with copying.opened(request["folder"]) as (folder, owner):
        found = listing.walk(folder, owner)
        size = sum(size for *_, size in found.files)
        return {"files": len(found.files), "bytes": size, "problems": found.problems, "more": found.more}


def list_(request: Json) -> Json:
    """List the source folder. request: {folder, kept}; return {listed: packed [[[path, executable, size, sha256]],
    [[path, target]]]}."""
    memory = Remembered(request["kept"], request["folder"])
    with copying.opened(request["folder"]) as (folder, owner):
        found = listing.walk(folder, owner)
        listed = listing.read(folder, found, memory, owner)
    memory.save()
    return {"listed": encode([listed, found.links])}


def look(request: Json) -> Json:
    """Compare the target folder with the list. request: {folder, kept, listed, again, remember}; return {missing,
    changed, links: positions in the list, blocked, left, room, inodes}."""
    wanted, links = _wanted(request)
    try:
        refuse(request["folder"])
    except files.UnsafePathError as problem:
        why = f"{request['folder']} {problem.strerror}; choose one whose parent directory only root can write to"
        return {"missing": [], "changed": [], "links": [], "blocked": [why], "room": 0, "inodes": None}
    free = {"room": store.room_at(request["folder"]), "inodes": disk_facts(request["folder"])["inodes_free"]}
    memory = Remembered(request["kept"], request["folder"])
    if not os.path.lexists(request["folder"]):
        every = [*range(len(wanted))]
        return {"missing": every, "changed": [], "links": [*range(len(links))], "blocked": [], **free}
    with files.folder(request["folder"], links=True) as there:
        here = Receiving(there, memory)
        said = {**here.look(wanted, again=request["again"]), "links": here.wrong_links(links)}
        said["left"] = os.path.lexists(f"{request['folder']}/{listing.STORE}")
    said["blocked"] = [f"{request['folder']}/{one}; move it away" for one in said["blocked"]]
    if request["remember"]:
        memory.save()
    return {**said, **free}


def additional(request: Json) -> Json:
    """Find files in the target folder that are not listed. request: {folder, kept, paths: packed}; return {names,
    more}."""
    with files.folder(request["folder"], links=True) as there:
        known = {str(path) for path in decode(request["paths"])}
        return Receiving(there, Remembered(request["kept"], request["folder"])).additional(known)


def stage(request: Json) -> Json:
    """Put files into the store for other nodes. request: {folder, kept, store, listed, source: source folder on this
    node, or an empty string}."""
    wanted, _ = _wanted(request)
    with store.opened(request["store"]) as shelf:
        if request["source"]:
            copying.stage(request["source"], shelf, wanted)
        else:
            with _here(request) as here:
                here.stage(shelf, wanted)
    return {}


def place(request: Json) -> Json:
    """Move received files to their final names. request: {folder, kept, store, listed: expected files, lacking:
    positions in the list, digest: sha256 of the manifest}."""
    wanted, _ = _wanted(request)
    with store.opened(request["store"]) as shelf:
        if request["folder"]:
            with _here(request) as here:
                try:
                    here.place(shelf, [wanted[at] for at in request["lacking"]])
                finally:
                    here.memory.save()
                here.forget(shelf, wanted)
                here.memory.save()
        else:
            for file in wanted:
                files.remove(file.sha256, within=shelf.content)
        files.remove(f"manifests/{request['digest']}", within=shelf.folder)
    return {}


def finish(request: Json) -> Json:
    """Create missing links and remove the store. request: {folder, kept, store, listed: links to create}."""
    _, links = _wanted(request)
    if links:
        with store.opened(request["store"]), _here(request) as here:
            here.link(links)
    above, _, name = request["store"].rpartition("/")
    with suppress(FileNotFoundError), files.folder(above, links=True, owner=os.geteuid()) as beside:
        with files.folder(name, within=beside, owner=os.geteuid()) as shelf:
            for folder in store.FOLDERS:
                for each in files.names(folder, within=shelf):
                    files.remove(f"{folder}/{each}", within=shelf)
                os.rmdir(folder, dir_fd=shelf)
        os.rmdir(name, dir_fd=beside)
    return {}


@contextmanager
def _here(request: Json) -> Iterator[Receiving]:
    refuse(request["folder"])
    with files.folder(request["folder"], links=True, owner=os.geteuid()) as there:
        yield Receiving(there, Remembered(request["kept"], request["folder"]))


def _wanted(request: Json) -> tuple[list[ManifestFile], list[tuple[str, str]]]:
    listed, links = decode(request["listed"])
    found = manifest.parse(manifest.render(ManifestFile(*each) for each in listed))
    if [file.path for file in found] != [each[0] for each in listed]:
        raise ValueError("the list is not sorted")
    return found, [(str(path), str(target)) for path, target in links]


if __name__ == "__main__":
    main()

"""Common parts of all node programs: verbs, and the loader for the text with the imported tools (created by pack.py).

Every such text begins with this file, and the program imports this file as a tool.
"""

from __future__ import annotations

import json
import sys
import zlib
from importlib import import_module
from importlib.machinery import ModuleSpec, SourceFileLoader
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

HERE = "muster_node.tools.program"
# Program and payload are sent on standard input, one after the other. The payload may contain secrets and must not be
# in an argument list, which every user of the node can read.
BOOTSTRAP = "import sys, zlib; i = sys.stdin.buffer; exec(zlib.decompress(i.read(int(i.readline()))))"


def answer(verbs: Mapping[str, Callable[[Any], Any]]) -> None:
    """Run the verb given as argument with the JSON on standard input, and print the result as one line of JSON."""
    done = verbs[sys.argv[1]](json.loads(sys.stdin.buffer.read()))
    sys.stdout.write("\n" + json.dumps(done) + "\n")
    sys.stdout.flush()


def answer_in(text: str) -> dict[str, Any] | None:
    """Return the last JSON object in the output. Login scripts, libraries and torchrun can print other lines."""
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            try:
                found = json.loads(line)
            except ValueError:
                continue  # other output that begins with a brace
            if isinstance(found, dict):
                return found
    return None


def framed(text: str) -> bytes:
    """Return a program in the format that BOOTSTRAP reads. The caller appends the payload."""
    packed = zlib.compress(text.encode(), 9)
    return b"%d\n%s" % (len(packed), packed)


def own_text() -> str:
    """Return the text of the running program, for a copy on the node. Raises LookupError if the program runs from
    files."""
    for each in sys.meta_path:
        if hasattr(each, "program_text"):
            return str(each.program_text)
    raise LookupError("the program was not started from a packed text (see NodeProgram)")


class TextLoader(SourceFileLoader):
    """Loads one module from a text in memory."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(name, name.replace(".", "/") + ".py")
        self.text = text

    def get_data(self, _path: str) -> bytes:
        return self.text.encode()

    def path_stats(self, path: str) -> Mapping[str, Any]:
        raise FileNotFoundError(path)  # prevents caching


class Finder:
    """Finds the modules in one text. sources: {muster_node.programs.NAME: source, ...}."""

    def __init__(self, name: str, sources: Mapping[str, str]) -> None:
        self.sources = sources
        self.program_text = text_of(name, sources)

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        if name in self.sources:
            return ModuleSpec(name, TextLoader(name, self.sources[name]), origin=name)
        is_package = any(each.startswith(f"{name}.") for each in self.sources)
        return ModuleSpec(name, TextLoader(name, ""), origin=name, is_package=True) if is_package else None


def text_of(name: str, sources: Mapping[str, str]) -> str:
    """Return one text with all sources. name: module with the program's main function."""
    parts = [sources[HERE], f"run({name!r}, {{"]
    for module, source in sources.items():
        parts += [f"{module!r}: (", *map(repr, source.splitlines(keepends=True)), "),"]
    return "\n".join([*parts, "})\n"])


def run(name: str, sources: Mapping[str, str]) -> None:
    sys.meta_path.insert(0, Finder(name, sources))
    import_module(name).main()

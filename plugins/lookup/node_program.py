"""A program of muster_node as one file for nodes, with all modules that it imports."""

from __future__ import annotations

import base64
import textwrap
import zlib
from functools import cache
from typing import Any

from ansible.plugins.lookup import LookupBase

from muster_node.tools.pack import pack

DOCUMENTATION = r"""
name: node_program
short_description: Return a node program as one file
description:
  - Returns the text of a program that runs on nodes with any Python 3.10 or newer, without other files.
options:
  _terms:
    description: Names of modules in C(muster_node), such as C(watch.node_check).
    required: true
author:
  - The Muster authors
"""
FILE = """\
#!/usr/bin/python3 -I
# Written by Muster; do not edit. The compressed source of {name} and the modules that it imports.
# To read it, replace exec with print.
import base64, zlib
exec(zlib.decompress(base64.b85decode(\"\"\"
{body}
\"\"\".replace("\\n", ""))).decode())
"""
WIDTH = 2000


class LookupModule(LookupBase):
    """Return the text of each program."""

    def run(self, terms: list[str], _variables: dict[str, Any] | None = None, **_: Any) -> list[str]:
        return [program_file(str(term)) for term in terms]


@cache
def program_file(name: str) -> str:
    packed = base64.b85encode(zlib.compress(pack(f"muster_node.{name}").encode(), 9)).decode()
    return FILE.format(name=name, body="\n".join(textwrap.wrap(packed, WIDTH)))

"""Listen on ports on all IPv4 and IPv6 addresses until stopped: listen.py PORT or PORT/udp...

NAME: name of the process, to act as a stub of another program.
"""

from __future__ import annotations

import os
import selectors
import socket
import sys
from pathlib import Path


def main() -> None:
    if name := os.environ.get("NAME"):
        Path("/proc/self/comm").write_text(name)
    quiet = []
    with selectors.DefaultSelector() as selector:
        for word in sys.argv[1:]:
            port, _, proto = word.partition("/")
            if proto == "udp":
                quiet.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                quiet[-1].bind(("", int(port)))
                continue
            listener = socket.create_server(("::", int(port)), family=socket.AF_INET6, dualstack_ipv6=True)
            selector.register(listener, selectors.EVENT_READ, listener)
        while True:
            for key, _ in selector.select():
                key.data.accept()[0].close()


if __name__ == "__main__":
    main()

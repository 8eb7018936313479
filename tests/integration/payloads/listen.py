"""Listen on TCP ports on all IPv4 and IPv6 addresses until stopped: listen.py PORT..."""

from __future__ import annotations

import selectors
import socket
import sys


def main() -> None:
    with selectors.DefaultSelector() as selector:
        for word in sys.argv[1:]:
            listener = socket.create_server(("::", int(word)), family=socket.AF_INET6, dualstack_ipv6=True)
            selector.register(listener, selectors.EVENT_READ, listener)
        while True:
            for key, _ in selector.select():
                key.data.accept()[0].close()


if __name__ == "__main__":
    main()

"""Keep a TCP connection open: `echo.py serve PORT` returns each line that `echo.py call ADDRESS PORT` sends.

The caller sends the lines of its stdin and prints the replies. Runs on sandbox machines.
"""

from __future__ import annotations

import socket
import socketserver
import sys


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True  # earlier listeners used the port


class Echo(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        for line in self.rfile:
            self.wfile.write(line)


def main(verb: str, *where: str) -> None:
    if verb == "serve":
        Server(("", int(where[0])), Echo).serve_forever()
    with socket.create_connection((where[0], int(where[1])), 5) as connection, connection.makefile("rwb", 0) as stream:
        for line in sys.stdin.buffer:
            stream.write(line)
            sys.stdout.buffer.write(stream.readline())
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Run TensorBoard on a Unix socket: tensorboard_socket.py SOCKET FOLDER. Written by Muster (role workbench).

Equivalent to the command tensorboard except for the socket. The faster data server process is disabled, because it
listens on a loopback port that is open to all users.
"""

from __future__ import annotations

import sys
from typing import Any

from tensorboard import default, program
from werkzeug.serving import make_server


class OnSocket(program.TensorBoardServer):
    def __init__(self, wsgi_app: Any, flags: Any) -> None:
        self.server = make_server(f"unix://{sys.argv[1]}", 0, wsgi_app, threaded=True)
        self.url = f"http://localhost:0{flags.path_prefix}/"

    def serve_forever(self) -> None:
        self.server.serve_forever()

    def get_url(self) -> str:
        return self.url


def main() -> None:
    board = program.TensorBoard(plugins=default.get_plugins(), server_class=OnSocket)
    board.configure(argv=["tensorboard", "--logdir", sys.argv[2], "--load_fast=false", "--reload_interval=10"])
    sys.exit(board.main())


if __name__ == "__main__":
    main()

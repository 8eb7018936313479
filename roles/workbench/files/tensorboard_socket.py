"""TensorBoard on a socket: tensorboard_socket.py SOCKET FOLDER. Written by Muster (role workbench).

It is what the command tensorboard is, but for where it listens. Its second process, which reads the files faster,
listens on loopback for everybody, and so is not used.
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

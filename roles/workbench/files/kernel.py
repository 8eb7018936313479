"""Start a Jupyter kernel in an environment without ipykernel. Written by Muster (role workbench).

Runs with the Python of the environment. Packages of the environment take precedence. Missing packages of the kernel,
such as ipykernel, are imported from the JupyterLab environment, which has the same Python version.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def main() -> None:
    del sys.path[0]  # this folder
    tools = (HERE / "current").resolve() / "lib" / "python{}.{}".format(*sys.version_info[:2]) / "site-packages"
    sys.path.append(str(tools))
    kernelapp = importlib.import_module("ipykernel.kernelapp")
    kernelapp.IOPubThread = output_by_a_socket(kernelapp.IOPubThread)
    kernelapp.launch_new_instance()


def output_by_a_socket(thread: type) -> type:
    """Receive the output of forked processes over a Unix socket that only the owner can access, instead of a loopback
    port that is open to all users."""
    zmq: Any = importlib.import_module("zmq")
    stream: Any = importlib.import_module("zmq.eventloop.zmqstream").ZMQStream
    place = f"ipc://{os.environ['JUPYTER_RUNTIME_DIR']}/forked-{os.getpid()}"

    class BySocket(thread):
        def _setup_pipe_in(self) -> None:
            self._pipe_uuid = os.urandom(16)
            pipe = self.socket.context.socket(zmq.PULL)
            pipe.linger = 0
            pipe.bind(place)
            self._pipe_in = stream(pipe, self.io_loop)
            self._pipe_in.on_recv(self._handle_pipe_msg)

        def _setup_pipe_out(self) -> tuple[Any, Any]:
            context = zmq.Context()  # separate in a forked process
            pipe = context.socket(zmq.PUSH)
            pipe.linger = 3000  # milliseconds
            pipe.connect(place)
            return context, pipe

    return BySocket


if __name__ == "__main__":
    main()

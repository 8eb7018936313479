"""A kernel in an environment that need not have ipykernel. Written by Muster (role workbench).

Run by the environment's own Python. What the environment has comes first; what a kernel needs and it lacks, such as
ipykernel itself, comes from JupyterLab's environment, whose Python has the same version.
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
    """What forked processes print comes by a port of loopback, which is open to everybody; here, by a socket that the
    owner alone can reach."""
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
            context = zmq.Context()  # of a forked process' own
            pipe = context.socket(zmq.PUSH)
            pipe.linger = 3000  # milliseconds
            pipe.connect(place)
            return context, pipe

    return BySocket


if __name__ == "__main__":
    main()

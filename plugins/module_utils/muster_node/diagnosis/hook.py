"""The `sitecustomize` of a launch's Python processes: a rank reports its stack and flight recorder on a Unix socket.
The process otherwise behaves as if this file did not exist.

Python imports only the first sitecustomize that it finds. Therefore this module removes its own folder from the path,
then imports the next sitecustomize. If there is none, it fails as Python would. It acts only in ranks, not in the
launcher or in programs that a rank starts, because a rank removes the folder from its environment. Forked children of a
rank have neither the thread nor the socket.

The module leaves the following unchanged:
- Modules. A user's file can have the name of a standard library module. Therefore this module imports only modules
  that every Python has already imported, built-in modules, and `_socket`. It uses torch only if the script loaded it.
- Threads. The answering thread is not created by `threading` and blocks all signals. It ends before each fork, because
  Python warns about forks with threads since 3.12. 3.13.0 also warns if the thread restarts at once; if it would be the
  only thread besides the main thread, it restarts at the next garbage collection.
- Files. The user's code can close any descriptor, and its number can be reused. Therefore the descriptor is
  compared before use.
- CUDA graphs. Entries of NCCL's recorder are read only if the thread may query events while others capture a graph.
- Exit. No excepthook is installed, because other programs check for one. torch's flight recorder is written at exit,
  after all user code; a process that a signal kills writes none, but was queried before.

The thread needs the interpreter lock: a rank whose C call holds the lock does not answer, and neither does a stopped
rank. torch's own server would answer during a C call, but adds a dozen threads to the rank.
"""

from __future__ import annotations

import _signal
import _socket
import _thread
import atexit
import gc
import os
import sys
import time

TYPE_CHECKING = False  # avoids importing typing
if TYPE_CHECKING:
    from typing import Any

NAME = "sitecustomize"
MARK = "MUSTER_LAUNCH_ID"
SOCKETS = "observe"  # the folder of the sockets, beside that of this file
ALL, NOW = b"a", b"n"  # requests: the flight recorder with finished collectives, or without
NONE, FLIGHT = "\0", "\1"  # first byte of an answer's last line: why there is no recorder, or its content
FRAMES = 32
SECONDS = 0.5  # for the client to continue
FORKS_WARN = 0x030C0000  # first Python that warns about forks with threads
FORK_SECONDS = 0.05  # in which Python checks for threads
LONG = 1e6  # seconds
END_SECONDS = 1.0  # for the thread to end; it waits only for its client
NUMBERS = range(200, 250)  # of descriptors
LAST = 64_000  # bytes of the flight recorder written at exit
MOST_READ = 64  # entries of all groups
ENTRIES, END = b'"entries":[', b'}],"'  # as torch writes them
THREAD_LOCAL = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
GLOO, NCCL = "gloo", "nccl"  # torch's names of the backends that record without a hook


def is_rank(launch: str) -> bool:
    """Return whether this process is a rank of the launch. Children that multiprocessing starts are not ranks."""
    known = os.environ.get(MARK) == launch and "RANK" in os.environ and "LOCAL_RANK" in os.environ
    return known and sys.version_info >= (3, 10) and "--multiprocessing-fork" not in sys.orig_argv


def go_aside(here: str, *, rank: bool) -> None:
    """Remove a folder from Python's path, and from the environment that a rank's children inherit."""
    sys.path[:] = [path for path in sys.path if path != here]
    sys.path_importer_cache.pop(here, None)
    if rank:
        left = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path != here]
        os.environ.pop("PYTHONPATH", None)
        if left:
            os.environ["PYTHONPATH"] = os.pathsep.join(left)


def stack(thread: int) -> str:
    """Return the stack of a thread, innermost frame first, in faulthandler's format. No frame is kept afterwards."""
    frame = sys._current_frames().get(thread)
    lines = ""
    for _ in range(FRAMES):
        if frame is None:
            break
        lines += f'  File "{frame.f_code.co_filename}", line {frame.f_lineno} in {frame.f_code.co_name}\n'
        frame = frame.f_back
    return lines


def flight(*, finished: bool) -> tuple[bytes, str]:
    """Return torch's flight recorder as JSON, or the reason why it is missing. finished: include finished collectives.

    The flight recorder is not read before a process group exists: the first read fixes its settings, which the script
    can still change until then.
    """
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    group = getattr(getattr(c10d, "GroupMember", None), "WORLD", None)
    if group is None:
        return b"", "the rank has no torch.distributed process group"
    try:
        backend, dump, which = recorder(c10d, group)
        if dump is None:
            return b"", f"the rank's torch has no readable flight recorder for {backend}"
        return dumped(dump, which, finished=finished, entries=backend != NCCL or may_query_events()), ""
    except Exception as failed:
        return b"", f"the flight recorder could not be read ({type(failed).__name__})"


def dumped(dump: Any, which: dict[str, str], *, finished: bool, entries: bool) -> bytes:
    """Return the content of a recorder. The status of a hooked group counts all calls from 0: the number of collectives
    is only in entries, and finished entries are needed if there are no others."""
    found = bytes(dump(includeCollectives=entries, onlyActive=not finished, **which))
    if which and not finished and ENTRIES not in found:
        return dumped(dump, which, finished=True, entries=entries)
    return found


def recorder(c10d: Any, group: Any) -> tuple[str, Any, dict[str, str]]:
    """Return the backend of a group, and the function with its arguments that dumps the backend's flight recorder.

    Each backend has its own recorder. Of two backends, the one for GPUs is read, on all ranks. nccl2 has a recorder
    only if torch attached its recording hook to the group (since 2.15).
    """
    binding = sys.modules.get("torch._C._distributed_c10d")
    names = [group._get_backend(device).name() for device in group._device_types]
    backend = next((name for name in names if name != GLOO), GLOO)
    if backend == NCCL:
        return backend, getattr(binding, "_dump_nccl_trace_json", None), {}
    dump = getattr(binding, "_dump_fr_trace_json", None)
    if group in getattr(c10d._world, "pg_flight_recorder_hooks", ()):
        return backend, dump, {"backend": backend}
    return backend, dump if backend == GLOO else None, {}


def may_query_events() -> bool:
    """Let this thread query CUDA events while another thread captures a CUDA graph, as torch's watchdog does. Return
    whether it may: otherwise a query ends the capture with an error. The entries of NCCL's older backend have events.
    """
    ctypes = sys.modules["ctypes"]
    mode = ctypes.c_int(THREAD_LOCAL)
    try:
        return bool(ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode(ctypes.byref(mode)) == 0)
    except OSError:
        return False


def newest(recorded: bytes, most: int = MOST_READ) -> bytes:
    """Keep only the newest entries: parsing 2000 entries takes 0.1 s, and Gloo never marks entries as finished."""
    begin = recorded.find(ENTRIES) + len(ENTRIES)
    cut = end = recorded.rfind(END, begin)
    if begin < len(ENTRIES) or end < 0:
        return recorded
    for _ in range(most):
        cut = recorded.rfind(b"},{", begin, cut)
        if cut < 0:
            return recorded
    return recorded[:begin] + recorded[cut + 2 :]


def out_of_the_way(found: _socket.socket) -> _socket.socket:
    """Return a socket with a high descriptor number, so that the numbers of the script's files do not change."""
    number = found.fileno()
    for high in NUMBERS:
        try:
            os.fstat(high)
        except OSError:
            os.dup2(number, high, inheritable=False)
            found.close()
            return _socket.socket(fileno=high)
    return found


class Answering:
    """A rank's socket and its thread, started in the main thread."""

    def __init__(self, folder: str) -> None:
        self.pid = os.getpid()
        self.main = _thread.get_ident()
        self.path = f"{folder}/{self.pid}"
        self.listener: _socket.socket | None = None
        self.ended = _thread.allocate_lock()
        self.thread = 0
        self.not_before = 0.0
        self.over = False

    def begin(self) -> None:
        """Start answering, if possible."""
        if os.getpid() != self.pid or self.listener is not None:
            return
        listener = out_of_the_way(_socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM))
        try:
            listener.settimeout(LONG)  # makes accept poll; a blocking accept reserves a descriptor in advance
            if os.path.lexists(self.path):
                os.unlink(self.path)
            listener.bind(self.path)
            os.chmod(self.path, 0o600)
            listener.listen(4)
            self.ended = _thread.allocate_lock()
            self.ended.acquire()
            before = _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())
            try:
                self.listener = listener
                _thread.start_new_thread(self.serve, (listener, self.ended))
            finally:
                _signal.pthread_sigmask(_signal.SIG_SETMASK, before)
        except Exception:
            listener.close()

    def pause(self) -> None:
        """Stop answering, and wait for the thread to end."""
        listener, self.listener = self.listener, None
        if listener is None or os.getpid() != self.pid:
            return
        waker = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            waker.settimeout(END_SECONDS)
            waker.connect(self.path)  # shutting the listener down does not wake the thread on every kernel
            if self.ended.acquire(timeout=END_SECONDS):
                until = time.monotonic() + END_SECONDS
                while os.path.exists(f"/proc/self/task/{self.thread}") and time.monotonic() < until:
                    time.sleep(0.0001)
        except Exception:
            return
        finally:
            waker.close()
            listener.close()

    def resume(self) -> None:
        """Resume answering in the parent after a fork: at once, or at the next garbage collection."""
        if os.getpid() != self.pid:
            return
        if sys.hexversion < FORKS_WARN or len(os.listdir("/proc/self/task")) > 1:
            self.begin()
            return
        self.not_before = time.monotonic() + FORK_SECONDS
        if self.collected not in gc.callbacks:
            gc.callbacks.append(self.collected)

    def collected(self, _phase: str, _info: dict[str, int]) -> None:
        if self.listener is None and time.monotonic() > self.not_before and not self.over:
            self.begin()

    def serve(self, listener: Any, ended: _thread.LockType) -> None:
        try:
            self.thread = _thread.get_native_id()
            own = os.fstat(listener.fileno()).st_ino
            while os.fstat(listener.fileno()).st_ino == own:
                asking = _socket.socket(fileno=listener._accept()[0])
                if self.listener is not listener:
                    asking.close()
                    return
                self.answer(asking)
        except Exception:
            return  # it was paused, or its descriptor was closed or reused
        finally:
            ended.release()

    def answer(self, asking: _socket.socket) -> None:
        """Answer only this user and root, within the time limit."""
        try:
            asking.settimeout(SECONDS)
            who = asking.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
            if int.from_bytes(who[4:8], sys.byteorder) in {0, os.getuid()}:
                recorded, why = flight(finished=asking.recv(1) == ALL)
                said = f"{stack(self.main)}{FLIGHT if recorded else NONE}{why}".encode("utf-8", "replace")
                asking.sendall(said + recorded)
        except Exception:
            return
        finally:
            asking.close()

    def end(self) -> None:
        """Write the flight recorder at exit, atomically, for the diagnosis."""
        if os.getpid() != self.pid:
            return
        self.over = True
        self.pause()
        try:
            os.unlink(self.path)
            full = flight(finished=True)[0]
            said = next((one for most in (MOST_READ, 8, 1) if len(one := newest(full, most)) <= LAST), b"")
            if said:
                handle = os.open(f"{self.path}.new", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
                os.write(handle, said)
                os.close(handle)
                os.rename(f"{self.path}.new", f"{self.path}.last")
        except Exception:
            return


def observe(folder: str) -> None:
    """Start answering on a socket in a folder, if the folder exists and belongs to the rank's user."""
    try:
        if os.stat(folder).st_uid != os.getuid():
            return
        answering = Answering(folder)
        answering.begin()
        os.register_at_fork(before=answering.pause, after_in_parent=answering.resume)
        atexit.register(answering.end)
    except Exception:
        return


def main() -> None:
    here = os.path.dirname(__file__)
    state = os.path.dirname(here)
    rank = is_rank(os.path.basename(state))
    go_aside(here, rank=rank)
    del sys.modules[NAME]
    try:
        __import__(NAME)
    finally:
        if rank:
            observe(f"{state}/{SOCKETS}")


if __name__ == NAME:
    main()

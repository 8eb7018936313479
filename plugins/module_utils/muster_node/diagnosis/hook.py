"""The `sitecustomize` of a launch's Pythons: a rank says on a unix socket where it is; everything else goes on as if
this file were not there.

Python imports only the first sitecustomize that it finds. So this one takes its folder out of the way, and then imports
the one that Python would have found without it, or fails as Python would. It acts in ranks alone: not in the launcher,
nor in what a rank starts, for a rank hands the folder on to nobody; and what a rank forks has neither the thread nor
the socket.

What it must not change, and how:
- Modules. A file of the user's may have the name of one of the standard library. So nothing is imported here but what
  every Python has imported by then, or what no path can hide, and `_socket`; torch is used where the script has it.
- Threads. The one that answers is none of `threading`'s, and takes no signal. It ends before each fork, since 3.12
  Python warns of forks with threads; 3.13.0 still does when it is there again at once, so that the next collection of
  garbage brings it back where it is the only one.
- Files. The user may close any descriptor and get its number again, so that it is compared before it is used.
- The end. There is no excepthook, which others look for. torch's flight recorder is written at exit, when all of the
  user's own is done; what a signal ends leaves nothing, and was asked before.

The thread needs the interpreter: a rank that holds it in a call of C does not answer, and neither does a stopped one.
torch's own server would answer the former, but brings a dozen threads into the rank.
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

TYPE_CHECKING = False  # that of typing costs its import
if TYPE_CHECKING:
    from typing import Any

NAME = "sitecustomize"
MARK = "MUSTER_LAUNCH_ID"
SOCKETS = "observe"  # the folder of the sockets, beside that of this file
ALL, NOW = b"a", b"n"  # what can be asked: the flight recorder with what is over, and without
NONE, FLIGHT = "\0", "\1"  # what the last line of an answer begins with: why there is no recorder; what it holds
FRAMES = 32
SECONDS = 0.5  # for whoever asks to go on
FORKS_WARN = 0x030C0000  # the first Python that does
FORK_SECONDS = 0.05  # in which Python has looked for threads
LONG = 1e6  # seconds
END_SECONDS = 1.0  # for the thread to end; it waits for nothing but for who asks
NUMBERS = range(200, 250)  # of descriptors
LAST = 64_000  # bytes that are left behind


def is_rank(launch: str) -> bool:
    """Whether this process is a rank of that launch, and not what multiprocessing starts for one."""
    known = os.environ.get(MARK) == launch and "RANK" in os.environ and "LOCAL_RANK" in os.environ
    return known and sys.version_info >= (3, 10) and "--multiprocessing-fork" not in sys.orig_argv


def go_aside(here: str, *, rank: bool) -> None:
    """Take a folder out of Python's path, and out of what a rank hands on."""
    sys.path[:] = [path for path in sys.path if path != here]
    sys.path_importer_cache.pop(here, None)
    if rank:
        left = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path != here]
        os.environ.pop("PYTHONPATH", None)
        if left:
            os.environ["PYTHONPATH"] = os.pathsep.join(left)


def stack(thread: int) -> str:
    """Return where a thread is, the innermost first, as faulthandler has it. No frame is held for longer than this."""
    frame = sys._current_frames().get(thread)
    lines = ""
    for _ in range(FRAMES):
        if frame is None:
            break
        lines += f'  File "{frame.f_code.co_filename}", line {frame.f_lineno} in {frame.f_code.co_name}\n'
        frame = frame.f_back
    return lines


def flight(*, finished: bool, entries: bool = True) -> tuple[bytes, str]:
    """Return what torch has recorded, as the JSON that it makes, and why there is nothing. finished: also what is over.

    It is not asked before there is a process group: its first use reads its settings, which the script may still set.
    """
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    if getattr(getattr(c10d, "GroupMember", None), "WORLD", None) is None:
        return b"", "it has no process group of torch.distributed"
    binding = sys.modules.get("torch._C._distributed_c10d")
    dump = getattr(binding, "_dump_fr_trace_json", None) or getattr(binding, "_dump_nccl_trace_json", None)
    if dump is None:
        return b"", "its torch has no flight recorder that can be read (2.5 and newer have)"
    return bytes(dump(includeCollectives=entries, onlyActive=not finished)), ""


def out_of_the_way(found: _socket.socket) -> _socket.socket:
    """Return a socket with a number that the script's own files do not get next."""
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
    """A rank's socket and the thread behind it, begun in the main thread."""

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
        """Answer from now on; where this cannot be done, nobody is answered."""
        if os.getpid() != self.pid or self.listener is not None:
            return
        listener = out_of_the_way(_socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM))
        try:
            listener.settimeout(LONG)  # so that it polls: accept alone takes a number before anybody asks
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
        """Answer no more, and have the thread gone."""
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
        """Answer again in what has forked: at once, or when garbage is collected."""
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
            return  # it was paused, or its descriptor is somebody else's now
        finally:
            ended.release()

    def answer(self, asking: _socket.socket) -> None:
        """Answer this user and root, and nobody else; not for longer than they listen."""
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
        """Leave the flight recorder behind, in one piece, for whoever asks why this rank has ended."""
        if os.getpid() != self.pid:
            return
        self.over = True
        self.pause()
        try:
            os.unlink(self.path)
            said = flight(finished=True)[0]
            if len(said) > LAST:
                said = flight(finished=False)[0]
            if len(said) > LAST:
                said = flight(finished=False, entries=False)[0]
            if said:
                handle = os.open(f"{self.path}.new", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
                os.write(handle, said[:LAST])
                os.close(handle)
                os.rename(f"{self.path}.new", f"{self.path}.last")
        except Exception:
            return


def observe(folder: str) -> None:
    """Have this rank answer in a folder of its user; in any other, or in none, it does not."""
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

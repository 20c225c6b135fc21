"""The process that children of a worker are forks of: it has imported what takes long, and runs no kernel.

    python3 -m ringmaster.zygote SCRIPT ARGUMENT...          with the control socket as descriptor 3

A child is a session of its own and has the script as __main__. What ends the zygote, kill -9 too, ends its children:
each has a leash, a pipe whose other end the zygote alone has and whose end is SIGKILL to the child's process group.
"""
import atexit
import faulthandler
import fcntl
import gc
import importlib
import os
import platform
import random
import runpy
import select
import signal
import socket
import struct
import sys
import threading
import traceback
import typing

from ringmaster import core

_CONTROL = 3
_CORE = struct.Struct("<I")
_FORKED = struct.Struct("<Ii")
_EXITED = struct.Struct("<Iii")


class Born(typing.NamedTuple):
    """What a child has of its birth: descriptors."""
    lane: int
    log: int
    leash: int


class Zygote:
    """Forks children and says how they end, from one thread in one poll. It holds of each its leash's other end."""

    def __init__(self, control):
        self._control = control
        self._children = {}  # process id -> (core, leash)
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._woken, False)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's is the worker's affair

    def serve(self):
        """None when the control socket has ended; in a child Born."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        while True:
            ready = [number for number, _ in poll.poll()]
            if self._woken in ready:
                self._bury()
            if self._control.fileno() in ready:
                packet = core.receive(self._control)
                if packet is None:
                    return None
                born = self._fork(packet)
                if born is not None:
                    return born

    def _fork(self, packet):
        """Born in the child. What the system does not let be forked is FORKED with its error number, negative."""
        if packet.kind != core.Kind.FORK or len(packet.body) != _CORE.size or len(packet.files) != 2:
            raise core.ProtocolError(f"FORK with a core and two files was expected, {packet.kind.name} with "
                                     f"{len(packet.body)} bytes and {len(packet.files)} files came")
        number, = _CORE.unpack(packet.body)
        leash, held = os.pipe()
        try:
            pid = os.fork()
        except OSError as error:
            pid = -error.errno
        if pid == 0:
            os.close(held)
            self._leave()
            return Born(*packet.files, leash)
        for descriptor in (*packet.files, leash):
            os.close(descriptor)
        if pid > 0:
            self._children[pid] = (number, held)
        else:
            os.close(held)
        core.send(self._control, core.Kind.FORKED, _FORKED.pack(number, pid))
        return None

    def _leave(self):
        """In a child: nothing of the zygote stays, above all no leash of another one."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._control.detach()  # the lane takes its number
        for descriptor in (self._woken, self._wake, *(held for _, held in self._children.values())):
            os.close(descriptor)

    def _bury(self):
        """Every child that has ended, and with it what is left of its process group."""
        try:
            os.read(self._woken, 4096)
        except BlockingIOError:
            pass
        for pid, (number, held) in list(self._children.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended == pid:
                os.close(held)
                del self._children[pid]
                core.send(self._control, core.Kind.EXITED, _EXITED.pack(number, pid, status))


def _interpreter():
    """ScriptInterpreter, of this process, which has imported ringmaster.torch where that can be."""
    said = {"path": sys.executable, "libraries": {"python": platform.python_version()}}
    try:
        package = importlib.import_module("ringmaster.torch")
        said["libraries"] = package.determinism.libraries()
    except Exception as error:  # a broken torch raises whatever it met
        said["error"] = (f"{sys.executable} cannot import torch ({type(error).__name__}: {error}): "
                         "apt install python3-torch, or ringworker --python NAME=PATH")
    return said


def _settle(born):
    """A session of its own with the lane as descriptor 3, the log as stdout and stderr, and the leash on."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (born.log, 1), (born.log, 2)):
        os.dup2(source, target)
    os.dup2(born.lane, core.LANE, inheritable=False)
    for descriptor in (nothing, born.log, born.lane):
        os.close(descriptor)
    fcntl.fcntl(born.leash, fcntl.F_SETOWN, -os.getpid())
    fcntl.fcntl(born.leash, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(born.leash, fcntl.F_SETFL, fcntl.fcntl(born.leash, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([born.leash], [], [], 0)[0]:  # the zygote ended before
        os._exit(1)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    os.environ[core.ENVIRONMENT] = str(core.LANE)
    return core.adopt(socket.socket(fileno=core.LANE))


def _seed_defaults():
    """Generators that other processes begin with something else; torch's own begins with a constant."""
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)


def _of_script(trace, script):
    """The traceback from the script's first frame on; None where it never ran."""
    while trace is not None and trace.tb_frame.f_code.co_filename != script:
        trace = trace.tb_next
    return trace


def _run(child, script, arguments):
    """The script as __main__. The status that the process ends with: 1 where it did not train to the end."""
    sys.argv = [script, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    how, status = "ran to its end", 0
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        how = f"called sys.exit({'' if end.code is None else repr(end.code)})"
        status = end.code & 0xff if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        trace = _of_script(error.__traceback__, script)
        traceback.print_exception(type(error), error, trace)
        child.raised_by(error, trace)
        return 1
    if child.said_all or not child.is_here():
        return status
    if not child.attached:
        how += " without a call of ringmaster.torch.attach, which makes it a job's"
    else:
        how += " before the job had ended: it leaves the loop over job.shards() only when that ends"
    child.raised("ScriptEnded", f"the script {how}")
    return 1


def _end(status):
    """What a process does at its end, but for freeing what it shares with the zygote, which would copy all of that."""
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # closed by the script, or nobody reads it
            pass
    os._exit(status)


def main():
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # of -m: what lies there by chance is not torch
    control = socket.socket(fileno=_CONTROL)
    control.set_inheritable(False)
    interpreter = _interpreter()
    gc.freeze()  # pages of what was imported stay shared
    core.send_json(control, core.Kind.UP, interpreter)
    born = Zygote(control).serve()
    status = 0
    if born is not None:
        child = _settle(born)
        _seed_defaults()
        status = _run(child, sys.argv[1], sys.argv[2:])
    _end(status)


if __name__ == "__main__":
    main()

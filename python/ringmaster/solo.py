"""A script that was started by itself: it has a worker of its own, of which it is core 0.

    ringworker solo --checkpoint DIR [--cores N] [--resume] --script FILE --python PATH [-- ARGUMENT...]

with the worker's end of this process' lane as descriptor 3; further cores are children of a zygote of that worker.
RINGMASTER_WORKER is the program, RINGMASTER_CORES how many cores, RINGMASTER_CHECKPOINT the folder of checkpoints;
with RINGMASTER_RESUME=1 it goes on from the one there.
"""
import atexit
import os
import pathlib
import shutil
import signal
import socket
import sys
import threading
import time

from ringmaster import core

_LANE_OF_WORKER = 3
# Seconds for a worker that is to end: after which it is said who is waited for, after which it is told to by SIGTERM (its
# last checkpoint may be large, or its disk slow), and after which by SIGKILL.
_SAY_AFTER, _TERM_AFTER, _KILL_AFTER = 30, 600, 630


class Worker:
    """A ringworker of this process. `child`: the Child that this process is."""

    def __init__(self, child, pid):
        self.child = child
        child.gone = self._gone
        self._pid = pid
        self._status = None
        atexit.register(self._leave)
        self._last_hook, sys.excepthook = sys.excepthook, self._report
        if threading.current_thread() is threading.main_thread():
            self._interrupt = signal.signal(signal.SIGINT, self._stop)

    def ended(self):
        """The job has ended; RuntimeError where the worker says otherwise."""
        if self._wait() != 0:
            raise self._gone()

    def _gone(self):
        status = self._wait()
        return RuntimeError(f"ringworker solo ended {'with status' if status >= 0 else 'by signal'} {abs(status)}: what it said is "
                            "above")

    def _stop(self, *_):
        """Ctrl-C: the worker ends the step and writes a checkpoint. Once more: at once."""
        signal.signal(signal.SIGINT, self._interrupt)
        if self._status is None:
            os.kill(self._pid, signal.SIGINT)

    def _report(self, kind, error, trace):
        self.child.raised_by(error, trace)
        self._last_hook(kind, error, trace)

    def _leave(self):
        if not self.child.is_here():
            return
        self.child.raised("ScriptEnded", "the script ended before the job had: it leaves the loop over job.shards() only when "
                                         "that ends")
        self._wait()

    def _wait(self):
        """The worker's exit status; of a signal its number, negative. It is waited for until _KILL_AFTER."""
        began, pause = time.monotonic(), 0.001
        turns = [(_SAY_AFTER, 0), (_TERM_AFTER, signal.SIGTERM), (_KILL_AFTER, signal.SIGKILL)]
        while self._status is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid != 0:
                self._status = os.waitstatus_to_exitcode(status)
                break
            if turns and time.monotonic() - began > turns[0][0]:
                self._hurry(*turns.pop(0))
            time.sleep(pause)
            pause = min(2 * pause, 0.1)
        return self._status

    def _hurry(self, seconds, number):
        what = f"it gets {signal.Signals(number).name}" if number else f"it is ended when it has not by {_TERM_AFTER} s"
        print(f"ringmaster: ringworker solo, process {self._pid}, has not ended after {seconds} s; {what}", file=sys.stderr, flush=True)
        if number:
            os.kill(self._pid, number)


def start(told):
    """A Worker. `told`: what attach was told, as in ScriptFacts: there is no job file that would say more."""
    program = os.environ.get("RINGMASTER_WORKER") or shutil.which("ringworker")
    if program is None or shutil.which(program) is None:
        raise core.Refused(f"this script was started by itself, and there is no {program or 'ringworker'} to train with: "
                           "install the package ringmaster, or set RINGMASTER_WORKER to the program's path")
    if not told["batch"] or not (told["steps"] or told["epochs"]):
        raise core.Refused("a script that is started by itself says how long it trains: attach(..., batch=64, steps=1000)")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # A process group of its own: a terminal's Ctrl-C comes to this process, which passes it on.
    pid = os.posix_spawn(program if "/" in program else shutil.which(program), _command(program), os.environ, setpgroup=0,
                         file_actions=[(os.POSIX_SPAWN_DUP2, theirs.fileno(), _LANE_OF_WORKER)])
    theirs.close()
    return Worker(core.adopt(ours), pid)


def _command(program):
    file = getattr(sys.modules["__main__"], "__file__", None)
    folder = os.environ.get("RINGMASTER_CHECKPOINT") or f"{pathlib.Path(file or 'notebook').stem}.checkpoint"
    command = [program, "solo", "--checkpoint", folder]
    cores = os.environ.get("RINGMASTER_CORES")
    if cores:
        command += ["--cores", cores]
    if os.environ.get("RINGMASTER_RESUME") == "1":
        command.append("--resume")
    if file is not None:
        command += ["--script", os.path.abspath(file), "--python", sys.executable, "--", *sys.argv[1:]]
    elif cores not in (None, "1"):
        raise core.Refused(f"RINGMASTER_CORES is {cores}, and this is no script that another core could run: leave it out")
    return command

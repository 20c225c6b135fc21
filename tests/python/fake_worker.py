"""The worker's end of the core protocol for tests: a zygote, its children, and a loop that trains with them. It takes
ringmaster.core's packets, and nothing of the child's end."""
import contextlib
import hashlib
import json
import os
import pathlib
import signal
import socket
import struct
import sys
import tempfile
import typing
import unittest

# In front of what loads it: on a CPU that OpenBLAS does not know it takes kernels without AVX, and a script says so.
os.environ.setdefault("OPENBLAS_CORETYPE", "Haswell")

import numpy

from fake_state import State, mapped
from ringmaster import core

PYTHON = pathlib.Path(__file__).resolve().parent.parent.parent / "python"
PATIENCE = 60  # seconds for one packet, on a slow machine
Kind = core.Kind


class Raised(Exception):
    """A child's RAISED."""

    def __init__(self, told):
        super().__init__(f"{told['type']}: {told['message']}\n{told['traceback']}")
        self.told = told


class Gone(Exception):
    """The end of a child's socket."""


class Result(typing.NamedTuple):
    loss: float
    metrics: tuple
    rates: tuple
    gradients: dict  # name -> array, a copy
    early: list      # tensors, as BUCKETs named them
    buckets: int


def pair():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(PATIENCE)
    return ours, theirs


def environment(**more):
    return {**os.environ, "PYTHONPATH": str(PYTHON), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0", **more}


class Child:
    """A child, or the script itself in solo: the worker's end of its lane."""

    def __init__(self, lane, core_number=0, log=None, pid=None):
        self._lane, self.core, self.log, self.pid = lane, core_number, log, pid
        self._state, self._slot, self._views = None, None, None

    def expect(self, kind):
        packet = core.receive(self._lane)
        if packet is None:
            raise Gone(self.said())
        if packet.kind == Kind.RAISED:
            raise Raised(packet.json())
        if packet.kind != kind:
            raise AssertionError(f"{kind.name} was expected, {packet.kind.name} came")
        return packet

    def said(self):
        return self.log.read_text(errors="replace") if self.log else ""

    def hello(self, threads=1, deterministic=True):
        # As protobuf prints it: what is 0 or false is left out.
        told = {"threads": threads, **({"core": self.core} if self.core else {}),
                **({"deterministic": True} if deterministic else {})}
        with contextlib.suppress(core.Ended):  # one that is gone by now has left its reason
            core.send_json(self._lane, Kind.HELLO, told)

    def facts(self):
        """ScriptFacts, and the initial values as one array."""
        packet = self.expect(Kind.FACTS)
        facts = packet.json()
        file, = packet.files
        initial = numpy.frombuffer(os.pread(file, os.fstat(file).st_size, 0), numpy.float32)
        os.close(file)
        assert hashlib.sha256(initial.tobytes()).hexdigest() == facts["initial_sha256"]
        return facts, initial

    def layout(self, state):
        slot, self._slot = mapped(state.bytes)
        self._slot[...] = numpy.nan  # what a child leaves out is seen
        self._state, self._views = state, state.views(self._slot)
        # As protobuf prints uint64.
        told = {"bytes": str(state.bytes), "offsets": [str(offset) for offset in state.offsets]}
        core.send_json(self._lane, Kind.LAYOUT, told, [state.file, slot])
        os.close(slot)
        self.expect(Kind.READY)

    def start(self, **hello):
        """State of this child's own facts, laid out."""
        self.hello(**hello)
        facts, initial = self.facts()
        state = State(facts, initial)
        self.layout(state)
        return facts, state

    def join(self, state, **hello):
        """A further child of one job."""
        self.hello(**hello)
        facts, _ = self.facts()
        self.layout(state)
        return facts

    def ask(self, step, shard, shards=4, batch=16, seed=1, update=None, scale=1.0, samples=None):
        """SHARD: rows are dealt in order, the first shards have one more."""
        begin, end = batch * shard // shards, batch * (shard + 1) // shards
        samples = list(range(step * batch + begin, step * batch + end)) if samples is None else samples
        update = self._state.update if update is None else update
        core.send(self._lane, Kind.SHARD, struct.pack(f"<QQQQIIIf{len(samples)}Q", step, update, seed, batch, shard, shards,
                                                      len(samples), scale / batch, *samples))

    def ahead(self, step, shard, samples, seed=1):
        core.send(self._lane, Kind.AHEAD, struct.pack(f"<QQII{len(samples)}Q", step, seed, shard, len(samples), *samples))

    def answer(self, step, shard):
        """BUCKETs and DONE; each tensor has to be in one of them."""
        named, buckets = [], 0
        while True:
            packet = core.receive(self._lane)
            if packet is None:
                raise Gone(self.said())
            if packet.kind == Kind.RAISED:
                raise Raised(packet.json())
            if packet.kind == Kind.DONE:
                break
            assert packet.kind == Kind.BUCKET, packet.kind
            named += struct.unpack(f"<{len(packet.body) // 4}I", packet.body)
            buckets += 1
        assert sorted(named) == list(range(len(self._state.tensors))), named
        said_step, said_shard, metrics, groups, loss = struct.unpack_from("<QIIId", packet.body)
        assert (said_step, said_shard) == (step, shard)
        numbers = struct.unpack_from(f"<{metrics + groups}d", packet.body, 28)
        gradients = {name: view.copy() for name, view in self._views.items()}
        self._slot[...] = numpy.nan
        return Result(loss, numbers[:metrics], numbers[metrics:], gradients, named, buckets)

    def shard(self, step, shard, **more):
        self.ask(step, shard, **more)
        return self.answer(step, shard)

    def end(self):
        core.send(self._lane, Kind.END)

    def close(self):
        self._lane.close()

    def wait_raised(self):
        """What RAISED says, whatever else came before it."""
        while True:
            packet = core.receive(self._lane)
            if packet is None:
                raise Gone(self.said())
            if packet.kind == Kind.RAISED:
                return packet.json()


def train(children, state, steps, samples, shards=4, batch=16, seed=1):
    """Steps of all shards over these children, turn by turn; the mean loss of each step. `samples`: of the dataset."""
    losses = []
    order = numpy.random.RandomState(seed).permutation(samples) if samples else None
    for step in range(state.update, steps):
        numbers = range(step * batch, (step + 1) * batch)
        if order is not None:
            numbers = [int(order[number % samples]) for number in numbers]
        results = [None] * shards
        for first in range(0, shards, len(children)):
            dealt = list(zip(children, range(first, shards)))
            for child, shard in dealt:
                rows = numbers[batch * shard // shards:batch * (shard + 1) // shards]
                child.ask(step, shard, shards=shards, batch=batch, seed=seed, samples=list(rows))
            for child, shard in dealt:
                results[shard] = child.answer(step, shard)
        state.apply([result.gradients for result in results], results[0].rates)
        losses.append(sum(result.loss for result in results) / batch)
    return losses


class Zygote:
    """A zygote of one script, whose text may be another one for each child."""

    def __init__(self, folder, arguments=(), script=None, program=sys.executable, **more):
        self.folder = pathlib.Path(folder)
        self.script = pathlib.Path(script or self.folder / "script.py")
        self.control, theirs = pair()
        with open(self.folder / "zygote.log", "wb") as log:
            self.pid = os.posix_spawn(program, [program, "-m", "ringmaster.zygote", str(self.script), *arguments],
                                      environment(**more),
                                      file_actions=[(os.POSIX_SPAWN_DUP2, theirs.fileno(), 3), (os.POSIX_SPAWN_DUP2, log.fileno(), 2)])
        theirs.close()
        packet = core.receive(self.control)
        assert packet is not None, (self.folder / "zygote.log").read_text()
        self.up = packet.json()
        self._log = 0
        self._alive, self._ended = {}, {}  # process id -> core, exit code

    def fork(self, text=None, core_number=0):
        """A Child that runs this text."""
        if text is not None:
            self.script.write_text(text)
        ours, theirs = pair()
        self._log += 1
        log = self.folder / f"child{self._log}.log"
        with open(log, "wb") as file:
            core.send(self.control, Kind.FORK, struct.pack("<I", core_number), [theirs.fileno(), file.fileno()])
        theirs.close()
        said, pid = struct.unpack("<Ii", self._next(Kind.FORKED))
        assert said == core_number
        self._alive[pid] = core_number
        return Child(ours, core_number, log, pid)

    def exited(self, pid):
        """The exit code of this child, for which it waits; of a signal its number, negative."""
        while pid in self._alive:
            self._next(None)
        return self._ended[pid]

    def kill(self, pid):
        """A child that may be dead already."""
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.exited(pid)

    def close(self):
        self.control.close()
        os.waitpid(self.pid, 0)

    def _next(self, kind):
        """The body of the next packet of this kind, or of any; children that end meanwhile are written down."""
        while True:
            packet = core.receive(self.control)
            if packet.kind == Kind.EXITED:
                number, pid, status = struct.unpack("<Iii", packet.body)
                assert self._alive.pop(pid) == number
                self._ended[pid] = os.waitstatus_to_exitcode(status)
            if packet.kind == kind or kind is None:
                return packet.body
            assert packet.kind == Kind.EXITED, packet


class ScriptTest(unittest.TestCase):
    """Cases of a file, which have one zygote. `self.fork(text)`: a child, which is ended behind the case."""

    zygote = None

    @classmethod
    def setUpClass(cls):
        if ScriptTest.zygote is None:
            folder = tempfile.TemporaryDirectory(prefix="ringmaster-python-test-")
            unittest.addModuleCleanup(folder.cleanup)
            ScriptTest.zygote = Zygote(folder.name)
            unittest.addModuleCleanup(ScriptTest.zygote.close)

    def setUp(self):
        self._children = []
        self.addCleanup(self._end)

    def fork(self, text=None, core_number=0):
        child = self.zygote.fork(text, core_number)
        self._children.append(child)
        return child

    def start(self, text, **hello):
        """(child, facts, state) of a first child."""
        child = self.fork(text)
        facts, state = child.start(**hello)
        return child, facts, state

    def refused(self, text):
        """The message of the Refused that a script ends with before it has facts."""
        child = self.fork(text)
        child.hello()
        told = child.wait_raised()
        self.assertEqual(told["type"], "Refused", json.dumps(told, indent=1))
        return told["message"]

    def _end(self):
        for child in self._children:
            child.close()
            self.zygote.kill(child.pid)

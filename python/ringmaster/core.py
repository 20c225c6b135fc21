"""The core protocol: how a program of the user's computes gradients for ringworker (docs/core_protocol.md).

Packets, and `Child`, a child's end of the lane between the two. It knows bytes and where they lie; what a tensor is
stands in ringmaster.torch. A process has one child at most: `current()`.
"""
import enum
import hashlib
import json
import mmap
import os
import socket
import struct
import traceback
import typing

VERSION = 1
MOST_BYTES = 128 * 1024  # of a packet
MOST_FILES = 4           # that go with one
MOST_TENSORS = 4096      # that a BUCKET of ours names
LANE = 3                 # the descriptor of a child's end
ENVIRONMENT = "RINGMASTER_CORE"  # the number of that descriptor, in a process that is a child

_HEADER = struct.Struct("<HHI")
_LENGTH = struct.Struct("<Q")
_SHARD = struct.Struct("<QQQQIIIf")
_AHEAD = struct.Struct("<QQII")
_DONE = struct.Struct("<QIIId")
_MOST_TEXT = 64 * 1024  # characters of a message or a traceback


class Kind(enum.IntEnum):
    HELLO = 1
    FACTS = 2
    LAYOUT = 3
    READY = 4
    SHARD = 5
    BUCKET = 6
    DONE = 7
    RAISED = 8
    END = 9
    AHEAD = 10
    UP = 16
    FORK = 17
    FORKED = 18
    EXITED = 19


class ProtocolError(Exception):
    """The other side does not speak this protocol: what came, and what was expected."""


class Refused(Exception):
    """What a script wants cannot be had; the text says what is wrong and what to do."""


class Ended(SystemExit):
    """The worker needs this child no more, which leaves, past every `except Exception` of the script.
    `asked`: the worker said END; else its end of the socket is gone."""

    def __init__(self, asked):
        super().__init__(0)
        self.asked = asked


# ---- Packets ------------------------------------------------------------------------------------------


class Packet(typing.NamedTuple):
    kind: Kind
    body: bytes
    files: list  # descriptors; whoever has the packet closes them

    def json(self):
        """The JSON that goes with the packet, whose file is taken from `files` and closed."""
        if len(self.body) != _LENGTH.size or not self.files:
            raise ProtocolError(f"{self.kind.name}: a length and a file of JSON were expected, "
                                f"{len(self.body)} bytes and {len(self.files)} files came")
        length, = _LENGTH.unpack(self.body)
        with open(self.files.pop(0), "rb") as file:
            text = os.pread(file.fileno(), length, 0)
        if len(text) != length:
            raise ProtocolError(f"{self.kind.name}: {length} bytes of JSON were expected, the file has {len(text)}")
        return json.loads(text)


def send(lane, kind, body=b"", files=()):
    """Raises Ended where nobody is at the other end."""
    try:
        socket.send_fds(lane, [_HEADER.pack(kind, VERSION, 0), body], files)
    except (BrokenPipeError, ConnectionResetError):
        raise Ended(asked=False) from None


def send_json(lane, kind, value, files=()):
    """`value` in a memory file, in front of `files`."""
    text = json.dumps(value, separators=(",", ":")).encode()
    file = memory_file(kind.name, [text])
    try:
        send(lane, kind, _LENGTH.pack(len(text)), [file, *files])
    finally:
        os.close(file)


def receive(lane):
    """The next Packet; None at the end of the socket."""
    try:
        data, files, flags, _ = socket.recv_fds(lane, MOST_BYTES, MOST_FILES, socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError:  # the other end left something unread: said once, in front of what it had sent
        return receive(lane)
    if not data:
        return None
    if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC) or len(data) < _HEADER.size:
        raise ProtocolError(f"a packet of {_HEADER.size} to {MOST_BYTES} bytes with {MOST_FILES} files at most was "
                            f"expected, {len(data)} bytes came, flags {flags:#x}")
    kind, version, _ = _HEADER.unpack_from(data)
    if version != VERSION:
        raise ProtocolError(f"ringworker speaks version {version} of the core protocol, this ringmaster package "
                            f"({os.path.dirname(__file__)}) version {VERSION}: install the two of one release")
    try:
        return Packet(Kind(kind), data[_HEADER.size:], files)
    except ValueError:
        raise ProtocolError(f"a packet of kind {kind}, which version {VERSION} does not have") from None


def memory_file(name, parts):
    """A descriptor of a file without a name that holds `parts`, bytes-like, one after the other."""
    file = os.memfd_create(f"ringmaster-{name.lower()}", os.MFD_CLOEXEC)
    try:
        for part in parts:
            rest = memoryview(part).cast("B")
            while rest:
                rest = rest[os.write(file, rest):]
    except BaseException:
        os.close(file)
        raise
    return file


# ---- What a child is told -----------------------------------------------------------------------------


class Hello(typing.NamedTuple):
    core: int
    threads: int
    deterministic: bool


class Layout(typing.NamedTuple):
    """Tensor i lies at offsets[i], in bytes, of both mappings."""
    offsets: list
    state: mmap.mmap  # S(k), read-only
    slot: mmap.mmap   # gradients


class Work(typing.NamedTuple):
    """A shard, as SHARD has it."""
    step: int
    update: int
    seed: int
    batch: int
    shard: int
    shards: int
    rows: int
    seed_scale: float
    samples: list


class Coming(typing.NamedTuple):
    """A shard that may come, as AHEAD has it."""
    step: int
    seed: int
    shard: int
    samples: list


def digest(what, *numbers):
    """The 32 bytes that generators are set from: of a shard (seed, step, shard), of a sample (seed, step, number)."""
    return hashlib.sha256(" ".join(["ringmaster", what, *map(str, numbers)]).encode("ascii")).digest()


def _work(body):
    if len(body) < _SHARD.size:
        raise ProtocolError(f"SHARD: {_SHARD.size} bytes or more were expected, {len(body)} came")
    step, update, seed, batch, shard, shards, rows, seed_scale = _SHARD.unpack_from(body)
    return Work(step, update, seed, batch, shard, shards, rows, seed_scale, _samples(Kind.SHARD, rows, body[_SHARD.size:]))


def _coming(body):
    if len(body) < _AHEAD.size:
        raise ProtocolError(f"AHEAD: {_AHEAD.size} bytes or more were expected, {len(body)} came")
    step, seed, shard, rows = _AHEAD.unpack_from(body)
    return Coming(step, seed, shard, _samples(Kind.AHEAD, rows, body[_AHEAD.size:]))


def _samples(kind, rows, body):
    if rows == 0 or len(body) != 8 * rows:
        raise ProtocolError(f"{kind.name}: {rows} rows in {len(body)} bytes")
    return list(struct.unpack(f"<{rows}Q", body))


# ---- A child's end ------------------------------------------------------------------------------------


class Child:
    """A child's end of its lane, in the order of a child's life: hello, facts, layout, ready, then shards.

    `shard`, `bucket` and `done` are called by the thread that runs the script, or by the one that runs its backward.
    A process that the script forks has no lane: it is not the child, and whatever it calls here is refused.
    """

    def __init__(self, lane):
        self._lane = lane
        self.attached = False  # facts are told
        self._forked = False
        self.said_all = False  # END or RAISED: nothing is left to say
        self.gone = lambda: Ended(asked=False)  # what is raised where the socket ends without END
        os.register_at_fork(after_in_child=self._leave)

    def _leave(self):
        self._forked = True
        self._lane.close()

    def is_here(self):
        """Not in a process that the script forked."""
        return not self._forked

    def hello(self):
        told = self._receive(Kind.HELLO).json()
        return Hello(int(told.get("core", 0)), max(1, int(told.get("threads", 1))), bool(told.get("deterministic")))

    def facts(self, facts, initial):
        """`facts` as ScriptFacts in JSON; `initial`: a descriptor of the initial values."""
        self.attached = True
        self._said(send_json, Kind.FACTS, facts, [initial])

    def layout(self, sizes):
        """The Layout, of tensors of so many bytes; Ended where the facts were all that was wanted."""
        packet = self._receive(Kind.LAYOUT)
        told = packet.json()
        size, offsets = int(told["bytes"]), [int(offset) for offset in told.get("offsets", ())]
        if len(packet.files) != 2:
            raise ProtocolError(f"LAYOUT: the state and the slot were expected, {len(packet.files)} files came")
        if len(offsets) != len(sizes):
            raise ProtocolError(f"LAYOUT: {len(offsets)} offsets for {len(sizes)} tensors")
        for offset, own in zip(offsets, sizes):
            if offset % 1024 != 0 or offset + own > size:
                raise ProtocolError(f"LAYOUT: {own} bytes at {offset} of {size}")
        state, slot = packet.files
        layout = Layout(offsets, mmap.mmap(state, size, mmap.MAP_SHARED, mmap.PROT_READ),
                        mmap.mmap(slot, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE))
        os.close(state)
        os.close(slot)
        return layout

    def ready(self):
        self._said(send, Kind.READY)

    def shard(self, expect=None):
        """The Work that comes next; Ended where there is none any more. `expect`: called with each Coming."""
        while True:
            packet = self._receive(Kind.SHARD, Kind.AHEAD)
            if packet.kind == Kind.SHARD:
                return _work(packet.body)
            coming = _coming(packet.body)
            if expect is not None:
                expect(coming)

    def bucket(self, tensors):
        """These tensors' gradients are whole in the slot; at most MOST_TENSORS."""
        self._said(send, Kind.BUCKET, struct.pack(f"<{len(tensors)}I", *tensors))

    def done(self, work, loss, metrics, rates):
        """`loss` and `metrics`: sums over the rows. `rates`: of each group."""
        body = _DONE.pack(work.step, work.shard, len(metrics), len(rates), loss)
        self._said(send, Kind.DONE, body + struct.pack(f"<{len(metrics) + len(rates)}d", *metrics, *rates))

    def raised(self, name, message, trace="", of_host=False):
        """Ends what this child says. A worker that is gone has no use for it, which is no error."""
        if self.said_all or self._forked:
            return
        self.said_all = True
        told = {"type": name, "message": message[:_MOST_TEXT], "traceback": trace[-_MOST_TEXT:], "of_host": of_host}
        try:
            send_json(self._lane, Kind.RAISED, told)
        except Ended:
            pass

    def raised_by(self, error, trace):
        """Likewise, of an exception; `trace`: its traceback object, from the script's first frame on."""
        message = str(error)
        if isinstance(error, RuntimeError) and "torch.use_deterministic_algorithms" in message:
            message += (" -- ringmaster: this op has no implementation whose bits repeat, which a job needs; use another one")
        text = "".join(traceback.format_exception(type(error), error, trace))
        self.raised(type(error).__name__, message, text, _is_of_host(error))

    def _lane_here(self):
        if self._forked:
            raise Refused("this process is a fork of the one that has the job: compute shards in that one, and leave "
                          "a fork with os._exit()")
        return self._lane

    def _said(self, how, *what):
        try:
            how(self._lane_here(), *what)
        except Ended:
            self.said_all = True
            raise self.gone() from None

    def _receive(self, *kinds):
        """A packet of one of these kinds; Ended where the child is to leave."""
        packet = receive(self._lane_here())
        if packet is None:
            self.said_all = True
            raise self.gone()
        if packet.kind == Kind.END:
            self.said_all = True
            raise Ended(asked=True)
        if packet.kind not in kinds:
            raise ProtocolError(f"{kinds[0].name} was expected, {packet.kind.name} came")
        return packet


def _is_of_host(error):
    """Another host may have what was missing here."""
    if isinstance(error, (MemoryError, OSError)) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and ("can't allocate memory" in text or "out of memory" in text)


_current = None


def adopt(lane):
    """This process is the child at this end."""
    global _current
    _current = Child(lane)
    return _current


def current():
    """The Child that this process is, also as RINGMASTER_CORE says it; None: there is no worker above it."""
    if _current is not None or ENVIRONMENT not in os.environ:
        return _current
    number = os.environ[ENVIRONMENT]
    try:
        lane = socket.socket(fileno=int(number))
        if (lane.family, lane.type) != (socket.AF_UNIX, socket.SOCK_SEQPACKET):
            lane.detach()
            raise ValueError
        lane.set_inheritable(False)
    except (OSError, ValueError):
        raise Refused(f"{ENVIRONMENT} is {number}, which is no lane of a ringworker: a program that a script starts "
                      f"cannot attach; without {ENVIRONMENT} it would train by itself") from None
    return adopt(lane)

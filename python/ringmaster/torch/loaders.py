"""Processes that read the samples of coming shards while this one computes: forks, each with a socket to it.

A request is samples of one step; its answer a memory file with the batch, pickled, where tensors and arrays lie as they
lay in the loader: strides, and their place between two multiples of 64 bytes. Whatever is not sure to come out as it
would if it were read here is read here: a batch that is not plain, one that raised, one of a loader that died.
"""
import bisect
import collections
import ctypes
import io
import math
import multiprocessing
import os
import pickle
import signal
import socket
import struct
import sys
import weakref

import numpy
import torch

from ringmaster import core

_ALIGNMENT = 64
_MOST_WAITING = 64                # requests of one loader
_MOST_DEATHS = 5                  # after which there are no loaders any more
_REQUEST = struct.Struct("<QQ")   # step, seed; then the samples, uint64 each
_ANSWER = struct.Struct("<QQ")    # where in the file the pickled part begins, and its bytes; 0, 0: read it yourself
_DEATH_SIGNAL = 1                 # PR_SET_PDEATHSIG
_SIGNALS = {signal.SIGINT, signal.SIGTERM}

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


class Loaders:
    """At most `number` processes that call load(samples, seed, step). Each begins with its first request."""

    def __init__(self, number, load):
        self._number, self._load = number, load
        self._loaders, self._deaths = [], 0

    def expect(self, step, seed, samples):
        """These will be taken, if nothing comes between."""
        if self._number == 0 or any(loader.has(step, samples) for loader in self._loaders):
            return
        if len(self._loaders) < self._number:
            try:
                self._loaders.append(_Loader(self._load, [loader.lane for loader in self._loaders]))
            except OSError as error:  # no process, no descriptor: it goes without
                self._give_up(f"there can be no further process that reads samples ahead: {error}")
        if self._loaders:
            min(self._loaders, key=_Loader.waits).ask(step, seed, samples)

    def take(self, step, samples):
        """[what load gave for them]; [] where it is to be called here. Of earlier steps nothing is kept."""
        for loader in list(self._loaders):
            try:
                loader.forget(step)
                if loader.has(step, samples):
                    return loader.take(step, samples)
            except _Gone as gone:
                self._deaths += 1
                self._loaders.remove(loader)
                print(f"ringmaster: a process that reads samples ahead {gone}; what it had is read here", file=sys.stderr,
                      flush=True)
                if self._deaths == _MOST_DEATHS:
                    self._give_up(f"{_MOST_DEATHS} of them died: samples are read here from now on")
        return []

    def close(self):
        """They end by themselves."""
        self._number = 0
        while self._loaders:
            self._loaders.pop().lane.close()

    def _give_up(self, why):
        print(f"ringmaster: {why}", file=sys.stderr, flush=True)
        self._number = len(self._loaders) if self._deaths < _MOST_DEATHS else 0
        if self._number == 0:
            self.close()


class _Gone(Exception):
    """A loader ended: how."""


class _Loader:
    """One process. It answers in the order in which it is asked."""

    def __init__(self, load, lanes):
        self.lane, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._asked = collections.deque()  # (step, samples)
        # Until it has its own ways with them, signals wait: the script's handlers are not for a loader.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            self._process = multiprocessing.get_context("fork").Process(
                target=_serve, args=(theirs, [*lanes, self.lane], load, os.getpid()), daemon=True)
            self._process.start()
        except OSError:
            self.lane.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            theirs.close()

    def waits(self):
        return len(self._asked)

    def has(self, step, samples):
        return (step, samples) in self._asked

    def ask(self, step, seed, samples):
        """Unless it has enough to do."""
        if len(self._asked) == _MOST_WAITING:
            return
        request = _REQUEST.pack(step, seed) + struct.pack(f"<{len(samples)}Q", *samples)
        try:
            self.lane.send(request, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            pass  # it is gone: told where something is taken
        self._asked.append((step, samples))

    def forget(self, step):
        """What it has read of steps before this one, which nobody took."""
        try:
            while self._asked and self._asked[0][0] < step:
                self._answer(socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass

    def take(self, step, samples):
        """[batch], or []; what was asked before is forgotten."""
        while True:
            asked, answer = self._asked[0], self._answer()
            if asked == (step, samples):
                break
        if answer is None:
            return []
        try:
            return [_load(*answer)]
        except Exception:  # pylint: disable=broad-except  # whatever a class of the script's makes of it
            return []

    def _answer(self, flags=0):
        """(memory, place, size), or None."""
        try:
            data, files, _, _ = socket.recv_fds(self.lane, _ANSWER.size, 1, flags | socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            raise
        except OSError:
            data, files = b"", []
        if not data:
            self.lane.close()
            self._process.join()
            code = self._process.exitcode  # None: somebody else has heard of its end
            raise _Gone(f"was killed by signal {-code}" if (code or 0) < 0 else f"ended with status {code}")
        self._asked.popleft()
        if not files:
            return None
        try:
            return _mapped(files[0]), *_ANSWER.unpack(data)
        except OSError:
            return None
        finally:
            os.close(files[0])


# ---- in a loader --------------------------------------------------------------------------------------


def _serve(lane, others, load, parent):
    _libc.prctl(_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who trains
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    for other in others:
        other.close()
    torch.set_num_threads(1)  # others are not there in a fork
    while True:
        request = lane.recv(core.MOST_BYTES)
        if not request:
            return
        step, seed = _REQUEST.unpack_from(request)
        samples = list(struct.unpack_from(f"<{len(request) // 8 - 2}Q", request, _REQUEST.size))
        try:
            file, place, size = _saved(load(samples, seed, step))
            try:
                socket.send_fds(lane, [_ANSWER.pack(place, size)], [file])
            finally:
                os.close(file)
        except Exception:  # pylint: disable=broad-except  # raised again where the samples are wanted
            lane.send(_ANSWER.pack(0, 0))


# ---- memory -------------------------------------------------------------------------------------------


class _NotPlain(Exception):
    """Would not come out as it went in."""


class _Pickler(pickle.Pickler):
    """Tensors and arrays leave their numbers outside, in `spans`: (address, bytes)."""

    def __init__(self, stream):
        super().__init__(stream, protocol=5)
        self.spans = []
        self._taken = []  # (first, last address), ascending

    def reducer_override(self, thing):
        if isinstance(thing, torch.Tensor):
            return self._tensor(thing)
        if isinstance(thing, numpy.ndarray) and thing.size and not thing.dtype.hasobject:
            return self._array(thing)
        return NotImplemented

    def _tensor(self, thing):
        plain = (type(thing) is torch.Tensor and thing.layout == torch.strided and thing.device.type == "cpu" and
                 thing.grad_fn is None and thing.grad is None and not (thing.is_quantized or thing.is_conj() or thing.is_neg() or
                                                                      thing.__dict__))
        if not plain:
            raise _NotPlain
        size = thing.element_size()
        place = self._place(thing.data_ptr(), thing.shape, [size * stride for stride in thing.stride()], size)
        return _tensor_at, (place, thing.dtype, tuple(thing.shape), thing.stride(), thing.requires_grad)

    def _array(self, thing):
        if type(thing) is not numpy.ndarray or not thing.flags.writeable or min(thing.strides, default=0) < 0:
            raise _NotPlain
        place = self._place(thing.ctypes.data, thing.shape, thing.strides, thing.itemsize)
        return _array_at, (place, thing.dtype, thing.shape, thing.strides)

    def _place(self, address, shape, strides, size):
        """A _Place of all that lies between the first element and the last."""
        if 0 in shape:
            return _Place(len(self.spans), 0)
        count = size + sum((extent - 1) * stride for extent, stride in zip(shape, strides))
        at = bisect.bisect(self._taken, (address, address))
        behind = self._taken[at][0] if at < len(self._taken) else address + count
        before = self._taken[at - 1][1] if at > 0 else address - 1
        if count > 2 * size * math.prod(shape) or address <= before or address + count > behind:
            raise _NotPlain  # with holes, or in the memory of another one
        self._taken.insert(at, (address, address + count - 1))
        self.spans.append((address, count))
        return _Place(len(self.spans) - 1, count)

    def persistent_id(self, thing):
        return thing.number if isinstance(thing, _Place) and thing.count else None


class _Place:
    """Of numbers that lie outside of the pickle; none where there are none."""

    def __init__(self, number, count):
        self.number, self.count = number, count


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream, places):
        super().__init__(io.BytesIO(stream))
        self._places = places

    def persistent_load(self, number):
        return self._places[number]


def _tensor_at(memory, dtype, shape, strides, requires_grad):
    flat = torch.empty(0, dtype=dtype) if isinstance(memory, _Place) else torch.frombuffer(memory, dtype=dtype)
    return flat.as_strided(shape, strides).requires_grad_(requires_grad)


def _array_at(memory, dtype, shape, strides):
    return numpy.ndarray(shape, dtype, memory, 0, strides)


def _saved(batch):
    """A memory file with a batch in it; where its pickled part begins, and how long it is."""
    stream = io.BytesIO()
    pickler = _Pickler(stream)
    pickler.dump(batch)
    parts, places, end = [], [], 0
    for address, count in pickler.spans:
        gap = (address - end) % _ALIGNMENT
        parts += [bytes(gap), (ctypes.c_char * count).from_address(address)]
        places.append((end + gap, count))
        end += gap + count
    rest = pickle.dumps((stream.getvalue(), places))
    return core.memory_file("batch", [*parts, rest]), end, len(rest)


def _mapped(file):
    """All of a memory file, without a descriptor that stays."""
    size = os.fstat(file).st_size
    address = _libc.mmap(None, size, 3, 1, file, 0)  # to read and to write, shared
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "mmap")
    memory = (ctypes.c_char * size).from_address(address)
    weakref.finalize(memory, _libc.munmap, address, size).atexit = False
    return memory


def _load(memory, place, size):
    whole = memoryview(memory).cast("B")
    stream, places = pickle.loads(whole[place:place + size])
    return _Unpickler(stream, [whole[begin:begin + count] for begin, count in places]).load()

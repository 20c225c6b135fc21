"""What a storm does to a training cluster: one class a kind of fault.

inject() does it and plans its end with the storm's `later` and `when`; it returns the name of the
worker that it hit ("" for the coordinator), or None where it cannot be done now.
"""
import contextlib
import os
import signal

import grpc

import proxy
import training  # noqa: I001  first: it finds tests/integration
import scripts


class Fault:
    kind = ""
    weight = 1
    loses = False    # the worker drops out of the ring, so a regroup names it
    breaks = False   # the ring breaks, though everybody in it may live
    longest = 10.0   # seconds until its end, for a test of it alone
    calm = 0.0       # seconds without any fault that a storm leaves before it

    def inject(self, storm):
        raise NotImplementedError


class Kill(Fault):
    kind, weight, loses = "kill", 6, True

    def inject(self, storm):
        slot = storm.victim()
        if slot is None:
            return None
        slot.process.kill()
        storm.start_again(storm.random.choice((0.0, 0.0, 1.0)), slot)
        return slot.name


class KillTwo(Fault):
    """Two at once: neighbours, as often as not."""
    kind, loses = "kill_two", True

    def inject(self, storm):
        first, second = storm.victim(spare=2), None
        if first is not None:
            second = storm.victim(spare=2, but=first)
        if second is None:
            return None
        for slot in (first, second):
            slot.process.popen.kill()
        for slot in (first, second):
            slot.process.popen.wait(20)
            storm.start_again(0.0, slot)
        return first.name


class KillAll(Fault):
    """Nobody holds the state any more: the job goes back to its newest checkpoint."""
    kind, loses, longest, calm = "kill_all", True, 20.0, 5.0

    def inject(self, storm):
        # A job without any checkpoint would begin again, which is correct and slow.
        if not storm.training.observer.status.HasField("checkpoint"):
            return None
        slots = [slot for slot in storm.slots() if slot.alive() and not slot.paused]
        for slot in slots:
            slot.process.popen.kill()
        for slot in slots:
            slot.process.popen.wait(20)
            storm.start_again(0.0, slot)
        return slots[0].name if slots else None


class KillClass(Fault):
    """All workers of a numerics class at once, which come back some seconds later: their shards wait, or the other
    class takes them over."""
    kind, weight, loses, longest = "kill_class", 2, True, 20.0

    def inject(self, storm):
        victim = storm.victim()
        if victim is None:
            return None
        members = [slot for slot in storm.slots() if slot.how is victim.how and slot.alive()]
        if not all(slot.whole() for slot in members) or all(slot in members for slot in storm.settled()):
            return None  # somebody of it is on the way out, or nobody else has the state
        seconds = storm.random.uniform(1, 4)
        for slot in members:
            slot.process.popen.kill()
        for slot in members:
            slot.process.popen.wait(20)
            storm.start_again(seconds, slot)
        return victim.name


class Pause(Fault):
    seconds = 0.0

    def inject(self, storm):
        slot = storm.victim()
        if slot is None:
            return None
        process = slot.process
        process.signal(signal.SIGSTOP)
        slot.paused = True

        def go_on():
            process.signal(signal.SIGCONT)
            slot.paused = False
        storm.later(self.seconds, go_on)
        return slot.name


class PauseShort(Pause):
    """Shorter than any limit: nobody may be lost."""
    kind, weight, seconds = "stop_0.2s", 2, 0.2


class Pause2(Pause):
    kind, weight, seconds, loses = "stop_2s", 3, 2.0, True


class Pause30(Pause):
    kind, seconds, loses, longest = "stop_30s", 30.0, True, 40.0


class Terminate(Fault):
    """SIGTERM: the worker leaves at a step boundary and ends with 0; then it comes back."""
    kind, weight, loses, longest = "sigterm", 2, True, 20.0

    def inject(self, storm):
        slot = storm.victim()
        # The ring may still name the process before: one that only starts does not listen to signals.
        if slot is None or " attached" not in slot.process.log():
            return None
        process = slot.process
        process.popen.terminate()
        slot.drained = slot.returns = True

        def ended():
            if process.running():
                return False
            if process.popen.returncode != 0:
                storm.complain(f"{process.name} ended with {process.popen.returncode} on SIGTERM")
            storm.training.start_worker(slot.name)
            return True
        storm.when(ended, f"{slot.name} ends on SIGTERM", limit=30.0)
        return slot.name


class Drain(Fault):
    """DrainWorker, and DrainWorker(resume) some seconds later."""
    kind, weight, loses, longest = "drain", 2, True, 20.0

    def inject(self, storm):
        slot = storm.victim()
        if slot is None:
            return None
        client = storm.client
        try:
            client.drain(slot.name)
        except grpc.RpcError as error:  # its session may just be broken
            if error.code() not in (*training.UNREACHABLE, grpc.StatusCode.NOT_FOUND):
                raise
            return None
        slot.drained = True
        process = slot.process

        def resumed():
            if slot.process is not process:  # it was started again: then it is not drained any more
                return True
            try:
                client.drain(slot.name, resume=True)
            except grpc.RpcError as error:
                if error.code() in training.UNREACHABLE:
                    return False
                if error.code() != grpc.StatusCode.NOT_FOUND:  # of a worker that is not attached now
                    raise
                return False
            slot.drained = False
            return True
        storm.later(storm.random.uniform(1, 3),
                    lambda: storm.when(resumed, f"{slot.name} takes jobs again", limit=30.0))
        return slot.name


class KillCoordinator(Fault):
    kind, weight, longest = "coordinator_kill", 3, 15.0

    def inject(self, storm):
        coordinator = storm.training.cluster.coordinator
        if storm.coordinator_disturbed or not coordinator.running():
            return None
        coordinator.kill()
        storm.coordinator_disturbed = True

        def start():
            storm.training.restart_coordinator()
            storm.when(storm.coordinator_answers, "the coordinator answers again", limit=30.0)
        storm.later(storm.random.choice((0.0, 1.0)), start)
        return ""


class PauseCoordinator(Fault):
    kind, longest = "coordinator_stop_2s", 15.0

    def inject(self, storm):
        coordinator = storm.training.cluster.coordinator
        if storm.coordinator_disturbed or not coordinator.running():
            return None
        coordinator.signal(signal.SIGSTOP)
        storm.coordinator_disturbed = True

        def go_on():
            coordinator.signal(signal.SIGCONT)
            storm.when(storm.coordinator_answers, "the coordinator answers again", limit=30.0)
        storm.later(2.0, go_on)
        return ""


class Add(Fault):
    """One more worker, which is killed for good some seconds later."""
    kind, weight, longest = "add", 2, 20.0

    def inject(self, storm):
        slot = storm.training.slots.get(training.NEWCOMER)
        if slot is not None and (slot.alive() or slot.returns):
            return None
        storm.training.start_worker(training.NEWCOMER)
        slot = storm.training.slots[training.NEWCOMER]
        process = slot.process

        def kill():
            if not slot.drained:  # else it is leaving by itself
                process.kill()
        storm.later(storm.random.uniform(4, 10), kill)
        return training.NEWCOMER


class Network(Fault):
    """Of what lies between workers, or between a worker and the coordinator: needs its proxies."""
    seconds = 0.0
    session = False

    def begin(self, link):
        raise NotImplementedError

    def end(self, link):
        pass

    def inject(self, storm):
        slot = storm.victim(proxied=True)
        if slot is None:
            return None
        link = slot.session if self.session else slot.ring
        if link is None or link.connections == 0:
            return None
        self.begin(link)
        storm.later(self.seconds, lambda: self.end(link))
        return slot.name


class Delay(Network):
    kind, weight, seconds = "link_delay_50ms", 2, 2.0

    def begin(self, link):
        link.delay(0.05)

    def end(self, link):
        link.delay(0.0)


class Reset(Network):
    kind, weight, breaks = "link_reset", 2, True

    def begin(self, link):
        link.reset()


class Corrupt(Network):
    """One bit of what a worker's predecessor sends it."""
    kind, weight, seconds, breaks = "link_corrupt", 2, 3.0, True

    def begin(self, link):
        link.corrupt(1)

    def end(self, link):
        link.corrupt(0)


class Silent(Network):
    kind, seconds, breaks = "link_silent_2s", 2.0, True

    def begin(self, link):
        link.stall(proxy.FORWARD, proxy.BACKWARD)

    def end(self, link):
        link.stall()


class OneWay(Silent):
    """Frames do not arrive; what goes back does."""
    kind = "link_one_way_2s"

    def begin(self, link):
        link.stall(proxy.FORWARD)


class SessionReset(Reset):
    kind, session, breaks = "session_reset", True, False


class SessionSilent(Silent):
    """The ring is whole, but the coordinator hears nothing of one member."""
    kind, session, loses, breaks = "session_silent_2s", True, True, False


class KillChild(Fault):
    """A process that computes for a member: it costs the shard in hand alone, and no generation."""
    kind, weight = "kill_child", 6

    @staticmethod
    def pids(worker):
        return scripts.computing_for(worker)

    def inject(self, storm):
        slot = storm.victim(spare=0)
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ends by itself just now
            pids = sorted(self.pids(slot.process.popen.pid)) if slot else []
            if pids:
                os.kill(storm.random.choice(pids), signal.SIGKILL)
                return slot.name
        return None


class KillZygote(KillChild):
    """What they are forks of, and they with it."""
    kind, weight = "kill_zygote", 2

    @staticmethod
    def pids(worker):
        return scripts.zygotes_of(worker)


ALL = (Kill, KillTwo, KillAll, PauseShort, Pause2, Pause30, Terminate, Drain, KillCoordinator,
       PauseCoordinator, Add, Delay, Reset, Corrupt, Silent, OneWay, SessionReset, SessionSilent)
MIXED = (*ALL, KillClass)  # of a job that mixes classes
SCRIPT = (*ALL, KillChild, KillZygote)  # of a job of a script

"""Certificates and the authority that signs them change while jobs run: certificates of a minute through a run
in which a worker and the coordinator are killed, a new authority in the middle of another, and hosts that come
back when theirs have ended. RINGMASTER_ROTATION_SECONDS is how long the first two take: 600 for the whole of the
first one, 3600 for the whole of the second."""
import datetime
import os
import re
import shutil
import signal
import subprocess
import time

import cluster  # noqa: I001  before grpc
import grpc

import forger
import two_hosts
from two_hosts import INSIDE, OUTSIDE, outcome

setUpModule = two_hosts.set_up

SECONDS = int(os.environ.get("RINGMASTER_ROTATION_SECONDS", "120"))
STEP_MS = 200  # with a closed gate
STEPS_PER_EPOCH = 3
LIFE = 30  # seconds; the least that --certificate-life takes
NAMES = "abcdefgh"  # of workers that nobody refuses anything
WHO_AM_I = "/ringmaster.v1.Access/WhoAmI"


def job_of(seconds):
    """One that takes so long at least while its gate is closed."""
    epochs = -(-seconds * 1000 // (STEP_MS * STEPS_PER_EPOCH))
    return cluster.job_spec(name="rotated", epochs=epochs, workers={"min": 1, "max": 2})


def end_of(certificate):
    """When a certificate ends, and by whom it is signed."""
    said = subprocess.run(["openssl", "x509", "-in", certificate, "-noout", "-enddate", "-ext",
                           "authorityKeyIdentifier"], capture_output=True, text=True, check=True).stdout
    date, *rest = said.splitlines()
    end = datetime.datetime.strptime(date.split("=")[1], "%b %d %H:%M:%S %Y %Z").replace(tzinfo=datetime.timezone.utc)
    return end, rest[-1].strip()


def key_of(authority):
    said = subprocess.run(["openssl", "x509", "-in", authority, "-noout", "-ext", "subjectKeyIdentifier"],
                          capture_output=True, text=True, check=True).stdout
    return said.splitlines()[-1].strip()


class Rotating(two_hosts.Hosts):
    """Whose certificates are short."""

    def __init__(self, *flags):
        super().__init__()
        self.flags = flags

    def spawn(self, name, arguments, prefix=()):
        return super().spawn(name, [*arguments, *(self.flags if name == "ringmaster" else ())], prefix)

    def certificate(self, name):
        return self.state(name) / "pki" / "certificate.pem"

    def authorities(self):
        return self.json("authority", "ls")["authorities"]

    def restart(self, name, host):
        """Of a worker, with kill -9."""
        self.workers[name].kill()
        self.start_certified(name, host)

    def restart_coordinator(self):
        self.coordinator.kill()
        self.start_coordinator()


class RotationTest(two_hosts.HostsTest):
    def setUp(self):
        self.begin(f"{LIFE}s")

    def begin(self, life, *flags):
        self.cluster = Rotating("--certificate-life", life, *flags)
        self.addCleanup(lambda: self.cluster.destroy(self._failed()))
        self.cluster.make_data()

    def wait_for(self, seconds, what, begun):
        cluster.wait_until(lambda: (datetime.datetime.now() - begun).total_seconds() >= seconds, what, seconds + 5)

    def check_no_gap(self, job, kills, forged=False):
        """Nobody was refused anything, and the ring changed as often as somebody was killed, and no oftener.
        `forged`: but for a certificate that the test itself showed."""
        running = self.cluster
        audit = running.json("audit", "-n", 1000)["entries"]
        self.assertEqual([entry for entry in audit if entry["result"] != "ok"], [])
        for process in running.processes:
            if process.name.split("-", 1)[1] not in ("ringmaster", *NAMES):
                continue
            for word in ("cannot be renewed", "REVOKED", "UNAUTHENTICATED", "NOT_AUTHENTICATED",
                         *(() if forged else ("certificate verify",))):
                lines = [line for line in process.log().splitlines() if word in line]
                # While the coordinator is away nobody renews.
                away = [line for line in lines if word == "cannot be renewed" and "onnect" in line]
                self.assertEqual(lines, away, process.name)
        said = "".join(process.log() for process in running.processes if process.name.endswith("-ringmaster"))
        lost = [line for line in said.splitlines() if " was lost: " in line]
        self.assertEqual(len(lost), kills, "\n".join(lost))
        # Shards move on a host that has other things to do, too, and who was left out as it was slow joins again.
        joined = re.findall(r" fences generation \S+: \w+ joins$", said, re.MULTILINE)
        moves = said.count(": shards follow speed: ") + min(len(joined), said.count(" is left out: "))
        regroups = [line for line in said.splitlines() if " Regrouped: " in line or " fences generation " in line]
        self.assertLessEqual(said.count(f" info job={job} Regrouped: ") - moves, 2 * kills + 1, "\n".join(regroups))

    def test_certificates_of_a_minute_through_a_run(self):
        running = self.cluster
        if SECONDS >= 300:
            running.flags = ("--certificate-life", "60s")
        life = 60 if SECONDS >= 300 else LIFE
        [gate] = running.gates("", milliseconds=STEP_MS)  # at every step
        running.start_pair()
        spec = job_of(SECONDS)
        job = running.submit(spec)
        running.wait_ring(job, "a", "b")
        begun = datetime.datetime.now()
        first = {name: end_of(running.certificate(name)) for name in "ab"}
        self.wait_for(SECONDS // 3, "a third", begun)
        running.restart("b", OUTSIDE)
        running.wait_ring(job, "a", "b")
        self.wait_for(2 * SECONDS // 3, "two thirds", begun)
        running.restart_coordinator()
        cluster.wait_until(lambda: set(running.attached()) == {"a", "b"}, "both attach again")
        running.wait_ring(job, "a", "b")
        self.wait_for(SECONDS, "the run", begun)
        self.assertEqual(running.status(job)["state"], "RUNNING")
        gate.open()
        self.check_end(job, spec)
        renewals = [entry["who"] for entry in running.json("audit", "-n", 1000)["entries"] if entry["what"] == "renew"]
        least = SECONDS * 3 // (life * 2) - 1
        for name in "ab":
            self.assertGreaterEqual(renewals.count(f"worker/{name}"), least)
            self.assertGreater(end_of(running.certificate(name))[0], first[name][0])
        print(f"{SECONDS} s with certificates of {life} s: {len(renewals)} renewals", flush=True)
        self.check_no_gap(job, 1)
        running.stop()

    def test_an_authority_after_the_other_under_eight_workers(self):
        running = self.cluster
        running.flags = ("--certificate-life", f"{LIFE}s", "--authority-overlap", f"{2 * LIFE}s")
        [gate] = running.gates("", milliseconds=STEP_MS)
        running.start_coordinator()
        for name in NAMES:
            host = INSIDE if name < "e" else OUTSIDE
            running.start_certified(name, host, running.token("--name", name))
        spec = {**job_of(SECONDS), "workers": {"min": 1, "max": len(NAMES)}}
        job = running.submit(spec)
        running.wait_ring(job, *NAMES)
        begun = time.monotonic()
        rotations, renewals = 0, set()
        while rotations == 0 or time.monotonic() < begun + SECONDS - 2.5 * LIFE:
            [old] = running.authorities()
            of_a = running.credentials_of("a")
            running.ringctl("authority", "rotate")
            cluster.wait_until(lambda: all(one["id"] != old["id"] for one in running.authorities()), "the overlap ends",
                               3 * LIFE)
            cluster.wait_until(lambda: not (running.pki / "next").exists(), "its folder is tidied")
            rotations += 1
            with of_a.channel(running.network) as channel:
                self.assertEqual(outcome(channel, WHO_AM_I)[0], grpc.StatusCode.UNAVAILABLE, "a leaf of before")
            for name in NAMES:
                self.assertEqual(end_of(running.certificate(name))[1], key_of(running.pki / "ca.pem"))
            entries = running.json("audit", "-n", 1000)["entries"]
            self.assertEqual([entry for entry in entries if entry["result"] != "ok"], [])
            renewals |= {entry["number"] for entry in entries if entry["what"] == "renew"}
        self.assertEqual(running.status(job)["state"], "RUNNING")
        gate.open()
        self.check_end(job, spec, max(120, SECONDS / 2))  # thousands of steps, on a busy host
        print(f"{time.monotonic() - begun:.0f} s: {rotations} authorities, {len(renewals)} certificates", flush=True)
        self.check_no_gap(job, 0, forged=True)
        running.stop()

    def test_a_new_authority_in_the_middle_of_a_run(self):
        running = self.cluster
        running.flags = ("--certificate-life", f"{LIFE}s", "--authority-overlap", f"{2 * LIFE}s")
        [gate] = running.gates("", milliseconds=STEP_MS)
        running.start_pair()
        running.start_certified("off", INSIDE, running.token("--name", "off"))
        self.assertEqual(running.workers["off"].stop(), 0)
        before = running.token("--ttl", "1h", "--uses", 2)
        stolen = forger.Authority(running.new_path("key"), running.new_path("ca"))
        shutil.copy(running.pki / "ca.key", stolen.key)
        shutil.copy(running.pki / "ca.pem", stolen.certificate)
        made = forger.Forger(running.folder / "forged", running.folder / "both")
        spec = job_of(2 * LIFE)
        job = running.submit(spec)
        running.wait_ring(job, "a", "b")

        [old] = running.authorities()
        rotated = running.json("authority", "rotate")["authorities"]
        self.assertEqual([(one["id"] == old["id"], one["signs"]) for one in rotated], [(True, True), (False, False)])
        new = rotated[1]
        again = running.ringctl("authority", "rotate", expect=cluster.OTHER)
        self.assertIn(f"authority {new['id']} is taking the place of {old['id']}", again.stderr)
        (running.folder / "both").write_bytes((running.pki / "ca.pem").read_bytes() +
                                              (running.pki / "next" / "ca.pem").read_bytes())
        cluster_id = (running.pki / "cluster-id").read_text().strip()
        leaf = made.leaf(stolen, f"spiffe://{cluster_id}/worker/a")

        def of_the_old_one():
            with leaf.channel(running.network) as channel:
                return outcome(channel, WHO_AM_I)[0]
        self.assertEqual(of_the_old_one(), grpc.StatusCode.OK)
        self.assertEqual(running.token().split("/")[1:2], before.split("/")[1:2])
        self.assertNotEqual(running.token().split("/")[2], before.split("/")[2])

        # The second half, in which the new one signs, and tokens of before are still good.
        cluster.wait_until(lambda: running.authorities()[0]["id"] == new["id"], "the new one signs", LIFE + 10)
        self.assertEqual(of_the_old_one(), grpc.StatusCode.OK)
        cluster.wait_until(lambda: [entry["what"] for entry in running.audit()].count("authority") == 2, "its audit", 10)
        running.restart_coordinator()
        self.assertEqual([one["id"] for one in running.authorities()], [new["id"], old["id"]])
        running.start_certified("c", OUTSIDE, join=["--join", before, "--name", "c"])
        self.assertEqual(running.workers["c"].stop(), 0)

        # Then the old one is worth nothing.
        cluster.wait_until(lambda: [one["id"] for one in running.authorities()] == [new["id"]], "the overlap ends",
                           LIFE + 10)
        cluster.wait_until(lambda: of_the_old_one() == grpc.StatusCode.UNAVAILABLE, "its leaf is refused", 10)
        self.assertFalse((running.pki / "next").exists())
        for name in "ab":
            self.assertEqual(end_of(running.certificate(name))[1], key_of(running.pki / "ca.pem"))
        late = running.start_certified("d", OUTSIDE, join=["--join", before, "--name", "d"], wait=False)
        self.assertNotEqual(late.wait(60), 0)
        self.assertIn("is not the cluster of this token: its authority is " + new["id"], late.log())
        off = running.start_certified("off", INSIDE, wait=False)
        self.assertNotEqual(off.wait(60), 0)
        self.assertIn("it cannot be renewed: ", off.log())
        self.assertIn(f"its authority is {new['id']}, the certificate's is {old['id']}", off.log())
        self.assertIn("start it once with --join TOKEN", off.log())
        gate.open()
        self.check_end(job, spec)
        said = [entry["what"] for entry in running.audit() if "authority" in entry["what"]]
        self.assertEqual(said, ["authority rotate", "authority", "authority", "authority"])
        self.check_no_gap(job, 0, forged=True)
        running.stop()

    def test_a_renewal_of_a_coordinator_that_was_busy(self):
        running = self.cluster
        running.start_coordinator()
        worker = running.start_certified("b", OUTSIDE, running.token("--name", "b"))
        end = end_of(running.certificate("b"))[0]
        # Around the renewal; a handshake is given up meanwhile.
        due = end - datetime.timedelta(seconds=LIFE / 3)

        def wait_until(moment, what):
            cluster.wait_until(lambda: datetime.datetime.now(datetime.timezone.utc) > moment, what, LIFE + 5)
        wait_until(due - datetime.timedelta(seconds=0.5), "the renewal is near")
        running.coordinator.signal(signal.SIGSTOP)
        wait_until(due + datetime.timedelta(seconds=4), "it was tried")
        running.coordinator.signal(signal.SIGCONT)
        cluster.wait_until(lambda: end_of(running.certificate("b"))[0] > end, "b renews", 5)
        self.assertIn("cannot be renewed", worker.log())
        wait_until(end + datetime.timedelta(seconds=1), "the old one ends")
        self.assertNotIn("session lost", worker.log())
        running.stop()

    def test_certificates_that_ended_are_renewed(self):
        running = self.cluster
        running.start_pair()
        for name in ("gone", "asleep"):
            running.start_certified(name, OUTSIDE, running.token("--name", name))
        home = {**os.environ, "XDG_CONFIG_HOME": str(running.new_path("config")), "RINGMASTER_COORDINATOR": ""}

        def person(*words):
            return subprocess.run([cluster.BIN / "ringctl", *words], env=home, capture_output=True, text=True,
                                  timeout=60, check=False)
        self.assertEqual(person("login", running.token("--name", "eva", role="viewer")).returncode, 0)
        for name in ("a", "gone"):
            self.assertEqual(running.workers[name].stop(), 0)
        running.ringctl("identity", "revoke", "gone", "--worker")
        running.workers["asleep"].signal(signal.SIGSTOP)
        ends = [end_of(running.certificate(name))[0] for name in ("a", "gone", "asleep")]
        over = max(ends) + datetime.timedelta(seconds=2)
        cluster.wait_until(lambda: datetime.datetime.now(datetime.timezone.utc) > over, "certificates end", LIFE + 10)

        running.workers["asleep"].signal(signal.SIGCONT)
        worker = running.start_certified("a", INSIDE)
        self.assertIn("it is renewed", worker.log())
        self.assertGreater(end_of(running.certificate("a"))[0], max(ends))
        cluster.wait_until(lambda: end_of(running.certificate("asleep"))[0] > max(ends), "who slept renews")
        cluster.wait_until(lambda: "asleep" in running.attached(), "and attaches")
        self.assertIn("viewer", person("whoami").stdout)
        gone = running.start_certified("gone", OUTSIDE, wait=False)
        self.assertNotEqual(gone.wait(), 0)
        for words in ("it cannot be renewed: the coordinator refused: worker/gone was revoked", "--join TOKEN"):
            self.assertIn(words, gone.log())
        self.assertIn(("worker/gone", "renew", "REVOKED"),
                      {(entry["who"], entry["what"], entry["result"]) for entry in running.audit()})
        self.check_job()
        running.stop()


if __name__ == "__main__":
    cluster.main(at_once=3)

"""Who may use a cluster on one host without a certificate: root and the daemons' own user, over loopback
and DATA_DIR/ringmaster.sock; members of --socket-group, over --socket; nobody else, whatever else this host
lets them do. Other users are 65534 and 12345 here, so that these tests need root."""
import json
import os
import shutil
import socket
import stat
import subprocess
import tempfile
import unittest
from pathlib import Path

import cluster  # noqa: I001  before grpc
import grpc

STRANGER = ("setpriv", "--reuid", "65534", "--regid", "12345", "--clear-groups")
MEMBER = ("setpriv", "--reuid", "65534", "--regid", "12345", "--groups", "23456")
JOB = cluster.job_spec(name="beside", workers={"min": 2, "max": 2})


@unittest.skipUnless(os.geteuid() == 0, "only root can be somebody else")
class LocalUsersTest(cluster.ClusterTest):
    def setUp(self):
        super().setUp()
        # Where other users find programs and sockets: the cluster's folder is nobody else's.
        self.public = Path(tempfile.mkdtemp(prefix="ringmaster-public-"))
        self.addCleanup(shutil.rmtree, self.public)
        self.public.chmod(0o755)
        shutil.copy(cluster.BIN / "ringctl", self.public)
        self.cluster.make_data()

    def start(self, *extra):
        self.cluster.start_coordinator(extra=extra)
        for name in ("a", "b"):
            self.cluster.start_worker(name)

    def ringctl_as(self, user, coordinator, *arguments):
        return subprocess.run([*user, self.public / "ringctl", *arguments, "--coordinator", coordinator],
                              capture_output=True, text=True, timeout=60, check=False)

    def refused_over_tcp(self, address):
        """What another user reads at a port who begins to speak HTTP/2; nothing but that comes."""
        script = ("import socket, sys; c = socket.create_connection((sys.argv[1], int(sys.argv[2])), 20);"
                  "c.settimeout(20); c.sendall(b'PRI * HTTP/2.0'); print(c.recv(4096).decode(), end='')")
        host, port = address.rsplit(":", 1)
        return subprocess.run([*STRANGER, "/usr/bin/python3", "-c", script, host, port], capture_output=True,
                              text=True, timeout=60, check=True).stdout

    def test_another_user_is_refused_by_name_while_a_job_trains(self):
        self.start()
        expected = self.cluster.run_job(JOB)["checkpoint"]["sha256"]
        job = self.cluster.submit(JOB)

        said = self.ringctl_as(STRANGER, self.cluster.address, "ps")
        self.assertEqual(said.returncode, cluster.OTHER, said.stderr)
        self.assertIn("refuses you: uid 65534 is neither root nor who this daemon runs as (uid 0)", said.stderr)
        for program in (self.cluster.coordinator.line("ringmaster listening on "),
                        self.cluster.workers["a"].line("ringworker a listening on ")):
            self.assertTrue(self.refused_over_tcp(program).startswith("HTTP/1.1 403 Forbidden\n"), program)
        self.assertIn("a connection from 127.0.0.1 was refused: uid 65534", self.cluster.coordinator.log())

        # Its own socket is behind a folder that is not theirs, and not theirs without it.
        own = self.cluster.folder / "coordinator" / "ringmaster.sock"
        self.assertEqual(stat.S_IMODE(own.stat().st_mode), 0o600)
        self.assertEqual(self.ringctl_as(STRANGER, f"unix:{own}", "ps").returncode, cluster.UNREACHABLE)

        status = self.cluster.wait(job)
        self.assertEqual(status["checkpoint"]["sha256"], expected)

    def test_the_owner_needs_no_port(self):
        own = f"unix:{self.cluster.folder}/coordinator/ringmaster.sock"
        self.cluster.start_coordinator()
        for name in ("a", "b"):
            self.cluster.start_worker(name, coordinator=own)
        self.cluster.address = own
        self.cluster.run_job(JOB)
        with grpc.insecure_channel(own) as channel:
            listed = channel.unary_unary("/ringmaster.v1.Jobs/List")(b"", timeout=30)
        self.assertIn(b"beside", listed)

    def test_members_of_a_group_share_a_socket(self):
        with open("/etc/group", encoding="utf-8") as groups:
            name = groups.readline().split(":")[0]  # root's, of which the stranger is made a member
        shared = self.public / "s"
        self.start("--socket", shared, "--socket-group", name)
        self.assertEqual(stat.S_IMODE(shared.stat().st_mode), 0o660)
        os.chown(shared, 0, 23456)  # and nobody else's: the kernel asks the file
        self.assertEqual(self.ringctl_as(STRANGER, f"unix:{shared}", "ps").returncode, cluster.UNREACHABLE)
        outside = self.ringctl_as(MEMBER, f"unix:{shared}", "ps")
        self.assertNotEqual(outside.returncode, cluster.OK)  # ... and the daemon asks for its own group
        os.chown(shared, 0, 0)
        member = (*STRANGER[:-1], "--groups", "0")
        done = self.ringctl_as(member, f"unix:{shared}", "workers", "-o", "json")
        self.assertEqual(done.returncode, cluster.OK, done.stderr)
        self.assertEqual({worker["name"] for worker in json.loads(done.stdout)["workers"]}, {"a", "b"})
        refused = self.ringctl_as(member, self.cluster.address, "ps")
        self.assertIn(f"members of group {name} connect to unix:{shared}", refused.stderr)

    def test_a_place_where_it_cannot_listen_is_named(self):
        squatter = socket.socket(socket.AF_UNIX)
        self.addCleanup(squatter.close)
        squatter.bind(str(self.public / "taken"))
        squatter.listen()
        (self.public / "file").write_text("mine")
        cases = (("taken", "another process listens there"), ("file", "which is no socket"),
                 ("missing/s", "No such file or directory"), ("x" * 120, "1 to 107 bytes"))
        for place, words in cases:
            with self.subTest(place[:10]):
                daemon = self.cluster.start_coordinator(extra=["--socket", self.public / place], wait=False)
                self.assertNotEqual(daemon.wait(), 0)
                self.assertIn("--socket", daemon.log())
                self.assertIn(words, daemon.log())
        self.assertEqual((self.public / "file").read_text(), "mine")
        daemon = self.cluster.start_coordinator(
            extra=["--socket", self.public / "s", "--socket-group", "no-such-group"], wait=False)
        self.assertNotEqual(daemon.wait(), 0)
        self.assertIn("this host has no group no-such-group", daemon.log())

    def seen_by_its_own_user(self, daemon):
        """Whether a process of the daemon's user reads what only a debugger may; else nobody gets its core, either."""
        pid = daemon.popen.pid
        seen = subprocess.run([*STRANGER, "head", "-c1", f"/proc/{pid}/environ"], capture_output=True, check=False)
        limits = Path(f"/proc/{pid}/limits").read_text(encoding="ascii")
        cores = next(line.split()[4] for line in limits.splitlines() if line.startswith("Max core file size"))
        self.assertEqual(cores == "0", seen.returncode != 0)
        return seen.returncode == 0

    def test_nobody_but_root_looks_into_a_process_that_has_keys(self):
        for program in ("ringmaster", "ringworker"):
            shutil.copy(cluster.BIN / program, self.public)
        home = self.public / "home"
        home.mkdir()
        os.chown(home, 65534, 12345)
        own = ("prlimit", "--core=1000000", *STRANGER, "setpriv", "--pdeathsig", "KILL")

        def coordinator(name, *extra):
            daemon = self.cluster.spawn(name, [self.public / "ringmaster", "--listen", "127.0.0.1:0", "--data-dir",
                                               home / name, *extra], own)
            return daemon, daemon.line("ringmaster listening on ")

        def worker(name, address, *extra):
            daemon = self.cluster.spawn(name, [
                self.public / "ringworker", "--coordinator", address, "--name", name, "--cores", 1, "--threads-per-core",
                1, "--memory-per-core", "4GiB", "--data-root", home, "--state-dir", home / name, *extra], own)
            daemon.line(f"ringworker {name} listening on ")
            return daemon
        shown, address = coordinator("debuggable", "--debuggable")
        self.assertTrue(self.seen_by_its_own_user(shown))
        hidden, address = coordinator("hidden")
        self.assertFalse(self.seen_by_its_own_user(hidden))
        self.assertTrue(self.seen_by_its_own_user(worker("without", address)))
        token = subprocess.run([self.public / "ringctl", "token", "create", "--role", "worker", "--name", "with",
                                "--coordinator", address], capture_output=True, text=True, timeout=60, check=True).stdout
        self.assertFalse(self.seen_by_its_own_user(worker("with", address, "--join", token.strip())))


if __name__ == "__main__":
    cluster.main()

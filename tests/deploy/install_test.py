"""The package on a system that runs systemd: installed, used, booted, upgraded, removed, purged.

The system is always a container (container.py), also where this host runs systemd itself: a test
installs nothing on the machine that it runs on.
"""
import json
import pathlib
import re
import shutil
import tempfile
import unittest

import container
import debian_package
from container import wait_until
from debian_package import DAEMONS

JOB_FILE = "/usr/share/ringmaster/examples/alexnet-cifar10.yaml"
OWN = re.compile(r"ringmaster|ringworker|ringctl")


class InstallTest(unittest.TestCase):
    """One life of an installation, as a story: each method is a chapter, in order."""

    def setUp(self):
        problem = container.why_not()
        if problem:
            raise unittest.SkipTest(f"no container with systemd can be made: {problem}")
        folder = pathlib.Path(tempfile.mkdtemp(prefix="ringmaster-install-"))
        self.addCleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        package = debian_package.make_package(folder)
        self.host = container.Container()
        self.addCleanup(lambda: self.host.destroy(self._failed()))
        shutil.copy(package, self.host.root / "root/package.deb")
        self.host.boot()

    def _failed(self):
        # unittest has no public way to ask in a cleanup, and _outcome.success begins anew there.
        result = self._outcome.result
        return any(test is self for test, _ in [*result.failures, *result.errors])

    # ---- questions ------------------------------------------------------------------------------

    def ringctl(self, *arguments, **options):
        return json.loads(self.host.run("ringctl", *arguments, "-o", "json", **options).stdout)

    def wait_for_worker(self):
        """The one worker, once it is attached."""
        def attached():
            done = self.host.run("ringctl", "workers", "-o", "json", check=False)
            return done.returncode == 0 and json.loads(done.stdout)["workers"]
        return wait_until(attached, "a worker is attached", 30)[0]

    def show(self, daemon, name):
        return self.host.run("systemctl", "show", "--value", "-p", name, daemon).stdout.strip()

    def assert_running(self):
        for daemon in DAEMONS:
            self.assertEqual(self.show(daemon, "ActiveState"), "active", daemon)
            owner = self.host.run("stat", "-c", "%U", f"/proc/{self.show(daemon, 'MainPID')}").stdout
            self.assertEqual(owner.strip(), daemon)

    def traces(self):
        """What of the package is on the system's disk, but for logs, and its lines in user databases."""
        found = self.host.run("find", "/etc", "/usr", "/var", "/run", "-xdev", "(", "-path", "/var/log",
                              "-o", "-path", "/var/cache/apt", ")", "-prune", "-o", "-name", "*ring*",
                              "-print").stdout
        users = self.host.run("getent", "passwd").stdout + self.host.run("getent", "group").stdout
        lines = [*found.splitlines(), *users.splitlines()]
        return {line for line in lines if OWN.search(line)}

    # ---- chapters -------------------------------------------------------------------------------

    def test_a_life_of_an_installation(self):
        before = self.traces()
        self.install()
        job = self.train()
        self.daemons_come_back_after_a_crash()
        self.wrong_flags_are_not_tried_again()
        self.daemons_start_at_boot(job)
        self.settings_survive_an_upgrade()
        self.remove(job)
        self.purge(before)

    def install(self):
        self.host.run("apt-get", "install", "-y", "-q", "/root/package.deb",
                      env={"DEBIAN_FRONTEND": "noninteractive"}, timeout=120)
        self.assertEqual(self.wait_for_worker()["state"], "free")
        self.assert_running()
        for daemon in DAEMONS:
            enabled = self.host.run("systemctl", "is-enabled", daemon).stdout.strip()
            self.assertEqual(enabled, "enabled")
            self.assertEqual(self.host.run("stat", "-c", "%U %a", f"/var/lib/{daemon}").stdout.strip(),
                             f"{daemon} 750")

    def train(self):
        """The example job in one short epoch; its id."""
        self.host.run("ringctl", "dataset", "make", "cifar10", "/var/lib/ringworker/data/cifar10",
                      "--train", 256, "--test", 64)
        job = self.ringctl("submit", JOB_FILE, "--set", "epochs=1", "--set", "batch=64")["job_id"]
        status = self.ringctl("wait", job, "--timeout", "90s", check=False, timeout=120)
        self.assertEqual(status["state"], "SUCCEEDED", status["reason"])
        self.assertTrue(status["checkpoint"]["path"].startswith("/var/lib/ringmaster/"))
        manifest = f"{status['checkpoint']['path']}/manifest.json"
        self.assertEqual(self.host.run("sha256sum", manifest).stdout.split()[0],
                         status["checkpoint"]["sha256"])
        return job

    def daemons_come_back_after_a_crash(self):
        for daemon in DAEMONS:
            self.host.run("systemctl", "kill", "--signal=KILL", daemon)
        for daemon in DAEMONS:
            wait_until(lambda name=daemon: self.show(name, "NRestarts") == "1", f"{daemon} again", 20)
        self.wait_for_worker()
        self.assert_running()

    def wrong_flags_are_not_tried_again(self):
        settings = self.host.root / "etc/ringmaster/ringworker.env"
        shown = settings.read_text()
        self.host.run("sh", "-c", "echo RINGWORKER_OPTIONS=--nonsense >>/etc/ringmaster/ringworker.env")
        self.host.run("systemctl", "restart", "ringworker", check=False)
        wait_until(lambda: self.show("ringworker", "ActiveState") == "failed", "ringworker fails", 20)
        self.assertEqual(self.show("ringworker", "ExecMainStatus"), "2")
        self.assertIn("--nonsense", self.host.run("journalctl", "-u", "ringworker", "-b").stdout)
        # Right ones are used, and stay for the chapters that follow.
        self.host.run("sh", "-c", "cat >/etc/ringmaster/ringworker.env <<'END'\n"
                      f"{shown}RINGWORKER_OPTIONS=--name renamed --memory-per-core 2GiB\nEND")
        self.host.run("systemctl", "restart", "ringworker")
        wait_until(lambda: self.wait_for_worker()["name"] == "renamed", "the new name", 20)

    def daemons_start_at_boot(self, job):
        self.host.shut_down()
        self.host.boot()
        self.assertEqual(self.wait_for_worker()["name"], "renamed")
        self.assert_running()
        self.assertEqual(self.ringctl("status", job)["state"], "SUCCEEDED")

    def settings_survive_an_upgrade(self):
        self.host.run("systemctl", "disable", "ringworker")
        pids = [self.show(daemon, "MainPID") for daemon in DAEMONS]
        self.host.run("dpkg", "--install", "/root/package.deb")
        self.assertEqual(self.wait_for_worker()["name"], "renamed")
        self.assertNotEqual(pids, [self.show(daemon, "MainPID") for daemon in DAEMONS])
        disabled = self.host.run("systemctl", "is-enabled", "ringworker", check=False).stdout.strip()
        self.assertEqual(disabled, "disabled")

    def remove(self, job):
        self.host.run("apt-get", "remove", "-y", "-q", "ringmaster", timeout=120)
        for daemon in DAEMONS:
            journal = self.host.run("journalctl", "-u", daemon, "-b", "-o", "cat").stdout
            self.assertIn(f"{daemon}.service: Deactivated successfully.", journal)
            self.assertFalse((self.host.root / "usr/bin" / daemon).exists())
        self.assertTrue((self.host.root / "etc/ringmaster/ringworker.env").exists())
        self.assertIn(job, self.host.run("ls", "-R", "/var/lib/ringmaster").stdout)

    def purge(self, before):
        self.host.run("dpkg", "--purge", "ringmaster")
        self.assertEqual(self.traces(), before)


if __name__ == "__main__":
    debian_package.main()

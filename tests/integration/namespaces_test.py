"""Hosts as network namespaces: what goes between them has TLS, and its results are those of one host."""
import os
import subprocess

import cluster
import private

SWITCH = None


def setUpModule():
    global SWITCH  # pylint: disable=global-statement
    private.enter()
    SWITCH = private.Switch(["a", "b"])


class NamespacesTest(cluster.ClusterTest):
    def test_a_ring_across_two_namespaces_gives_the_checkpoint_of_one_host(self):
        running = self.cluster
        job = cluster.job_spec(model={"name": "alexnet", "batch_norm": True, "dropout": 0.2},
                               epochs=1)
        running.make_data()
        running.start_coordinator()
        running.start_worker("alone", cores=2)
        expected = running.run_job(job)["checkpoint"]["sha256"]
        running.stop()

        across = cluster.Cluster(host=SWITCH.ADDRESS)
        self.addCleanup(lambda: across.destroy(self._failed()))
        across.make_data()
        across.start_coordinator()
        for name, address in SWITCH.hosts.items():
            across.start_worker(name, listen=f"{address}:0", advertise=address, prefix=SWITCH.prefix(name))
        across.check_tls()
        self.assertEqual({worker["ring_address"].rsplit(":", 1)[0] for worker in across.attached().values()},
                         set(SWITCH.hosts.values()))
        status = across.run_job({**job, "workers": {"min": 2, "max": 2}})
        self.assertEqual(status["checkpoint"]["sha256"], expected)
        self.assertTrue(all(worker["ring_bytes"] > 0 for worker in status["workers"]))
        across.stop()

    def away(self, *arguments):
        """ringctl on host a, of a person of their own."""
        return subprocess.run(
            [*SWITCH.prefix("a"), cluster.BIN / "ringctl", *arguments], capture_output=True, text=True,
            timeout=60 * cluster.SLOW, check=False,
            env={**os.environ, "XDG_CONFIG_HOME": str(self.cluster.folder / "config")})

    def test_up_off_loopback_is_reached_by_its_socket_and_by_whoever_has_logged_in(self):
        running = self.cluster
        running.make_data()
        network = f"{SWITCH.ADDRESS}:{cluster.free_port()}"
        up = running.spawn("up", [
            cluster.BIN / "ringctl", "up", "--workers", 2, "--cores", 1, "--listen", network,
            "--data-root", running.data_root, "--data-dir", running.folder / "up"])
        running.address = up.line("ringctl up: coordinator ", timeout=60)
        self.assertEqual(running.address, f"unix:{running.folder}/up/ringmaster.sock")
        job = running.run_job(cluster.job_spec(workers={"min": 2}))["job_id"]

        stranger = self.away("ps", "--coordinator", network)
        self.assertEqual(stranger.returncode, cluster.OTHER)
        self.assertIn(f"not logged in at {network}", stranger.stderr)
        self.assertIn("`ringctl login TOKEN`", stranger.stderr)
        login = self.away("login", running.token("--name", "eva", role="viewer"))
        self.assertEqual(login.returncode, cluster.OK, login.stderr)
        known = self.away("ps")
        self.assertEqual(known.returncode, cluster.OK, known.stderr)
        self.assertIn(job, known.stdout)
        self.assertEqual(up.stop(), cluster.OK, up.log())


if __name__ == "__main__":
    cluster.main()

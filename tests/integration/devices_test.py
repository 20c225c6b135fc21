"""What workers' devices say of themselves in `ringctl workers`: a backend that has figures and needs no GPU."""
import os
import shutil

import cluster

PLUGIN = cluster.BIN / "libtest_plugin_two_devices.so"


class DevicesTest(cluster.ClusterTest):
    def setUp(self):
        super().setUp()
        # ringworker looks for a driver before it loads a backend for GPUs: any library will do.
        driver = self.cluster.folder / "driver"
        driver.mkdir()
        shutil.copy(PLUGIN, driver / "libcuda.so.1")
        self.cluster.environment = {
            "RINGMASTER_CUDA_LIBRARY": str(PLUGIN),
            "LD_LIBRARY_PATH": f"{driver}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
        self.cluster.start_coordinator()

    def devices(self, worker):
        return self.cluster.attached()[worker]["devices"]

    def test_the_devices_that_a_worker_uses_are_listed(self):
        self.cluster.start_worker("a", cores=2, extra=("--device", "cuda"))
        self.cluster.start_worker("b", cores=2, extra=("--device", "cuda:1"))
        self.cluster.start_worker("c", extra=("--device", "cpu"))
        nothing = dict.fromkeys(("utilization", "power", "power_limit"))
        beads = {"kind": "abacus", "memory_used_bytes": 3, "memory_total_bytes": 80, "temperature": 21, **nothing}
        first, second = ({**beads, "index": i, "name": f"Abacus {i}"} for i in (0, 1))
        cluster.wait_until(lambda: self.devices("a"), "a reports its devices")
        cluster.wait_until(lambda: self.devices("b"), "b reports its devices")
        self.assertEqual(self.devices("a"), [first, second])
        self.assertEqual(self.devices("b"), [second])
        self.assertEqual(self.devices("c"), [])
        self.assertIn("abacus:1", self.cluster.ringctl("workers").stdout)
        self.cluster.stop()

    def test_up_takes_the_devices_of_its_host(self):
        running = self.cluster
        self.assertEqual(running.coordinator.stop(), 0)
        running.environment["RINGMASTER_DEVICE"] = ""  # as where nobody says a device
        up = running.spawn("up", [
            cluster.BIN / "ringctl", "up", "--workers", 3, "--listen", "127.0.0.1:0", "--data-root",
            running.data_root, "--data-dir", running.folder / "up"])
        running.address = up.line("ringctl up: coordinator ", timeout=60)
        self.assertIn("3 workers, each 1 core with ", up.log())
        cluster.wait_until(lambda: all(self.devices(f"worker-{i}") for i in (1, 2, 3)), "devices are reported")
        used = [[device["index"] for device in self.devices(f"worker-{i}")] for i in (1, 2, 3)]
        self.assertEqual(used, [[0], [1], [0]])
        self.assertEqual(up.stop(), 0)

    def test_a_device_that_hangs_holds_up_nothing(self):
        self.cluster.environment["RINGMASTER_TEST_ABACUS"] = "hangs"
        worker = self.cluster.start_worker("a", extra=("--device", "cuda"))
        cluster.wait_until(lambda: "the abacus hangs" in worker.log(), "a asks its device")
        self.assertEqual(self.devices("a"), [])
        self.cluster.ringctl("drain", "a", "--wait", "20s")
        self.assertEqual(worker.stop(), 0)
        self.assertIn("a device does not answer", worker.log())


if __name__ == "__main__":
    cluster.main()

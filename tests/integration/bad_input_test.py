"""Bad input gets a clear error and harms nothing: afterwards the daemons still serve."""
import shutil

import cluster  # noqa: I001  before grpc
import grpc

import ring_frames

RECORD = 3073  # bytes: a label and 32 x 32 x 3 pixels
FIRST_FILE = "data_batch_1.bin"

class BadInputTest(cluster.ClusterTest):
    def check_still_serving(self, *workers):
        """The same daemons run a good job to its end."""
        self.cluster.wait_free(*workers)
        for process in (self.cluster.coordinator, *self.cluster.workers.values()):
            self.assertTrue(process.running(), process.name)
        self.cluster.run_job(cluster.job_spec())
        self.cluster.stop()

    def check_failed(self, job, *words, timeout=60.0):
        status = self.cluster.wait(job, timeout)
        self.assertEqual(status["state"], "FAILED", status)
        for word in words:
            self.assertIn(word, status["reason"])
        return status

    def test_wrong_data_fail_the_job_and_name_the_file(self):
        with self.running() as running:
            good = running.data_root / "cifar10"

            def broken(name):
                shutil.copytree(good, running.data_root / name)
                return running.data_root / name / FIRST_FILE

            def submit(path, **changes):
                return running.submit(cluster.job_spec(data={"format": "cifar10", "path": path}, **changes))

            file = broken("truncated")
            file.write_bytes(file.read_bytes()[:-1])
            self.check_failed(submit("truncated"), FIRST_FILE, str(RECORD))

            file = broken("empty")
            file.write_bytes(b"")
            self.check_failed(submit("empty"), "empty")

            file = broken("label")
            content = bytearray(file.read_bytes())
            content[3 * RECORD] = 10
            file.write_bytes(content)
            self.check_failed(submit("label"), FIRST_FILE, "label", "10")

            for path in broken("missing").parent.glob("data_batch_*"):
                path.unlink()
            self.check_failed(submit("missing"), "missing")
            self.check_failed(submit("nowhere"), "nowhere")

            (running.data_root / "outside").symlink_to(running.folder / "coordinator")
            self.check_failed(submit("outside"), "outside")
            (running.data_root / "linked").mkdir()
            shutil.copy(good / "test_batch.bin", running.data_root / "linked")
            (running.folder / "secret.bin").write_bytes((good / FIRST_FILE).read_bytes())
            (running.data_root / "linked" / FIRST_FILE).symlink_to(running.folder / "secret.bin")
            self.check_failed(submit("linked"), FIRST_FILE)
            self.check_still_serving("a")

    def test_a_format_is_found_by_the_files_and_several_are_listed(self):
        with self.running() as running:
            (running.data_root / "cifar10").rename(running.data_root / "pictures")
            done = running.ringctl("run", "mlp", "--data", "pictures", "--batch", "24", "--steps", "2", "--set",
                                   "model.hidden=[8]")
            self.assertIn("data: {path: pictures}", done.stderr)
            job = done.stdout.split()[0]
            first = running.status(job)

            # What `spec` prints is the same job, to the byte.
            again = running.submit(running.ringctl("spec", job).stdout)
            self.assertEqual(running.wait(again)["checkpoint"]["sha256"], first["checkpoint"]["sha256"])
            self.assertEqual(running.status(again)["spec"], first["spec"])
            self.assertEqual(first["spec"]["seed"], 0)

            both = [entry["job_id"] for entry in running.json("status", job, again)]
            self.assertEqual(both, [job, again])

            (running.data_root / "pictures" / "train.bin").write_bytes(b"another format's")
            failed = running.submit(cluster.job_spec(data={"path": "pictures"}))
            self.check_failed(failed, "several formats: cifar10, cifar100", "data.format")
            (running.data_root / "pictures").rename(running.data_root / "cifar10")
            self.check_still_serving("a")

    def test_hosts_with_different_copies_of_the_data_are_named(self):
        running = self.cluster
        other = running.folder / "other"
        running.make_data(seed=0)
        running.make_data(seed=1, root=other)
        running.start_coordinator()
        running.start_worker("a")
        running.start_worker("b", data_root=other)
        job = running.submit(cluster.job_spec(workers={"min": 2}))
        self.check_failed(job, "a", "b", ".bin")
        running.workers.pop("b").stop()
        self.check_still_serving("a")

    def test_ports_addresses_and_binds(self):
        with self.running() as running:
            taken = running.spawn("second", [cluster.BIN / "ringmaster", "--listen", running.address,
                                             "--data-dir", running.folder / "second"])
            self.assertNotEqual(taken.wait(), 0)
            self.assertIn(running.address, taken.log())

            port = running.workers["a"].line("ringworker a listening on ")
            twin = running.start_worker("b", listen=port, wait=False)
            self.assertNotEqual(twin.wait(), 0)
            self.assertIn(port, twin.log())
            running.workers.pop("b")

            same = running.spawn("same-folder", [cluster.BIN / "ringmaster", "--listen", "127.0.0.1:0",
                                                 "--data-dir", running.folder / "coordinator"])
            self.assertNotEqual(same.wait(), 0)

            public = running.start_worker("public", listen="0.0.0.0:0", advertise="192.0.2.1", wait=False)
            self.assertNotEqual(public.wait(), 0)
            self.assertIn("has no certificate", public.log())
            self.assertIn("--join TOKEN", public.log())
            running.workers.pop("public")

            lost = running.start_worker("lost", coordinator="127.0.0.1:1", wait=False)
            cluster.wait_until(lambda: "127.0.0.1:1" in lost.log(), "a worker says whom it cannot reach")
            self.assertTrue(lost.running())
            running.workers.pop("lost").stop()

            address, running.address = running.address, "127.0.0.1:1"
            unreachable = running.ringctl("ps", expect=cluster.UNREACHABLE)
            self.assertIn("127.0.0.1:1", unreachable.stderr)
            running.address = port  # a gRPC server, but no coordinator
            running.ringctl("ps", expect=cluster.OTHER)
            running.address = address
            self.check_still_serving("a")

    def send_to_ring(self, address, frames, door="link"):
        """The status code with which a worker ends a stream of these raw frames."""
        options = [("grpc.http_connect_server", door)] if door else []
        with grpc.insecure_channel(address, options=options) as channel:
            link = channel.stream_stream("/ringmaster.v1.Ring/Link",
                                         request_serializer=bytes, response_deserializer=bytes)
            with self.assertRaises(grpc.RpcError) as refused:
                for _ in link(iter(frames), timeout=20):
                    pass
        self.assertTrue(refused.exception.details())
        return refused.exception.code()

    def test_garbage_and_old_generations_on_the_ring_port_change_nothing(self):
        refusals = {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION}
        with self.running(workers=(("a", 1), ("b", 1))) as running:
            ports = [running.workers[name].line(f"ringworker {name} listening on ") for name in "ab"]
            spec = cluster.job_spec(workers={"min": 2}, epochs=None, steps=300)
            undisturbed = running.run_job(spec)
            job = running.submit(spec)
            status = running.watch_until(job, lambda status: status["step"] > 0, "the job runs")
            term, counter = map(int, status["generation"].split("."))
            for port in ports:
                self.assertIn(self.send_to_ring(port, [b"garbage" * 100]), refusals)
                self.assertIn(self.send_to_ring(port, [b"garbage" * 100], door=None), refusals)
                self.assertIn(self.send_to_ring(port, [b""]), refusals)
                old = ring_frames.frame(job, term - 1, counter, status["step"], b"\0" * 64)
                self.assertIn(self.send_to_ring(port, [old]), refusals)
                now = ring_frames.frame(job, term, counter, status["step"], b"\0" * 64)
                broken = now[:-1] + b"\1"
                self.assertIn(self.send_to_ring(port, [broken]), refusals)
            status = running.wait(job)
            self.assertEqual(status["state"], "SUCCEEDED", status["reason"])
            self.assertEqual(status["checkpoint"]["sha256"], undisturbed["checkpoint"]["sha256"])
            self.check_still_serving("a", "b")

    def test_a_loss_that_is_not_finite_fails_the_job_and_names_shard_and_tensor(self):
        with self.running() as running:
            job = running.submit(cluster.job_spec(optimizer={"sgd": {"learning_rate": 1e30}}))
            self.check_failed(job, "step", "shard")
            self.check_still_serving("a")


if __name__ == "__main__":
    cluster.main()

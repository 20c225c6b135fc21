"""Workers that are not what they seem: with a cloned state folder, with a living worker's name, of
another protocol version; and whoever can reach a port, without a ticket or with somebody else's. Each is
refused or takes part, and harms nobody."""
import hashlib
import importlib
import json
import os
import queue
import shutil

import cluster  # noqa: I001  before grpc
import grpc

import peer_test


class StrangersTestCase(cluster.ClusterTest):
    def setUp(self):
        super().setUp()
        self.sessions = []

    def clone(self, name, copy):
        folder = self.cluster.folder
        shutil.copytree(folder / f"state-{name}", folder / f"state-{copy}")

    def lines(self, job, worker):
        out = self.cluster.ringctl("logs", job, "--worker", worker, "-o", "json").stdout
        return [json.loads(line) for line in out.splitlines()]

    def refusal(self, call):
        """Code, text and reason of the error that a call ends with."""
        with self.assertRaises(grpc.RpcError) as refused:
            for _ in call:
                pass
        error = refused.exception
        trailer = dict(error.trailing_metadata())["grpc-status-details-bin"]
        info = self.details.ErrorInfo()
        self.assertTrue(self.status.Status.FromString(trailer).details[0].Unpack(info))
        return error.code(), error.details(), info.reason

    def load_stubs(self):
        peer_test.generate(self.cluster.folder / "stubs")
        self.fleet = importlib.import_module("ringmaster.v1.fleet_pb2")
        self.states = importlib.import_module("ringmaster.v1.states_pb2")
        self.status = importlib.import_module("google.rpc.status_pb2")
        self.details = importlib.import_module("google.rpc.error_details_pb2")

    def attach(self, channel, name):
        """A session of a worker that computes nothing; its ticket, and what keeps it open."""
        fleet = self.fleet
        said = queue.Queue()
        attach = fleet.Attach(protocol=peer_test.PROTOCOL, name=name, incarnation="0" * 31 + "1", cores=1,
                              ring_address="127.0.0.1:9")
        attach.numerics_class.backend = "none"
        said.put(fleet.WorkerMessage(attach=attach))
        session = channel.stream_stream(
            "/ringmaster.v1.Fleet/Session", fleet.WorkerMessage.SerializeToString,
            fleet.CoordinatorMessage.FromString)(iter(said.get, None), timeout=60)
        self.sessions.append(session)  # grpc ends a call that nobody refers to
        return next(session).attached.ticket, said

    def forge(self, channel, begin, files):
        """Uploads a checkpoint whose manifest fits its files; how that ends."""
        fleet = self.fleet

        def messages():
            yield fleet.CheckpointUpload(begin=begin)
            for name, data in files:
                upload = fleet.CheckpointUpload()
                upload.piece.name, upload.piece.data, upload.piece.last = name, data, True
                yield upload
        upload = channel.stream_unary(
            "/ringmaster.v1.Fleet/UploadCheckpoint", fleet.CheckpointUpload.SerializeToString,
            fleet.CheckpointReceipt.FromString)
        try:
            upload(messages(), timeout=30)
        except grpc.RpcError as error:
            return error.code()
        return grpc.StatusCode.OK

    def altered(self, job, step):
        """The files of its newest checkpoint as they would be at another step, with other weights."""
        folder = self.cluster.folder / "altered"
        self.cluster.ringctl("checkpoint", "get", job, folder)
        manifest = json.loads((folder / "manifest.json").read_text())
        manifest["step"] = step
        files = []
        for entry in manifest["files"]:
            data = bytearray((folder / entry["name"]).read_bytes())
            data[-1] ^= 1
            entry["sha256"] = hashlib.sha256(data).hexdigest()
            files.append((entry["name"], bytes(data)))
        files.append(("manifest.json", json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()))
        return files


class StrangersTest(StrangersTestCase):
    def test_a_cloned_state_folder(self):
        running = self.cluster
        running.make_data()
        running.start_coordinator()
        running.start_worker("a")
        running.run_job(cluster.job_spec(name="before"))
        self.clone("a", "clone")
        self.clone("a", "twin")

        # Under a name of its own it is a worker like others.
        clone = running.start_worker("b", state="clone")
        job = running.run_job(cluster.job_spec(name="both", workers={"min": 2, "max": 2}))["job_id"]
        for worker in ("a", "b"):
            lines = cluster.wait_until(lambda worker=worker: self.lines(job, worker), f"lines of {worker}")
            self.assertEqual({line["worker"] for line in lines}, {worker})

        # The same folder twice at a time.
        second = running.start_worker("c", state="clone", wait=False)
        self.assertNotEqual(second.wait(), 0)
        self.assertIn("is used by another ringworker", second.log())

        # The same name twice at a time: it waits for the other one's end.
        original = running.workers["a"]
        twin = running.start_worker("a", state="twin", wait=False)
        cluster.wait_until(lambda: "a living worker is called a" in twin.log(), "the twin is refused")
        self.assertTrue(original.running() and twin.running())
        running.run_job(cluster.job_spec(name="beside-a-twin", workers={"min": 2, "max": 2}))
        self.assertEqual(original.stop(), 0)
        running.wait_free("a", "b")
        running.run_job(cluster.job_spec(name="with-the-twin", workers={"min": 2, "max": 2}))
        self.assertTrue(clone.running())
        running.stop()

    def test_another_protocol_version(self):
        self.load_stubs()
        fleet, states = self.fleet, self.states
        running = self.cluster
        running.make_data()
        running.start_coordinator()
        worker = running.start_worker("a")

        attach = fleet.WorkerMessage(attach=fleet.Attach(
            protocol=99, name="old", incarnation="0" * 32, ring_address="127.0.0.1:9", cores=1))
        with grpc.insecure_channel(running.address) as channel:
            session = channel.stream_stream(
                "/ringmaster.v1.Fleet/Session", fleet.WorkerMessage.SerializeToString,
                fleet.CoordinatorMessage.FromString)
            code, text, reason = self.refusal(session(iter([attach]), timeout=20))
        self.assertEqual((code, reason), (grpc.StatusCode.FAILED_PRECONDITION, "PROTOCOL_MISMATCH"))
        self.assertIn("worker old speaks protocol 99", text)

        request = states.FetchRequest(protocol=99, job_id="j0001", step=1, worker="old")
        with grpc.insecure_channel(worker.line("ringworker a listening on ")) as channel:
            fetch = channel.unary_stream(
                "/ringmaster.v1.States/Fetch", states.FetchRequest.SerializeToString,
                states.StateHeader.FromString)
            code, text, reason = self.refusal(fetch(request, timeout=20))
        self.assertEqual((code, reason), (grpc.StatusCode.FAILED_PRECONDITION, "STATE_PROTOCOL"))
        self.assertIn("worker old speaks protocol version 99", text)

        self.assertEqual(set(running.attached()), {"a"})
        running.run_job(cluster.job_spec())
        running.stop()

    def test_whoever_has_no_ticket(self):
        self.load_stubs()
        running = self.cluster
        running.make_data()
        running.start_coordinator()
        [gate] = running.gates(400)
        gate.open()
        worker = running.start_worker("a")
        spec = cluster.job_spec(epochs=150, checkpoint={"every_steps": 3})
        reference = running.run_job(spec)["checkpoint"]["sha256"]

        gate.close()  # the job goes on until the last stranger was refused
        job = running.submit(spec)
        status = running.watch_until(job, lambda status: status["checkpoint"], "a checkpoint is listed")
        term, counter = (int(part) for part in str(status["generation"]).split("."))
        with grpc.insecure_channel(running.address) as channel, \
                grpc.insecure_channel(worker.line("ringworker a listening on ")) as ring:
            stranger, session = self.attach(channel, "stranger")
            files = self.altered(job, 447)
            for ticket in (b"a", b"", b"a" * 16, os.urandom(16), stranger):
                begin = self.fleet.CheckpointBegin(job_id=job, step=447, ticket=ticket)
                begin.generation.term, begin.generation.counter = term, counter
                denied = {grpc.StatusCode.PERMISSION_DENIED}
                if ticket == stranger:  # while its session lasts
                    denied.add(grpc.StatusCode.FAILED_PRECONDITION)
                self.assertIn(self.forge(channel, begin, files), denied, ticket)

                chunk = self.fleet.LogChunk(worker="a", spool="0" * 32, ticket=ticket)
                chunk.lines.add(number=1, job_id=job, unix_ms=1, level="error", text="forged")
                ship = channel.stream_stream(
                    "/ringmaster.v1.Fleet/ShipLogs", self.fleet.LogChunk.SerializeToString,
                    self.fleet.LogAck.FromString)
                code, text, reason = self.refusal(ship(iter([chunk]), timeout=20))
                self.assertEqual((code, reason), (grpc.StatusCode.PERMISSION_DENIED, "TICKET_NOT_VALID"))
                self.assertIn("not that of worker a", text)

                request = self.states.FetchRequest(
                    protocol=peer_test.PROTOCOL, job_id=job, worker="stranger", ticket=ticket,
                    step=running.status(job)["step"])
                request.generation.term, request.generation.counter = term, counter
                fetch = ring.unary_stream(
                    "/ringmaster.v1.States/Fetch", self.states.FetchRequest.SerializeToString,
                    self.states.StateHeader.FromString)
                code, text, reason = self.refusal(fetch(request, timeout=20))
                self.assertEqual((code, reason), (grpc.StatusCode.PERMISSION_DENIED, "TICKET_NOT_VALID"))
            session.put(None)
        gate.open()
        done = running.wait(job)
        self.assertEqual(done["state"], "SUCCEEDED", done["reason"])
        self.assertEqual(done["checkpoint"]["sha256"], reference)
        self.assertNotIn("forged", running.ringctl("logs", job).stdout)
        running.stop()


class FullDiskTest(StrangersTestCase):
    """Whoever can reach the port wants the coordinator's disk: uploads without end, jobs without end, log
    lines without end. Each meets its limit, and a job that trains beside them ends as it would alone."""
    LOG_BYTES = 256 << 20  # of one job's lines: LogFolderOptions

    def upload_without_end(self, channel, begin):
        def messages():
            yield self.fleet.CheckpointUpload(begin=begin)
            piece = self.fleet.CheckpointUpload()
            piece.piece.name, piece.piece.data = "model.safetensors", b"x" * (1 << 20)
            while True:
                yield piece
        upload = channel.stream_unary(
            "/ringmaster.v1.Fleet/UploadCheckpoint", self.fleet.CheckpointUpload.SerializeToString,
            self.fleet.CheckpointReceipt.FromString)
        with self.assertRaises(grpc.RpcError) as refused:
            upload(messages(), timeout=60)
        return refused.exception.code()

    def submit_until_refused(self, channel):
        jobs, job = importlib.import_module("ringmaster.v1.jobs_pb2"), importlib.import_module("ringmaster.v1.job_pb2")
        submit = channel.unary_unary("/ringmaster.v1.Jobs/Submit", jobs.SubmitRequest.SerializeToString,
                                     jobs.SubmitResponse.FromString)
        spec = job.JobSpec()
        spec.name, spec.batch, spec.shards, spec.epochs = "flood", 8, 8, 1
        spec.model.name, spec.data.path = "mlp", "nowhere"
        spec.optimizer.sgd.learning_rate = 0.1
        spec.workers.min = 8  # never there
        for number in range(100_000):
            try:
                submit(jobs.SubmitRequest(spec=spec, idempotency_key=f"flood-{number}"), timeout=20)
            except grpc.RpcError as error:
                return number, error.code(), error.details()
        return None

    def flood_the_log(self, channel, job, ticket):
        """More than a job may have, as a worker that is attached; what is on the disk then."""
        def chunks():
            number = 0
            for _ in range(self.LOG_BYTES // (1 << 20) + 32):
                chunk = self.fleet.LogChunk(worker="stranger", spool="1" * 32, ticket=ticket)
                for _ in range(128):
                    number += 1
                    chunk.lines.add(number=number, job_id=job, unix_ms=1, level="info", text="y" * 8000)
                yield chunk
        ship = channel.stream_stream("/ringmaster.v1.Fleet/ShipLogs", self.fleet.LogChunk.SerializeToString,
                                     self.fleet.LogAck.FromString)
        acknowledged = [ack.number for ack in ship(chunks(), timeout=300)]
        self.assertGreater(acknowledged[-1] * 8000, self.LOG_BYTES)
        logs = self.cluster.folder.rglob(f"logs/{job}/*")
        return sum(path.stat().st_size for path in logs if path.is_file())

    def test_a_disk_that_others_want_to_fill(self):
        self.load_stubs()
        running = self.cluster
        running.make_data()
        running.start_coordinator()
        running.start_worker("a")
        spec = cluster.job_spec(epochs=4000, checkpoint={"every_steps": 100})
        reference = running.run_job(spec)["checkpoint"]["sha256"]

        job = running.submit(spec)
        status = running.watch_until(job, lambda status: status["checkpoint"], "a checkpoint is listed")
        with grpc.insecure_channel(running.address) as channel:
            ticket, session = self.attach(channel, "stranger")
            begin = self.fleet.CheckpointBegin(job_id=job, step=447, ticket=ticket)
            term, counter = (int(part) for part in str(status["generation"]).split("."))
            begin.generation.term, begin.generation.counter = term, counter
            self.assertEqual(self.upload_without_end(channel, begin), grpc.StatusCode.FAILED_PRECONDITION)
            number, code, text = self.submit_until_refused(channel)
            self.assertEqual(code, grpc.StatusCode.RESOURCE_EXHAUSTED, text)
            self.assertLessEqual(number, 1000)
            self.assertLess(self.flood_the_log(channel, job, ticket), self.LOG_BYTES + (32 << 20))
            session.put(None)
        done = running.wait(job)
        self.assertEqual((done["state"], done["checkpoint"]["sha256"]), ("SUCCEEDED", reference))
        running.stop()


if __name__ == "__main__":
    cluster.main()

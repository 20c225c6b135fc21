"""Workers that are not what they seem: with a cloned state folder, with a living worker's name, of
another protocol version. Each is refused or takes part, and harms nobody."""
import importlib
import json
import shutil

import grpc

import cluster
import peer_test


class StrangersTest(cluster.ClusterTest):
    def clone(self, name, copy):
        folder = self.cluster.folder
        shutil.copytree(folder / f"state-{name}", folder / f"state-{copy}")

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

    def test_another_protocol_version(self):
        peer_test.generate(self.cluster.folder / "stubs")
        fleet = importlib.import_module("ringmaster.v1.fleet_pb2")
        states = importlib.import_module("ringmaster.v1.states_pb2")
        self.status = importlib.import_module("google.rpc.status_pb2")
        self.details = importlib.import_module("google.rpc.error_details_pb2")
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
                states.StatePiece.FromString)
            code, text, reason = self.refusal(fetch(request, timeout=20))
        self.assertEqual((code, reason), (grpc.StatusCode.FAILED_PRECONDITION, "STATE_PROTOCOL"))
        self.assertIn("worker old speaks protocol version 99", text)

        self.assertEqual(set(running.attached()), {"a"})
        running.run_job(cluster.job_spec())
        running.stop()


if __name__ == "__main__":
    cluster.main()

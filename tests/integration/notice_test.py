"""`ringworker --drain-on-notice`: what each of the three clouds' metadata services says before it takes a host away,
of a fake one, and that the worker leaves its job as it should."""
import contextlib
import http.server
import json
import threading

import cluster

SPEC = cluster.job_spec(epochs=None, steps=1500)


class Metadata(http.server.BaseHTTPRequestHandler):
    """Speaks all three dialects, and is as strict with headers as they are."""
    protocol_version = "HTTP/1.1"

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def do_PUT(self):
        good = (self.server.cloud == "aws" and self.path == "/latest/api/token"
                and self.headers["X-aws-ec2-metadata-token-ttl-seconds"] == "21600")
        if not good:
            return self.answer(404, "")
        self.server.tokens += 1
        self.server.token, self.server.questions = f"AQAEA-{self.server.tokens}==", 0
        return self.answer(200, self.server.token)

    def do_GET(self):
        answers = {
            ("aws", "/latest/meta-data/spot/instance-action"): self.aws,
            ("gcp", "/computeMetadata/v1/instance/preempted"): self.gcp,
            ("azure", "/metadata/scheduledevents?api-version=2020-07-01"): self.azure,
            ("azure", "/metadata/instance/compute/name?api-version=2021-02-01&format=text"): self.azure_name,
        }
        status, body = answers.get((self.server.cloud, self.path), lambda: (404, "no such thing"))()
        self.server.asked.append((self.path, status))
        self.answer(status, body)

    def aws(self):
        # Every token is good for three questions.
        if self.headers["X-aws-ec2-metadata-token"] != self.server.token or self.server.questions == 3:
            return 401, ""
        self.server.questions += 1
        if not self.server.noticed:
            return 404, "not found"
        return 200, json.dumps({"action": "terminate", "time": "2026-09-18T08:22:00Z"})

    def gcp(self):
        if self.headers["Metadata-Flavor"] != "Google":
            return 403, ""
        return 200, "TRUE" if self.server.noticed else "FALSE"

    def azure_name(self):
        return (200, "vm-b") if self.headers["Metadata"] == "true" else (400, "")

    def azure(self):
        if self.headers["Metadata"] != "true":
            return 400, ""
        event = {"EventId": "1", "EventType": "Preempt", "ResourceType": "VirtualMachine", "Resources": ["vm-a"],
                 "EventStatus": "Scheduled", "NotBefore": "Mon, 19 Sep 2026 18:29:47 GMT"}
        events = [event, {**event, "EventId": "2", "Resources": ["vm-b"]}] if self.server.noticed else [event]
        return 200, json.dumps({"DocumentIncarnation": 1, "Events": events})

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def metadata(cloud):
    """A metadata service; `noticed` may be set, and its `address` is HOST:PORT."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metadata)
    server.cloud, server.noticed, server.asked = cloud, False, []
    server.tokens, server.token, server.questions = 0, "", 0
    server.address = f"127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class NoticeTest(cluster.ClusterTest):
    _expected = None

    def expected(self):
        """SHA-256 of the checkpoint of an undisturbed run."""
        if NoticeTest._expected is None:
            NoticeTest._expected = cluster.checkpoint_alone(SPEC)
        return NoticeTest._expected

    def check_notice(self, cloud, flag=None, more=0):
        expected = self.expected()
        with metadata(cloud) as service:
            self.cluster.make_data()
            self.cluster.start_coordinator()
            [gate] = self.cluster.gates("", milliseconds=20, hold="1400-1499")  # slow as long as it is closed
            self.cluster.start_worker("a")
            leaves = self.cluster.start_worker(
                "b", extra=("--drain-on-notice", flag or cloud, "--metadata-address", service.address))
            job = self.cluster.submit({**SPEC, "workers": {"min": 1, "max": 2}})
            self.cluster.watch_until(job, lambda status: status["step"] > 2 and
                                     len([one for one in status["workers"] if one["shards"]]) == 2, "both compute")
            asked = len(service.asked)
            cluster.wait_until(lambda: len(service.asked) > asked + more, "it asks again and again")
            self.assertNotIn("preemption notice of", leaves.log())
            service.noticed = True
            cluster.wait_until(lambda: "this worker leaves" in leaves.log(), "it hears the notice")
            self.assertEqual(leaves.wait(), cluster.OK)
            gate.open()
            del self.cluster.workers["b"]
        status = self.cluster.wait(job)
        self.assertEqual(status["state"], "SUCCEEDED", status["reason"])
        self.assertEqual(status["checkpoint"]["sha256"], expected)
        # A machine that stands still may have the ring formed anew without anybody lost.
        lost = [(one["lost"], one["shards_recomputed"]) for one in status["regroups"] if one["lost"]]
        self.assertEqual(lost, [(["b"], 0)])
        events = self.cluster.json("events", job)["events"]
        left = [event["message"] for event in events if event["type"] == "WorkerLeft"]
        self.assertRegex(" ".join(left), r"^worker b on host .* left at step [0-9]+: preemption notice of ")
        self.assertNotIn("WorkerLost", [event["type"] for event in events])
        return leaves

    def test_aws_also_when_tokens_expire(self):
        log = self.check_notice("aws", more=3).log()
        self.assertNotIn("no metadata service is understood", log)

    def test_google(self):
        self.check_notice("gcp")

    def test_azure_tells_hosts_by_name(self):
        self.check_notice("azure")

    def test_whose_service_answers_is_found_out(self):
        log = self.check_notice("azure", "auto").log()
        self.assertIn("preemption notices are those of Azure", log)

    def test_without_a_service_it_says_so_once_and_goes_on(self):
        self.cluster.make_data()
        self.cluster.start_coordinator()
        nobody = f"127.0.0.1:{cluster.free_port()}"
        for cloud in ("aws", "auto"):
            name = f"worker-{cloud}"
            worker = self.cluster.start_worker(
                name, extra=("--drain-on-notice", cloud, "--metadata-address", nobody))
            said = f"no metadata service is understood at {nobody}"
            cluster.wait_until(lambda: said in worker.log(), "it says so")
        self.cluster.run_job(SPEC)
        for worker in self.cluster.workers.values():
            self.assertEqual(worker.log().count(said), 1)
        self.cluster.stop()

    def test_flags_that_are_wrong(self):
        for flags, words in ((("--drain-on-notice", "oracle"), "expected aws, gcp, azure or auto"),
                             (("--metadata-address", "127.0.0.1:80"), "give that, too")):
            worker = self.cluster.start_worker("a", coordinator="127.0.0.1:1", wait=False, extra=flags)
            self.assertEqual(worker.wait(), cluster.USAGE)
            self.assertIn(words, worker.log())


if __name__ == "__main__":
    cluster.main(at_once=2)

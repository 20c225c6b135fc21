"""Datasets under an address: fetch_probe (tests/worker/fetch), which has what a worker fetches with, against servers
that behave and servers that do not (object_server.py)."""
import hashlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import threading
import unittest

from object_server import ObjectServer, etag_of

BIN = pathlib.Path(os.environ["RINGMASTER_BIN"])
KEY, SECRET, TOKEN = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "Fwo+token/with=odd=="
KEYS = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
ODD = ("a b.bin", "c+d.bin", "e'f.bin", "g(h.bin", "ü.bin", "50%.bin", "x=y&z.bin", "deep/er/i.bin", "~-_.bin", "<&>.bin")
PIECE = 64 << 10  # smaller than a worker's, for short tests


def content(name, size):
    block = hashlib.sha256(name.encode()).digest()
    return (block * (size // len(block) + 1))[:size]


class ServerCase(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ringmaster-url-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.out = self.folder / "out"

    def serve(self, **options):
        server = ObjectServer(**options)
        self.addCleanup(server.stop)
        return server

    def probe(self, url, *flags, code=0, fetch=True, local=True, environment=None, stdin=subprocess.DEVNULL):
        """Lists and fetches; returns the list, or what stderr has."""
        flags = [*flags, *(["--http", "--private"] if local else []), "--piece", PIECE]
        # Nothing of whoever runs the tests.
        clean = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        done = subprocess.run(
            [BIN / "fetch_probe", url, *([self.out] if fetch else []), *map(str, flags)], capture_output=True,
            text=True, timeout=120, check=False, stdin=stdin, env={**clean, "HOME": str(self.folder), **(environment or {})})
        self.assertEqual(done.returncode, code, done)
        self.assertNotIn(SECRET, done.stdout + done.stderr)
        self.assertNotIn(TOKEN, done.stdout + done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()] if code == 0 else done.stderr

    def fetched(self):
        return {str(path.relative_to(self.out)): path.read_bytes() for path in self.out.rglob("*") if path.is_file()}


class WebTest(ServerCase):
    def setUp(self):
        super().setUp()
        self.server = self.serve()
        self.data = content("train", 5 * PIECE + 17)
        self.server.files["/d/train.npz"] = self.data
        self.url = self.server.url + "/d/train.npz"

    def test_a_file_is_a_dataset_of_its_own(self):
        listed = self.probe(self.url, "--threads", 2, "--connections", 2)
        self.assertEqual(listed, [{"name": "train.npz", "bytes": len(self.data), "pieces": 0,
                                   "version": etag_of(self.data)}])
        self.assertEqual(self.fetched(), {"train.npz": self.data})
        ranges = sorted(int(headers["range"][6:].split("-")[0]) for method, _, headers in self.server.requests
                        if method == "GET")
        self.assertEqual(ranges, [i * PIECE for i in range(6)])
        self.assertTrue(all(headers.get("if-match") == etag_of(self.data)
                            for method, _, headers in self.server.requests if method == "GET"))
        self.assertLessEqual(self.server.connections, 2, "connections are used again, and no more than allowed")

    def test_a_name_in_an_address_is_decoded(self):
        self.server.files["/d/ü %.npz"] = b"abc"
        self.probe(self.server.url + "/d/%C3%BC%20%25.npz")
        self.assertEqual(self.fetched(), {"ü %.npz": b"abc"})

    def test_without_etags_the_date_is_the_version(self):
        self.server.etags = False
        listed = self.probe(self.url)
        self.assertEqual(listed[0]["version"], self.server.modified)
        self.assertEqual(self.fetched(), {"train.npz": self.data})

    def test_weak_etags_are_compared_here(self):
        self.server.weak = True
        listed = self.probe(self.url)
        self.assertEqual(listed[0]["version"], "W/" + etag_of(self.data))
        self.assertEqual(self.fetched(), {"train.npz": self.data})

        def rule(handler, name):
            if handler.command == "GET":
                self.server.files[name] = self.data[:-1] + b"x"
            return False
        self.server.rule = rule
        self.assertIn("train.npz changed while it was fetched", self.probe(self.url, code=1))

    def test_a_file_that_changes_is_an_error(self):
        def rule(handler, name):
            if handler.command == "HEAD":
                return False
            self.server.files[name] = self.data[:-1] + b"x"
            return False
        self.server.rule = rule
        self.assertIn("FAILED_PRECONDITION: " + self.url + ": it changed since it was listed (412)",
                      self.probe(self.url, code=1))

        def ignores_conditions(handler, name):
            if handler.command == "HEAD":
                return False
            if "range" in handler.headers:
                first = int(handler.headers["range"][6:].split("-")[0])
                piece = self.data[first:first + PIECE]
                handler.reply(206, piece, {"ETag": '"other"', "Content-Range":
                                           f"bytes {first}-{first + len(piece) - 1}/{len(self.data)}"})
            return True
        self.server.files["/d/train.npz"] = self.data
        self.server.rule = ignores_conditions
        self.assertIn('train.npz changed while it was fetched: its version is "other"', self.probe(self.url, code=1))

    def test_a_file_of_another_size_is_an_error(self):
        self.server.etags = False
        for grown, words in ((self.data + b"x", f"it had {len(self.data)} bytes when it was listed, and has "
                                                f"{len(self.data) + 1} by now"), (b"", "(416)")):
            self.server.files["/d/train.npz"] = self.data
            self.server.rule = lambda handler, name, grown=grown: handler.command == "GET" and (
                self.server.files.__setitem__(name, grown))
            error = self.probe(self.url, "--threads", 1, code=1)
            self.assertIn("FAILED_PRECONDITION", error)
            self.assertIn(words, error)

    def test_a_server_without_ranges_is_named(self):
        self.server.rule = lambda handler, name: handler.command == "GET" and (handler.reply(200, self.data) or True)
        error = self.probe(self.url, code=1)
        self.assertIn("UNIMPLEMENTED", error)
        self.assertIn("the server answered 200 to a range", error)

    def test_a_range_of_other_bytes_is_an_error(self):
        self.server.rule = lambda handler, name: handler.command == "GET" and (handler.reply(
            206, self.data[1:PIECE + 1], {"Content-Range": f"bytes 1-{PIECE}/{len(self.data)}"}) or True)
        self.assertIn(f'answered with Content-Range "bytes 1-{PIECE}/{len(self.data)}", expected',
                      self.probe(self.url, "--threads", 1, code=1))

    def test_a_cut_connection_and_a_busy_server_are_tried_again(self):
        failures = iter(["cut", 503, 429, "cut"])

        def rule(handler, name):
            failure = next(failures, None) if handler.command == "GET" else None
            if failure == "cut":
                first = int(handler.headers["range"][6:].split("-")[0])
                piece = self.data[first:first + PIECE]
                handler.reply(206, piece[:len(piece) // 2], {
                    "Content-Range": f"bytes {first}-{first + len(piece) - 1}/{len(self.data)}"}, length=len(piece))
                handler.wfile.flush()
                handler.connection.shutdown(socket.SHUT_RDWR)
                handler.close_connection = True
            elif failure is not None:
                handler.reply(failure, b"busy")
            return failure is not None
        self.server.rule = rule
        self.probe(self.url, "--threads", 1)
        self.assertEqual(self.fetched(), {"train.npz": self.data})
        self.assertEqual(sum(method == "GET" for method, _, _ in self.server.requests), 6 + 4)

    def test_a_server_that_stays_busy_is_given_up(self):
        self.server.rule = lambda handler, name: handler.reply(503, b"busy") or True
        error = self.probe(self.url, "--attempts", 3, code=1)
        self.assertIn("UNAVAILABLE: " + self.url + ": the server answered 503; 3 tries", error)
        self.assertEqual(len(self.server.requests), 3)

    def test_a_slow_server_is_given_up(self):
        done = threading.Event()
        self.addCleanup(done.set)

        def rule(handler, name):
            if handler.command == "HEAD":
                return False
            handler.reply(206, b"x", {"Content-Range": f"bytes 0-{PIECE - 1}/{len(self.data)}"}, length=PIECE)
            handler.wfile.flush()
            done.wait(60)
            return True
        self.server.rule = rule
        error = self.probe(self.url, "--threads", 1, "--attempts", 1, "--slow-seconds", 1, code=1)
        self.assertIn("UNAVAILABLE: " + self.url + ": the server is too slow: under 1024 bytes a second for 1 s", error)
        self.assertIn("DEADLINE_EXCEEDED", self.probe(self.url, "--threads", 1, "--deadline-ms", 300, code=1))
        begun, ends = os.pipe()

        def stopping(handler, name):
            if handler.command == "GET":
                os.close(ends)  # it waits for the piece now
            return rule(handler, name)
        self.server.rule = stopping
        self.assertIn("CANCELLED", self.probe(self.url, "--threads", 1, "--stop-at-end-of-input", code=1, stdin=begun))
        os.close(begun)

    def test_redirects_stay_on_their_host(self):
        self.server.files["/e/other.npz"] = self.data

        def to(location):
            self.server.rule = lambda handler, name: name.startswith("/d/") and (
                handler.reply(302, b"", {"Location": location}) or True)
        for location in ("/e/other.npz", self.server.url + "/e/other.npz", "../e/other.npz"):
            to(location)
            if location.startswith(".."):
                self.assertIn("PERMISSION_DENIED", self.probe(self.url, code=1))
            else:
                self.probe(self.url)
                self.assertEqual(self.fetched(), {"train.npz": self.data})
        other = self.serve()
        other.files["/d/train.npz"] = self.data
        for location in ("file:///etc/passwd", other.url + "/d/train.npz", "http://localhost/x", "ftp://127.0.0.1/x",
                         "s3://bucket/x", "//127.0.0.1:1/x", "https://u:p@127.0.0.1/x"):
            to(location)
            error = self.probe(self.url, code=1)
            self.assertIn(f"PERMISSION_DENIED: {self.url}: the server redirects to {location}; only redirects", error)
        self.assertEqual(other.requests, [])
        to("/d/again")
        self.assertIn("redirects more than 5 times", self.probe(self.url, code=1))

    def test_what_is_not_there_or_not_given_is_named(self):
        missing = self.server.url + "/d/none.npz"
        self.assertIn(f"NOT_FOUND: {missing}: there is none (404)", self.probe(missing, code=1))
        self.server.rule = lambda handler, name: handler.reply(403, b"no") or True
        self.assertIn(f"PERMISSION_DENIED: {self.url}: the server does not give it to this worker (403)",
                      self.probe(self.url, code=1))

    def test_a_server_of_something_else_is_named(self):
        def rule(handler, name):
            handler.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n")
            handler.close_connection = True
            return True
        self.server.rule = rule
        self.assertRegex(self.probe(self.url, code=1), r"UNKNOWN: .* 127\.0\.0\.1:\d+ does not speak HTTP: ")

    def test_what_a_worker_does_not_allow(self):
        self.assertIn("only with --data-http", self.probe(self.url, "--private", local=False, code=1))
        port = self.server.server_address[1]
        for host in ("127.0.0.1", "localhost", "2130706433", "0x7f.1", "0", "[::ffff:127.0.0.1]"):
            error = self.probe(f"http://{host}:{port}/d/train.npz", "--http", local=False, code=1)
            self.assertIn("PERMISSION_DENIED", error)
            self.assertIn("from which only a worker with --data-private-addresses fetches", error)
        self.assertIn("credentials in the address", self.probe("https://me:pw@127.0.0.1/x", code=1))
        self.assertEqual(self.server.requests, [])
        self.assertEqual(self.server.connections, 0)

    def test_names_that_are_unknown_and_ports_that_are_closed(self):
        error = self.probe("http://nowhere.invalid/x.npz", "--attempts", 1, code=1)
        self.assertIn("UNAVAILABLE: http://nowhere.invalid/x.npz: the name nowhere.invalid is not known here (DNS)", error)
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            error = self.probe(f"http://127.0.0.1:{closed.getsockname()[1]}/x", "--attempts", 2, code=1)
        self.assertIn("UNAVAILABLE", error)
        self.assertIn("2 tries", error)


class ManifestTest(ServerCase):
    def setUp(self):
        super().setUp()
        self.server = self.serve()
        self.source = self.folder / "source"
        for name in (*ODD, "empty.bin"):
            (self.source / name).parent.mkdir(parents=True, exist_ok=True)
            (self.source / name).write_bytes(b"" if name == "empty.bin" else content(name, 3 * PIECE + len(name)))
        self.url = self.server.url + "/d/"

    def manifest(self, *flags, code=0):
        done = subprocess.run([BIN / "ringctl", "dataset", "manifest", self.source, *flags], capture_output=True,
                              text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, code, done)
        return done.stderr

    def publish(self):
        for path in self.source.rglob("*"):
            if path.is_file():
                self.server.files["/d/" + str(path.relative_to(self.source))] = path.read_bytes()

    def test_a_folder_with_a_manifest_is_fetched(self):
        self.manifest()
        text = (self.source / "ringmaster-data.json").read_text()
        files = {file["name"]: file for file in json.loads(text)["files"]}
        self.assertEqual(sorted(files), sorted([*ODD, "empty.bin"]))
        for name, file in files.items():
            data = (self.source / name).read_bytes()
            self.assertEqual(file["bytes"], len(data))
            self.assertEqual(file["pieces"], [hashlib.sha256(data).hexdigest()] if data else [])
        self.manifest()
        self.assertEqual((self.source / "ringmaster-data.json").read_text(), text)
        self.publish()
        listed = self.probe(self.url)
        self.assertEqual([(file["name"], file["pieces"]) for file in listed],
                         [(name, len(files[name]["pieces"])) for name in sorted(files, key=str.encode)])
        self.assertEqual(self.fetched(), {name: (self.source / name).read_bytes() for name in files})

    def test_check_names_what_differs(self):
        self.manifest()
        self.assertIn("is right: 11 files", self.manifest("--check"))
        (self.source / "a b.bin").write_bytes(b"short")
        changed = bytearray((self.source / "50%.bin").read_bytes())
        changed[-1] ^= 1
        (self.source / "50%.bin").write_bytes(changed)
        (self.source / "c+d.bin").unlink()
        (self.source / "new.bin").write_bytes(b"new")
        said = self.manifest("--check", code=1)
        for line in (f"a b.bin: the manifest says {3 * PIECE + 7} bytes, there are 5",
                     "50%.bin: from byte 0 on it is not what the manifest says",
                     "c+d.bin: the manifest lists it, but it is not there",
                     "new.bin: it is there, but the manifest does not list it"):
            self.assertIn(line, said)
        done = subprocess.run([BIN / "ringctl", "dataset", "manifest", self.source, "--check", "-o", "json"],
                              capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 1)
        answer = json.loads(done.stdout)
        self.assertEqual((answer["path"], answer["files"]), (str(self.source / "ringmaster-data.json"), 11))
        self.assertEqual(len(answer["problems"]), 4)

    def test_a_folder_without_one_says_what_to_do(self):
        self.publish()
        error = self.probe(self.url, code=1)
        self.assertIn(f"NOT_FOUND: {self.url}: there is no ringmaster-data.json in it", error)
        self.assertIn("ringctl dataset manifest DIR", error)

    def test_a_manifest_that_lies_is_refused(self):
        digest = "0" * 64

        def said(name="a", size=3, pieces=(digest,)):
            self.server.files["/d/ringmaster-data.json"] = json.dumps({
                "format": 1, "piece_bytes": 8 << 20,
                "files": [{"name": name, "bytes": size, "pieces": list(pieces)}]}).encode()
            return self.probe(self.url, code=1)
        self.assertIn('"../a" leaves its folder', said(name="../a"))
        self.assertIn('"/a" has an empty part', said(name="/a"))
        self.assertIn("has 1 pieces, expected 2", said(size=(8 << 20) + 1))
        self.assertIn("has 0 pieces, expected 1", said(pieces=()))
        self.assertIn("a negative number in file 1 where `bytes` is expected", said(size=-1))
        self.assertIn("it had 3 bytes when it was listed, and has 5 by now",
                      self.server.files.__setitem__("/d/a", b"12345") or said())


class ObjectStoreTest(ServerCase):
    def setUp(self):
        super().setUp()
        self.server = self.serve(keys={KEY: (SECRET, None)})
        self.files = {name: content(name, PIECE + len(name)) for name in ODD}
        for name, data in self.files.items():
            self.server.files["/bucket/sets/one ü/" + name] = data
        self.server.files["/bucket/sets/one ü/"] = b""  # what stores keep for a folder
        self.server.files["/bucket/sets/two/other.bin"] = b"other"
        self.url = "s3://bucket/sets/one ü/"

    def store(self, url, *flags, environment=KEYS, **options):
        return self.probe(url, "--s3-endpoint", self.server.url, *flags, environment=environment, **options)

    def test_a_prefix_is_listed_in_pages_and_fetched(self):
        for page in (3, 1000):
            self.server.page = page
            listed = self.store(self.url)
            self.assertEqual([file["name"] for file in listed], sorted(ODD, key=str.encode))
            self.assertEqual({file["name"]: file["version"] for file in listed},
                             {name: etag_of(data) for name, data in self.files.items()})
            self.assertEqual(self.fetched(), self.files)
        self.assertTrue(all("authorization" in headers for _, _, headers in self.server.requests))

    def test_session_tokens_are_signed(self):
        self.server.keys[KEY] = (SECRET, TOKEN)
        self.store(self.url, environment={**KEYS, "AWS_SESSION_TOKEN": TOKEN})
        self.assertEqual(self.fetched(), self.files)
        error = self.store(self.url, code=1)
        self.assertIn("403 InvalidToken; the request was signed with the keys of the environment", error)

    def test_keys_come_from_a_profile(self):
        file = self.folder / "keys"
        file.write_text(f"[default]\naws_access_key_id = wrong\naws_secret_access_key = wrong\n"
                        f"# a comment\n[p]\naws_access_key_id={KEY}\naws_secret_access_key = {SECRET}\n")
        profile = {"AWS_SHARED_CREDENTIALS_FILE": str(file), "AWS_PROFILE": "p"}
        self.store(self.url, environment=profile)
        self.assertEqual(self.fetched(), self.files)
        error = self.store(self.url, environment={"AWS_SHARED_CREDENTIALS_FILE": str(file)}, code=1)
        self.assertIn(f"PERMISSION_DENIED: {self.url}: 403 InvalidAccessKeyId; the request was signed with the keys "
                      f"of profile default of {file}", error)

    def test_a_wrong_secret_is_said_without_it(self):
        error = self.store(self.url, environment={**KEYS, "AWS_SECRET_ACCESS_KEY": "not-the-secret"}, code=1)
        self.assertIn(f"PERMISSION_DENIED: {self.url}: 403 SignatureDoesNotMatch; the request was signed with the "
                      "keys of the environment (AWS_ACCESS_KEY_ID)", error)
        self.assertNotIn("not-the-secret", error)
        self.assertNotIn(KEY, error)

    def test_public_buckets_need_no_keys(self):
        error = self.store(self.url, environment={}, code=1)
        self.assertIn("403 AccessDenied; the request was not signed, since there are no keys", error)
        self.server.public.add("bucket")
        self.store(self.url, environment={})
        self.assertEqual(self.fetched(), self.files)

    def test_the_region_is_part_of_the_signature(self):
        self.server.region = "eu-central-1"
        error = self.store(self.url, code=1)
        self.assertIn("403 AuthorizationHeaderMalformed", error)
        self.store(self.url, "--s3-region", "eu-central-1")
        self.store(self.url, environment={**KEYS, "AWS_DEFAULT_REGION": "eu-central-1"})
        self.server.rule = lambda handler, name: handler.reply(
            301, b"", {"x-amz-bucket-region": "eu-west-3", "Location": "http://127.0.0.1:1/"}) or True
        self.assertIn("the bucket is in region eu-west-3, this worker asks in us-east-1; start it with --s3-region "
                      "eu-west-3", self.store(self.url, code=1))

    def test_one_object_is_a_dataset(self):
        self.store(self.url + "50%.bin")
        self.assertEqual(self.fetched(), {"50%.bin": self.files["50%.bin"]})
        error = self.store("s3://bucket/sets/none.bin", code=1)
        self.assertIn("NOT_FOUND: s3://bucket/sets/none.bin: there is no such object; a prefix ends in `/`", error)

    def test_a_manifest_beside_the_objects_is_used(self):
        data = self.files["50%.bin"]
        self.server.files["/bucket/sets/one ü/ringmaster-data.json"] = json.dumps({
            "format": 1, "piece_bytes": 8 << 20, "files": [
                {"name": "50%.bin", "bytes": len(data), "pieces": [hashlib.sha256(data).hexdigest()]}]}).encode()
        listed = self.store(self.url)
        self.assertEqual([(file["name"], file["pieces"]) for file in listed], [("50%.bin", 1)])
        self.assertEqual(self.fetched(), {"50%.bin": data})

    def test_objects_that_begin_with_a_dot_are_passed_over(self):
        for name in (".DS_Store", "sub/.ipynb_checkpoints/x"):
            self.server.files["/bucket/sets/one ü/" + name] = b"no data"
        self.store(self.url)
        self.assertEqual(self.fetched(), self.files)

    def test_an_object_that_changes_is_an_error(self):
        def rule(handler, name):
            if name.endswith("ü.bin"):
                self.server.files[name] = b"x" * len(self.files["ü.bin"])
            return False
        self.server.rule = rule
        self.assertIn("s3://bucket/sets/one ü/ü.bin: it changed since it was listed (412)", self.store(self.url, code=1))

    def test_lists_that_lie_are_refused(self):
        def page(body, head=""):
            def rule(handler, name):
                if "list-type" in handler.path:
                    handler.reply(200, ('<?xml version="1.0"?>' + head + body).encode())
                return "list-type" in handler.path
            self.server.rule = rule
            return self.store(self.url, code=1)

        def listing(key, size="3", extra="<IsTruncated>false</IsTruncated>"):
            return (f"<ListBucketResult>{extra}<Contents><Key>{key}</Key><Size>{size}</Size></Contents>"
                    "</ListBucketResult>")
        bomb = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]>'
        self.assertIn("a DOCTYPE, a comment or CDATA, which are not read",
                      page(listing("sets/one ü/&b;"), bomb))
        self.assertIn("an entity that is none of XML's own", page(listing("sets/one ü/&b;")))
        self.assertIn("elements lie too deep in each other", page("<ListBucketResult>" + "<a>" * 100000))
        self.assertIn('"../x" leaves its folder', page(listing("sets/one ü/../x")))
        self.assertIn("which is not beneath it", page(listing("elsewhere/x")))
        self.assertIn('Size of object 1 is "-3"', page(listing("sets/one ü/x", "-3")))
        self.assertIn("NextContinuationToken is missing",
                      page(listing("sets/one ü/x", extra="<IsTruncated>true</IsTruncated>")))
        self.assertIn("sends the same page again and again", page(listing(
            "sets/one ü/x", extra="<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>")))
        again = listing("sets/one ü/x").replace("</Contents>", "</Contents><Contents><Key>sets/one ü/x</Key>"
                                                "<Size>3</Size></Contents>")
        self.assertIn('"x" is there twice', page(again))

    def test_an_empty_prefix_is_none(self):
        self.assertIn("NOT_FOUND: s3://bucket/none/: there are no files in it", self.store("s3://bucket/none/", code=1))


class TlsTest(ServerCase):
    def test_only_a_trusted_certificate_will_do(self):
        pem = self.folder / "both.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test",
                        "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", self.folder / "key.pem",
                        "-out", self.folder / "cert.pem"], check=True, capture_output=True, timeout=60)
        pem.write_bytes((self.folder / "key.pem").read_bytes() + (self.folder / "cert.pem").read_bytes())
        server = self.serve(certificate=pem)
        server.files["/x.bin"] = content("x", 2 * PIECE + 1)
        url = server.url + "/x.bin"
        error = self.probe(url, "--private", local=False, code=1)
        self.assertIn("UNAUTHENTICATED", error)
        self.assertIn("the certificate of 127.0.0.1", error)
        self.assertEqual(server.requests, [])
        trusted = {"SSL_CERT_FILE": str(self.folder / "cert.pem")}
        self.probe(url, "--private", local=False, environment=trusted)
        self.assertEqual(self.fetched(), {"x.bin": server.files["/x.bin"]})
        server.rule = lambda handler, name: handler.reply(302, b"", {"Location": "http://127.0.0.1:1/x.bin"}) or True
        self.assertIn("the server redirects to http://127.0.0.1:1/x.bin", self.probe(url, environment=trusted, code=1))


if __name__ == "__main__":
    unittest.main()

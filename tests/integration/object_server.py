"""A web server and object store for tests: files in memory, ranges, ETags, ListObjectsV2, and a check of AWS Signature
Version 4 written after its specification ("Create a signed AWS API request", "Authenticating Requests: Using the
Authorization Header"), so that it knows nothing of who signs.

A test changes what it does by `rule`, which sees each request first and may answer it itself.
"""
import calendar
import hashlib
import hmac
import http.server
import re
import ssl
import threading
import time
import urllib.parse
from xml.sax.saxutils import escape

UNRESERVED = "-_.~"  # beside letters and digits: what the specification's UriEncode leaves alone


def uri_encode(text, keep=""):
    return urllib.parse.quote(text, safe=UNRESERVED + keep)


def etag_of(content):
    return '"' + hashlib.md5(content).hexdigest() + '"'


def check_signature(method, target, headers, keys, region):
    """None, or the code of S3's error. `keys`: key id -> (secret, token or None); `headers`: lower-case names."""
    match = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request, ?"
                         r"SignedHeaders=([^,]+), ?Signature=([0-9a-f]{64})", headers.get("authorization", ""))
    if match is None:
        return "AccessDenied"
    key_id, day, signed_region, signed, signature = match.groups()
    if signed_region != region:
        return "AuthorizationHeaderMalformed"
    if key_id not in keys:
        return "InvalidAccessKeyId"
    secret, token = keys[key_id]
    date = headers.get("x-amz-date", "")
    if not date.startswith(day) or abs(
            time.time() - calendar.timegm(time.strptime(date, "%Y%m%dT%H%M%SZ"))) > 900:
        return "RequestTimeTooSkewed"
    if headers.get("x-amz-security-token") != token:
        return "InvalidToken"
    names = signed.split(";")
    must = ["host"] + [name for name in headers if name.startswith("x-amz-")]
    if names != sorted(names) or any(name not in names for name in must):
        return "AccessDenied"
    payload = headers.get("x-amz-content-sha256")
    if payload is None:
        return "MissingSecurityHeader"
    path, _, query = target.partition("?")
    # S3 encodes a key once, and does not normalize its path.
    canonical_path = uri_encode(urllib.parse.unquote(path), "/")
    pairs = [part.partition("=")[::2] for part in query.split("&")] if query else []
    canonical_query = "&".join(sorted(
        f"{uri_encode(urllib.parse.unquote(name))}={uri_encode(urllib.parse.unquote(value))}" for name, value in pairs))
    canonical_headers = "".join(f"{name}:{' '.join(headers[name].split())}\n" for name in names)
    canonical = "\n".join([method, canonical_path, canonical_query, canonical_headers, signed, payload])
    scope = f"{day}/{region}/s3/aws4_request"
    to_sign = "\n".join(["AWS4-HMAC-SHA256", date, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = ("AWS4" + secret).encode()
    for part in (day, region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    expected = hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest()
    return None if hmac.compare_digest(expected, signature) else "SignatureDoesNotMatch"


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60

    def setup(self):
        super().setup()
        with self.server.lock:
            self.server.connections += 1

    def log_message(self, *_):
        pass

    def reply(self, status, body=b"", headers=None, length=None):
        """`length`: what Content-Length says, if not the truth."""
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, status, code):
        body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>no</Message></Error>'
        self.reply(status, body.encode() if self.server.keys is not None else b"no")

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path, _, query = self.path.partition("?")
        name = urllib.parse.unquote(path)
        headers = {key.lower(): value for key, value in self.headers.items()}
        with self.server.lock:
            self.server.requests.append((self.command, self.path, headers))
        if self.server.rule is not None and self.server.rule(self, name):
            return
        if self.server.keys is not None and not self.allowed(name, headers):
            return
        if self.server.keys is not None and "list-type=2" in query:
            self.list_objects(name, dict(urllib.parse.parse_qsl(query)))
        else:
            self.give(name, headers)

    def allowed(self, name, headers):
        bucket = name.split("/")[1]
        if "authorization" not in headers and bucket in self.server.public:
            return True
        code = check_signature(self.command, self.path, headers, self.server.keys, self.server.region)
        if code is not None:
            self.refuse(403, code)
        return code is None

    def list_objects(self, name, query):
        bucket = name.split("/")[1]
        keys = sorted((path[len(bucket) + 2:] for path in self.server.files if path.startswith(f"/{bucket}/")),
                      key=lambda key: key.encode())
        keys = [key for key in keys if key.startswith(query["prefix"])]
        begin = int(query.get("continuation-token", "0/+ =").split("/")[0])
        page = keys[begin:begin + self.server.page]
        more = begin + len(page) < len(keys)
        body = '<?xml version="1.0" encoding="UTF-8"?>\n'
        body += '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        body += f"<Name>{bucket}</Name><KeyCount>{len(page)}</KeyCount><IsTruncated>{str(more).lower()}</IsTruncated>"
        for key in page:
            content = self.server.files[f"/{bucket}/{key}"]
            body += f"<Contents><Key>{escape(key)}</Key><Size>{len(content)}</Size>"
            body += f"<ETag>{escape(etag_of(content), {chr(34): '&quot;'})}</ETag><Owner><ID>x</ID></Owner></Contents>"
        if more:  # a token with what must be encoded
            body += f"<NextContinuationToken>{begin + len(page)}/+ =</NextContinuationToken>"
        self.reply(200, (body + "</ListBucketResult>").encode())

    def give(self, name, headers):
        content = self.server.files.get(name)
        if content is None:
            self.refuse(404, "NoSuchKey")
            return
        etag = ("W/" if self.server.weak else "") + etag_of(content) if self.server.etags else None
        answer = {"ETag": etag, "Accept-Ranges": "bytes"} if etag else {"Last-Modified": self.server.modified}
        if "if-match" in headers and (self.server.weak or headers["if-match"] != etag):  # a weak one never matches
            self.refuse(412, "PreconditionFailed")
            return
        if "if-unmodified-since" in headers and headers["if-unmodified-since"] != self.server.modified:
            self.refuse(412, "PreconditionFailed")
            return
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", headers.get("range", ""))
        if wanted is None:
            self.reply(200, content, answer)
            return
        first, last = int(wanted[1]), min(int(wanted[2]), len(content) - 1)
        if first >= len(content):
            self.refuse(416, "InvalidRange")
            return
        self.reply(206, content[first:last + 1],
                   {**answer, "Content-Range": f"bytes {first}-{last}/{len(content)}"})


class ObjectServer(http.server.ThreadingHTTPServer):
    """keys: None: a web server; else an object store, key id -> (secret, token or None)."""
    daemon_threads = True

    def __init__(self, keys=None, certificate=None):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = {}      # decoded path -> bytes
        self.keys = keys
        self.public = set()  # buckets that need no signature
        self.region = "us-east-1"
        self.page = 1000     # objects of a list
        self.etags = True
        self.weak = False    # ETags
        self.modified = "Mon, 23 Nov 2026 10:00:00 GMT"
        self.rule = None
        self.lock = threading.Lock()
        self.requests = []
        self.connections = 0
        self.scheme = "http"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.maximum_version = ssl.TLSVersion.TLSv1_2  # what clients of 1.3 alone would refuse
            context.load_cert_chain(certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True)
            self.scheme = "https"
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def url(self):
        return f"{self.scheme}://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_):
        pass  # clients that hang up are what some tests are about

    def stop(self):
        self.shutdown()
        self.server_close()
        self._thread.join(10)

"""Certificates of every kind, made with the program openssl: those that an attacker would like to have, and
one that is right, by which a test sees that it is not openssl's way of making them that is refused."""
import datetime
import subprocess

import two_hosts

USAGES = "serverAuth,clientAuth"


def _openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, check=True)


def _date(hours):
    moment = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=hours)
    return moment.strftime("%Y%m%d%H%M%SZ")


class Authority:
    """One whose key is known: one's own, or a stolen one."""

    def __init__(self, key, certificate):
        self.key, self.certificate = key, certificate


class Forger:
    def __init__(self, folder, authorities):
        """`authorities`: what those who use the certificates trust, a file."""
        self.folder, self.authorities = folder, authorities
        self._number = 0
        folder.mkdir()
        (folder / "index.txt").touch()
        self.settings = folder / "ca.cnf"
        self.settings.write_text(
            f"[ca]\ndefault_ca=forger\n[forger]\ndatabase={folder}/index.txt\nnew_certs_dir={folder}\n"
            "default_md=sha256\nunique_subject=no\nrand_serial=yes\npolicy=any\n[any]\ncommonName=supplied\n"
            "[req]\ndistinguished_name=names\n[names]\n")

    def _new(self, suffix):
        self._number += 1
        return self.folder / f"{self._number:02}.{suffix}"

    def key(self):
        path = self._new("key")
        _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path)
        return path

    def request(self, key, subject="/CN=x", names=None):
        """PKCS #10, PEM."""
        path = self._new("csr")
        _openssl("req", "-config", self.settings, "-new", "-key", key, "-subj", subject, "-out", path,
                 *(["-addext", f"subjectAltName={names}"] if names else []))
        return path

    @staticmethod
    def der(request):
        return subprocess.run(["openssl", "req", "-in", request, "-outform", "DER"], capture_output=True,
                              check=True).stdout

    def pem(self, certificate):
        """A file with the certificate, which is DER."""
        path = self._new("pem")
        subprocess.run(["openssl", "x509", "-inform", "DER", "-out", path], input=certificate, capture_output=True,
                       check=True)
        return path

    def authority(self):
        made = Authority(self.key(), self._new("ca"))
        _openssl("req", "-config", self.settings, "-x509", "-key", made.key, "-subj", "/CN=another", "-days", 1,
                 "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign",
                 "-out", made.certificate)
        return made

    def leaf(self, authority, *uris, hours=(0, 1), usages=USAGES, names=()):
        """Of a new key. `authority` None: signed by itself. `hours`: from when, until when, from now."""
        key, certificate = self.key(), self._new("pem")
        names = ",".join([*(f"URI:{uri}" for uri in uris), *(f"DNS:{name}" for name in names)])
        extensions = ["basicConstraints=critical,CA:FALSE", "keyUsage=critical,digitalSignature",
                      *([f"extendedKeyUsage={usages}"] if usages else []),
                      *([f"subjectAltName={names}"] if names else [])]
        if authority is None:
            added = [word for extension in extensions for word in ("-addext", extension)]
            _openssl("req", "-config", self.settings, "-x509", "-key", key, "-subj", "/CN=x", "-days", 1, *added,
                     "-out", certificate)
        else:
            written = self._new("ext")
            written.write_text("\n".join(extensions) + "\n")
            _openssl("ca", "-batch", "-notext", "-config", self.settings, "-cert", authority.certificate,
                     "-keyfile", authority.key, "-startdate", _date(hours[0]), "-enddate",
                     _date(hours[1]), "-in", self.request(key), "-extfile", written, "-out", certificate)
        return two_hosts.Credentials(key, certificate, self.authorities)

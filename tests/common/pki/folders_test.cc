#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <future>
#include <string>

#include "common/files.h"
#include "common/pki/authority_folder.h"
#include "common/pki/credential_folder.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test_cluster.h"

namespace ringmaster::pki {
namespace {

namespace fs = std::filesystem;
using std::chrono::days;
using std::chrono::hours;
using testing::Must;
using testing::TestCluster;

constexpr Time kToday = std::chrono::sys_days(std::chrono::January / 15 / 2030) + hours(12);

// Where the umask would allow everything to everybody.
struct OpenUmask {
  mode_t before = umask(0);
  ~OpenUmask() { umask(before); }
};

mode_t ModeAt(const std::string& path) {
  struct stat found = {};
  REQUIRE(stat(path.c_str(), &found) == 0);
  return found.st_mode & 07777;
}

size_t EntriesOf(const std::string& folder) {
  return static_cast<size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST_CASE("Credential folder: is read as it was written, for this user alone") {
  const OpenUmask umask;
  const TemporaryFolder folder;
  const TestCluster cluster(kToday);
  const Credentials made = cluster.CredentialsOf(Kind::kWorker, "b", kToday);
  const std::string path = folder / "credentials";
  CHECK(LoadCredentials(path).status().code() == absl::StatusCode::kNotFound);
  REQUIRE(WriteCredentials(path + "/", made.key, made.certificate, made.authorities).ok());
  const Credentials own = Must(LoadCredentials(path));
  CHECK(own.key.Hash() == made.key.Hash());
  CHECK(own.certificate.ToDer() == made.certificate.ToDer());
  REQUIRE(own.authorities.size() == 1);
  CHECK(own.authorities[0].ToDer() == cluster.authority.certificate().ToDer());
  CHECK(own.identity == Identity{"home", Kind::kWorker, "b"});
  CHECK(own.not_after() == kToday + kLeafValidity);
  CHECK(ModeAt(path) == 0700);
  for (const char* file : {kKeyFile, kCertificateFile, kAuthoritiesFile}) {
    CHECK(ModeAt(path + "/" + file) == 0600);
  }
}

TEST_CASE("Credential folder: one that others may use is refused, and the command named") {
  const TemporaryFolder folder;
  const TestCluster cluster(kToday);
  const std::string path = folder / "credentials";
  cluster.Write(path, Kind::kWorker, "b", kToday);
  const auto refusal = [&]() {
    const Status status = LoadCredentials(path).status();
    CHECK(status.code() == absl::StatusCode::kPermissionDenied);
    return Message(status);
  };
  const std::string key = path + "/" + kKeyFile;
  SECTION("modes") {
    REQUIRE(chmod(key.c_str(), 0644) == 0);
    CHECK(refusal() == key + " has mode 0644, so that others may use it: `chmod 600 " + key + "`");
    REQUIRE(chmod(key.c_str(), 0600) == 0);
    REQUIRE(chmod((path + "/" + kAuthoritiesFile).c_str(), 0620) == 0);
    CHECK_THAT(refusal(), Catch::Contains("has mode 0620"));
    REQUIRE(chmod((path + "/" + kAuthoritiesFile).c_str(), 0600) == 0);
    REQUIRE(chmod(path.c_str(), 0755) == 0);
    CHECK(refusal() ==
          path + " has mode 0755, so that others may use it: `chmod 700 " + path + "`");
  }
  SECTION("a link") {
    fs::rename(key, folder / "elsewhere");
    fs::create_symlink(folder / "elsewhere", key);
    CHECK(refusal() == key + " is a symbolic link; put the file itself there");
  }
  SECTION("another owner") {
    if (geteuid() != 0) return;  // nobody else can give a file away
    REQUIRE(chown(key.c_str(), 65'534, 65'534) == 0);
    CHECK(refusal() ==
          key + " belongs to user 65534, and this process is user 0: `chown 0 " + key + "`");
  }
}

TEST_CASE("Credential folder: what is no pair, or cannot be read, is refused by name") {
  const TemporaryFolder folder;
  const TestCluster cluster(kToday);
  const std::string path = folder / "credentials";
  cluster.Write(path, Kind::kWorker, "b", kToday);
  const std::string key = path + "/" + kKeyFile;
  const auto refusal = [&]() {
    const Status status = LoadCredentials(path).status();
    CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
    return Message(status);
  };
  SECTION("another key") {
    WriteWhole(key, Must(Key::Generate()).ToPem().text());
    CHECK_THAT(refusal(), Catch::Contains("key.pem and certificate.pem in " + path +
                                          " do not match: the key is "));
  }
  SECTION("half a key, none, a pipe, a large one") {
    WriteWhole(key, ReadWhole(key).substr(0, 100));
    CHECK_THAT(refusal(), Catch::StartsWith(key + ": no private key"));
    fs::remove(key);
    CHECK(LoadCredentials(path).status().code() == absl::StatusCode::kNotFound);
    REQUIRE(mkfifo(key.c_str(), 0600) == 0);
    CHECK_THAT(refusal(), Catch::StartsWith(key + " is no plain file"));
    fs::remove(key);
    REQUIRE(WriteDurably(key, std::string((1 << 20) + 1, 'k')).ok());
    CHECK_THAT(refusal(), Catch::StartsWith(key + " is no plain file of at most 1048576"));
  }
  SECTION("authorities that are none") {
    WriteWhole(path + "/" + kAuthoritiesFile, ReadWhole(path + "/" + kCertificateFile));
    CHECK_THAT(refusal(), Catch::Contains("authorities.pem: one of them is not an authority's"));
  }
  SECTION("nobody's certificate") {
    const Key own = Must(Key::Generate());
    WriteWhole(key, own.ToPem().text());
    WriteWhole(path + "/" + kCertificateFile,
               cluster.Sign(own, {.names = "DNS:b", .first = kToday, .last = kToday}).ToPem());
    CHECK_THAT(refusal(), Catch::Contains("certificate.pem: the certificate names 0 URIs"));
  }
}

TEST_CASE("Credential folder: a new generation takes the old one's place, and what was left goes") {
  const TemporaryFolder folder;
  const TestCluster cluster(kToday);
  const std::string path = folder / "credentials";
  cluster.Write(path, Kind::kWorker, "b", kToday);
  // What a kill leaves in the middle of writing, and what only looks like it.
  fs::create_directory(folder / "credentials.generation-abcdef");
  WriteWhole(folder / "credentials.generation-abcdef/key.pem", "half");
  fs::create_directory(folder / "credentials.generation-of-mine");
  struct stat first = {}, second = {};
  REQUIRE(stat((path + "/" + kKeyFile).c_str(), &first) == 0);
  CHECK(Must(LoadCredentials(path)).identity.name == "b");
  cluster.Write(path, Kind::kWorker, "c", kToday);
  CHECK(Must(LoadCredentials(path)).identity.name == "c");
  CHECK(EntriesOf(folder.path()) == 3);  // the link, its generation, and the folder of mine
  CHECK(fs::exists(folder / "credentials.generation-of-mine"));
  REQUIRE(stat((path + "/" + kKeyFile).c_str(), &second) == 0);
  CHECK(second.st_mtim.tv_sec > first.st_mtim.tv_sec);
}

TEST_CASE("Credential folder: nothing changes when a new generation cannot be written") {
  const TemporaryFolder folder;
  const TestCluster cluster(kToday);
  const std::string path = folder / "credentials";
  const Credentials other = cluster.CredentialsOf(Kind::kWorker, "c", kToday);
  SECTION("another key's certificate, a certificate of nobody") {
    cluster.Write(path, Kind::kWorker, "b", kToday);
    const Key key = Must(Key::Generate());
    CHECK_FALSE(WriteCredentials(path, key, other.certificate, other.authorities).ok());
    CHECK_FALSE(
        WriteCredentials(path, cluster.authority.key(), cluster.authority.certificate(), {}).ok());
    CHECK(Must(LoadCredentials(path)).identity.name == "b");
    CHECK(EntriesOf(folder.path()) == 2);
  }
  SECTION("a folder of somebody's own") {
    fs::create_directory(path);
    const Status status = WriteCredentials(path, other.key, other.certificate, other.authorities);
    CHECK_THAT(Message(status), Catch::StartsWith(path + " is not a symbolic link"));
    CHECK(EntriesOf(folder.path()) == 1);
  }
}

TEST_CASE("Credential folder: who reads while it is exchanged has one generation, whole") {
  const TemporaryFolder folder;
  const TestCluster cluster(kToday);
  const std::string path = folder / "credentials";
  cluster.Write(path, Kind::kWorker, "b", kToday);
  std::atomic<bool> done = false;
  auto reader = std::async(std::launch::async, [&]() -> Status {
    while (!done) {
      const Status status = LoadCredentials(path).status();
      // A generation that was removed while it was read: gone, never mixed.
      if (!status.ok() && !absl::IsNotFound(status)) return status;
    }
    return absl::OkStatus();
  });
  for (int i = 0; i < 40; ++i) cluster.Write(path, Kind::kWorker, "b", kToday);
  done = true;
  const Status status = reader.get();
  CAPTURE(Message(status));
  CHECK(status.ok());
}

TEST_CASE("Credential folder: the check of one's own says what a peer would not") {
  const TemporaryFolder folder;
  const TestCluster cluster(kToday), other(kToday);
  const std::string path = folder / "credentials";
  const auto check = [&](Time now) { return Message(SelfCheck(path, now, "run `x`")); };
  CHECK(SelfCheck(path, kToday, "run `x`").code() == absl::StatusCode::kNotFound);
  cluster.Write(path, Kind::kUser, "eva", kToday);
  CHECK(SelfCheck(path, kToday, "run `x`").ok());
  CHECK_THAT(check(kToday + days(8)),
             Catch::StartsWith(path + ": the certificate of spiffe://home") &&
                 Catch::Contains("ended at") && Catch::EndsWith("; run `x`"));
  CHECK_THAT(check(kToday - hours(1)), Catch::Contains("the clocks differ by 55 min"));
  WriteWhole(path + "/" + kAuthoritiesFile, other.authority.certificate().ToPem());
  CHECK_THAT(check(kToday), Catch::Contains("is not signed by an authority that is trusted here (" +
                                            ShortHash(other.authority.key().Hash())));
  WriteWhole(path + "/" + kKeyFile, Must(Key::Generate()).ToPem().text());
  CHECK_THAT(check(kToday), Catch::Contains("do not match"));
}

TEST_CASE("Authority folder: is made once, whole, and the same ever after") {
  const OpenUmask umask;
  const TemporaryFolder folder;
  const std::string path = folder / "pki";
  const AuthorityFolder made = Must(AuthorityFolder::Open(path + "/", kToday));
  CHECK(ModeAt(path) == 0700);
  for (const char* file : {kAuthorityKeyFile, kAuthorityFile, kClusterFile}) {
    CHECK(ModeAt(path + "/" + file) == 0600);
  }
  CHECK(made.cluster().size() == 16);
  CHECK(EntriesOf(folder.path()) == 1);
  const Credentials server = Must(LoadCredentials(made.server()));
  CHECK(server.identity == Identity{made.cluster(), Kind::kCoordinator, "coordinator"});
  CHECK(server.not_after() == kToday + days(7));
  const AuthorityFolder again = Must(AuthorityFolder::Open(path, kToday + hours(1)));
  CHECK(again.cluster() == made.cluster());
  CHECK(again.At(kToday).signer.key().Hash() == made.At(kToday).signer.key().Hash());
  CHECK(Must(LoadCredentials(again.server())).key.Hash() == server.key.Hash());
}

TEST_CASE("Authority folder: the server's certificate is renewed after two thirds of its time") {
  const TemporaryFolder folder;
  AuthorityFolder made = Must(AuthorityFolder::Open(folder / "pki", kToday));
  const auto key = [&]() { return Must(LoadCredentials(made.server())).key.Hash(); };
  const Sha256Digest first = key();
  const Time due = made.RenewalDue(kToday);
  CHECK(due > kToday + hours(24 * 7 * 2 / 3 - 1));
  CHECK(due < kToday + hours(24 * 7 * 2 / 3 + 1));
  REQUIRE(made.Tend(due - std::chrono::seconds(1)).ok());
  CHECK(key() == first);
  REQUIRE(made.Tend(due).ok());
  CHECK(key() != first);
  CHECK(made.RenewalDue(due) > due + days(4));
  // A pair that is none, or gone, is mended by itself.
  WriteWhole(made.server() + "/" + kKeyFile, Must(Key::Generate()).ToPem().text());
  CHECK(made.RenewalDue(due) == due);
  REQUIRE(made.Tend(due).ok());
  fs::remove(made.server());
  REQUIRE(made.Tend(due).ok());
  CHECK(LoadCredentials(made.server()).ok());
}

TEST_CASE("Authority folder: one's own authority is taken, and has a cluster from then on") {
  const TemporaryFolder folder;
  const TestCluster own(kToday, "own");
  REQUIRE(MakePrivateFolder(folder / "pki").ok());
  REQUIRE(WriteDurably(folder / "pki/ca.key", own.authority.key().ToPem().text()).ok());
  const auto open = [&]() { return AuthorityFolder::Open(folder / "pki", kToday); };
  CHECK_THAT(Message(open().status()), Catch::Contains("pki has no ca.pem: restore it"));
  REQUIRE(WriteDurably(folder / "pki/ca.pem", own.authority.certificate().ToPem()).ok());
  SECTION("the id is made") {
    const std::string cluster = Must(open()).cluster();
    CHECK(cluster.size() == 16);
    CHECK(Must(open()).cluster() == cluster);
    CHECK(Must(open()).At(kToday).signer.key().Hash() == own.authority.key().Hash());
  }
  SECTION("the id is given") {
    REQUIRE(WriteDurably(folder / "pki/cluster-id", "own\n").ok());
    CHECK(Must(open()).cluster() == "own");
    REQUIRE(WriteDurably(folder / "pki/cluster-id", "a/b").ok());
    CHECK_THAT(Message(open().status()), Catch::Contains("cluster-id is no name"));
  }
  SECTION("it is no pair") {
    REQUIRE(WriteDurably(folder / "pki/ca.key", Must(Key::Generate()).ToPem().text()).ok());
    CHECK_THAT(Message(open().status()), Catch::Contains("ca.key and ca.pem: key and certificate"));
  }
}

TEST_CASE("Authority folder: one that others may use, or that lost its key, is no start") {
  const TemporaryFolder folder;
  const std::string path = folder / "pki";
  REQUIRE(MakePrivateFolder(path).ok());  // an empty one is filled
  const std::string server = Must(AuthorityFolder::Open(path, kToday)).server();
  const auto open = [&]() { return AuthorityFolder::Open(path, kToday).status(); };
  for (const std::string& file :
       {path + "/ca.key", path + "/ca.pem", path + "/cluster-id", server + "/key.pem"}) {
    REQUIRE(chmod(file.c_str(), 0640) == 0);
    CAPTURE(file);
    CHECK(open().code() == absl::StatusCode::kPermissionDenied);
    CHECK_THAT(Message(open()), Catch::EndsWith("`chmod 600 " + file + "`"));
    REQUIRE(chmod(file.c_str(), 0600) == 0);
  }
  REQUIRE(chmod(path.c_str(), 0750) == 0);
  CHECK_THAT(Message(open()), Catch::EndsWith("`chmod 700 " + path + "`"));
  REQUIRE(chmod(path.c_str(), 0700) == 0);
  CHECK(open().ok());
  fs::remove(path + "/ca.key");
  CHECK(open().code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(Message(open()), Catch::Contains("has no ca.key: restore it from a backup"));
}

// Authority A, and B that takes its place in the fortnight from kToday on.
struct Rotated {
  explicit Rotated(Time last_end = kToday + days(7))
      : made(Must(AuthorityFolder::Open(path, kToday))) {
    a = made.At(kToday).signer.key().Hash();
    RING_CHECK(made.Rotate(kToday, last_end).ok(), "it rotates");
  }
  [[nodiscard]] std::string NamesOf(const std::vector<Certificate>& authorities) const {
    std::string names;
    for (const Certificate& one : authorities) names += one.KeyHash() == a ? 'A' : 'B';
    return names;
  }
  // Whom one trusts at that time, the signer first, who does what there is to do; the same of one
  // that starts then.
  [[nodiscard]] std::string At(Time now) {
    REQUIRE(made.Tend(now).ok());
    const std::string names = NamesOf(made.At(now).trusted());
    CHECK(NamesOf(Must(AuthorityFolder::Open(path, now)).At(now).trusted()) == names);
    const Credentials server = Must(LoadCredentials(made.server()));
    CHECK(NamesOf(server.authorities) == names);
    CHECK(Verify(server.certificate, {server.authorities[0]}, Side::kServer, now).ok());
    return names;
  }
  const TemporaryFolder folder;
  const std::string path = folder / "pki";
  AuthorityFolder made;
  Sha256Digest a = {};
};

TEST_CASE("Authority folder: a new authority signs once everybody may know it, and stays alone") {
  Rotated folder;
  const Time half = kToday + days(7), end = kToday + days(14);
  CHECK_THAT(Message(folder.made.Rotate(kToday, kToday)),
             Catch::Contains("is taking the place of"));
  CHECK(folder.At(kToday) == "AB");
  CHECK_THAT(folder.made.TakeChange(), Catch::Contains("signs; trusted before:"));
  CHECK(folder.made.TakeChange().empty());
  CHECK(folder.At(half - std::chrono::seconds(1)) == "AB");
  CHECK(folder.At(half) == "BA");
  CHECK(folder.NamesOf({folder.made.At(half).newest().certificate()}) == "B");
  CHECK(folder.At(end - std::chrono::seconds(1)) == "BA");
  CHECK(folder.At(end) == "B");
  CHECK_FALSE(fs::exists(folder.path + "/next"));
  CHECK(folder.At(end + days(1)) == "B");
  REQUIRE(folder.made.Rotate(end + days(1), end + days(1)).ok());
  CHECK(folder.made.At(end + days(1)).trusted().size() == 2);
}

TEST_CASE("Authority folder: certificates of a longer life, from before, end in the first half") {
  const Time last_end = kToday + days(30), end = last_end + days(7);
  Rotated folder(last_end);
  CHECK(folder.At(last_end - std::chrono::seconds(1)) == "AB");
  CHECK(folder.At(last_end) == "BA");
  CHECK(folder.At(end - std::chrono::seconds(1)) == "BA");
  CHECK(folder.At(end) == "B");
}

TEST_CASE("Authority folder: while there are two, there is a server certificate of each") {
  Rotated folder;
  for (const Time now : {kToday, kToday + days(7)}) {
    REQUIRE(folder.made.Tend(now).ok());
    const std::vector<Credentials> servers = Must(folder.made.Servers(now));
    REQUIRE(servers.size() == 2);
    for (const Credentials& one : servers) {
      CHECK(Verify(one.certificate, {one.authorities.front()}, Side::kServer, now).ok());
    }
    CHECK(folder.NamesOf({servers[0].authorities[0], servers[1].authorities[0]}) == folder.At(now));
  }
  REQUIRE(folder.made.Tend(kToday + days(14)).ok());
  CHECK(Must(folder.made.Servers(kToday + days(14))).size() == 1);
}

TEST_CASE("Authority folder: an end that a crash broke off is brought to its end") {
  Rotated folder;
  const Time end = kToday + days(14);
  const std::string next = folder.path + "/next";
  fs::rename(next + "/ca.key", folder.path + "/ca.key");
  SECTION("behind the key") {}
  SECTION("behind both files") { fs::rename(next + "/ca.pem", folder.path + "/ca.pem"); }
  const AuthorityFolder again = Must(AuthorityFolder::Open(folder.path, end));
  CHECK(folder.NamesOf(again.At(end).trusted()) == "B");
  CHECK_FALSE(fs::exists(next));
}

TEST_CASE("Authority folder: the time in which nobody served is no part of a rotation") {
  Rotated folder;
  const Time late = kToday + days(30);
  const auto names_at = [&](const AuthorityFolder& opened, Time now) {
    return folder.NamesOf(opened.At(now).trusted());
  };
  SECTION("the first one: nobody knows the new authority") {
    AuthorityFolder again = Must(AuthorityFolder::Open(folder.path, late));
    CHECK(names_at(again, late + days(7) - std::chrono::seconds(1)) == "AB");
    REQUIRE(again.Tend(late + days(7)).ok());
    CHECK(names_at(again, late + days(14) - std::chrono::seconds(1)) == "BA");
    CHECK(names_at(Must(AuthorityFolder::Open(folder.path, late + days(8))), late + days(8)) ==
          "BA");
    CHECK(names_at(again, late + days(14)) == "B");
  }
  SECTION("the second one: some have no certificate of it yet") {
    REQUIRE(folder.made.Tend(kToday + days(7)).ok());
    const AuthorityFolder again = Must(AuthorityFolder::Open(folder.path, late));
    CHECK(names_at(again, late + days(7) - std::chrono::seconds(1)) == "BA");
    CHECK(names_at(again, late + days(7)) == "B");
  }
  SECTION("certificates that are good for longer from now on end before their authority does") {
    const AuthorityFolder again = Must(AuthorityFolder::Open(
        folder.path, kToday + days(1), {.leaf_validity = days(20), .overlap = days(40)}));
    CHECK(names_at(again, kToday + days(28) - std::chrono::seconds(1)) == "BA");
    CHECK(names_at(again, kToday + days(28)) == "B");
  }
}

TEST_CASE("Authority folder: the lost key of a new authority harms the old one not") {
  Rotated folder;
  REQUIRE(folder.made.Tend(kToday).ok());
  fs::remove(folder.path + "/next/ca.key");
  const auto open = [&]() { return AuthorityFolder::Open(folder.path, kToday).status(); };
  CHECK_THAT(Message(open()), Catch::Contains("next/ca.key is missing: restore it"));
  fs::remove_all(folder.path + "/next");
  CHECK(open().ok());
}

TEST_CASE("Authority folder: a rotation that cannot be read is no start") {
  Rotated folder;
  const std::string times = folder.path + "/next/times";
  const auto open = [&]() { return AuthorityFolder::Open(folder.path, kToday).status(); };
  REQUIRE(open().ok());
  WriteWhole(times, "soon\n");
  CHECK_THAT(Message(open()), Catch::Contains("next/times: expected two numbers"));
  REQUIRE(chmod((folder.path + "/next/ca.key").c_str(), 0640) == 0);
  CHECK(open().code() == absl::StatusCode::kPermissionDenied);
}

}  // namespace
}  // namespace ringmaster::pki

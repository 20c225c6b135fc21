#include "cli/context.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>

#include "tests/cli/run_ringctl.h"
#include "tests/support/test_cluster.h"

namespace ringmaster::cli {
namespace {

using testing::Must;

constexpr pki::Time kThen = std::chrono::sys_days(std::chrono::January / 15 / 2030);

// A folder of contexts, and those who are logged in there.
struct LoggedIn {
  TemporaryFolder folder;
  testing::TestCluster cluster{kThen};
  Contexts contexts{folder / "config/ringmaster"};

  [[nodiscard]] Status LogIn(const std::string& name, const Address& coordinator,
                             const std::string& who = "eva") const {
    const pki::Credentials own = cluster.CredentialsOf(pki::Kind::kUser, who, kThen);
    return contexts.Put(name, coordinator, own.key,
                        {own.certificate, own.authorities, own.identity});
  }
  [[nodiscard]] std::string file(const std::string& name) const {
    return contexts.folder() + "/" + name;
  }
};

mode_t ModeOf(const std::string& path) {
  struct stat found = {};
  return stat(path.c_str(), &found) == 0 ? found.st_mode & 07777 : 0;
}

TEST_CASE("Contexts: nobody is logged in where there is no folder") {
  const LoggedIn person;
  CHECK(Must(person.contexts.List()).empty());
  CHECK(Must(person.contexts.CurrentName()).empty());
  CHECK(!Must(person.contexts.Current()));
  CHECK(!Must(person.contexts.Of({"192.0.2.1", 7700})));
  CHECK(person.contexts.Get("home").status().code() == absl::StatusCode::kNotFound);
  CHECK(person.contexts.Remove("home").code() == absl::StatusCode::kNotFound);
}

TEST_CASE("Contexts: the newest login is the current one, and nobody else reads it") {
  const LoggedIn person;
  REQUIRE(person.LogIn("home", {"192.0.2.1", 7700}).ok());
  REQUIRE(person.LogIn("away", {"2001:db8::1", 7701}, "max").ok());
  CHECK(Must(person.contexts.Names()) == std::vector<std::string>{"away", "home"});
  const Context away = Must(person.contexts.Get("away"));
  CHECK(away.coordinator.ToString() == "[2001:db8::1]:7701");
  CHECK(Must(pki::LoadCredentials(away.credentials)).identity.name == "max");
  CHECK(Must(person.contexts.Current())->name == "away");
  for (const char* const name : {"", "away", "away/credentials"}) {
    CHECK(ModeOf(person.file(name)) == 0700);
  }
  for (const char* const name : {"current", "away/coordinator", "away/credentials/key.pem"}) {
    CHECK(ModeOf(person.file(name)) == 0600);
  }
  REQUIRE(person.contexts.Use("home").ok());
  CHECK(Must(person.contexts.CurrentName()) == "home");
  const Status unknown = person.contexts.Use("hone");
  CHECK(unknown.code() == absl::StatusCode::kNotFound);
  CHECK(Message(unknown) == "there is no context hone; did you mean home?");
  CHECK(Must(person.contexts.CurrentName()) == "home");
}

TEST_CASE("Contexts: of an address, the current one before the first by name") {
  const LoggedIn person;
  for (const char* const name : {"a", "b", "c"}) {
    REQUIRE(person.LogIn(name, {"192.0.2.1", 7700}).ok());
  }
  REQUIRE(person.LogIn("other", {"192.0.2.2", 7700}).ok());
  CHECK(Must(person.contexts.Of({"192.0.2.1", 7700}))->name == "a");
  REQUIRE(person.contexts.Use("b").ok());
  CHECK(Must(person.contexts.Of({"192.0.2.1", 7700}))->name == "b");
  CHECK(Must(person.contexts.Of({"192.0.2.2", 7700}))->name == "other");
  CHECK(!Must(person.contexts.Of({"192.0.2.1", 7701})));
}

TEST_CASE("Contexts: one that is removed is gone, with its key, and nobody is the current one") {
  const LoggedIn person;
  REQUIRE(person.LogIn("home", {"192.0.2.1", 7700}).ok());
  REQUIRE(person.LogIn("away", {"192.0.2.2", 7700}).ok());
  REQUIRE(person.contexts.Remove("home").ok());
  CHECK(Must(person.contexts.CurrentName()) == "away");
  REQUIRE(person.contexts.Remove("away").ok());
  CHECK(Must(person.contexts.CurrentName()).empty());
  CHECK(std::filesystem::is_empty(person.contexts.folder()));
}

TEST_CASE("Contexts: what cannot be read is said, and can be removed") {
  const LoggedIn person;
  REQUIRE(person.LogIn("home", {"192.0.2.1", 7700}).ok());
  WriteWhole(person.file("home/coordinator"), "nowhere\n");
  const Status broken = person.contexts.List().status();
  CHECK(broken.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(Message(broken).find("`ringctl logout home` removes it") != std::string::npos);
  CHECK(person.contexts.Remove("home").ok());
  REQUIRE(person.LogIn("home", {"192.0.2.1", 7700}).ok());
  std::filesystem::permissions(person.contexts.folder(), std::filesystem::perms(0750));
  const Status open = person.contexts.List().status();
  CHECK(open.code() == absl::StatusCode::kPermissionDenied);
  CHECK(Message(open).find("`chmod 700 " + person.contexts.folder()) != std::string::npos);
}

TEST_CASE("Contexts: a folder that others may read is none of ours until somebody logs in") {
  const LoggedIn person;
  std::filesystem::create_directories(person.file("profiles"));
  std::filesystem::permissions(person.contexts.folder(), std::filesystem::perms(0755));
  CHECK(Must(person.contexts.List()).empty());
  CHECK(!Must(person.contexts.Current()));
  CHECK(!Must(person.contexts.Of({"192.0.2.1", 7700})));
  REQUIRE(person.LogIn("home", {"192.0.2.1", 7700}).ok());
  CHECK(ModeOf(person.contexts.folder()) == 0700);
  CHECK(Must(person.contexts.Names()) == std::vector<std::string>{"home"});
}

TEST_CASE("Contexts: while one ringctl writes a context another one does not") {
  const LoggedIn person;
  REQUIRE(person.LogIn("home", {"192.0.2.1", 7700}).ok());
  const auto lock = Must(person.contexts.Lock("home", std::chrono::milliseconds(0)));
  CHECK(person.contexts.Lock("home", std::chrono::milliseconds(0)).status().code() ==
        absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("Contexts: names are those of folders that nobody confuses") {
  for (const char* const name : {"home", "a.b-c_d", "192.0.2.1", "7"}) {
    CHECK(CheckContextName(name).ok());
  }
  for (const char* const name : {"", ".", "..", "-o", "a/b", "current", "profiles", "a b"}) {
    CHECK(CheckContextName(name).code() == absl::StatusCode::kInvalidArgument);
  }
  CHECK(CheckContextName(std::string(101, 'a')).code() == absl::StatusCode::kInvalidArgument);
  CHECK(ContextNameOf({"coordinator.example", 7700}) == "coordinator.example");
  CHECK(ContextNameOf({"2001:db8::1", 7700}) == "2001-db8--1");
  CHECK(ContextNameOf({"::1", 7700}) == "1");
  CHECK(ContextNameOf({"current", 7700}) == "cluster");
}

TEST_CASE("Contexts: they are where XDG says, else in the home, else nowhere") {
  const Variable home("HOME", "/home/eva");
  const Variable config("XDG_CONFIG_HOME", "/etc/eva");
  CHECK(Must(Contexts::OfUser()).folder() == "/etc/eva/ringmaster");
  const Variable relative("XDG_CONFIG_HOME", "config");
  CHECK(Must(Contexts::OfUser()).folder() == "/home/eva/.config/ringmaster");
  const Variable homeless("HOME", "");
  CHECK(Contexts::OfUser().status().code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("DefaultCoordinator: the environment's, else the current context's") {
  const LoggedIn person;
  const Variable config("XDG_CONFIG_HOME", person.folder / "config");
  const Variable nowhere("RINGMASTER_COORDINATOR", "");
  const std::string without = DefaultCoordinator();
  REQUIRE(person.LogIn("home", {"192.0.2.1", 7700}).ok());
  CHECK(DefaultCoordinator() == "192.0.2.1:7700");
  {
    const Variable named("RINGMASTER_COORDINATOR", "192.0.2.9:1");
    CHECK(DefaultCoordinator() == "192.0.2.9:1");
  }
  REQUIRE(person.contexts.Remove("home").ok());
  CHECK(DefaultCoordinator() == without);
}

}  // namespace
}  // namespace ringmaster::cli

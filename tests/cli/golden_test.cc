// Every file in golden/ is a terminal session that must come out as it is written: `$` lines are
// run by ringctl itself against a fake coordinator, what they print to stdout stands below them
// indented, what they print to stderr behind `!`, then the exit code. `tty 80` before a command: on
// a terminal of 80 columns, and what is left on it. FOLDER is a new folder, FILES is files/.
// RINGMASTER_REWRITE=1 writes the sessions anew.
#include <fcntl.h>
#include <pty.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "cli/context.h"
#include "tests/cli/fake_jobs.h"
#include "tests/cli/run_ringctl.h"
#include "tests/cli/screen.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test_cluster.h"

namespace ringmaster::cli {
namespace {

// What stands on the terminal at the end. The output is small: a terminal holds it until it is
// read.
Outcome RunOnTerminal(const std::string& folder, size_t columns, std::vector<std::string> words) {
  int master = -1, slave = -1;
  winsize size{};
  size.ws_col = static_cast<unsigned short>(columns);
  size.ws_row = 24;
  if (openpty(&master, &slave, nullptr, nullptr, &size) != 0) return {"no pseudo-terminal", "", -1};
  fcntl(master, F_SETFL, O_NONBLOCK);
  const std::string err = folder + "/err";
  const int err_file = creat(err.c_str(), 0600);
  Outcome outcome;
  {
    const Redirect redirect_out(stdout, slave), redirect_err(stderr, err_file);
    outcome.code = RunRingctl(words);
  }
  Screen screen(columns);
  char bytes[4096];
  for (ssize_t n = 0; (n = read(master, bytes, sizeof(bytes))) > 0;) {
    screen.Write(std::string(bytes, static_cast<size_t>(n)));
  }
  for (const int file : {master, slave, err_file}) close(file);
  outcome.out = screen.Text();
  outcome.err = ReadWhole(err);
  return outcome;
}

// Addresses of the fake are the default one, and what gRPC says about a port is left out.
std::string Normalized(std::string text, const std::string& address) {
  for (size_t at = 0; (at = text.find(address, at)) != std::string::npos;) {
    text.replace(at, address.size(), "127.0.0.1:7700");
  }
  const size_t begin = text.find("(failed to connect"), end = text.find("); start one");
  if (begin != std::string::npos && end != std::string::npos) {
    text.replace(begin, end - begin, "(...");
  }
  return text;
}

std::string Prefixed(const std::string& prefix, const std::string& text) {
  std::istringstream stream(text);
  std::string prefixed;
  for (std::string line; std::getline(stream, line);) {
    prefixed += line.empty() ? "\n" : prefix + line + "\n";
  }
  return prefixed;
}

std::vector<std::string> Words(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), std::istream_iterator<std::string>()};
}

// One `$` line: the line itself, with what it prints.
std::string Play(const std::string& line, const std::string& folder, const std::string& address) {
  std::vector<std::string> words = Words(line.substr(2));
  size_t columns = 0;
  if (words.at(0) == "tty") {
    columns = std::strtoul(words.at(1).c_str(), nullptr, 10);
    words.erase(words.begin(), words.begin() + 2);
  }
  for (std::string& word : words) {
    if (word.rfind("FOLDER", 0) == 0) word.replace(0, 6, folder);
    if (word.rfind("FILES", 0) == 0) word.replace(0, 5, RINGMASTER_CLI_FILES);
  }
  Outcome outcome =
      columns == 0 ? RunToFiles(folder, words) : RunOnTerminal(folder, columns, words);
  for (std::string* text : {&outcome.out, &outcome.err}) {
    *text = Normalized(*text, address);
    for (size_t at = 0; (at = text->find(folder)) != std::string::npos;) {
      text->replace(at, folder.size(), "FOLDER");
    }
    const std::string files = RINGMASTER_CLI_FILES;
    for (size_t at = 0; (at = text->find(files)) != std::string::npos;) {
      text->replace(at, files.size(), "FILES");
    }
  }
  return line + "\n" + Prefixed("  ", outcome.out) + Prefixed("! ", outcome.err) +
         fmt::format("exit {}\n", outcome.code);
}

// Where the person of every session is logged in: at home, which is the current one, and away.
void LogIn(const std::string& config) {
  const pki::Time now = std::chrono::sys_days(std::chrono::January / 15 / 2030);
  const testing::TestCluster cluster(now);
  for (const auto& [name, host] :
       {std::pair("away", "192.0.2.9"), std::pair("home", "192.0.2.1")}) {
    const pki::Credentials own = cluster.CredentialsOf(pki::Kind::kUser, "eva", now);
    const Status put =
        Contexts(config + "/ringmaster")
            .Put(name, {host, 7700}, own.key, {own.certificate, own.authorities, own.identity});
    RING_CHECK(put.ok(), "a context of a session");
  }
}

// Comments and `$` lines stay; everything else is played again.
std::string PlaySession(const std::string& written, const std::string& address) {
  const TemporaryFolder folder, config;
  const Variable place("XDG_CONFIG_HOME", config.path());
  LogIn(config.path());
  std::istringstream stream(written);
  std::string played;
  for (std::string line; std::getline(stream, line);) {
    if (line.rfind("# ", 0) == 0) played += line + "\n";
    if (line.rfind("$ ", 0) != 0) continue;
    played += Play(line, folder.path(), address) + "\n";
  }
  return played;
}

// Times as UTC, no colours, one coordinator.
class Environment {
 public:
  explicit Environment(const std::string& address) {
    setenv("RINGMASTER_COORDINATOR", address.c_str(), 1);
    setenv("TZ", "UTC", 1);
    setenv("TERM", "xterm", 1);
    setenv("NO_COLOR", "1", 1);
    tzset();
  }
  ~Environment() { unsetenv("RINGMASTER_COORDINATOR"); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
};

TEST_CASE("Ringctl: every session comes out as it is written") {
  const FakeJobs jobs;
  const Environment environment(jobs.address());
  std::set<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(RINGMASTER_GOLDEN)) {
    paths.insert(entry.path());
  }
  REQUIRE(paths.size() >= 10);
  for (const std::filesystem::path& path : paths) {
    const std::string written = ReadWhole(path);
    const std::string played = PlaySession(written, jobs.address());
    if (std::getenv("RINGMASTER_REWRITE") != nullptr) {
      std::ofstream(path) << played;
      continue;
    }
    INFO(path.filename().string());
    CHECK(played == written);
  }
}

}  // namespace
}  // namespace ringmaster::cli

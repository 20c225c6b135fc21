// A plugin's process that ends, or does not, in the middle of something: what is tried again and
// how often, what the next process sees, and whom a job that ends lets go.
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <stop_token>
#include <thread>
#include <vector>

#include "tests/support/temporary_folder.h"
#include "tests/worker/backend/pjrt/host_children.h"
#include "tests/worker/backend/pjrt/small_step.h"
#include "worker/process/shared_memory.h"

namespace ringmaster {
namespace {

using Catch::Matchers::Contains;
using pjrt::PjrtBackend;
using pjrt::PluginOptions;
using testing::BoundProgram;
using testing::DoubleIsTold;
using testing::DoubleOptions;
using testing::KillChildren;
using testing::OnceMade;
using Access = SharedMemory::Access;

constexpr std::chrono::milliseconds kShort{300};

std::unique_ptr<PjrtBackend> StartDouble(const PluginOptions& options = DoubleOptions()) {
  auto backend = PjrtBackend::Create(options);
  REQUIRE(Message(backend.status()) == "");
  return *std::move(backend);
}

std::unique_ptr<BoundProgram> Bind(PjrtBackend& backend,
                                   const CoreOptions& options = {.name = "core0"}) {
  auto bound = testing::BindSmall(backend, options);
  REQUIRE(Message(bound.status()) == "");
  return *std::move(bound);
}

// Open files of this process whose memory has that name.
std::vector<int> MemoryCalled(const std::string& name) {
  std::vector<int> files;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone);
    if (target.starts_with("/memfd:" + name)) files.push_back(std::stoi(entry.path().filename()));
  }
  return files;
}

// What a plugin that goes wild does to memory: of files of that name how many took it.
size_t Scribble(const std::string& name) {
  size_t written = 0;
  for (const int file : MemoryCalled(name)) {
    struct stat facts = {};
    if (fstat(file, &facts) != 0) continue;
    const std::vector<char> noise(static_cast<size_t>(facts.st_size), '\x7f');
    if (pwrite(file, noise.data(), noise.size(), 0) > 0) ++written;
  }
  return written;
}

// How processes see such memory: rw-s.
std::set<std::string> ViewsOf(const std::string& name, const std::set<pid_t>& processes) {
  std::set<std::string> views;
  for (const pid_t process : processes) {
    std::ifstream maps("/proc/" + std::to_string(process) + "/maps");
    for (std::string line; std::getline(maps, line);) {
      if (line.find("/memfd:" + name) == std::string::npos) continue;
      views.insert(line.substr(line.find(' ') + 1, 4));
    }
  }
  return views;
}

// Nothing that this thread, and those that it starts, kills ends from here on: as if the kernel
// could not.
Status KillNobody() {
  const std::array<sock_filter, 4> filter = {
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_kill, 0, 1),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program = {static_cast<uint16_t>(filter.size()),
                              const_cast<sock_filter*>(filter.data())};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    return Internal("no filter of system calls: {}", errno);
  }
  return absl::OkStatus();
}

// Runs the plugin's program, but waits for ever while there is a file called `hangs`, and says so.
std::string HangingProgram(const TemporaryFolder& folder) {
  const std::string path = folder / "host.sh";
  std::ofstream(path) << "#!/bin/sh\n[ ! -e '" << (folder / "hangs") << "' ] || { : > '"
                      << (folder / "hanging") << "'; exec sleep 1000; }\nexec " << PJRT_HOST_FILE
                      << " \"$@\"\n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

}  // namespace

TEST_CASE("Plugin restart: deaths that are far apart do not go on for ever within one step") {
  PluginOptions options = DoubleOptions();
  options.max_deaths = 2;
  options.deaths_within = std::chrono::milliseconds(0);
  const DoubleIsTold told("execute=abort");
  const Status status = testing::SmallStep(options).status();
  CHECK(absl::IsUnavailable(status));
  CHECK_THAT(Message(status), Contains("died 3 times in step") && Contains("signal 6"));
}

TEST_CASE("Plugin restart: one that hangs as it compiles again is not tried once more") {
  PluginOptions options = DoubleOptions();
  options.compile_limit = std::chrono::minutes(5);
  bool again = false;
  options.late = [&](std::chrono::milliseconds limit) {
    const auto now = std::chrono::steady_clock::now();
    return again && limit == options.compile_limit ? now : now + limit;
  };
  const auto backend = StartDouble(options);
  const auto bound = Bind(*backend);
  const DoubleIsTold told("compile=hang");  // the next process
  again = true;
  KillChildren();
  const Status status = testing::RunSmall(*bound).status();
  CHECK(absl::IsDeadlineExceeded(status));
  CHECK(Message(status) == "the plugin did not compile within 5m, and its process was ended");
}

TEST_CASE("Plugin restart: of one that nothing ends there is no second, and it is left behind") {
  const TemporaryFolder folder;
  Status filtered, during, after;
  std::jthread([&] {
    filtered = KillNobody();
    if (!filtered.ok()) return;
    const DoubleIsTold told("execute=hang,once_file=" + (folder / "runs"));
    PluginOptions options = DoubleOptions();
    options.run_limit = kShort;
    options.end_limit = kShort;
    const auto backend = PjrtBackend::Create(options);
    auto bound = backend.ok() ? testing::BindSmall(**backend) : backend.status();
    during = bound.ok() ? testing::RunSmall(**bound).status() : bound.status();
    after = bound.ok() ? testing::RunSmall(**bound).status() : bound.status();
  }).join();
  const std::set<pid_t> left = testing::Children();  // which nobody waits for any more
  for (const pid_t child : left) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  REQUIRE(Message(filtered) == "");
  CHECK(left.size() == 1);
  for (const Status& status : {during, after}) {
    CHECK(absl::IsUnavailable(status));
    CHECK_THAT(Message(status), Contains("did not run a step within 300ms") &&
                                    Contains("does not end, not even by SIGKILL"));
  }
}

TEST_CASE("Plugin restart: what begins as another version is refused by both names") {
  const std::array<std::pair<const char*, const char*>, 4> cases = {
      {{"minor=103", "API 0.103"},
       {"version=newer", "double, newer, API"},
       {"stablehlo=21", "stablehlo_current_version 1.21.0"},
       {"devices=2", "2 of double, expected 1"}}};
  for (const auto& [told, said] : cases) {
    INFO(told);
    const auto backend = StartDouble();
    const auto bound = Bind(*backend);
    const DoubleIsTold other(told);
    KillChildren();
    const Status status = testing::RunSmall(*bound).status();
    CHECK(absl::IsFailedPrecondition(status));
    CHECK_THAT(Message(status), Contains(said) && Contains("expected"));
  }
}

TEST_CASE(
    "Plugin restart: the step is computed again from what it was given, whatever a plugin wrote") {
  const std::string clean = testing::CleanHash();
  const TemporaryFolder folder;
  const DoubleIsTold told("execute=hang,once_file=" + (folder / "runs"));
  const auto backend = StartDouble();
  const auto bound = Bind(*backend);
  size_t lanes = 0, weights = 0, texts = 0;
  std::set<std::string> views;
  OnceMade wild(folder.path(), [&] {
    views = ViewsOf("pjrt-weights", testing::Children());
    lanes = Scribble("pjrt-lane");
    weights = Scribble("pjrt-weights");
    texts = Scribble("pjrt-program");
    KillChildren();
  });
  const auto during = testing::RunSmall(*bound);
  REQUIRE(wild.Join());
  REQUIRE(Message(during.status()) == "");
  CHECK(during->Hash() == clean);
  CHECK(lanes == 1);
  CHECK(weights == 0);
  CHECK(texts == 0);
  CHECK(views == std::set<std::string>{"r--s"});
}

TEST_CASE("Plugin restart: memory that others only read they cannot map to write") {
  const auto read = SharedMemory::Create("read", 64, Access::kRead);
  REQUIRE(Message(read.status()) == "");
  read->data()[0] = std::byte{7};
  const auto open_again = [&](int flags) {
    return OwnedFile(open(("/proc/self/fd/" + std::to_string(read->file())).c_str(), flags));
  };
  CHECK(!SharedMemory::Map(open_again(O_RDWR), 64, Access::kWrite).ok());
  const auto seen = SharedMemory::Map(open_again(O_RDONLY), 64, Access::kRead);
  REQUIRE(Message(seen.status()) == "");
  CHECK(seen->data()[0] == std::byte{7});
}

TEST_CASE("Plugin restart: a run tells of an outage, and that it is over") {
  const std::string clean = testing::CleanHash();
  const auto backend = StartDouble();
  const auto bound = Bind(*backend);
  std::vector<Outage> told;
  bool wanted = true;
  bound->set_outage([&](Outage outage) {
    told.push_back(outage);
    return wanted;
  });
  REQUIRE(testing::RunSmall(*bound).ok());
  CHECK(told.empty());
  KillChildren();
  const auto again = testing::RunSmall(*bound);
  REQUIRE(Message(again.status()) == "");
  CHECK(again->Hash() == clean);
  CHECK(told == std::vector{Outage::kBegins, Outage::kEnds});

  // Nobody waits: the next run has it all before it.
  told.clear();
  wanted = false;
  KillChildren();
  CHECK(absl::IsCancelled(testing::RunSmall(*bound).status()));
  CHECK(told == std::vector{Outage::kBegins, Outage::kEnds});
  CHECK(testing::Children().empty());
  wanted = true;
  const auto third = testing::RunSmall(*bound);
  REQUIRE(Message(third.status()) == "");
  CHECK(third->Hash() == clean);
}

TEST_CASE(
    "Plugin restart: a job that ends waits for no compilation and no step, and spares the next") {
  const std::string clean = testing::CleanHash();
  PluginOptions options = DoubleOptions();
  options.max_deaths = 0;  // it is none
  const TemporaryFolder folder;
  for (const char* trouble : {"compile=hang", "execute=hang"}) {
    INFO(trouble);
    const DoubleIsTold told(std::string(trouble) + ",once_file=" + (folder / trouble));
    const auto backend = StartDouble(options);
    std::stop_source job;
    OnceMade end(folder.path(), [&] { job.request_stop(); });
    const auto ended = [&]() -> Status {
      RING_ASSIGN_OR_RETURN(
          const auto bound,
          testing::BindSmall(*backend, {.name = "core0", .stop = job.get_token()}));
      return testing::RunSmall(*bound).status();
    }();
    REQUIRE(end.Join());
    CHECK(absl::IsCancelled(ended));
    CHECK_THAT(Message(ended), Contains("the job ends"));
    // Of this job nothing begins any more, and nobody else's process is touched for it.
    const auto next = Bind(*backend);
    const std::set<pid_t> running = testing::Children();
    CHECK(absl::IsCancelled(
        testing::BindSmall(*backend, {.name = "core0", .stop = job.get_token()}).status()));
    const auto result = testing::RunSmall(*next);
    REQUIRE(Message(result.status()) == "");
    CHECK(result->Hash() == clean);
    CHECK(testing::Children() == running);
  }
}

TEST_CASE("Plugin restart: a job that ends leaves its programs without killing what runs") {
  const auto backend = StartDouble();
  const std::set<pid_t> running = testing::Children();
  {
    std::stop_source job;
    const auto bound = Bind(*backend, {.name = "core0", .stop = job.get_token()});
    job.request_stop();
    CHECK(absl::IsCancelled(testing::RunSmall(*bound).status()));
  }
  REQUIRE(testing::SmallStep(*backend).ok());
  CHECK(testing::Children() == running);
}

TEST_CASE("Plugin restart: a job that ends does not wait for a plugin that starts") {
  const TemporaryFolder folder;
  PluginOptions options = DoubleOptions();
  options.program = HangingProgram(folder);
  const auto backend = StartDouble(options);
  std::stop_source job;
  const auto bound = Bind(*backend, {.name = "core0", .stop = job.get_token()});
  std::ofstream(folder / "hangs").close();
  OnceMade end(folder.path(), [&] { job.request_stop(); });
  KillChildren();
  const Status status = testing::RunSmall(*bound).status();
  REQUIRE(end.Join());
  CHECK(absl::IsCancelled(status));
  CHECK_THAT(Message(status), Contains("the job ends"));
}

TEST_CASE("Plugin restart: one that does not start is named, with what to try") {
  const TemporaryFolder folder;
  std::ofstream(folder / "hangs").close();
  PluginOptions options = DoubleOptions();
  options.program = HangingProgram(folder);
  options.start_limit = kShort;
  const Status status = PjrtBackend::Create(options).status();
  CHECK(absl::IsDeadlineExceeded(status));
  CHECK_THAT(Message(status), Contains("did not start within 300ms") &&
                                  Contains("TPU_SKIP_MDS_QUERY=1") && Contains("--start-limit"));
}

}  // namespace ringmaster

// Programs are shared, by those who ask for one device and by devices: a text is compiled once. In
// this process, whose plugin double is told the same by all cases here; and in processes of its own
// where it is told to lack what that takes.
#include "worker/backend/pjrt/compile_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "tests/support/log_lines.h"
#include "tests/support/temporary_folder.h"
#include "tests/worker/backend/pjrt/small_step.h"

namespace ringmaster::pjrt {
namespace {

using Catch::Matchers::Contains;
using testing::DoubleIsTold;

constexpr char kDoubling[] =
    "module @twice { func.func @main(%x: tensor<2xf32>) -> (tensor<2xf32>) {\n"
    "%y = \"stablehlo.add\"(%x, %x) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>\n"
    "\"func.return\"(%y) : (tensor<2xf32>) -> () } }\n";
const TensorType kTwo = {Element::kFloat32, {2}};

// What a double did with programs, from its log_file.
std::vector<std::string> LinesOf(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// How many there are by their first word, and the devices of loads and compilations.
struct Done {
  explicit Done(const std::vector<std::string>& lines) {
    for (const std::string& line : lines) {
      const size_t space = line.find(' ');
      ++times[line.substr(0, space)];
      if (space != std::string::npos) devices.insert(line.substr(space + 1));
    }
  }
  std::map<std::string, int> times;
  std::set<std::string> devices;
};

// The double with four devices of 64 KiB, in this process. It reads what it is told once; the
// folder is of all cases.
class FourDevices {
 public:
  FourDevices() {
    const DoubleIsTold told("devices=4,memory=64KiB,ids=shuffled,log_file=" + log() +
                            ",compile_gate=" + gate());
    auto loaded = Plugin::Load(PJRT_DOUBLE_FILE, {});
    REQUIRE(Message(loaded.status()) == "");
    plugin_ = *std::move(loaded);
    before_ = LinesOf(log()).size();
  }

  [[nodiscard]] const Plugin& plugin() const { return *plugin_; }
  // Since this was made.
  [[nodiscard]] std::vector<std::string> Lines() const {
    std::vector<std::string> lines = LinesOf(log());
    lines.erase(lines.begin(), lines.begin() + static_cast<ptrdiff_t>(before_));
    return lines;
  }

  // Compilations wait from CloseGate to OpenGate, which waits for one of them.
  void CloseGate() const { REQUIRE(mkfifo(gate().c_str(), 0600) == 0); }
  void OpenGate() const {
    const int file = open(gate().c_str(), O_WRONLY | O_CLOEXEC);
    CHECK(file >= 0);
    unlink(gate().c_str());
    close(file);
  }

 private:
  static const std::string& folder() {
    static const TemporaryFolder folder;
    return folder.path();
  }
  static std::string log() { return folder() + "/log"; }
  static std::string gate() { return folder() + "/gate"; }

  std::unique_ptr<Plugin> plugin_;
  size_t before_ = 0;
};

// Whether a thread of this process waits for something.
bool Waits(pid_t thread) {
  std::ifstream file(fmt::format("/proc/self/task/{}/stat", thread));
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(") ");
  return name_end != std::string::npos && text[name_end + 2] == 'S';
}

// What each device gets that asks for a text while it is being compiled for one of them.
std::array<Status, 4> AskAtOnce(const FourDevices& four, CompileCache* cache,
                                const std::string& text) {
  std::array<Status, 4> statuses;
  std::array<std::shared_ptr<const Compiled>, 4> compiled;
  std::array<std::atomic<pid_t>, 4> threads = {};
  four.CloseGate();
  {
    std::vector<std::jthread> lanes;
    for (size_t device = 0; device < 4; ++device) {
      lanes.emplace_back([&, device] {
        threads[device] = gettid();
        auto got = cache->Get(device, text, {&kTwo, 1});
        statuses[device] = got.status();
        if (got.ok()) compiled[device] = *got;
      });
    }
    // One of them waits at the gate, the others for it.
    for (const auto& thread : threads) {
      while (thread == 0 || !Waits(thread)) std::this_thread::yield();
    }
    four.OpenGate();
  }
  return statuses;
}

void Ignore(const std::string& /*line*/) {}

}  // namespace

TEST_CASE("Compile cache: a text is compiled once, and other devices have its code") {
  const FourDevices four;
  std::vector<std::string> said;
  CompileCache cache(four.plugin(), [&](const std::string& line) { said.push_back(line); });
  const auto first = cache.Get(2, kDoubling, {&kTwo, 1});
  REQUIRE(Message(first.status()) == "");
  CHECK(*cache.Get(2, kDoubling, {&kTwo, 1}) == *first);
  const auto other = cache.Get(0, kDoubling, {&kTwo, 1});
  REQUIRE(Message(other.status()) == "");
  CHECK(*other != *first);
  CHECK(*cache.Get(0, kDoubling, {&kTwo, 1}) == *other);
  CHECK((*other)->bytes.code == (*first)->bytes.code);
  CHECK((*other)->bytes.known);
  CHECK(four.Lines() == std::vector<std::string>{"compile 3", "serialize", "load 7", "free"});

  // It runs where it is.
  std::array<float, 2> values = {1.5F, -3};
  const HostTensor tensor = {&kTwo, reinterpret_cast<std::byte*>(values.data())};
  const auto uploaded = four.plugin().Upload(0, {&tensor, 1});
  REQUIRE(Message(uploaded.status()) == "");
  const std::array<abi::Buffer*, 1> arguments = {(*uploaded)[0].get()};
  const auto results = four.plugin().Execute(**other, arguments, 1);
  REQUIRE(Message(results.status()) == "");
  REQUIRE(four.plugin().Download(*results, {&tensor, 1}).ok());
  CHECK(values == std::array<float, 2>{3.0F, -6.0F});

  // Another text is another program, and with other expectations it is checked again.
  CHECK(*cache.Get(2, std::string(kDoubling) + "\n", {&kTwo, 1}) != *first);
  const TensorType three = {Element::kFloat32, {3}};
  CHECK_THAT(Message(cache.Get(2, kDoubling, {&three, 1}).status()),
             Contains("result 0 is f32[2], expected f32[3]"));
  CHECK(said.empty());
}

TEST_CASE("Compile cache: who asks while it is compiled waits for that") {
  const FourDevices four;
  CompileCache cache(four.plugin(), Ignore);
  for (const Status& status : AskAtOnce(four, &cache, kDoubling)) CHECK(Message(status) == "");
  const Done done(four.Lines());
  CHECK(done.times ==
        std::map<std::string, int>{{"compile", 1}, {"serialize", 3}, {"load", 3}, {"free", 3}});
  CHECK(done.devices == std::set<std::string>{"1", "3", "5", "7"});
}

TEST_CASE("Compile cache: an error is of all who waited for it, and is not kept") {
  const FourDevices four;
  CompileCache cache(four.plugin(), Ignore);
  const std::string wrong = "module @x {";
  for (const Status& status : AskAtOnce(four, &cache, wrong)) {
    CHECK_THAT(Message(status), Contains("Failed to parse"));
  }
  CHECK(Done(four.Lines()).times == std::map<std::string, int>{{"compile", 1}});
  CHECK(!cache.Get(3, wrong, {&kTwo, 1}).ok());
  CHECK(Done(four.Lines()).times == std::map<std::string, int>{{"compile", 2}});
}

TEST_CASE("Compile cache: a device without memory lets kept programs go that nobody has") {
  const FourDevices four;
  std::vector<std::string> said;
  CompileCache cache(four.plugin(), [&](const std::string& line) { said.push_back(line); });
  // Three of them fit a device.
  const auto get = [&](size_t device, size_t which) {
    return cache.Get(device, std::string(kDoubling) + std::string(20'000 + which, '\n'),
                     {&kTwo, 1});
  };
  const auto compilations = [&] { return Done(four.Lines()).times["compile"]; };
  const auto held = get(0, 0);
  REQUIRE(Message(held.status()) == "");
  for (const size_t which : {1, 2}) REQUIRE(get(0, which).ok());
  REQUIRE(get(1, 3).ok());
  CHECK(compilations() == 4);
  const auto fourth = get(0, 4);
  REQUIRE(Message(fourth.status()) == "");
  CHECK(compilations() == 6);  // once in vain
  CHECK(said == std::vector<std::string>{
                    "device 0 has no memory left: of the programs that it kept 2 are let go"});
  // What is bound stays, and what another device keeps.
  CHECK(*get(0, 0) == *held);
  CHECK(get(1, 3).ok());
  CHECK(compilations() == 6);
  const auto again = get(0, 1);
  REQUIRE(Message(again.status()) == "");
  CHECK(compilations() == 7);
  // Where all are bound there is nothing to try.
  CHECK(absl::IsResourceExhausted(get(0, 5).status()));
  CHECK(compilations() == 8);
  CHECK(said.size() == 1);
}

TEST_CASE("Compile cache: a run without memory is tried again without programs that nobody has") {
  const auto clean = testing::SmallStep();
  REQUIRE(Message(clean.status()) == "");
  const TemporaryFolder folder;
  const testing::LogLines lines;
  const auto run = [&](const char* once, bool kept) -> StatusOr<std::string> {
    const DoubleIsTold told(fmt::format("execute=oom,once_file={}/{}", folder.path(), once));
    RING_ASSIGN_OR_RETURN(const auto backend, PjrtBackend::Create(testing::DoubleOptions()));
    if (kept) {  // by the plugin's process, once this is gone
      RING_RETURN_IF_ERROR(
          testing::BoundProgram::Create(*backend, testing::SmallProgram(2)).status());
    }
    RING_ASSIGN_OR_RETURN(const auto result, testing::SmallStep(*backend));
    return result.Hash();
  };
  const auto tried_again = run("once", true);
  REQUIRE(Message(tried_again.status()) == "");
  CHECK(*tried_again == clean->Hash());
  CHECK(lines.Await("device 0 has no memory left: of the programs that it kept 1 are let go"));
  CHECK(absl::IsResourceExhausted(run("another", false).status()));
}

TEST_CASE("Compile cache: the eight devices of a worker compile once") {
  const auto clean = testing::SmallStep();
  REQUIRE(Message(clean.status()) == "");
  const TemporaryFolder folder;
  const std::string log = folder / "log";
  const DoubleIsTold told("devices=8,ids=shuffled,log_file=" + log);
  const auto backend = PjrtBackend::Create(testing::DoubleOptions());
  REQUIRE(Message(backend.status()) == "");
  std::array<StatusOr<std::string>, 8> hashes;
  {
    std::vector<std::jthread> cores;
    for (uint32_t core = 0; core < 8; ++core) {
      cores.emplace_back([&, core] {
        hashes[core] = [&]() -> StatusOr<std::string> {
          RING_ASSIGN_OR_RETURN(const auto bound,
                                testing::BindSmall(**backend, {.name = "core", .device = core}));
          RING_ASSIGN_OR_RETURN(const auto result, testing::RunSmall(*bound));
          return result.Hash();
        }();
      });
    }
  }
  for (const auto& hash : hashes) {
    REQUIRE(Message(hash.status()) == "");
    CHECK(*hash == clean->Hash());
  }
  const Done done(LinesOf(log));
  CHECK(done.times ==
        std::map<std::string, int>{{"compile", 1}, {"serialize", 7}, {"load", 7}, {"free", 7}});
  CHECK(done.devices.size() == 8);
}

TEST_CASE("Compile cache: a plugin that cannot load for another device compiles for each") {
  const auto clean = testing::SmallStep();
  REQUIRE(Message(clean.status()) == "");
  const std::pair<const char*, const char*> cases[] = {
      {"minor=70", "from 0.71 on"},
      {"serialize=missing", "the plugin lacks PJRT_Executable_Serialize"},
      {"serialize=none", "PJRT_Executable_Serialize: to serialize is not implemented"},
      {"serialize=error", "PJRT_Executable_Serialize: to serialize fails"},
      {"load=missing", "the plugin lacks PJRT_Executable_DeserializeAndLoad"},
      {"load=none", "PJRT_Executable_DeserializeAndLoad: to load is not implemented"},
      {"load=error", "PJRT_Executable_DeserializeAndLoad: to load fails"},
      {"load=elsewhere", "loads a program for another device"},
  };
  for (const auto& [lacks, why] : cases) {
    INFO(lacks);
    const TemporaryFolder folder;
    const std::string log = folder / "log";
    const testing::LogLines lines;
    {
      const DoubleIsTold told(fmt::format("devices=3,log_file={},{}", log, lacks));
      const auto backend = PjrtBackend::Create(testing::DoubleOptions());
      REQUIRE(Message(backend.status()) == "");
      std::vector<std::unique_ptr<testing::BoundProgram>> cores;
      for (uint32_t core = 0; core < 3; ++core) {
        auto bound = testing::BindSmall(**backend, {.name = "core", .device = core});
        REQUIRE(Message(bound.status()) == "");
        const auto result = testing::RunSmall(**bound);
        REQUIRE(Message(result.status()) == "");
        CHECK(result->Hash() == clean->Hash());
        cores.push_back(*std::move(bound));
      }
    }
    const std::string text = lines.text();  // to its end: the process is over
    const std::string announced = "each device compiles for itself";
    const size_t at = text.find(announced);
    REQUIRE(at != std::string::npos);
    CHECK_THAT(text.substr(at), Contains(why));
    CHECK(text.find(announced, at + 1) == std::string::npos);
    Done done(LinesOf(log));
    CHECK(done.times["compile"] == 3);
    CHECK(done.times["free"] == done.times["serialize"]);
  }
}

}  // namespace ringmaster::pjrt

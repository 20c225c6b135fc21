// The plugin's process: that a step has the same bits when it dies in the middle, that nothing
// malformed is served, and what it keeps.
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <fstream>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "common/files.h"
#include "common/net/socket.h"
#include "tests/support/temporary_folder.h"
#include "tests/worker/backend/pjrt/host_children.h"
#include "tests/worker/backend/pjrt/small_step.h"
#include "worker/backend/pjrt/compiler.h"
#include "worker/backend/pjrt/host_message.h"
#include "worker/backend/pjrt/protocol.h"
#include "worker/process/shared_memory.h"
#include "worker/process/subprocess.h"

namespace ringmaster {
namespace {

using Catch::Matchers::Contains;
using pjrt::MessageKind;
using pjrt::PjrtBackend;
using Access = SharedMemory::Access;
using std::chrono::steady_clock;
using testing::Children;
using testing::DoubleIsTold;
using testing::DoubleOptions;

pjrt::Deadline Soon() { return steady_clock::now() + std::chrono::seconds(60); }

// A process whose control socket is ours.
std::shared_ptr<Subprocess> StartHost() {
  auto process = Subprocess::Start({.called = "the plugin's process",
                                    .command = {PJRT_HOST_FILE, std::to_string(getpid())},
                                    .environment = OwnEnvironment()});
  REQUIRE(Message(process.status()) == "");
  return *process;
}

// One with the double in it, and a lane into it.
struct OpenHost {
  std::shared_ptr<Subprocess> process;
  OwnedFile lane;
};
OpenHost OpenLane() {
  OpenHost host = {StartHost(), OwnedFile()};
  const std::string start =
      pjrt::Encode(pjrt::StartRequest{.plugin = PJRT_DOUBLE_FILE, .client = {}});
  REQUIRE(pjrt::Send(host.process->control(), MessageKind::kStart, start, {}, Soon()).ok());
  const auto started = pjrt::Receive(host.process->control(), Soon());
  REQUIRE(Message(started.status()) == "");
  REQUIRE(started->kind == MessageKind::kStarted);
  std::array<int, 2> ends = {};
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
  host.lane = OwnedFile(ends[0]);
  const OwnedFile theirs(ends[1]);
  const std::array<int, 1> files = {theirs.get()};
  REQUIRE(pjrt::Send(host.process->control(), MessageKind::kOpenLane, "", files, Soon()).ok());
  return host;
}

// One argument and one result, both f32[2], in the lane's memory.
pjrt::BindRequest Doubling(uint64_t text_bytes) {
  const pjrt::TensorType two = {pjrt::Element::kFloat32, {2}};
  return {.device = 0,
          .text_bytes = text_bytes,
          .weights = {.id = 1, .bytes = 0, .tensors = {}},
          .arguments = {{.resident = false, .index = 0, .place = {two, 0}}},
          .results = {{two, 64}}};
}
constexpr char kDoubling[] =
    "module @twice attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {\n"
    "func.func @main(%x: tensor<2xf32>) -> (tensor<2xf32>) {\n"
    "%y = \"stablehlo.add\"(%x, %x) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>\n"
    "\"func.return\"(%y) : (tensor<2xf32>) -> () } }\n";

StatusOr<pjrt::HostMessage> BindOn(const OpenHost& host, const pjrt::BindRequest& request) {
  RING_ASSIGN_OR_RETURN(const auto text,
                        SharedMemory::Create("text", sizeof(kDoubling) - 1, Access::kRead));
  std::memcpy(text.data(), kDoubling, text.bytes());
  RING_ASSIGN_OR_RETURN(const auto weights, SharedMemory::Create("weights", 0, Access::kRead));
  const std::array<int, 2> files = {text.file(), weights.file()};
  RING_RETURN_IF_ERROR(
      pjrt::Send(host.lane.get(), MessageKind::kBind, pjrt::Encode(request), files, Soon()));
  return pjrt::Receive(host.lane.get(), Soon());
}

void CheckEndsMalformed(const OpenHost& host) {
  CHECK(absl::IsUnavailable(pjrt::Receive(host.lane.get(), Soon()).status()));
  CHECK_THAT(Message(host.process->Fate()), Contains("exit code 3") && Contains("said last"));
}

}  // namespace

TEST_CASE("Plugin host: a step in which the plugin aborts has the same bits") {
  const std::string clean = testing::CleanHash();
  const TemporaryFolder folder;
  for (const char* trouble : {"execute=abort", "execute=segv"}) {
    INFO(trouble);
    const DoubleIsTold told(std::string(trouble) + ",once_file=" + (folder / trouble));
    const auto result = testing::SmallStep();
    REQUIRE(Message(result.status()) == "");
    CHECK(result->Hash() == clean);
  }
}

TEST_CASE("Plugin host: a step in which the plugin hangs has the same bits") {
  const std::string clean = testing::CleanHash();
  const TemporaryFolder folder;
  const DoubleIsTold told("execute=hang,once_file=" + (folder / "hangs"));
  std::optional<testing::OnceMade> hangs;
  bool late = true, hung = false;
  pjrt::PluginOptions options = DoubleOptions();
  options.late = [&](std::chrono::milliseconds limit) {
    // The first step is late as soon as it hangs.
    if (limit != options.run_limit || !std::exchange(late, false)) {
      return steady_clock::now() + limit;
    }
    hung = hangs->Join();
    return steady_clock::now();
  };
  const auto backend = PjrtBackend::Create(options);
  REQUIRE(Message(backend.status()) == "");
  const auto bound = testing::BindSmall(**backend);
  REQUIRE(Message(bound.status()) == "");
  hangs.emplace(folder.path(), [] {});
  const auto result = testing::RunSmall(**bound);
  REQUIRE(Message(result.status()) == "");
  CHECK(result->Hash() == clean);
  CHECK(hung);
}

TEST_CASE("Plugin host: kill -9 between steps changes no bit") {
  const std::string clean = testing::CleanHash();
  const auto backend = PjrtBackend::Create(DoubleOptions());
  REQUIRE(Message(backend.status()) == "");
  const auto bound = testing::BindSmall(**backend);
  REQUIRE(Message(bound.status()) == "");
  testing::KillChildren();
  const auto after = testing::RunSmall(**bound);
  REQUIRE(Message(after.status()) == "");
  CHECK(after->Hash() == clean);
}

TEST_CASE("Plugin host: kill -9 within a step changes no bit") {
  const std::string clean = testing::CleanHash();
  const TemporaryFolder folder;
  const DoubleIsTold told("execute=hang,once_file=" + (folder / "runs"));
  const auto backend = PjrtBackend::Create(DoubleOptions());
  REQUIRE(Message(backend.status()) == "");
  const auto bound = testing::BindSmall(**backend);
  REQUIRE(Message(bound.status()) == "");
  const std::set<pid_t> running = Children();
  // It makes the file when it is in the step, and stays there.
  testing::OnceMade killer(folder.path(), [] { testing::KillChildren(); });
  const auto during = testing::RunSmall(**bound);
  REQUIRE(Message(during.status()) == "");
  CHECK(killer.Join());
  CHECK(during->Hash() == clean);
  CHECK(Children() != running);
}

TEST_CASE("Plugin host: cores whose process dies under them go on, side by side") {
  const std::string clean = testing::CleanHash();
  const TemporaryFolder folder;
  const DoubleIsTold told("devices=2,execute=abort,execute_at=3,once_file=" + (folder / "died"));
  const auto backend = PjrtBackend::Create(DoubleOptions());
  REQUIRE(Message(backend.status()) == "");
  constexpr int kSteps = 4;
  std::array<Status, 3> statuses;
  std::array<std::set<std::string>, 3> hashes;
  {
    std::vector<std::jthread> cores;
    for (uint32_t core = 0; core < 3; ++core) {
      cores.emplace_back([&, core] {
        statuses[core] = [&]() -> Status {
          RING_ASSIGN_OR_RETURN(
              const auto bound,
              testing::BindSmall(**backend, {.name = "core", .device = core % 2}));
          for (int step = 0; step < kSteps; ++step) {
            RING_ASSIGN_OR_RETURN(const auto result, testing::RunSmall(*bound));
            hashes[core].insert(result.Hash());
          }
          return absl::OkStatus();
        }();
      });
    }
  }
  for (uint32_t core = 0; core < 3; ++core) {
    CHECK(Message(statuses[core]) == "");
    CHECK(hashes[core] == std::set<std::string>{clean});
  }
  CHECK(std::ifstream(folder / "died").good());
}

TEST_CASE("Plugin host: the process ends with the backend") {
  const std::set<pid_t> before = Children();
  {
    const auto backend = PjrtBackend::Create(DoubleOptions());
    REQUIRE(Message(backend.status()) == "");
    CHECK(Children().size() == before.size() + 1);
  }
  CHECK(Children() == before);
}

TEST_CASE("Plugin host: every Refresh reaches the device") {
  const auto backend = PjrtBackend::Create(DoubleOptions());
  REQUIRE(Message(backend.status()) == "");
  const auto bound = testing::BindSmall(**backend);
  REQUIRE(Message(bound.status()) == "");
  std::vector<std::string> hashes;
  for (const uint64_t weights_seed : {1, 2, 1}) {
    const auto result = testing::RunSmall(**bound, weights_seed);
    REQUIRE(Message(result.status()) == "");
    hashes.push_back(result->Hash());
  }
  CHECK(hashes[0] != hashes[1]);
  CHECK(hashes[0] == hashes[2]);
}

TEST_CASE("Plugin host: a shard of fewer rows has the gradients of a program of so many") {
  const auto backend = PjrtBackend::Create(DoubleOptions());
  REQUIRE(Message(backend.status()) == "");
  const graph::Program small = testing::SmallProgram(3);
  const auto feeds = testing::FeedProgram(small, {.classes = testing::kSmallClasses});
  auto exact = testing::BoundProgram::Create(**backend, small);
  REQUIRE(Message(exact.status()) == "");
  const auto expected = (*exact)->Run(feeds, testing::KeysOf(small));
  REQUIRE(Message(expected.status()) == "");

  auto larger = testing::BoundProgram::Create(**backend, testing::SmallProgram(5));
  REQUIRE(Message(larger.status()) == "");
  REQUIRE((*larger)
              ->Run(testing::FeedProgram(testing::SmallProgram(5),
                                         {.seed = 9, .classes = testing::kSmallClasses}),
                    testing::KeysOf(testing::SmallProgram(5)))
              .ok());  // whose rows must not shine through
  const auto padded = (*larger)->Run(feeds, testing::KeysOf(small));
  REQUIRE(Message(padded.status()) == "");
  CHECK(padded->order == expected->order);
  CHECK(padded->output.scalars[0] == Approx(expected->output.scalars[0]).epsilon(1e-5));
  for (size_t p = 0; p < small.parameters.size(); ++p) {
    INFO(small.parameters[p].name);
    for (size_t i = 0; i < expected->gradients[p].size(); ++i) {
      CHECK(padded->gradients[p][i] ==
            Approx(expected->gradients[p][i]).epsilon(1e-4).margin(1e-6));
    }
  }
  for (size_t i = 0; i < expected->output.batch_means.size(); ++i) {
    CHECK(padded->output.batch_means[i] ==
          Approx(expected->output.batch_means[i]).epsilon(1e-4).margin(1e-6));
  }
  // More than it has it does not take.
  const graph::Program six = testing::SmallProgram(6);
  const auto more = (*larger)->Run(testing::FeedProgram(six, {.classes = testing::kSmallClasses}),
                                   testing::KeysOf(six));
  CHECK(absl::IsInvalidArgument(more.status()));
}

TEST_CASE("Plugin host: what is asked properly is answered") {
  const OpenHost host = OpenLane();
  auto memory = SharedMemory::Create("lane", 128, Access::kWrite);
  REQUIRE(memory.ok());
  const std::array<int, 1> files = {memory->file()};
  REQUIRE(pjrt::Send(host.lane.get(), MessageKind::kMemory,
                     pjrt::Encode(pjrt::MemoryRequest{.bytes = 128}), files, Soon())
              .ok());
  REQUIRE(pjrt::Receive(host.lane.get(), Soon())->kind == MessageKind::kDone);
  const auto reply = BindOn(host, Doubling(sizeof(kDoubling) - 1));
  REQUIRE(Message(reply.status()) == "");
  REQUIRE(reply->kind == MessageKind::kBound);
  const uint32_t program = pjrt::Decode<pjrt::BindReply>(*reply)->program;
  auto* const values = reinterpret_cast<float*>(memory->data());
  values[0] = 1.5F;
  values[1] = -3;
  REQUIRE(pjrt::Send(host.lane.get(), MessageKind::kRun,
                     pjrt::Encode(pjrt::RunRequest{.program = program}), {}, Soon())
              .ok());
  REQUIRE(pjrt::Receive(host.lane.get(), Soon())->kind == MessageKind::kDone);
  CHECK(values[16] == 3.0F);
  CHECK(values[17] == -6.0F);
}

TEST_CASE("Plugin host: signals that are for the worker do not end its plugin") {
  const OpenHost host = OpenLane();
  for (const int signal : {SIGTERM, SIGINT}) REQUIRE(kill(host.process->id(), signal) == 0);
  const auto reply = BindOn(host, Doubling(sizeof(kDoubling) - 1));
  REQUIRE(Message(reply.status()) == "");
  CHECK(reply->kind == MessageKind::kBound);
}

TEST_CASE("Plugin host: what is malformed ends the process with an error") {
  SECTION("bytes that are no message") {
    const OpenHost host = OpenLane();
    const std::string noise(64, 'x');
    REQUIRE(write(host.lane.get(), noise.data(), noise.size()) > 0);
    CheckEndsMalformed(host);
  }
  SECTION("a body that is too short") {
    const OpenHost host = OpenLane();
    REQUIRE(pjrt::Send(host.lane.get(), MessageKind::kRun, "1", {}, Soon()).ok());
    CheckEndsMalformed(host);
  }
  SECTION("a body that is too long") {
    const OpenHost host = OpenLane();
    const std::string body = pjrt::Encode(pjrt::ReleaseRequest{}) + "x";
    REQUIRE(pjrt::Send(host.lane.get(), MessageKind::kRelease, body, {}, Soon()).ok());
    CheckEndsMalformed(host);
  }
  SECTION("a program that was never bound") {
    const OpenHost host = OpenLane();
    const std::string body = pjrt::Encode(pjrt::RunRequest{.program = 7});
    REQUIRE(pjrt::Send(host.lane.get(), MessageKind::kRun, body, {}, Soon()).ok());
    CheckEndsMalformed(host);
  }
  SECTION("a device that is not there") {
    const OpenHost host = OpenLane();
    pjrt::BindRequest request = Doubling(sizeof(kDoubling) - 1);
    request.device = 100;
    CHECK(!BindOn(host, request).ok());
    CheckEndsMalformed(host);
  }
  SECTION("text that is larger than its file") {
    const OpenHost host = OpenLane();
    CHECK(!BindOn(host, Doubling(1 << 20)).ok());
    CheckEndsMalformed(host);
  }
  SECTION("a tensor outside of the memory") {
    const OpenHost host = OpenLane();  // whose lane has none
    const auto reply = BindOn(host, Doubling(sizeof(kDoubling) - 1));
    REQUIRE(Message(reply.status()) == "");
    const std::string body =
        pjrt::Encode(pjrt::RunRequest{.program = pjrt::Decode<pjrt::BindReply>(*reply)->program});
    REQUIRE(pjrt::Send(host.lane.get(), MessageKind::kRun, body, {}, Soon()).ok());
    CheckEndsMalformed(host);
  }
  SECTION("dimensions whose product overflows") {
    const OpenHost host = OpenLane();
    pjrt::BindRequest request = Doubling(sizeof(kDoubling) - 1);
    request.weights.tensors = {
        {.group = pjrt::WeightGroup::kParameters,
         .place = {{pjrt::Element::kFloat32, {int64_t{1} << 62, int64_t{1} << 62}}, 0}}};
    CHECK(!BindOn(host, request).ok());
    CheckEndsMalformed(host);
  }
  SECTION("a file that can still shrink") {
    const OpenHost host = OpenLane();
    const OwnedFile file(memfd_create("unsealed", MFD_CLOEXEC));
    REQUIRE(ftruncate(file.get(), 128) == 0);
    const std::array<int, 1> files = {file.get()};
    const std::string body = pjrt::Encode(pjrt::MemoryRequest{.bytes = 128});
    REQUIRE(pjrt::Send(host.lane.get(), MessageKind::kMemory, body, files, Soon()).ok());
    CheckEndsMalformed(host);
  }
  SECTION("a request before the plugin is named") {
    const auto process = StartHost();
    REQUIRE(pjrt::Send(process->control(), MessageKind::kRun, "", {}, Soon()).ok());
    CHECK_THAT(Message(process->Fate()), Contains("exit code 3"));
  }
}

TEST_CASE("Plugin host: compile options have the bytes of XLA's message") {
  const std::string options = pjrt::CompileOptions(0, "tpu");
  const std::string build(
      "\x1a\x1a\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x20\x01\x28\x01\x4a\x09\x08\x01\x10\x01"
      "\x1a\x03\x0a\x01\x00",
      28);
  const std::string excess = std::string("\x3a\x20\x0a\x1a") + "xla_allow_excess_precision" +
                             std::string("\x12\x02\x10\x00", 4);
  CHECK(options == build + excess);
  CHECK_THAT(pjrt::CompileOptions(300, "cuda"),
             Contains("xla_gpu_deterministic_ops") && Contains("xla_gpu_autotune_level"));
}

}  // namespace ringmaster

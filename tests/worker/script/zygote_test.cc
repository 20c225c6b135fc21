// Children that are processes: how they are forked, read, ended, and what is said of their end.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "common/mutex.h"
#include "tests/support/temporary_folder.h"
#include "tests/worker/script/fake_child.h"
#include "worker/process/subprocess.h"
#include "worker/script/zygote.h"

namespace ringmaster::script {
namespace {

using Catch::Contains;

constexpr std::chrono::seconds kLong{20};

// What children printed, and a zygote that is told what goes wrong.
struct Nursery {
  StatusOr<std::unique_ptr<Zygote>> Create(const std::string& how,
                                           const std::stop_token& stop = {}) {
    return Zygote::Create({.python = FAKE_ZYGOTE_FILE,
                           .environment = OwnEnvironment(),
                           .script = how,
                           .up_limit = kLong,
                           .stack_limit = kLong,
                           .print =
                               [this](uint32_t core, const std::string& line) {
                                 MutexLock lock(mu);
                                 lines.push_back(std::to_string(core) + ": " + line);
                                 changed.NotifyAll();
                               }},
                          stop);
  }
  // Once a line has these words; empty: none came.
  std::string Await(const std::string& words) {
    MutexLock lock(mu);
    std::string found;
    const auto there = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      for (const std::string& line : lines) {
        if (line.find(words) != std::string::npos) found = line;
      }
      return !found.empty();
    };
    changed.WaitUntil(mu, Soon(), there);
    return found;
  }

  // Of how many lines children were heard, printed or left out, once they are so many.
  size_t AwaitTold(size_t wanted) {
    MutexLock lock(mu);
    size_t told = 0;
    const auto there = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      told = 0;
      for (const std::string& line : lines) {
        size_t left_out = 0;
        told += std::sscanf(line.c_str(), "%*u: ... %zu more", &left_out) == 1 ? left_out : 1;
      }
      return told >= wanted;
    };
    changed.WaitUntil(mu, Soon(), there);
    return told;
  }

  Mutex mu;
  Condition changed;
  std::vector<std::string> lines ABSL_GUARDED_BY(mu);
};

v1::ScriptHello HelloOf(uint32_t core) {
  v1::ScriptHello hello;
  hello.set_core(core);
  hello.set_threads(1);
  return hello;
}

pid_t ProcessOf(const Child& child) {
  const std::string& called = child.called();
  return std::stoi(called.substr(called.find("(process ") + 9));
}

v1::ScriptLayout LayoutOf(SharedMemory* state) {
  v1::ScriptLayout layout;
  layout.set_bytes(4096);
  layout.add_offsets(0);
  layout.add_offsets(2048);
  auto memory = SharedMemory::Create("state", layout.bytes(), SharedMemory::Access::kRead);
  REQUIRE(memory.ok());
  *state = *std::move(memory);
  return layout;
}

TEST_CASE("Zygote: children of several cores attach, compute, and one that is killed says so") {
  Nursery nursery;
  const auto zygote = nursery.Create("");
  REQUIRE(Message(zygote.status()) == "");
  std::vector<StartedChild> children;
  SharedMemory state;
  const v1::ScriptLayout layout = LayoutOf(&state);
  const std::vector<uint64_t> samples = {1, 2};
  const ShardCall call = {.step = 4, .batch = 8, .shard = 1, .shards = 4, .samples = samples};
  for (const uint32_t core : {0U, 1U}) {
    auto child = (*zygote)->Start(HelloOf(core), kLong, {});
    REQUIRE(Message(child.status()) == "");
    CHECK(child->attached.facts.tensors_size() == 2);
    CHECK_THAT(child->child->called(), Catch::StartsWith("core" + std::to_string(core)));
    REQUIRE(Message(child->child->LayOut(layout, state, Soon())) == "");
    const auto done = child->child->Compute(call, 1, 1, 2, Soon(), [](uint32_t) {});
    REQUIRE(Message(done.status()) == "");
    CHECK(done->metrics == std::vector<double>{2});
    children.push_back(*std::move(child));
  }
  CHECK(ProcessOf(*children[0].child) != ProcessOf(*children[1].child));

  kill(ProcessOf(*children[0].child), SIGKILL);
  const Status died = children[0].child->Compute(call, 1, 1, 2, Soon(), [](uint32_t) {}).status();
  CHECK(absl::IsUnavailable(died));
  CHECK_THAT(Message(died), Contains("was killed by signal 9 (Killed)") &&
                                Contains("by somebody, or because memory ran out"));
  CHECK(children[1].child->Compute(call, 1, 1, 2, Soon(), [](uint32_t) {}).ok());
}

TEST_CASE("Zygote: one that is killed is started again, and its children are gone with it") {
  Nursery nursery;
  const auto zygote = nursery.Create("");
  REQUIRE(zygote.ok());
  const auto first = (*zygote)->Start(HelloOf(0), kLong, {});
  const auto other = (*zygote)->Start(HelloOf(1), kLong, {});
  REQUIRE(first.ok());
  REQUIRE(other.ok());
  const pid_t id = ProcessOf(*first->child);
  const pid_t parent = [&] {
    int found = 0;
    std::FILE* const file = std::fopen(("/proc/" + std::to_string(id) + "/stat").c_str(), "r");
    REQUIRE(file != nullptr);
    CHECK(std::fscanf(file, "%*d (%*[^)]) %*c %d", &found) == 1);
    std::fclose(file);
    return found;
  }();
  kill(parent, SIGKILL);
  kill(id, SIGKILL);  // as its leash would
  const auto lost = [](const StartedChild& started) {
    return started.child->Compute({.samples = {}}, 1, 1, 2, Soon(), [](uint32_t) {}).status();
  };
  CHECK(absl::IsUnavailable(lost(*first)));
  const auto second = (*zygote)->Start(HelloOf(0), kLong, {});
  REQUIRE(Message(second.status()) == "");
  CHECK(ProcessOf(*second->child) != id);
  // Of one that ends only now nobody will say how.
  kill(ProcessOf(*other->child), SIGKILL);
  const Status gone = lost(*other);
  CHECK(absl::IsUnavailable(gone));
  CHECK_THAT(Message(gone), Contains("is gone: the process that it was a fork of ended"));
  CHECK(other->child->killed());
}

TEST_CASE("Zygote: what a child prints comes line by line, and of a flood a part") {
  Nursery nursery;
  const auto zygote = nursery.Create("prints");
  REQUIRE(zygote.ok());
  const auto child = (*zygote)->Start(HelloOf(3), kLong, {});
  REQUIRE(Message(child.status()) == "");
  CHECK(nursery.Await("line 0") == "3: line 0");
  kill(ProcessOf(*child->child), SIGKILL);
  CHECK_THAT(nursery.Await("more lines"), Contains("of which there were too many at once"));
  CHECK(nursery.AwaitTold(5'001) == 5'001);  // the last one has no end
}

TEST_CASE("PipeLines: who floods has turns as others do") {
  std::array<int, 2> ends = {};
  REQUIRE(pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) == 0);
  const OwnedFile from(ends[0]);
  OwnedFile to(ends[1]);
  const std::string line = std::string(1023, 'x') + "\n";
  for (int i = 0; i < 48; ++i) REQUIRE(write(to.get(), line.data(), line.size()) == 1024);
  size_t lines = 0;
  PipeLines output([&](const std::string&) { ++lines; });
  CHECK(output.Read(from.get(), 20 << 10));
  CHECK(lines == 32);  // two pieces of 16 KiB
  CHECK(output.Read(from.get(), 20 << 10));
  CHECK(lines == 48);
  to = OwnedFile();
  CHECK_FALSE(output.Read(from.get()));
}

TEST_CASE("Zygote: children that do not come to attach, and why") {
  const auto fate_of = [](const std::string& how, std::chrono::milliseconds patience,
                          Nursery* nursery) {
    const auto zygote = nursery->Create(how);
    REQUIRE(Message(zygote.status()) == "");
    return (*zygote)->Start(HelloOf(0), patience, {}).status();
  };
  Nursery nursery;
  const Status died = fate_of("dies", kLong, &nursery);
  CHECK(absl::IsUnavailable(died));
  CHECK_THAT(Message(died), Contains("was killed by signal 11 (Segmentation fault)"));
  const Status left = fate_of("exits", kLong, &nursery);
  CHECK(absl::IsUnavailable(left));
  CHECK_THAT(Message(left), Contains("ended with exit code 7"));
  // Of many fates that nobody asks for the oldest goes.
  CHECK_THAT(Message(fate_of("exits among many", kLong, &nursery)),
             Contains("ended with exit code 7"));
  const Status deserted = fate_of("deserts", kLong, &nursery);
  CHECK(absl::IsUnavailable(deserted));
  CHECK_THAT(Message(deserted), Contains("ended while it forked a child for core 0"));
  const Status hung = fate_of("hangs", std::chrono::milliseconds(1), &nursery);
  CHECK(absl::IsDeadlineExceeded(hung));
  CHECK_THAT(Message(hung), Contains("did not come to ringmaster.torch.attach in time"));
  CHECK(nursery.Await("train.py:12") == "0: train.py:12 in loop");
}

TEST_CASE("Zygote: what is killed before it is up is started again, five times at most") {
  const TemporaryFolder folder;
  Nursery nursery;
  const std::string early = folder / "killed early";
  const auto zygote = nursery.Create(early);
  CHECK(Message(zygote.status()) == "");
  for (const char* const how : {"killed in fork", "child killed"}) {
    const auto started = nursery.Create(folder / how);
    REQUIRE(Message(started.status()) == "");
    const auto child = (*started)->Start(HelloOf(0), kLong, {});
    CHECK(Message(child.status()) == "");
    CHECK(std::filesystem::file_size(folder / (std::string(how) + ".killed")) == 2);
  }
  const Status always = nursery.Create(folder / "always killed early").status();
  CHECK(absl::IsUnavailable(always));
  CHECK_THAT(Message(always), Contains("was killed by signal 9"));
  CHECK(std::filesystem::file_size(folder / "always killed early.killed") == 5);
}

TEST_CASE("Zygote: an interpreter that cannot run scripts is refused, with its reason") {
  Nursery nursery;
  const Status lacks = nursery.Create("no torch").status();
  CHECK(absl::IsFailedPrecondition(lacks));
  CHECK_THAT(Message(lacks), Contains("apt install python3-torch"));
  const Status ended = nursery.Create("dies at once").status();
  CHECK(absl::IsFailedPrecondition(ended));
  CHECK_THAT(Message(ended), Contains("cannot run scripts") && Contains("ended with exit code 5"));
  std::stop_source stop;
  stop.request_stop();
  CHECK(absl::IsCancelled(nursery.Create("", stop.get_token()).status()));
}

}  // namespace
}  // namespace ringmaster::script

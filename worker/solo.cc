#include "worker/solo.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <numeric>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "common/data/dataset.h"
#include "common/files.h"
#include "common/float_mode.h"
#include "common/job/resolve.h"
#include "common/mutex.h"
#include "common/sha256.h"
#include "worker/backend/backend.h"
#include "worker/script/script_backend.h"
#include "worker/train/trainer.h"

namespace ringmaster::worker {
namespace {

using std::chrono::steady_clock;

constexpr int kLane = 3;
constexpr std::chrono::minutes kAttachLimit{10};

struct SoloFlags {
  std::string script, checkpoint, python;
  std::vector<std::string> arguments;
  uint32_t cores = 1;
  uint32_t threads_per_core = 1;
  bool quiet = false;
};

// The one child that there is: the script that started this program. It has attached already.
class OneChild final : public script::ChildSource {
 public:
  explicit OneChild(script::StartedChild child) : child_(std::move(child)) {}
  StatusOr<script::StartedChild> Start(const v1::ScriptHello& /*hello*/,
                                       script::Deadline /*deadline*/) override {
    MutexLock lock(mu_);
    if (child_.child != nullptr) return std::move(child_);
    return FailedPrecondition("the script is over");
  }

 private:
  Mutex mu_;
  script::StartedChild child_ ABSL_GUARDED_BY(mu_);
};

// Each checkpoint in the folder, in place of the one before.
class FolderSink final : public CheckpointSink {
 public:
  explicit FolderSink(std::string folder) : folder_(std::move(folder)) {}
  Status Deliver(const Checkpoint& checkpoint, const std::stop_token& /*stop*/) override {
    RING_RETURN_IF_ERROR(MakePrivateFolder(folder_, IfThere::kKeep));
    // The manifest comes last, so that what it names is there.
    for (const CheckpointFile& file : checkpoint.files) {
      RING_RETURN_IF_ERROR(WriteDurably(folder_ + "/" + file.name, file.bytes, 0644));
    }
    return absl::OkStatus();
  }

 private:
  const std::string folder_;
};

// A line a second.
class Lines final : public Observer {
 public:
  explicit Lines(uint64_t total) : total_(total) {}
  void OnProgress(const Progress& progress) override {
    const auto now = steady_clock::now();
    if (progress.applied < total_ && now - said_ < std::chrono::seconds(1)) return;
    said_ = now;
    fmt::print(stderr, "ringmaster: step {} of {}{}\n", progress.applied, total_,
               LogText(progress.train));
  }

 private:
  const uint64_t total_;
  steady_clock::time_point said_;
};

class Silent final : public Observer {
 public:
  void OnProgress(const Progress& /*progress*/) override {}
};

StatusOr<v1::ResolvedJob> JobOf(const SoloFlags& flags, const v1::ScriptFacts& facts,
                                const Backend& backend) {
  v1::JobSpec spec;
  spec.set_name("solo");
  spec.mutable_script()->set_file(std::filesystem::path(flags.script).filename());
  RING_ASSIGN_OR_RETURN(const std::string content, Sha256HexOfFile(flags.script));
  return job::ResolveScript(spec, facts, content, backend.numerics_class(flags.threads_per_core));
}

Status Train(const SoloFlags& flags) {
  auto child = std::make_unique<script::Child>(OwnedFile(kLane), "the script");
  v1::ScriptHello hello;
  hello.set_threads(flags.threads_per_core);
  hello.set_deterministic(true);
  RING_ASSIGN_OR_RETURN(script::Attached attached,
                        child->Attach(hello, steady_clock::now() + kAttachLimit));
  const v1::ScriptFacts facts = attached.facts;
  RING_ASSIGN_OR_RETURN(const auto cpu, MakeBackend("cpu"));
  OneChild children({std::move(child), {facts, OwnedFile()}});
  RING_ASSIGN_OR_RETURN(
      const auto backend,
      script::ScriptBackend::Create(
          {.facts = facts, .numerics = cpu->numerics_class(flags.threads_per_core)},
          std::move(attached.initial), &children));
  RING_ASSIGN_OR_RETURN(const v1::ResolvedJob resolved, JobOf(flags, facts, *backend));
  RING_ASSIGN_OR_RETURN(
      const auto trainer,
      Trainer::Prepare(JobId("solo"), resolved, data::Dataset::OfFacts(resolved.result().data()),
                       backend.get(), {{.name = "core0", .threads = flags.threads_per_core}}));
  Assignment assignment{.generation = {1, 1}, .position = {0, 1}};
  assignment.shards.resize(resolved.result().shards());
  std::iota(assignment.shards.begin(), assignment.shards.end(), 0);
  Lines lines(resolved.result().total_steps());
  Silent silent;
  RunPeers peers;
  if (!flags.checkpoint.empty()) peers.sink = std::make_shared<FolderSink>(flags.checkpoint);
  peers.observer = flags.quiet ? static_cast<Observer*>(&silent) : &lines;
  const RunResult result = trainer->Run(assignment, peers, {});
  if (result.end == RunEnd::kFinished) {
    fmt::print(stderr, "ringmaster: trained {} steps; state {}{}\n", result.applied,
               Hex(result.digest),
               flags.checkpoint.empty() ? "" : ", checkpoint in " + flags.checkpoint);
    return absl::OkStatus();
  }
  return FailedPrecondition("{}", result.reason);
}

}  // namespace

int SoloMain(int argc, const char* const* argv) {
  CLI::App app{"trains with the script that started it, which is its only core"};
  app.name("ringworker solo");
  SoloFlags flags;
  app.add_option("--script", flags.script, "the script's file")->required();
  app.add_option("--checkpoint", flags.checkpoint, "folder of the checkpoint; none without it");
  app.add_option("--threads-per-core", flags.threads_per_core, "of the script")
      ->check(CLI::Range(1, 1024));
  app.add_flag("--quiet", flags.quiet, "no line for each second");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  struct stat lane = {};
  if (fstat(kLane, &lane) != 0 || !S_ISSOCK(lane.st_mode)) {
    fmt::print(stderr,
               "ringworker solo: file descriptor {} is no socket: ringmaster.torch.attach starts "
               "this program, people start the script\n",
               kLane);
    return 2;
  }
  spdlog::set_level(spdlog::level::warn);
  const Status status = Train(flags);
  if (status.ok()) return 0;
  fmt::print(stderr, "ringworker solo: {}\n", Message(status));
  return 1;
}

}  // namespace ringmaster::worker

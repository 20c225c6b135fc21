#include "worker/solo.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "common/data/dataset.h"
#include "common/files.h"
#include "common/job/resolve.h"
#include "common/job/script_files.h"
#include "common/numeric/float_mode.h"
#include "common/sha256.h"
#include "common/signals.h"
#include "worker/backend/backend.h"
#include "worker/identity.h"
#include "worker/script/script_job.h"
#include "worker/state/checkpoint.h"
#include "worker/state/manifest.h"
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
  bool resume = false;
  bool quiet = false;
};

// Each checkpoint in the folder, in place of the one before, which is there, whole, until then.
class FolderSink final : public CheckpointSink {
 public:
  // `keeps_former`: what another training left there goes to FOLDER.former.
  FolderSink(std::string folder, bool keeps_former)
      : folder_(std::move(folder)), keeps_former_(keeps_former) {}
  Status Deliver(const Checkpoint& checkpoint, const std::stop_token& /*stop*/) override {
    const std::string fresh = folder_ + ".new", former = folder_ + ".former";
    std::error_code error;
    std::filesystem::remove_all(fresh, error);
    RING_RETURN_IF_ERROR(MakePrivateFolder(fresh));
    for (const CheckpointFile& file : checkpoint.files) {
      RING_RETURN_IF_ERROR(WriteDurably(fresh + "/" + file.name, file.bytes, 0644));
    }
    if (std::exchange(keeps_former_, false) && std::filesystem::exists(folder_, error)) {
      std::filesystem::remove_all(former, error);
      std::filesystem::rename(folder_, former, error);
    }
    if (renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, folder_.c_str(), RENAME_EXCHANGE) == 0) {
      std::filesystem::remove_all(fresh, error);
    } else {
      std::filesystem::rename(fresh, folder_, error);
    }
    if (!error) return absl::OkStatus();
    return FailedPrecondition("the checkpoint is in {}, and not in {}: {}", fresh, folder_,
                              error.message());
  }

 private:
  const std::string folder_;
  bool keeps_former_;
};

// SIGINT ends the run at a step boundary.
class Interrupts {
 public:
  Interrupts() : thread_([this](const std::stop_token& stop) { Wait(stop); }) {}
  [[nodiscard]] std::stop_token token() const { return boundary_.get_token(); }

 private:
  void Wait(const std::stop_token& stop) {
    constexpr std::chrono::milliseconds kSlice{100};
    while (!stop.stop_requested()) {
      if (WaitForSignal(kSlice)) boundary_.request_stop();
    }
  }

  std::stop_source boundary_;
  std::jthread thread_;
};

// A line a second.
class Lines final : public Observer {
 public:
  explicit Lines(uint64_t total) : total_(total) {}
  void OnProgress(const Progress& progress) override {
    const auto now = steady_clock::now();
    const bool soon = progress.applied < total_ && now - said_ < std::chrono::seconds(1);
    if (soon || progress.applied == last_) return;
    said_ = now;
    last_ = progress.applied;
    fmt::print(stderr, "ringmaster: step {} of {}{}\n", progress.applied, total_,
               LogText(progress.train));
  }

 private:
  const uint64_t total_;
  uint64_t last_ = 0;
  steady_clock::time_point said_;
};

class Silent final : public Observer {
 public:
  void OnProgress(const Progress& /*progress*/) override {}
};

// As `ringctl submit SCRIPT -- ARGUMENTS` has it.
StatusOr<v1::ResolvedJob> JobOf(const SoloFlags& flags, const v1::ScriptFacts& facts,
                                const v1::NumericsClass& numerics) {
  v1::JobSpec spec;
  spec.set_name("solo");
  v1::Script& script = *spec.mutable_script();
  const std::filesystem::path path(flags.script);
  script.set_file(path.filename());
  *script.mutable_args() = {flags.arguments.begin(), flags.arguments.end()};
  std::string content;
  if (!flags.script.empty()) {
    RING_RETURN_IF_ERROR(job::ReadScriptFiles(path.parent_path(), &script));
    content = job::ScriptContent(script);
  }
  return job::ResolveScript(spec, facts, content, numerics);
}

// Children for all cores but the first, which is the script that started this program. nullptr:
// there are none.
StatusOr<std::unique_ptr<script::Zygote>> OtherChildren(const SoloFlags& flags) {
  if (flags.cores == 1) return nullptr;
  return script::Zygote::Create(
      {.python = flags.python,
       .environment = script::ScriptEnvironment(OwnEnvironment(), script::FindPackage(),
                                                flags.threads_per_core, {}),
       .script = flags.script,
       .arguments = flags.arguments,
       .print = [](uint32_t core,
                   const std::string& line) { fmt::print(stderr, "core{}: {}\n", core, line); }},
      std::stop_token());
}

std::vector<CoreOptions> CoresOf(const SoloFlags& flags) {
  std::vector<CoreOptions> cores(flags.cores);
  for (size_t i = 0; i < cores.size(); ++i) {
    cores[i].name = fmt::format("core{}", i);
    cores[i].threads = flags.threads_per_core;
  }
  return cores;
}

Status Train(const SoloFlags& flags) {
  auto child = std::make_unique<script::Child>(OwnedFile(kLane),
                                               script::ChildProcess{.called = "the script"});
  v1::ScriptHello hello;
  hello.set_threads(flags.threads_per_core);
  hello.set_deterministic(true);
  RING_ASSIGN_OR_RETURN(script::Attached attached,
                        child->Attach(hello, steady_clock::now() + kAttachLimit));
  const v1::ScriptFacts facts = attached.facts;
  RING_ASSIGN_OR_RETURN(const auto cpu, MakeBackend("cpu"));
  const v1::NumericsClass numerics = NumericsOf(*cpu, flags.threads_per_core);
  RING_ASSIGN_OR_RETURN(const auto others, OtherChildren(flags));
  script::FirstChild children({std::move(child), {facts, OwnedFile()}}, others.get());
  RING_ASSIGN_OR_RETURN(const auto backend,
                        script::ScriptBackend::Create({.facts = facts, .numerics = numerics},
                                                      std::move(attached.initial), &children));
  RING_ASSIGN_OR_RETURN(const v1::ResolvedJob resolved, JobOf(flags, facts, numerics));
  RING_ASSIGN_OR_RETURN(
      const auto trainer,
      Trainer::Prepare(JobId("solo"), resolved, data::Dataset::OfFacts(resolved.result().data()),
                       backend.get(), CoresOf(flags)));
  backend->ForgetGiven();
  const std::vector<std::string>& known = trainer->known_shard_sha256();
  if (std::ranges::adjacent_find(known, std::not_equal_to<>()) != known.end()) {
    return FailedPrecondition(
        "the same shard gave other gradients on another core: what decides bits is not the same in "
        "the script's own process and in those of {}: libraries, their threads, the environment",
        flags.python);
  }
  Assignment assignment{.generation = {1, 1}, .position = {0, 1}};
  assignment.shards.resize(resolved.result().shards());
  std::iota(assignment.shards.begin(), assignment.shards.end(), 0);
  if (flags.resume) {
    RING_ASSIGN_OR_RETURN(const Checkpoint checkpoint, ReadCheckpointFolder(flags.checkpoint));
    RING_RETURN_IF_ERROR(trainer->Restore(checkpoint));
    assignment.start_step = trainer->applied();
  }
  const Interrupts interrupts;
  Lines lines(resolved.result().total_steps());
  Silent silent;
  RunPeers peers;
  peers.at_boundary = interrupts.token();
  if (!flags.checkpoint.empty()) {
    peers.sink = std::make_shared<FolderSink>(flags.checkpoint, !flags.resume);
  }
  peers.observer = flags.quiet ? static_cast<Observer*>(&silent) : &lines;
  const RunResult result = trainer->Run(assignment, peers, {});
  const std::string where = peers.sink ? ", checkpoint in " + flags.checkpoint : "";
  if (result.end == RunEnd::kFinished) {
    fmt::print(stderr, "ringmaster: trained {} steps; state {}{}\n", result.applied,
               Hex(result.digest), where);
    return absl::OkStatus();
  }
  if (result.end == RunEnd::kFailed) return FailedPrecondition("{}", result.reason);
  if (peers.sink != nullptr) {
    RING_ASSIGN_OR_RETURN(const Checkpoint checkpoint, trainer->MakeCheckpoint());
    RING_RETURN_IF_ERROR(peers.sink->Deliver(checkpoint, {}));
  }
  fmt::print(stderr, "ringmaster: stopped at step {} of {}{}{}\n", result.applied,
             resolved.result().total_steps(), where,
             peers.sink ? "; RINGMASTER_RESUME=1 goes on from there" : "");
  return absl::OkStatus();
}

}  // namespace

int SoloMain(int argc, const char* const* argv) {
  CLI::App app{"trains with the script that started it, which is its only core"};
  app.name("ringworker solo");
  SoloFlags flags;
  app.add_option("--script", flags.script, "the script's file; none: there is one core");
  app.add_option("--python", flags.python, "the interpreter of the other cores");
  app.add_option("--cores", flags.cores, "shards computed side by side")
      ->check(CLI::Range(1, 1024));
  app.add_option("argument", flags.arguments, "of the script, behind --");
  app.add_option("--checkpoint", flags.checkpoint, "folder of the checkpoint; none without it");
  app.add_option("--threads-per-core", flags.threads_per_core, "of the script")
      ->check(CLI::Range(1, 1024));
  app.add_flag("--resume", flags.resume, "go on from the checkpoint");
  app.add_flag("--quiet", flags.quiet, "no line for each second");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (flags.cores > 1 && (flags.script.empty() || flags.python.empty())) {
    fmt::print(stderr, "ringworker solo: --cores {} wants --script and --python\n", flags.cores);
    return 2;
  }
  struct stat lane = {};
  if (fstat(kLane, &lane) != 0 || !S_ISSOCK(lane.st_mode)) {
    fmt::print(stderr,
               "ringworker solo: file descriptor {} is no socket: ringmaster.torch.attach starts "
               "this program, people start the script\n",
               kLane);
    return 2;
  }
  BlockSignals();
  spdlog::set_level(spdlog::level::warn);
  const Status status = Train(flags);
  if (status.ok()) return 0;
  fmt::print(stderr, "ringworker solo: {}\n", Message(status));
  return 1;
}

}  // namespace ringmaster::worker

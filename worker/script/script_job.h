// The script of a job on this worker, from its files to a backend: written into a folder of its
// own, run up to attach in a first child, and what it said there. Owned by whoever serves the job,
// and outlives its trainer. Thread-compatible.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <stop_token>
#include <string>

#include "common/mutex.h"
#include "common/status.h"
#include "ringmaster/v1/job.pb.h"
#include "ringmaster/v1/script.pb.h"
#include "worker/script/script_backend.h"
#include "worker/script/zygote.h"

namespace ringmaster::script {

struct ScriptJobOptions {
  std::string folder;   // for its files; whatever is there goes
  std::string package;  // folder of Python's package ringmaster; empty: where Python finds it
  std::map<std::string, std::string> interpreters;  // path of each by its name
  uint32_t threads = 1;                             // of a core
  v1::NumericsClass numerics;                       // of the worker
  std::chrono::milliseconds attach_limit{600'000}, shard_limit{600'000};
};

// What an interpreter of scripts needs of this process's environment, and what makes its bits
// repeat; `of_job` comes last. Nothing that may be a secret.
[[nodiscard]] std::vector<std::string> ScriptEnvironment(
    const std::vector<std::string>& own, const std::string& package, uint32_t threads,
    const google::protobuf::RepeatedPtrField<v1::ScriptVariable>& of_job);

// Where the package lies that belongs to this program: RINGMASTER_PYTHON, else
// lib/ringmaster/python beside the program's folder. Empty: nowhere.
[[nodiscard]] std::string FindPackage();

// Children, of which the first has attached already.
class FirstChild final : public ChildSource {
 public:
  // `others` outlives it; nullptr: there is no other one.
  FirstChild(StartedChild first, ChildSource* others) : first_(std::move(first)), others_(others) {}
  [[nodiscard]] StatusOr<StartedChild> Start(const v1::ScriptHello& hello,
                                             std::chrono::milliseconds patience,
                                             const std::stop_token& stop) override;

 private:
  Mutex mu_;
  StartedChild first_ ABSL_GUARDED_BY(mu_);
  ChildSource* const others_;
};

class ScriptJob {
 public:
  // FAILED_PRECONDITION: this worker has no such interpreter, or it cannot run scripts; the script
  // raised, with FAILURE_CODE_SCRIPT. CANCELLED: `stop` came first.
  [[nodiscard]] static StatusOr<std::unique_ptr<ScriptJob>> Open(const v1::Script& script,
                                                                 const ScriptJobOptions& options,
                                                                 const std::stop_token& stop);
  ~ScriptJob();  // ends its children, and removes its files
  ScriptJob(const ScriptJob&) = delete;
  ScriptJob& operator=(const ScriptJob&) = delete;

  [[nodiscard]] const v1::ScriptFacts& facts() const { return facts_; }
  [[nodiscard]] ScriptBackend* backend() const { return backend_.get(); }

 private:
  explicit ScriptJob(std::string folder) : folder_(std::move(folder)) {}

  const std::string folder_;
  v1::ScriptFacts facts_;
  std::unique_ptr<Zygote> zygote_;
  std::unique_ptr<FirstChild> children_;
  std::unique_ptr<ScriptBackend> backend_;
};

}  // namespace ringmaster::script

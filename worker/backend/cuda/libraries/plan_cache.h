// Plans of convolutions for one GPU, each made once: nodes, programs and cores that want the same
// one share it, and what a program wants is made side by side. Thread-safe. It does not choose, and
// what it gives is a function of the request alone.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "common/mutex.h"
#include "common/status.h"
#include "worker/backend/cuda/libraries/cudnn_convolution.h"
#include "worker/backend/cuda/libraries/plan_table.h"

namespace ringmaster::cuda {

// A plan as PlanStore has it.
struct StoredPlan {
  ConvolutionChoice choice;
  std::string written;  // bytes of any value

  bool operator==(const StoredPlan&) const = default;
};

// Plans as cuDNN writes them down, in a file beside a worker's state: its next process need not
// look for them, nor compile. Thread-safe. What the file has is what the rule found earlier;
// whatever the rule's answer depends on is in the file's identity, and a file of another one is not
// read.
class PlanStore {
 public:
  // Of more than this the file keeps what this process asked for alone.
  static constexpr size_t kMostBytes = size_t{64} << 20;

  // With what the file has. A line in the log says why where that is nothing: it is of another
  // identity, or damaged; then it is replaced by the next Save. `identity` is one line.
  [[nodiscard]] static std::unique_ptr<PlanStore> Open(std::string path, std::string identity,
                                                       size_t most_bytes = kMostBytes);

  [[nodiscard]] std::optional<StoredPlan> Find(const std::string& key);
  // In place of what the key had. Keys are one line.
  void Put(const std::string& key, StoredPlan plan);
  // Replaces the file as a whole, where something is new.
  [[nodiscard]] Status Save();

 private:
  struct Row {
    StoredPlan plan;
    bool used = false;  // by this process
  };
  using Rows = std::map<std::string, Row>;

  PlanStore(std::string path, std::string identity, size_t most_bytes)
      : path_(std::move(path)), identity_(std::move(identity)), most_bytes_(most_bytes) {}
  [[nodiscard]] StatusOr<Rows> Parse(const std::string& text) const;

  const std::string path_, identity_;
  const size_t most_bytes_;
  Mutex saving_;
  Mutex mu_;
  Rows rows_ ABSL_GUARDED_BY(mu_);
  bool changed_ ABSL_GUARDED_BY(mu_) = false;
};

struct DeviceFacts;

class PlanCache {
 public:
  using Plan = std::shared_ptr<const ChosenConvolution>;
  struct Options {
    // Called on several threads at once.
    std::function<StatusOr<ChosenConvolution>(const PlanRequest& request)> make;
    size_t threads = 1;
    // Kept at most of those that nobody uses, so that a daemon does not grow with every shape that
    // it ever saw: a large net has some hundreds.
    size_t most_idle = 2048;
    // Every two seconds, at most, while a call of Prepare makes plans, and when it made the last.
    std::function<void(size_t made, size_t of)> progress;
  };
  explicit PlanCache(Options options) : options_(std::move(options)) {}

  // Makes those of the requests that are not there, on threads of its own ("plan0", ...), and waits
  // for them. What goes wrong is for Get to say.
  void Prepare(std::span<const PlanRequest> requests);
  // The plan of the request; it is made by the caller where it is not there.
  [[nodiscard]] StatusOr<Plan> Get(const PlanRequest& request);

 private:
  using Missing = std::map<std::string, const PlanRequest*>;
  Missing MissingOf(std::span<const PlanRequest> requests);
  void Put(const std::string& key, StatusOr<ChosenConvolution> made);

  const Options options_;
  Mutex making_;  // held by whoever makes plans, so that nobody else makes the same
  Mutex mu_;
  // A plan, or that nothing computes the shape. Never another error: it may go well the next time.
  struct Kept {
    StatusOr<Plan> plan;
    uint64_t used = 0;  // when, in counts_
  };
  [[nodiscard]] std::optional<StatusOr<Plan>> Find(const std::string& key);
  void DropIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::map<std::string, Kept> plans_ ABSL_GUARDED_BY(mu_);
  uint64_t counts_ ABSL_GUARDED_BY(mu_) = 0;
};

// The plans of this process, for each of its GPUs, made by cuDNN handles that belong to no core.

// Makes a plan for the GPU on the calling thread, on which it makes that GPU current. What is made
// may be executed with any handle of the GPU.
[[nodiscard]] StatusOr<ChosenConvolution> MakePlan(const DeviceFacts& facts,
                                                   const PlanRequest& request);

// From now on PlansFor's plans are kept in this file, for processes with the same `identity` (one
// line), and those that it has are not looked for again. Before the first plan.
void KeepPlansIn(const std::string& path, const std::string& identity);
// Writes what is new into that file, where there is one; a failure is a line in the log.
void KeepNewPlans();

// How many threads make plans side by side.
[[nodiscard]] size_t PlanningThreads();

// Lives as long as the process, as libraries of device vendors want it.
[[nodiscard]] PlanCache& PlansFor(const DeviceFacts& facts);

}  // namespace ringmaster::cuda

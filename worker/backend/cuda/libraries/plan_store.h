// Plans as cuDNN writes them down, in a file beside a worker's state: its next process need not
// look for them, nor compile. Thread-safe. What the file has is what the rule found earlier;
// whatever the rule's answer depends on is in the file's identity, and a file of another one is not
// read.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "common/mutex.h"
#include "common/status.h"
#include "worker/backend/cuda/libraries/plan_table.h"

namespace ringmaster::cuda {

struct StoredPlan {
  ConvolutionChoice choice;
  std::string written;  // bytes of any value

  bool operator==(const StoredPlan&) const = default;
};

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
  Mutex mu_;
  Rows rows_ ABSL_GUARDED_BY(mu_);
  bool changed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace ringmaster::cuda

// Compiled programs of this process: the same text for the same device is compiled once, also when
// several lanes ask for it at once, and the last few are kept for whoever asks next, as after a
// change of a ring's members. Owned by the plugin host; thread-safe.
#pragma once

#include <absl/base/thread_annotations.h>

#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "common/mutex.h"
#include "worker/backend/pjrt/plugin.h"

namespace ringmaster::pjrt {

class CompileCache {
 public:
  // `plugin` must outlive it and what it gives.
  explicit CompileCache(const Plugin& plugin) : plugin_(plugin) {}

  // As Plugin::Compile; an error is not kept.
  [[nodiscard]] StatusOr<std::shared_ptr<const Compiled>> Get(size_t device,
                                                              const std::string& text,
                                                              std::span<const TensorType> results);

 private:
  struct Entry {
    Mutex mu;  // held while it is compiled
    std::weak_ptr<const Compiled> compiled ABSL_GUARDED_BY(mu);
  };

  [[nodiscard]] std::shared_ptr<Entry> Find(const std::string& key);
  void Keep(std::shared_ptr<const Compiled> compiled);

  const Plugin& plugin_;
  Mutex mu_;
  std::map<std::string, std::shared_ptr<Entry>> entries_ ABSL_GUARDED_BY(mu_);
  std::deque<std::shared_ptr<const Compiled>> recent_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ringmaster::pjrt

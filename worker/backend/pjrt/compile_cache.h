// Compiled programs of this process. A text is compiled once, for the device that asks first; the
// others get its code, and whoever asks meanwhile waits for it. A plugin that cannot give one
// device another's code compiles the text for each of them, and that is said once. The last few
// programs are kept for whoever asks next, as after a change of a ring's members, until their
// device has no memory left. Owned by the plugin host; thread-safe.
#pragma once

#include <absl/base/thread_annotations.h>

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "worker/backend/pjrt/plugin.h"

namespace ringmaster::pjrt {

class CompileCache {
 public:
  using Say = std::function<void(const std::string& line)>;

  // `plugin` must outlive it and what it gives. `say` may be called on any thread.
  CompileCache(const Plugin& plugin, Say say) : plugin_(plugin), say_(std::move(say)) {}

  // As Compiler::Compile; where the device has no memory, again after LetGo. An error is not kept,
  // but those who waited for it have it too.
  [[nodiscard]] StatusOr<std::shared_ptr<const Compiled>> Get(size_t device,
                                                              const std::string& text,
                                                              std::span<const TensorType> results);
  // Ends those programs on the device that are kept and that nobody else has; how many.
  [[nodiscard]] size_t LetGo(size_t device);

 private:
  struct Kept {
    size_t device;
    std::shared_ptr<const Compiled> compiled;
  };
  struct OnDevice {
    Mutex mu;  // held while it is made; taken before the text's
    std::weak_ptr<const Compiled> compiled ABSL_GUARDED_BY(mu);
  };
  struct Text {
    explicit Text(size_t devices) : on(devices) {}

    std::vector<OnDevice> on;
    std::atomic<uint64_t> failures = 0;
    Mutex mu;  // held while it is compiled for the device that asks first
    std::weak_ptr<const Compiled> latest ABSL_GUARDED_BY(mu);  // of whichever device
    Status error ABSL_GUARDED_BY(mu);                          // of the last failure
  };
  // One question.
  struct Asked {
    size_t device;
    const std::string& text;
    std::span<const TensorType> results;
  };
  using Result = StatusOr<std::shared_ptr<const Compiled>>;

  [[nodiscard]] std::shared_ptr<Text> Find(const std::string& key);
  [[nodiscard]] Result Make(const Asked& asked, Text* text);
  [[nodiscard]] Result Compile(const Asked& asked) const;
  [[nodiscard]] Result CompileFirst(const Asked& asked, Text* text)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(text->mu);
  void Keep(size_t device, std::shared_ptr<const Compiled> compiled);

  const Plugin& plugin_;
  const Say say_;
  std::atomic<bool> copies_ = true;  // until the plugin could not
  Mutex mu_;
  std::map<std::string, std::shared_ptr<Text>> texts_ ABSL_GUARDED_BY(mu_);
  std::deque<Kept> recent_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ringmaster::pjrt

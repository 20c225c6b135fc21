// The plugin of this daemon, in a process of its own that is started anew when it dies: what it
// said of itself, connections into it, and how often it may die. Owned by PjrtBackend; thread-safe:
// cores share the process, and whoever first finds it dead starts the next one.
#pragma once

#include <absl/base/thread_annotations.h>

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "common/files.h"
#include "common/mutex.h"
#include "common/status.h"
#include "worker/backend/pjrt/host_message.h"
#include "worker/backend/pjrt/plugin_facts.h"
#include "worker/process/subprocess.h"

namespace ringmaster::pjrt {

struct PluginOptions {
  std::string path;  // of the plugin, a shared library
  double memory_fraction =
      0;  // of a GPU's memory, which is then taken at once; 0: the plugin's choice
  // Of the program that loads it; empty: RINGMASTER_PJRT_HOST, else beside this program or in
  // ../lib/ringmaster.
  std::string program;
  // After each of them the process is killed, and the error says what hung.
  std::chrono::milliseconds start_limit{120'000};
  std::chrono::milliseconds compile_limit{600'000};
  std::chrono::milliseconds run_limit{120'000};
  // When an answer is late to what was sent just now and may take so long; tests choose.
  std::function<std::chrono::steady_clock::time_point(std::chrono::milliseconds limit)> late =
      [](std::chrono::milliseconds limit) { return std::chrono::steady_clock::now() + limit; };
  // So often it may die within that time, and is started again; once more, and that is the error.
  size_t max_deaths = 3;
  std::chrono::milliseconds deaths_within{10 * 60'000};
  // As Subprocess::Start.
  std::chrono::milliseconds end_limit{5'000};
};

// An error that is the plugin's own: its words, on one line.
[[nodiscard]] Status FromReply(const HostMessage& reply);

class PluginHost {
 public:
  // Starts the process and the plugin in it. FAILED_PRECONDITION: one of them cannot be had; else
  // the plugin's own error. DEADLINE_EXCEEDED: it did not start in time.
  [[nodiscard]] static StatusOr<std::unique_ptr<PluginHost>> Start(const PluginOptions& options);

  [[nodiscard]] const PluginOptions& options() const { return options_; }
  [[nodiscard]] const PluginFacts& facts() const { return facts_; }

  // A lane into the process, which is started again if it has ended. CANCELLED when `stop` came
  // before it had started.
  struct Connection {
    std::shared_ptr<Subprocess> process;
    OwnedFile socket;
  };
  [[nodiscard]] StatusOr<Connection> Connect(const std::stop_token& stop);
  // A process that somebody lost, in the middle of `what`: logged and counted, once, but for one
  // that was stopped. How it ended where it may not be started again: it died too often, or does
  // not end and so keeps its devices.
  [[nodiscard]] Status Bury(const std::shared_ptr<Subprocess>& process, const std::string& what);

 private:
  explicit PluginHost(PluginOptions options) : options_(std::move(options)) {}

  struct Started {
    std::shared_ptr<Subprocess> process;
    PluginFacts facts;
  };
  [[nodiscard]] StatusOr<Started> StartProcess(const std::stop_token& stop) const;
  [[nodiscard]] Status BuryCurrent(const std::string& what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const PluginOptions options_;
  PluginFacts facts_;  // of the first process; others must say the same

  Mutex mu_;
  std::shared_ptr<Subprocess> current_ ABSL_GUARDED_BY(mu_);
  bool buried_ ABSL_GUARDED_BY(mu_) = false;  // the current one
  Status last_fate_ ABSL_GUARDED_BY(mu_);
  std::deque<std::chrono::steady_clock::time_point> deaths_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ringmaster::pjrt

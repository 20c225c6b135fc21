// What the default logger says while this lives. Made and destroyed on one thread; thread-safe.
#pragma once

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "common/mutex.h"

namespace ringmaster::testing {

class LogLines {
 public:
  LogLines() { spdlog::default_logger()->sinks().push_back(sink_); }
  ~LogLines() { spdlog::default_logger()->sinks().pop_back(); }
  LogLines(const LogLines&) = delete;
  LogLines& operator=(const LogLines&) = delete;

  [[nodiscard]] std::string text() const { return sink_->text(); }
  [[nodiscard]] auto count() const {
    const std::string said = text();
    return std::count(said.begin(), said.end(), '\n');
  }
  // Whether it said all of this; waits at most 20 s.
  template <typename... Parts>
  [[nodiscard]] bool Await(const Parts&... parts) const {
    return sink_->Await(
        [&](const std::string& said) { return ((said.find(parts) != std::string::npos) && ...); });
  }

 private:
  class Sink : public spdlog::sinks::base_sink<std::mutex> {
   public:
    std::string text() {
      MutexLock lock(mu_);
      return text_;
    }
    template <typename Condition>
    bool Await(const Condition& condition) {
      MutexLock lock(mu_);
      return changed_.WaitUntil(mu_, std::chrono::steady_clock::now() + std::chrono::seconds(20),
                                [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return condition(text_); });
    }

   protected:
    void sink_it_(const spdlog::details::log_msg& message) override {
      spdlog::memory_buf_t line;
      formatter_->format(message, line);
      MutexLock lock(mu_);
      text_.append(line.data(), line.size());
      changed_.NotifyAll();
    }
    void flush_() override {}

   private:
    Mutex mu_;
    Condition changed_;
    std::string text_ ABSL_GUARDED_BY(mu_);
  };

  const std::shared_ptr<Sink> sink_ = std::make_shared<Sink>();
};

}  // namespace ringmaster::testing

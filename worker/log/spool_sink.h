// Where spdlog's lines go into the spool: every line that this process logs while it serves a job,
// whichever thread logs it. Thread-safe. Writes at once, because the last lines before a crash are
// the ones that matter. It never throws and never logs.
#pragma once

#include <spdlog/sinks/sink.h>

#include <chrono>
#include <memory>
#include <string>

#include "common/ids.h"
#include "common/mutex.h"
#include "worker/log/spool.h"

namespace ringmaster::worker {

class SpoolSink : public spdlog::sinks::sink {
 public:
  explicit SpoolSink(std::shared_ptr<Spool> spool) : spool_(std::move(spool)) {}

  // Coming lines belong to this job, until it ends; before and after they are not spooled. The end
  // is spooled behind them. One that comes late, when the next job began already, changes nothing.
  void BeginJob(const JobId& job);
  void EndJob(const JobId& job);

  void log(const spdlog::details::log_msg& message) override;
  void flush() override {}  // every line is written already
  void set_pattern(const std::string&) override {}
  void set_formatter(std::unique_ptr<spdlog::formatter>) override {}

 private:
  // Of the job that is served.
  void Append(const char* level, std::chrono::system_clock::time_point when, std::string text)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<Spool> spool_;

  Mutex mu_;
  JobId job_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ringmaster::worker

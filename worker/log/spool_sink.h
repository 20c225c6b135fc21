// Where spdlog's lines go into the spool: every line that this process logs while it serves a job,
// whichever thread logs it. Thread-safe. Writes at once, because the last lines before a crash are
// the ones that matter. It never throws and never logs.
#pragma once

#include <spdlog/sinks/sink.h>

#include <memory>
#include <string>

#include "common/ids.h"
#include "common/mutex.h"
#include "worker/log/spool.h"

namespace ringmaster::worker {

class SpoolSink : public spdlog::sinks::sink {
 public:
  explicit SpoolSink(std::shared_ptr<Spool> spool) : spool_(std::move(spool)) {}

  // The job that coming lines belong to; empty: none, they are not spooled.
  void Serve(const JobId& job);

  void log(const spdlog::details::log_msg& message) override;
  void flush() override {}  // every line is written already
  void set_pattern(const std::string&) override {}
  void set_formatter(std::unique_ptr<spdlog::formatter>) override {}

 private:
  const std::shared_ptr<Spool> spool_;

  Mutex mu_;
  JobId job_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ringmaster::worker

#include "worker/log/spool_sink.h"

#include <chrono>
#include <exception>

namespace ringmaster::worker {
namespace {

const char* LevelName(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::trace:
    case spdlog::level::debug:
      return "debug";
    case spdlog::level::warn:
      return "warning";
    case spdlog::level::err:
    case spdlog::level::critical:
      return "error";
    default:
      return "info";
  }
}

}  // namespace

void SpoolSink::BeginJob(const JobId& job) {
  MutexLock lock(mu_);
  if (job != job_) spool_->BeginAnewIfDrained();
  job_ = job;
}

void SpoolSink::EndJob(const JobId& job) {
  MutexLock lock(mu_);
  if (job == job_) job_ = JobId();
}

void SpoolSink::log(const spdlog::details::log_msg& message) {
  JobId job;
  {
    MutexLock lock(mu_);
    job = job_;
  }
  if (job.empty()) return;
  try {
    v1::SpooledLine line;
    line.set_job_id(job.value());
    line.set_unix_ms(
        std::chrono::duration_cast<std::chrono::milliseconds>(message.time.time_since_epoch())
            .count());
    line.set_level(LevelName(message.level));
    line.set_text(std::string(message.payload.data(), message.payload.size()));
    spool_->Append(std::move(line));
  } catch (const std::exception&) {
    // No memory: the line is on stderr all the same.
  }
}

}  // namespace ringmaster::worker

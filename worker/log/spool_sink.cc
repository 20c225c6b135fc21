#include "worker/log/spool_sink.h"

#include <chrono>
#include <exception>
#include <utility>

#include "common/log.h"

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
  if (job != job_) {
    // The end of the one before may come behind this, and changes nothing then.
    if (!job_.empty()) Append(kEndLevel, std::chrono::system_clock::now(), "");
    spool_->BeginAnewIfDrained();
  }
  job_ = job;
}

void SpoolSink::EndJob(const JobId& job) {
  MutexLock lock(mu_);
  if (job != job_) return;
  Append(kEndLevel, std::chrono::system_clock::now(), "");
  job_ = JobId();
}

void SpoolSink::Append(const char* level, std::chrono::system_clock::time_point when,
                       std::string text) {
  using std::chrono::milliseconds;
  v1::SpooledLine line;
  line.set_job_id(job_.value());
  line.set_unix_ms(std::chrono::duration_cast<milliseconds>(when.time_since_epoch()).count());
  line.set_level(level);
  line.set_text(std::move(text));
  spool_->Append(std::move(line));
}

void SpoolSink::log(const spdlog::details::log_msg& message) {
  MutexLock lock(mu_);
  if (job_.empty()) return;
  try {
    Append(LevelName(message.level), message.time,
           std::string(message.payload.data(), message.payload.size()));
  } catch (const std::exception&) {
    // No memory: the line is on stderr all the same.
  }
}

}  // namespace ringmaster::worker

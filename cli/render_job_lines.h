// The `key: value` lines of one job's status, in the order in which they are added. Values;
// thread-compatible. render_job.cc has the job itself, render_regroups.cc its ring's changes.
#pragma once

#include <fmt/format.h>

#include <string>

#include "ringmaster/v1/job.pb.h"

namespace ringmaster::cli {

class JobLines {
 public:
  // An empty key goes on with the line before it.
  void Add(bool known, const char* key, const std::string& value) {
    const std::string name = *key == '\0' ? "" : std::string(key) + ":";
    if (known) text_ += fmt::format("{:<20} {}\n", name, value);
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Which job, and which checkpoint, it goes on from.
void AddOrigin(const v1::JobStatus& status, JobLines* lines);
// The newest change of the ring, how many there were, and whom the others wait for.
void AddRegroups(const v1::JobStatus& status, JobLines* lines);

}  // namespace ringmaster::cli

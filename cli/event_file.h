// An event file of TensorBoard: scalars of one job, read and written here without TensorFlow.
// Thread-compatible; one writer a file.
//
// The file is a sequence of TFRecords, each an Event (proto/tensorboard/event.proto). It is
// appended to, never written anew, because TensorBoard keeps a file open and reads on where it
// stopped: of one that was replaced it would see nothing more. What no longer holds is taken back
// by a SessionLog with status START and step 0, which makes readers drop what came before.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "cli/show/metric_history.h"
#include "common/files.h"
#include "common/status.h"

namespace ringmaster::cli {

// The points of both series of a job in the order in which its file takes them. Both have the
// metrics of training, and each is read by itself, while either may grow: a step has to wait until
// the end of the epoch before it has come, because a file takes nothing older once it has a step.
class EventOrder {
 public:
  // The job's file goes on after this epoch's end.
  explicit EventOrder(uint64_t newest_epoch_step = 0) : newest_epoch_step_(newest_epoch_step) {}

  // Points that are new, each series by step; `job`, epochs and steps were read in this order.
  // Returns those that are next, by step: of a job that ended all.
  [[nodiscard]] MetricPoints Next(const v1::JobStatus& job, const MetricPoints& epochs,
                                  const MetricPoints& steps);

 private:
  uint64_t newest_epoch_step_;
  MetricPoints waiting_;  // steps
};

class EventFile {
 public:
  // Opens the file or begins one, in a folder that is made; cuts off a record that a writer which
  // died left in the middle. FAILED_PRECONDITION: it is not such a file; an error that names the
  // path: it cannot be written, or another process appends to it.
  [[nodiscard]] static StatusOr<std::unique_ptr<EventFile>> Open(const std::string& folder,
                                                                 const std::string& name);

  // The newest step of a tag, where it has one: it may be 0.
  [[nodiscard]] std::optional<uint64_t> NewestStep(const std::string& tag) const;
  // Of the job, when the file was written.
  [[nodiscard]] uint64_t rewinds() const { return rewinds_; }

  // From here on readers forget what came before.
  [[nodiscard]] Status Restart(uint64_t rewinds, int64_t unix_ms);
  // Those of its values whose tag has no newer step, as float32.
  [[nodiscard]] Status Add(const v1::MetricPoint& point);

 private:
  EventFile(std::string path, OwnedFile file) : path_(std::move(path)), file_(std::move(file)) {}
  [[nodiscard]] Status ReadBack();
  [[nodiscard]] Status Take(const std::string& event);
  [[nodiscard]] Status Append(const std::string& event);

  const std::string path_;
  const OwnedFile file_;
  uint64_t size_ = 0;  // of whole records
  std::map<std::string, uint64_t> newest_;
  uint64_t rewinds_ = 0;
};

}  // namespace ringmaster::cli

// The uploads of a story, as their calls would carry them: what `upload` and `checkpoint` lines
// say, as events, in the order in which the service would have them. Thread-compatible.
//
//   snapshot a,b step=4           both tell the manifest of their snapshot: m4, or sha=...;
//                                 hashing=yes: that they took it
//   upload a step=4               a uploads a checkpoint with manifest m4
//   checkpoint a step=4 by=a,b    both of it; by=a when nothing is said
//   damage j0001 step=4           what lies there is not whole
//   reads wait, reads end         what is read back takes its time
#pragma once

#include <fmt/format.h>

#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "common/sha256.h"
#include "coordinator/logic/action.h"
#include "coordinator/logic/event.h"
#include "tests/coordinator/logic/scenario_command.h"
#include "tests/coordinator/logic/told.h"

namespace ringmaster::coordinator {

class PlayedUploads {
 public:
  // `result` is the result digest of a job that is known, else empty.
  UploadAsked Begin(const Command& command, SessionId session, const std::string& result) {
    UploadAsked asked{UploadId{++last_}, session, {}};
    v1::CheckpointBegin& begin = asked.begin;
    begin.set_job_id(command.Text("job", "j0001"));
    begin.set_step(command.Number("step", 10));
    *begin.mutable_generation() = ParseGeneration(command.Text("generation", "1.1"));
    begin.set_best(command.options.contains("best"));
    if (command.options.contains("best")) begin.set_metric(command.Real("best", 0));
    if (command.options.contains("metric")) begin.set_metric(command.Real("metric", 0));
    Played& played = played_[asked.upload];
    played.begin = begin;
    UploadVerified& verified = played.verified;
    verified.upload = asked.upload;
    verified.manifest_sha256 = command.Text("sha", "m" + std::to_string(begin.step()));
    verified.digest = Hex(command.Text("digest", "d" + std::to_string(begin.step())));
    verified.result_digest = command.Text("result", result);
    return asked;
  }
  [[nodiscard]] static v1::SnapshotTaken Snapshot(const Command& command) {
    v1::SnapshotTaken said;
    said.set_job_id(command.Text("job", "j0001"));
    v1::Snapshot& snapshot = *said.mutable_snapshot();
    snapshot.set_step(command.Number("step", 10));
    if (command.options.contains("hashing")) return said;
    snapshot.set_manifest_sha256(command.Text("sha", "m" + std::to_string(snapshot.step())));
    return said;
  }
  [[nodiscard]] const UploadVerified& Verified(UploadId upload) const {
    return played_.at(upload).verified;
  }
  [[nodiscard]] UploadPlaced Placed(UploadId upload, const std::string& disk) const {
    const v1::CheckpointBegin& begin = played_.at(upload).begin;
    if (disk == "fails") return {upload, "", absl::UnavailableError("no space left on the disk")};
    return {upload, fmt::format("{}/{}", begin.job_id(), begin.step()), absl::OkStatus()};
  }
  [[nodiscard]] std::string Called(UploadId upload) const {
    return fmt::format("upload of step {}", played_.at(upload).begin.step());
  }

  void Damage(uint64_t step) { damaged_.insert(step); }
  // These are read back; as a line of the story.
  std::string Read(const ReadBack& action) {
    std::string text = "read back " + action.job_id, why;
    for (const CheckpointRecord& checkpoint : action.checkpoints) {
      const uint64_t step = checkpoint.ref.step();
      text += fmt::format(" {}", step);
      if (!why.empty() || !damaged_.contains(step)) continue;
      why = fmt::format("the one of step {} is not whole: it is damaged", step);
    }
    reads_.emplace_back(CheckpointsRead{action.job_id, why});
    return text;
  }
  // What was read back since.
  [[nodiscard]] std::deque<Event> TakeRead() {
    return reads_wait_ ? std::deque<Event>() : std::exchange(reads_, {});
  }
  void LetReadsWait(bool wait) { reads_wait_ = wait; }

 private:
  struct Played {
    v1::CheckpointBegin begin;
    UploadVerified verified;
  };
  std::map<UploadId, Played> played_;
  std::set<uint64_t> damaged_;
  std::deque<Event> reads_;
  bool reads_wait_ = false;
  uint64_t last_ = 0;
};

}  // namespace ringmaster::coordinator

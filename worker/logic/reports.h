// What a worker reports of its job: what it said and may have to say again, and the digests that
// metrics that its next report carries. Owned by WorkerLogic, loop thread only.
#pragma once

#include <google/protobuf/repeated_ptr_field.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ringmaster/v1/fleet.pb.h"

namespace ringmaster::worker {

// What a worker said about its job and the coordinator must learn, kept so that it can be said
// again in a new session: nothing is lost when the coordinator was away. It decides nothing.
class KeptReports {
 public:
  // Joined, StateSaved, and how the run ended replace the one before of their kind; suspicions are
  // kept together. Other messages are not kept.
  void Keep(const v1::WorkerMessage& message);
  // The coordinator knows all of it, or it matters no more.
  void Clear() { *this = KeptReports(); }
  // In the order in which they are said again: the end of the run last.
  [[nodiscard]] std::vector<v1::WorkerMessage> All() const;

 private:
  std::optional<v1::WorkerMessage> joined_;
  std::vector<v1::WorkerMessage> suspicions_;  // at most one a peer: the logic says each once
  std::optional<v1::WorkerMessage> saved_;
  std::optional<v1::WorkerMessage> end_;  // failed, finished or stopped
};

// The digests that the next report carries, of the steps that were applied since the last one.
// Members report when their clocks say so, and a fast job applies thousands of steps between two
// reports: so it is the step's number alone that decides whose digest is kept. They are the
// multiples of a stride, the smallest power of two of which there are at most kMost since the last
// report. Of steps that two members applied the one with the larger stride keeps some of those that
// the other keeps, never different ones. A value, owned by WorkerLogic's job; loop thread only.
class StepDigests {
 public:
  using List = google::protobuf::RepeatedPtrField<v1::StepDigest>;
  static constexpr int kMost = 8;  // fleet.proto

  // digest(step); a step that is not later than the last one is known already.
  void Add(uint64_t step, const std::string& digest);
  // What the report gets, by step; nothing is left.
  [[nodiscard]] List Take();

 private:
  uint64_t stride_ = 1;
  uint64_t last_ = 0;  // step 0 was compared when the job was prepared
  List kept_;
};

// The metrics that the job's history keeps, as long as the worker holds the job: told in every
// session and generation from the oldest, because nobody acknowledges them and the coordinator
// takes what it knows already. Bounded: the oldest are forgotten. A value, owned by WorkerLogic's
// job.
class LastingMetrics {
 public:
  using List = google::protobuf::RepeatedPtrField<v1::Metric>;
  static constexpr size_t kMost = 4'096;     // splits of a step
  static constexpr int kMostInReport = 320;  // metrics; fleet.proto: of a step at most 3 times 65

  // What is of no later step than the newest of its split is known already.
  void Add(const List& metrics);
  // The job was set back to S(step): what is later is no more.
  void GoBack(uint64_t step);
  void TellAgain() { told_ = 0; }
  [[nodiscard]] bool all_told() const { return told_ == kept_.size(); }
  // What the next report gets: whole steps, so that who reads the history never sees a part of one.
  [[nodiscard]] List Take();

 private:
  struct Of {
    v1::SampleSplit split;
    uint64_t step;
    List metrics;
  };
  std::deque<Of> kept_;  // as they came
  std::map<v1::SampleSplit, uint64_t> newest_;
  size_t told_ = 0;  // so many of them
};

}  // namespace ringmaster::worker

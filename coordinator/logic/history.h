// The history of a job's metrics on its way from the reports of its workers into the store: what of
// them stays, and when it is written. Values; owned by Run and the control loop, loop thread only.
// Nothing is read back: what is stored is the store's.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "coordinator/logic/event.h"
#include "ringmaster/v1/fleet.pb.h"
#include "ringmaster/v1/jobs.pb.h"

namespace ringmaster::coordinator {

// Which steps of a job stay, of those that are seen, ascending: of every stretch of `stride` steps
// the first one. The stride is the smallest power of two of which the newest step leaves at most
// kMost stretches, so that what stays is a function of the steps that were seen alone: a stretch is
// two of those before, and the first of both is the first of one.
class StepThinning {
 public:
  static constexpr uint64_t kMost = 2'048;

  [[nodiscard]] static uint64_t StrideOf(uint64_t newest);
  // False: its stretch has a first step. One may be kept too many after Forget and after a start of
  // the coordinator: the store, which knows them all, drops it.
  [[nodiscard]] bool Keeps(uint64_t step);
  void Forget() { kept_.reset(); }

 private:
  std::optional<uint64_t> kept_;  // the newest that stays
};

// The points of one series by step. Of a value of one step the last that was said holds; the time
// is that of the first.
using MetricPoints = std::map<uint64_t, v1::MetricPoint>;
void Merge(const v1::MetricPoint& later, v1::MetricPoint* point);

// What the store does at once, in this order.
struct MetricBatch {
  std::optional<uint64_t> forget_after;  // points of later steps are no more
  MetricPoints epochs, steps;            // are added
  uint64_t stride = 1;                   // to which stored steps are thinned

  [[nodiscard]] bool empty() const { return !forget_after && epochs.empty() && steps.empty(); }
  void Append(const MetricBatch& later);
};

class MetricHistory {
 public:
  // Between two writes; with the end of an epoch, or an evaluation, the shorter one.
  static constexpr std::chrono::milliseconds kStepPause{5'000}, kEpochPause{1'000};

  // Of a member of the ring, in the current generation; several of them may say the same.
  void Add(const v1::Progress& said, uint64_t steps_per_epoch, Now now);
  // Back to S(step).
  void GoBack(uint64_t step);
  // What was not taken yet: all of it, or when it is due.
  [[nodiscard]] MetricBatch Take(Now now);
  [[nodiscard]] MetricBatch TakeDue(Now now);

 private:
  StepThinning thinning_;
  std::set<std::pair<uint64_t, v1::SampleSplit>> heard_;  // of `lasting`: every member says it
  MetricBatch batch_;
  std::chrono::milliseconds taken_at_{0};
};

}  // namespace ringmaster::coordinator

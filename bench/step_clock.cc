#include "bench/step_clock.h"

namespace ringmaster::bench {

using worker::PhaseTimes;

StepClock::StepClock(const StepClockOptions& options, std::stop_source* stop, Time now)
    : options_(options), stop_(stop), last_(now) {}

void StepClock::OnProgress(const worker::Progress& progress) {
  Note(progress, std::chrono::steady_clock::now());
}

void StepClock::Note(const worker::Progress& progress, Time now) {
  const double seconds = std::chrono::duration<double>(now - last_).count();
  last_ = now;
  if (progress.applied == applied_) return;  // an evaluation
  applied_ = progress.applied;
  loss_ = progress.loss;
  times_ = progress.run_times;
  if (applied_ == 1) first_step_seconds_ = seconds;
  if (applied_ <= options_.warm_up) {
    before_ = progress.run_times;
    return;
  }
  step_seconds_.push_back(seconds);
  measured_ += seconds;
  const bool enough = options_.seconds > 0 && measured_ >= options_.seconds;
  if (enough && step_seconds_.size() >= kFewest) stop_->request_stop();
}

PhaseTimes StepClock::phases() const {
  PhaseTimes means;
  if (step_seconds_.empty()) return means;
  const auto steps = static_cast<double>(step_seconds_.size());
  for (double PhaseTimes::*const phase :
       {&PhaseTimes::input, &PhaseTimes::compute, &PhaseTimes::ring_wait,
        &PhaseTimes::ring_transfer, &PhaseTimes::update}) {
    means.*phase = (times_.*phase - before_.*phase) / steps;
  }
  return means;
}

}  // namespace ringmaster::bench

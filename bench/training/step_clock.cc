#include "bench/training/step_clock.h"

#include <ctime>

namespace ringmaster::bench {

using worker::PhaseTimes;

StepClock::Moment StepClock::Now() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return {std::chrono::steady_clock::now(),
          static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec)};
}

StepClock::StepClock(const StepClockOptions& options, std::stop_source* stop, const Moment& now)
    : options_(options), stop_(stop), last_(now) {}

void StepClock::OnProgress(const worker::Progress& progress) { Note(progress, Now()); }

void StepClock::Note(const worker::Progress& progress, const Moment& now) {
  const double seconds = std::chrono::duration<double>(now.time - last_.time).count();
  const double cpu_seconds = now.cpu_seconds - last_.cpu_seconds;
  last_ = now;
  if (progress.applied == applied_) return;  // an evaluation
  applied_ = progress.applied;
  if (!progress.train.empty()) loss_ = progress.train.front().value;
  times_ = progress.run_times;
  if (applied_ == 1) first_step_seconds_ = seconds;
  if (applied_ <= options_.warm_up) {
    before_ = progress.run_times;
    return;
  }
  step_seconds_.push_back(seconds);
  measured_ += seconds;
  cpu_measured_ += cpu_seconds;
  const bool enough = options_.seconds > 0 && measured_ >= options_.seconds;
  if (enough && step_seconds_.size() >= kFewest) stop_->request_stop();
}

double StepClock::step_cpu_seconds() const {
  return step_seconds_.empty() ? 0 : cpu_measured_ / static_cast<double>(step_seconds_.size());
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

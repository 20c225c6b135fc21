#include "coordinator/logic/progress_events.h"

#include <fmt/format.h>

#include <algorithm>

namespace ringmaster::coordinator {
namespace {

// The numbers of the newest evaluation; empty before the first.
std::string Evaluation(const v1::JobStatus& status) {
  std::string text;
  const auto add = [&text](bool present, const char* name, double value) {
    if (!present) return;
    text += fmt::format("{}{} {:.4f}", text.empty() ? "" : ", ", name, value);
  };
  add(status.has_test_accuracy(), "test accuracy", status.test_accuracy());
  add(status.has_test_loss(), "test loss", status.test_loss());
  add(status.has_validation_accuracy(), "validation accuracy", status.validation_accuracy());
  add(status.has_validation_loss(), "validation loss", status.validation_loss());
  return text;
}

}  // namespace

std::vector<Happening> ProgressEvents::Observe(const v1::JobStatus& status, Now now) {
  std::vector<Happening> told;
  ObserveEvaluation(status, told);
  ObserveSkips(status, now, told);
  ObserveScale(status, now, told);
  return told;
}

std::vector<Happening> ProgressEvents::Flush() {
  std::vector<Happening> told;
  TellSkips(told);
  TellScale(told);
  return told;
}

void ProgressEvents::ObserveEvaluation(const v1::JobStatus& status, std::vector<Happening>& told) {
  const std::string text = Evaluation(status);
  if (text == evaluation_) return;
  evaluation_ = text;
  uint64_t step = status.step();  // of the worker that said it first: the one that is furthest
  for (const v1::JobWorker& worker : status.workers()) step = std::max(step, worker.applied());
  told.push_back({event_type::kEvaluated, Severity::kInfo,
                  fmt::format("epoch {}, seen at step {}: {}", status.epoch(), step, text)});
}

void ProgressEvents::ObserveSkips(const v1::JobStatus& status, Now now,
                                  std::vector<Happening>& told) {
  // Only a job with a loss scale skips steps.
  if (!status.has_loss_scale() || status.step() <= step_) return;
  if (status.updates() > status.step()) return;
  const uint64_t skipped = status.step() - status.updates();
  if (skipped > skipped_) {
    if (run_skips_ == 0) run_begin_ = step_;
    run_skips_ += skipped - skipped_;
    run_end_ = status.step();
  } else if (run_skips_ > 0 && !Quiet(skips_told_at_, now)) {
    skips_told_at_ = now.steady;
    TellSkips(told);
  }
  step_ = status.step();
  skipped_ = skipped;
}

void ProgressEvents::TellSkips(std::vector<Happening>& told) {
  if (run_skips_ == 0) return;
  const std::string which =
      run_begin_ + 1 == run_end_
          ? fmt::format("step {}", run_end_)
          : fmt::format("{} of the steps {} to {}", run_skips_, run_begin_ + 1, run_end_);
  told.push_back(
      {event_type::kStepsSkipped, Severity::kWarning, which + " skipped: a gradient overflowed"});
  run_skips_ = 0;
}

void ProgressEvents::ObserveScale(const v1::JobStatus& status, Now now,
                                  std::vector<Happening>& told) {
  if (!status.has_loss_scale()) return;
  if (!scale_told_) scale_told_ = status.loss_scale();  // the first is no change
  scale_ = status.loss_scale();
  scale_step_ = status.step();
  if (scale_ == scale_told_ || Quiet(scale_told_at_, now)) return;
  scale_told_at_ = now.steady;
  TellScale(told);
}

void ProgressEvents::TellScale(std::vector<Happening>& told) {
  if (scale_ == scale_told_) return;
  told.push_back(
      {event_type::kLossScaleChanged, Severity::kInfo,
       fmt::format("from {} to {}, seen at step {}", *scale_told_, *scale_, scale_step_)});
  scale_told_ = scale_;
}

}  // namespace ringmaster::coordinator

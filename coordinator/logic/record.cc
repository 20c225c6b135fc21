#include "coordinator/logic/record.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "common/job/metrics.h"
#include "coordinator/logic/event.h"

namespace ringmaster::coordinator {
namespace {

constexpr size_t kMaxMessageBytes = 2'000;  // a memory plan fits

const char* NameOf(Severity severity) {
  switch (severity) {
    case Severity::kInfo:
      return "info";
    case Severity::kWarning:
      return "warning";
    case Severity::kError:
      return "error";
  }
  return "";
}

// At most kMaxMessageBytes, cut before a character, never inside one.
std::string Shortened(const std::string& text) {
  if (text.size() <= kMaxMessageBytes) return text;
  size_t end = kMaxMessageBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + " ...";
}

}  // namespace

const JobEvents::List& JobEvents::all() const {
  static const List kNone;
  return events_ ? *events_ : kNone;
}

void JobEvents::Add(const Happening& happening, int64_t unix_ms, size_t most) {
  const List& old = all();
  const size_t kept = std::min(old.size(), most - 1);
  List grown(old.end() - static_cast<std::ptrdiff_t>(kept), old.end());
  v1::Event& event = grown.emplace_back();
  event.set_number(old.empty() ? 1 : old.back().number() + 1);
  event.set_unix_ms(unix_ms);
  event.set_type(happening.type);
  event.set_severity(NameOf(happening.severity));
  event.set_subject(happening.subject);
  event.set_message(Shortened(happening.message));
  events_ = std::make_shared<const List>(std::move(grown));
}

std::vector<std::string> JobEvents::Decisions() const {
  std::vector<std::string> decisions;
  for (const v1::Event& event : all()) {
    const std::string& type = event.type();
    if (type == event_type::kStateChanged || type == event_type::kCancelled ||
        type == event_type::kFinished || type == event_type::kStateFault) {
      decisions.push_back(event.message());
    }
  }
  return decisions;
}

namespace {

// The numbers of the newest evaluation; empty before the first.
std::string Evaluation(const v1::JobStatus& status) {
  std::string text;
  for (const v1::Metric& metric : status.metrics()) {
    if (metric.split() == v1::SAMPLE_SPLIT_TRAIN) continue;
    text += fmt::format("{}{} {} {:.4f}", text.empty() ? "" : ", ", job::NameOf(metric.split()),
                        metric.name(), metric.value());
  }
  return text;
}

}  // namespace

ProgressEvents::ProgressEvents(const v1::JobStatus& told)
    : evaluation_(Evaluation(told)),
      step_(told.step()),
      skipped_(told.step() - std::min(told.step(), told.updates())) {}

bool ProgressEvents::Quiet(const std::optional<Time>& told_at, Now now) {
  return told_at && now.steady - *told_at < kQuiet;
}

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
  if (step_ == 0 && status.resumed_from().step() > 0) {
    skipped_ = skipped;  // those of the job whose checkpoint it began with are among them
  } else if (skipped > skipped_) {
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

std::set<std::string> JobsNeededBy(const JobRecord& record) {
  const v1::JobStatus& status = record.status;
  std::set<std::string> jobs = {status.resumes_job(), status.fold_of()};
  if (record.resolved) {
    jobs.insert(record.resolved->init().checkpoint().job_id());
    jobs.insert(record.resolved->continues().job_id());
  } else {
    jobs.insert(status.spec().init().job());  // it chooses the checkpoint when it starts
  }
  jobs.erase("");
  return jobs;
}

}  // namespace ringmaster::coordinator

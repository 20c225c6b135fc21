#include "coordinator/logic/run/run_report.h"

#include <algorithm>

#include "coordinator/logic/run/generation.h"

namespace ringmaster::coordinator {

RunReport::RunReport(const Options& options, const v1::JobStatus& before)
    : options_(options),
      regroups_(before.regroups().begin(), before.regroups().end()),
      regroup_count_(before.regroup_count()),
      recomputed_(before.shards_recomputed()),
      rewinds_(before.rewinds()),
      state_faults_(before.state_faults()) {
  if (before.has_resumed_from()) resumed_from_ = before.resumed_from();
}

void RunReport::Adopt(const v1::JobStatus& before, uint64_t committed) {
  skipped_ = before.step() - std::min(before.step(), before.updates());
  newest_.set_applied(committed);
  newest_.set_epoch(before.epoch());
  *newest_.mutable_metrics() = before.metrics();
  newest_.set_learning_rate(before.learning_rate());
  newest_unix_ms_ = before.last_step_unix_ms();
}

void RunReport::OnProgress(const v1::Progress& said, uint64_t steps_per_epoch, Now now) {
  history_.Add(said, steps_per_epoch, now);
  if (said.applied() > newest_.applied()) newest_unix_ms_ = now.unix_ms;
  if (said.applied() >= newest_.applied()) newest_ = said;
}

void RunReport::CountSkipped(const v1::Progress& said, uint64_t applied) {
  if (said.updates() > said.applied() || said.applied() != applied) return;
  const uint64_t skipped = said.has_loss_scale() ? said.applied() - said.updates() : 0;
  skipped_ = std::max(skipped_, skipped);
}

void RunReport::GoOnFrom(uint64_t step, uint64_t rewound_from) {
  if (std::max(newest_.applied(), rewound_from) > step) history_.GoBack(step);
  if (step < newest_.applied()) newest_.set_applied(step);
}

void RunReport::OnRegroup(const v1::Regroup& regroup) {
  recomputed_ += regroup.shards_recomputed();
  ++regroup_count_;
  regroups_.push_back(regroup);
  if (regroups_.size() > static_cast<size_t>(options_.max_regroups)) {
    regroups_.erase(regroups_.begin());
  }
}

bool RunReport::Forms(const GenerationId& generation) const {
  return !regroups_.empty() && FromProto(regroups_.back().generation()) == generation &&
         regroups_.back().form_ms() == 0;
}

void RunReport::OnFormed(const GenerationId& generation, std::chrono::milliseconds took) {
  if (!Forms(generation)) return;
  const auto ms = static_cast<double>(took.count());
  regroups_.back().set_form_ms(std::max(1.0, ms));  // 0 would mean: not yet
}

uint64_t RunReport::StartOf(const GenerationId& generation) const {
  uint64_t step = resumed_from_ ? resumed_from_->step() : 0;
  for (const v1::Regroup& regroup : regroups_) {
    if (FromProto(regroup.generation()) == generation) step = regroup.start_step();
  }
  return step;
}

void RunReport::Describe(uint64_t committed, v1::JobStatus& status) const {
  status.set_step(committed);
  status.set_updates(committed - std::min(committed, skipped_));
  status.set_epoch(newest_.epoch());
  *status.mutable_metrics() = newest_.metrics();
  status.set_samples_per_second(newest_.samples_per_second());
  status.set_learning_rate(newest_.learning_rate());
  status.set_last_step_unix_ms(newest_unix_ms_);
  if (newest_.has_loss_scale()) status.set_loss_scale(newest_.loss_scale());
  *status.mutable_regroups() = {regroups_.begin(), regroups_.end()};
  status.set_regroup_count(regroup_count_);
  status.set_rewinds(rewinds_);
  status.set_state_faults(state_faults_);
  status.set_shards_recomputed(recomputed_);
  if (resumed_from_) *status.mutable_resumed_from() = *resumed_from_;
}

}  // namespace ringmaster::coordinator

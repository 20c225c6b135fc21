#include "cli/line_progress.h"

#include "cli/exit_code.h"
#include "cli/names.h"
#include "cli/render_watch.h"

namespace ringmaster::cli {
namespace {

constexpr std::chrono::seconds kBetweenLines(10);

}  // namespace

std::string LineProgress::NewPhases(const v1::JobStatus& status) {
  std::string text;
  if (IsFinal(status.state())) return text;
  for (const v1::StartPhase& phase : status.start_phases()) {
    if (!phase.done() || !phases_.insert(phase.name()).second) continue;
    if (!newest_ && !IsStarting(status)) continue;  // it started before it was watched
    text += fmt::format("{}  {}, done\n",
                        terminal_.Paint(Colour::kYellow, StateName(v1::JOB_STATE_STARTING)),
                        PhaseText(phase));
  }
  return text;
}

std::string LineProgress::Update(const v1::JobStatus& status, const Moment& moment) {
  std::string text = NewPhases(status);
  for (const EndedEpoch& epoch : epochs_.Update(status)) {
    // How far a job came that ended inside of one is said with its last state.
    if (epoch.place.step == epoch.place.steps) text += EndedLine(epoch) + "\n";
  }
  // The reason of a start names its phase, which has lines of its own.
  const bool new_reason = newest_ && newest_->reason() != status.reason() && !IsStarting(status);
  const bool changed = !newest_ || newest_->state() != status.state() || new_reason;
  newest_ = status;
  if (changed) text += ProgressLine(status, terminal_) + "\n";
  if (!text.empty()) written_ = moment.steady;
  return text + Tick(moment);
}

std::string LineProgress::Tick(const Moment& moment) {
  if (!newest_ || IsFinal(newest_->state()) || moment.steady - written_ < kBetweenLines) return "";
  written_ = moment.steady;
  return ProgressLine(*newest_, terminal_) + "\n";
}

}  // namespace ringmaster::cli

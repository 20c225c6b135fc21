#include "cli/show/progress_view.h"

#include "cli/complaint.h"
#include "cli/show/json.h"
#include "cli/show/names.h"
#include "cli/show/render_watch.h"
#include "cli/show/terminal.h"

namespace ringmaster::cli {
namespace {

// One object a line, none twice in a row.
class JsonProgress final : public ProgressView {
 public:
  std::string Update(const v1::JobStatus& status, const Moment&) override {
    std::string line = ToJson(status).dump() + "\n";
    if (line == newest_) return "";
    newest_ = line;
    return line;
  }
  std::string Tick(const Moment&) override { return ""; }
  std::string End(const Moment&) override { return ""; }

 private:
  std::string newest_;
};

}  // namespace

std::unique_ptr<ProgressView> MakeProgressView(Output output, const Terminal& terminal) {
  if (output == Output::kJson) return std::make_unique<JsonProgress>();
  if (terminal.repaints()) return std::make_unique<ScreenProgress>(terminal);
  return std::make_unique<LineProgress>(terminal);
}

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

namespace {

constexpr std::chrono::milliseconds kRepaint(250);

}  // namespace

// The lines of what this status has ended.
std::vector<std::string> ScreenProgress::Over(const v1::JobStatus& status, size_t columns) {
  std::vector<std::string> lines;
  const bool starting = IsStarting(status);
  if (was_starting_ && !starting && status.step() > 0) {
    const std::string line = StartedLine(status);
    if (!line.empty()) lines = WrapTo(columns, line);
  }
  was_starting_ = starting;
  for (const EndedEpoch& epoch : epochs_.Update(status)) {
    for (std::string& line : EndedLines(epoch, columns, terminal_)) {
      lines.push_back(std::move(line));
    }
  }
  if (IsFinal(status.state())) {
    for (std::string& line : WrapTo(columns, ProgressLine(status, terminal_))) {
      lines.push_back(std::move(line));
    }
  }
  return lines;
}

std::string ScreenProgress::Update(const v1::JobStatus& status, const Moment& moment) {
  const bool new_state = !newest_ || newest_->state() != status.state();
  const std::vector<std::string> over = Over(status, moment.columns);
  newest_ = status;
  std::string bytes;
  if (!over.empty()) bytes = block_.Commit(over, moment.columns);
  if (new_state || !over.empty()) painted_ = {};
  return bytes + Tick(moment);
}

std::string ScreenProgress::Tick(const Moment& moment) {
  if (!newest_ || IsFinal(newest_->state()) || moment.steady - painted_ < kRepaint) return "";
  painted_ = moment.steady;
  return block_.Paint(LiveLines(*newest_, moment.columns, moment.unix_ms, terminal_),
                      moment.columns);
}

std::string ScreenProgress::End(const Moment& moment) {
  if (!newest_ || IsFinal(newest_->state())) return "";
  // What was under way stays as it was last seen.
  return block_.Commit(LiveLines(*newest_, moment.columns, moment.unix_ms, terminal_),
                       moment.columns);
}

}  // namespace ringmaster::cli

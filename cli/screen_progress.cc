#include "cli/screen_progress.h"

#include "cli/columns.h"
#include "cli/exit_code.h"
#include "cli/names.h"
#include "cli/render_watch.h"

namespace ringmaster::cli {
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

#include "cli/progress_display.h"

#include "cli/exit_code.h"
#include "cli/json.h"
#include "cli/render.h"

namespace ringmaster::cli {
namespace {

constexpr std::chrono::milliseconds kRepaint(200);
constexpr std::chrono::seconds kLine(5);
constexpr int kBarWidth = 30;
// To the start of the line, erase it, and let what is too long for it be cut off.
constexpr char kStartPaint[] = "\r\033[K\033[?7l";
constexpr char kEndPaint[] = "\033[?7h";

}  // namespace

ProgressDisplay::~ProgressDisplay() {
  if (line_open_) Print("\n");
}

std::string ProgressDisplay::Update(const v1::JobStatus& status, Clock::time_point now) {
  if (output_ == Output::kJson) return ToJson(status).dump() + "\n";
  const bool same_state = state_ == status.state();
  const Clock::duration pause = terminal_.repaints() ? Clock::duration(kRepaint) : kLine;
  if (same_state && now - written_ < pause) return "";
  state_ = status.state();
  written_ = now;
  if (!terminal_.repaints()) return ProgressLine(status, terminal_) + "\n";
  line_open_ = !IsFinal(status.state());
  return kStartPaint + ProgressBar(status, kBarWidth, terminal_) + kEndPaint +
         (line_open_ ? "" : "\n");
}

void ProgressDisplay::Show(const v1::JobStatus& status) {
  const std::string text = Update(status, Clock::now());
  if (!text.empty()) Print(text);
}

}  // namespace ringmaster::cli

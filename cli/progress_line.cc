// The lines of `watch` away from a terminal.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/exit_code.h"
#include "cli/names.h"
#include "cli/render_watch.h"

namespace ringmaster::cli {
namespace {

// Losses, accuracies and what was evaluated.
std::string Quality(const v1::JobStatus& status) {
  std::string text;
  if (status.step() > 0) {
    text += fmt::format("  loss {:.4f}  accuracy {}", status.loss(), Percent(status.accuracy()));
  }
  if (status.has_loss_scale()) text += fmt::format("  loss scale {:g}", status.loss_scale());
  if (UpdatesKnown(status) && SkippedSteps(status) > 0) {
    text += fmt::format("  {} skipped", Count(SkippedSteps(status), "step"));
  }
  if (status.has_validation_accuracy()) {
    text += "  validation accuracy " + Percent(status.validation_accuracy());
  }
  if (status.has_test_accuracy()) text += "  test accuracy " + Percent(status.test_accuracy());
  return text;
}

// Where it is in its steps, and how fast.
std::string Place(const v1::JobStatus& status) {
  const std::optional<EpochPlace> place = PlaceOf(status);
  if (!place) return "";
  std::string text = fmt::format(
      "  epoch {}/{}  step {}/{}  {:.0f}%", place->number, place->count, status.step(),
      status.total_steps(),
      100.0 * static_cast<double>(status.step()) / static_cast<double>(status.total_steps()));
  if (!IsFinal(status.state()) && status.samples_per_second() > 0) {
    text += fmt::format("  {:.0f} samples/s", status.samples_per_second());
  }
  return text;
}

// The phase of its start that it is in.
std::string Starting(const v1::JobStatus& status) {
  for (const v1::StartPhase& phase : status.start_phases()) {
    if (!phase.done()) return "  " + PhaseText(phase);
  }
  return "";
}

}  // namespace

std::string ProgressLine(const v1::JobStatus& status, const Terminal& terminal) {
  std::string text = terminal.Paint(ColourOf(status.state()), StateName(status.state()));
  text += IsStarting(status) ? Starting(status) : Place(status) + Quality(status);
  const auto left = JobSecondsLeft(status);
  if (left && !IsStarting(status)) text += "  ETA " + WholeSeconds(*left);
  if (!status.reason().empty()) text += "  " + Printable(status.reason());
  return text;
}

std::string EndedLine(const EndedEpoch& epoch) {
  return fmt::format("epoch {}/{}  {}/{} steps{}", epoch.place.number, epoch.place.count,
                     epoch.place.step, epoch.place.steps, Quality(epoch.status));
}

}  // namespace ringmaster::cli

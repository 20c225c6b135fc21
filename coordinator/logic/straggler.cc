#include "coordinator/logic/straggler.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "coordinator/logic/failure.h"
#include "coordinator/logic/start_phases.h"

namespace ringmaster::coordinator {
namespace {

constexpr double kLeastPart = 0.1;       // of a step
constexpr double kLeastSeconds = 0.005;  // shorter waits are what any two machines differ by

using Members = std::vector<const v1::JobWorker*>;
using Measure = double (v1::StepTimes::*)() const;

struct Explanation {
  const char* word;
  Measure measure;
  const char* doing;
  const char* help;
};

constexpr Explanation kExplanations[] = {
    {"input", &v1::StepTimes::input, "waits for samples",
     "put its dataset on a faster disk or free some of its CPUs"},
    {"compute", &v1::StepTimes::compute, "computes",
     "see what else runs on its CPUs and whether they are slower"},
    {"link", &v1::StepTimes::ring_transfer, "sends and receives", "look at its network"},
};

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

double Of(const v1::JobWorker& member, Measure measure) { return (member.step_times().*measure)(); }

// Of all members but `one`.
double MedianOfOthers(const Members& members, const v1::JobWorker* one, Measure measure) {
  std::vector<double> values;
  for (const v1::JobWorker* member : members) {
    if (member != one) values.push_back(Of(*member, measure));
  }
  return Median(std::move(values));
}

Members MeasuredOf(const v1::JobStatus& status) {
  Members members;
  for (const v1::JobWorker& worker : status.workers()) {
    if (worker.step_times().total() > 0) members.push_back(&worker);
  }
  return members;
}

// Null when nothing takes it longer than the others.
const Explanation* CauseOf(const Members& members, const v1::JobWorker* late) {
  const Explanation* found = nullptr;
  double most = 0;
  for (const Explanation& cause : kExplanations) {
    const double excess = Of(*late, cause.measure) - MedianOfOthers(members, late, cause.measure);
    if (excess <= most) continue;
    most = excess;
    found = &cause;
  }
  return found;
}

}  // namespace

std::optional<v1::Straggler> FindStraggler(const v1::JobStatus& status) {
  const Members members = MeasuredOf(status);
  if (members.size() < 2) return std::nullopt;
  const Measure wait = &v1::StepTimes::ring_wait;
  const v1::JobWorker* const late =
      *std::min_element(members.begin(), members.end(),
                        [&](const auto* a, const auto* b) { return Of(*a, wait) < Of(*b, wait); });
  const double seconds = MedianOfOthers(members, late, wait) - Of(*late, wait);
  const double step = late->step_times().total();
  if (seconds <= std::max(kLeastSeconds, kLeastPart * step)) return std::nullopt;
  const Explanation* const cause = CauseOf(members, late);
  if (cause == nullptr) return std::nullopt;

  v1::Straggler straggler;
  straggler.set_worker(late->name());
  straggler.set_cause(cause->word);
  straggler.set_seconds(seconds);
  straggler.set_text(fmt::format(
      "the others wait {} of each {} step for {}, which {} for {} where they take {}: {}, or "
      "`ringctl drain {}`",
      FormatSeconds(seconds), FormatSeconds(step), Called(late->name(), late->host()), cause->doing,
      FormatSeconds(Of(*late, cause->measure)),
      FormatSeconds(MedianOfOthers(members, late, cause->measure)), cause->help, late->name()));
  return straggler;
}

}  // namespace ringmaster::coordinator

#include "coordinator/logic/explain.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "coordinator/logic/run/failure.h"
#include "coordinator/logic/run/run_report.h"

namespace ringmaster::coordinator {
namespace {

using Advice = std::vector<std::string>;

// Workers whose own work differs by less are equally fast.
constexpr double kBalanced = 0.1;

// What a worker does by itself; it waits for the others in the ring.
double OwnWork(const v1::JobWorker& worker) {
  return worker.step_times().input() + worker.step_times().compute();
}

Advice AdviseStarting(const v1::JobStatus& status) {
  Advice advice;
  for (const v1::StartPhase& phase : status.start_phases()) {
    if (phase.done()) continue;
    advice.push_back(fmt::format(
        "{} is under way, {} so far, longest on {}; `ringctl logs {} --worker {}` shows what it "
        "does",
        phase.name(), FormatSeconds(phase.seconds()), phase.worker(), status.job_id(),
        phase.worker()));
  }
  return advice;
}

struct Part {
  const char* name;
  double seconds;
  const char* help;  // null: as AdviseMore says
};

// What most of a step goes to.
Part LargestPart(const v1::StepTimes& times) {
  const Part parts[] = {
      {"compute", times.compute(), nullptr},
      {"ring_wait", times.ring_wait(), "it waits for the worker before it in the ring"},
      {"ring_transfer", times.ring_transfer(),
       "a faster network, fewer workers or a larger batch help"},
      {"update", times.update(), "a larger batch makes it a smaller part of the whole"},
  };
  return *std::max_element(std::begin(parts), std::end(parts),
                           [](const Part& a, const Part& b) { return a.seconds < b.seconds; });
}

// The workers, by how long each works for itself.
Advice AdviseSlowest(const v1::JobStatus& status) {
  const v1::JobWorker *slowest = nullptr, *fastest = nullptr;
  for (const v1::JobWorker& worker : status.workers()) {
    if (worker.step_times().total() <= 0) continue;  // nothing measured yet
    if (slowest == nullptr || OwnWork(worker) > OwnWork(*slowest)) slowest = &worker;
    if (fastest == nullptr || OwnWork(worker) < OwnWork(*fastest)) fastest = &worker;
  }
  if (slowest == nullptr) return {};
  const v1::StepTimes& times = slowest->step_times();
  const bool balanced = OwnWork(*slowest) - OwnWork(*fastest) <= kBalanced * times.total();
  const Part largest = LargestPart(times);
  const std::string who = Called(slowest->name(), slowest->host());
  return {fmt::format("{}: {} takes {} of {} a step there; {}",
                      !balanced                    ? who + " is the slowest"
                      : status.workers_size() == 1 ? who
                                                   : "the workers are equally fast, as " + who,
                      largest.name, FormatSeconds(largest.seconds), FormatSeconds(times.total()),
                      largest.help == nullptr ? AdviseMore(status) : largest.help)};
}

Advice AdviseRunning(const v1::JobStatus& status) {
  Advice advice;
  if (status.has_straggler()) advice.push_back(status.straggler().text());
  if (const std::string without = DescribeWithout(status);
      !without.empty() && !status.has_straggler()) {
    advice.push_back(without);
  }
  if (status.has_input_wait()) advice.push_back(status.input_wait().text());
  return advice.empty() ? AdviseSlowest(status) : advice;
}

Advice Advise(const JobView& view) {
  const v1::JobStatus& status = view.status;
  switch (status.state()) {
    case v1::JOB_STATE_QUEUED:
    case v1::JOB_STATE_WAITING:
      return view.advice;
    case v1::JOB_STATE_STARTING:
      return AdviseStarting(status);
    case v1::JOB_STATE_RUNNING: {
      Advice advice = AdviseStarting(status);
      return advice.empty() ? AdviseRunning(status) : advice;
    }
    case v1::JOB_STATE_FAILED:
      if (status.failure().advice().empty()) return {};
      return {status.failure().advice()};
    default:
      return {};
  }
}

}  // namespace

v1::WhyResponse Explain(const JobView& view) {
  v1::WhyResponse why;
  why.set_state(view.status.state());
  why.set_reason(view.status.reason());
  for (std::string& line : view.events.Decisions()) why.add_history(std::move(line));
  if (view.status.has_failure()) *why.mutable_failure() = view.status.failure();
  for (std::string& line : Advise(view)) why.add_advice(std::move(line));
  return why;
}

namespace {

constexpr double kLeastPart = 0.1;       // of a step, for both that stand out here
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
     "give it more --input-threads, put its dataset on a faster disk or free some of its CPUs"},
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
  const std::string needed = NeededToLeave(status, *late);
  straggler.set_text(fmt::format(
      "the others wait {} of each {} step for {}, which {} for {} where they take {}: {}{}",
      FormatSeconds(seconds), FormatSeconds(step), Called(late->name(), late->host()), cause->doing,
      FormatSeconds(Of(*late, cause->measure)),
      FormatSeconds(MedianOfOthers(members, late, cause->measure)), cause->help,
      needed.empty() ? fmt::format(", or `ringctl drain {}`", late->name()) : "; " + needed));
  return straggler;
}

namespace {

constexpr double kMostThreads = 1024;  // that ringworker takes

// What would help a worker whose cores wait for samples `wait` of a step.
std::string InputHelp(const v1::StepTimes& times) {
  const std::string smaller = "smaller stored images take less (`ringctl dataset pack`)";
  if (!(times.input_work() > 0)) {
    return "start it with more --input-threads if it has CPUs to spare; " + smaller;
  }
  // All of the work, in what is left of a step when nobody waits.
  const double room = std::max(times.total() - times.input(), 0.01 * times.total());
  const auto needed =
      static_cast<uint32_t>(std::ceil(std::min(kMostThreads, times.input_work() / room)));
  const std::string work = fmt::format("reading and decoding takes {} of thread time a step; ",
                                       FormatSeconds(times.input_work()));
  if (needed > times.input_threads()) {
    return fmt::format(
        "{}it needs {} input threads and has {}: start it with --input-threads {} if it has CPUs "
        "to spare; {}",
        work, needed, times.input_threads(), needed, smaller);
  }
  return fmt::format(
      "{}its {} input threads are enough: more --input-memory lets them work further ahead; a "
      "faster disk or more free CPUs help",
      work, times.input_threads());
}

}  // namespace

std::optional<v1::InputWait> FindInputWait(const v1::JobStatus& status) {
  const v1::JobWorker* late = nullptr;
  double most = kLeastPart;
  for (const v1::JobWorker* member : MeasuredOf(status)) {
    const double share = member->step_times().input() / member->step_times().total();
    if (!(share > most)) continue;  // also what is no number
    most = share;
    late = member;
  }
  if (late == nullptr) return std::nullopt;
  const v1::StepTimes& times = late->step_times();
  v1::InputWait wait;
  wait.set_worker(late->name());
  wait.set_share(most);
  wait.set_text(fmt::format("{} waits for samples in {:.0f}% of a step ({} of {}): {}",
                            Called(late->name(), late->host()), 100 * most,
                            FormatSeconds(times.input()), FormatSeconds(times.total()),
                            InputHelp(times)));
  return wait;
}

}  // namespace ringmaster::coordinator

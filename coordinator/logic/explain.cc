#include "coordinator/logic/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/job/balance.h"
#include "common/job/resolve.h"
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

// ---- what the steps would take ------------------------------------------------------------------

namespace {

constexpr double kLeastSaid = 0.05;  // part of a step; less is what measurements differ by
constexpr size_t kMostNames = 4;

// The ring's members of one class.
struct ClassMembers {
  std::vector<int> members;  // places in the status
  std::vector<job::Pace> paces;
  uint32_t shards = 0;
  [[nodiscard]] double Longest() const {
    return job::LongestOf(job::Balance(shards, paces), paces);
  }
};

bool IsMeasured(const v1::JobWorker& worker) {
  const v1::StepTimes& times = worker.step_times();
  return worker.cores() > 0 && worker.shard_seconds() > 0 &&
         std::isfinite(worker.shard_seconds()) && times.total() > 0 &&
         std::isfinite(times.total()) && std::isfinite(times.input() + times.compute()) &&
         std::isfinite(times.ring_wait() + times.ring_transfer());
}

double OwnOf(const v1::JobWorker& worker) {
  return worker.step_times().input() + worker.step_times().compute();
}

// By class; nothing while one of the ring's members was not measured.
std::map<std::string, ClassMembers> ClassesOf(const v1::JobStatus& status) {
  std::map<std::string, ClassMembers> classes;
  for (int i = 0; i < status.workers_size(); ++i) {
    const v1::JobWorker& worker = status.workers(i);
    if (worker.shards().empty()) continue;
    if (!IsMeasured(worker)) return {};
    ClassMembers& its = classes[worker.class_()];
    its.members.push_back(i);
    its.paces.push_back({worker.cores(), worker.shard_seconds()});
    its.shards += static_cast<uint32_t>(worker.shards_size());
  }
  return classes;
}

// What a step takes beside the shards, and how much of that is the ring's: of the member that
// takes longest for its shards, as the others wait for it.
struct Beside {
  double all = 0, ring = 0;
};

Beside BesideShards(const v1::JobStatus& status) {
  const v1::JobWorker* late = nullptr;
  for (const v1::JobWorker& worker : status.workers()) {
    if (worker.shards().empty()) continue;
    if (late == nullptr || OwnOf(worker) > OwnOf(*late)) late = &worker;
  }
  if (late == nullptr) return {};
  const v1::StepTimes& times = late->step_times();
  const double all = std::max(0.0, times.total() - OwnOf(*late));
  return {all, std::clamp(times.ring_wait() + times.ring_transfer(), 0.0, all)};
}

struct Prediction {
  std::vector<int> members;  // places in the status
  double seconds = 0;        // of a step
};

Prediction WithoutSlowest(const std::map<std::string, ClassMembers>& classes, double beside) {
  double shortest = 0;  // of all classes: a step waits for the last one
  for (const auto& [name, its] : classes) {
    const job::Without best =
        job::BestWithout(its.shards, its.paces, its.paces.size() - 1, kLeastSaid);
    shortest = std::max(shortest, best.seconds);
  }
  Prediction found{{}, beside + shortest};
  for (const auto& [name, its] : classes) {  // none whose class is done by then with it
    const job::Without best =
        job::BestWithout(its.shards, its.paces, its.paces.size() - 1, kLeastSaid, shortest);
    for (const size_t member : best.members) found.members.push_back(its.members[member]);
  }
  return found;
}

Prediction FastestAlone(const ClassMembers& its, const Beside& beside) {
  const auto seconds = [&](size_t i) { return job::SecondsOf(its.paces[i], its.shards); };
  size_t fastest = 0;
  for (size_t i = 1; i < its.paces.size(); ++i) {
    if (seconds(i) < seconds(fastest)) fastest = i;
  }
  Prediction alone{its.members, beside.all - beside.ring + seconds(fastest)};
  alone.members.erase(alone.members.begin() + static_cast<std::ptrdiff_t>(fastest));
  return alone;
}

size_t RingOf(const v1::JobStatus& status) {
  return static_cast<size_t>(std::ranges::count_if(
      status.workers(), [](const v1::JobWorker& worker) { return !worker.shards().empty(); }));
}

size_t LeastOf(const v1::JobStatus& status) {
  return std::max<size_t>(job::WorkersOf(status.spec()).min(), 1);
}

// Members of the ring of its class, itself included.
size_t CountClass(const v1::JobStatus& status, const v1::JobWorker& member) {
  return static_cast<size_t>(
      std::ranges::count_if(status.workers(), [&](const v1::JobWorker& worker) {
        return !worker.shards().empty() && worker.class_() == member.class_();
      }));
}

}  // namespace

void PredictWithout(v1::JobStatus& status) {
  for (v1::JobWorker& worker : *status.mutable_workers()) worker.clear_faster_without();
  const std::map<std::string, ClassMembers> classes = ClassesOf(status);
  if (classes.empty()) return;
  const Beside beside = BesideShards(status);
  double now = 0;
  for (const auto& [name, its] : classes) now = std::max(now, its.Longest());
  now += beside.all;
  Prediction best = WithoutSlowest(classes, beside.all);
  if (classes.size() == 1 && classes.begin()->second.members.size() > 1) {
    Prediction alone = FastestAlone(classes.begin()->second, beside);
    if (alone.seconds < (1 - kLeastSaid) * best.seconds) best = std::move(alone);
  }
  const double won = best.seconds > 0 ? now / best.seconds - 1 : 0;
  if (!(won >= kLeastSaid) || !std::isfinite(won)) return;
  for (const int member : best.members) {
    status.mutable_workers(member)->set_faster_without(100 * won);
  }
}

std::string DescribeWithout(const v1::JobStatus& status) {
  std::vector<std::string> names;
  double percent = 0;
  for (const v1::JobWorker& worker : status.workers()) {
    if (!(worker.faster_without() > 0)) continue;
    names.push_back(worker.name());
    percent = worker.faster_without();
  }
  if (names.empty()) return "";
  const size_t count = names.size();
  std::string who;
  if (count > kMostNames) {
    names.resize(kMostNames - 1);
    who = fmt::format("{} and {} more", fmt::join(names, ", "), count - names.size());
  } else {
    who = names.front();
    for (size_t i = 1; i < count; ++i) who += (i + 1 < count ? ", " : " and ") + names[i];
  }
  const size_t spare = RingOf(status) - std::min(RingOf(status), LeastOf(status));
  std::string needed;
  if (spare < count) {
    needed = fmt::format(", but workers.min needs {}",
                         count == 1   ? "it"
                         : spare == 0 ? "them"
                                      : fmt::format("{} of them", count - spare));
  }
  return fmt::format("without {} this job would be {:.0f}% faster{}", who, percent, needed);
}

std::string NeededToLeave(const v1::JobStatus& status, const v1::JobWorker& member) {
  const bool mixed =
      !status.class_maps().empty() && status.class_maps().rbegin()->classes_size() > 1;
  if (mixed && CountClass(status, member) == 1) {
    return fmt::format("it alone computes the shards of {}: start another worker of that class",
                       member.class_());
  }
  if (RingOf(status) > LeastOf(status)) return "";
  return fmt::format("workers.min {} needs it: start another worker, then `ringctl drain {}`",
                     LeastOf(status), member.name());
}

std::string AdviseMore(const v1::JobStatus& status) {
  const std::map<std::string, ClassMembers> classes = ClassesOf(status);
  const ClassMembers* last = nullptr;  // that a step waits for
  for (const auto& [name, its] : classes) {
    if (last == nullptr || its.Longest() > last->Longest()) last = &its;
  }
  if (last == nullptr) return "with more workers it gets fewer shards";
  const v1::WorkerRange range = job::WorkersOf(status.spec());
  const size_t ring = RingOf(status);
  if (last->paces.size() >= last->shards) {
    return "each worker has a single shard of it, so more of them change nothing: faster hosts do, "
           "or another job with more shards";
  }
  if (ring >= range.max()) {
    return fmt::format("workers.max {} lets no more workers join: submit it again with {}",
                       range.max(), ring + 1);
  }
  const auto quickest = std::ranges::min_element(last->paces, {}, &job::Pace::seconds);
  const v1::JobWorker& like =
      status.workers(last->members[static_cast<size_t>(quickest - last->paces.begin())]);
  const double now = last->Longest();
  const auto with = [&](size_t count) {
    ClassMembers more = *last;
    more.paces.insert(more.paces.end(), count, *quickest);
    return more.Longest();
  };
  const size_t room = std::min<size_t>(range.max() - ring, last->shards - last->paces.size());
  size_t none = 0, count = room;  // so many help not, or as far as any do
  while (count - none > 1) {
    const size_t middle = none + (count - none) / 2;
    (with(middle) < (1 - kLeastSaid) * now ? count : none) = middle;
  }
  if (with(count) >= (1 - kLeastSaid) * now) {
    return "more workers change nothing, as each core has a single shard: faster hosts do, or "
           "another "
           "job with more shards";
  }
  return fmt::format("start {} like {}: the shards of a step would take {} instead of {}",
                     count == 1 ? "one more worker" : fmt::format("{} more workers", count),
                     like.name(), FormatSeconds(with(count)), FormatSeconds(now));
}

}  // namespace ringmaster::coordinator

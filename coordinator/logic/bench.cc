#include "coordinator/logic/bench.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/text.h"

namespace ringmaster::coordinator {
namespace {

constexpr size_t kMostText = 500;  // of a worker's error
constexpr const char* kAborted = "BENCH_ABORTED";

double MiddleOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// Of links alone: every pair of so many; of more, neighbours.
constexpr size_t kMostInPairs = 8;

bool IsTime(double seconds) { return std::isfinite(seconds) && seconds > 0; }

// Of one size and kind of sum: `index` is its place in each member's times.
v1::AllReduceTimes MergeRounds(const std::vector<v1::RingMeasured>& measured, int index) {
  v1::AllReduceTimes times;
  std::vector<double> rounds;
  for (const v1::RingMeasured& member : measured) {
    const v1::MeasuredSums& its = member.times(index);
    rounds.resize(static_cast<size_t>(its.seconds_size()), 0);
    for (int i = 0; i < its.seconds_size(); ++i) {
      double& slowest = rounds[static_cast<size_t>(i)];
      slowest = std::max(slowest, its.seconds(i));
    }
    times.set_sent_bytes(times.sent_bytes() + its.sent_bytes());
  }
  times.mutable_seconds()->Add(rounds.begin(), rounds.end());
  const double median = MiddleOf(std::move(rounds));
  const double members = static_cast<double>(measured.size());
  const double rate = static_cast<double>(measured.front().times(index).bytes()) / median;
  times.set_median_seconds(median);
  times.set_algorithm_bytes_per_second(rate);
  times.set_bus_bytes_per_second(rate * 2 * (members - 1) / members);
  return times;
}

}  // namespace

void FillRows(const v1::AllReduceRequest& request, const std::vector<v1::RingMeasured>& measured,
              v1::AllReduceReport* report) {
  int index = 0;
  for (const uint64_t bytes : request.bytes()) {
    v1::AllReduceRow& row = *report->add_rows();
    row.set_bytes(bytes);
    for (const int sums : request.sums()) {
      (sums == v1::BENCH_SUMS_EXACT ? *row.mutable_exact() : *row.mutable_float32()) =
          MergeRounds(measured, index++);
    }
    if (!row.has_exact() || !row.has_float32()) continue;
    std::vector<double> ratios;
    for (int i = 0; i < row.exact().seconds_size(); ++i) {
      ratios.push_back(row.float32().seconds(i) / row.exact().seconds(i));
    }
    row.set_ratio(MiddleOf(std::move(ratios)));
  }
}

Bench::Bench(BenchId id, v1::AllReduceRequest request, std::vector<Member> members,
             const Options& options, GenerationSource& generations)
    : id_(id),
      request_(std::move(request)),
      members_(std::move(members)),
      links_(LinksOf(request_, members_.size())),
      options_(options),
      generations_(generations) {
  for (const Member& member : members_) report_.add_workers(member.name());
  report_.set_rounds(request_.rounds());
  report_.set_seed(request_.seed());
}

std::vector<Bench::Link> Bench::LinksOf(const v1::AllReduceRequest& request, size_t count) {
  std::vector<Link> links;
  const bool pairs = request.links_alone() && count <= kMostInPairs;
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = i + 1; pairs && j < count; ++j) {
      links.push_back({i, j});
      links.push_back({j, i});
    }
    const size_t next = (i + 1) % count;
    if (!pairs) links.push_back({i, next});
    if (!pairs && request.links_alone()) links.push_back({next, i});
  }
  return links;
}

void Bench::Begin(Now now, Actions& actions) { BeginStage(now, actions); }

void Bench::BeginStage(Now now, Actions& actions) {
  generation_ = generations_.Next();
  measured_.clear();
  broken_ = false;
  const bool links = phase_ == Phase::kLinks;
  stage_ = members_;
  if (links) stage_ = {members_[links_[link_].from], members_[links_[link_].to]};
  deadline_ = now.steady + (links ? options_.bench_link_limit : options_.bench_limit);
  v1::CoordinatorMessage message;
  v1::MeasureRing& measure = *message.mutable_measure_ring();
  *measure.mutable_generation() = ToProto(generation_);
  for (const Member& member : stage_) *measure.add_ring() = member.self;
  if (links) {
    v1::MeasureLink& link = *measure.mutable_link();
    if (request_.links_alone()) {
      link.set_reach_ms(static_cast<uint32_t>(options_.reach_limit.count()));
    }
  } else {
    v1::MeasureSums& sums = *measure.mutable_sums();
    *sums.mutable_bytes() = request_.bytes();
    *sums.mutable_sums() = request_.sums();
    sums.set_rounds(request_.rounds());
    sums.set_seed(request_.seed());
  }
  for (const Member& member : stage_) {
    asked_[member.name()] = member.session;
    actions.push_back(Send{member.session, message});
  }
}

size_t Bench::PlaceOf(const std::string& name) const {
  const auto found = std::find_if(stage_.begin(), stage_.end(),
                                  [&](const Member& member) { return member.name() == name; });
  return static_cast<size_t>(found - stage_.begin());
}

std::string Bench::Judge(const std::string& name, const v1::RingMeasured& said) const {
  if (phase_ == Phase::kLinks) {
    const bool first = PlaceOf(name) == 0;
    const double figure = first ? said.round_trip_seconds() : said.bytes_per_second();
    return IsTime(figure) ? "" : "it measured nothing";
  }
  if (said.times_size() != request_.bytes_size() * request_.sums_size()) {
    return fmt::format("it measured {} of {} times", said.times_size(),
                       request_.bytes_size() * request_.sums_size());
  }
  int index = 0;
  for (const uint64_t bytes : request_.bytes()) {
    for (const int sums : request_.sums()) {
      const v1::MeasuredSums& times = said.times(index++);
      const bool whole = times.bytes() == bytes && times.sums() == sums &&
                         times.seconds_size() == static_cast<int>(request_.rounds()) &&
                         std::all_of(times.seconds().begin(), times.seconds().end(), IsTime);
      if (!whole) return fmt::format("its times of {} bytes are not those asked for", bytes);
    }
  }
  return "";
}

void Bench::OnMeasured(const std::string& name, const v1::RingMeasured& said, Now now,
                       Actions& actions) {
  if (phase_ == Phase::kOver || FromProto(said.generation()) != generation_) return;
  if (asked_.erase(name) == 0) return;
  std::string error = OneLine(said.error(), kMostText);
  const Certainty certainty =
      !error.empty() && said.by_neighbour() ? Certainty::kByNeighbour : Certainty::kItsOwn;
  if (error.empty() && phase_ != Phase::kEnding) error = Judge(name, said);
  if (request_.links_alone() && phase_ == Phase::kLinks) {
    measured_[name] = said;
    measured_[name].set_error(error);
    if (!error.empty() && !std::exchange(broken_, true)) EndOthers(error, now, actions);
    if (asked_.empty()) EndStage(now, actions);
    return;
  }
  if (!error.empty()) {
    const Status status =
        Error(absl::StatusCode::kAborted, "worker {} could not measure: {}", name, error);
    return Fail(certainty, {status, kAborted}, now, actions);
  }
  measured_[name] = said;
  if (asked_.empty()) EndStage(now, actions);
}

void Bench::OnLost(const std::string& name, const std::string& why, Now now, Actions& actions) {
  if (phase_ == Phase::kOver) return;
  asked_.erase(name);
  const Status status = Error(absl::StatusCode::kAborted,
                              "worker {} was lost while the ring was measured: {}", name, why);
  Fail(Certainty::kSeenHere, {status, kAborted}, now, actions);
}

void Bench::Stop(const Refusal& why, Now now, Actions& actions) {
  if (phase_ != Phase::kOver) Fail(Certainty::kSeenHere, why, now, actions);
}

void Bench::Fail(Certainty certainty, Refusal fault, Now now, Actions& actions) {
  if (certainty > certainty_) {
    certainty_ = certainty;
    fault_ = std::move(fault);
  }
  if (phase_ != Phase::kEnding) {
    phase_ = Phase::kEnding;
    EndOthers(Message(fault_.status), now, actions);
  }
  if (asked_.empty()) phase_ = Phase::kOver;
}

void Bench::EndOthers(const std::string& reason, Now now, Actions& actions) {
  deadline_ = now.steady + options_.bench_end_limit;
  v1::CoordinatorMessage message;
  *message.mutable_end_measuring()->mutable_generation() = ToProto(generation_);
  message.mutable_end_measuring()->set_reason(reason);
  for (const auto& [name, session] : asked_) actions.push_back(Send{session, message});
}

void Bench::KeepLink() {
  v1::BenchLink& link = *report_.add_links();
  link.set_from(stage_[0].name());
  link.set_to(stage_[1].name());
  link.set_round_trip_seconds(measured_[stage_[0].name()].round_trip_seconds());
  link.set_bytes_per_second(measured_[stage_[1].name()].bytes_per_second());
  if (request_.links_alone()) link.set_address(stage_[1].self.ring_address());
}

void Bench::KeepBroken() {
  const bool back_is_next = link_ + 1 < links_.size() &&
                            links_[link_].from == links_[link_ + 1].to &&
                            links_[link_].to == links_[link_ + 1].from;
  for (size_t from = 0; from < (back_is_next ? size_t{2} : size_t{1}); ++from) {
    const Member& member = stage_[from];
    const Member& successor = stage_[1 - from];
    const v1::RingMeasured& said = measured_[member.name()];
    const v1::RingMeasured& other = measured_[successor.name()];
    v1::BenchLink& link = *report_.add_links();
    link.set_from(member.name());
    link.set_to(successor.name());
    link.set_address(successor.self.ring_address());
    link.set_unreached(said.unreached());
    if (said.unreached() || !other.unreached()) {
      const bool own = said.unreached() || other.error().empty() ||
                       (!said.error().empty() && !said.by_neighbour());
      link.set_error(own ? said.error() : fmt::format("{}: {}", successor.name(), other.error()));
    } else {
      link.set_error("not measured: the way back cannot be made");
    }
  }
  if (back_is_next) ++link_;
}

void Bench::EndStage(Now now, Actions& actions) {
  switch (phase_) {
    case Phase::kLinks:
      broken_ ? KeepBroken() : KeepLink();
      if (++link_ == links_.size()) phase_ = request_.links_alone() ? Phase::kOver : Phase::kSums;
      if (phase_ != Phase::kOver) BeginStage(now, actions);
      return;
    case Phase::kSums: {
      std::vector<v1::RingMeasured> measured;
      for (const Member& member : members_) measured.push_back(measured_[member.name()]);
      FillRows(request_, measured, &report_);
      phase_ = Phase::kOver;
      return;
    }
    case Phase::kEnding:
      phase_ = Phase::kOver;
      return;
    case Phase::kOver:
      return;
  }
}

std::string Bench::NamesOfAsked() const {
  std::vector<std::string> names;
  for (const auto& [name, session] : asked_) names.push_back(name);
  return fmt::format("{}", fmt::join(names, ", "));
}

void Bench::OnTick(Now now, Actions& actions) {
  const bool measures = phase_ == Phase::kLinks || phase_ == Phase::kSums;
  if (!measures || now.steady <= deadline_) return;
  const auto limit = phase_ == Phase::kLinks ? options_.bench_link_limit : options_.bench_limit;
  const std::string what = phase_ == Phase::kLinks ? fmt::format("the link from {} to {} was",
                                                                 stage_[0].name(), stage_[1].name())
                                                   : std::string("the sums were");
  const Status status =
      Error(absl::StatusCode::kAborted, "{} not measured within {} s: {} did not answer; {}", what,
            limit.count() / 1000, NamesOfAsked(),
            phase_ == Phase::kLinks ? "look at their logs, and at the network between them"
                                    : "ask for smaller sizes or fewer rounds");
  Fail(Certainty::kSeenHere, {status, "BENCH_TIMEOUT"}, now, actions);
}

std::vector<SessionId> Bench::FindOverdue(Now now) const {
  std::vector<SessionId> overdue;
  if (phase_ != Phase::kEnding || now.steady <= deadline_) return overdue;
  for (const auto& [name, session] : asked_) overdue.push_back(session);
  return overdue;
}

}  // namespace ringmaster::coordinator

#include "common/job/update_rules.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/job/rules.h"
#include "common/text.h"

namespace ringmaster::job {
namespace {

const std::string kSchedule = "optimizer.schedule.";

// ---- lengths ------------------------------------------------------------------------------------

std::string WordsOf(const v1::Length& length) {
  return length.has_updates() ? fmt::format("{} updates", length.updates())
                              : fmt::format("{} epochs", length.epochs());
}

// Turns lengths into updates of a job that has so many steps.
class Lengths {
 public:
  // `end`: the job's length in words.
  Lengths(uint64_t steps_per_epoch, uint64_t total, std::string end)
      : steps_per_epoch_(steps_per_epoch), total_(total), end_(std::move(end)) {}

  // At least one update.
  Status Resolve(const std::string& key, v1::Length* length) const {
    if (length->has_updates()) return absl::OkStatus();  // its rules say so
    const double updates = std::floor(length->epochs() * static_cast<double>(steps_per_epoch_));
    if (updates < 1 || updates >= 0x1p53) {
      return InvalidArgument("{}: expected 1 to 2^53 updates, got {} of {} steps each", key,
                             WordsOf(*length), steps_per_epoch_);
    }
    length->set_updates(static_cast<uint64_t>(updates));
    return absl::OkStatus();
  }

  // Likewise, before the end of the job.
  Status ResolveWithin(const std::string& key, v1::Length* length) const {
    const std::string words = WordsOf(*length);
    RING_RETURN_IF_ERROR(Resolve(key, length));
    if (length->updates() < total_) return absl::OkStatus();
    return InvalidArgument("{}: expected less than the job's {}, got {}", key, end_, words);
  }

 private:
  const uint64_t steps_per_epoch_;
  const uint64_t total_;
  const std::string end_;
};

// What the next boundary may not be in front of.
struct Border {
  uint64_t updates = 0;
  std::string words;  // what is expected

  Status Check(const std::string& key, const std::string& words_of_next, uint64_t next) const {
    if (next >= updates) return absl::OkStatus();
    return InvalidArgument("{}: expected {}, got {}", key, words, words_of_next);
  }
};

Status ResolveAt(const Lengths& lengths, Border border, v1::Steps* steps) {
  for (int i = 0; i < steps->at_size(); ++i) {
    const std::string key = fmt::format("{}steps.at.{}", kSchedule, i);
    const std::string words = WordsOf(steps->at(i));
    RING_RETURN_IF_ERROR(lengths.ResolveWithin(key, steps->mutable_at(i)));
    const uint64_t at = steps->at(i).updates();
    RING_RETURN_IF_ERROR(border.Check(key, words, at));
    border = {at + 1, fmt::format("more than the {} in front of it", words)};
  }
  return absl::OkStatus();
}

Status ResolveSchedule(const Lengths& lengths, v1::Schedule* schedule) {
  Border border;
  if (schedule->has_warmup()) {
    v1::Length* const over = schedule->mutable_warmup()->mutable_over();
    border.words = fmt::format("at least the {} of the warm-up", WordsOf(*over));
    RING_RETURN_IF_ERROR(lengths.ResolveWithin(kSchedule + "warmup.over", over));
    border.updates = over->updates();
  }
  if (schedule->has_exponential()) {
    return lengths.Resolve(kSchedule + "exponential.every",
                           schedule->mutable_exponential()->mutable_every());
  }
  if (!schedule->has_steps()) return absl::OkStatus();
  v1::Steps* const steps = schedule->mutable_steps();
  if (!steps->has_every()) return ResolveAt(lengths, border, steps);
  const std::string key = kSchedule + "steps.every";
  const std::string words = WordsOf(steps->every());
  RING_RETURN_IF_ERROR(lengths.ResolveWithin(key, steps->mutable_every()));
  return border.Check(key, words, steps->every().updates());
}

// ---- before the data are known ------------------------------------------------------------------

// Those of one unit, whatever the length of an epoch is.
Status CheckOrder(const std::string& key, const v1::Steps& steps) {
  for (int i = 1; i < steps.at_size(); ++i) {
    const v1::Length& before = steps.at(i - 1);
    const v1::Length& at = steps.at(i);
    if (before.has_updates() != at.has_updates()) continue;
    const bool later =
        at.has_updates() ? at.updates() > before.updates() : at.epochs() > before.epochs();
    if (later) continue;
    return InvalidArgument("{}.{}: expected more than the {} in front of it, got {}", key, i,
                           WordsOf(before), WordsOf(at));
  }
  return absl::OkStatus();
}

Status CheckSteps(const v1::Steps& steps) {
  const std::string key = kSchedule + "steps";
  if (steps.has_every() == (steps.at_size() > 0)) {
    return InvalidArgument("{}: expected one of at, every, got {}", key,
                           steps.has_every() ? "both" : "none");
  }
  RING_RETURN_IF_ERROR(CheckOrder(key + ".at", steps));
  const int factors = steps.factor().values_size();
  if (factors == 1 || (factors > 0 && factors == steps.at_size())) return absl::OkStatus();
  return InvalidArgument("{}.factor: expected one number{}, got {}", key,
                         steps.has_every() ? "" : ", or one for each of at", factors);
}

// The ratios of these rules have the decay in them, in the one way of each.
Status CheckKind(const v1::Optimizer& written) {
  const bool own = written.has_lars() || written.has_lamb();
  if (!own || written.weight_decay().kind() == v1::DECAY_KIND_UNSPECIFIED) return absl::OkStatus();
  return InvalidArgument(
      "optimizer.weight_decay.kind: expected none with {}, which has its own, got one; leave it "
      "out",
      written.has_lars() ? "lars" : "lamb");
}

// Every length that a schedule has.
std::vector<const v1::Length*> LengthsOf(const v1::Schedule& schedule) {
  std::vector<const v1::Length*> lengths;
  if (schedule.has_warmup()) lengths.push_back(&schedule.warmup().over());
  if (schedule.steps().has_every()) lengths.push_back(&schedule.steps().every());
  for (const v1::Length& length : schedule.steps().at()) lengths.push_back(&length);
  if (schedule.has_exponential()) lengths.push_back(&schedule.exponential().every());
  return lengths;
}

// Where everything is in steps, or everything in epochs, the length of an epoch does not matter.
Status CheckLengths(const v1::JobSpec& complete) {
  const v1::Schedule& schedule = complete.optimizer().schedule();
  const bool comparable = std::ranges::all_of(LengthsOf(schedule), [&](const v1::Length* length) {
    return length->has_updates() == complete.has_steps();
  });
  if (!comparable) return absl::OkStatus();
  constexpr uint64_t kSomeSteps = uint64_t{1} << 20;
  const bool in_steps = complete.has_steps();
  const Lengths lengths(kSomeSteps, in_steps ? complete.steps() : complete.epochs() * kSomeSteps,
                        in_steps ? fmt::format("{} steps", complete.steps())
                                 : fmt::format("{} epochs", complete.epochs()));
  v1::Schedule resolved = schedule;
  return ResolveSchedule(lengths, &resolved);
}

}  // namespace

// Groups are matched with every parameter, where others wait.
constexpr int kMostGroups = 256, kMostBoundaries = 1024;

Status CheckOptimizer(const v1::JobSpec& spec) {
  RING_RETURN_IF_ERROR(CheckKind(spec.optimizer()));
  if (spec.optimizer().groups_size() > kMostGroups) {
    return InvalidArgument("optimizer.groups: {} of them; at most {} are allowed",
                           spec.optimizer().groups_size(), kMostGroups);
  }
  if (spec.optimizer().schedule().steps().at_size() > kMostBoundaries) {
    return InvalidArgument("optimizer.schedule.steps.at: {} of them; at most {} are allowed",
                           spec.optimizer().schedule().steps().at_size(), kMostBoundaries);
  }
  v1::JobSpec complete = spec;
  FillDefaults(&complete);
  const v1::Optimizer& optimizer = complete.optimizer();
  if (optimizer.schedule().has_steps()) {
    RING_RETURN_IF_ERROR(CheckSteps(optimizer.schedule().steps()));
  }
  return CheckLengths(complete);
}

StatusOr<v1::Optimizer> ResolveOptimizer(const v1::Optimizer& optimizer, uint64_t steps_per_epoch,
                                         uint64_t total) {
  v1::Optimizer resolved = optimizer;
  resolved.clear_groups();
  if (resolved.has_schedule()) {
    RING_RETURN_IF_ERROR(
        ResolveSchedule(Lengths(steps_per_epoch, total, fmt::format("{} steps", total)),
                        resolved.mutable_schedule()));
  }
  if (resolved.has_ema() && resolved.ema().start_update() >= total) {
    return InvalidArgument(
        "optimizer.ema.start_update: expected less than the job's {} steps, got {}", total,
        resolved.ema().start_update());
  }
  return resolved;
}

StatusOr<google::protobuf::RepeatedPtrField<v1::TensorUpdate>> ResolveUpdates(
    const v1::Optimizer& optimizer, const v1::Graph& graph) {
  v1::WeightDecay decay = optimizer.weight_decay();
  FillDefaults(&decay);
  std::vector<bool> used(static_cast<size_t>(optimizer.groups_size()));
  google::protobuf::RepeatedPtrField<v1::TensorUpdate> updates;
  std::string first = "none";
  for (const v1::Parameter& parameter : graph.parameters()) {
    if (!parameter.trainable()) continue;
    if (updates.empty()) first = parameter.name();
    v1::TensorUpdate& update = *updates.Add();
    const bool decays =
        std::ranges::find(decay.groups(), GroupOf(parameter.name())) != decay.groups().end();
    update.set_learning_rate(1);
    update.set_weight_decay(decays ? decay.rate() : 0);
    update.set_adapts(decays);
    for (int i = 0; i < optimizer.groups_size(); ++i) {
      const v1::UpdateGroup& group = optimizer.groups(i);
      if (!Matches(group.match(), parameter.name())) continue;
      used[static_cast<size_t>(i)] = true;
      update.set_learning_rate(group.learning_rate());
      if (group.has_weight_decay()) update.set_weight_decay(group.weight_decay());
      break;
    }
  }
  const auto unused = std::ranges::find(used, false);
  if (unused == used.end()) return updates;
  const auto i = static_cast<int>(unused - used.begin());
  return InvalidArgument(
      "optimizer.groups.{}.match: expected a parameter that no group before it matches, got "
      "\"{}\"; "
      "the model has {} parameters that are trained, the first is {}",
      i, optimizer.groups(i).match(), updates.size(), first);
}

v1::ParameterGroup GroupOf(const std::string& parameter) {
  const std::string role = parameter.substr(parameter.rfind('/') + 1);
  if (role == "bias") return v1::PARAMETER_GROUP_BIAS;
  if (role == "gamma" || role == "beta") return v1::PARAMETER_GROUP_NORM;
  if (role == "table" || role == "token") return v1::PARAMETER_GROUP_EMBEDDING;
  return v1::PARAMETER_GROUP_KERNEL;
}

}  // namespace ringmaster::job

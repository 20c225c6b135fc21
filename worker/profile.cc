#include "worker/profile.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <numeric>
#include <stop_token>
#include <utility>

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "common/amount.h"
#include "common/data/dataset.h"
#include "common/data/sample_data.h"
#include "common/job/field_names.h"
#include "common/job/resolve.h"
#include "common/job/shards.h"
#include "common/json.h"
#include "worker/backend/pjrt/tpus.h"
#include "worker/train/trainer.h"

namespace ringmaster::worker {
namespace {

using Json = nlohmann::json;

constexpr JsonLimits kProfileLimits = {.bytes = 1 << 20, .depth = 5};
constexpr uint64_t kMostOf = 4096;          // cores, threads, workers
constexpr double kFarthest = 4;             // from what was measured, in samples of a shard
constexpr size_t kWarmUp = 2, kFewest = 5;  // steps
constexpr uint64_t kEpochSteps = 8;
constexpr double kEnough = 3, kAtMost = 120;  // seconds

// Reads the keys of one object, and knows which were there.
class Keys {
 public:
  Keys(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

  Status Text(const char* key, std::string* value) {
    const Json* found = Find(key);
    if (found == nullptr) return absl::OkStatus();
    if (!found->is_string()) return Wrong(key, "a text");
    *value = found->get<std::string>();
    return absl::OkStatus();
  }
  template <typename T>
  Status Count(const char* key, uint64_t most, T* value) {
    const Json* found = Find(key);
    if (found == nullptr) return absl::OkStatus();
    const bool good = found->is_number_unsigned() && found->get<uint64_t>() >= 1 &&
                      found->get<uint64_t>() <= most;
    if (!good) return Wrong(key, fmt::format("a whole number from 1 to {}", most));
    *value = found->get<T>();
    return absl::OkStatus();
  }
  Status Seconds(const char* key, double* value) {
    const Json* found = Find(key);
    const bool good = found != nullptr && found->is_number() && found->get<double>() >= 0;
    if (!good) return Wrong(key, "a number of seconds");
    *value = found->get<double>();
    return absl::OkStatus();
  }
  Status Truth(const char* key, bool* value) {
    const Json* found = Find(key);
    if (found == nullptr) return absl::OkStatus();
    if (!found->is_boolean()) return Wrong(key, "true or false");
    *value = found->get<bool>();
    return absl::OkStatus();
  }
  Status Bytes(const char* key, uint64_t* value) {
    const Json* found = Find(key);
    if (found != nullptr && found->is_string()) {
      RING_ASSIGN_OR_RETURN(*value, ParseBytes(found->get<std::string>(), where_ + ": " + key));
      return absl::OkStatus();
    }
    if (found == nullptr || !found->is_number_unsigned() || found->get<uint64_t>() == 0) {
      return Wrong(key, "an amount of memory, for example \"8GiB\"");
    }
    *value = found->get<uint64_t>();
    return absl::OkStatus();
  }
  const Json* Find(const char* key) {
    known_.emplace_back(key);
    const auto found = object_.find(key);
    return found == object_.end() ? nullptr : &*found;
  }
  // What nobody asked for.
  Status CheckOthers() const {
    for (const auto& [key, value] : object_.items()) {
      if (std::ranges::find(known_, key) != known_.end()) continue;
      return InvalidArgument("{}: no key is called {}; there are {}", where_, key,
                             fmt::join(known_, ", "));
    }
    return absl::OkStatus();
  }
  Status Wrong(const char* key, const std::string& expected) const {
    const auto found = object_.find(key);
    return InvalidArgument("{}: {}: expected {}, got {}", where_, key, expected,
                           found == object_.end() ? "nothing" : found->dump());
  }

 private:
  const Json& object_;
  const std::string where_;
  std::vector<std::string> known_;
};

StatusOr<MeasuredSteps> ParseSteps(const Json& json, const std::string& where) {
  if (!json.is_object()) return InvalidArgument("{}: expected objects, got {}", where, json.dump());
  MeasuredSteps steps;
  Keys keys(json, where);
  RING_RETURN_IF_ERROR(keys.Text("model_sha256", &steps.model_sha256));
  RING_RETURN_IF_ERROR(keys.Text("policy", &steps.policy));
  RING_RETURN_IF_ERROR(keys.Truth("rematerialize", &steps.rematerialize));
  RING_RETURN_IF_ERROR(keys.Count("samples", std::numeric_limits<uint32_t>::max(), &steps.samples));
  RING_RETURN_IF_ERROR(keys.Seconds("seconds_per_round", &steps.seconds_per_round));
  RING_RETURN_IF_ERROR(keys.Seconds("seconds_per_update", &steps.seconds_per_update));
  RING_RETURN_IF_ERROR(keys.CheckOthers());
  if (steps.samples == 0) return keys.Wrong("samples", "a whole number");
  return steps;
}

StatusOr<WorkerProfile> ParseProfile(const Json& json, const std::string& where) {
  if (!json.is_object()) {
    return InvalidArgument("{}: expected an object with cores and memory_per_core", where);
  }
  WorkerProfile profile;
  Keys keys(json, where);
  RING_RETURN_IF_ERROR(keys.Text("name", &profile.name));
  RING_RETURN_IF_ERROR(keys.Text("device", &profile.device));
  RING_RETURN_IF_ERROR(keys.Text("device_model", &profile.device_model));
  RING_RETURN_IF_ERROR(keys.Text("instruction_set", &profile.instruction_set));
  RING_RETURN_IF_ERROR(keys.Count("cores", kMostOf, &profile.cores));
  RING_RETURN_IF_ERROR(keys.Count("threads_per_core", kMostOf, &profile.threads_per_core));
  RING_RETURN_IF_ERROR(keys.Bytes("memory_per_core", &profile.memory_per_core));
  RING_RETURN_IF_ERROR(keys.Count("workers", kMostOf, &profile.workers));
  const Json* const measured = keys.Find("measured");
  RING_RETURN_IF_ERROR(keys.CheckOthers());
  if (measured == nullptr) return profile;
  if (!measured->is_array()) return keys.Wrong("measured", "a list");
  for (const Json& entry : *measured) {
    RING_ASSIGN_OR_RETURN(MeasuredSteps steps, ParseSteps(entry, where + ": measured"));
    profile.measured.push_back(std::move(steps));
  }
  return profile;
}

}  // namespace

StatusOr<std::vector<WorkerProfile>> ParseProfiles(const std::string& text,
                                                   const std::string& source) {
  const StatusOr<Json> json = ParseJson(text, kProfileLimits);
  RING_RETURN_IF_ERROR(Annotate(json.status(), source));
  const Json list = json->is_array() ? *json : Json::array({*json});
  if (list.empty()) return InvalidArgument("{}: a list without any profile", source);
  std::vector<WorkerProfile> profiles;
  for (const Json& entry : list) {
    RING_ASSIGN_OR_RETURN(WorkerProfile profile, ParseProfile(entry, source));
    profiles.push_back(std::move(profile));
  }
  return profiles;
}

std::string ToJson(const WorkerProfile& profile) {
  nlohmann::ordered_json measured = nlohmann::ordered_json::array();
  for (const MeasuredSteps& steps : profile.measured) {
    measured.push_back({{"model_sha256", steps.model_sha256},
                        {"policy", steps.policy},
                        {"rematerialize", steps.rematerialize},
                        {"samples", steps.samples},
                        {"seconds_per_round", steps.seconds_per_round},
                        {"seconds_per_update", steps.seconds_per_update}});
  }
  return nlohmann::ordered_json{{"name", profile.name},
                                {"device", profile.device},
                                {"device_model", profile.device_model},
                                {"instruction_set", profile.instruction_set},
                                {"cores", profile.cores},
                                {"threads_per_core", profile.threads_per_core},
                                {"memory_per_core", profile.memory_per_core},
                                {"workers", profile.workers},
                                {"measured", std::move(measured)}}
             .dump(2) +
         "\n";
}

std::optional<WorkerProfile> ShippedProfile(const std::string& name) {
  for (const pjrt::TpuWorker& worker : pjrt::TpuWorkers()) {
    if (name != worker.name) continue;
    return WorkerProfile{.name = name,
                         .device = "tpu",
                         .device_model = worker.model,
                         .cores = worker.cores,
                         .memory_per_core = worker.hbm};
  }
  return std::nullopt;
}

std::string ProfilePath(const std::string& named) {
  if (named.find('/') != std::string::npos || named.ends_with(".json")) return named;
  const char* const config = std::getenv("XDG_CONFIG_HOME");
  const char* const home = std::getenv("HOME");
  const std::string folder = config != nullptr && *config != '\0' ? std::string(config)
                             : home != nullptr                    ? std::string(home) + "/.config"
                                                                  : ".";
  return folder + "/ringmaster/profiles/" + named + ".json";
}

namespace {

// Of a round with shards of so many samples: on the line through the two nearest measurements, as
// part of a round does not depend on the samples; in proportion to the nearest where there is no
// other, or the line falls or begins below 0.
double SecondsPerRound(const std::vector<const MeasuredSteps*>& nearest_first, double samples) {
  const MeasuredSteps& nearest = *nearest_first[0];
  const double proportion = nearest.seconds_per_round / static_cast<double>(nearest.samples);
  if (nearest_first.size() == 1) return proportion * samples;
  const MeasuredSteps& other = *nearest_first[1];
  const double slope = (other.seconds_per_round - nearest.seconds_per_round) /
                       (static_cast<double>(other.samples) - static_cast<double>(nearest.samples));
  if (!(slope >= 0 && slope <= proportion)) return proportion * samples;
  return nearest.seconds_per_round + slope * (samples - static_cast<double>(nearest.samples));
}

}  // namespace

std::optional<double> SecondsPerStep(const WorkerProfile& profile, const JobPlan& plan,
                                     const std::string& model_sha256, const std::string& policy) {
  const auto samples = static_cast<double>(plan.samples);
  const auto distance = [&](const MeasuredSteps* steps) {
    return std::abs(std::log(samples / static_cast<double>(steps->samples)));
  };
  std::vector<const MeasuredSteps*> nearest_first;
  for (const MeasuredSteps& steps : profile.measured) {
    const bool same = steps.model_sha256 == model_sha256 && steps.policy == policy &&
                      steps.rematerialize == plan.rematerialize.on;
    if (same) nearest_first.push_back(&steps);
  }
  std::ranges::stable_sort(nearest_first, {}, distance);
  if (nearest_first.empty() || distance(nearest_first[0]) > std::log(kFarthest) + 1e-9) {
    return std::nullopt;
  }
  const uint64_t at_once = plan.cores * plan.workers;
  const auto rounds = static_cast<double>((plan.shards + at_once - 1) / at_once);
  return rounds * SecondsPerRound(nearest_first, samples) + nearest_first[0]->seconds_per_update;
}

void Keep(const MeasuredSteps& steps, WorkerProfile* profile) {
  std::erase_if(profile->measured, [&](const MeasuredSteps& old) {
    return old.model_sha256 == steps.model_sha256 && old.policy == steps.policy &&
           old.rematerialize == steps.rematerialize && old.samples == steps.samples;
  });
  profile->measured.push_back(steps);
}

namespace {

using Clock = std::chrono::steady_clock;

// Stops the run when enough steps were seen.
class StepWatch : public Observer {
 public:
  explicit StepWatch(std::stop_source* stop) : stop_(stop) {}

  void OnProgress(const Progress& progress) override {
    if (progress.applied == applied_) return;  // an evaluation
    applied_ = progress.applied;
    const PhaseTimes times = std::exchange(before_, progress.run_times);
    if (applied_ <= kWarmUp) return;
    const auto since = [&](double PhaseTimes::*phase) { return before_.*phase - times.*phase; };
    rounds_.push_back(since(&PhaseTimes::input) + since(&PhaseTimes::compute) +
                      since(&PhaseTimes::ring_transfer));
    updates_.push_back(since(&PhaseTimes::update));
    const double all = std::accumulate(rounds_.begin(), rounds_.end(), 0.0);
    if ((rounds_.size() >= kFewest && all >= kEnough) || all >= kAtMost) stop_->request_stop();
  }

  [[nodiscard]] size_t steps() const { return rounds_.size(); }
  [[nodiscard]] double round() { return Median(&rounds_); }
  [[nodiscard]] double update() { return Median(&updates_); }

 private:
  static double Median(std::vector<double>* values) {
    std::ranges::sort(*values);
    return (*values)[values->size() / 2];
  }

  std::stop_source* const stop_;
  uint64_t applied_ = 0;
  PhaseTimes before_;
  std::vector<double> rounds_, updates_;
};

// A folder of generated data that goes with it.
class GeneratedData {
 public:
  ~GeneratedData() {
    std::error_code ignored;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
  }
  StatusOr<std::string> Make(v1::DataSource* source, uint64_t samples) {
    std::string name = (std::filesystem::temp_directory_path() / "ringworker-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) return FailedPrecondition("{}: no folder for data", name);
    folder_ = name;
    source->set_path("data");
    RING_RETURN_IF_ERROR(data::MakeSampleData(
        folder_ + "/data", {.format = source->format(), .train = samples, .test = 1}));
    return folder_;
  }

 private:
  std::string folder_;
};

}  // namespace

StatusOr<MeasuredSteps> MeasureSteps(const v1::JobSpec& whole, const MeasureOptions& options,
                                     Backend* backend) {
  v1::JobSpec spec = whole;
  const uint32_t at_once = std::min(options.shards, options.cores);
  const uint64_t train = kEpochSteps * options.samples * at_once;
  spec.set_batch(options.samples * at_once);
  spec.set_shards(at_once);
  spec.clear_validation();
  spec.clear_checkpoint();
  spec.clear_workers();
  spec.mutable_optimizer()->clear_schedule();
  spec.set_epochs(1'000'000);
  GeneratedData generated;
  std::string root = options.data_root;
  if (root.empty()) {
    RING_ASSIGN_OR_RETURN(root, generated.Make(spec.mutable_data(), train));
    spec.mutable_data()->set_take(train);
  }
  spec.mutable_data()->set_take_test(1);
  RING_ASSIGN_OR_RETURN(const auto dataset, data::Dataset::Open({root, ""}, spec.data()));
  RING_ASSIGN_OR_RETURN(
      const v1::ResolvedJob resolved,
      job::Resolve(spec, dataset->facts(), backend->numerics_class(options.threads_per_core)));
  std::vector<CoreOptions> cores(at_once);
  for (size_t i = 0; i < cores.size(); ++i) {
    cores[i].name = fmt::format("core{}", i);
    cores[i].threads = options.threads_per_core;
    cores[i].memory_bytes = options.memory_per_core;
    cores[i].device = static_cast<uint32_t>(i % backend->devices());
  }
  RING_ASSIGN_OR_RETURN(const auto trainer,
                        Trainer::Prepare(JobId("plan"), resolved, dataset, backend, cores));
  Assignment alone;
  alone.generation = {1, 1};
  alone.shards.resize(at_once);
  std::iota(alone.shards.begin(), alone.shards.end(), 0U);
  std::stop_source stop;
  StepWatch watch(&stop);
  const RunResult run = trainer->Run(alone, {.observer = &watch}, stop.get_token());
  if (!stop.stop_requested() || watch.steps() == 0) {
    return FailedPrecondition("measuring ended at step {}: {}", run.applied, run.reason);
  }
  return MeasuredSteps{.model_sha256 = resolved.model_sha256(),
                       .policy = job::ShortName(
                           *v1::Policy_descriptor()->FindValueByNumber(resolved.result().policy())),
                       .rematerialize = spec.memory().rematerialize(),
                       .samples = options.samples,
                       .seconds_per_round = watch.round(),
                       .seconds_per_update = watch.update()};
}

}  // namespace ringmaster::worker

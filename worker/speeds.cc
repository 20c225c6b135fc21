#include "worker/speeds.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "common/job/balance.h"
#include "common/job/class_map.h"
#include "common/job/resolve.h"
#include "common/json.h"

namespace ringmaster::worker {
namespace {

using Json = nlohmann::json;

constexpr JsonLimits kSpeedsLimits = {.bytes = 16 << 20, .depth = 6};
constexpr double kLeastSaid = 0.05;  // part of a step; less is what measurements differ by

}  // namespace

StatusOr<ClusterSpeeds> ParseSpeeds(const std::string& text, const std::string& source) {
  const StatusOr<Json> json = ParseJson(text, kSpeedsLimits);
  RING_RETURN_IF_ERROR(Annotate(json.status(), source));
  ClusterSpeeds cluster;
  try {
    for (const Json& each : json->at("workers")) {
      cluster.workers.push_back(
          {each.at("name"), each.at("class"), std::max(each.at("cores").get<uint32_t>(), 1U)});
    }
    for (const Json& each : json->at("jobs")) {
      ClusterSpeeds::Job& job = cluster.jobs.emplace_back();
      job.id = each.at("job_id");
      job.model_sha256 = each.at("model_sha256");
      job.policy = each.at("policy");
      job.samples = each.at("samples");
      for (const Json& took : each.at("workers")) {
        job.workers.push_back({took.at("name"), took.at("class"), took.at("shard_seconds")});
      }
    }
  } catch (const Json::exception& error) {
    return InvalidArgument("{}: expected what `ringctl plan --cluster` writes: {}", source,
                           error.what());
  }
  return cluster;
}

namespace {

using Seconds = std::map<std::string, double>;  // of a shard, by worker

// Of the attached workers, in this job.
Seconds MeasuredIn(const ClusterSpeeds::Job& job, const ClusterSpeeds& cluster) {
  Seconds found;
  for (const ClusterSpeeds::Took& took : job.workers) {
    const auto attached =
        std::ranges::find(cluster.workers, took.worker, &ClusterSpeeds::Worker::name);
    const bool same = attached != cluster.workers.end() && attached->class_name == took.class_name;
    if (same && took.shard_seconds > 0 && std::isfinite(took.shard_seconds)) {
      found[took.worker] = took.shard_seconds / std::max(job.samples, 1.0);
    }
  }
  return found;
}

// Of one sample: of each worker as the newest job of the same model has it; else all of the newest
// job that measured two of them, as one alone says nothing of the others.
Seconds SecondsOfSample(const ClusterSpeeds& cluster, const std::string& model_sha256,
                        const std::string& policy, SpeedPlan* plan) {
  Seconds found;
  for (const ClusterSpeeds::Job& job : cluster.jobs) {
    if (job.model_sha256 != model_sha256 || job.policy != policy) continue;
    bool any = false;
    for (const auto& [worker, seconds] : MeasuredIn(job, cluster)) {
      any = found.try_emplace(worker, seconds).second || any;
    }
    if (any) plan->jobs.push_back(job.id);
  }
  plan->same_model = !found.empty();
  if (!found.empty()) return found;
  for (const ClusterSpeeds::Job& job : cluster.jobs) {
    Seconds in_job = MeasuredIn(job, cluster);
    if (in_job.size() < 2) continue;
    plan->jobs.push_back(job.id);
    return in_job;
  }
  return {};
}

// The workers of one class that share the job.
struct ClassOfWorkers {
  std::string name;
  std::vector<std::string> workers;
  std::vector<job::Pace> paces;
  uint32_t shards = 0;
};

double MedianOf(const std::vector<job::Pace>& paces) {
  std::vector<double> known;
  for (const job::Pace& pace : paces) {
    if (pace.seconds > 0) known.push_back(pace.seconds);
  }
  if (known.empty()) return 0;
  std::ranges::sort(known);
  return known[known.size() / 2];
}

// Who was not measured counts as the middle one of its class; a class of which nobody was, as the
// middle of all classes. False: nobody of any class was.
bool Complete(std::vector<ClassOfWorkers>& classes) {
  std::vector<job::Pace> all;
  for (const ClassOfWorkers& its : classes) all.push_back({1, MedianOf(its.paces)});
  const double otherwise = MedianOf(all);
  for (ClassOfWorkers& its : classes) {
    const double median = MedianOf(its.paces);
    for (job::Pace& pace : its.paces) {
      if (pace.seconds <= 0) pace.seconds = median > 0 ? median : otherwise > 0 ? otherwise : 1;
    }
  }
  return otherwise > 0;
}

// Shards for each class, as a job that mixes them deals them; whole classes that are too slow come
// back in `left_out`.
void DealToClasses(const v1::JobSpec& spec, uint32_t shards, std::vector<ClassOfWorkers>& classes,
                   std::vector<std::string>* left_out) {
  if (classes.size() == 1) {
    classes.front().shards = shards;
    return;
  }
  std::map<std::string, uint32_t> dealt;
  for (const v1::ClassShards& each : spec.workers().classes()) {
    dealt[each.class_()] = each.shards();
  }
  if (dealt.empty()) {
    std::vector<job::ClassSpeed> speeds;
    std::map<std::string, std::string> names;
    for (const ClassOfWorkers& its : classes) {
      job::ClassSpeed& speed = speeds.emplace_back();
      speed.numerics.set_backend(its.name);  // stands for all of it
      names[job::ClassName(speed.numerics)] = its.name;
      speed.cores = 0;
      for (const job::Pace& pace : its.paces) speed.cores += pace.cores;
      speed.seconds = MedianOf(its.paces);
    }
    const v1::ClassMap map = job::MakeClassMap(shards, std::move(speeds), left_out);
    for (const v1::MappedClass& each : map.classes()) {
      dealt[names.at(each.class_())] = each.shards();
    }
    for (std::string& name : *left_out) name = names.at(name);
  }
  std::erase_if(classes, [&](ClassOfWorkers& its) {
    its.shards = dealt[its.name];
    return its.shards == 0;
  });
}

void KeepFirst(size_t most, ClassOfWorkers& its) {
  if (its.workers.size() <= most) return;
  its.workers.resize(most);
  its.paces.resize(most);
}

SpeedGroup PlanGroup(std::vector<ClassOfWorkers> classes, const v1::JobSpec& spec,
                     const Seconds& measured, bool seconds_known) {
  const v1::WorkerRange range = job::WorkersOf(spec);
  SpeedGroup group;
  for (const ClassOfWorkers& its : classes) {
    group.classes.push_back(its.name);
    group.workers.insert(group.workers.end(), its.workers.begin(), its.workers.end());
  }
  for (const std::string& worker : group.workers) {
    if (!measured.contains(worker)) group.unmeasured.push_back(worker);
  }
  const bool any = Complete(classes);
  const std::vector<ClassOfWorkers> all = classes;
  std::vector<std::string> slow_classes;
  DealToClasses(spec, job::ShardsOf(spec), classes, &slow_classes);
  for (const ClassOfWorkers& its : all) {
    if (std::ranges::find(slow_classes, its.name) == slow_classes.end()) continue;
    group.leave_out.insert(group.leave_out.end(), its.workers.begin(), its.workers.end());
  }
  double now = 0, shortest = 0;
  for (ClassOfWorkers& its : classes) {
    KeepFirst(its.shards, its);
    now = std::max(now, job::LongestOf(job::Balance(its.shards, its.paces), its.paces));
    shortest =
        std::max(shortest,
                 job::BestWithout(its.shards, its.paces, its.paces.size() - 1, kLeastSaid).seconds);
  }
  for (const ClassOfWorkers& its : classes) {
    const job::Without best =
        job::BestWithout(its.shards, its.paces, its.paces.size() - 1, kLeastSaid, shortest);
    for (const size_t member : best.members) group.leave_out.push_back(its.workers[member]);
  }
  // With a class that is too slow: what its one shard takes, the others' beside it.
  for (const ClassOfWorkers& its : all) {
    if (std::ranges::find(slow_classes, its.name) == slow_classes.end()) continue;
    for (const job::Pace& pace : its.paces) now = std::max(now, pace.seconds);
  }
  group.faster_percent = shortest > 0 ? 100 * (now / shortest - 1) : 0;
  if (group.leave_out.empty() || group.faster_percent < 100 * kLeastSaid) {
    group.leave_out.clear();
    group.faster_percent = 0;
    shortest = now;
  }
  if (any && seconds_known) {
    group.seconds = now;
    group.seconds_without = shortest;
  }
  group.needed = group.workers.size() < range.min() + group.leave_out.size();
  return group;
}

}  // namespace

SpeedPlan PlanSpeeds(const ClusterSpeeds& cluster, const v1::JobSpec& spec,
                     const std::string& model_sha256, const std::string& policy, double samples) {
  SpeedPlan plan;
  const Seconds of_sample = SecondsOfSample(cluster, model_sha256, policy, &plan);
  const v1::WorkerRange range = job::WorkersOf(spec);
  std::vector<ClassOfWorkers> classes;
  for (const ClusterSpeeds::Worker& worker : cluster.workers) {
    auto its = std::ranges::find(classes, worker.class_name, &ClassOfWorkers::name);
    if (its == classes.end()) {
      its = classes.insert(classes.end(), ClassOfWorkers{worker.class_name, {}, {}, 0});
    }
    const auto known = of_sample.find(worker.name);
    its->workers.push_back(worker.name);
    its->paces.push_back({worker.cores, known == of_sample.end() ? 0 : samples * known->second});
  }
  const uint32_t most = std::min(range.max(), job::ShardsOf(spec));
  for (ClassOfWorkers& its : classes) KeepFirst(most, its);
  if (range.mix() != v1::MIX_NONE && !classes.empty()) {
    plan.groups.push_back(PlanGroup(classes, spec, of_sample, plan.same_model));
    return plan;
  }
  for (const ClassOfWorkers& its : classes) {
    plan.groups.push_back(PlanGroup({its}, spec, of_sample, plan.same_model));
  }
  return plan;
}

namespace {

std::string InSeconds(double seconds) { return fmt::format("{:.3g} s", seconds); }

std::string Listed(const std::vector<std::string>& names) {
  constexpr size_t kMost = 4;
  if (names.size() <= kMost) return fmt::format("{}", fmt::join(names, ", "));
  const std::vector<std::string> first(names.begin(), names.begin() + kMost - 1);
  return fmt::format("{} and {} more", fmt::join(first, ", "), names.size() - first.size());
}

std::string Count(size_t workers) {
  return workers == 1 ? "1 worker" : fmt::format("{} workers", workers);
}

std::string PrintHow(const SpeedGroup& group, const char* them) {
  if (group.needed) {
    return fmt::format(
        "  workers.min needs {0}: with a smaller one the job leaves {0} out by itself\n", them);
  }
  return fmt::format(
      "  the job leaves {} out by itself after some steps; `ringctl drain {}` does it before\n",
      them, group.leave_out.front());
}

void PrintGroup(const SpeedGroup& group, std::ostream& out) {
  out << fmt::format("{}, {}: ", fmt::join(group.classes, " and "), Count(group.workers.size()));
  const bool nobody = group.unmeasured.size() == group.workers.size();
  if (nobody) {
    out << "nothing was measured of them: by cores "
        << (group.leave_out.empty() ? "nobody is too slow" : Listed(group.leave_out) + " would be")
        << "\n";
  } else if (group.leave_out.empty()) {
    out << (group.seconds ? fmt::format("the shards of a step take {}; nobody is too slow",
                                        InSeconds(*group.seconds))
                          : "nobody is too slow")
        << "\n";
  } else {
    out << fmt::format("without {} this job would be {:.0f}% faster", Listed(group.leave_out),
                       group.faster_percent);
    if (group.seconds) {
      out << fmt::format(": the shards of a step take {} instead of {}",
                         InSeconds(*group.seconds_without), InSeconds(*group.seconds));
    }
    out << "\n" << PrintHow(group, group.leave_out.size() == 1 ? "it" : "them");
  }
  if (!nobody && !group.unmeasured.empty()) {
    out << fmt::format("  {} not measured: the middle one of its class is taken\n",
                       Listed(group.unmeasured));
  }
}

}  // namespace

void PrintSpeeds(const SpeedPlan& plan, std::ostream& out) {
  if (plan.groups.empty()) return;
  if (plan.jobs.empty()) {
    out << "\nspeed, by cores, as no job measured these workers:\n";
  } else {
    out << fmt::format("\nspeed, by what these workers took in {}{}:\n", Listed(plan.jobs),
                       plan.same_model ? "" : ", which trains another model");
  }
  for (const SpeedGroup& group : plan.groups) PrintGroup(group, out);
}

nlohmann::ordered_json JsonOf(const SpeedPlan& plan) {
  const auto ms = [](const std::optional<double>& seconds) {
    return seconds ? nlohmann::ordered_json(1000 * *seconds) : nlohmann::ordered_json(nullptr);
  };
  nlohmann::ordered_json groups = nlohmann::ordered_json::array();
  for (const SpeedGroup& group : plan.groups) {
    groups.push_back({{"classes", group.classes},
                      {"workers", group.workers},
                      {"unmeasured", group.unmeasured},
                      {"shards_ms", ms(group.seconds)},
                      {"leave_out", group.leave_out},
                      {"shards_ms_without", ms(group.seconds_without)},
                      {"faster_without_percent", group.faster_percent},
                      {"needed", group.needed}});
  }
  return {
      {"measured_in", plan.jobs}, {"same_model", plan.same_model}, {"groups", std::move(groups)}};
}

}  // namespace ringmaster::worker

#include "common/job/update_rules.h"

#include <catch2/catch.hpp>
#include <vector>

#include "common/job/job_file.h"
#include "common/job/resolve.h"
#include "common/job/rules.h"
#include "common/text.h"

namespace ringmaster::job {
namespace {

v1::JobSpec JobWith(const std::string& optimizer, const std::string& length = "epochs: 10") {
  const std::string text =
      "name: small\nmodel: {name: mlp}\ndata: {format: cifar10, path: cifar10}\nbatch: 4\n" +
      length + "\noptimizer: " + optimizer + "\n";
  StatusOr<v1::JobSpec> spec = ParseJobFile("job.yaml", text, {});
  INFO(Message(spec.status()));
  REQUIRE(spec.ok());
  return *std::move(spec);
}

std::string Refusal(const std::string& optimizer, const std::string& length = "epochs: 10") {
  const Status status = Validate(JobWith(optimizer, length));
  return status.ok() ? "valid" : Message(status);
}

// Once the data are known: an epoch of 10 steps.
StatusOr<v1::Optimizer> Resolved(const std::string& optimizer, uint64_t total = 100) {
  return ResolveOptimizer(WithDefaults(JobWith(optimizer)).optimizer(), 10, total);
}

TEST_CASE("UpdateRules: each wrong key is named, with what is expected and what there is") {
  CHECK(Refusal("{sgd: {}, clip: {global_norm: 1}, ema: {}, weight_decay: {rate: 0.1}}") ==
        "valid");
  CHECK(Refusal("{sgd: {}, schedule: {}}") == "valid");
  CHECK(Refusal("{clip: {value: 1}}").starts_with("optimizer: expected one of sgd, adam"));
  CHECK(Refusal("{sgd: {}, clip: {global_norm: 0}}") ==
        "optimizer.clip.global_norm: expected at least 1e-30, got 0");
  CHECK(Refusal("{sgd: {}, clip: {}}") ==
        "optimizer.clip: expected one of global_norm, tensor_norm, value, got none");
  CHECK(Refusal("{sgd: {}, ema: {decay: 1}}") ==
        "optimizer.ema.decay: expected at least 0, under 1, got 1");
  CHECK(Refusal("{sgd: {}, weight_decay: {rate: -0.1}}") ==
        "optimizer.weight_decay.rate: expected at least 0, under 1, got -0.1");
  CHECK(Refusal("{sgd: {}, schedule: {warmup: {}}}") ==
        "optimizer.schedule.warmup.over: expected one of updates, epochs, got none");
  CHECK(Refusal("{sgd: {}, schedule: {warmup: {over: {epochs: 0}}}}") ==
        "optimizer.schedule.warmup.over.epochs: expected above 0, got 0");
  CHECK(Refusal("{sgd: {}, schedule: {polynomial: {power: 9}}}") ==
        "optimizer.schedule.polynomial.power: expected 1 to 8, got 9");
  CHECK(Refusal("{sgd: {}, schedule: {exponential: {factor: 0.9}}}") ==
        "optimizer.schedule.exponential.every: expected one of updates, epochs, got none");
  CHECK(
      Refusal("{lamb: {}, weight_decay: {rate: 0.1, kind: l2}}") ==
      "optimizer.weight_decay.kind: expected none with lamb, which has its own, got one; leave it "
      "out");
  CHECK(Refusal("{lars: {}, weight_decay: {rate: 0.1}}") == "valid");
  CHECK(Refusal("{sgd: {}, groups: [{learning_rate: 2}]}")
            .starts_with("optimizer.groups.0.match: missing: of parameters' names"));
}

TEST_CASE("UpdateRules: boundaries are in order, inside the job, and behind the warm-up") {
  const auto steps = [](const std::string& keys) {
    return Refusal("{sgd: {}, schedule: {warmup: {over: {epochs: 2}}, steps: {" + keys + "}}}");
  };
  CHECK(steps("at: [{epochs: 2}, {epochs: 9.5}]") == "valid");
  CHECK(steps("at: [{epochs: 3}, {epochs: 9}], factor: [0.1, 0.5]") == "valid");
  CHECK(steps("every: {epochs: 3}, factor: 0.5") == "valid");
  CHECK(steps("factor: 0.5") == "optimizer.schedule.steps: expected one of at, every, got none");
  CHECK(steps("at: [{epochs: 3}], every: {epochs: 3}") ==
        "optimizer.schedule.steps: expected one of at, every, got both");
  CHECK(steps("at: [{epochs: 3}], factor: [0.1, 0.5]") ==
        "optimizer.schedule.steps.factor: expected one number, or one for each of at, got 2");
  CHECK(steps("every: {epochs: 3}, factor: [0.1, 0.5]") ==
        "optimizer.schedule.steps.factor: expected one number, got 2");
  CHECK(steps("at: [{epochs: 3}], factor: 2") ==
        "optimizer.schedule.steps.factor: expected above 0, at most 1, got 2");
  CHECK(steps("at: [{epochs: 6}, {epochs: 5}]") ==
        "optimizer.schedule.steps.at.1: expected more than the 6 epochs in front of it, got 5 "
        "epochs");
  CHECK(steps("at: [{epochs: 6}, {epochs: 6}]") ==
        "optimizer.schedule.steps.at.1: expected more than the 6 epochs in front of it, got 6 "
        "epochs");
  CHECK(steps("at: [{updates: 100}, {updates: 50}]") ==
        "optimizer.schedule.steps.at.1: expected more than the 100 updates in front of it, got 50 "
        "updates");
  CHECK(steps("at: [{epochs: 10}]") ==
        "optimizer.schedule.steps.at.0: expected less than the job's 10 epochs, got 10 epochs");
  CHECK(steps("at: [{epochs: 1.5}]") ==
        "optimizer.schedule.steps.at.0: expected at least the 2 epochs of the warm-up, got 1.5 "
        "epochs");
  CHECK(steps("every: {epochs: 1}") ==
        "optimizer.schedule.steps.every: expected at least the 2 epochs of the warm-up, got 1 "
        "epochs");
  CHECK(Refusal("{sgd: {}, schedule: {warmup: {over: {updates: 50}}}}", "steps: 50") ==
        "optimizer.schedule.warmup.over: expected less than the job's 50 steps, got 50 updates");
  CHECK(Refusal("{sgd: {}, schedule: {warmup: {over: {updates: 49}}}}", "steps: 50") == "valid");
}

TEST_CASE("UpdateRules: what needs the data is said when they are known") {
  const std::string warmup = "{sgd: {}, schedule: {warmup: {over: {updates: 100}}}}";
  CHECK(Refusal(warmup) == "valid");
  CHECK(Message(Resolved(warmup).status()) ==
        "optimizer.schedule.warmup.over: expected less than the job's 100 steps, got 100 updates");
  CHECK(Message(Resolved("{sgd: {}, schedule: {warmup: {over: {epochs: 0.01}}}}").status()) ==
        "optimizer.schedule.warmup.over: expected 1 to 2^53 updates, got 0.01 epochs of 10 steps "
        "each");
  CHECK(Message(Resolved("{sgd: {}, ema: {start_update: 100}}").status()) ==
        "optimizer.ema.start_update: expected less than the job's 100 steps, got 100");
}

TEST_CASE("UpdateRules: lengths become updates, rounded down") {
  const auto resolved = Resolved(
      "{sgd: {}, groups: [{match: x}], schedule: {warmup: {over: {epochs: 1.19}}, steps: {at: "
      "[{epochs: 2.5}, {updates: 40}]}}}");
  REQUIRE(resolved.ok());
  const v1::Schedule& schedule = resolved->schedule();
  CHECK(schedule.warmup().over().updates() == 11);
  CHECK(schedule.warmup().from() == 0);
  CHECK(schedule.steps().at(0).updates() == 25);
  CHECK(schedule.steps().at(1).updates() == 40);
  CHECK(schedule.steps().factor().values(0) == 0.1);
  CHECK(resolved->groups().empty());
  // An exponential may be slower than the job is long.
  const auto slow =
      Resolved("{sgd: {}, schedule: {exponential: {every: {epochs: 20}, factor: 0.5}}}");
  REQUIRE(slow.ok());
  CHECK(slow->schedule().exponential().every().updates() == 200);
}

TEST_CASE("UpdateRules: a list that was written replaces the default") {
  const v1::JobSpec spec = WithDefaults(
      JobWith("{sgd: {}, weight_decay: {groups: [bias]}, schedule: {steps: {every: {updates: 2}, "
              "factor: 0.5}}}"));
  CHECK(spec.optimizer().weight_decay().groups_size() == 1);
  CHECK(spec.optimizer().weight_decay().kind() == v1::DECAY_KIND_DECOUPLED);
  CHECK(spec.optimizer().schedule().steps().factor().values_size() == 1);
  const v1::JobSpec left = WithDefaults(JobWith("{sgd: {}, weight_decay: {rate: 0.5}}"));
  CHECK(left.optimizer().weight_decay().groups_size() == 2);
}

v1::Graph GraphWith(const std::vector<std::string>& parameters) {
  v1::Graph graph;
  for (const std::string& name : parameters) {
    v1::Parameter& parameter = *graph.add_parameters();
    parameter.set_name(name);
    parameter.set_trainable(true);
  }
  return graph;
}

TEST_CASE("UpdateRules: decay falls on kernels and embeddings, groups on what they match first") {
  const v1::Graph graph =
      GraphWith({"conv1/kernel", "conv1/bias", "bn1/gamma", "head/kernel", "head/bias"});
  const auto updates = [&](const std::string& keys) {
    const auto made =
        ResolveUpdates(WithDefaults(JobWith("{sgd: {}" + keys + "}")).optimizer(), graph);
    INFO(Message(made.status()));
    REQUIRE(made.ok());
    std::vector<std::vector<double>> found;
    for (const v1::TensorUpdate& each : *made) {
      found.push_back({each.learning_rate(), each.weight_decay(), each.adapts() ? 1.0 : 0.0});
    }
    return found;
  };
  using Found = std::vector<std::vector<double>>;
  CHECK(updates("") == Found{{1, 0, 1}, {1, 0, 0}, {1, 0, 0}, {1, 0, 1}, {1, 0, 0}});
  CHECK(updates(", weight_decay: {rate: 0.5}") ==
        Found{{1, 0.5, 1}, {1, 0, 0}, {1, 0, 0}, {1, 0.5, 1}, {1, 0, 0}});
  CHECK(updates(", weight_decay: {rate: 0.5, groups: [bias, norm]}") ==
        Found{{1, 0, 0}, {1, 0.5, 1}, {1, 0.5, 1}, {1, 0, 0}, {1, 0.5, 1}});
  CHECK(updates(", weight_decay: {rate: 0.5}, groups: [{match: \"*/bias\", learning_rate: 2},"
                " {match: \"head/*\", learning_rate: 10, weight_decay: 0.25}]") ==
        Found{{1, 0.5, 1}, {2, 0, 0}, {1, 0, 0}, {10, 0.25, 1}, {2, 0, 0}});
  const auto unmatched = ResolveUpdates(
      WithDefaults(JobWith("{sgd: {}, groups: [{match: \"head/*\"}, {match: \"haed/*\"}]}"))
          .optimizer(),
      graph);
  CHECK(Message(unmatched.status()) ==
        "optimizer.groups.1.match: expected a parameter that no group before it matches, got "
        "\"haed/*\"; the model has 5 parameters that are trained, the first is conv1/kernel");
}

TEST_CASE("UpdateRules: a parameter's group is that of its role") {
  CHECK(GroupOf("a/b/kernel") == v1::PARAMETER_GROUP_KERNEL);
  CHECK(GroupOf("a/depthwise_kernel") == v1::PARAMETER_GROUP_KERNEL);
  CHECK(GroupOf("kernel/bias") == v1::PARAMETER_GROUP_BIAS);
  CHECK(GroupOf("bn/gamma") == v1::PARAMETER_GROUP_NORM);
  CHECK(GroupOf("bn/beta") == v1::PARAMETER_GROUP_NORM);
  CHECK(GroupOf("tokens/table") == v1::PARAMETER_GROUP_EMBEDDING);
  CHECK(GroupOf("token") == v1::PARAMETER_GROUP_EMBEDDING);
}

TEST_CASE("UpdateRules: a star stands for any text") {
  CHECK(Matches("a/b", "a/b"));
  CHECK(!Matches("a/b", "a/bc"));
  CHECK(!Matches("a/b", "xa/b"));
  CHECK(Matches("*", ""));
  CHECK(Matches("*/bias", "stage1/block2/bias"));
  CHECK(!Matches("*/bias", "bias"));
  CHECK(Matches("stage*/kernel*", "stage1/conv/kernel"));
  CHECK(Matches("*a*b", "aab_ab"));
  CHECK(!Matches("*a*b", "aab_a"));
  CHECK(!Matches("", "a"));
}

}  // namespace
}  // namespace ringmaster::job

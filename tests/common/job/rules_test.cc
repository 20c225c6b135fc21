// The rules of job.proto's fields, read by reflection: checks and defaults of single keys.
#include "common/job/rules.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <memory>

#include "common/job/field_names.h"
#include "common/job/job_file.h"
#include "common/job/resolve.h"

namespace ringmaster::job {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

constexpr char kLeast[] = R"(name: least
model: {name: mlp}
data: {path: digits}
batch: 4
steps: 10
optimizer: {adam: {}}
)";

v1::JobSpec LeastSpec(const std::vector<std::string>& overrides = {}) {
  const auto spec = ParseJobFile("job.yaml", kLeast, overrides);
  INFO(spec.status());
  REQUIRE(spec.ok());
  return *spec;
}

// Every field that a job file can hold, once; what a model or a layer holds is no field of its.
void CollectFields(const Descriptor& type, std::vector<const FieldDescriptor*>* fields) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* const field = type.field(i);
    if (!IsKey(*field)) continue;
    fields->push_back(field);
    const Descriptor* const part = field->message_type();
    const bool leaf =
        part == nullptr || part == v1::Model::descriptor() || part == v1::Layer::descriptor();
    if (leaf || ListField(*part) != nullptr) continue;
    CollectFields(*part, fields);
  }
}

std::vector<const FieldDescriptor*> AllFields() {
  std::vector<const FieldDescriptor*> fields;
  CollectFields(*v1::JobSpec::descriptor(), &fields);
  return fields;
}

// `key: value` of what a message of this type needs, but for `field` and what excludes it.
std::string Needed(const Descriptor& type, const FieldDescriptor* except) {
  std::string text;
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const auto* const oneof = field.real_containing_oneof();
    const bool chosen = oneof != nullptr && oneof->field(0) == &field &&
                        (except == nullptr || except->real_containing_oneof() != oneof);
    if (&field == except || !(RulesOf(field).required() || chosen)) continue;
    std::string value = RulesOf(field).example().empty() ? "1" : RulesOf(field).example();
    const Descriptor* const part = field.message_type();
    if (part != nullptr && part != v1::IntList::descriptor() &&
        part != v1::DoubleList::descriptor()) {
      const bool is_model = part == v1::Model::descriptor();
      value = '{' + (is_model ? "name: mlp" : Needed(*part, nullptr)) + '}';
    }
    text += (text.empty() ? "" : ", ") + field.name() + ": " + value;
  }
  return text;
}

// What CheckRules says of a message with `value` in `field` and nothing else but what it needs.
std::string RuleError(const FieldDescriptor& field, const std::string& value) {
  const Descriptor& type = *field.containing_type();
  const std::string needed = Needed(type, &field);
  const std::string text =
      fmt::format("{{{}{}{}: {}}}", needed, needed.empty() ? "" : ", ", field.name(), value);
  const auto* const empty =
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(&type);
  const std::unique_ptr<google::protobuf::Message> message(empty->New());
  const Status read = ReadYaml("value", text, message.get());
  INFO(text << ": " << read);
  REQUIRE(read.ok());
  return Message(CheckRules(*message));
}

TEST_CASE("Job rules: what is left out has the default that the documents promise") {
  const v1::JobSpec complete = WithDefaults(
      LeastSpec({"augment=[{random_crop: {}}, {random_brightness: {}}, {random_contrast: {}}]"}));
  CHECK(PrintJobFile(complete) ==
        R"(name: least
model: {name: mlp, dropout: 0, hidden: [2048, 2048]}
data: {path: digits}
batch: 4
shards: 4
steps: 10
seed: 0
precision: {policy: float32}
optimizer: {adam: {learning_rate: 0.001, beta_1: 0.9, beta_2: 0.999, epsilon: 1e-07}}
augment: [{random_crop: {padding: 4}}, {random_brightness: {max_delta: 63}}, )"
        R"({random_contrast: {lower: 0.2, upper: 1.8}}]
workers: {min: 1, max: 4, mix: none}
checkpoint: {every_steps: 0, keep: 3, every_seconds: 0}
reduction: exact
precision_bits: 21
memory: {rematerialize: false}
kind: train
)");
  const v1::JobSpec other = WithDefaults(
      LeastSpec({"batch=64", "optimizer={sgd: {}}", "precision={policy: mixed_float16}"}));
  CHECK(PrintJobFile(other) ==
        R"(name: least
model: {name: mlp, dropout: 0, hidden: [2048, 2048]}
data: {path: digits}
batch: 64
shards: 8
steps: 10
seed: 0
precision: {policy: mixed_float16, initial_loss_scale: 32768, growth_steps: 2000}
optimizer: {sgd: {learning_rate: 0.01, momentum: 0, nesterov: false}}
workers: {min: 1, max: 8, mix: none}
checkpoint: {every_steps: 0, keep: 3, every_seconds: 0}
reduction: exact
precision_bits: 21
memory: {rematerialize: false}
kind: train
)");
}

TEST_CASE("Job rules: what is given stays as it is") {
  const v1::JobSpec spec = LeastSpec({"seed=0", "checkpoint={keep: 9}", "workers={max: 3}"});
  v1::JobSpec filled = spec;
  FillDefaults(&filled);
  CHECK(filled.checkpoint().keep() == 9);
  CHECK(filled.workers().max() == 3);
  CHECK(filled.workers().min() == 1);
  CHECK_FALSE(filled.has_shards());  // computed, not by the rules
  CHECK_FALSE(filled.has_validation());
  v1::JobSpec again = filled;
  FillDefaults(&again);
  CHECK(again.SerializeAsString() == filled.SerializeAsString());
}

TEST_CASE("Job rules: every field has help, and a default and an example within its range") {
  size_t values = 0;
  for (const FieldDescriptor* const field : AllFields()) {
    const v1::FieldRules& rules = RulesOf(*field);
    INFO(field->full_name());
    CHECK_FALSE(rules.help().empty());
    CHECK_FALSE((rules.required() && !rules.by_default().empty()));
    CHECK_FALSE((!rules.computed().empty() && !rules.by_default().empty()));
    for (const std::string& value : {rules.by_default(), rules.example()}) {
      if (value.empty() || value == "{}") continue;
      CHECK(RuleError(*field, value).empty());
      ++values;
    }
  }
  CHECK(values > 30);
}

TEST_CASE("Job rules: a number beyond either end of its range is refused by name and range") {
  size_t ends = 0;
  for (const FieldDescriptor* const field : AllFields()) {
    const v1::FieldRules& rules = RulesOf(*field);
    const bool whole = field->cpp_type() != FieldDescriptor::CPPTYPE_DOUBLE;
    const double step = whole ? 1 : 1e-9;
    std::vector<double> beyond;
    if (rules.has_min()) beyond.push_back(rules.min() - (rules.above_min() ? 0 : step));
    if (rules.has_max()) beyond.push_back(rules.max() + (rules.below_max() ? 0 : step));
    for (const double value : beyond) {
      INFO(field->full_name());
      CHECK(RuleError(*field, fmt::format("{}", value)) ==
            fmt::format("{}: expected {}, got {}", field->name(), RangeWords(rules), value));
      ++ends;
    }
  }
  CHECK(ends > 30);
}

TEST_CASE("Job rules: a range in words") {
  v1::FieldRules rules;
  CHECK(RangeWords(rules).empty());
  rules.set_min(0);
  CHECK(RangeWords(rules) == "at least 0");
  rules.set_above_min(true);
  CHECK(RangeWords(rules) == "above 0");
  rules.set_max(1);
  CHECK(RangeWords(rules) == "above 0, at most 1");
  rules.set_below_max(true);
  CHECK(RangeWords(rules) == "above 0, under 1");
  rules.set_above_min(false);
  CHECK(RangeWords(rules) == "at least 0, under 1");
  rules.set_below_max(false);
  CHECK(RangeWords(rules) == "0 to 1");
  rules.set_max(16777216);
  rules.set_power_of_two(true);
  CHECK(RangeWords(rules) == "a power of two, 0 to 16777216");
  rules.set_max(0);
  rules.set_power_of_two(false);
  CHECK(RangeWords(rules) == "0");
}

TEST_CASE("Job rules: a number that is none is in no range") {
  v1::JobSpec spec = LeastSpec();
  for (const double wrong : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    spec.mutable_optimizer()->mutable_adam()->set_learning_rate(wrong);
    CHECK(Message(CheckRules(spec)) ==
          fmt::format("optimizer.adam.learning_rate: expected above 0, got {}", wrong));
  }
}

TEST_CASE("Job rules: a list has a longest length, which is checked before what is in it") {
  v1::JobSpec spec = LeastSpec();
  for (int i = 0; i < 64; ++i) spec.add_augment()->mutable_random_flip();
  CHECK(CheckRules(spec).ok());
  spec.add_augment();  // none of its kinds
  CHECK(Message(Validate(spec)) == "augment: expected at most 64 of them, got 65");
  spec = LeastSpec({"freeze=[a]"});
  for (int i = 0; i < 256; ++i) spec.add_freeze("a");
  CHECK(Message(CheckRules(spec)) == "freeze: expected at most 256 of them, got 257");
  spec = LeastSpec();
  for (int i = 0; i < 1025; ++i) spec.mutable_data()->mutable_resize()->add_values(8);
  CHECK(Message(CheckRules(spec)) == "data.resize: expected at most 1024 of them, got 1025");
  spec = LeastSpec();
  for (int i = 0; i < 1025; ++i) spec.mutable_model()->add_layers();
  CHECK(CheckRules(spec).ok());  // models have limits of their own
}

}  // namespace
}  // namespace ringmaster::job

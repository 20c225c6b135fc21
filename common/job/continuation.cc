#include "common/job/continuation.h"

#include <google/protobuf/message.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "common/job/class_map.h"
#include "common/job/field_names.h"
#include "common/job/job_file.h"
#include "common/job/resolve.h"
#include "common/text.h"

namespace ringmaster::job {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::OneofDescriptor;
using google::protobuf::Reflection;

constexpr size_t kMostShown = 200;  // bytes of a value

// A key that two jobs have with other values.
struct Differing {
  std::string key, here, there;
};

// Keys that need not be those of the other job. What of the data is used stands in the results.
bool IsFree(const std::string& key) {
  constexpr std::array kFree = {"name",
                                "workers",
                                "checkpoint",
                                "epochs",
                                "steps",
                                "stop",
                                "init",
                                "continue",
                                "data.format",
                                "data.path",
                                "optimizer.schedule",
                                "evaluate.every_steps"};
  return std::ranges::find(kFree, key) != kFree.end() ||
         (key.starts_with("optimizer.") && key.ends_with(".learning_rate"));
}

// Keys that say what is trained, which may be said in several ways.
bool IsOfGraph(const std::string& key) {
  return key == "model" || key == "loss" || key == "metrics" || key == "freeze";
}

std::string Shown(const Message& message, const FieldDescriptor& field, bool present) {
  return present ? OneLine(PrintValue(message, field), kMostShown) : "none";
}

std::string ChosenOf(const Message& message, const OneofDescriptor& oneof) {
  const FieldDescriptor* const field =
      message.GetReflection()->GetOneofFieldDescriptor(message, &oneof);
  return field == nullptr ? "none" : field->name();
}

// The first key in the order of job.proto. Keys of both stand behind `prefix`: empty, or
// `optimizer.`.
std::optional<Differing> FirstDifference(const Message& here, const Message& there,
                                         const std::string& prefix, bool same_graph) {
  for (int i = 0; i < here.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *here.GetDescriptor()->field(i);
    const std::string key = prefix + field.name();
    if (IsFree(key) || (same_graph && IsOfGraph(key))) continue;
    const auto present = [&](const Message& message) {
      const Reflection& reflection = *message.GetReflection();
      return field.is_repeated() ? reflection.FieldSize(message, &field) > 0
                                 : reflection.HasField(message, &field);
    };
    const bool in_here = present(here), in_there = present(there);
    if (!in_here && !in_there) continue;
    const OneofDescriptor* const oneof = field.real_containing_oneof();
    if (oneof != nullptr && in_here != in_there) {
      return Differing{prefix.substr(0, prefix.size() - 1), ChosenOf(here, *oneof),
                       ChosenOf(there, *oneof)};
    }
    const bool mapping = field.message_type() != nullptr && !field.is_repeated() &&
                         field.message_type() != v1::Model::descriptor() &&
                         ListField(*field.message_type()) == nullptr;
    if (mapping && in_here && in_there) {
      auto differing =
          FirstDifference(here.GetReflection()->GetMessage(here, &field),
                          there.GetReflection()->GetMessage(there, &field), key + '.', same_graph);
      if (differing) return differing;
      continue;
    }
    Differing differing = {key, Shown(here, field, in_here), Shown(there, field, in_there)};
    if (differing.here != differing.there) return differing;
  }
  return std::nullopt;
}

// The columns of the other job's dataset are in the order of these lists.
std::optional<Differing> DifferentColumns(const v1::DataSource& here, const v1::DataSource& there) {
  for (const char* const name : {"inputs", "targets"}) {
    const FieldDescriptor& field = *v1::DataSource::descriptor()->FindFieldByName(name);
    const auto text = [&](const v1::DataSource& data) {
      return Shown(data, field, data.GetReflection()->FieldSize(data, &field) > 0);
    };
    if (text(here) != text(there)) {
      return Differing{fmt::format("data.{}", name), text(here), text(there)};
    }
  }
  return std::nullopt;
}

// What of a result the states that are there depend on.
v1::ResultSpec StateOf(v1::ResultSpec result) {
  result.clear_total_steps();
  result.clear_init();
  result.clear_continues();
  result.clear_watches();
  result.clear_evaluation_steps();
  result.clear_class_maps();  // the job goes on with the newest one of that job
  v1::Optimizer& optimizer = *result.mutable_optimizer();
  optimizer.clear_schedule();
  const OneofDescriptor& kind = *v1::Optimizer::descriptor()->FindOneofByName("kind");
  const FieldDescriptor* const rule =
      optimizer.GetReflection()->GetOneofFieldDescriptor(optimizer, &kind);
  if (rule == nullptr) return result;
  Message* const options = optimizer.GetReflection()->MutableMessage(&optimizer, rule);
  const FieldDescriptor* const rate = options->GetDescriptor()->FindFieldByName("learning_rate");
  if (rate != nullptr) options->GetReflection()->ClearField(options, rate);
  return result;
}

Status Refused(const Differing& differing, const std::string& job) {
  return InvalidArgument(
      "{}: {} here, {} in {}, whose state is continued and depends on it; take that value, or "
      "begin with the weights alone: init: {{job: {}}}",
      differing.key, differing.here, differing.there, job, job);
}

Status CheckSame(const v1::JobSpec& spec, const v1::ResolvedJob& resolved,
                 const Continued& source) {
  const std::string& job = source.checkpoint.job_id();
  if (CanonicalJson(StateOf(resolved.result())) ==
      CanonicalJson(StateOf(source.resolved.result()))) {
    return absl::OkStatus();
  }
  const bool same_graph = resolved.model_sha256() == source.resolved.model_sha256();
  if (const auto differing =
          FirstDifference(WithDefaults(spec), WithDefaults(source.spec), "", same_graph)) {
    return Refused(*differing, job);
  }
  return Refused({"model", resolved.model_sha256(), source.resolved.model_sha256()}, job);
}

Status CheckMoreSteps(const v1::JobSpec& spec, uint64_t total,
                      const v1::CheckpointSource& checkpoint) {
  if (total > checkpoint.step()) return absl::OkStatus();
  const std::string got = spec.has_steps()
                              ? fmt::format("{}", total)
                              : fmt::format("{} of {} steps together", spec.epochs(), total);
  return InvalidArgument(
      "{}: expected more than the {} steps that the checkpoint of {} has, as they count from that "
      "job's first, got {}",
      spec.has_steps() ? "steps" : "epochs", checkpoint.step(), checkpoint.job_id(), got);
}

}  // namespace

StatusOr<v1::ResolvedJob> ResolveContinued(const v1::JobSpec& spec, const Continued& source) {
  const v1::CheckpointSource& checkpoint = source.checkpoint;
  if (const auto differing = DifferentColumns(spec.data(), source.spec.data())) {
    return Refused(*differing, checkpoint.job_id());
  }
  const v1::ResultSpec& before = source.resolved.result();
  const v1::ClassMap& map = NewestMap(before);
  StatusOr<v1::ResolvedJob> resolved = Resolve(spec, before.data(), map.classes(0).numerics());
  if (!resolved.ok()) {
    return InvalidArgument("with the data of {}, which this job continues: {}", checkpoint.job_id(),
                           ringmaster::Message(resolved.status()));
  }
  RING_RETURN_IF_ERROR(CheckSame(spec, *resolved, source));
  v1::ResultSpec& result = *resolved->mutable_result();
  RING_RETURN_IF_ERROR(CheckMoreSteps(spec, result.total_steps(), checkpoint));
  *result.mutable_class_maps(0) = map;  // the newest one of that job is the first one of this
  result.mutable_class_maps(0)->clear_step();
  result.mutable_class_maps(0)->set_before_evaluation(true);
  result.mutable_continues()->set_step(checkpoint.step());
  result.mutable_continues()->set_manifest_sha256(checkpoint.manifest_sha256());
  *resolved->mutable_continues() = checkpoint;
  return resolved;
}

}  // namespace ringmaster::job

#include "cli/show/json.h"

#include <cmath>

#include <fmt/format.h>
#include <google/protobuf/message.h>

#include "cli/show/names.h"
#include "common/job/field_names.h"
#include "common/job/metrics.h"
#include "common/job/resolve.h"

namespace ringmaster::cli {
namespace {

Json OfDevice(const v1::DeviceFigures& device) {
  return {{"kind", device.kind()},
          {"index", device.index()},
          {"name", device.name()},
          {"memory_used_bytes", Known(device.memory_used() > 0, device.memory_used())},
          {"memory_total_bytes", Known(device.memory_total() > 0, device.memory_total())},
          {"utilization", Known(device.has_utilization(), device.utilization())},
          {"temperature", Known(device.has_temperature(), device.temperature())},
          {"power", Known(device.has_power(), device.power())},
          {"power_limit", Known(device.has_power_limit(), device.power_limit())}};
}

template <typename Repeated>
Json List(const Repeated& values) {
  Json list = Json::array();
  for (const auto& value : values) list.push_back(ToJson(value));
  return list;
}

Json OfFetch(const v1::DataFetch& fetch) {
  return {{"bytes", fetch.bytes()},
          {"total_bytes", Known(fetch.total_bytes() > 0, fetch.total_bytes())},
          {"source", fetch.source()},
          {"bytes_per_second", fetch.bytes_per_second()}};
}

// In tenths; null: it would not be faster, or that is not known.
Json PercentOf(double percent) { return Known(percent > 0, std::round(10 * percent) / 10); }

Json OfHost(const v1::HostFigures& host) {
  return {{"unix_ms", host.unix_ms()},
          {"state_free_bytes", Known(host.has_state_free(), host.state_free())},
          {"cache_free_bytes", Known(host.has_cache_free(), host.cache_free())},
          {"interface", Known(!host.interface().empty(), host.interface())}};
}

}  // namespace

Json ToJson(const google::protobuf::RepeatedPtrField<std::string>& values) {
  Json list = Json::array();
  for (const std::string& value : values) list.push_back(value);
  return list;
}

Json ToJson(const v1::WorkerStatus& worker) {
  Json devices = Json::array();
  for (const v1::DeviceFigures& device : worker.devices()) devices.push_back(OfDevice(device));
  return {{"name", worker.name()},
          {"state", worker.state()},
          {"reason", Known(!worker.reason().empty(), worker.reason())},
          {"cores", worker.cores()},
          {"threads_per_core", worker.threads_per_core()},
          {"memory_per_core_bytes", worker.memory_per_core()},
          {"host", Known(!worker.host().empty(), worker.host())},
          {"ring_address", worker.ring_address()},
          {"job_id", Known(!worker.job_id().empty(), worker.job_id())},
          {"faster_without_percent", PercentOf(worker.faster_without())},
          {"class", worker.class_()},
          {"backend", worker.numerics_class().backend()},
          {"device_model", worker.numerics_class().device_model()},
          {"instruction_set", worker.numerics_class().instruction_set()},
          {"compute_id", worker.numerics_class().compute_id()},
          {"interpreters",
           std::vector<std::string>(worker.interpreters().begin(), worker.interpreters().end())},
          {"devices", devices},
          {"clock_ahead_ms", Known(worker.has_clock_ahead_ms(), worker.clock_ahead_ms())},
          {"host_figures", worker.has_host_figures() ? OfHost(worker.host_figures()) : Json()},
          {"data_fetch", worker.has_data_fetch() ? OfFetch(worker.data_fetch()) : Json()}};
}

Json ToJson(const v1::ListResponse& jobs) { return {{"jobs", List(jobs.jobs())}}; }

Json ToJson(const v1::ListWorkersResponse& workers) {
  return {{"workers", List(workers.workers())}};
}

Json ToJson(const v1::ListCheckpointsResponse& checkpoints) {
  return {{"checkpoints", List(checkpoints.checkpoints())}};
}

Json ToJson(const v1::VerifyCheckpointsResponse& checked) {
  Json list = Json::array();
  for (const v1::CheckedCheckpoint& one : checked.checkpoints()) {
    list.push_back({{"step", one.checkpoint().step()},
                    {"path", one.checkpoint().path()},
                    {"sha256", one.checkpoint().sha256()},
                    {"ok", one.error().empty()},
                    {"error", Known(!one.error().empty(), one.error())}});
  }
  return {{"checkpoints", list}};
}

Json ToJson(const std::string& job_id, const v1::WhyResponse& why) {
  return {{"job_id", job_id},
          {"state", StateName(why.state())},
          {"reason", why.reason()},
          {"history", ToJson(why.history())},
          {"failure", why.has_failure() ? ToJson(why.failure()) : Json(nullptr)},
          {"advice", ToJson(why.advice())}};
}

Json ToJson(const v1::Event& event) {
  return {{"number", event.number()},   {"unix_ms", event.unix_ms()},
          {"type", event.type()},       {"severity", event.severity()},
          {"subject", event.subject()}, {"message", event.message()}};
}

Json ToJson(const std::string& job_id, const v1::ListEventsResponse& events) {
  return {{"job_id", job_id}, {"events", List(events.events())}};
}

Json ToJson(const v1::LogLine& line) {
  return {{"worker", line.worker()}, {"number", line.number()}, {"unix_ms", line.unix_ms()},
          {"level", line.level()},   {"text", line.text()},     {"lost", line.lost()}};
}

// ToJson of a job and of what is part of it.

namespace {

Json TimeOrNull(int64_t unix_ms) { return Known(unix_ms != 0, unix_ms); }
Json TextOrNull(const std::string& text) { return Known(!text.empty(), text); }

// Of what a peer says: a number that is not finite, or is beyond all times, is no time.
Json WholeMs(double ms) {
  constexpr double kLongest = 1e15;
  return Known(std::abs(ms) < kLongest, std::llround(std::abs(ms) < kLongest ? ms : 0));
}
Json MsOf(double seconds) { return WholeMs(1e3 * seconds); }

Json StepOf(const v1::StepTimes& times) {
  return {{"input_ms", MsOf(times.input())},           {"compute_ms", MsOf(times.compute())},
          {"wait_ms", MsOf(times.ring_wait())},        {"transfer_ms", MsOf(times.ring_transfer())},
          {"update_ms", MsOf(times.update())},         {"total_ms", MsOf(times.total())},
          {"input_work_ms", MsOf(times.input_work())}, {"input_threads", times.input_threads()}};
}

Json OfLeftOut(const v1::JobWorker& worker) {
  return {{"name", worker.name()},
          {"host", TextOrNull(worker.host())},
          {"class", TextOrNull(worker.class_())},
          {"cores", worker.cores()},
          {"shard_ms", MsOf(worker.shard_seconds())},
          {"faster_without_percent", PercentOf(worker.faster_without())}};
}

Json LeftOutOf(const v1::JobStatus& status) {
  Json list = Json::array();
  for (const v1::JobWorker& worker : status.left_out()) list.push_back(OfLeftOut(worker));
  return list;
}

Json WorkersOf(const v1::JobStatus& status) {
  Json workers = Json::array();
  for (const v1::JobWorker& worker : status.workers()) {
    Json shards = Json::array();
    for (const uint32_t shard : worker.shards()) shards.push_back(shard);
    workers.push_back(
        {{"name", worker.name()},
         {"shards", shards},
         {"class", TextOrNull(worker.class_())},
         {"ring_bytes", worker.ring_bytes()},
         {"host", TextOrNull(worker.host())},
         {"phase", TextOrNull(worker.phase())},
         {"applied", worker.applied()},
         {"cores", Known(worker.cores() > 0, worker.cores())},
         {"shard_ms", Known(worker.shard_seconds() > 0, MsOf(worker.shard_seconds()))},
         {"faster_without_percent", PercentOf(worker.faster_without())},
         {"data_fetch", worker.has_data_fetch() ? OfFetch(worker.data_fetch()) : Json()},
         {"step_times", worker.has_step_times() ? StepOf(worker.step_times()) : Json(nullptr)}});
  }
  return workers;
}

Json ClassMapsOf(const v1::JobStatus& status) {
  Json maps = Json::array();
  for (const v1::ClassMap& map : status.class_maps()) {
    Json classes = Json::array();
    for (const v1::MappedClass& each : map.classes()) {
      classes.push_back({{"class", each.class_()}, {"shards", each.shards()}});
    }
    maps.push_back({{"step", map.step()},
                    {"before_evaluation", map.before_evaluation()},
                    {"classes", std::move(classes)}});
  }
  return maps;
}

Json StartPhasesOf(const v1::JobStatus& status) {
  Json phases = Json::array();
  for (const v1::StartPhase& phase : status.start_phases()) {
    phases.push_back({{"name", phase.name()},
                      {"elapsed_ms", MsOf(phase.seconds())},
                      {"done", phase.done()},
                      {"worker", TextOrNull(phase.worker())}});
  }
  return phases;
}

Json RegroupsOf(const v1::JobStatus& status) {
  Json regroups = Json::array();
  for (const v1::Regroup& regroup : status.regroups()) regroups.push_back(ToJson(regroup));
  return regroups;
}

Json NamesOf(const google::protobuf::RepeatedPtrField<std::string>& names) {
  return std::vector<std::string>(names.begin(), names.end());
}

Json InitOf(const v1::JobStatus& status) {
  const v1::InitReport& report = status.init();
  if (!status.has_init()) return nullptr;
  return {{"matched", report.matched()},
          {"fresh", report.fresh()},
          {"unused", report.unused()},
          {"matched_names", NamesOf(report.matched_names())},
          {"fresh_names", NamesOf(report.fresh_names())},
          {"unused_names", NamesOf(report.unused_names())},
          {"source", report.source()}};
}

template <typename Message>
Json OrNull(bool known, const Message& message) {
  return known ? ToJson(message) : Json(nullptr);
}

}  // namespace

Json ToJson(const v1::CheckpointRef& checkpoint) {
  return {{"path", checkpoint.path()},
          {"step", checkpoint.step()},
          {"sha256", checkpoint.sha256()},
          {"metric", Known(checkpoint.has_metric(), checkpoint.metric())}};
}

Json ToJson(const v1::CheckpointSource& source) {
  return {
      {"job_id", source.job_id()}, {"step", source.step()}, {"sha256", source.manifest_sha256()}};
}

Json ToJson(const v1::Failure& failure) {
  return {{"word", failure.word()},
          {"worker", TextOrNull(failure.worker())},
          {"host", TextOrNull(failure.host())},
          {"step", failure.step()},
          {"phase", TextOrNull(failure.phase())},
          {"advice", failure.advice()}};
}

Json ToJson(const v1::Regroup& regroup) {
  const v1::Generation& generation = regroup.generation();
  return {{"generation", fmt::format("{}.{}", generation.term(), generation.counter())},
          {"start_step", regroup.start_step()},
          {"reason", regroup.reason()},
          {"lost", ToJson(regroup.lost())},
          {"joined", ToJson(regroup.joined())},
          {"shards_kept", regroup.shards_kept()},
          {"shards_recomputed", regroup.shards_recomputed()},
          {"noticed_unix_ms", regroup.noticed_unix_ms()},
          {"fence_ms", WholeMs(regroup.fence_ms())},
          {"form_ms", regroup.form_ms() > 0 ? WholeMs(regroup.form_ms()) : Json(nullptr)},
          {"rewound", regroup.rewound()},
          {"rewound_from", Known(regroup.rewound(), regroup.rewound_from())}};
}

Json ToJson(const v1::InputWait& wait) {
  return {{"worker", wait.worker()}, {"share", wait.share()}, {"text", wait.text()}};
}

Json ToJson(const v1::Straggler& straggler) {
  return {{"worker", straggler.worker()},
          {"cause", straggler.cause()},
          {"wait_ms", MsOf(straggler.seconds())},
          {"text", straggler.text()}};
}

// {train: {loss, accuracy}, test: {...}}: by split, then by name; a split that was not looked at is
// not there.
template <typename HasMetrics>
Json MetricsOf(const HasMetrics& status) {
  Json splits = Json::object();
  for (const v1::Metric& metric : status.metrics()) {
    splits[job::NameOf(metric.split())][metric.name()] = metric.value();
  }
  return splits;
}

Json FoldsOf(const v1::JobStatus& status) {
  Json folds = Json::array();
  for (const v1::Fold& fold : status.folds()) {
    folds.push_back({{"job_id", fold.job_id()},
                     {"state", StateName(fold.state())},
                     {"step", fold.step()},
                     {"metrics", MetricsOf(fold)}});
  }
  return folds;
}

Json SpreadOf(const v1::JobStatus& status) {
  Json splits = Json::object();
  for (const v1::MetricSpread& each : status.spread()) {
    splits[job::NameOf(each.split())][each.name()] = {
        {"mean", each.mean()}, {"deviation", each.deviation()}, {"count", each.count()}};
  }
  return splits;
}

Json ToJson(const v1::JobStatus& status) {
  const bool counted = UpdatesKnown(status);
  const std::string generation = GenerationName(status);
  return {{"job_id", status.job_id()},
          {"name", status.name()},
          {"state", StateName(status.state())},
          {"reason", status.reason()},
          {"step", status.step()},
          {"total_steps", Known(status.total_steps() > 0, status.total_steps())},
          {"epoch", status.epoch()},
          {"metrics", MetricsOf(status)},
          {"model_sha256", TextOrNull(status.model_sha256())},
          {"samples_per_second", status.samples_per_second()},
          {"generation", Known(!generation.empty(), generation)},
          {"workers", WorkersOf(status)},
          {"checkpoint", OrNull(status.has_checkpoint(), status.checkpoint())},
          {"submitted_unix_ms", TimeOrNull(status.submitted_unix_ms())},
          {"started_unix_ms", TimeOrNull(status.started_unix_ms())},
          {"finished_unix_ms", TimeOrNull(status.finished_unix_ms())},
          {"steps_per_epoch", Known(status.steps_per_epoch() > 0, status.steps_per_epoch())},
          {"updates", Known(counted, status.updates())},
          {"skipped_steps", Known(counted, SkippedSteps(status))},
          {"loss_scale", Known(status.has_loss_scale(), status.loss_scale())},
          {"learning_rate", Known(status.learning_rate() > 0, status.learning_rate())},
          {"last_step_unix_ms", TimeOrNull(status.last_step_unix_ms())},
          {"log_lines_lost", status.log_lines_lost()},
          {"best_checkpoint", OrNull(status.has_best_checkpoint(), status.best_checkpoint())},
          {"start_phases", StartPhasesOf(status)},
          {"failure", OrNull(status.has_failure(), status.failure())},
          {"class_maps", ClassMapsOf(status)},
          {"regroup_count", status.regroup_count()},
          {"regroups", RegroupsOf(status)},
          {"shards_recomputed", status.shards_recomputed()},
          {"rewinds", status.rewinds()},
          {"state_faults", status.state_faults()},
          {"resumed_from", OrNull(status.has_resumed_from(), status.resumed_from())},
          {"init", InitOf(status)},
          {"resumes_job", TextOrNull(status.resumes_job())},
          {"like_job", TextOrNull(status.like_job())},
          {"continues", OrNull(status.has_continues(), status.continues())},
          {"stopped_early", status.stopped_early()},
          {"folds", FoldsOf(status)},
          {"spread", SpreadOf(status)},
          {"fold_of", TextOrNull(status.fold_of())},
          {"straggler", OrNull(status.has_straggler(), status.straggler())},
          {"input_wait", OrNull(status.has_input_wait(), status.input_wait())},
          {"left_out", LeftOutOf(status)},
          {"spec", ToJson(job::WithDefaults(status.spec()))}};
}

// ToJson of a job's settings: the keys and values of a job file, read by reflection.

namespace {

using google::protobuf::FieldDescriptor;
using Settings = google::protobuf::Message;
using google::protobuf::Reflection;

Json OfSettings(const Settings& message);

// Element `index` of a repeated field, or the value of a singular one (index -1).
Json OfValue(const Settings& message, const FieldDescriptor& field, int index) {
  const Reflection& reflection = *message.GetReflection();
  const auto get = [&](auto singular, auto repeated) {
    return index < 0 ? (reflection.*singular)(message, &field)
                     : (reflection.*repeated)(message, &field, index);
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT32:
      return get(&Reflection::GetUInt32, &Reflection::GetRepeatedUInt32);
    case FieldDescriptor::CPPTYPE_UINT64:
      return get(&Reflection::GetUInt64, &Reflection::GetRepeatedUInt64);
    case FieldDescriptor::CPPTYPE_INT64:
      return get(&Reflection::GetInt64, &Reflection::GetRepeatedInt64);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return get(&Reflection::GetDouble, &Reflection::GetRepeatedDouble);
    case FieldDescriptor::CPPTYPE_BOOL:
      return get(&Reflection::GetBool, &Reflection::GetRepeatedBool);
    case FieldDescriptor::CPPTYPE_STRING:
      return get(&Reflection::GetString, &Reflection::GetRepeatedString);
    case FieldDescriptor::CPPTYPE_ENUM:
      return job::ShortName(*get(&Reflection::GetEnum, &Reflection::GetRepeatedEnum));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return OfSettings(index < 0 ? reflection.GetMessage(message, &field)
                                  : reflection.GetRepeatedMessage(message, &field, index));
    default:
      return nullptr;
  }
}

Json ByName(const Settings& message, const FieldDescriptor& field) {
  Json object = Json::object();
  for (int i = 0; i < message.GetReflection()->FieldSize(message, &field); ++i) {
    const Settings& element = message.GetReflection()->GetRepeatedMessage(message, &field, i);
    const auto& type = *element.GetDescriptor();
    object[OfValue(element, *type.field(0), -1).get<std::string>()] =
        OfValue(element, *type.field(1), -1);
  }
  return object;
}

Json OfField(const Settings& message, const FieldDescriptor& field) {
  if (!field.is_repeated()) return OfValue(message, field, -1);
  if (job::IsByName(field)) return ByName(message, field);
  Json list = Json::array();
  for (int i = 0; i < message.GetReflection()->FieldSize(message, &field); ++i) {
    list.push_back(OfValue(message, field, i));
  }
  return list;
}

Json OfOption(const v1::Attribute& option) {
  switch (option.value_case()) {
    case v1::Attribute::kI:
      return option.i();
    case v1::Attribute::kF:
      return option.f();
    case v1::Attribute::kB:
      return option.b();
    case v1::Attribute::kS:
      return option.s();
    case v1::Attribute::kFact:
      return option.fact();
    case v1::Attribute::kInts:
      return OfField(option.ints(), *option.ints().GetDescriptor()->field(0));
    case v1::Attribute::kChoice: {
      const auto& parts = option.choice().attributes();
      return {{option.choice().name(), parts.empty() ? Json(nullptr) : OfOption(parts[0])}};
    }
    case v1::Attribute::VALUE_NOT_SET:
      break;
  }
  return nullptr;
}

// Its options beside its name; a layer is {KIND: {name, inputs, options ...}}.
Json OfModel(const v1::Model& model) {
  Json object = Json::object();
  if (!model.name().empty()) object["name"] = model.name();
  for (const v1::Attribute& option : model.options()) object[option.name()] = OfOption(option);
  for (const v1::Layer& layer : model.layers()) {
    Json said = {{"name", layer.name()}, {"inputs", ToJson(layer.inputs())}};
    for (const v1::Attribute& option : layer.attributes()) said[option.name()] = OfOption(option);
    object["layers"].push_back({{layer.kind(), said}});
  }
  return object;
}

// What is set; a list that is empty is not, as in a job file.
Json OfSettings(const Settings& message) {
  if (const auto* const model = google::protobuf::DynamicCastToGenerated<v1::Model>(&message)) {
    return OfModel(*model);
  }
  if (const auto* const file = google::protobuf::DynamicCastToGenerated<v1::ScriptFile>(&message)) {
    return file->path();
  }
  if (const auto* const list = job::ListField(*message.GetDescriptor())) {
    return OfField(message, *list);
  }
  Json object = Json::object();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    const Reflection& reflection = *message.GetReflection();
    const bool set = field.is_repeated() ? reflection.FieldSize(message, &field) > 0
                                         : reflection.HasField(message, &field);
    if (set) object[field.name()] = OfField(message, field);
  }
  return object;
}

}  // namespace

Json ToJson(const v1::JobSpec& spec) { return OfSettings(spec); }

}  // namespace ringmaster::cli

#include "tests/coordinator/logic/told.h"

#include <fmt/format.h>

#include "coordinator/logic/logic.h"
#include "coordinator/logic/options.h"
#include "tests/coordinator/logic/scenario_command.h"

namespace ringmaster::coordinator {

v1::Generation ParseGeneration(const std::string& text) {
  v1::Generation generation;
  generation.set_term(std::stoull(text));
  generation.set_counter(std::stoull(text.substr(text.find('.') + 1)));
  return generation;
}

std::string PrintGeneration(const v1::Generation& generation) {
  return fmt::format("{}.{}", generation.term(), generation.counter());
}

namespace {

// Of a job that mixes classes: `, map avx2 3 avx512 1`.
std::string ToldMap(const google::protobuf::RepeatedPtrField<v1::ClassMap>& maps) {
  std::string text;
  if (maps.size() < 2 && (maps.empty() || maps[0].classes_size() < 2)) return text;
  for (const v1::ClassMap& map : maps) {
    text += map.step() == 0 ? ", map" : fmt::format(", map from step {}", map.step());
    for (const v1::MappedClass& each : map.classes()) {
      text += fmt::format(" {} {}", each.numerics().instruction_set(), each.shards());
    }
  }
  return text;
}

// `01`, or, where two digits occur, `8-11,15`.
std::string ToldShards(const v1::RingMember& member, bool ranges) {
  std::string text;
  for (int i = 0; i < member.shards_size(); ++i) {
    const auto follows = [&](int next) {
      return next < member.shards_size() && member.shards(next) == member.shards(next - 1) + 1;
    };
    if (ranges && i > 0) text += ',';
    text += std::to_string(member.shards(i));
    if (!ranges || !follows(i + 1)) continue;
    while (follows(i + 1)) ++i;
    text += fmt::format("-{}", member.shards(i));
  }
  return text;
}

int ShardsOf(const v1::CoordinatorMessage& m) {
  int shards = 0;
  for (const v1::RingMember& member : m.start().ring()) shards += member.shards_size();
  return shards;
}

// What workers are told to keep to, where a story has another limit than the usual one.
template <typename Milliseconds>
std::string ToldLimit(const char* name, Milliseconds ms, Options::Duration usual) {
  return Options::Duration(ms) == usual ? "" : fmt::format(", {} {} ms", name, ms);
}

}  // namespace

std::string Told(const v1::CoordinatorMessage& m) {
  using Kind = v1::CoordinatorMessage::KindCase;
  std::string text;
  switch (m.kind_case()) {
    case Kind::kAttached:
      text = fmt::format("attached term={} resume={}", m.attached().term(), m.attached().resume());
      text += ToldLimit("heartbeat", m.attached().heartbeat_ms(), Options{}.heartbeat);
      break;
    case Kind::kInspect:
      text = fmt::format("inspect {} {}", m.inspect().job_id(),
                         m.inspect().has_script() ? "the script " + m.inspect().script().file()
                                                  : m.inspect().data().path());
      for (const v1::DataPeer& peer : m.inspect().peers()) {
        text += (&peer == &m.inspect().peers(0) ? ", who lacks it asks " : " ") + peer.name();
      }
      break;
    case Kind::kPrepare:
      text = fmt::format("prepare {} steps={}{}", m.prepare().job_id(),
                         m.prepare().job().result().total_steps(),
                         m.prepare().joins() ? ", it joins" : "");
      text += ToldMap(m.prepare().job().result().class_maps());
      break;
    case Kind::kFence:
      text = fmt::format("fence {} generation={}{}", m.fence().job_id(),
                         PrintGeneration(m.fence().generation()),
                         m.fence().at_boundary()    ? " at the step boundary"
                         : m.fence().verify_state() ? " behind a look at the state"
                                                    : "");
      break;
    case Kind::kStart:
      text = fmt::format("start {} generation={} at={} ring:", m.start().job_id(),
                         PrintGeneration(m.start().generation()), m.start().start_step());
      for (const v1::RingMember& member : m.start().ring()) {
        const char* const lacks = member.follows() ? "follows" : " fetches";
        text += fmt::format(" {}[{}{}]", member.name(), ToldShards(member, ShardsOf(m) > 10),
                            member.holds() ? "" : lacks);
      }
      text += ToldLimit("silence", m.start().silence_ms(), Options{}.silence);
      text += fmt::format(", digest {}{}", m.start().digest(),
                          m.start().evaluated() ? ", evaluated" : "");
      if (m.start().has_restore()) {
        text += fmt::format(", from the checkpoint of step {} of {}", m.start().restore().step(),
                            m.start().restore().job_id());
      }
      text += ToldMap(m.start().class_maps());
      break;
    case Kind::kSaveState:
      text = fmt::format("save the state of {}", m.save_state().job_id());
      break;
    case Kind::kCheckpointKept:
      text = fmt::format("checkpoint {} step {} is kept", m.checkpoint_kept().job_id(),
                         m.checkpoint_kept().step());
      break;
    case Kind::kCancel:
      text = fmt::format("cancel {} because: {}", m.cancel().job_id(), m.cancel().reason());
      break;
    case Kind::kRelease:
      text = fmt::format("release {}{}", m.release().job_id(),
                         m.release().data_differs() ? ", its data differ" : "");
      break;
    case Kind::kMeasureRing:
      text = fmt::format(
          "measure {} in generation={}:", m.measure_ring().has_link() ? "the link" : "sums",
          PrintGeneration(m.measure_ring().generation()));
      for (const v1::BenchMember& member : m.measure_ring().ring()) text += " " + member.name();
      if (m.measure_ring().link().reach_ms() > 0) {
        text += ToldLimit("reach", m.measure_ring().link().reach_ms(), Options{}.reach_limit);
      }
      break;
    case Kind::kEndMeasuring:
      text =
          fmt::format("end measuring generation={}: {}",
                      PrintGeneration(m.end_measuring().generation()), m.end_measuring().reason());
      break;
    default:
      text = "?";
  }
  return text;
}

std::string Told(const v1::Regroup& regroup) {
  std::string text = fmt::format(
      "status regroup {} at {}: kept {}, recomputed {}, fence {:.0f} ms, form {:.0f} ms",
      PrintGeneration(regroup.generation()), regroup.start_step(), regroup.shards_kept(),
      regroup.shards_recomputed(), regroup.fence_ms(), regroup.form_ms());
  for (const std::string& name : regroup.lost()) text += ", lost " + name;
  for (const std::string& name : regroup.joined()) text += ", joined " + name;
  if (regroup.rewound()) text += fmt::format(", rewound from {}", regroup.rewound_from());
  return text + fmt::format(" (\"{}\")", regroup.reason());
}

std::string Told(const v1::StartPhase& phase) {
  if (phase.done()) return "";
  return fmt::format(", {} {:.1f} s on {}", phase.name(), phase.seconds(), phase.worker());
}

std::string Told(const v1::JobStatus& status, bool phases) {
  std::string text = fmt::format("show {} {} step {}/{}", status.job_id(),
                                 StateName(status.state()), status.step(), status.total_steps());
  if (status.has_checkpoint()) text += fmt::format(", checkpoint {}", status.checkpoint().step());
  if (status.has_best_checkpoint()) {
    text += fmt::format(", best {}", status.best_checkpoint().step());
  }
  if (phases) {
    for (const v1::StartPhase& phase : status.start_phases()) text += Told(phase);
  }
  return text;
}

std::string Told(const SaveMetrics& save) {
  std::string text = "metrics of " + save.job_id;
  if (save.batch.forget_after) text += fmt::format(", back to {}", *save.batch.forget_after);
  for (const auto& [step, point] : save.batch.epochs) {
    text += fmt::format(", epoch {} at {}:", point.epoch(), step);
    for (const v1::MetricValue& value : point.values()) {
      text += fmt::format(" {}={}", value.name(), value.value());
    }
  }
  if (!save.batch.steps.empty()) text += ", steps";
  for (const auto& [step, point] : save.batch.steps) text += fmt::format(" {}", step);
  return text;
}

std::string Told(const RemoveJobs& removal) {
  std::string text;
  for (const RemovedJob& job : removal.jobs) text += (text.empty() ? " " : ",") + job.job_id;
  return text;
}

std::string Told(const Refusal& refusal, const std::map<std::string, std::string>& results) {
  if (refusal.status.ok()) return "OK";
  std::string message = Message(refusal.status);
  for (const auto& [job, result] : results) {
    const size_t at = message.find(result);
    if (at != std::string::npos) message.replace(at, result.size(), "that of " + job);
  }
  return fmt::format("{} {}: {}", absl::StatusCodeToString(refusal.status.code()), refusal.word,
                     message);
}

std::string Told(const v1::ListWorkersResponse& workers) {
  const auto state = [](const v1::WorkerStatus& worker) {
    std::string text = "=" + worker.state();
    if (worker.faster_without() > 0) text += fmt::format("(-{:.0f}%)", worker.faster_without());
    if (worker.reason().starts_with("TOO_SLOW")) text += fmt::format("({})", worker.reason());
    return text;
  };
  std::string text;
  std::vector<std::string> names;
  for (int i = 0; i < workers.workers_size(); ++i) {
    const v1::WorkerStatus& worker = workers.workers(i);
    names.push_back(worker.name());
    const bool last = i + 1 == workers.workers_size();
    const bool alike = !last && state(workers.workers(i + 1)) == state(worker);
    if (alike && workers.workers_size() > 4) continue;
    text += " " + List(names) + state(worker);
    names.clear();
  }
  return text;
}

std::vector<std::string> Told(const JobView& view) {
  const v1::JobStatus& status = view.status;
  std::vector<std::string> lines;
  lines.push_back(fmt::format("status step {} updates {} epoch {} reason \"{}\"", status.step(),
                              status.updates(), status.epoch(), status.reason()));
  for (const v1::StartPhase& phase : status.start_phases()) {
    lines.push_back(fmt::format("status phase {} {:.1f} s on {}{}", phase.name(), phase.seconds(),
                                phase.worker(), phase.done() ? " done" : ""));
  }
  if (status.has_resumed_from()) {
    lines.push_back(fmt::format("status resumed from step {}", status.resumed_from().step()));
  }
  if (status.regroup_count() > 0) {
    lines.push_back(fmt::format("status regroups {}, shards recomputed {}", status.regroup_count(),
                                status.shards_recomputed()));
  }
  for (const v1::Regroup& regroup : status.regroups()) lines.push_back(Told(regroup));
  for (const v1::JobWorker& worker : status.workers()) {
    lines.push_back(fmt::format("status worker {} host {} applied {} phase \"{}\"", worker.name(),
                                worker.host(), worker.applied(), worker.phase()));
  }
  for (const v1::JobWorker& worker : status.left_out()) {
    lines.push_back(fmt::format("status left out {} of {}, {} s a shard: {:.0f}% faster without it",
                                worker.name(), worker.class_(), worker.shard_seconds(),
                                worker.faster_without()));
  }
  for (const v1::CheckpointRef& ref : view.checkpoints) {
    lines.push_back(fmt::format("status checkpoint {}{}", ref.step(),
                                ref.has_metric() ? fmt::format(" metric {}", ref.metric()) : ""));
  }
  return lines;
}

void CountPhases(const Logic& logic, std::vector<uint64_t>* taken) {
  for (size_t i = 0; taken != nullptr && i < taken->size(); ++i) {
    (*taken)[i] += logic.phase_counts().all()[i];
  }
}

}  // namespace ringmaster::coordinator

#include "tests/coordinator/logic/scenario_command.h"

#include <fmt/format.h>

#include <sstream>
#include <utility>
#include <variant>
#include <vector>

#include "common/check.h"
#include "common/sha256.h"
#include "tests/coordinator/logic/told.h"
#include "tests/support/cluster_messages.h"

namespace ringmaster::coordinator {

Command ParseCommand(const std::string& line) {
  std::vector<std::string> words(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ' ' && !quoted) {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  Command command;
  command.verb = words[0];
  for (size_t i = 1; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    if (equals == std::string::npos) {
      command.subject = words[i];
    } else {
      command.options[words[i].substr(0, equals)] = words[i].substr(equals + 1);
    }
  }
  return command;
}

std::vector<std::string> NamesIn(const std::string& list) {
  std::vector<std::string> names;
  std::stringstream words(list);
  for (std::string word; std::getline(words, word, ',');) {
    const bool range = word.size() == 4 && word.substr(1, 2) == "..";
    if (!range) names.push_back(word);
    for (char letter = word[0]; range && letter <= word[3]; ++letter) names.emplace_back(1, letter);
  }
  return names;
}

std::string List(const std::vector<std::string>& names) {
  std::string list;
  for (size_t first = 0; first < names.size();) {
    size_t end = first + 1;
    const auto follows = [&] {
      return end < names.size() && names[end].size() == 1 && names[end - 1].size() == 1 &&
             names[end][0] == names[end - 1][0] + 1;
    };
    while (follows()) ++end;
    if (end - first < 4) end = first + 1;
    if (!list.empty()) list += ',';
    list += names[first];
    if (end - first > 1) list += ".." + names[end - 1];
    first = end;
  }
  return list;
}

namespace {

// Every limit by its name. Whoever adds one adds it here: it does not compile without.
using Limit = std::variant<Options::Duration*, size_t*, int*>;
std::map<std::string, Limit> LimitsOf(Options* options) {
  auto& [heartbeat, silence, lease, attach_limit, fence_limit, holder_wait, adopt_limit, idle_limit,
         stop_limit, release_limit, settle, stall_limit, show_every, show_figures, show_devices,
         finish_patience, ask_again, ask_again_most, bench_link_limit, bench_limit, bench_end_limit,
         reach_limit, upload_limit, max_workers, max_unfinished_jobs, max_jobs, max_removed_jobs,
         max_spec_bytes, max_history, max_regroups] = *options;
  return {{"heartbeat", &heartbeat},
          {"silence", &silence},
          {"lease", &lease},
          {"attach_limit", &attach_limit},
          {"fence_limit", &fence_limit},
          {"holder_wait", &holder_wait},
          {"adopt_limit", &adopt_limit},
          {"idle_limit", &idle_limit},
          {"stop_limit", &stop_limit},
          {"release_limit", &release_limit},
          {"settle", &settle},
          {"stall_limit", &stall_limit},
          {"show_every", &show_every},
          {"show_figures", &show_figures},
          {"show_devices", &show_devices},
          {"finish_patience", &finish_patience},
          {"ask_again", &ask_again},
          {"ask_again_most", &ask_again_most},
          {"bench_link_limit", &bench_link_limit},
          {"bench_limit", &bench_limit},
          {"bench_end_limit", &bench_end_limit},
          {"reach_limit", &reach_limit},
          {"upload_limit", &upload_limit},
          {"max_workers", &max_workers},
          {"max_unfinished_jobs", &max_unfinished_jobs},
          {"max_jobs", &max_jobs},
          {"max_removed_jobs", &max_removed_jobs},
          {"max_spec_bytes", &max_spec_bytes},
          {"max_history", &max_history},
          {"max_regroups", &max_regroups}};
}

}  // namespace

std::vector<std::string> LimitNames() {
  Options options;
  std::vector<std::string> names;
  for (const auto& [name, limit] : LimitsOf(&options)) names.push_back(name);
  return names;
}

void SetLimit(Options* options, const std::string& name, int64_t value) {
  const auto set = [value](auto* limit) { *limit = std::decay_t<decltype(*limit)>(value); };
  std::visit(set, LimitsOf(options).at(name));
}

int64_t GetLimit(Options* options, const std::string& name) {
  const Limit limit = LimitsOf(options).at(name);
  if (const auto* duration = std::get_if<Options::Duration*>(&limit)) return (*duration)->count();
  if (const auto* size = std::get_if<size_t*>(&limit)) return static_cast<int64_t>(**size);
  return *std::get<int*>(limit);
}

v1::Attach ParseAttach(const Command& command,
                       const std::map<std::string, job::ClassMaps>& class_maps) {
  const std::string name = command.Text("name", command.subject);
  v1::Attach attach = testing::MakeAttach(name);
  attach.set_incarnation(testing::MakeIncarnation(command.Text("incarnation", name)));
  attach.set_cores(static_cast<uint32_t>(command.Number("cores", 1)));
  attach.set_protocol(static_cast<uint32_t>(command.Number("protocol", kProtocolVersion)));
  attach.set_highest_term(command.Number("term", 0));
  attach.set_job_id(command.Text("job", ""));
  if (!attach.job_id().empty()) {
    *attach.mutable_generation() = ParseGeneration(command.Text("generation", "1.1"));
    attach.set_applied(command.Number("applied", 0));
    attach.set_digest(command.Text("digest", "d" + std::to_string(attach.applied())));
    for (uint64_t core = 0; core < attach.cores(); ++core) {
      attach.add_known_shard_sha256(command.Text("known", "known"));
    }
    const auto maps = class_maps.find(attach.job_id());
    if (command.Text("maps", "") != "others" && maps != class_maps.end()) {
      *attach.mutable_class_maps() = maps->second;
    }
    if (const uint64_t step = command.Number("snapshot", 0); step > 0) {
      attach.add_snapshots()->set_step(step);
      attach.mutable_snapshots(0)->set_manifest_sha256(fmt::format("m{}", step));
    }
  }
  attach.set_host(command.Text("host", "node-" + name));
  attach.set_ring_address(command.Text("ring_address", attach.ring_address()));
  attach.mutable_numerics_class()->set_instruction_set(command.Text("class", "avx2"));
  for (const std::string& python : NamesIn(command.Text("python", ""))) {
    attach.add_interpreters(python);
  }
  return attach;
}

namespace {

// What the script says itself it leaves open.
v1::JobSpec SpecOfScript(const Command& command) {
  v1::JobSpec spec;
  spec.set_name("own");
  spec.mutable_script()->set_file(command.Text("script", ""));
  spec.mutable_script()->set_python(command.Text("python", ""));
  if (command.Text("files", "") == "none") return spec;
  v1::ScriptFile& file = *spec.mutable_script()->add_files();
  file.set_path(spec.script().file());
  file.set_content("import torch");
  return spec;
}

v1::ScriptFacts FactsOf(const Command& command) {
  v1::ScriptFacts facts;
  for (uint64_t i = 0; i < command.Number("tensors", 2); ++i) {
    v1::ScriptTensor& tensor = *facts.add_tensors();
    tensor.set_name(fmt::format("layers.{}.weight", i));
    tensor.add_shape(8);
    tensor.set_role(v1::PARAMETER);
  }
  facts.add_groups();
  facts.mutable_optimizer()->mutable_torch_sgd()->set_learning_rate(0.1);
  facts.set_initial_sha256(std::string(8, command.Text("initial", "a")[0]));
  facts.set_batch(command.Number("batch", 8));
  facts.set_shards(static_cast<uint32_t>(command.Number("shards", 4)));
  facts.set_steps(command.Number("steps", 10));
  (*facts.mutable_libraries())["python"] = "3.11.2";
  (*facts.mutable_libraries())["torch"] = command.Text("torch", "1.13.1");
  return facts;
}

}  // namespace

SubmitAsked ParseSubmit(const Command& command) {
  SubmitAsked asked;
  asked.submit.set_idempotency_key(command.subject);
  v1::JobSpec& spec = *asked.submit.mutable_spec();
  spec = command.options.contains("script") ? SpecOfScript(command) : testing::MakeSpec();
  const auto set = [&](const char* key, auto setter) {
    if (command.options.contains(key)) setter(static_cast<uint32_t>(command.Number(key, 0)));
  };
  set("batch", [&](uint32_t v) { spec.set_batch(v); });
  set("shards", [&](uint32_t v) { spec.set_shards(v); });
  if (command.options.contains("steps")) spec.set_steps(command.Number("steps", 0));
  set("min", [&](uint32_t v) { spec.mutable_workers()->set_min(v); });
  set("max", [&](uint32_t v) { spec.mutable_workers()->set_max(v); });
  if (const std::string mix = command.Text("mix", ""); !mix.empty())
    spec.mutable_workers()->set_mix(mix == "fixed" ? v1::MIX_FIXED : v1::MIX_FALLBACK);
  set("keep", [&](uint32_t v) { spec.mutable_checkpoint()->set_keep(v); });
  set("folds", [&](uint32_t v) { spec.mutable_validation()->set_folds(v); });
  set("patience", [&](uint32_t v) { spec.mutable_stop()->set_patience(v); });
  if (const std::string job = command.Text("init", ""); !job.empty()) {
    spec.mutable_init()->set_job(job);
  }
  if (spec.has_stop()) spec.mutable_stop()->set_metric("test/loss");
  if (command.options.contains("continue")) {
    spec.mutable_continue_()->set_job(command.Text("continue", ""));
    set("step", [&](uint32_t v) { spec.mutable_continue_()->set_step(v); });
  }
  asked.submit.set_resume_job(command.Text("resume", ""));
  asked.submit.set_like_job(command.Text("like", ""));
  const bool of_other = command.options.contains("resume") || command.options.contains("like");
  if (of_other) asked.submit.clear_spec();
  return asked;
}

v1::Progress ParseProgress(const Command& command) {
  v1::Progress said;
  said.set_job_id(command.Text("job", "j0001"));
  *said.mutable_generation() = ParseGeneration(command.Text("generation", "1.1"));
  said.set_applied(command.Number("applied", 0));
  const std::string own = fmt::format("{}:{}", said.applied(),
                                      command.Text("digest", fmt::format("d{}", said.applied())));
  testing::AddDigests(command.Text("digests", own), &said);
  said.set_updates(said.applied() - command.Number("skipped", 0));
  said.set_epoch(command.Number("epoch", 0));
  if (command.options.contains("scale")) said.set_loss_scale(command.Real("scale", 0));
  if (command.options.contains("test")) {
    v1::Metric& metric = *said.add_metrics();
    metric.set_split(v1::SAMPLE_SPLIT_TEST);
    metric.set_name("accuracy");
    metric.set_value(command.Real("test", 0));
    metric.set_step(said.applied());
  }
  for (const auto split : {v1::SAMPLE_SPLIT_TRAIN, v1::SAMPLE_SPLIT_TEST}) {
    if (!command.options.contains("ended")) break;
    v1::Metric& metric = *said.add_lasting();
    metric.set_split(split);
    metric.set_name("loss");
    metric.set_step(command.Number("ended", 0));
    metric.set_value(command.Real("loss", 0.5));
  }
  v1::StepTimes& times = *said.mutable_step_times();
  times.set_input(command.Real("input", 0));
  times.set_compute(command.Real("compute", 0));
  times.set_ring_wait(command.Real("waits", 0));
  times.set_ring_transfer(command.Real("ring", 0));
  times.set_total(command.Real("total", 0));
  times.set_input_work(command.Real("work", 0));
  times.set_input_threads(static_cast<uint32_t>(command.Number("threads", 0)));
  return said;
}

v1::Heartbeat ParseHeartbeat(const Command& command) {
  v1::Heartbeat said;
  said.set_job_id(command.Text("job", ""));
  said.set_applied(command.Number("applied", 0));
  said.set_progress(command.Number("progress", 0));
  said.set_phase(command.Text("phase", ""));
  const std::string generation = command.Text("generation", "");
  if (!generation.empty()) *said.mutable_generation() = ParseGeneration(generation);
  if (!command.options.contains("from")) return said;
  said.mutable_data_fetch()->set_bytes(command.Number("fetched", 0) << 20);
  said.mutable_data_fetch()->set_total_bytes(command.Number("of", 0) << 20);
  said.mutable_data_fetch()->set_source(command.Text("from", ""));
  said.mutable_data_fetch()->set_bytes_per_second(95 << 20);
  return said;
}

v1::FailureCode ParseCode(const Command& command) {
  auto code = v1::FAILURE_CODE_UNSPECIFIED;
  const std::string word = command.Text("code", "UNSPECIFIED");
  RING_CHECK(v1::FailureCode_Parse("FAILURE_CODE_" + word, &code), "there is no such code");
  return code;
}

v1::Inspected ParseInspected(const Command& command, const std::set<std::string>& scripts) {
  v1::Inspected said;
  said.set_job_id(command.Text("job", "j0001"));
  said.set_error(command.Text("error", ""));
  said.set_code(ParseCode(command));
  if (scripts.contains(said.job_id())) {
    if (command.Text("facts", "") != "none") *said.mutable_script() = FactsOf(command);
    return said;
  }
  *said.mutable_facts() = testing::MakeFacts();
  said.mutable_facts()->mutable_columns(1)->set_limit(command.Number("classes", 10));
  v1::DataFile& file = *said.mutable_facts()->mutable_files(1);
  file.set_sha256(command.Text("sha", file.sha256()));
  file.set_name(command.Text("file", file.name()));
  said.set_init_error(command.Text("init_error", ""));
  if (!command.options.contains("init")) return said;
  said.mutable_init()->set_sha256(std::string(64, command.Text("init", "")[0]));
  const std::pair<const char*, std::vector<int64_t>> tensors[] = {{"dense1/bias", {8}},
                                                                  {"dense1/kernel", {3072, 8}},
                                                                  {"fc/bias", {10}},
                                                                  {"fc/kernel", {8, 10}}};
  for (const auto& [name, shape] : tensors) {
    v1::SourceTensor& tensor = *said.mutable_init()->add_tensors();
    tensor.set_name(name);
    tensor.set_type("F32");
    for (const int64_t size : shape) tensor.add_shape(size);
  }
  return said;
}

v1::Prepared ParsePrepared(const Command& command, uint64_t cores) {
  v1::Prepared said;
  said.set_job_id(command.Text("job", "j0001"));
  said.set_error(command.Text("error", ""));
  said.set_code(ParseCode(command));
  said.set_digest(command.Text("digest", "d0"));
  said.set_known_shard_seconds(command.Real("seconds", 0));
  said.set_follows(command.options.contains("follows"));
  for (uint64_t core = 0; core < command.Number("cores", cores); ++core) {
    said.add_known_shard_sha256(command.Text("sha", "known"));
  }
  return said;
}

namespace {

// How far a run came: a FenceAck or a JobFinished.
template <typename Said>
Said ParseReached(const Command& command, uint64_t applied) {
  Said said;
  said.set_job_id(command.Text("job", "j0001"));
  *said.mutable_generation() = ParseGeneration(command.Text("generation", "1.1"));
  said.set_applied(command.Number("applied", applied));
  said.set_digest(command.Text("digest", "d" + std::to_string(said.applied())));
  testing::AddDigests(command.Text("digests", ""), &said);
  return said;
}

}  // namespace

v1::FenceAck ParseFenced(const Command& command) {
  auto said = ParseReached<v1::FenceAck>(command, 0);
  std::stringstream list(command.Text("folded", ""));
  for (std::string shard; std::getline(list, shard, ',');) {
    said.add_folded(static_cast<uint32_t>(std::stoul(shard)));
  }
  said.set_evaluated(command.options.contains("evaluated"));
  return said;
}

v1::JobFinished ParseFinished(const Command& command) {
  auto said = ParseReached<v1::JobFinished>(command, 10);
  said.set_manifest_sha256(command.Text("manifest", ""));
  return said;
}

v1::Joined ParseJoined(const Command& command) {
  v1::Joined said;
  said.set_job_id(command.Text("job", "j0001"));
  *said.mutable_generation() = ParseGeneration(command.Text("generation", "1.1"));
  return said;
}

v1::StateSaved ParseSaved(const Command& command) {
  v1::StateSaved said;
  said.set_job_id(command.Text("job", "j0001"));
  said.set_applied(command.Number("applied", 0));
  said.set_error(command.Text("error", ""));
  return said;
}

v1::Suspicion ParseSuspicion(const Command& command) {
  v1::Suspicion said;
  said.set_job_id(command.Text("job", "j0001"));
  *said.mutable_generation() = ParseGeneration(command.Text("generation", "1.1"));
  said.set_peer(command.Text("peer", ""));
  said.set_step(command.Number("step", 0));
  said.set_reason("no frame for 300 ms");
  return said;
}

v1::CheckpointsDropped ParseDropped(const Command& command) {
  v1::CheckpointsDropped dropped;
  dropped.set_job_id(command.Text("job", "j0001"));
  dropped.set_count(command.Number("count", 1));
  dropped.set_first_step(command.Number("step", 0));
  dropped.set_last_step(command.Number("last", dropped.first_step()));
  dropped.set_reason(command.Text("error", "the disk is full"));
  return dropped;
}

CheckpointFound ParseFound(const Command& command) {
  CheckpointFound found;
  found.job_id = command.subject;
  if (command.options.contains("step")) {
    CheckpointRecord& record = found.found.emplace();
    record.job_id = command.Text("job", command.subject);
    record.ref.set_step(command.Number("step", 0));
    record.ref.set_sha256(command.Text("sha", "m" + command.Text("step", "")));
    found.digest = Hex(command.Text("digest", "d" + command.Text("step", "")));
  }
  std::stringstream list(command.Text("skipped", ""));
  for (std::string text; std::getline(list, text, '|');) found.skipped.push_back(text);
  return found;
}

}  // namespace ringmaster::coordinator

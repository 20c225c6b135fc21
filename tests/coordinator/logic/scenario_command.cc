#include "tests/coordinator/logic/scenario_command.h"

#include <fmt/format.h>

#include <vector>

#include "common/check.h"
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

v1::Inspected ParseInspected(const Command& command) {
  v1::Inspected said;
  said.set_job_id(command.Text("job", "j0001"));
  said.set_error(command.Text("error", ""));
  said.set_code(ParseCode(command));
  *said.mutable_facts() = testing::MakeFacts();
  said.mutable_facts()->mutable_columns(1)->set_limit(command.Number("classes", 10));
  v1::DataFile& file = *said.mutable_facts()->mutable_files(1);
  file.set_sha256(command.Text("sha", file.sha256()));
  file.set_name(command.Text("file", file.name()));
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

}  // namespace ringmaster::coordinator

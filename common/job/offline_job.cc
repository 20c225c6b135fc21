#include "common/job/offline_job.h"

#include <fmt/ranges.h>

#include <utility>
#include <vector>

#include "common/amount.h"
#include "common/data/columns.h"
#include "common/data/data_url.h"
#include "common/data/dataset.h"
#include "common/files.h"
#include "common/job/field_names.h"
#include "common/job/job_file.h"
#include "common/job/resolve.h"
#include "common/job/script_files.h"

namespace ringmaster::job {
namespace {

// A number that nobody says is that of one full batch.
StatusOr<v1::DatasetFacts> FactsOf(const v1::JobSpec& spec, const std::string& data_root) {
  const bool remote = data::IsDataUrl(spec.data().path());
  if (remote && !data_root.empty()) {
    return InvalidArgument(
        "data.path: {} is an address, and what is there is not looked at here; leave --data-root "
        "out, or name a copy of the data beneath it: --set data.path=FOLDER",
        spec.data().path());
  }
  if (!data_root.empty()) {
    RING_ASSIGN_OR_RETURN(const auto dataset, data::Dataset::Open({data_root, ""}, spec.data()));
    return dataset->facts();
  }
  if (spec.data().format().empty()) {
    if (remote) {
      return InvalidArgument(
          "data.format: missing; give it: {} is an address, and what is there is not looked at "
          "here",
          spec.data().path());
    }
    return InvalidArgument("data.format: missing; give it, or --data-root, where the data are");
  }
  auto usual = data::UsualFacts(spec.data());
  if (!usual.ok()) {
    return Error(usual.status().code(), "{}; give --data-root, where the data are",
                 ringmaster::Message(usual.status()));
  }
  v1::DatasetFacts facts = *std::move(usual);
  const v1::DataSource& source = spec.data();
  facts.set_train_samples(source.has_take() ? source.take() : spec.batch());
  facts.set_test_samples(source.has_take_test() ? source.take_test() : spec.batch());
  return facts;
}

// What a script computes nobody knows who has not run it.
Status NotKnown(const v1::JobSpec& spec) {
  const v1::Script& script = spec.script();
  uint64_t bytes = 0;
  for (const v1::ScriptFile& file : script.files()) bytes += file.content().size();
  std::string known =
      fmt::format("{} of files, the interpreter {}", FormatBytes(bytes), InterpreterOf(script));
  if (spec.has_batch()) known += fmt::format(", batch {}", spec.batch());
  if (spec.has_shards()) known += fmt::format(", {} shards", spec.shards());
  return FailedPrecondition(
      "{}: what {} computes is known when a worker has run it up to its attach: parameters, memory "
      "and times are not known before. What is known: {}. Submit it with --set steps=1: `ringctl "
      "model summary JOB` then has its tensors, `ringctl status JOB` the times of its step",
      spec.name(), script.file(), known);
}

}  // namespace

StatusOr<v1::JobSpec> ReadJob(const std::string& file, const std::vector<std::string>& overrides) {
  RING_ASSIGN_OR_RETURN(const std::string text, ReadNamedFile("job file", file));
  RING_ASSIGN_OR_RETURN(const v1::JobSpec spec,
                        ParseJobFile(file, text, overrides, FilesBeside(file), ScriptBeside(file)));
  RING_RETURN_IF_ERROR(Annotate(Validate(spec), file));
  return spec;
}

StatusOr<v1::ResultSpec> ResultWithoutCluster(v1::JobSpec spec, const std::string& data_root) {
  if (spec.has_script()) return NotKnown(spec);
  const bool split_of_unknown =
      spec.has_validation() && data_root.empty() && !spec.data().has_take();
  if (split_of_unknown) {
    spec.clear_validation();
    spec.clear_checkpoint();  // it may name a metric of the validation set
  }
  // How many steps there are is not known either: lengths cannot be held against them, and neither
  // programs nor memory depend on them.
  if (data_root.empty() && !spec.data().has_take()) {
    spec.mutable_optimizer()->clear_schedule();
    if (spec.optimizer().has_ema()) spec.mutable_optimizer()->mutable_ema()->clear_start_update();
  }
  RING_ASSIGN_OR_RETURN(const v1::DatasetFacts facts, FactsOf(spec, data_root));
  RING_ASSIGN_OR_RETURN(v1::ResolvedJob job, Resolve(spec, facts, {}));
  v1::ResultSpec result = std::move(*job.mutable_result());
  if (split_of_unknown) result.mutable_data_use()->set_validation_samples(spec.batch());
  return result;
}

v1::ResultSpec WithShard(v1::ResultSpec result, uint32_t samples) {
  result.set_batch(samples);
  result.set_shards(1);
  result.mutable_data_use()->set_train_samples(samples);
  result.mutable_data_use()->set_test_samples(samples);
  result.mutable_data_use()->set_validation_samples(0);
  return result;
}

std::string TitleOf(const v1::JobSpec& spec, const v1::ResultSpec& result) {
  std::vector<std::string> columns;
  for (const v1::Column& column : result.graph().columns()) {
    const bool whole = column.type() == v1::ELEMENT_TYPE_INT32;
    std::string text = column.name();
    if (column.shape_size() > 0) text += fmt::format(" {}", fmt::join(column.shape(), "x"));
    if (whole) text += fmt::format(" below {}", column.limit());
    columns.push_back(std::move(text));
  }
  return fmt::format("{}: {} in {}, of {}", spec.name(),
                     spec.has_script()                ? "the script " + spec.script().file()
                     : spec.model().layers_size() > 0 ? "a model of layers"
                                                      : spec.model().name(),
                     ShortName(*v1::Policy_descriptor()->FindValueByNumber(result.policy())),
                     fmt::join(columns, ", "));
}

}  // namespace ringmaster::job

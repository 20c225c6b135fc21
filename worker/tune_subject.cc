#include "worker/tune_subject.h"

#include <set>
#include <utility>

#include "common/data/dataset.h"
#include "common/data/usual_facts.h"
#include "common/job/field_names.h"
#include "common/job/resolve.h"

namespace ringmaster::worker {
namespace {

// A number that nobody says is that of one full batch.
StatusOr<v1::DatasetFacts> FactsOf(const v1::JobSpec& spec, const std::string& data_root) {
  if (!data_root.empty()) {
    RING_ASSIGN_OR_RETURN(const auto dataset, data::Dataset::Open({data_root, ""}, spec.data()));
    return dataset->facts();
  }
  if (spec.data().format().empty()) {
    return InvalidArgument("data.format: missing; give it, or --data-root, where the data are");
  }
  RING_ASSIGN_OR_RETURN(v1::DatasetFacts facts, data::UsualFacts(spec.data().format()));
  const v1::DataSource& source = spec.data();
  facts.set_train_samples(source.has_take() ? source.take() : spec.batch());
  facts.set_test_samples(source.has_take_test() ? source.take_test() : spec.batch());
  return facts;
}

StatusOr<v1::ResultSpec> ResultOf(v1::JobSpec spec, const std::string& data_root) {
  const bool split_of_unknown =
      spec.has_validation() && data_root.empty() && !spec.data().has_take();
  if (split_of_unknown) {
    spec.clear_validation();
    spec.clear_checkpoint();  // it may name a metric of the validation set
  }
  RING_ASSIGN_OR_RETURN(const v1::DatasetFacts facts, FactsOf(spec, data_root));
  RING_ASSIGN_OR_RETURN(v1::ResolvedJob job, job::Resolve(spec, facts, {}));
  v1::ResultSpec result = std::move(*job.mutable_result());
  if (split_of_unknown) result.mutable_data_use()->set_validation_samples(spec.batch());
  return result;
}

// One shard of so many samples, of training and of evaluation.
v1::ResultSpec WithShard(v1::ResultSpec result, uint32_t samples) {
  result.set_batch(samples);
  result.set_shards(1);
  result.mutable_data_use()->set_train_samples(samples);
  result.mutable_data_use()->set_test_samples(samples);
  result.mutable_data_use()->set_validation_samples(0);
  return result;
}

std::string TitleOf(const v1::JobSpec& spec, const v1::ResultSpec& result) {
  const v1::DataUse& use = result.data_use();
  return fmt::format("{}: {} in {}, images of {}x{}x{}, {} classes", spec.name(),
                     result.model().name(),
                     job::ShortName(*v1::Policy_descriptor()->FindValueByNumber(result.policy())),
                     use.height(), use.width(), use.channels(), result.data().classes());
}

std::string NoteOf(const v1::JobSpec& spec, const TuneSubjectOptions& options) {
  const bool known = spec.data().has_take() && spec.data().has_take_test();
  if (known || !options.data_root.empty() || !options.samples.empty()) return "";
  return "the job file does not say how many samples there are: smaller last batches are left out; "
         "--data-root DIR, or data.take and data.take_test, would tell their size";
}

}  // namespace

StatusOr<TuneSubject> TuneSubjectOf(const v1::JobSpec& spec, const TuneSubjectOptions& options) {
  RING_ASSIGN_OR_RETURN(const v1::ResultSpec result, ResultOf(spec, options.data_root));
  TuneSubject subject = {TitleOf(spec, result), NoteOf(spec, options), {}};
  std::vector<v1::ResultSpec> results;
  for (const uint32_t samples : std::set(options.samples.begin(), options.samples.end())) {
    results.push_back(WithShard(result, samples));
  }
  if (results.empty()) results.push_back(result);
  for (const v1::ResultSpec& one : results) {
    RING_ASSIGN_OR_RETURN(ProgramSet programs, ProgramSet::Build(one));
    subject.programs.push_back(std::move(programs));
  }
  return subject;
}

}  // namespace ringmaster::worker

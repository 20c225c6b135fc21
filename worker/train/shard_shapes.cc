#include "worker/train/shard_shapes.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/zoo/zoo.h"

namespace ringmaster::worker {
namespace {

void AddBatch(graph::Mode mode, uint64_t n, uint64_t shards, std::set<ShardShape>* shapes) {
  if (n / shards > 0) shapes->insert({mode, n / shards});
  if (n % shards > 0) shapes->insert({mode, n / shards + 1});
}

// Shapes, parameters and order must be the same in every program: one state serves them all.
Status CheckSameModel(const graph::Program& a, const graph::Program& b) {
  const bool same = std::ranges::equal(a.parameters, b.parameters,
                                       [](const graph::Parameter& x, const graph::Parameter& y) {
                                         return x.name == y.name && x.shape == y.shape;
                                       });
  const bool same_order = a.mode != b.mode || a.gradient_order == b.gradient_order;
  if (same && same_order) return absl::OkStatus();
  return Internal("programs for {} and {} samples differ in their parameters", a.samples,
                  b.samples);
}

}  // namespace

std::set<ShardShape> ShardShapes(const v1::ResultSpec& spec) {
  std::set<ShardShape> shapes;
  const auto add = [&](graph::Mode mode, uint64_t samples) {
    if (samples >= spec.batch()) AddBatch(mode, spec.batch(), spec.shards(), &shapes);
    AddBatch(mode, samples % spec.batch(), spec.shards(), &shapes);
  };
  add(graph::Mode::kTraining, spec.data_use().train_samples());
  add(graph::Mode::kInference, spec.data_use().test_samples());
  add(graph::Mode::kInference, spec.data_use().validation_samples());
  return shapes;
}

StatusOr<ProgramSet> ProgramSet::Build(const v1::ResultSpec& spec) {
  ProgramSet set;
  for (const ShardShape& shape : ShardShapes(spec)) {
    const zoo::ProgramOptions options{.mode = shape.mode,
                                      .samples = static_cast<int64_t>(shape.samples),
                                      .height = spec.data_use().height(),
                                      .width = spec.data_use().width(),
                                      .channels = spec.data_use().channels(),
                                      .classes = spec.data().classes(),
                                      .policy = spec.policy()};
    RING_ASSIGN_OR_RETURN(graph::Program program, zoo::BuildProgram(spec.model(), options));
    set.programs_.emplace(shape, std::move(program));
  }
  if (set.programs_.empty() || set.programs_.begin()->first.mode != graph::Mode::kTraining) {
    return InvalidArgument("the dataset has no training samples");
  }
  for (const auto& [shape, program] : set.programs_) {
    RING_RETURN_IF_ERROR(CheckSameModel(set.training(), program));
  }
  return set;
}

const graph::Program& ProgramSet::training() const {
  RING_CHECK(!programs_.empty(), "a program set without a training program");
  return programs_.begin()->second;  // kTraining sorts first
}

}  // namespace ringmaster::worker

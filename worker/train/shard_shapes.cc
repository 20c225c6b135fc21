#include "worker/train/shard_shapes.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/graph/message/message.h"
#include "worker/data/shard_loader.h"

namespace ringmaster::worker {
namespace {

void AddBatch(graph::Mode mode, uint64_t n, uint64_t shards, std::set<ShardShape>* shapes) {
  if (n / shards > 0) shapes->insert({mode, n / shards});
  if (n % shards > 0) shapes->insert({mode, n / shards + 1});
}

}  // namespace

bool Predicts(const v1::ResultSpec& spec) { return spec.kind() == v1::JOB_KIND_PREDICT; }
bool Trains(const v1::ResultSpec& spec) {
  return spec.kind() != v1::JOB_KIND_EVALUATE && !Predicts(spec);
}

std::set<ShardShape> ShardShapes(const v1::ResultSpec& spec) {
  std::set<ShardShape> shapes;
  const auto add = [&](graph::Mode mode, uint64_t samples) {
    if (samples >= spec.batch()) AddBatch(mode, spec.batch(), spec.shards(), &shapes);
    AddBatch(mode, samples % spec.batch(), spec.shards(), &shapes);
  };
  if (Trains(spec)) add(graph::Mode::kTraining, spec.data_use().train_samples());
  add(graph::Mode::kInference, spec.data_use().test_samples());
  add(graph::Mode::kInference, spec.data_use().validation_samples());
  return shapes;
}

StatusOr<ProgramSet> ProgramSet::Build(const v1::ResultSpec& spec,
                                       const v1::MemoryOptions& memory) {
  ProgramSet set;
  const auto labels = MixesLabels(spec) ? graph::Labels::kMixed : graph::Labels::kOwn;
  for (const ShardShape& shape : ShardShapes(spec)) {
    const graph::ProgramOptions options{.mode = shape.mode,
                                        .samples = static_cast<int64_t>(shape.samples),
                                        .policy = spec.policy(),
                                        .memory = memory,
                                        .labels = labels};
    RING_ASSIGN_OR_RETURN(graph::Program program, graph::BuildProgram(spec.graph(), options));
    set.programs_.emplace(shape, std::move(program));
  }
  if (set.programs_.empty() ||
      (Trains(spec) && set.programs_.begin()->first.mode != graph::Mode::kTraining)) {
    return InvalidArgument("the dataset has no {} samples", Trains(spec) ? "training" : "such");
  }
  return set;
}

const graph::Program* ProgramSet::largest(graph::Mode mode) const {
  const graph::Program* found = nullptr;
  for (const auto& [shape, program] : programs_) {
    if (shape.mode == mode) found = &program;  // by samples, ascending
  }
  return found;
}

const graph::Program& ProgramSet::any() const {
  RING_CHECK(!programs_.empty(), "a program set without a program");
  return programs_.begin()->second;  // kTraining sorts first
}

}  // namespace ringmaster::worker

#include "common/zoo/zoo.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/edit_distance.h"
#include "common/graph/autodiff.h"
#include "common/graph/builder.h"
#include "common/graph/passes/dead_nodes.h"
#include "common/graph/passes/fusion.h"
#include "common/graph/passes/policy.h"
#include "common/zoo/models.h"

namespace ringmaster::zoo {
namespace {

constexpr uint32_t kMostUnits = 65536;
constexpr int kMostLayers = 64;

// One model: how it is built, and which of the options of v1::Model it has.
struct Entry {
  const char* name;
  graph::ValueId (*build)(graph::GraphBuilder&, const v1::Model&, graph::ValueId, int64_t);
  bool batch_norm, dropout, hidden;
};

constexpr Entry kModels[] = {
    {.name = "alexnet",
     .build = BuildAlexnet,
     .batch_norm = true,
     .dropout = true,
     .hidden = false},
    {.name = "mlp", .build = BuildMlp, .batch_norm = false, .dropout = true, .hidden = true},
};

Status UnknownModel(const std::string& name) {
  std::vector<std::string> names;
  for (const Entry& entry : kModels) names.emplace_back(entry.name);
  const std::string known = fmt::format("the models are {}", fmt::join(names, ", "));
  if (name.empty()) return InvalidArgument("model.name is missing; {}", known);
  const auto nearest = std::min_element(
      names.begin(), names.end(),
      [&](const auto& a, const auto& b) { return EditDistance(name, a) < EditDistance(name, b); });
  return InvalidArgument("there is no model named \"{}\"; did you mean {}? ({})", name, *nearest,
                         known);
}

StatusOr<const Entry*> FindModel(const std::string& name) {
  for (const Entry& entry : kModels) {
    if (name == entry.name) return &entry;
  }
  return UnknownModel(name);
}

// The options that the model has, as words.
std::string OptionsOf(const Entry& entry) {
  std::vector<std::string> options;
  if (entry.batch_norm) options.emplace_back("batch_norm");
  if (entry.dropout) options.emplace_back("dropout");
  if (entry.hidden) options.emplace_back("hidden");
  return fmt::format("{}", fmt::join(options, ", "));
}

Status CheckOption(const Entry& entry, const char* option, bool given, bool known) {
  if (!given || known) return absl::OkStatus();
  return InvalidArgument("model {} has no option {}; its options are {}", entry.name, option,
                         OptionsOf(entry));
}

Status CheckHidden(const v1::Model& model) {
  if (model.hidden().values_size() > kMostLayers) {
    return InvalidArgument("model.hidden has {} layers; at most {} are allowed",
                           model.hidden().values_size(), kMostLayers);
  }
  for (uint32_t units : model.hidden().values()) {
    if (units < 1 || units > kMostUnits) {
      return InvalidArgument("model.hidden: a layer of {} units; 1 to {} are allowed", units,
                             kMostUnits);
    }
  }
  return absl::OkStatus();
}

StatusOr<graph::DType> ComputeType(v1::Policy policy) {
  if (policy == v1::POLICY_FLOAT32) return graph::DType::kFloat32;
  if (policy == v1::POLICY_MIXED_BFLOAT16) return graph::DType::kBFloat16;
  return InvalidArgument("policy {} is neither float32 nor mixed_bfloat16",
                         static_cast<int>(policy));
}

StatusOr<graph::Program> BuildForward(const v1::Model& resolved, const ProgramOptions& options) {
  RING_ASSIGN_OR_RETURN(const Entry* entry, FindModel(resolved.name()));
  graph::GraphBuilder builder(options.mode, options.samples);
  const graph::ValueId images = builder.Input(options.height, options.width, options.channels);
  const graph::ValueId logits = entry->build(builder, resolved, images, options.classes);
  builder.SoftmaxCrossEntropy("loss", logits);
  return builder.Finish();
}

}  // namespace

StatusOr<v1::Model> ResolveModel(const v1::Model& model) {
  RING_ASSIGN_OR_RETURN(const Entry* entry, FindModel(model.name()));
  RING_RETURN_IF_ERROR(
      CheckOption(*entry, "batch_norm", model.has_batch_norm(), entry->batch_norm));
  RING_RETURN_IF_ERROR(CheckOption(*entry, "dropout", model.has_dropout(), entry->dropout));
  RING_RETURN_IF_ERROR(CheckOption(*entry, "hidden", model.has_hidden(), entry->hidden));
  if (!(model.dropout() >= 0 && model.dropout() < 1)) {
    return InvalidArgument("model.dropout is {}; it must be at least 0 and under 1",
                           model.dropout());
  }
  RING_RETURN_IF_ERROR(CheckHidden(model));
  v1::Model resolved = model;
  if (entry->batch_norm) resolved.set_batch_norm(model.batch_norm());
  if (entry->dropout) resolved.set_dropout(model.dropout());
  if (entry->hidden && !model.has_hidden()) {
    resolved.mutable_hidden()->add_values(2048);
    resolved.mutable_hidden()->add_values(2048);
  }
  return resolved;
}

StatusOr<graph::Program> BuildProgram(const v1::Model& model, const ProgramOptions& options) {
  RING_ASSIGN_OR_RETURN(const v1::Model resolved, ResolveModel(model));
  RING_ASSIGN_OR_RETURN(const graph::DType compute, ComputeType(options.policy));
  if (options.classes < 1) {
    return InvalidArgument("model {} needs at least 1 class, got {}", model.name(),
                           options.classes);
  }
  StatusOr<graph::Program> forward = BuildForward(resolved, options);
  if (!forward.ok()) return Annotate(forward.status(), "model " + model.name());
  graph::Program program = std::move(forward).value();
  if (options.mode == graph::Mode::kTraining) {
    RING_RETURN_IF_ERROR(graph::Differentiate(&program));
  }
  RING_RETURN_IF_ERROR(graph::ApplyPolicy(&program, compute));
  graph::FuseActivations(&program);
  graph::RemoveDeadNodes(&program);
  return program;
}

}  // namespace ringmaster::zoo

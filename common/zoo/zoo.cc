#include "common/zoo/zoo.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/graph/builder.h"
#include "common/graph/message/message.h"
#include "common/zoo/model_table.h"

namespace ringmaster::zoo {
namespace {

// The options that the model has, as words.
std::string OptionWords(const Entry& entry) {
  std::vector<std::string> options;
  for (OptionDescription& option : OptionsOf(entry)) options.push_back(std::move(option.name));
  return fmt::format("{}", fmt::join(options, ", "));
}

Status CheckOption(const Entry& entry, const char* option, bool given, bool known) {
  if (!given || known) return absl::OkStatus();
  return InvalidArgument("model {} has no option {}; its options are {}", entry.name, option,
                         OptionWords(entry));
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

Status CheckDepth(const v1::Model& model) {
  if (!model.has_depth() || std::ranges::count(kDepths, model.depth()) > 0) return absl::OkStatus();
  return InvalidArgument("model.depth is {}; it must be one of {}", model.depth(),
                         fmt::join(kDepths, ", "));
}

v1::Model WithDefaults(const Entry& entry, const v1::Model& model) {
  v1::Model resolved = model;
  if (entry.batch_norm && !model.has_batch_norm()) resolved.set_batch_norm(*entry.batch_norm);
  if (entry.dropout && !model.has_dropout()) resolved.set_dropout(*entry.dropout);
  if (entry.hidden && !model.has_hidden()) {
    for (uint32_t units : *entry.hidden) resolved.mutable_hidden()->add_values(units);
  }
  if (entry.depth && !model.has_depth()) resolved.set_depth(*entry.depth);
  return resolved;
}

}  // namespace

StatusOr<v1::Model> ResolveModel(const v1::Model& model) {
  RING_ASSIGN_OR_RETURN(const Entry* entry, FindModel(model.name()));
  const auto check = [&](const char* option, bool given, bool known) {
    return CheckOption(*entry, option, given, known);
  };
  RING_RETURN_IF_ERROR(check("batch_norm", model.has_batch_norm(), entry->batch_norm.has_value()));
  RING_RETURN_IF_ERROR(check("dropout", model.has_dropout(), entry->dropout.has_value()));
  RING_RETURN_IF_ERROR(check("hidden", model.has_hidden(), entry->hidden.has_value()));
  RING_RETURN_IF_ERROR(check("depth", model.has_depth(), entry->depth.has_value()));
  if (!(model.dropout() >= 0 && model.dropout() < 1)) {
    return InvalidArgument("model.dropout is {}; it must be at least 0 and under 1",
                           model.dropout());
  }
  RING_RETURN_IF_ERROR(CheckHidden(model));
  RING_RETURN_IF_ERROR(CheckDepth(model));
  return WithDefaults(*entry, model);
}

StatusOr<v1::Graph> BuildGraph(const v1::Model& model, const ProgramOptions& options) {
  RING_ASSIGN_OR_RETURN(const v1::Model resolved, ResolveModel(model));
  RING_ASSIGN_OR_RETURN(const Entry* entry, FindModel(model.name()));
  if (options.classes < 1) {
    return InvalidArgument("model {} needs at least 1 class, got {}", model.name(),
                           options.classes);
  }
  if (entry->check_images != nullptr) {
    const Status status = entry->check_images(options.height, options.width);
    if (!status.ok()) return Annotate(status, "model " + model.name());
  }
  graph::GraphBuilder builder(graph::Mode::kTraining, 1);
  const graph::ValueId images = builder.Input(options.height, options.width, options.channels);
  const graph::ValueId logits = entry->build(builder, resolved, images, options.classes);
  builder.SoftmaxCrossEntropy("loss", logits);
  const StatusOr<graph::Program> forward = builder.Finish();
  if (!forward.ok()) return Annotate(forward.status(), "model " + model.name());
  return graph::ToMessage(*forward);
}

StatusOr<graph::Program> BuildForward(const v1::Model& model, const ProgramOptions& options) {
  RING_ASSIGN_OR_RETURN(const v1::Graph graph, BuildGraph(model, options));
  return graph::FromMessage(graph, options.mode, options.samples);
}

StatusOr<graph::Program> BuildProgram(const v1::Model& model, const ProgramOptions& options) {
  RING_ASSIGN_OR_RETURN(const v1::Graph graph, BuildGraph(model, options));
  return graph::BuildProgram(
      graph, {.mode = options.mode, .samples = options.samples, .policy = options.policy});
}

}  // namespace ringmaster::zoo

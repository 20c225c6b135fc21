#include "common/zoo/zoo.h"

#include <string>
#include <utility>

#include "common/graph/builder.h"
#include "common/graph/layers/losses.h"
#include "common/graph/message/message.h"
#include "common/zoo/model_table.h"

namespace ringmaster::zoo {
namespace {

// What a job says of options, by the fields of their names, beside those given.
Attributes GivenOptions(const v1::Model& model, Attributes given) {
  const auto add = [&](const char* name) {
    v1::Attribute* const attribute = given.Add();
    attribute->set_name(name);
    return attribute;
  };
  if (model.has_batch_norm()) add("batch_norm")->set_b(model.batch_norm());
  if (model.has_dropout()) add("dropout")->set_f(model.dropout());
  if (model.has_depth()) add("depth")->set_i(model.depth());
  if (model.has_hidden()) {
    const auto& units = model.hidden().values();
    add("hidden")->mutable_ints()->mutable_values()->Assign(units.begin(), units.end());
  }
  return given;
}

// The fields of v1::Model that `options` has.
v1::Model WithOptions(v1::Model model, const Attributes& options) {
  for (const v1::Attribute& option : options) {
    if (option.name() == "batch_norm") model.set_batch_norm(option.b());
    if (option.name() == "dropout") model.set_dropout(option.f());
    if (option.name() == "depth") model.set_depth(static_cast<uint32_t>(option.i()));
    if (option.name() != "hidden") continue;
    model.mutable_hidden()->clear_values();
    for (const int64_t units : option.ints().values()) {
      model.mutable_hidden()->add_values(static_cast<uint32_t>(units));
    }
  }
  return model;
}

std::string Named(const v1::Model& model) { return "model " + model.name(); }

Status NoLoss(const v1::Model& model) {
  return InvalidArgument(
      "model {} with head none ends in features and has no loss to train by: head own or gap has",
      model.name());
}

StatusOr<ResolvedOptions> Resolve(const Entry& entry, const v1::Model& model,
                                  const Attributes& more) {
  auto resolved = entry.resolve(GivenOptions(model, more));
  if (!resolved.ok()) return Annotate(resolved.status(), Named(model));
  return resolved;
}

}  // namespace

StatusOr<v1::Model> ResolveModel(const v1::Model& model) {
  RING_ASSIGN_OR_RETURN(const Entry* entry, FindModel(model.name()));
  RING_ASSIGN_OR_RETURN(const ResolvedOptions resolved, Resolve(*entry, model, {}));
  if (!resolved.has_loss) return NoLoss(model);
  return WithOptions(model, resolved.options);
}

StatusOr<graph::Program> BuildLayers(const v1::Model& model, const ProgramOptions& options) {
  RING_ASSIGN_OR_RETURN(const Entry* entry, FindModel(model.name()));
  RING_ASSIGN_OR_RETURN(const ResolvedOptions resolved, Resolve(*entry, model, options.more));
  if (options.classes < 1) {
    return InvalidArgument("model {} needs at least 1 class, got {}", model.name(),
                           options.classes);
  }
  graph::GraphBuilder builder(1);
  const graph::ValueId images = builder.Input(options.height, options.width, options.channels);
  const graph::ValueId made = entry->build(
      resolved.options, {options.height, options.width, options.channels, options.classes}, builder,
      images);
  if (resolved.has_loss) builder.Add("loss", graph::layers::SoftmaxCrossEntropy{}, made);
  auto forward = builder.Finish();
  if (!forward.ok()) return Annotate(forward.status(), Named(model));
  return forward;
}

StatusOr<v1::Graph> BuildGraph(const v1::Model& model, const ProgramOptions& options) {
  RING_ASSIGN_OR_RETURN(const graph::Program forward, BuildLayers(model, options));
  if (forward.outputs.empty()) return NoLoss(model);
  return graph::ToMessage(forward);
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

// The table of models: one row a model, made of its options' struct and the function that builds
// its layers; each family's file has its rows. Immutable, thread-safe (free functions). It makes
// no graph: common/model/build.h does.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/fields.h"
#include "common/graph/builder.h"
#include "common/graph/layers/options.h"
#include "common/status.h"
#include "ringmaster/v1/graph.pb.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::zoo {

struct DataShape {
  int64_t height = 224, width = 224, channels = 3, classes = 1000;
};
inline constexpr DataShape kCifar = {32, 32, 3, 10};

using Attributes = graph::layers::Attributes;

// Options with their defaults, checked.
struct ResolvedOptions {
  Attributes options;    // by name
  bool has_loss = true;  // false: it ends in features
};

struct Entry {
  std::string name;
  std::string description;
  DataShape usual;  // what its authors, or Keras, give it
  std::vector<FieldDescription> options;
  // An option by itself, in its own type; nothing when it is not one of its values.
  std::optional<v1::Attribute> (*own_form)(const v1::Attribute& given) = nullptr;
  // INVALID_ARGUMENT: an option that it does not have, of another type or out of range.
  std::function<StatusOr<ResolvedOptions>(const Attributes& given)> resolve = {};
  // From resolved options: the logits, or the features where it has no loss.
  std::function<graph::ValueId(const Attributes& options, const DataShape& data,
                               graph::GraphBuilder& builder, graph::ValueId images)>
      build = {};
  // Elements of a layer `normalization` that Keras counts though it changes nothing; nullptr: none.
  int64_t (*constants)(int64_t channels) = nullptr;
};
using Family = std::vector<Entry>;

// A row. Options: members, Fields(), and Status Check() const where ranges do not say everything; a
// row's own defaults are those of `defaults`.
template <typename Options>
[[nodiscard]] Entry MakeEntry(std::string name, std::string description, const DataShape& usual,
                              graph::ValueId (*build)(const Options&, const DataShape&,
                                                      graph::GraphBuilder&, graph::ValueId images),
                              const Options& defaults = {}) {
  Entry entry = {std::move(name), std::move(description), usual, DescribeFields(defaults),
                 graph::layers::OwnForm<Options>};
  entry.resolve = [defaults](const Attributes& given) -> StatusOr<ResolvedOptions> {
    Options options = defaults;
    RING_RETURN_IF_ERROR(graph::layers::ReadOptions(given, &options));
    if constexpr (requires { options.Check(); }) RING_RETURN_IF_ERROR(options.Check());
    ResolvedOptions resolved;
    graph::layers::WriteOptions<Options>(options, nullptr, &resolved.options);
    std::sort(resolved.options.begin(), resolved.options.end(),
              [](const auto& a, const auto& b) { return a.name() < b.name(); });
    if constexpr (requires { options.head; }) {
      resolved.has_loss = options.head != decltype(options.head)::kNone;
    }
    return resolved;
  };
  entry.build = [build](const Attributes& given, const DataShape& data,
                        graph::GraphBuilder& builder, graph::ValueId images) {
    Options options;
    const Status status = graph::layers::ReadOptions(given, &options);
    if (!status.ok()) builder.Fail(status);
    return build(options, data, builder, images);
  };
  return entry;
}

// The families, a file each.
[[nodiscard]] Family Alexnets();
[[nodiscard]] Family Efficientnets();
[[nodiscard]] Family Inceptions();
[[nodiscard]] Family Mlps();
[[nodiscard]] Family Mobilenets();
[[nodiscard]] Family Nasnets();
[[nodiscard]] Family Resnets();
[[nodiscard]] Family Vggs();

struct ModelDescription {
  std::string name;
  std::string description;  // one line
  std::vector<FieldDescription> options;
};

// By name.
[[nodiscard]] const std::vector<Entry>& ModelTable();
[[nodiscard]] std::vector<ModelDescription> ListModels();
// INVALID_ARGUMENT names the models, and the one that was meant.
[[nodiscard]] StatusOr<const Entry*> FindModel(const std::string& name);
[[nodiscard]] std::vector<std::string> ModelNames();

// The model's layers behind `images`; `made` is then what they make. False: those are features, and
// there is no loss for them. INVALID_ARGUMENT names the model, the option and what is allowed.
[[nodiscard]] StatusOr<bool> AddModel(const v1::Model& model, const DataShape& data,
                                      graph::GraphBuilder& builder, graph::ValueId images,
                                      graph::ValueId* made);

// For a job: checks name and options (each option belongs to the model and is in range) and fills
// defaults.
[[nodiscard]] StatusOr<v1::Model> ResolveModel(const v1::Model& model);
// Likewise; and there is a loss, which a job that predicts can do without.
[[nodiscard]] Status CheckLoss(const v1::Model& model);

}  // namespace ringmaster::zoo

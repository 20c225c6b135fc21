#include "common/model/build.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "common/graph/builder.h"
#include "common/graph/layers/layer_table.h"
#include "common/graph/layers/losses.h"
#include "common/graph/message/message.h"
#include "common/model/expand.h"
#include "common/model/kind.h"
#include "common/text.h"
#include "common/zoo/zoo.h"

namespace ringmaster::model {
namespace {

using graph::GraphBuilder;
using graph::ValueId;
using graph::layers::Attributes;
using graph::layers::FindOutput;
using graph::layers::LayerKind;
using graph::layers::OutputKind;
using Layers = google::protobuf::RepeatedPtrField<v1::Layer>;
using Role = graph::Output::Role;

constexpr int kMostInputs = 256, kMostOptions = 64;  // of a layer
constexpr size_t kMostWhere = 400;                   // bytes

// `net.yaml:9:5: add1 (add)`.
std::string PlaceOf(const v1::Layer& layer) {
  const std::string where = layer.where().empty() ? "" : OneLine(layer.where(), kMostWhere) + ": ";
  return fmt::format("{}{} ({})", where, OneLine(layer.name(), 200), OneLine(layer.kind(), 64));
}

// `why` of a layer; what names it already does so once.
Status At(const v1::Layer& layer, const Status& why) {
  std::string text = Message(why);
  for (const std::string& name :
       {fmt::format("{} ({}): ", layer.name(), layer.kind()), fmt::format("{}: ", layer.name())}) {
    if (text.starts_with(name)) text.erase(0, name.size());
  }
  return Error(why.code(), "{}: {}", PlaceOf(layer), text);
}

Status CheckLayer(const v1::Layer& layer) {
  if (!graph::IsName(layer.name())) return InvalidArgument("the layer's name is none");
  if (layer.kind() != kZoo && graph::layers::FindLayer(layer.kind()) == nullptr) {
    return InvalidArgument("there is no such layer; `ringctl model layers` lists them");
  }
  if (layer.inputs_size() <= kMostInputs && layer.attributes_size() <= kMostOptions) {
    return absl::OkStatus();
  }
  return InvalidArgument("{} inputs and {} options; at most {} and {} are allowed",
                         layer.inputs_size(), layer.attributes_size(), kMostInputs, kMostOptions);
}

Status CheckLayers(const v1::Model& model) {
  if (!model.name().empty() || model.options_size() > 0) {
    return InvalidArgument("model: it has layers, and a name or options as well");
  }
  if (static_cast<size_t>(model.layers_size()) > kMaxLayers) {
    return InvalidArgument("model: {} layers; at most {} are allowed", model.layers_size(),
                           kMaxLayers);
  }
  for (const v1::Layer& layer : model.layers()) {
    const Status status = CheckLayer(layer);
    if (!status.ok()) return At(layer, status);
  }
  return absl::OkStatus();
}

class LayerBuilder {
 public:
  explicit LayerBuilder(const zoo::DataShape& data) : data_(data), builder_(1) {
    values_["image"] = builder_.Input(data.height, data.width, data.channels);
  }

  StatusOr<graph::Program> Build(const v1::Model& model, const Outputs& outputs) {
    for (const v1::Layer& layer : model.layers()) {
      const Status status = Add(layer);
      if (!status.ok()) return At(layer, status);
      last_ = &layer;
    }
    if (model.layers_size() == 0) RING_RETURN_IF_ERROR(AddNamed(model));
    if (ends_in_logits_ || !outputs.losses.empty()) RING_RETURN_IF_ERROR(AddOutputs(outputs));
    RING_RETURN_IF_ERROR(CheckRead(model));
    return builder_.Finish();
  }

 private:
  // What that is, which is read then.
  StatusOr<ValueId> Read(const std::string& name) {
    const auto at = values_.find(name);
    if (at == values_.end()) {
      return InvalidArgument("it reads \"{}\", which is nothing that stands before it",
                             OneLine(name, 200));
    }
    read_.insert(name);
    if (const auto owner = owners_.find(name); owner != owners_.end()) read_.insert(owner->second);
    return at->second;
  }

  Status Add(const v1::Layer& layer) {
    std::vector<ValueId> inputs;
    for (const std::string& name : layer.inputs()) {
      RING_ASSIGN_OR_RETURN(inputs.emplace_back(), Read(name));
    }
    if (inputs.empty()) inputs.push_back(values_.at("image"));
    Attributes options = layer.attributes();
    for (v1::Attribute& option : options) RING_RETURN_IF_ERROR(ResolveFact(&option));
    ends_in_logits_ = true;
    if (layer.kind() == kZoo) {
      RING_ASSIGN_OR_RETURN(const ValueId made, AddZoo(options, inputs));
      return Name(layer, {made});
    }
    const LayerKind& kind = *graph::layers::FindLayer(layer.kind());
    if (inputs.size() < kind.inputs || (inputs.size() > kind.inputs && !kind.more_inputs)) {
      return InvalidArgument("it reads {} inputs, got {}", kind.inputs, inputs.size());
    }
    RING_ASSIGN_OR_RETURN(const auto made, kind.build(options, builder_, layer.name(), inputs));
    RING_RETURN_IF_ERROR(builder_.status());
    return Name(layer, made);
  }

  // NAME is the first value that it makes; several are also called as they are in the graph.
  Status Name(const v1::Layer& layer, const std::vector<ValueId>& made) {
    if (!values_.emplace(layer.name(), made.at(0)).second) {
      return InvalidArgument("two things are called {}", layer.name());
    }
    for (size_t i = 0; made.size() > 1 && i < made.size(); ++i) {
      const std::string& name = builder_.graph().value(made[i]).name;
      if (!values_.emplace(name, made[i]).second && name != layer.name()) {
        return InvalidArgument("two things are called {}", name);
      }
      owners_.emplace(name, layer.name());
    }
    return absl::OkStatus();
  }

  StatusOr<ValueId> AddZoo(const Attributes& options, const std::vector<ValueId>& inputs) {
    v1::Model model;
    std::string prefix;
    for (const v1::Attribute& option : options) {
      if (option.name() == kZooModel) {
        model.set_name(option.s());
      } else if (option.name() == kZooPrefix) {
        prefix = option.s();
      } else {
        *model.add_options() = option;
      }
    }
    const graph::Shape& images = builder_.shape(inputs[0]);
    if (inputs.size() != 1 || images.size() != 4) {
      return InvalidArgument("expected images (N, H, W, C), got {}", graph::ToString(images));
    }
    ValueId made = graph::kNoValue;
    builder_.SetPrefix(prefix);
    const auto logits = zoo::AddModel(model, {images[1], images[2], images[3], data_.classes},
                                      builder_, inputs[0], &made);
    builder_.SetPrefix("");
    RING_RETURN_IF_ERROR(logits.status());
    ends_in_logits_ = *logits;
    return made;
  }

  // A number of the data in place of its name.
  Status ResolveFact(v1::Attribute* option) const {
    if (!option->has_fact()) return absl::OkStatus();
    const std::string fact = option->fact();
    const int64_t shape[] = {data_.height, data_.width, data_.channels};
    if (fact == "classes" || fact == "label.limit") {
      option->set_i(data_.classes);
      return absl::OkStatus();
    }
    for (size_t axis = 0; axis < std::size(shape); ++axis) {
      if (fact != fmt::format("image.shape.{}", axis)) continue;
      option->set_i(shape[axis]);
      return absl::OkStatus();
    }
    return InvalidArgument(
        "{}: the data have no {}: there are classes, label.limit and "
        "image.shape.0 to 2",
        OneLine(option->name(), 64), OneLine(fact, 64));
  }

  Status CheckRead(const v1::Model& model) const {
    for (const v1::Layer& layer : model.layers()) {
      const bool features = !has_outputs_ && &layer == last_;
      if (features || read_.contains(layer.name())) continue;
      return InvalidArgument("{}: nothing reads it", PlaceOf(layer));
    }
    return absl::OkStatus();
  }

  // A model of the zoo by itself, which nothing calls by a name.
  Status AddNamed(const v1::Model& model) {
    const ValueId image = values_.at("image");
    RING_ASSIGN_OR_RETURN(ends_in_logits_,
                          zoo::AddModel(model, data_, builder_, image, &values_[""]));
    return absl::OkStatus();
  }

  // ---- losses and metrics -----------------------------------------------------------------------

  Status AddOutputs(const Outputs& wanted) {
    has_outputs_ = true;
    Outputs outputs = wanted;
    if (outputs.losses.empty()) outputs.losses.Add()->set_kind("softmax_cross_entropy");
    for (v1::Layer& loss : outputs.losses) {
      if (!loss.name().empty()) continue;
      loss.set_name(outputs.losses.size() == 1 ? "loss" : loss.kind());
    }
    RING_RETURN_IF_ERROR(AddAll(outputs.losses, Role::kLoss, !wanted.losses.empty()));
    if (outputs.metrics.empty()) AddUsualMetric(outputs.losses[0], &outputs.metrics);
    for (v1::Layer& metric : outputs.metrics) {
      if (metric.name().empty()) metric.set_name(metric.kind());
    }
    return AddAll(outputs.metrics, Role::kMeasure, !wanted.metrics.empty());
  }

  static void AddUsualMetric(const v1::Layer& loss, Layers* metrics) {
    const OutputKind* const kind = FindOutput(Role::kLoss, loss.kind());
    v1::Layer& metric = *metrics->Add();
    metric.set_kind(kind->measure);
    *metric.mutable_inputs() = loss.inputs();
  }

  // What nobody wrote stands where the last layer does.
  Status AddAll(const Layers& outputs, Role role, bool written) {
    constexpr int kMostOutputs = 32;  // of a role
    const char* const key = role == Role::kLoss ? "loss" : "metrics";
    if (outputs.size() > kMostOutputs) {
      return InvalidArgument("{}: {} of them; at most {} are allowed", key, outputs.size(),
                             kMostOutputs);
    }
    for (const v1::Layer& output : outputs) {
      const Status status = AddOne(output, role);
      if (status.ok()) continue;
      return At(written || last_ == nullptr ? output : *last_, status);
    }
    return absl::OkStatus();
  }

  Status AddOne(const v1::Layer& output, Role role) {
    const OutputKind* const kind = FindOutput(role, output.kind());
    if (kind == nullptr) {
      const std::vector<std::string> known = graph::layers::OutputNames(role);
      return InvalidArgument("there is no such {}; there are {}",
                             role == Role::kLoss ? "loss" : "metric", fmt::join(known, ", "));
    }
    if (!graph::IsName(output.name())) return InvalidArgument("its name is none");
    if (output.inputs_size() > 2) {
      return InvalidArgument("it reads {} inputs; expected [LAYER, COLUMN]", output.inputs_size());
    }
    const std::string last = last_ == nullptr ? "" : last_->name();
    RING_ASSIGN_OR_RETURN(const ValueId said,
                          Read(output.inputs_size() > 0 ? output.inputs(0) : last));
    const std::string column = output.inputs_size() > 1 ? output.inputs(1) : "label";
    if (kind->of_classes) RING_RETURN_IF_ERROR(CheckClasses(said, column));
    return AddOutput(builder_, output.name(), *kind, output.attributes(), said, column);
  }

  Status CheckClasses(ValueId logits, const std::string& column) const {
    const graph::Shape& shape = builder_.shape(logits);
    if (shape.size() != 2) {
      return InvalidArgument("the last layer makes {}; the loss reads logits (N, classes)",
                             graph::ToString(shape));
    }
    if (shape[1] >= data_.classes) return absl::OkStatus();
    return InvalidArgument("it has {} units, column {} needs {}: write units: classes", shape[1],
                           column, data_.classes);
  }

  const zoo::DataShape data_;
  GraphBuilder builder_;
  std::map<std::string, ValueId> values_;
  std::map<std::string, std::string> owners_;  // of one of several values, the layer
  std::set<std::string> read_;
  const v1::Layer* last_ = nullptr;
  bool ends_in_logits_ = true, has_outputs_ = false;
};

}  // namespace

StatusOr<graph::Program> BuildForward(const v1::Model& model, const zoo::DataShape& data,
                                      const Outputs& outputs) {
  if (model.layers_size() > 0) RING_RETURN_IF_ERROR(CheckLayers(model));
  if (data.classes < 1) return InvalidArgument("the data have no classes");
  return LayerBuilder(data).Build(model, outputs);
}

StatusOr<v1::Graph> BuildGraph(const v1::Model& model, const zoo::DataShape& data,
                               const Outputs& outputs) {
  RING_ASSIGN_OR_RETURN(const graph::Program forward, BuildForward(model, data, outputs));
  if (forward.outputs.empty()) {
    return InvalidArgument(
        "{}: it ends in features and has no loss to train by: write layers "
        "behind it, or head: gap",
        model.layers_size() > 0 ? PlaceOf(*model.layers().rbegin()) : "model " + model.name());
  }
  if (forward.parameters.empty()) {
    return InvalidArgument("model: no layer of it has parameters: there is nothing to train");
  }
  v1::Graph message = graph::ToMessage(forward);
  // Two things may still have one name.
  const auto again = graph::FromMessage(message, graph::Mode::kTraining, 1);
  if (!again.ok()) return Annotate(again.status(), "model");
  return message;
}

StatusOr<v1::Model> Resolve(const v1::Model& model) {
  if (model.layers_size() == 0) return zoo::ResolveModel(model);
  RING_RETURN_IF_ERROR(CheckLayers(model));
  return model;
}

}  // namespace ringmaster::model

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
#include "common/zoo/model_table.h"

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

constexpr char kFirstInput[] = "input";  // unless a column is called so

// `x (8) float32, y int32`.
std::string Listed(const Columns& columns) {
  std::vector<std::string> texts;
  for (const v1::StoredColumn& column : columns) {
    const bool whole = column.type() == v1::ELEMENT_TYPE_INT32;
    texts.push_back(fmt::format(
        "{}{} {}", column.name(),
        column.shape_size() == 0 ? "" : fmt::format(" ({})", fmt::join(column.shape(), ", ")),
        whole ? "int32" : "float32"));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

class LayerBuilder {
 public:
  // `said`: nullptr, or what the losses would read, in place of all outputs.
  LayerBuilder(const Columns& columns, std::vector<Said>* said)
      : columns_(columns), said_(said), builder_(1) {
    for (const v1::StoredColumn& column : columns) {
      const graph::Shape shape(column.shape().begin(), column.shape().end());
      const ValueId value = builder_.Input(column.name(), shape, column.least(), column.limit());
      const bool input = column.use() == v1::COLUMN_USE_INPUT;
      if (input) values_[column.name()] = value;
      const v1::StoredColumn*& first = input ? input_ : target_;
      if (first == nullptr) first = &column;
    }
    if (input_ != nullptr) values_.emplace(kFirstInput, values_.at(input_->name()));
  }

  // What the rest takes for granted.
  [[nodiscard]] Status Check() const {
    if (input_ != nullptr && target_ != nullptr) return builder_.status();
    return InvalidArgument(
        "no column of the data is {}; they have {}: data.inputs and data.targets say which are",
        input_ == nullptr ? "an input" : "a target", Listed(columns_));
  }

  StatusOr<graph::Program> Build(const v1::Model& model, const Outputs& outputs) {
    for (const v1::Layer& layer : model.layers()) {
      Status status = Add(layer);
      if (status.ok()) status = builder_.SetManner({});
      if (!status.ok()) return At(layer, status);
      last_ = &layer;
    }
    if (model.layers_size() == 0) RING_RETURN_IF_ERROR(AddNamed(model));
    const bool held = ends_in_logits_ || !outputs.losses.empty();
    const bool known = !outputs.losses.empty() || target_->type() == v1::ELEMENT_TYPE_INT32;
    if (held && (known || said_ == nullptr)) RING_RETURN_IF_ERROR(AddOutputs(outputs));
    if (said_ == nullptr) RING_RETURN_IF_ERROR(CheckRead(model));
    return builder_.Finish();
  }

 private:
  // What that is, which is read then.
  StatusOr<ValueId> Read(const std::string& name) {
    const auto at = values_.find(name);
    if (at == values_.end()) return Unknown(name);
    read_.insert(name);
    if (const auto owner = owners_.find(name); owner != owners_.end()) read_.insert(owner->second);
    return at->second;
  }

  Status Add(const v1::Layer& layer) {
    std::vector<ValueId> inputs;
    for (const std::string& name : layer.inputs()) {
      RING_ASSIGN_OR_RETURN(inputs.emplace_back(), Read(name));
    }
    if (inputs.empty()) inputs.push_back(values_.at(input_->name()));
    Attributes options = layer.attributes();
    for (v1::Attribute& option : options) RING_RETURN_IF_ERROR(ResolveFact(&option));
    ends_in_logits_ = true;
    GraphBuilder::Manner manner = {.float32 = layer.float32(), .shared = {}};
    if (layer.kind() == kZoo) {
      RING_RETURN_IF_ERROR(builder_.SetManner(manner));
      RING_ASSIGN_OR_RETURN(const ValueId made, AddZoo(options, inputs));
      return Name(layer, {made});
    }
    const LayerKind& kind = *graph::layers::FindLayer(layer.kind());
    TakeShared(kind, &options, &manner);
    RING_RETURN_IF_ERROR(builder_.SetManner(std::move(manner)));
    if (inputs.size() < kind.inputs || (inputs.size() > kind.inputs && !kind.more_inputs)) {
      return InvalidArgument("it reads {} inputs, got {}", kind.inputs, inputs.size());
    }
    RING_ASSIGN_OR_RETURN(const auto made, kind.build(options, builder_, layer.name(), inputs));
    RING_RETURN_IF_ERROR(builder_.status());
    return Name(layer, made);
  }

  // Parameters of other layers, out of the options. A convolution's kernel says its extents then.
  void TakeShared(const LayerKind& kind, Attributes* options, GraphBuilder::Manner* manner) const {
    for (const std::string& role : kind.roles) {
      const auto at = std::ranges::find(*options, role, &v1::Attribute::name);
      if (at == options->end() || !IsParameter(*at)) continue;
      manner->shared[role] = at->s();
      const graph::Parameter* const parameter = builder_.FindParameter(at->s());
      const bool extents =
          std::ranges::find(kind.options, role, &FieldDescription::name) != kind.options.end() &&
          parameter != nullptr && parameter->shape.size() == 4;
      if (extents) {
        const auto height = parameter->shape.begin() + 1;
        at->mutable_ints()->mutable_values()->Assign(height, height + 2);
      } else {
        options->erase(at);
      }
    }
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
    const auto logits = zoo::AddModel(model, ShapeFor(inputs[0]), builder_, inputs[0], &made);
    builder_.SetPrefix("");
    RING_RETURN_IF_ERROR(logits.status());
    ends_in_logits_ = *logits;
    return made;
  }

  Status Unknown(const std::string& name) const {
    std::vector<std::string> known, inputs;
    for (const auto& [one, value] : values_) known.push_back(one);
    for (const v1::StoredColumn& column : columns_) {
      if (column.use() == v1::COLUMN_USE_INPUT) inputs.push_back(column.name());
    }
    const std::string guess = Nearest(name, known);
    return InvalidArgument(
        "it reads \"{}\", which is neither something that stands before it nor an input column; {}",
        OneLine(name, 64),
        guess.empty() ? fmt::format("input columns are {}", fmt::join(inputs, ", "))
                      : fmt::format("did you mean \"{}\"?", guess));
  }

  // What a model of the zoo is made for: the classes of the first target, or a number for each of
  // its numbers.
  [[nodiscard]] zoo::DataShape ShapeFor(ValueId images) const {
    int64_t outputs = target_->limit();
    if (target_->type() != v1::ELEMENT_TYPE_INT32) {
      outputs = 1;
      for (const int64_t extent : target_->shape()) outputs *= extent;
    }
    const graph::Shape& shape = builder_.shape(images);
    return {shape[1], shape[2], shape[3], outputs};
  }

  // A number of the data in place of its name.
  Status ResolveFact(v1::Attribute* option) const {
    if (!option->has_fact()) return absl::OkStatus();
    const std::string fact = option->fact();
    std::vector<std::string> known;
    if (target_->type() == v1::ELEMENT_TYPE_INT32) {
      known.emplace_back("classes");
      if (fact == "classes") {
        option->set_i(target_->limit());
        return absl::OkStatus();
      }
    } else if (fact == "classes") {
      return InvalidArgument(
          "the first target column {} is float32 and has no classes; data.targets says which is "
          "first",
          target_->name());
    }
    for (const v1::StoredColumn& column : columns_) {
      const bool whole = column.type() == v1::ELEMENT_TYPE_INT32;
      if (whole) known.push_back(column.name() + ".limit");
      if (whole && fact == known.back()) {
        option->set_i(column.limit());
        return absl::OkStatus();
      }
      for (int axis = 0; axis < column.shape_size(); ++axis) {
        known.push_back(fmt::format("{}.shape.{}", column.name(), axis));
        if (fact != known.back()) continue;
        option->set_i(column.shape(axis));
        return absl::OkStatus();
      }
    }
    return InvalidArgument("{}: the data have no {}: there are {}", OneLine(option->name(), 64),
                           OneLine(fact, 64), fmt::join(known, ", "));
  }

  Status CheckRead(const v1::Model& model) const {
    for (const v1::Layer& layer : model.layers()) {
      const bool features = !has_outputs_ && &layer == last_;
      if (features || read_.contains(layer.name())) continue;
      return InvalidArgument("{}: nothing reads it", PlaceOf(layer));
    }
    return absl::OkStatus();
  }

  // A model of the zoo by itself, which nothing calls by a name: of the first column of images.
  Status AddNamed(const v1::Model& model) {
    const auto images = std::ranges::find_if(columns_, [](const v1::StoredColumn& column) {
      return column.use() == v1::COLUMN_USE_INPUT && column.shape_size() == 3 &&
             column.type() != v1::ELEMENT_TYPE_INT32;
    });
    if (images == columns_.end()) {
      return InvalidArgument(
          "model {} reads images, an input column of (height, width, channels); the data have {}: "
          "write a model of layers",
          model.name(), Listed(columns_));
    }
    const ValueId image = values_.at(images->name());
    RING_ASSIGN_OR_RETURN(ends_in_logits_,
                          zoo::AddModel(model, ShapeFor(image), builder_, image, &values_[""]));
    return absl::OkStatus();
  }

  // ---- losses and metrics -----------------------------------------------------------------------

  // With names, and the usual one where none is written.
  [[nodiscard]] Layers LossesOf(const Outputs& wanted) const {
    Layers losses = wanted.losses;
    if (losses.empty()) {
      const bool classes = target_->type() == v1::ELEMENT_TYPE_INT32;
      losses.Add()->set_kind(classes ? "softmax_cross_entropy" : "mean_squared_error");
    }
    for (v1::Layer& loss : losses) {
      if (loss.name().empty()) loss.set_name(losses.size() == 1 ? "loss" : loss.kind());
    }
    return losses;
  }

  Status AddOutputs(const Outputs& wanted) {
    has_outputs_ = true;
    Outputs outputs = {.losses = LossesOf(wanted), .metrics = wanted.metrics};
    RING_RETURN_IF_ERROR(AddAll(outputs.losses, Role::kLoss, !wanted.losses.empty()));
    if (said_ != nullptr) return absl::OkStatus();
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
    if (said_ != nullptr) return AddSaid(output, *kind, said);
    const std::string name = output.inputs_size() > 1 ? output.inputs(1) : target_->name();
    const auto column = std::ranges::find(columns_, name, &v1::StoredColumn::name);
    if (column == columns_.end()) {
      return InvalidArgument("there is no column \"{}\"; the data have {}", OneLine(name, 64),
                             Listed(columns_));
    }
    RING_RETURN_IF_ERROR(kind->of_classes ? CheckClasses(said, *column) : CheckPair(said, *column));
    return AddOutput(builder_, output.name(), *kind, output.attributes(), said, name);
  }

  // No column says how that is compared.
  Status AddSaid(const v1::Layer& loss, const OutputKind& kind, ValueId value) {
    const graph::Shape& shape = builder_.shape(value);
    if (kind.of_classes) {
      RING_RETURN_IF_ERROR(CheckLogits(shape));
    } else if (shape.size() == 2 && shape[1] == 1) {
      value = builder_.Add(loss.name() + "/reshape", graph::Reshape{}, value);
    }
    said_->push_back({loss.name(), loss.kind(), value});
    return builder_.status();
  }

  static Status CheckLogits(const graph::Shape& shape) {
    if (shape.size() == 2) return absl::OkStatus();
    return InvalidArgument("the last layer makes {}; the loss reads logits (N, classes)",
                           graph::ToString(shape));
  }

  Status CheckClasses(ValueId logits, const v1::StoredColumn& column) const {
    const graph::Shape& shape = builder_.shape(logits);
    if (column.type() != v1::ELEMENT_TYPE_INT32) {
      return InvalidArgument("column {} is float32; it compares with classes, which are int32",
                             column.name());
    }
    RING_RETURN_IF_ERROR(CheckLogits(shape));
    if (shape[1] >= column.limit()) return absl::OkStatus();
    return InvalidArgument("it has {} units, column {} needs {}: write units: {}", shape[1],
                           column.name(), column.limit(),
                           &column == target_ ? "classes" : column.name() + ".limit");
  }

  Status CheckPair(ValueId said, const v1::StoredColumn& column) {
    if (column.type() == v1::ELEMENT_TYPE_INT32) {
      return InvalidArgument("column {} is int32; it compares with numbers, which are float32",
                             column.name());
    }
    const graph::Shape& shape = builder_.shape(said);
    const graph::Shape& target = builder_.shape(builder_.Column(column.name()));
    graph::Shape longer = target;
    longer.push_back(1);
    if (shape == target || shape == longer) return absl::OkStatus();
    return InvalidArgument("the layer makes {}; column {}, which it is compared with, has {}",
                           graph::ToString(shape), column.name(), graph::ToString(target));
  }

  const Columns& columns_;
  std::vector<Said>* const said_;
  const v1::StoredColumn* input_ = nullptr;  // the first one
  const v1::StoredColumn* target_ = nullptr;
  GraphBuilder builder_;
  std::map<std::string, ValueId> values_;
  std::map<std::string, std::string> owners_;  // of one of several values, the layer
  std::set<std::string> read_;
  const v1::Layer* last_ = nullptr;
  bool ends_in_logits_ = true, has_outputs_ = false;
};

}  // namespace

StatusOr<graph::Program> BuildForward(const v1::Model& model, const Columns& columns,
                                      const Outputs& outputs, std::vector<Said>* said) {
  if (model.layers_size() > 0) RING_RETURN_IF_ERROR(CheckLayers(model));
  LayerBuilder builder(columns, said);
  RING_RETURN_IF_ERROR(builder.Check());
  return builder.Build(model, outputs);
}

StatusOr<v1::Graph> BuildGraph(const v1::Model& model, const Columns& columns,
                               const Outputs& outputs) {
  RING_ASSIGN_OR_RETURN(const graph::Program forward, BuildForward(model, columns, outputs));
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

Columns ImagesAndLabels(const zoo::DataShape& data) {
  Columns columns(2);
  columns[0].set_name("image");
  columns[0].set_type(v1::ELEMENT_TYPE_FLOAT32);
  for (const int64_t extent : {data.height, data.width, data.channels}) {
    columns[0].add_shape(extent);
  }
  columns[0].set_use(v1::COLUMN_USE_INPUT);
  columns[1].set_name("label");
  columns[1].set_type(v1::ELEMENT_TYPE_INT32);
  columns[1].set_limit(data.classes);
  columns[1].set_use(v1::COLUMN_USE_TARGET);
  return columns;
}

StatusOr<v1::Model> Resolve(const v1::Model& model) {
  if (model.layers_size() == 0) return zoo::ResolveModel(model);
  RING_RETURN_IF_ERROR(CheckLayers(model));
  return model;
}

}  // namespace ringmaster::model

#include "common/model/build.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

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
using graph::layers::LayerKind;

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
  explicit LayerBuilder(const Columns& columns) : columns_(columns), builder_(1) {
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

  StatusOr<graph::Program> Build(const v1::Model& model) {
    for (const v1::Layer& layer : model.layers()) {
      const Status status = Add(layer);
      if (!status.ok()) return At(layer, status);
    }
    RING_RETURN_IF_ERROR(CheckRead(model));
    const v1::Layer& last = *model.layers().rbegin();
    if (ends_in_logits_) {
      const Status status = AddLoss(values_.at(last.name()));
      if (!status.ok()) return At(last, status);
    }
    return builder_.Finish();
  }

  // Of the first column of images.
  StatusOr<graph::Program> BuildZoo(const v1::Model& model) {
    RING_RETURN_IF_ERROR(zoo::ResolveModel(model).status());
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
    ValueId made = values_.at(images->name());
    RING_ASSIGN_OR_RETURN(const zoo::DataShape shape, ShapeFor(model, made));
    RING_RETURN_IF_ERROR(zoo::AddModel(model, shape, builder_, made, &made).status());
    Status status = AddLoss(made);
    if (!status.ok()) return Annotate(status, "model " + model.name());
    auto program = builder_.Finish();
    if (!program.ok()) return Annotate(program.status(), "model " + model.name());
    return program;
  }

 private:
  Status Add(const v1::Layer& layer) {
    std::vector<ValueId> inputs;
    for (const std::string& name : layer.inputs()) {
      const auto at = values_.find(name);
      if (at == values_.end()) return Unknown(name);
      read_.insert(name);
      if (const auto owner = owners_.find(name); owner != owners_.end())
        read_.insert(owner->second);
      inputs.push_back(at->second);
    }
    if (inputs.empty()) inputs.push_back(values_.at(input_->name()));
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
    RING_ASSIGN_OR_RETURN(const zoo::DataShape shape, ShapeFor(model, inputs[0]));
    const auto logits = zoo::AddModel(model, shape, builder_, inputs[0], &made);
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

  // What a model of the zoo is made for.
  StatusOr<zoo::DataShape> ShapeFor(const v1::Model& model, ValueId images) const {
    const StatusOr<int64_t> classes = Classes();
    if (!classes.ok()) return Annotate(classes.status(), "model " + model.name());
    const graph::Shape& shape = builder_.shape(images);
    return zoo::DataShape{shape[1], shape[2], shape[3], *classes};
  }

  // Of the first target.
  StatusOr<int64_t> Classes() const {
    if (target_->type() == v1::ELEMENT_TYPE_INT32) return target_->limit();
    return InvalidArgument(
        "the first target column {} is float32 and has no classes; data.targets says which is "
        "first",
        target_->name());
  }

  // A number of the data in place of its name.
  Status ResolveFact(v1::Attribute* option) const {
    if (!option->has_fact()) return absl::OkStatus();
    const std::string fact = option->fact();
    if (fact == "classes") {
      RING_ASSIGN_OR_RETURN(const int64_t classes, Classes());
      option->set_i(classes);
      return absl::OkStatus();
    }
    std::vector<std::string> known = {"classes"};
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
    for (int i = 0; i + 1 < model.layers_size(); ++i) {
      const v1::Layer& layer = model.layers(i);
      if (read_.contains(layer.name())) continue;
      return InvalidArgument("{}: nothing reads it", PlaceOf(layer));
    }
    return absl::OkStatus();
  }

  // By the first target: cross-entropy and accuracy, or squared and absolute error.
  Status AddLoss(ValueId said) {
    const graph::Shape& shape = builder_.shape(said);
    const std::string& name = target_->name();
    if (target_->type() == v1::ELEMENT_TYPE_INT32) {
      if (shape.size() != 2) {
        return InvalidArgument("the last layer makes {}; the loss reads logits (N, classes)",
                               graph::ToString(shape));
      }
      if (shape[1] < target_->limit()) {
        return InvalidArgument("it has {} units, column {} needs {}: write units: classes",
                               shape[1], name, target_->limit());
      }
      builder_.Add("loss", graph::layers::SoftmaxCrossEntropy{.column = name}, said);
      return builder_.status();
    }
    const graph::Shape& target = builder_.shape(builder_.Column(name));
    graph::Shape longer = target;
    longer.push_back(1);
    if (shape != target && shape != longer) {
      return InvalidArgument("the last layer makes {}; the loss compares it with column {}, {}",
                             graph::ToString(shape), name, graph::ToString(target));
    }
    graph::layers::AddLoss(builder_, "loss", graph::MeanSquaredError{}, said, name);
    graph::layers::AddMeasure(builder_, "mae", *graph::layers::FindMeasure("mae"), said, name);
    return builder_.status();
  }

  const Columns& columns_;
  const v1::StoredColumn* input_ = nullptr;  // the first one
  const v1::StoredColumn* target_ = nullptr;
  GraphBuilder builder_;
  std::map<std::string, ValueId> values_;
  std::map<std::string, std::string> owners_;  // of one of several values, the layer
  std::set<std::string> read_;
  bool ends_in_logits_ = true;
};

}  // namespace

StatusOr<graph::Program> BuildForward(const v1::Model& model, const Columns& columns) {
  if (model.layers_size() > 0) RING_RETURN_IF_ERROR(CheckLayers(model));
  LayerBuilder builder(columns);
  RING_RETURN_IF_ERROR(builder.Check());
  return model.layers_size() > 0 ? builder.Build(model) : builder.BuildZoo(model);
}

StatusOr<v1::Graph> BuildGraph(const v1::Model& model, const Columns& columns) {
  RING_ASSIGN_OR_RETURN(const graph::Program forward, BuildForward(model, columns));
  if (model.layers_size() == 0) return graph::ToMessage(forward);
  if (forward.outputs.empty()) {
    return InvalidArgument(
        "{}: it ends in features and has no loss to train by: write layers "
        "behind it, or head: gap",
        PlaceOf(*model.layers().rbegin()));
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

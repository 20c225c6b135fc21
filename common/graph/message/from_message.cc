#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/ranges.h>

#include "common/graph/message/attributes.h"
#include "common/graph/message/field_checks.h"
#include "common/graph/message/message.h"
#include "common/graph/ops/op_table.h"
#include "common/text.h"

namespace ringmaster::graph {
namespace {

constexpr int kMaxParameters = 16'384, kMaxNodes = 16'384;
constexpr int kMaxColumns = 64, kMaxOutputs = 64, kMaxInputs = 256, kMaxAttributes = 64;
constexpr size_t kMaxValues = 65'536;

// ---- one message --------------------------------------------------------------------------------

// Builds the program of a message, in its order; each name stands for what it names from there on.
class Reader {
 public:
  Reader(const v1::Graph& message, Mode mode, int64_t samples) : message_(message) {
    program_.mode = mode;
    program_.samples = samples;
  }

  StatusOr<Program> Read() {
    RING_RETURN_IF_ERROR(CheckCounts());
    for (const v1::Column& column : message_.columns()) RING_RETURN_IF_ERROR(Read(column));
    for (const v1::Parameter& parameter : message_.parameters()) {
      RING_RETURN_IF_ERROR(Read(parameter));
    }
    for (const v1::Statistic& statistic : message_.statistics()) {
      RING_RETURN_IF_ERROR(Read(statistic));
    }
    for (const v1::Node& node : message_.nodes()) {
      const Status status = Read(node);
      if (!status.ok()) {
        return Annotate(status, fmt::format("{} ({})", OneLine(node.name(), kMaxName),
                                            OneLine(node.op(), kMaxSegment)));
      }
    }
    for (const v1::Output& output : message_.outputs()) RING_RETURN_IF_ERROR(Read(output));
    RING_RETURN_IF_ERROR(CheckLosses());
    RING_RETURN_IF_ERROR(CheckReached());
    // Whatever was not looked at: what is written again is another graph then.
    if (program_.mode == Mode::kTraining &&
        ToMessage(program_).SerializeAsString() != message_.SerializeAsString()) {
      return InvalidArgument("the graph is not in canonical form");
    }
    return std::move(program_);
  }

 private:
  Status CheckCounts() const {
    if (message_.version() != kGraphVersion) {
      return Error(absl::StatusCode::kUnimplemented,
                   "the graph is of version {}; this release knows {}", message_.version(),
                   kGraphVersion);
    }
    if (message_.ByteSizeLong() > kMaxGraphBytes) {
      return InvalidArgument("the graph has {} bytes; {} are allowed", message_.ByteSizeLong(),
                             kMaxGraphBytes);
    }
    if (program_.samples < 1 || program_.samples > kMaxAttribute) {
      return InvalidArgument("a program of {} samples; expected 1 to {}", program_.samples,
                             kMaxAttribute);
    }
    RING_RETURN_IF_ERROR(CheckCount("columns", message_.columns_size(), 1, kMaxColumns));
    RING_RETURN_IF_ERROR(CheckCount("parameters", message_.parameters_size(), 0, kMaxParameters));
    RING_RETURN_IF_ERROR(CheckCount("statistics", message_.statistics_size(), 0, kMaxParameters));
    RING_RETURN_IF_ERROR(CheckCount("nodes", message_.nodes_size(), 1, kMaxNodes));
    return CheckCount("outputs", message_.outputs_size(), 1, kMaxOutputs);
  }

  // A new name, for a value or a node.
  Status Take(const std::string& name) {
    if (!IsName(name)) {
      return InvalidArgument(
          "\"{}\" is no name: segments of A to Z, a to z, 0 to 9, _ . and -, at most {} long, "
          "joined "
          "by /, at most {} of them and {} bytes",
          name.substr(0, kMaxName), kMaxSegment, kMaxSegments, kMaxName);
    }
    if (names_.insert(name).second) return absl::OkStatus();
    return InvalidArgument("two things are called {}", name);
  }

  Status Read(const v1::Column& column) {
    if (!IsWord(column.name())) {
      return InvalidArgument("a column named \"{}\": expected a to z first, then also 0 to 9 and _",
                             column.name().substr(0, kMaxName));
    }
    RING_RETURN_IF_ERROR(Take(column.name()));
    RING_ASSIGN_OR_RETURN(Shape shape, CheckedShape(column.name(), column.shape()));
    const bool whole = column.type() == v1::ELEMENT_TYPE_INT32;
    if (!whole && column.type() != v1::ELEMENT_TYPE_FLOAT32) {
      return InvalidArgument("column {}: expected type float32 or int32", column.name());
    }
    const bool range = whole
                           ? (column.least() == 0 || column.least() == -1) &&
                                 column.least() < column.limit() && column.limit() <= kMaxAttribute
                           : column.least() == 0 && column.limit() == 0;
    if (!range) {
      return InvalidArgument("column {}: {} to below {} is no range of {}", column.name(),
                             column.least(), column.limit(), whole ? "int32" : "float32: 0 and 0");
    }
    shape.insert(shape.begin(), program_.samples);
    if (!IsCountable(shape)) {
      return InvalidArgument("column {}: {} has too many elements", column.name(), ToString(shape));
    }
    const ValueId value = program_.graph.AddFed(column.name(), std::move(shape),
                                                whole ? DType::kInt32 : DType::kFloat32);
    values_[column.name()] = value;
    program_.columns.push_back({column.name(), value, column.least(), column.limit()});
    return absl::OkStatus();
  }

  // Fed when a node reads it first, as layers make them.
  Status Read(const v1::Parameter& parameter) {
    RING_RETURN_IF_ERROR(Take(parameter.name()));
    RING_ASSIGN_OR_RETURN(Shape shape, CheckedShape(parameter.name(), parameter.shape()));
    RING_ASSIGN_OR_RETURN(const Initializer initializer,
                          InitializerOf(parameter.name(), parameter.initializer()));
    const ValueId value = program_.graph.AddFed(parameter.name(), shape, DType::kFloat32);
    values_[parameter.name()] = value;
    const auto index = static_cast<uint32_t>(program_.parameters.size() + program_.frozen.size());
    (parameter.trainable() ? program_.parameters : program_.frozen)
        .push_back({parameter.name(), std::move(shape), value, kNoValue, initializer, index});
    return absl::OkStatus();
  }

  static StatusOr<Initializer> InitializerOf(const std::string& name, const v1::Initializer& from) {
    static constexpr std::pair<v1::Distribution, Initializer::Kind> kKinds[] = {
        {v1::DISTRIBUTION_CONSTANT, Initializer::Kind::kConstant},
        {v1::DISTRIBUTION_UNIFORM, Initializer::Kind::kUniform},
        {v1::DISTRIBUTION_NORMAL, Initializer::Kind::kNormal},
        {v1::DISTRIBUTION_TRUNCATED_NORMAL, Initializer::Kind::kTruncatedNormal}};
    for (const auto& [distribution, kind] : kKinds) {
      if (from.distribution() != distribution) continue;
      const bool sound = std::isfinite(static_cast<float>(from.scale())) &&
                         (kind == Initializer::Kind::kConstant || from.scale() >= 0) &&
                         !IsMinusZero(from.scale());
      if (sound) return Initializer{kind, from.scale()};
      return InvalidArgument(
          "{}: an initializer of scale {}; expected a finite float32, at least 0 unless it is a "
          "constant",
          name, from.scale());
    }
    return InvalidArgument(
        "{}: expected an initializer, constant, uniform, normal or truncated normal", name);
  }

  Status Read(const v1::Statistic& statistic) {
    RING_RETURN_IF_ERROR(Take(statistic.name()));
    RING_ASSIGN_OR_RETURN(const Shape shape, CheckedShape(statistic.name(), statistic.shape()));
    if (shape.size() != 1) {
      return InvalidArgument("{}: a statistic of {} extents, expected 1", statistic.name(),
                             shape.size());
    }
    return absl::OkStatus();
  }

  static bool IsMinusZero(double value) { return value == 0 && std::signbit(value); }

  // ---- nodes ------------------------------------------------------------------------------------

  Status Read(const v1::Node& message) {
    RING_RETURN_IF_ERROR(Take(message.name()));
    RING_ASSIGN_OR_RETURN(Kind kind, KindOf(message));
    RING_RETURN_IF_ERROR(CheckCount("inputs", message.inputs_size(), 1, kMaxInputs));
    Node node = {.name = message.name(),
                 .kind = std::move(kind),
                 .inputs = {},
                 .float32 = message.float32()};
    if (node.as<BatchNorm>() != nullptr) return ReadBatchNorm(message, std::move(node));
    for (const std::string& input : message.inputs()) {
      RING_ASSIGN_OR_RETURN(const ValueId value, ValueOf(input));
      node.inputs.push_back(value);
    }
    if (node.as<graph::Add>() != nullptr || node.as<Multiply>() != nullptr) {
      RING_RETURN_IF_ERROR(CheckRanks(node));
    }
    if (node.as<SoftmaxCrossEntropy>() != nullptr || node.as<TopK>() != nullptr) {
      if (node.inputs.size() != 2) {  // a share of labels is no model's
        return InvalidArgument("expected 2 inputs, got {}", node.inputs.size());
      }
      RING_RETURN_IF_ERROR(CheckLabels(node));
    }
    if (auto* dropout = node.as<Dropout>()) {
      dropout->layer = node.name;
      RING_RETURN_IF_ERROR(CheckDropout(node, dropout->rate));
      if (program_.mode == Mode::kInference) {
        owners_[node.name] = node.name;
        values_[node.name] = node.inputs[0];
        return absl::OkStatus();
      }
    }
    return Add(std::move(node)).status();
  }

  // A lower rank meets the last axes; by chance that fits where it has samples, which then mix.
  Status CheckRanks(const Node& node) const {
    const auto rank = [&](ValueId id) { return program_.graph.value(id).shape.size(); };
    for (const ValueId input : node.inputs) {
      const bool parameter =
          std::ranges::count(program_.parameters, input, &Parameter::value) > 0 ||
          std::ranges::count(program_.frozen, input, &Parameter::value) > 0;
      if (parameter || rank(input) >= std::max(rank(node.inputs[0]), rank(node.inputs.back()))) {
        continue;
      }
      return InvalidArgument(
          "{} has a lower rank than the other operand, which only a parameter may have",
          program_.graph.value(input).name);
    }
    return absl::OkStatus();
  }

  // A label is a place among the logits: kernels look there.
  Status CheckLabels(const Node& node) const {
    if (node.inputs.size() != 2) return absl::OkStatus();  // which the op refuses
    const Shape& logits = program_.graph.value(node.inputs[0]).shape;
    const auto label = std::ranges::find(program_.columns, node.inputs[1], &Column::value);
    const bool known = label != program_.columns.end() && logits.size() == 2 && label->least == 0 &&
                       label->limit <= logits[1];
    if (known) return absl::OkStatus();
    return InvalidArgument("its labels are no column of 0 to below its {} logits",
                           logits.empty() ? 0 : logits.back());
  }

  // Each row has draws of its own sample.
  Status CheckDropout(const Node& node, double rate) const {
    if (rate == 0) return InvalidArgument("a dropout of rate 0 is in no graph");
    if (!(rate > 0 && rate < 1)) return InvalidArgument("rate {} is not under 1", rate);
    if (node.inputs.size() != 1) return InvalidArgument("expected 1 input");
    const Shape& x = program_.graph.value(node.inputs[0]).shape;
    if (!x.empty() && x[0] == program_.samples) return absl::OkStatus();
    return InvalidArgument("expected rows of samples, got {}", ToString(x));
  }

  // The op with its attributes, each of them once and in order.
  StatusOr<Kind> KindOf(const v1::Node& message) const {
    std::optional<Kind> kind = KindNamed(message.op());
    if (!kind || TraitsOf(*kind).internal) {
      return Error(absl::StatusCode::kUnimplemented,
                   "this release knows no such op; it may be an older one than the coordinator's");
    }
    if (message.version() != TraitsOf(*kind).version) {
      return Error(absl::StatusCode::kUnimplemented,
                   "version {} of the op; this release knows {}: update one of them",
                   message.version(), TraitsOf(*kind).version);
    }
    RING_RETURN_IF_ERROR(CheckCount("attributes", message.attributes_size(), 0, kMaxAttributes));
    v1::Node again;
    RING_RETURN_IF_ERROR(std::visit(
        [&](auto& op) {
          const Status status = ReadAttributes(message.attributes(), &op);
          WriteAttributes(op, again.mutable_attributes());
          return status;
        },
        *kind));
    const auto names = [](const v1::Node& node) {
      std::vector<std::string> all;
      for (const v1::Attribute& attribute : node.attributes()) {
        all.push_back(OneLine(attribute.name(), kMaxSegment));
      }
      return fmt::format("{}", fmt::join(all, ", "));
    };
    if (names(again) == names(message)) return *kind;
    return InvalidArgument("attributes [{}], expected [{}]", names(message), names(again));
  }

  StatusOr<ValueId> ValueOf(const std::string& name) {
    const auto found = values_.find(name);
    if (found == values_.end()) {
      return InvalidArgument("it reads {}, which is nothing that stands before it",
                             name.substr(0, kMaxName));
    }
    read_.insert(name);
    if (const auto owner = owners_.find(name); owner != owners_.end()) read_.insert(owner->second);
    return found->second;
  }

  // x, gamma and beta where it has them, and two statistics of its own, in their order.
  Status ReadBatchNorm(const v1::Node& message, Node node) {
    Normalization norm = {.name = node.name, .momentum = node.as<BatchNorm>()->momentum};
    const int place = 2 * normalizations_;
    const std::array<std::string, 2> names = {norm.moving_mean_name(), norm.moving_variance_name()};
    const BatchNormAttributes attributes = *node.as<BatchNorm>();
    const int read = 1 + (attributes.scale ? 1 : 0) + (attributes.center ? 1 : 0);
    const bool own = message.inputs_size() == read + 2 && message.inputs(read) == names[0] &&
                     message.inputs(read + 1) == names[1] &&
                     place + 2 <= message_.statistics_size() &&
                     message_.statistics(place).name() == names[0] &&
                     message_.statistics(place + 1).name() == names[1];
    if (!own) {
      return InvalidArgument("expected inputs x{}{}, {} and {}, the next two statistics",
                             attributes.scale ? ", gamma" : "", attributes.center ? ", beta" : "",
                             names[0], names[1]);
    }
    for (int i = 0; i < read; ++i) {
      RING_ASSIGN_OR_RETURN(const ValueId value, ValueOf(message.inputs(i)));
      node.inputs.push_back(value);
      if (attributes.inference && i > 0 &&
          std::ranges::count(program_.frozen, value, &Parameter::value) == 0) {
        return InvalidArgument("with inference: true it has a parameter that is trained, {}",
                               message.inputs(i));
      }
    }
    const Shape x = program_.graph.value(node.inputs[0]).shape;
    if (x.size() < 2)
      return InvalidArgument("expected x of 2 extents or more, got {}", ToString(x));
    const Shape channels = {message_.statistics(place).shape(0)};
    const double initial = message_.statistics(place).initial();
    const bool fits = x.back() == channels[0] &&
                      message_.statistics(place + 1).shape(0) == channels[0] && initial == 0 &&
                      !IsMinusZero(initial) && message_.statistics(place + 1).initial() == 1;
    if (!fits) {
      return InvalidArgument("its statistics are not of {} channels, or do not begin at 0 and 1",
                             x.back());
    }
    norm.channels = channels[0];
    ++normalizations_;
    if (attributes.inference || program_.mode == Mode::kInference) {
      norm.moving_mean = program_.graph.AddFed(names[0], channels, DType::kFloat32);
      norm.moving_variance = program_.graph.AddFed(names[1], channels, DType::kFloat32);
      node.kind = BatchNormInference{attributes};
      node.inputs.insert(node.inputs.end(), {norm.moving_mean, norm.moving_variance});
    }
    RING_ASSIGN_OR_RETURN(const auto made, Add(std::move(node)));
    if (attributes.inference) {
      const auto freeze = [&](const std::string& name, ValueId value, double initial_value) {
        program_.frozen.push_back({name,
                                   channels,
                                   value,
                                   kNoValue,
                                   {Initializer::Kind::kConstant, initial_value},
                                   Parameter::kStatistic});
      };
      freeze(names[0], norm.moving_mean, 0);
      freeze(names[1], norm.moving_variance, 1);
      return absl::OkStatus();
    }
    if (program_.mode == Mode::kTraining) {
      norm.batch_mean = made[1];
      norm.batch_variance = made[2];
    }
    program_.normalizations.push_back(std::move(norm));
    return absl::OkStatus();
  }

  StatusOr<std::vector<ValueId>> Add(Node node) {
    const std::string name = node.name;
    RING_ASSIGN_OR_RETURN(const auto made, AddOp(&program_.graph, std::move(node)));
    for (const ValueId id : made) {
      const Value& value = program_.graph.value(id);
      if (value.shape.size() > kMaxRank + 1 || !IsCountable(value.shape)) {
        return InvalidArgument("its result {} has too many elements", ToString(value.shape));
      }
      if (value.name != name) RING_RETURN_IF_ERROR(Take(value.name));
      values_[value.name] = id;
      owners_[value.name] = name;
    }
    if (program_.graph.values().size() <= kMaxValues) return made;
    return InvalidArgument("the graph has more than {} values", kMaxValues);
  }

  // ---- outputs ----------------------------------------------------------------------------------

  Status Read(const v1::Output& message) {
    const auto refuse = [&](const char* why) {
      return InvalidArgument("output {}: {}", message.name().substr(0, kMaxName), why);
    };
    if (!IsWord(message.name()))
      return refuse("its name is not a to z first, then 0 to 9 and _ too");
    if (std::ranges::count(program_.outputs, message.name(), &Output::name) +
            std::ranges::count(program_.rows, message.name(), &Rows::name) >
        0) {
      return refuse("there are two of this name");
    }
    if (message.has_rows()) return ReadRows(message);
    Output output = {.name = message.name(), .scalar = program_.scalars.size()};
    if (message.has_loss()) {
      output.weight = message.loss().weight();
      if (!(output.weight > 1e-37 && output.weight < 1e37)) {
        return refuse("its weight is not above 0 and a float32");
      }
      const bool after =
          !program_.outputs.empty() && program_.outputs.back().role != Output::Role::kLoss;
      if (after) return refuse("losses stand before measures");
    } else if (message.has_measure()) {
      output.role = Output::Role::kMeasure;
      output.lower_is_better = message.measure().lower_is_better();
      if (!v1::View_IsValid(message.measure().view())) return refuse("its view is not known");
      output.view = static_cast<Output::View>(message.measure().view());
    } else {
      return refuse("it is neither a loss nor a measure nor rows");
    }
    RING_ASSIGN_OR_RETURN(const ValueId id, ValueOf(message.value()));
    const Value& value = program_.graph.value(id);
    if (value.producer == kFed || !value.shape.empty() || value.dtype != DType::kFloat32) {
      return refuse("it is not a scalar that a node makes");
    }
    const bool again =
        std::ranges::find(program_.scalars, id, &Scalar::value) != program_.scalars.end();
    if (again) return refuse("another output has its value");
    if (message.has_loss() && Counts(program_.graph, id)) return refuse("a loss is no count");
    program_.scalars.push_back({id, Counts(program_.graph, id)});
    program_.outputs.push_back(std::move(output));
    return absl::OkStatus();
  }

  Status ReadRows(const v1::Output& message) {
    RING_ASSIGN_OR_RETURN(const ValueId id, ValueOf(message.value()));
    const Value& value = program_.graph.value(id);
    const bool fits = !value.shape.empty() && value.shape[0] == program_.samples &&
                      value.dtype == DType::kFloat32;
    program_.rows.push_back({message.name(), id});
    if (fits && value.producer != kFed) return absl::OkStatus();
    return InvalidArgument("output {}: no float32 (N, ...) that a node makes", message.name());
  }

  // MetricsOf has a name of its own for what is minimized.
  [[nodiscard]] Status CheckLosses() const {
    if (!program_.rows.empty()) {
      if (program_.outputs.empty()) return absl::OkStatus();
      return InvalidArgument("the graph has rows beside losses or measures");
    }
    const auto is_loss = [](const Output& o) { return o.role == Output::Role::kLoss; };
    const auto losses = std::ranges::count_if(program_.outputs, is_loss);
    if (losses == 0) return InvalidArgument("the graph has no loss in front of its outputs");
    for (const Output& output : program_.outputs) {
      if (output.name != kMinimized || (is_loss(output) && losses == 1)) continue;
      return InvalidArgument("output {}: only a loss that is the only one is called that",
                             output.name);
    }
    return absl::OkStatus();
  }

  // Whether all that there is has a path to an output.
  Status CheckReached() const {
    for (const v1::Column& column : message_.columns()) {
      if (!read_.contains(column.name())) return Unread(column.name());
    }
    for (const v1::Parameter& parameter : message_.parameters()) {
      if (!read_.contains(parameter.name())) return Unread(parameter.name());
    }
    for (const v1::Node& node : message_.nodes()) {
      if (!read_.contains(node.name())) return Unread(node.name());
    }
    if (2 * normalizations_ == message_.statistics_size()) return absl::OkStatus();
    return InvalidArgument("the graph has {} statistics, its normalizations {}",
                           message_.statistics_size(), 2 * normalizations_);
  }
  static Status Unread(const std::string& name) {
    return InvalidArgument("nothing reads {}", name);
  }

  const v1::Graph& message_;
  Program program_;
  int normalizations_ = 0;  // read so far
  std::set<std::string> names_;
  std::map<std::string, ValueId> values_;
  std::map<std::string, std::string> owners_;  // of what a node makes, the node
  std::set<std::string> read_;                 // values, and nodes of which one was read
};

}  // namespace

bool IsName(const std::string& name) {
  size_t segments = 1;
  size_t length = 0;  // of the segment
  for (const char c : name) {
    if (c != '/' && (!IsNameCharacter(c) || ++length > kMaxSegment)) return false;
    if (c != '/') continue;
    if (length == 0) return false;
    ++segments;
    length = 0;
  }
  const std::string within = "/" + name + "/";
  const bool dots =
      within.find("/./") != std::string::npos || within.find("/../") != std::string::npos;
  return length > 0 && name.size() <= kMaxName && segments <= kMaxSegments && !dots;
}

StatusOr<Program> FromMessage(const v1::Graph& message, Mode mode, int64_t samples) {
  return Reader(message, mode, samples).Read();
}

}  // namespace ringmaster::graph

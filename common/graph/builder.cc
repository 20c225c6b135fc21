#include "common/graph/builder.h"

#include <algorithm>
#include <set>
#include <utility>

namespace ringmaster::graph {

namespace {

// What a graph's message may have (message/from_message.cc), held to here before it is built: a few
// lines may say very much.
constexpr size_t kMostNodes = 16'384, kMostParameters = 16'384, kMostValues = 65'536;
constexpr size_t kMostNameBytes = 200;

Status CheckRoom(const Program& program, size_t name_bytes) {
  if (program.graph.nodes().size() >= kMostNodes || program.parameters.size() >= kMostParameters ||
      program.graph.values().size() >= kMostValues) {
    return InvalidArgument("the model has more than {} nodes, {} parameters or {} values",
                           kMostNodes, kMostParameters, kMostValues);
  }
  if (name_bytes <= kMostNameBytes) return absl::OkStatus();
  return InvalidArgument("a name of {} bytes; at most {} are allowed", name_bytes, kMostNameBytes);
}

}  // namespace

GraphBuilder::GraphBuilder(int64_t samples) {
  program_.mode = Mode::kTraining;
  program_.samples = samples;
  if (samples < 1) Fail(InvalidArgument("a program needs at least 1 sample, got {}", samples));
}

ValueId GraphBuilder::Input(int64_t height, int64_t width, int64_t channels) {
  const Shape shape = {program_.samples, height, width, channels};
  if (std::min({height, width, channels}) < 1) {
    Fail(InvalidArgument("images need at least 1 pixel and 1 channel, got {}", ToString(shape)));
  }
  const ValueId image = program_.graph.AddFed("image", shape, DType::kFloat32);
  const ValueId label = program_.graph.AddFed("label", {program_.samples}, DType::kInt32);
  program_.columns = {{"image", image}, {"label", label}};
  return image;
}

ValueId GraphBuilder::Input(const std::string& name, Shape shape, int64_t least, int64_t limit) {
  shape.insert(shape.begin(), program_.samples);
  if (!IsCountable(shape)) {
    Fail(InvalidArgument("column {}: {} has too many elements, or none", name, ToString(shape)));
    return kNoValue;
  }
  const ValueId value =
      program_.graph.AddFed(name, std::move(shape), limit > 0 ? DType::kInt32 : DType::kFloat32);
  program_.columns.push_back({name, value, least, limit});
  return value;
}

void GraphBuilder::SetLimit(const std::string& column, int64_t limit) {
  for (graph::Column& known : program_.columns) {
    if (known.name != column) continue;
    known.limit = known.limit == 0 ? limit : std::min(known.limit, limit);
  }
}

ValueId GraphBuilder::Column(const std::string& name) {
  const ValueId value = program_.fed(name);
  if (value == kNoValue) Fail(InvalidArgument("there is no column {}", name));
  return value;
}

ValueId GraphBuilder::Parameter(std::string name, Shape shape, Initializer initializer) {
  if (!status_.ok()) return kNoValue;
  const std::string role = name.substr(name.rfind('/') + 1);
  if (const auto shared = manner_.shared.find(role); shared != manner_.shared.end()) {
    taken_.insert(role);
    return Share(role, shape, shared->second);
  }
  constexpr int64_t kMostElements = int64_t{1} << 40;
  Fail(CheckRoom(program_, prefix_.size() + name.size()));
  if (!status_.ok()) return kNoValue;
  if (!IsCountable(shape) || Elements(shape) > kMostElements) {
    Fail(
        InvalidArgument("{}: a parameter of {}: expected extents of at least 1, and at most 2^40 "
                        "elements",
                        prefix_ + name, ToString(shape)));
    return kNoValue;
  }
  name.insert(0, prefix_);
  const ValueId value = program_.graph.AddFed(name, shape, DType::kFloat32);
  const auto index = static_cast<uint32_t>(program_.parameters.size());
  program_.parameters.push_back(
      {std::move(name), std::move(shape), value, kNoValue, initializer, index});
  return value;
}

const Parameter* GraphBuilder::FindParameter(const std::string& name) const {
  const auto at = std::ranges::find(program_.parameters, name, &graph::Parameter::name);
  return at == program_.parameters.end() ? nullptr : &*at;
}

ValueId GraphBuilder::Share(const std::string& name, const Shape& shape,
                            const std::string& shared) {
  const graph::Parameter* const parameter = FindParameter(shared);
  if (parameter == nullptr) {
    Fail(InvalidArgument("{}: no layer before it has a parameter {}", name, shared));
    return kNoValue;
  }
  if (parameter->shape == shape) return parameter->value;
  Fail(InvalidArgument("{}: {} is {}, this layer needs {}", name, shared,
                       ToString(parameter->shape), ToString(shape)));
  return kNoValue;
}

Status GraphBuilder::SetManner(Manner manner) {
  const Manner before = std::exchange(manner_, std::move(manner));
  const std::set<std::string> taken = std::exchange(taken_, {});
  for (const auto& [role, shared] : before.shared) {
    if (taken.contains(role)) continue;
    return InvalidArgument("{}: {}: as it is written the layer has no {}", role, shared, role);
  }
  return absl::OkStatus();
}

void GraphBuilder::Statistic(Normalization normalization) {
  normalization.name.insert(0, prefix_);
  program_.normalizations.push_back(std::move(normalization));
}

void GraphBuilder::Output(graph::Output output, ValueId scalar) {
  if (!status_.ok()) return;
  output.scalar = program_.scalars.size();
  program_.scalars.push_back({scalar, Counts(program_.graph, scalar)});
  program_.outputs.push_back(std::move(output));
}

std::vector<ValueId> GraphBuilder::AddAll(const std::string& name, Kind op,
                                          std::vector<ValueId> inputs) {
  const std::vector<ValueId> nothing = {kNoValue, kNoValue, kNoValue};
  if (status_.ok()) Fail(CheckRoom(program_, prefix_.size() + name.size()));
  if (!status_.ok()) return nothing;
  Written written = {name, {}, inputs, {}};
  if (depth_ == 0) written.layer = op;
  Node node = {.name = prefix_ + name,
               .kind = std::move(op),
               .inputs = std::move(inputs),
               .float32 = manner_.float32};
  auto made = AddOp(&program_.graph, std::move(node));
  if (!made.ok()) {
    Fail(made.status());
    return nothing;
  }
  for (const ValueId value : *made) {
    if (shape(value).empty() || IsCountable(shape(value))) continue;
    Fail(InvalidArgument("{}: its result {} has too many elements", prefix_ + name,
                         ToString(shape(value))));
    return nothing;
  }
  written.made = *made;
  if (depth_ == 0) written_.push_back(std::move(written));
  return *std::move(made);
}

ValueId GraphBuilder::Add(const std::string& name, Kind op, std::vector<ValueId> inputs) {
  return AddAll(name, std::move(op), std::move(inputs))[0];
}

ValueId GraphBuilder::Add(const std::string& name, Kind op, ValueId input) {
  return Add(name, std::move(op), std::vector{input});
}

bool GraphBuilder::Expect(const std::string& layer, ValueId x, size_t rank) {
  if (!status_.ok()) return false;
  if (rank != 0 && shape(x).size() != rank) {
    Fail(InvalidArgument("{}: expected an input with {} dimensions, got {} {}", layer, rank,
                         program_.graph.value(x).name, ToString(shape(x))));
  }
  return status_.ok();
}

void GraphBuilder::Fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

const Shape& GraphBuilder::shape(ValueId x) const {
  static const Shape kNothing = {1, 1, 1, 1};
  return x == kNoValue ? kNothing : program_.graph.value(x).shape;
}

StatusOr<Program> GraphBuilder::Finish() {
  RING_RETURN_IF_ERROR(status_);
  std::set<ValueId> read;
  for (const Node& node : program_.graph.nodes())
    read.insert(node.inputs.begin(), node.inputs.end());
  std::erase_if(program_.columns,
                [&](const graph::Column& column) { return !read.contains(column.value); });
  return std::move(program_);
}

}  // namespace ringmaster::graph

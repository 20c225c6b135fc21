// Trains a graph on samples and initial values that it draws, for model_parity.py to repeat in
// PyTorch. GRAPH is a file of canonical JSON, as `ringctl model show NAME -o json` prints it; it
// knows no zoo. Dropout is off. FOLDER gets, as raw tensors and a manifest:
//   column/C parameter/P loss_seed learning_rate   what the first step is fed
//   reference/.. cpu/..     what it came to, on the float64 reference and on the CPU backend in
//                           float32: output/O, gradient/P, and statistics as the graph names them
//   cpu/curve               the loss of STEPS steps of plain gradient descent on these samples
//   cpu/STATISTIC           the moving statistics after the last step
//   cpu/evaluation/O        what they make of these samples
//   graph_step GRAPH SAMPLES STEPS SEED FOLDER
//   graph_step ops         the ops that a graph may have
#include <google/protobuf/util/json_util.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/graph/message/message.h"
#include "common/graph/ops/reference_executor.h"
#include "common/graph/update/initialize.h"
#include "common/graph/update/optimizer.h"
#include "common/job/resolve.h"
#include "common/json.h"
#include "tests/support/bound_program.h"
#include "tests/support/program_feeds.h"
#include "worker/backend/backend.h"

namespace ringmaster {
namespace {

// This shard is a quarter of its global batch, the others are equal: seeds are not 1 / samples.
constexpr double kPart = 0.25;
constexpr double kLearningRate = 1e-3 / kPart;

// ---- the graph ----------------------------------------------------------------------------------

// Canonical JSON leaves out what the names of an enum's values share.
void LengthenName(const std::string& prefix, nlohmann::json* name) {
  std::string text = name->get<std::string>();
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  *name = prefix + text;
}

StatusOr<v1::Graph> ReadGraph(const std::string& path) {
  std::ifstream in(path);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (text.ends_with('\n')) text.pop_back();
  RING_ASSIGN_OR_RETURN(nlohmann::json json, ParseJson(text, {.bytes = 4 << 20, .depth = 16}));
  for (auto& column : json["columns"]) LengthenName("ELEMENT_TYPE_", &column["type"]);
  for (auto& parameter : json["parameters"]) {
    LengthenName("DISTRIBUTION_", &parameter["initializer"]["distribution"]);
  }
  for (auto& output : json["outputs"]) {
    if (output.contains("measure")) LengthenName("VIEW_", &output["measure"]["view"]);
  }
  v1::Graph graph;
  const auto parsed = google::protobuf::util::JsonStringToMessage(json.dump(), &graph);
  if (!parsed.ok()) return InvalidArgument("{}: {}", path, parsed.ToString());
  if (job::CanonicalJson(graph) == text) return graph;
  return InvalidArgument("{}: not the canonical JSON of the graph that it says", path);
}

// What the graph is at a rate of 0: readers of a dropout read its input.
v1::Graph WithoutDropout(const v1::Graph& graph) {
  v1::Graph without = graph;
  without.clear_nodes();
  std::map<std::string, std::string> inputs;
  for (v1::Node node : graph.nodes()) {
    for (std::string& input : *node.mutable_inputs()) {
      if (const auto dropped = inputs.find(input); dropped != inputs.end()) input = dropped->second;
    }
    if (node.op() == "dropout") {
      inputs[node.name()] = node.inputs(0);
    } else {
      *without.add_nodes() = std::move(node);
    }
  }
  return without;
}

// ---- what it is fed -----------------------------------------------------------------------------

using Tensors = std::vector<std::vector<double>>;

// By the numbers of columns, parameters and normalizations, which all programs of a graph share.
struct State {
  Tensors columns;
  Tensors parameters;
  std::vector<std::vector<float>> moving_means, moving_variances;
};

// Initial values as a job draws them, but for constants, so that no gradient vanishes by symmetry:
// 1, a scale, becomes 0.3 to 0.9, and others move by 1 to 2. With offsets larger than scales few
// inputs of a relu are near 0 and gradients do not grow from layer to layer, so that float32 comes
// near to float64, and one training's curve to another's.
std::vector<double> DrawParameter(const graph::Parameter& parameter, uint32_t number,
                                  uint64_t seed) {
  std::vector<float> values(static_cast<size_t>(graph::Elements(parameter.shape)));
  graph::Initialize(parameter, number, seed, values);
  if (parameter.initializer.kind != graph::Initializer::Kind::kConstant) {
    return {values.begin(), values.end()};
  }
  std::vector<double> drawn = testing::UniformValues(parameter.shape, 1, seed, parameter.name);
  for (size_t i = 0; i < values.size(); ++i) {
    const bool scale = values[i] == 1;
    drawn[i] = static_cast<float>(scale ? 0.6 + 0.3 * drawn[i]
                                        : values[i] + drawn[i] + std::copysign(1, drawn[i]));
  }
  return drawn;
}

State DrawState(const graph::Program& program, uint64_t seed) {
  State state;
  for (const graph::Column& column : program.columns) {
    const graph::Value& value = program.graph.value(column.value);
    state.columns.push_back(testing::UniformValues(value.shape, 1, seed, column.name));
    if (value.dtype != graph::DType::kInt32) continue;
    const auto range = static_cast<double>(column.limit - column.least);
    for (double& element : state.columns.back()) {
      element = std::floor((element + 1) / 2 * range) + static_cast<double>(column.least);
    }
  }
  for (uint32_t i = 0; i < program.parameters.size(); ++i) {
    state.parameters.push_back(DrawParameter(program.parameters[i], i, seed));
  }
  for (const graph::Normalization& normalization : program.normalizations) {
    state.moving_means.emplace_back(normalization.channels, 0);
    state.moving_variances.emplace_back(normalization.channels, 1);
  }
  return state;
}

graph::ReferenceFeeds FeedsOf(const graph::Program& program, const State& state) {
  graph::ReferenceFeeds feeds;
  for (size_t i = 0; i < program.columns.size(); ++i) {
    feeds[program.columns[i].value] = state.columns[i];
  }
  for (size_t i = 0; i < program.parameters.size(); ++i) {
    feeds[program.parameters[i].value] = state.parameters[i];
  }
  for (const graph::Seed& seed : program.seeds) {
    feeds[seed.value] = {kPart / static_cast<double>(program.samples) * seed.weight};
  }
  for (size_t i = 0; i < program.normalizations.size(); ++i) {
    const graph::Normalization& normalization = program.normalizations[i];
    if (normalization.moving_mean == graph::kNoValue) continue;
    const std::vector<float>& means = state.moving_means[i];
    const std::vector<float>& variances = state.moving_variances[i];
    feeds[normalization.moving_mean] = {means.begin(), means.end()};
    feeds[normalization.moving_variance] = {variances.begin(), variances.end()};
  }
  return feeds;
}

// ---- what comes out -----------------------------------------------------------------------------

// A folder of raw little-endian float64 tensors, and `manifest`: a line `name file extents` each.
class Dump {
 public:
  explicit Dump(std::filesystem::path folder)
      : folder_(std::move(folder)), manifest_(folder_ / "manifest") {}

  void Add(const std::string& name, const graph::Shape& shape, const std::vector<double>& values) {
    const std::string file = fmt::format("tensor{}", count_++);
    std::ofstream out(folder_ / file, std::ios::binary);
    out.write(reinterpret_cast<const char*>(values.data()),
              static_cast<std::streamsize>(values.size() * sizeof(double)));
    failed_ = failed_ || !out.flush();
    manifest_ << name << ' ' << file;
    for (int64_t extent : shape) manifest_ << ' ' << extent;
    manifest_ << '\n';
  }

  Status Finish() {
    if (failed_ || !manifest_.flush()) return Internal("cannot write to {}", folder_.string());
    return absl::OkStatus();
  }

 private:
  std::filesystem::path folder_;
  std::ofstream manifest_;
  int count_ = 0;
  bool failed_ = false;
};

// What a step yields, in float64 whatever computed it.
struct StepResult {
  std::vector<double> scalars;
  Tensors gradients;
  Tensors batch_means, batch_variances;
};

void AddFed(const graph::Program& program, const State& state, Dump* dump) {
  for (size_t i = 0; i < program.columns.size(); ++i) {
    const graph::Column& column = program.columns[i];
    dump->Add("column/" + column.name, program.graph.value(column.value).shape, state.columns[i]);
  }
  for (size_t i = 0; i < program.parameters.size(); ++i) {
    const graph::Parameter& parameter = program.parameters[i];
    dump->Add("parameter/" + parameter.name, parameter.shape, state.parameters[i]);
  }
  dump->Add("loss_seed", {}, {kPart / static_cast<double>(program.samples)});
  dump->Add("learning_rate", {}, {kLearningRate});
}

void AddOutputs(const graph::Program& program, const std::vector<double>& scalars,
                const std::string& prefix, Dump* dump) {
  for (const graph::Output& output : program.outputs) {
    dump->Add(prefix + output.name, {}, {scalars[output.scalar]});
  }
}

void AddStep(const graph::Program& program, const StepResult& result, const std::string& prefix,
             Dump* dump) {
  AddOutputs(program, result.scalars, prefix + "output/", dump);
  for (size_t i = 0; i < program.parameters.size(); ++i) {
    const graph::Parameter& parameter = program.parameters[i];
    dump->Add(prefix + "gradient/" + parameter.name, parameter.shape, result.gradients[i]);
  }
  for (size_t i = 0; i < program.normalizations.size(); ++i) {
    const graph::Normalization& normalization = program.normalizations[i];
    const graph::Shape shape = {normalization.channels};
    dump->Add(prefix + normalization.name + "/mean", shape, result.batch_means[i]);
    dump->Add(prefix + normalization.name + "/variance", shape, result.batch_variances[i]);
  }
}

// ---- the engines --------------------------------------------------------------------------------

StatusOr<StepResult> RunOnReference(const graph::Program& program, const State& state) {
  RING_ASSIGN_OR_RETURN(auto values, graph::RunReference(program.graph, FeedsOf(program, state),
                                                         testing::KeysOf(program)));
  const auto at = [&](graph::ValueId id) { return std::move(values[static_cast<size_t>(id)]); };
  StepResult result;
  for (const auto& scalar : program.scalars) result.scalars.push_back(at(scalar.value)[0]);
  for (const auto& parameter : program.parameters) {
    result.gradients.push_back(at(parameter.gradient));
  }
  for (const auto& normalization : program.normalizations) {
    result.batch_means.push_back(at(normalization.batch_mean));
    result.batch_variances.push_back(at(normalization.batch_variance));
  }
  return result;
}

// Channels of all normalizations, one normalization after the other, as a tensor for each.
Tensors Parted(const graph::Program& program, const std::vector<float>& channels) {
  Tensors parts;
  auto from = channels.begin();
  for (const graph::Normalization& normalization : program.normalizations) {
    parts.emplace_back(from, from + normalization.channels);
    from += normalization.channels;
  }
  return parts;
}

StatusOr<StepResult> RunOnBackend(const graph::Program& program, const State& state,
                                  testing::BoundProgram* bound) {
  RING_ASSIGN_OR_RETURN(const testing::ShardResult ran,
                        bound->Run(FeedsOf(program, state), testing::KeysOf(program)));
  StepResult result = {.scalars = ran.output.scalars};
  for (const std::vector<float>& gradient : ran.gradients) {
    result.gradients.emplace_back(gradient.begin(), gradient.end());
  }
  result.batch_means = Parted(program, ran.output.batch_means);
  result.batch_variances = Parted(program, ran.output.batch_variances);
  return result;
}

void MoveTowards(double momentum, const std::vector<double>& batch, std::vector<float>* moving) {
  graph::UpdateMovingStatistic(momentum, std::vector<float>(batch.begin(), batch.end()), *moving);
}

// One update by plain gradient descent, in float32.
void Descend(const graph::Program& program, const StepResult& result, State* state) {
  for (size_t i = 0; i < program.parameters.size(); ++i) {
    std::vector<double>& values = state->parameters[i];
    for (size_t j = 0; j < values.size(); ++j) {
      values[j] = static_cast<float>(values[j] - kLearningRate * result.gradients[i][j]);
    }
  }
  for (size_t i = 0; i < program.normalizations.size(); ++i) {
    const double momentum = program.normalizations[i].momentum;
    MoveTowards(momentum, result.batch_means[i], &state->moving_means[i]);
    MoveTowards(momentum, result.batch_variances[i], &state->moving_variances[i]);
  }
}

double Minimized(const graph::Program& program, const StepResult& result) {
  double sum = 0;
  for (const graph::Output& output : program.outputs) {
    const bool loss = output.role == graph::Output::Role::kLoss;
    if (loss) sum += output.weight * result.scalars[output.scalar];
  }
  return sum;
}

Status Train(const graph::Program& program, Backend& backend, int64_t steps, State* state,
             Dump* dump) {
  RING_ASSIGN_OR_RETURN(auto bound, testing::BoundProgram::Create(backend, program));
  std::vector<double> curve;
  for (int64_t step = 0; step < steps; ++step) {
    RING_ASSIGN_OR_RETURN(const StepResult result, RunOnBackend(program, *state, bound.get()));
    if (step == 0) AddStep(program, result, "cpu/", dump);
    curve.push_back(Minimized(program, result));
    Descend(program, result, state);
  }
  dump->Add("cpu/curve", {steps}, curve);
  for (size_t i = 0; i < program.normalizations.size(); ++i) {
    const graph::Normalization& norm = program.normalizations[i];
    const std::vector<float>& means = state->moving_means[i];
    const std::vector<float>& variances = state->moving_variances[i];
    dump->Add("cpu/" + norm.moving_mean_name(), {norm.channels}, {means.begin(), means.end()});
    dump->Add("cpu/" + norm.moving_variance_name(), {norm.channels},
              {variances.begin(), variances.end()});
  }
  return absl::OkStatus();
}

Status Evaluate(const graph::Program& program, Backend& backend, const State& state, Dump* dump) {
  RING_ASSIGN_OR_RETURN(auto bound, testing::BoundProgram::Create(backend, program));
  RING_ASSIGN_OR_RETURN(const testing::ShardResult ran,
                        bound->Run(FeedsOf(program, state), testing::KeysOf(program)));
  AddOutputs(program, ran.output.scalars, "cpu/evaluation/", dump);
  return absl::OkStatus();
}

Status Run(const std::string& path, int64_t samples, int64_t steps, uint64_t seed,
           const std::string& folder) {
  RING_ASSIGN_OR_RETURN(const v1::Graph read, ReadGraph(path));
  const v1::Graph graph = WithoutDropout(read);
  RING_ASSIGN_OR_RETURN(const graph::Program training,
                        graph::BuildProgram(graph, {.samples = samples}));
  RING_ASSIGN_OR_RETURN(
      const graph::Program inference,
      graph::BuildProgram(graph, {.mode = graph::Mode::kInference, .samples = samples}));
  State state = DrawState(training, seed);
  Dump dump(folder);
  AddFed(training, state, &dump);
  {
    RING_ASSIGN_OR_RETURN(const StepResult result, RunOnReference(training, state));
    AddStep(training, result, "reference/", &dump);
  }
  RING_ASSIGN_OR_RETURN(const auto backend, MakeBackend("cpu"));
  RING_RETURN_IF_ERROR(Train(training, *backend, steps, &state, &dump));
  RING_RETURN_IF_ERROR(Evaluate(inference, *backend, state, &dump));
  return dump.Finish();
}

// The ops that a graph may have, a line each.
void PrintOps() {
  const auto traits =
      graph::ForEachOp([]<typename Op>(std::type_identity<Op>) { return &Op::kTraits; });
  for (const graph::OpTraits* op : traits) {
    if (!op->internal) std::puts(op->name);
  }
}

}  // namespace
}  // namespace ringmaster

int main(int argc, char** argv) {
  if (argc == 2 && argv[1] == std::string("ops")) {
    ringmaster::PrintOps();
    return 0;
  }
  if (argc != 6) {
    std::fputs("usage: graph_step ops | GRAPH SAMPLES STEPS SEED FOLDER\n", stderr);
    return 2;
  }
  const ringmaster::Status status =
      ringmaster::Run(argv[1], std::atoll(argv[2]), std::atoll(argv[3]),
                      std::strtoull(argv[4], nullptr, 10), argv[5]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "graph_step: %s\n", ringmaster::Message(status).c_str());
  return 1;
}

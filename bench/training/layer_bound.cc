// What the layers of a model cannot be quicker than on one thread: oneDNN's own convolutions and
// products of a training step, one after the other, each in the layouts that it likes best
// (format_tag::any) and with nothing round it: no activation, normalization, pool, reorder or
// update. Shapes and types are those of the program that a shard of --batch samples trains with:
// forward, weight gradients, and input gradients of all layers but the first. A primitive that
// occurs several times is measured once.
//
// The table is for people; --json is one line, for vs_pytorch.py.
#include <fmt/format.h>
#include <omp.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <dnnl.hpp>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bench/training/train_options.h"
#include "common/graph/cost.h"
#include "common/graph/message/message.h"
#include "common/job/job_file.h"
#include "common/model/build.h"
#include "worker/backend/cpu/device.h"
#include "worker/backend/cpu/layout.h"

namespace ringmaster::bench {
namespace {

using cpu::DnnlDesc;
using cpu::DnnlTag;

struct BoundOptions {
  TrainOptions job;  // model, sets, steps, warm_up, json
  TrainCase one;     // batch: of the shard; policy
};

// One layer in one direction, as oneDNN's descriptors need it; a null bias: there is none.
struct Pass {
  enum class Direction : uint8_t { kForward, kInputGradient, kWeightGradient };
  Direction direction = Direction::kForward;
  const graph::Value *x = nullptr, *w = nullptr, *y = nullptr, *bias = nullptr;
  std::optional<graph::Conv2dAttributes> convolution;  // nothing: dense
};

template <typename Forward, typename Input, typename Weight>
std::optional<Pass> PassOf(const graph::Graph& graph, const graph::Node& node) {
  const auto in = [&](size_t i) { return &graph.value(node.inputs[i]); };
  const auto out = [&](size_t i) { return &graph.value(node.outputs[i]); };
  using enum Pass::Direction;
  if (node.as<Forward>() != nullptr) {
    return Pass{kForward, in(0), in(1), out(0), node.inputs.size() > 2 ? in(2) : nullptr, {}};
  }
  if (node.as<Input>() != nullptr) {
    return Pass{kInputGradient, out(0), in(1), in(0), nullptr, {}};
  }
  if (node.as<Weight>() != nullptr) {
    return Pass{
        kWeightGradient, in(0), out(0), in(1), node.outputs.size() > 1 ? out(1) : nullptr, {}};
  }
  return std::nullopt;
}

std::optional<Pass> PassOf(const graph::Graph& graph, const graph::Node& node) {
  auto convolution =
      PassOf<graph::Conv2d, graph::Conv2dInputGradient, graph::Conv2dWeightGradient>(graph, node);
  if (convolution) {
    convolution->convolution = *node.attributes<graph::Conv2dAttributes>();
    return convolution;
  }
  return PassOf<graph::Dense, graph::DenseInputGradient, graph::DenseWeightGradient>(graph, node);
}

// oneDNN's choice for a pass, ready to run, with what it reads and writes.
struct Primitive {
  dnnl::primitive primitive;
  std::vector<std::pair<int, DnnlDesc>> arguments;
  std::string implementation;
};

template <typename Choice>
Primitive Chosen(const Choice& choice, std::vector<std::pair<int, DnnlDesc>> arguments,
                 const DnnlDesc& bias = {}, int bias_argument = 0) {
  if (!bias.is_zero()) arguments.emplace_back(bias_argument, bias);
  return {dnnl::primitive(choice), std::move(arguments), choice.impl_info_str()};
}

// The primitive of a layer in one direction. forward(weights, bias), input_gradient(hint) and
// weight_gradient(hint) make oneDNN's descriptors of its kind; a hint is a forward pass.
template <typename Forward, typename Input, typename Weight>
Primitive ChooseFor(Pass::Direction direction, const DnnlDesc& weights,
                    const DnnlDesc& weights_of_hint, const DnnlDesc& bias, Forward forward,
                    Input input_gradient, Weight weight_gradient) {
  switch (direction) {
    case Pass::Direction::kForward: {
      const auto choice = forward(weights, bias);
      return Chosen(choice,
                    {{DNNL_ARG_SRC, choice.src_desc()},
                     {DNNL_ARG_WEIGHTS, choice.weights_desc()},
                     {DNNL_ARG_DST, choice.dst_desc()}},
                    bias, DNNL_ARG_BIAS);
    }
    case Pass::Direction::kInputGradient: {
      const auto choice = input_gradient(forward(weights, {}));
      return Chosen(choice, {{DNNL_ARG_DIFF_DST, choice.diff_dst_desc()},
                             {DNNL_ARG_WEIGHTS, choice.weights_desc()},
                             {DNNL_ARG_DIFF_SRC, choice.diff_src_desc()}});
    }
    case Pass::Direction::kWeightGradient:
      break;
  }
  const auto choice = weight_gradient(forward(weights_of_hint, {}));
  return Chosen(choice,
                {{DNNL_ARG_SRC, choice.src_desc()},
                 {DNNL_ARG_DIFF_DST, choice.diff_dst_desc()},
                 {DNNL_ARG_DIFF_WEIGHTS, choice.diff_weights_desc()}},
                bias, DNNL_ARG_DIFF_BIAS);
}

class Describer {
 public:
  explicit Describer(const cpu::Device& device) : device_(device) {}

  // Throws dnnl::error.
  [[nodiscard]] Primitive Choose(const Pass& pass) const {
    const DnnlDesc x = Images(*pass.x), y = Images(*pass.y);
    const int64_t groups = pass.convolution ? pass.convolution->groups : 1;
    const DnnlDesc w = cpu::AnyWeightDesc(pass.w->shape, TypeOf(*pass.w), groups);
    const DnnlDesc hint = cpu::AnyWeightDesc(pass.w->shape, TypeOf(*pass.x), groups);
    const DnnlDesc bias = pass.bias == nullptr ? DnnlDesc() : cpu::BiasDesc(*pass.bias);
    if (!pass.convolution) return Product(pass.direction, x, w, bias, y, hint);
    return Convolution(pass.direction, *pass.convolution, x, w, bias, y, hint);
  }

 private:
  static constexpr auto kTraining = dnnl::prop_kind::forward_training;
  static constexpr auto kDirect = dnnl::algorithm::convolution_direct;

  [[nodiscard]] cpu::DnnlType TypeOf(const graph::Value& value) const {
    return device_.compute_type(value.dtype);
  }
  [[nodiscard]] DnnlDesc Images(const graph::Value& value) const {
    const DnnlDesc plain = cpu::ActivationDesc(value.shape, TypeOf(value));
    return DnnlDesc(plain.dims(), TypeOf(value), DnnlTag::any);
  }

  [[nodiscard]] Primitive Convolution(Pass::Direction direction, const graph::Conv2dAttributes& a,
                                      const DnnlDesc& x, const DnnlDesc& w, const DnnlDesc& bias,
                                      const DnnlDesc& y, const DnnlDesc& weights_of_hint) const {
    using Forward = dnnl::convolution_forward::primitive_desc;
    const dnnl::memory::dims strides(a.strides.begin(), a.strides.end()),
        gaps = {a.dilations[0] - 1, a.dilations[1] - 1}, low = {a.pads[0], a.pads[1]},
        high = {a.pads[2], a.pads[3]};
    return ChooseFor(
        direction, w, weights_of_hint, bias,
        [&](const DnnlDesc& weights, const DnnlDesc& b) {
          return Forward({kTraining, kDirect, x, weights, b, y, strides, gaps, low, high},
                         device_.engine);
        },
        [&](const Forward& hint) {
          return dnnl::convolution_backward_data::primitive_desc(
              {kDirect, x, w, y, strides, gaps, low, high}, device_.engine, hint);
        },
        [&](const Forward& hint) {
          return dnnl::convolution_backward_weights::primitive_desc(
              {kDirect, x, w, bias, y, strides, gaps, low, high}, device_.engine, hint);
        });
  }

  [[nodiscard]] Primitive Product(Pass::Direction direction, const DnnlDesc& x, const DnnlDesc& w,
                                  const DnnlDesc& bias, const DnnlDesc& y,
                                  const DnnlDesc& weights_of_hint) const {
    using Forward = dnnl::inner_product_forward::primitive_desc;
    return ChooseFor(
        direction, w, weights_of_hint, bias,
        [&](const DnnlDesc& weights, const DnnlDesc& b) {
          return Forward({kTraining, x, weights, b, y}, device_.engine);
        },
        [&](const Forward& hint) {
          return dnnl::inner_product_backward_data::primitive_desc({x, w, y}, device_.engine, hint);
        },
        [&](const Forward& hint) {
          return dnnl::inner_product_backward_weights::primitive_desc({x, w, bias, y},
                                                                      device_.engine, hint);
        });
  }

  const cpu::Device& device_;
};

struct Seconds {
  double wall = 0, cpu = 0;
};

Seconds Now() {
  timespec cpu{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
  const auto wall = std::chrono::steady_clock::now().time_since_epoch();
  return {std::chrono::duration<double>(wall).count(),
          static_cast<double>(cpu.tv_sec) + 1e-9 * static_cast<double>(cpu.tv_nsec)};
}

// Of one execution, the mean of `steps`.
Seconds Measure(const Primitive& chosen, const dnnl::engine& engine, const TrainOptions& options) {
  std::unordered_map<int, dnnl::memory> arguments;
  for (const auto& [argument, desc] : chosen.arguments) {
    const dnnl::memory memory(desc, engine);
    // A half, also of two halves in bfloat16: neither zeros nor subnormals.
    std::fill_n(static_cast<uint16_t*>(memory.get_data_handle()), desc.get_size() / 2, 0x3f00);
    arguments.emplace(argument, memory);
  }
  dnnl::stream stream(engine);
  for (uint32_t i = 0; i < options.warm_up; ++i) chosen.primitive.execute(stream, arguments);
  stream.wait();
  const Seconds begin = Now();
  for (uint32_t i = 0; i < options.steps; ++i) chosen.primitive.execute(stream, arguments);
  stream.wait();
  const Seconds end = Now();
  return {(end.wall - begin.wall) / options.steps, (end.cpu - begin.cpu) / options.steps};
}

// Equal primitives of a program.
struct Row {
  std::string what;  // kind, types and shapes: unique
  int count = 0;
  double flops = 0;  // of one execution
  std::string implementation;
  Seconds seconds;  // likewise
};

std::string Describe(const graph::Node& node, const Pass& pass) {
  std::string text = fmt::format("{} x {} {} w {} {}", node.op(), graph::Name(pass.x->dtype),
                                 fmt::join(pass.x->shape, ","), graph::Name(pass.w->dtype),
                                 fmt::join(pass.w->shape, ","));
  if (pass.convolution) {
    text += fmt::format(" strides {} pads {}", fmt::join(pass.convolution->strides, ","),
                        fmt::join(pass.convolution->pads, ","));
    if (pass.convolution->groups > 1) text += fmt::format(" groups {}", pass.convolution->groups);
    if (pass.convolution->dilations != std::array<int64_t, 2>{1, 1}) {
      text += fmt::format(" dilations {}", fmt::join(pass.convolution->dilations, ","));
    }
  }
  return pass.bias != nullptr ? text + " bias" : text;
}

StatusOr<std::vector<Row>> MeasureLayers(const graph::Program& program,
                                         const TrainOptions& options) {
  RING_ASSIGN_OR_RETURN(const cpu::Device device,
                        cpu::Device::Create(cpu::Bf16Arithmetic::kNative));
  const Describer describer(device);
  std::vector<Row> rows;
  for (const graph::Node& node : program.graph.nodes()) {
    const std::optional<Pass> pass = PassOf(program.graph, node);
    if (!pass) continue;
    const std::string what = Describe(node, *pass);
    auto row = std::ranges::find(rows, what, &Row::what);
    if (row == rows.end()) {
      RING_ASSIGN_OR_RETURN(rows.emplace_back(), cpu::GuardDnnl(what, [&] {
                              const Primitive chosen = describer.Choose(*pass);
                              return Row{.what = what,
                                         .flops = 2 * graph::MultiplyAdds(program.graph, node),
                                         .implementation = chosen.implementation,
                                         .seconds = Measure(chosen, device.engine, options)};
                            }));
      row = rows.end() - 1;
    }
    ++row->count;
  }
  return rows;
}

StatusOr<graph::Program> ProgramOf(const BoundOptions& options) {
  const std::string text = JobFile(options.job, options.one, options.one.batch);
  RING_ASSIGN_OR_RETURN(const v1::JobSpec spec,
                        job::ParseJobFile("layer_bound", text, options.job.sets));
  zoo::DataShape data = zoo::kCifar;
  const auto& resize = spec.data().resize().values();
  if (!resize.empty()) {
    data.height = resize[0];
    data.width = resize[resize.size() - 1];
  }
  RING_ASSIGN_OR_RETURN(const v1::Graph graph,
                        model::BuildGraph(spec.model(), model::ImagesAndLabels(data)));
  return graph::BuildProgram(graph,
                             {.samples = options.one.batch, .policy = spec.precision().policy()});
}

void Print(const BoundOptions& options, const std::vector<Row>& rows) {
  Seconds all;
  double flops = 0;
  for (const Row& row : rows) {
    all.wall += row.count * row.seconds.wall;
    all.cpu += row.count * row.seconds.cpu;
    flops += row.count * row.flops;
  }
  const double batch = options.one.batch;
  if (options.job.json) {
    const nlohmann::json report = {{"model", options.job.model},
                                   {"policy", options.one.policy},
                                   {"batch", options.one.batch},
                                   {"seconds", all.wall},
                                   {"images_per_second", batch / all.wall},
                                   {"images_per_cpu_second", batch / all.cpu}};
    fmt::print("{}\n", report.dump());
    return;
  }
  fmt::print("   ms  times  GFLOP/s  primitive\n");
  for (const Row& row : rows) {
    fmt::print("{:7.3f} {:3} {:8.1f}  {}, {}\n", 1e3 * row.seconds.wall, row.count,
               row.flops / row.seconds.wall / 1e9, row.what, row.implementation);
  }
  fmt::print("{}, {}, {} samples on one thread: {:.2f} ms, {:.1f} images/s, {:.1f} GFLOP/s\n",
             options.job.model, options.one.policy, options.one.batch, 1e3 * all.wall,
             batch / all.wall, flops / all.wall / 1e9);
}

Status Run(const BoundOptions& options) {
  RING_ASSIGN_OR_RETURN(const graph::Program program, ProgramOf(options));
  RING_ASSIGN_OR_RETURN(const std::vector<Row> rows, MeasureLayers(program, options.job));
  Print(options, rows);
  return absl::OkStatus();
}

void AddOptions(CLI::App* app, BoundOptions* options) {
  app->add_option("--model", options->job.model, "of the zoo")->capture_default_str();
  app->add_option("--set", options->job.sets,
                  "KEY=VALUE of the job file, e.g. data.resize=64; may be repeated")
      ->allow_extra_args(false);
  app->add_option("--batch", options->one.batch, "samples of the shard")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 24));
  app->add_option("--policy", options->one.policy, "float32 or mixed_bfloat16")
      ->capture_default_str()
      ->check(CLI::IsMember({"float32", "mixed_bfloat16"}));
  app->add_option("--steps", options->job.steps, "measured")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  app->add_option("--warm-up", options->job.warm_up, "before them")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  app->add_flag("--json", options->job.json, "one line");
}

}  // namespace
}  // namespace ringmaster::bench

int main(int argc, char** argv) {
  using namespace ringmaster;
  bench::BoundOptions options;
  options.job.steps = 10;
  options.job.warm_up = 2;
  CLI::App app{
      "layer_bound: oneDNN's convolutions and products of a training step, and nothing else"};
  bench::AddOptions(&app, &options);
  CLI11_PARSE(app, argc, argv);
  omp_set_num_threads(1);  // a primitive keeps the number that it was made with
  const Status status = bench::Run(options);
  if (status.ok()) return 0;
  fmt::print(stderr, "layer_bound: {}\n", Message(status));
  return 1;
}

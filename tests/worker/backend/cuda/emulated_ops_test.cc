// Own kernels on the host, by the block emulator, and what binds products and convolutions round
// engines of loops (loop_engines.h): the op sweep against the float64 reference, every write inside
// its buffer, the same bits whatever order threads run in. No GPU is needed; what an emulation
// cannot see (libraries, speed, memory access widths, the device's own exp and log) is left to
// cuda_backend_test.
#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <set>

#include "tests/worker/backend/cuda/emulation/block_emulator.h"
#include "tests/worker/backend/cuda/emulation/guarded_memory.h"
#include "tests/worker/backend/cuda/libraries/loop_engines.h"
#include "tests/worker/backend/op_program.h"
#include "tests/worker/backend/relu_mask.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cuda/kernel.h"
#include "worker/backend/cuda/kernels/packs.h"
#include "worker/backend/cuda/libraries/convolution_kernel.h"

namespace ringmaster::cuda {

// Of libraries, which no emulation has, loops.
StatusOr<std::unique_ptr<MatmulEngine>> MakeMatmulEngine(const BindContext&,
                                                         const MatmulShape& shape) {
  return std::make_unique<testing::LoopMatmul>(shape);
}

StatusOr<LibraryConvolution> MakeConvolutionEngine(const BindContext& context) {
  const auto whole = ConvolutionOf(context.program.graph, context.node);
  if (!whole) return InvalidArgument("{} is no convolution", context.node.op());
  const ConvolutionShape part = PartOf(*whole, PartsOf(*whole));
  const ConvolutionVariant variant = Variants(part).front();
  return LibraryConvolution{variant,
                            std::make_unique<testing::LoopConvolution>(Apply(part, variant))};
}

namespace {

using graph::DType;
using graph::OpCase;
using testing::GuardedMemory;
using testing::OpProgram;

void Encode(DType dtype, const std::vector<double>& values, unsigned char* to) {
  for (size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<float>(values[i]);
    const auto put = [&](auto element) {
      std::memcpy(to + i * sizeof(element), &element, sizeof(element));
    };
    if (dtype == DType::kFloat32) put(value);
    if (dtype == DType::kBFloat16) put(FromFloat<__nv_bfloat16>(value));
    if (dtype == DType::kFloat16) put(FromFloat<__half>(value));
    if (dtype == DType::kInt32) put(static_cast<int32_t>(values[i]));
  }
}

std::vector<float> Decode(DType dtype, const unsigned char* from, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = testing::ElementAt(dtype, from, static_cast<int64_t>(i));
  }
  return values;
}

// Whether a library computes the node on a GPU, and an engine of loops here.
bool IsOfLibraries(const graph::Graph& graph) {
  const graph::Node& node = graph.node(0);
  if (const auto convolution = ConvolutionOf(graph, node)) return !convolution->is_depthwise();
  return node.attributes<graph::DenseAttributes>() != nullptr;
}

// Of node 0.
BindContext ContextOf(const graph::Program& program) {
  // Neither own ops nor loops ask anything of the device.
  alignas(64) static std::byte no_device[64];
  return {program, program.graph.node(0), *reinterpret_cast<const Device*>(no_device)};
}

enum class OutputPlace : uint8_t { kOwn, kInPlace };

// Node 0 of the program, bound and run once; its outputs.
std::vector<std::vector<float>> RunNode(const graph::Program& program,
                                        const graph::ReferenceFeeds& feeds,
                                        const graph::RandomKeys& keys, OutputPlace place) {
  const BindContext context = ContextOf(program);
  const graph::Node& node = context.node;
  auto kernel = FindKernel(node.kind)(context);
  REQUIRE(Message(kernel.status()) == "");

  std::vector<std::unique_ptr<GuardedMemory>> memories;
  const size_t alignment =
      IsOfLibraries(program.graph) ? size_t{kProductAlignment} : GuardedMemory::kAlignment;
  const auto add = [&](size_t bytes) {
    memories.push_back(std::make_unique<GuardedMemory>(bytes, alignment));
    return memories.back()->data();
  };
  const auto add_value = [&](const graph::Value& value) {
    return add(static_cast<size_t>(graph::Elements(value.shape)) * graph::ByteSize(value.dtype));
  };
  Operands operands;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    operands.inputs.push_back(add_value(context.input(i)));
    Encode(context.input(i).dtype, feeds.at(node.inputs[i]), memories.back()->data());
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    operands.outputs.push_back(add_value(context.output(i)));
  }
  const auto shared = static_cast<size_t>(graph::TraitsOf(node.kind).storage_input);
  if (place == OutputPlace::kInPlace) operands.outputs[0] = memories[shared]->data();
  operands.workspace = reinterpret_cast<std::byte*>(add((*kernel)->workspace_bytes()));
  const uint64_t seed_and_step[] = {keys.seed, keys.step};
  operands.keys = {seed_and_step, keys.samples.data()};
  REQUIRE(Message((*kernel)->Attach(operands)) == "");
  REQUIRE(Message((*kernel)->Launch(nullptr)) == "");

  std::vector<std::vector<float>> outputs;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const graph::Value& value = context.output(i);
    outputs.push_back(Decode(value.dtype, static_cast<unsigned char*>(operands.outputs[i]),
                             static_cast<size_t>(graph::Elements(value.shape))));
  }
  for (const auto& memory : memories) CHECK(memory->intact());
  return outputs;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

double Tolerance(DType type) {
  return type == DType::kBFloat16 ? 1e-2 : type == DType::kFloat16 ? 1e-3 : 2e-6;
}

// That the race check sees of a kernel of ours for node 0, which writes each output in packs of at
// most 32 bytes; none where outputs are the bytes of an input.
uint64_t FewestAccesses(const graph::Graph& graph) {
  const graph::Node& node = graph.node(0);
  if (graph::TraitsOf(node.kind).storage == graph::Storage::kAlias) return 0;
  if (IsOfLibraries(graph)) return 0;
  uint64_t bytes = 0;
  for (const graph::ValueId id : node.outputs) {
    const graph::Value& value = graph.value(id);
    bytes += static_cast<uint64_t>(graph::Elements(value.shape)) * graph::ByteSize(value.dtype);
  }
  return bytes / 32;
}

// Both orders of threads, and in place where the plan may do that: the same bits, near the
// reference, and every access looked at.
void CheckNode(const OpProgram& op) {
  const graph::Node& node = op.program.graph.node(0);
  const graph::ReferenceFeeds feeds = testing::FeedOp(op);
  const graph::RandomKeys keys = testing::KeysOf(op.program);
  const auto expected = graph::RunReference(op.program.graph, feeds, keys);
  REQUIRE(Message(expected.status()) == "");
  testing::SetSchedule(testing::Schedule::kForward);
  const uint64_t accesses = testing::CheckedAccesses();
  const auto actual = RunNode(op.program, feeds, keys, OutputPlace::kOwn);
  CHECK(testing::CheckedAccesses() - accesses >= FewestAccesses(op.program.graph));
  testing::SetSchedule(testing::Schedule::kBackward);
  const auto again = RunNode(op.program, feeds, keys, OutputPlace::kOwn);
  for (size_t i = 0; i < actual.size(); ++i) {
    const auto& wanted = (*expected)[static_cast<size_t>(node.outputs[i])];
    INFO("output " << i);
    CHECK(testing::RelativeError<float>(actual[i], wanted) < testing::ToleranceOf(op, Tolerance));
    CHECK(SameBits(actual[i], again[i]));
  }
  if (graph::TraitsOf(node.kind).storage != graph::Storage::kOwn) {
    CHECK(SameBits(actual[0], RunNode(op.program, feeds, keys, OutputPlace::kInPlace)[0]));
  }
  testing::SetSchedule(testing::Schedule::kForward);
}

void CheckAll(DType compute) {
  std::set<std::string> checked;
  for (const OpCase& test : graph::AllCases()) {
    INFO(graph::NameOf(test));
    const auto op = testing::MakeOpProgram(test, compute);
    REQUIRE(Message(op.status()) == "");
    CheckNode(*op);
    checked.insert(graph::TraitsOf(test.kind).name);
  }
  for (const graph::Op& op : graph::OpTable()) {
    INFO(op.traits.name << " has no case in tests/common/graph/cases");
    CHECK(checked.contains(op.traits.name));
  }
}

}  // namespace

TEST_CASE("Emulated kernels: float32 agrees with the reference") { CheckAll(DType::kFloat32); }

TEST_CASE("Emulated kernels: bfloat16 agrees with the reference") { CheckAll(DType::kBFloat16); }

TEST_CASE("Emulated kernels: float16 agrees with the reference") { CheckAll(DType::kFloat16); }

TEST_CASE("Emulated kernels: a batch_norm is computed again by its statistics with the same bits") {
  int checked = 0;
  for (const DType compute : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const OpCase& test : graph::AllCases()) {
      if (!std::holds_alternative<graph::BatchNorm>(test.kind)) continue;
      INFO(graph::NameOf(test) << ", " << graph::Name(compute));
      const auto op = testing::MakeOpProgram(test, compute);
      REQUIRE(Message(op.status()) == "");
      const graph::Node& first = op->program.graph.node(0);
      const graph::ReferenceFeeds feeds = testing::FeedOp(*op);
      const graph::RandomKeys keys = testing::KeysOf(op->program);
      const auto made = RunNode(op->program, feeds, keys, OutputPlace::kOwn);

      graph::Program program;
      program.samples = op->program.samples;
      graph::ReferenceFeeds again;
      graph::Node second = {
          "again", graph::BatchNormInference{*first.attributes<graph::BatchNormAttributes>()}, {}};
      const auto feed = [&](graph::ValueId id, std::vector<double> values) {
        const graph::Value& value = op->program.graph.value(id);
        second.inputs.push_back(program.graph.AddFed(value.name, value.shape, value.dtype));
        again[second.inputs.back()] = std::move(values);
      };
      const bool residual = first.as<graph::BatchNorm>()->residual;
      for (size_t i = 0; i < first.inputs.size() - (residual ? 1 : 0); ++i) {
        feed(first.inputs[i], feeds.at(first.inputs[i]));
      }
      for (size_t i : {1, 2}) feed(first.outputs[i], {made[i].begin(), made[i].end()});
      if (residual) feed(first.inputs.back(), feeds.at(first.inputs.back()));
      REQUIRE(graph::AddOp(&program.graph, second).ok());
      CHECK(SameBits(RunNode(program, again, keys, OutputPlace::kOwn)[0], made[0]));
      ++checked;
    }
  }
  CHECK(checked > 0);
}

TEST_CASE("Emulated kernels: the gradient of a batch_norm passes what its activation passed") {
  for (const DType compute : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    testing::CheckMasks(compute, [](const OpProgram& op, const auto& feeds) {
      return RunNode(op.program, feeds, testing::KeysOf(op.program), OutputPlace::kOwn);
    });
  }
}

TEST_CASE("Emulated kernels: the bits of the CPU backend where the case says so") {
  const auto backend = cpu::CpuBackend::Create();
  REQUIRE(Message(backend.status()) == "");
  for (DType compute : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const OpCase& test : graph::AllCases()) {
      if (!test.same_bits) continue;
      INFO(graph::NameOf(test) << ", " << graph::Name(compute));
      const auto op = testing::MakeOpProgram(test, compute);
      REQUIRE(Message(op.status()) == "");
      const auto feeds = testing::FeedOp(*op);
      const auto keys = testing::KeysOf(op->program);
      auto bound = testing::BoundProgram::Create(**backend, op->program);
      REQUIRE(Message(bound.status()) == "");
      const auto expected = (*bound)->Run(feeds, keys);
      REQUIRE(Message(expected.status()) == "");
      const auto actual = RunNode(op->program, feeds, keys, OutputPlace::kOwn);
      for (size_t i = 0; i < actual.size(); ++i) {
        CHECK(SameBits(actual[i], expected->gradients[i]));
      }
    }
  }
}

TEST_CASE("Emulated kernels: the backend has a kernel for every op") {
  for (const graph::Op& op : graph::OpTable()) {
    INFO(op.traits.name);
    CHECK(FindKernel(*graph::KindNamed(op.traits.name)) != nullptr);
  }
}

TEST_CASE("Emulated kernels: a max_pool whose gradient no kernel computes is refused when bound") {
  // Of one image.
  const auto bind = [](const graph::PoolAttributes& pool, const graph::Shape& x) {
    const graph::Shape y = {1, graph::HeightAxis(pool, x[1], pool.window[0]).output(),
                            graph::WidthAxis(pool, x[2], pool.window[1]).output(), x[3]};
    const OpCase test = {"large", graph::MaxPoolGradient{pool}, {{x}, {y}, {y}}};
    const auto op = testing::MakeOpProgram(test, DType::kFloat32);
    REQUIRE(Message(op.status()) == "");
    const BindContext context = ContextOf(op->program);
    return FindKernel(context.node.kind)(context).status();
  };
  // Too many positions for their numbers; a column less; as many, side by side.
  const Status refused = bind({{256, 256}, {128, 128}}, {1, 512, 512, 1});
  CHECK(absl::IsUnimplemented(refused));
  CHECK_THAT(Message(refused), Catch::Contains("node (max_pool_gradient)") &&
                                   Catch::Contains("256 by 256") &&
                                   Catch::Contains("strides of 128 by 128"));
  CHECK(Message(bind({{256, 255}, {128, 128}}, {1, 512, 512, 1})) == "");
  CHECK(Message(bind({{256, 256}, {256, 256}}, {1, 512, 512, 1})) == "");
  // Over an element of channels that go by packs lie 4 x 100 x 100 maxima, more than are kept.
  CHECK(absl::IsUnimplemented(bind({{100, 100}, {1, 1}}, {1, 300, 300, 4})));
  CHECK(Message(bind({{60, 60}, {1, 1}}, {1, 300, 300, 4})) == "");
}

TEST_CASE("Emulated kernels: NaN passes activations, pooling, convolutions, norms and losses") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto first_output = [&](const graph::Kind& kind, size_t at,
                                const std::vector<graph::TensorType>& others = {}) {
    OpCase test = {"NaN", kind, {{{1, 2, 2, 8}}}};
    test.inputs.insert(test.inputs.end(), others.begin(), others.end());
    const auto op = testing::MakeOpProgram(test, DType::kBFloat16);
    REQUIRE(Message(op.status()) == "");
    auto feeds = testing::FeedOp(*op);
    feeds[op->program.parameters[0].value][at] = nan;
    return RunNode(op->program, feeds, testing::KeysOf(op->program), OutputPlace::kOwn)[0];
  };
  CHECK(std::isnan(first_output(graph::Relu{}, 5)[5]));
  // The first of a window, which no comparison displaces.
  CHECK(std::isnan(first_output(graph::MaxPool{}, 3)[3]));
  CHECK(std::isnan(first_output(graph::GlobalMaxPool{}, 3)[3]));
  CHECK_FALSE(std::isnan(first_output(graph::GlobalMaxPool{}, 11)[3]));
  CHECK(std::isnan(first_output(graph::AveragePool{}, 30)[6]));
  CHECK(std::isnan(first_output(graph::Pad{{1, 0, 0, 0, 0, 0}}, 5)[16 + 5]));
  CHECK(std::isnan(first_output(graph::GlobalAveragePool{}, 30)[6]));
  const auto softmax = first_output(graph::Softmax{}, 13);
  for (size_t i = 0; i < softmax.size(); ++i) CHECK(std::isnan(softmax[i]) == (i / 8 == 1));
  const auto passes = graph::ForEachOp([&]<typename Op>(std::type_identity<Op>) {
    if constexpr (graph::UnaryOp<Op>) return std::isnan(first_output(Op{}, 5)[5]);
    if constexpr (graph::PairLossWithSlope<Op>)
      return std::isnan(first_output(Op{}, 31, {{{1, 2, 2, 8}}})[0]);
    return true;
  });
  for (size_t i = 0; i < passes.size(); ++i) {
    INFO(graph::OpTable()[i].traits.name);
    CHECK(passes[i]);
  }
  graph::Conv2dAttributes depthwise = {.pads = {1, 1, 1, 1},
                                       .activation = graph::Activation::kRelu};
  depthwise.groups = 8;
  const auto convolved = first_output(graph::Conv2d{depthwise}, 5, {{{8, 3, 3, 1}}});
  for (size_t i = 0; i < convolved.size(); ++i) CHECK(std::isnan(convolved[i]) == (i % 8 == 5));
  const auto normed = first_output(graph::LayerNorm{{.scale = false, .center = false}}, 12);
  for (size_t i = 0; i < normed.size(); ++i) CHECK(std::isnan(normed[i]) == (i / 8 == 1));
}

}  // namespace ringmaster::cuda

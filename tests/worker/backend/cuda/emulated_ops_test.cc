// Own kernels on the host, by the block emulator: the op sweep against the float64 reference, every
// write inside its buffer, the same bits whatever order threads run in. No GPU is needed; what an
// emulation cannot see (speed, memory access widths, the device's own exp and log) is left to
// cuda_backend_test.
#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <map>
#include <memory>

#include "tests/worker/backend/cuda/emulation/block_emulator.h"
#include "tests/worker/backend/cuda/emulation/guarded_memory.h"
#include "tests/worker/backend/op_rows.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cuda/kernel.h"
#include "worker/backend/cuda/packs.h"

namespace ringmaster::cuda {

BindOp BindAdd, BindBatchNorm, BindBatchNormGradient, BindBatchNormInference, BindCast, BindDropout,
    BindGlobalAveragePool, BindGlobalAveragePoolGradient, BindMaxPool, BindMaxPoolGradient,
    BindRelu, BindReluGradient, BindReshape, BindSoftmaxCrossEntropy,
    BindSoftmaxCrossEntropyGradient;

namespace {

using graph::DType;
using testing::GuardedMemory;
using testing::OpCase;
using testing::OpRow;

using graph::KernelOf;

// This backend's own; products and convolutions are cuBLAS' and cuDNN's.
constexpr auto kOwn = graph::MakeKernelTable<BindFunction>({
    KernelOf<graph::Add>(&BindAdd),
    KernelOf<graph::BatchNorm>(&BindBatchNorm),
    KernelOf<graph::BatchNormGradient>(&BindBatchNormGradient),
    KernelOf<graph::BatchNormInference>(&BindBatchNormInference),
    KernelOf<graph::Cast>(&BindCast),
    KernelOf<graph::Dropout>(&BindDropout),
    KernelOf<graph::DropoutGradient>(&BindDropout),
    KernelOf<graph::GlobalAveragePool>(&BindGlobalAveragePool),
    KernelOf<graph::GlobalAveragePoolGradient>(&BindGlobalAveragePoolGradient),
    KernelOf<graph::MaxPool>(&BindMaxPool),
    KernelOf<graph::MaxPoolGradient>(&BindMaxPoolGradient),
    KernelOf<graph::Relu>(&BindRelu),
    KernelOf<graph::ReluGradient>(&BindReluGradient),
    KernelOf<graph::Reshape>(&BindReshape),
    KernelOf<graph::SoftmaxCrossEntropy>(&BindSoftmaxCrossEntropy),
    KernelOf<graph::SoftmaxCrossEntropyGradient>(&BindSoftmaxCrossEntropyGradient),
});

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

template <typename T>
float ElementAt(const unsigned char* from, size_t i) {
  T element;
  std::memcpy(&element, from + i * sizeof(T), sizeof(T));
  return ToFloat(element);
}

std::vector<float> Decode(DType dtype, const unsigned char* from, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = dtype == DType::kFloat32    ? ElementAt<float>(from, i)
                : dtype == DType::kBFloat16 ? ElementAt<__nv_bfloat16>(from, i)
                                            : ElementAt<__half>(from, i);
  }
  return values;
}

std::unique_ptr<GuardedMemory> MemoryOf(const graph::Value& value) {
  return std::make_unique<GuardedMemory>(static_cast<size_t>(graph::Elements(value.shape)) *
                                         graph::ByteSize(value.dtype));
}

enum class OutputPlace : uint8_t { kOwn, kInPlace };

// Node 0 of the program, bound and run once; its outputs.
std::vector<std::vector<float>> RunNode(const graph::Program& program,
                                        const graph::ReferenceFeeds& feeds,
                                        const graph::RandomKeys& keys, OutputPlace place) {
  const graph::Node& node = program.graph.node(0);
  // Own ops ask nothing of the device.
  alignas(64) static std::byte no_device[64];
  const BindContext context = {program, node, *reinterpret_cast<const Device*>(no_device)};
  const BindFunction bind = kOwn[node.kind.index()];
  auto kernel = bind(context);
  REQUIRE(Message(kernel.status()) == "");

  std::vector<std::unique_ptr<GuardedMemory>> memories;
  const auto add = [&](std::unique_ptr<GuardedMemory> memory) {
    memories.push_back(std::move(memory));
    return memories.back()->data();
  };
  Operands operands;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    operands.inputs.push_back(add(MemoryOf(context.input(i))));
    Encode(context.input(i).dtype, feeds.at(node.inputs[i]), memories.back()->data());
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    operands.outputs.push_back(add(MemoryOf(context.output(i))));
  }
  const auto shared = static_cast<size_t>(graph::TraitsOf(node.kind).storage_input);
  if (place == OutputPlace::kInPlace) operands.outputs[0] = memories[shared]->data();
  operands.workspace = reinterpret_cast<std::byte*>(
      add(std::make_unique<GuardedMemory>((*kernel)->workspace_bytes())));
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

// Both orders of threads, and in place where the plan may do that: the same bits, near the
// reference.
void CheckNode(const graph::Program& program, const graph::ReferenceFeeds& feeds,
               double tolerance) {
  const graph::Node& node = program.graph.node(0);
  const graph::RandomKeys keys = testing::KeysOf(program);
  const auto expected = graph::RunReference(program.graph, feeds, keys);
  REQUIRE(Message(expected.status()) == "");
  testing::SetSchedule(testing::Schedule::kForward);
  const auto actual = RunNode(program, feeds, keys, OutputPlace::kOwn);
  testing::SetSchedule(testing::Schedule::kBackward);
  const auto again = RunNode(program, feeds, keys, OutputPlace::kOwn);
  for (size_t i = 0; i < actual.size(); ++i) {
    const auto& wanted = (*expected)[static_cast<size_t>(node.outputs[i])];
    INFO("output " << i);
    CHECK(testing::RelativeError<float>(actual[i], wanted) < tolerance);
    CHECK(SameBits(actual[i], again[i]));
  }
  if (graph::TraitsOf(node.kind).storage != graph::Storage::kOwn) {
    CHECK(SameBits(actual[0], RunNode(program, feeds, keys, OutputPlace::kInPlace)[0]));
  }
  testing::SetSchedule(testing::Schedule::kForward);
}

void CheckAll(DType compute, double tolerance) {
  int checked = 0;
  for (const OpRow& row : testing::OpRows()) {
    if (kOwn[row.kind.index()] == nullptr) continue;
    INFO(graph::TraitsOf(row.kind).name << " " << graph::ToString(row.inputs[0]));
    const auto op = testing::MakeOpProgram(testing::MakeOpCase(row, compute));
    REQUIRE(Message(op.status()) == "");
    CheckNode(op->program, testing::FeedRow(row, op->program), tolerance);
    ++checked;
  }
  CHECK(checked > 30);
}

// Logits with equal ones among them, labels all over, a seed where there is one.
void CheckLoss(const graph::Kind& kind, int64_t rows, int64_t classes) {
  INFO(graph::TraitsOf(kind).name << " of " << rows << " rows, " << classes << " classes");
  graph::Program program;
  program.samples = rows;
  graph::Node node = {"loss", kind, {}};
  node.inputs = {program.graph.AddFed("logits", {rows, classes}, DType::kFloat32),
                 program.graph.AddFed("labels", {rows}, DType::kInt32)};
  graph::ReferenceFeeds feeds;
  auto& logits = feeds[node.inputs[0]];
  logits = testing::UniformValues({rows, classes}, 8, 1, "logits");
  for (double& logit : logits) logit = std::round(logit * 2) / 2 + 100;
  for (int64_t n = 0; n < rows; ++n) {
    const auto first = logits.begin() + n * classes;
    const auto largest = std::max_element(first, first + classes) - first;
    feeds[node.inputs[1]].push_back(static_cast<double>(n % 2 == 0 ? largest : n % classes));
  }
  if (std::holds_alternative<graph::SoftmaxCrossEntropyGradient>(kind)) {
    node.inputs.push_back(program.graph.AddFed("seed", {}, DType::kFloat32));
    feeds[node.inputs[2]] = {0.75};
  }
  REQUIRE(Message(graph::AddOp(&program.graph, node).status()) == "");
  CheckNode(program, feeds, 1e-6);
}

}  // namespace

TEST_CASE("Emulated kernels: float32 agrees with the reference") {
  CheckAll(DType::kFloat32, 1e-5);
}

TEST_CASE("Emulated kernels: bfloat16 agrees with the reference") {
  CheckAll(DType::kBFloat16, 1e-2);
}

TEST_CASE("Emulated kernels: float16 agrees with the reference") {
  CheckAll(DType::kFloat16, 1e-3);
}

TEST_CASE("Emulated kernels: the loss and its gradient agree with the reference") {
  for (const graph::Kind& kind : {graph::Kind(graph::SoftmaxCrossEntropy{}),
                                  graph::Kind(graph::SoftmaxCrossEntropyGradient{})}) {
    CheckLoss(kind, 1, 2);
    CheckLoss(kind, 5, 10);
    CheckLoss(kind, 4, 32);
    CheckLoss(kind, 7, 1000);
    CheckLoss(kind, 300, 33);
  }
}

TEST_CASE("Emulated kernels: dropout has the bits of the CPU backend") {
  const auto backend = cpu::CpuBackend::Create();
  REQUIRE(Message(backend.status()) == "");
  for (DType type : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const graph::Shape& shape : {graph::Shape{3, 5, 7}, {2, 4104}, {70, 8}}) {
      INFO(graph::Name(type) << " " << graph::ToString(shape));
      const auto op = testing::MakeOpProgram(
          {graph::Dropout{{0.3, "dropout1"}}, {{shape, type}}, {}, shape[0]});
      REQUIRE(Message(op.status()) == "");
      const auto feeds = testing::FeedOp(op->program, 3);
      const auto keys = testing::KeysOf(op->program);
      auto bound = testing::BoundProgram::Create(**backend, op->program);
      REQUIRE(Message(bound.status()) == "");
      const auto expected = (*bound)->Run(feeds, keys);
      REQUIRE(Message(expected.status()) == "");
      CHECK(SameBits(RunNode(op->program, feeds, keys, OutputPlace::kOwn)[0],
                     expected->gradients[0]));
    }
  }
}

TEST_CASE("Emulated kernels: NaN passes relu, pooling and the loss") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto first_output = [&](const OpCase& op_case, size_t at) {
    const auto op = testing::MakeOpProgram(op_case);
    REQUIRE(Message(op.status()) == "");
    auto feeds = testing::FeedOp(op->program, 3);
    feeds[op->program.parameters[0].value][at] = nan;
    return RunNode(op->program, feeds, testing::KeysOf(op->program), OutputPlace::kOwn)[0];
  };
  const graph::TensorType image = {{1, 2, 2, 8}, DType::kBFloat16};
  CHECK(std::isnan(first_output({graph::Relu{}, {image}, {}, 1}, 5)[5]));
  // The first of a window, which no comparison displaces.
  CHECK(std::isnan(first_output({graph::MaxPool{}, {image}, {}, 1}, 3)[3]));
  CHECK(std::isnan(first_output({graph::GlobalAveragePool{}, {image}, {}, 1}, 30)[6]));
}

}  // namespace ringmaster::cuda

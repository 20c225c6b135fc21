// What the kernels of convolutions do round a library's engine, on the block emulator: every
// variant of a shape, and products of patches, computed by engines of loops (loop_engines.h), give
// what the reference makes of the node.
#include "worker/backend/cuda/libraries/convolution_kernel.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "common/graph/ops/op_table.h"
#include "common/graph/ops/reference_executor.h"
#include "tests/support/program_feeds.h"
#include "tests/support/relative_error.h"
#include "tests/worker/backend/cuda/emulation/block_emulator.h"
#include "tests/worker/backend/cuda/emulation/guarded_memory.h"
#include "tests/worker/backend/cuda/late_runtime.h"
#include "tests/worker/backend/cuda/libraries/loop_engines.h"
#include "worker/backend/cuda/device/runtime.h"
#include "worker/backend/cuda/kernel.h"

namespace ringmaster::cuda {
namespace {

using graph::Activation;
using graph::DType;

// 256-byte pieces of host memory, which is the emulator's device memory.
struct alignas(256) Piece {
  std::byte bytes[256];
};
std::vector<Piece> Buffer(size_t bytes) {
  std::vector<Piece> buffer(bytes / sizeof(Piece) + 1);
  std::memset(buffer.data(), 0x7f, buffer.size() * sizeof(Piece));
  return buffer;
}

size_t BytesOf(const graph::Value& value) {
  return static_cast<size_t>(graph::Elements(value.shape)) * graph::ByteSize(value.dtype);
}

std::vector<double> Decode(const graph::Value& value, const void* data) {
  std::vector<double> values(static_cast<size_t>(graph::Elements(value.shape)));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = testing::ElementAt(value.dtype, data, static_cast<int64_t>(i));
  }
  return values;
}

void Encode(const graph::Value& value, const std::vector<double>& values, void* data) {
  for (size_t i = 0; i < values.size(); ++i) {
    const auto element = static_cast<float>(values[i]);
    testing::SetElement(value.dtype, data, static_cast<int64_t>(i), element);
  }
}

// A graph of one node, with operands and what the reference makes of them.
struct Case {
  graph::Graph graph;
  graph::ReferenceFeeds feeds;
  std::vector<std::vector<double>> expected;

  [[nodiscard]] const graph::Node& node() const { return graph.nodes()[0]; }
};

Case MakeCase(graph::Kind kind, DType type, const std::vector<graph::Shape>& inputs,
              std::vector<graph::TensorType> wanted) {
  Case made;
  graph::Node node = {"node", std::move(kind), {}};
  for (size_t i = 0; i < inputs.size(); ++i) {
    const DType dtype = i == 2 ? DType::kFloat32 : type;
    node.inputs.push_back(made.graph.AddFed("input" + std::to_string(i), inputs[i], dtype));
    auto values = testing::UniformValues(inputs[i], 1, 5, "input" + std::to_string(i));
    for (double& value : values) value = graph::Round(value, dtype);
    made.feeds[node.inputs.back()] = std::move(values);
  }
  const auto outputs = graph::AddOp(&made.graph, node, std::move(wanted));
  REQUIRE(Message(outputs.status()) == "");
  const auto reference = graph::RunReference(made.graph, made.feeds, {});
  REQUIRE(Message(reference.status()) == "");
  for (const graph::ValueId id : *outputs) {
    made.expected.push_back((*reference)[static_cast<size_t>(id)]);
  }
  return made;
}

// The largest relative error of any output. nullptr: what a stream is not needed for.
double ErrorOf(const Case& test, Kernel& kernel, cudaStream_t stream = nullptr) {
  const graph::Node& node = test.node();
  std::vector<std::vector<Piece>> buffers;
  Operands operands;
  for (const graph::ValueId id : node.inputs) {
    buffers.push_back(Buffer(BytesOf(test.graph.value(id))));
    Encode(test.graph.value(id), test.feeds.at(id), buffers.back().data());
    operands.inputs.push_back(buffers.back().data());
  }
  for (const graph::ValueId id : node.outputs) {
    buffers.push_back(Buffer(BytesOf(test.graph.value(id))));
    operands.outputs.push_back(buffers.back().data());
  }
  std::vector<Piece> workspace = Buffer(kernel.workspace_bytes());
  operands.workspace = reinterpret_cast<std::byte*>(workspace.data());
  REQUIRE(Message(kernel.Attach(operands)) == "");
  REQUIRE(Message(kernel.Launch(stream)) == "");
  if (stream != nullptr) REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  const auto* end = reinterpret_cast<const unsigned char*>(workspace.data());
  CHECK(end[kernel.workspace_bytes()] == 0x7f);  // no more than it said
  double worst = 0;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const auto values = Decode(test.graph.value(node.outputs[i]), operands.outputs[i]);
    worst = std::max(worst, testing::RelativeError<double>(values, test.expected[i]));
  }
  return worst;
}

BiasGradient BiasGradientOf(const Case& test) {
  return test.node().outputs.size() > 1 ? BiasGradient::kWanted : BiasGradient::kNone;
}

double ErrorOf(const Case& test, const ConvolutionVariant& variant, int64_t parts) {
  const auto shape = ConvolutionOf(test.graph, test.node());
  REQUIRE(shape.has_value());
  const auto stream = MakeStream();
  REQUIRE(Message(stream.status()) == "");
  const auto kernel = MakeConvolutionKernel(
      "node", {.shape = *shape,
               .parts = parts,
               .library = {variant, std::make_unique<testing::LoopConvolution>(
                                        Apply(PartOf(*shape, parts), variant))},
               .bias_gradient = BiasGradientOf(test)});
  REQUIRE(Message(kernel.status()) == "");
  return ErrorOf(test, **kernel, stream->get());
}

constexpr graph::Conv2dAttributes kUneven = {{2, 1}, {0, 2, 1, 1}};

std::vector<Case> Cases(const graph::Conv2dAttributes& attributes, DType type, int64_t channels,
                        int64_t filters) {
  const graph::Shape x = {2, 6, 5, channels};
  const graph::Shape w = {filters, 3, 4, channels / attributes.groups};
  const int64_t outputs = attributes.dilations[0] == 1 ? 3 : 2;
  const graph::Shape y = {2, outputs, 5, filters};
  graph::Conv2dAttributes relu = attributes;
  relu.activation = Activation::kRelu;
  const graph::TensorType dw = {w, DType::kFloat32};
  const graph::TensorType db = {{filters}, DType::kFloat32};
  return {MakeCase(graph::Conv2d{attributes}, type, {x, w}, {}),
          MakeCase(graph::Conv2d{attributes}, type, {x, w, {filters}}, {}),
          MakeCase(graph::Conv2d{relu}, type, {x, w, {filters}}, {}),
          MakeCase(graph::Conv2d{relu}, type, {x, w}, {}),
          MakeCase(graph::Conv2dInputGradient{attributes}, type, {y, w}, {{x, type}}),
          MakeCase(graph::Conv2dWeightGradient{attributes}, type, {x, y}, {dw}),
          MakeCase(graph::Conv2dWeightGradient{attributes}, type, {x, y}, {dw, db})};
}

void CheckVariants(const std::vector<Case>& cases, double limit) {
  for (const Case& test : cases) {
    const auto shape = ConvolutionOf(test.graph, test.node());
    REQUIRE(shape.has_value());
    for (const ConvolutionVariant& variant : Variants(*shape)) {
      INFO(test.node().op() << " " << Key(*shape) << ": " << Describe(variant));
      for (const int64_t parts : {1, 2}) CHECK(ErrorOf(test, variant, parts) < limit);
    }
  }
}

}  // namespace

TEST_CASE("Convolution kernel: every variant computes the node") {
  for (const DType type : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    const double limit = type == DType::kFloat32 ? 1e-5 : type == DType::kFloat16 ? 1e-3 : 1e-2;
    for (const auto& [channels, filters] :
         {std::pair<int64_t, int64_t>{8, 16}, {3, 8}, {8, 5}, {3, 10}}) {
      CheckVariants(Cases(kUneven, type, channels, filters), limit);
    }
    // Rows under a window lie two apart.
    graph::Conv2dAttributes grouped = kUneven;
    grouped.groups = 2;
    grouped.dilations = {2, 1};
    CheckVariants(Cases(grouped, type, 6, 10), limit);
  }
}

TEST_CASE("Convolution kernel: parts of a gradient of weights are branches of a graph") {
  constexpr int64_t kParts = 6;
  const graph::Shape x = {kParts, 4, 4, 8}, y = {kParts, 4, 4, 16}, w = {16, 3, 3, 8};
  const graph::Conv2dAttributes same = {.pads = {1, 1, 1, 1}};
  const auto nodes = [&](const Case& test, size_t scratch, size_t* joins, size_t* bytes) {
    const auto shape = ConvolutionOf(test.graph, test.node());
    REQUIRE(shape.has_value());
    const auto stream = MakeStream();
    REQUIRE(stream.ok());
    auto engine = std::make_unique<testing::LoopConvolution>(PartOf(*shape, kParts), scratch);
    const auto kernel = MakeConvolutionKernel(
        "node", {.shape = *shape, .parts = kParts, .library = {{}, std::move(engine)}});
    REQUIRE(Message(kernel.status()) == "");
    *bytes = (*kernel)->workspace_bytes();
    CHECK(ErrorOf(test, **kernel, stream->get()) < 1e-5);
    cudaGraph_t captured = nullptr;
    REQUIRE(cudaStreamBeginCapture(stream->get(), cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    CHECK(Message((*kernel)->Launch(stream->get())) == "");
    REQUIRE(cudaStreamEndCapture(stream->get(), &captured) == cudaSuccess);
    const Graph graph(captured);
    cudaGraphExec_t exec = nullptr;
    REQUIRE(cudaGraphInstantiate(&exec, captured, 0) == cudaSuccess);
    const GraphExec made(exec);
    *joins = testing::NewestGraph().joins;
    return testing::NewestGraph().launches;
  };
  constexpr size_t kLarge = size_t{30} << 20;
  size_t joins = 0, bytes = 0;
  const Case gradient =
      MakeCase(graph::Conv2dWeightGradient{same}, DType::kFloat32, {x, y}, {{w, DType::kFloat32}});
  CHECK(nodes(gradient, 5, &joins, &bytes) == kParts + 1);  // and their sum, behind all of them
  CHECK(joins == 1);
  const size_t each_dw = kParts * 16 * 3 * 3 * 8 * sizeof(float);
  CHECK(bytes == kParts * kAlignment + each_dw);
  // Two have room for their scratch.
  CHECK(nodes(gradient, kLarge, &joins, &bytes) == kParts + 1);
  CHECK(joins == 1);
  CHECK(bytes == 2 * kLarge + each_dw);
  const Case forward = MakeCase(graph::Conv2d{same}, DType::kFloat32, {x, w}, {});
  CHECK(nodes(forward, kLarge, &joins, &bytes) == kParts);  // one after the other
  CHECK(joins == 0);
  CHECK(bytes == kLarge);
}

TEST_CASE("Patches: products of parts of the samples, one after the other, compute the node") {
  struct Geometry {
    graph::Conv2dAttributes attributes;
    graph::Shape x, w, y;
    std::vector<int64_t> parts;
  };
  for (const DType type : {DType::kBFloat16, DType::kFloat16}) {
    for (const Geometry& g :
         {Geometry{
              {{2, 2}, {3, 3, 3, 3}}, {6, 15, 13, 3}, {16, 7, 7, 3}, {6, 8, 7, 16}, {1, 2, 3, 6}},
          // Two samples of y are what cuBLASLt wants to begin at; rows of x are whole packs.
          Geometry{{{1, 1}, {1, 1, 1, 1}}, {4, 4, 2, 4}, {8, 3, 3, 4}, {4, 4, 2, 8}, {1, 2}}}) {
      const graph::TensorType dw = {g.w, DType::kFloat32};
      const graph::TensorType db = {{g.w[0]}, DType::kFloat32};
      for (const Case& test :
           {MakeCase(graph::Conv2d{g.attributes}, type, {g.x, g.w}, {}),
            MakeCase(graph::Conv2dWeightGradient{g.attributes}, type, {g.x, g.y}, {dw}),
            MakeCase(graph::Conv2dWeightGradient{g.attributes}, type, {g.x, g.y}, {dw, db})}) {
        const auto shape = ConvolutionOf(test.graph, test.node());
        REQUIRE(shape.has_value());
        const auto whole = PatchProductOf(*shape);
        REQUIRE(whole.has_value());
        // What is written in 16 bits is rounded once, what is added up never.
        const bool wide = shape->result == DType::kFloat32;
        const double limit = wide ? 1e-5 : type == DType::kFloat16 ? 1e-3 : 1e-2;
        for (const int64_t parts : g.parts) {
          INFO(Key(*shape) << " in " << parts);
          const auto product =
              PatchProductOf(*shape, 2 * whole->rows() * whole->patches.columns / parts);
          REQUIRE(product.has_value());
          REQUIRE(product->parts == parts);
          const auto kernel = MakePatchKernel(
              *shape, *product, std::make_unique<testing::LoopMatmul>(MatmulOf(*shape, *product)),
              BiasGradientOf(test));
          CHECK(ErrorOf(test, *kernel) < limit);
        }
      }
    }
  }
}

TEST_CASE("Patches: what each window sees, row by row, and zeros") {
  struct Case {
    graph::Conv2dAttributes attributes;
    graph::Shape x, w;
  };
  for (const auto schedule : {testing::Schedule::kForward, testing::Schedule::kBackward}) {
    testing::SetSchedule(schedule);
    for (const Case& c : {Case{{{2, 2}, {3, 3, 3, 3}}, {2, 15, 13, 3}, {8, 7, 7, 3}},
                          Case{{{1, 1}, {1, 1, 1, 1}}, {1, 5, 300, 1}, {16, 3, 3, 1}},
                          Case{{{3, 2}, {0, 2, 1, 0}}, {3, 11, 6, 4}, {8, 5, 2, 4}},
                          Case{{{4, 5}, {0, 0, 0, 0}}, {1, 9, 12, 2}, {8, 2, 3, 2}},
                          Case{{{1 << 30, 1}, {1, 0, 0, 0}}, {2, 5, 6, 2}, {8, 3, 2, 2}}}) {
      const auto shape =
          ConvolutionShape::Of(ConvolutionPass::kForward, c.attributes, c.x, c.w, DType::kBFloat16);
      const auto product = PatchProductOf(shape);
      REQUIRE(product.has_value());
      REQUIRE(product->parts == 1);
      const PatchShape& s = product->patches;
      INFO(Key(shape));
      const auto elements = static_cast<size_t>(graph::Elements(c.x));
      testing::GuardedMemory x(2 * elements);
      testing::GuardedMemory patches(2 * static_cast<size_t>(product->rows() * s.columns));
      auto* const image = reinterpret_cast<uint16_t*>(x.data());
      for (size_t i = 0; i < elements; ++i) image[i] = static_cast<uint16_t>(i + 1);
      REQUIRE(LaunchPatches(s, x.data(), patches.data(), nullptr) == cudaSuccess);
      const auto* at = reinterpret_cast<const uint16_t*>(patches.data());
      const int window = s.window_height * s.window_width * s.channels;
      size_t wrong = 0;
      for (int64_t row = 0; row < product->rows(); ++row) {
        const int64_t n = row / (s.output_height * s.output_width);
        const int64_t p = row / s.output_width % s.output_height, q = row % s.output_width;
        for (int k = 0; k < s.columns; ++k) {
          const int64_t h = p * s.stride_height - s.pad_top + k / (s.window_width * s.channels);
          const int64_t w = q * s.stride_width - s.pad_left + k / s.channels % s.window_width;
          const bool there = k < window && h >= 0 && h < s.height && w >= 0 && w < s.width;
          const int64_t from = ((n * s.height + h) * s.width + w) * s.channels + k % s.channels;
          wrong += *at++ != (there ? image[from] : 0) ? 1 : 0;
        }
      }
      CHECK(wrong == 0);
      CHECK(x.intact());
      CHECK(patches.intact());
    }
  }
  testing::SetSchedule(testing::Schedule::kForward);
}

// Own kernels round products and convolutions, on the block emulator: bias and activation, sums of
// columns, copies with other channels.

namespace {

using graph::Activation;
using graph::DType;
using testing::Schedule;

// A matrix in host memory, which is the emulator's device memory.
class Matrix {
 public:
  Matrix(int64_t rows, int64_t columns, DType type) : rows_(rows), columns_(columns), type_(type) {
    buffer_.resize(view().bytes() / sizeof(Line) + 1);
    std::memset(buffer_.data(), 0x7e, buffer_.size() * sizeof(Line));
  }

  [[nodiscard]] DeviceMatrix view() const {
    return {const_cast<Line*>(buffer_.data()), rows_, columns_, type_};
  }
  [[nodiscard]] float at(int64_t row, int64_t column) const {
    return testing::ElementAt(type_, view().data, row * columns_ + column);
  }
  void Set(int64_t row, int64_t column, float value) {
    testing::SetElement(type_, view().data, row * columns_ + column, value);
  }
  // Small integers and quarters, exact in every type, and so are their sums.
  void Fill() {
    for (int64_t i = 0; i < rows_ * columns_; ++i) {
      Set(i / columns_, i % columns_, static_cast<float>(i * 37 % 23 - 11) / 4);
    }
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  int64_t rows_, columns_;
  DType type_;
  std::vector<Line> buffer_;
};

constexpr DType kTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};
constexpr int64_t kChannels[] = {1, 3, 8, 10, 96, 264};

}  // namespace

TEST_CASE("Bias and activation: every type, any channels, in place") {
  for (const DType type : kTypes) {
    for (const int64_t channels : kChannels) {
      for (const DType from : {type, DType::kFloat32}) {
        for (const Activation activation : {Activation::kNone, Activation::kRelu}) {
          INFO(graph::Name(from) << " to " << graph::Name(type) << ", " << channels);
          Matrix x(7, channels, from);
          Matrix bias(1, channels, DType::kFloat32);
          Matrix y(7, channels, type);
          x.Fill();
          bias.Fill();
          const auto* offsets = static_cast<const float*>(bias.view().data);
          REQUIRE(AddBias(x.view(), offsets, activation, y.view(), nullptr).ok());
          bool same = true;
          for (int64_t row = 0; row < 7; ++row) {
            for (int64_t c = 0; c < channels; ++c) {
              float expected = x.at(row, c) + bias.at(0, c);
              if (activation == Activation::kRelu) expected = std::max(expected, 0.0F);
              same = same && y.at(row, c) == expected;
            }
          }
          CHECK(same);
          if (from != type) continue;
          REQUIRE(AddBias(x.view(), offsets, activation, x.view(), nullptr).ok());
          CHECK(std::memcmp(x.view().data, y.view().data, y.view().bytes()) == 0);
        }
      }
    }
  }
}

TEST_CASE("Bias and activation: without a bias, and NaN is kept") {
  for (const DType type : kTypes) {
    Matrix x(1, 3, type);
    x.Set(0, 0, NAN);
    x.Set(0, 1, -INFINITY);
    x.Set(0, 2, INFINITY);
    REQUIRE(AddBias(x.view(), nullptr, Activation::kRelu, x.view(), nullptr).ok());
    CHECK(std::isnan(x.at(0, 0)));
    CHECK(x.at(0, 1) == 0);
    CHECK(x.at(0, 2) == INFINITY);
  }
}

TEST_CASE("Bias and activation: more elements than one grid covers at once") {
  Matrix x(4096 * 256 / 3 + 5, 3, DType::kFloat32);
  Matrix bias(1, 3, DType::kFloat32);
  bias.Set(0, 0, 1);
  bias.Set(0, 1, 2);
  bias.Set(0, 2, 3);
  std::memset(x.view().data, 0, x.view().bytes());
  REQUIRE(AddBias(x.view(), static_cast<const float*>(bias.view().data), Activation::kNone,
                  x.view(), nullptr)
              .ok());
  bool same = true;
  for (int64_t row = 0; row < x.view().rows; ++row) {
    for (int64_t c = 0; c < 3; ++c) same = same && x.at(row, c) == static_cast<float>(c + 1);
  }
  CHECK(same);
}

TEST_CASE("Sums of columns: every type, any rows and channels, whichever thread runs first") {
  for (const DType type : kTypes) {
    for (const int64_t channels : kChannels) {
      for (const int64_t rows : {1, 5, 300, 3001}) {
        INFO(graph::Name(type) << " " << rows << " x " << channels);
        Matrix x(rows, channels, type);
        x.Fill();
        for (const Schedule schedule : {Schedule::kForward, Schedule::kBackward}) {
          testing::SetSchedule(schedule);
          std::vector<float> sums(static_cast<size_t>(channels), NAN);
          const size_t scratch = ColumnSumWorkspace(x.view());
          std::vector<float> workspace(scratch / sizeof(float) + 1, NAN);
          REQUIRE(SumColumns(x.view(), workspace.data(), sums.data(), nullptr).ok());
          bool same = true;
          for (int64_t c = 0; c < channels; ++c) {
            float expected = 0;
            for (int64_t row = 0; row < rows; ++row) expected += x.at(row, c);
            same = same && sums[static_cast<size_t>(c)] == expected;
          }
          CHECK(same);
          CHECK(std::isnan(workspace.back()));  // no more than it said
        }
        testing::SetSchedule(Schedule::kForward);
      }
    }
  }
}

TEST_CASE("Resize: channels and rows are added as zeros, left out, and made wide") {
  struct Case {
    int64_t rows, channels, to_rows, to_channels;
  };
  for (const DType type : kTypes) {
    for (const DType to : {type, DType::kFloat32}) {
      for (const Case& c : {Case{5, 3, 5, 8}, Case{5, 8, 5, 3}, Case{6, 5, 9, 8}, Case{9, 8, 6, 5},
                            Case{4, 4, 4, 4}}) {
        INFO(graph::Name(type) << " to " << graph::Name(to));
        Matrix x(c.rows, c.channels, type);
        Matrix y(c.to_rows, c.to_channels, to);
        x.Fill();
        REQUIRE(Resize(x.view(), y.view(), nullptr).ok());
        bool same = true;
        for (int64_t row = 0; row < c.to_rows; ++row) {
          for (int64_t k = 0; k < c.to_channels; ++k) {
            const bool inside = row < c.rows && k < c.channels;
            same = same && y.at(row, k) == (inside ? x.at(row, k) : 0.0F);
          }
        }
        CHECK(same);
      }
    }
  }
}

}  // namespace ringmaster::cuda

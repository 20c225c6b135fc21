// Augmented images on the late runtime, with the kernels in the block emulator: those of the CPU.
#include <catch2/catch.hpp>
#include <cstring>

#include "common/numeric/arithmetic.h"
#include "tests/worker/backend/cuda/augment_case.h"
#include "tests/worker/backend/cuda/emulation/block_emulator.h"
#include "tests/worker/backend/cuda/emulation/guarded_array.h"
#include "tests/worker/backend/cuda/late_runtime.h"
#include "worker/backend/cuda/device/runtime.h"
#include "worker/backend/cuda/input.h"

namespace ringmaster::cuda {
namespace {

using graph::ImageShape;
using graph::Use;
using testing::AugmentCase;
using testing::AugmentInput;
using testing::Brightness;
using testing::Contrast;
using testing::Crop;
using testing::Flip;
using testing::GuardedArray;
using testing::Schedule;
using testing::Standardization;

// A case in the memory of the emulator's GPU, no byte more than is needed.
class OnDevice {
 public:
  explicit OnDevice(const AugmentCase& of)
      : case_(of),
        augmenter_(of.augmenter()),
        input_(of),
        images_(of.rows * of.model.elements() * graph::ByteSize(of.type)) {
    auto augment = CudaAugment::Create(augmenter_, of.use, of.type);
    REQUIRE(Message(augment.status()) == "");
    augment_ = *std::move(augment);
    workspace_ =
        std::make_unique<GuardedArray<std::byte>>(augment_->workspace_bytes(int64_t(of.rows)));
    pixels_ = std::make_unique<GuardedArray<uint8_t>>(input_.pixels);
    keys_ = std::make_unique<GuardedArray<uint64_t>>(input_.seed_and_step);
    samples_ = std::make_unique<GuardedArray<uint64_t>>(input_.samples);
  }

  [[nodiscard]] Status Launch(cudaStream_t stream) {
    return augment_->Launch(pixels_->data(), int64_t(case_.rows), keys_->data(), samples_->data(),
                            workspace_->data(), images_.data(), stream);
  }
  // Other pixels and numbers where the old ones were.
  void Take(const AugmentInput& input) {
    input_ = input;
    std::ranges::copy(input.pixels, pixels_->data());
    std::ranges::copy(input.seed_and_step, keys_->data());
    std::ranges::copy(input.samples, samples_->data());
  }
  void Run() {
    const auto stream = MakeStream();
    REQUIRE(stream.ok());
    REQUIRE(Message(Launch(stream->get())) == "");
    REQUIRE(cudaStreamSynchronize(stream->get()) == cudaSuccess);
  }
  // Whether something was written there.
  [[nodiscard]] bool UsedWorkspaceAt(size_t i) {
    return (*workspace_)[i] != std::byte{testing::GuardedMemory::kFill};
  }
  [[nodiscard]] size_t workspace_bytes() const { return workspace_->size(); }
  template <typename T>
  [[nodiscard]] T InWorkspace(size_t offset) {
    T value;
    std::memcpy(&value, workspace_->data() + offset, sizeof(T));
    return value;
  }
  void CheckImages() {
    CHECK(testing::FirstDifference(images_.values(), AugmentOnHost(case_, input_)) == -1);
    CHECK(images_.intact());
    CHECK(workspace_->intact());
    CHECK(pixels_->values() == input_.pixels);
    CHECK(samples_->values() == input_.samples);
  }

 private:
  const AugmentCase case_;
  const graph::Augmenter augmenter_;
  AugmentInput input_;
  std::unique_ptr<CudaAugment> augment_;
  GuardedArray<std::byte> images_;
  std::unique_ptr<GuardedArray<std::byte>> workspace_;
  std::unique_ptr<GuardedArray<uint8_t>> pixels_;
  std::unique_ptr<GuardedArray<uint64_t>> keys_, samples_;
};

void CheckInSchedule(const AugmentCase& of, Schedule schedule) {
  OnDevice device(of);
  testing::SetSchedule(schedule);
  device.Run();
  testing::SetSchedule(Schedule::kForward);
  device.CheckImages();
}

void CheckCase(const AugmentCase& of) {
  INFO(of.name());
  CheckInSchedule(of, Schedule::kForward);
  CheckInSchedule(of, Schedule::kBackward);
}

double SumOf(const std::vector<double>& values) {
  return LaneSum(values.size(), [&](size_t i) { return values[i]; });
}

const std::vector<v1::Augmentation>& Kinds() {
  static const std::vector<v1::Augmentation> kinds = {Crop(2), Flip(), Brightness(63),
                                                      Contrast(0.2, 1.8), Standardization()};
  return kinds;
}

}  // namespace

TEST_CASE("CUDA augment: the CPU's bits for any list, shape, seed, step and sample") {
  for (uint64_t seed = 0; seed < 250; ++seed) CheckCase(testing::AnyAugmentCase(seed));
}

TEST_CASE("CUDA augment: every list of up to three operations, for training and evaluation") {
  uint64_t seed = 1000;
  for (const Use use : {Use::kTraining, Use::kEvaluation}) {
    const auto check = [&](const std::vector<v1::Augmentation>& operations) {
      CheckCase({.operations = operations, .use = use, .rows = 2, .seed = ++seed});
    };
    check({});
    for (const auto& a : Kinds()) {
      check({a});
      for (const auto& b : Kinds()) {
        check({a, b});
        for (const auto& c : Kinds()) check({a, b, c});
      }
    }
  }
}

TEST_CASE("CUDA augment: sums of every number of elements and blocks") {
  uint64_t seed = 0;
  for (const uint32_t width : {1,   2,   7,   8,   9,    15,   255,  256,  257,  264, 511,
                               512, 513, 768, 769, 1025, 1281, 1537, 1800, 2049, 4096}) {
    for (const uint32_t channels : {1, 2, 3}) {
      const ImageShape shape = {1, width, channels};
      CheckCase({.operations = {Contrast(0.5, 1.5), Standardization()},
                 .stored = shape,
                 .model = shape,
                 .rows = 2,
                 .seed = ++seed});
    }
  }
}

// Of 16 bits nothing is kept between two passes, and each value is rounded once, at the end.
TEST_CASE("CUDA augment: 16-bit images have the bits of float32 images cast afterwards") {
  for (const graph::DType type : {graph::DType::kBFloat16, graph::DType::kFloat16}) {
    uint64_t seed = 2000;
    const auto check = [&](const std::vector<v1::Augmentation>& operations) {
      for (const Use use : {Use::kTraining, Use::kEvaluation}) {
        CheckCase({.operations = operations, .use = use, .rows = 2, .seed = ++seed, .type = type});
      }
    };
    check({});
    for (const auto& a : Kinds()) {
      check({a});
      for (const auto& b : Kinds()) check({a, b});
    }
    // Means of what means have changed, and beyond float16's largest.
    check({Contrast(0.2, 1.8), Standardization(), Contrast(0.2, 1.8)});
    check(std::vector<v1::Augmentation>(6, Contrast(9, 10)));
    for (; seed < 2120; ++seed) {
      AugmentCase any = testing::AnyAugmentCase(seed);
      any.type = type;
      CheckCase(any);
    }
    // Many threads, sums far away.
    CheckCase({.operations = {Crop(4), Flip(), Brightness(63), Standardization()},
               .stored = {28, 31, 1},
               .model = {213, 257, 3},
               .rows = 2,
               .seed = ++seed,
               .type = type});
  }
}

// float32 values hide the last bits of what was summed, so these are read where kernels leave them.
TEST_CASE("CUDA augment: sums are taken in the one order") {
  for (const uint32_t width : {9, 264, 1000, 2049, 4099, 6000, 60000}) {
    INFO("width " << width);
    const ImageShape shape = {1, width, 3};
    const size_t elements = shape.elements();
    const AugmentCase standard = {.operations = {Standardization()},
                                  .stored = shape,
                                  .model = shape,
                                  .rows = 1,
                                  .seed = width};
    OnDevice device(standard);
    device.Run();
    const auto state = device.InWorkspace<AugmentState>(0);
    const std::vector<uint8_t> pixels = AugmentInput(standard).pixels;
    const auto n = static_cast<double>(elements);
    const double mean = SumOf({pixels.begin(), pixels.end()}) / n;
    std::vector<double> squares;
    for (const uint8_t pixel : pixels) squares.push_back(graph::SquaredDeviation(pixel, mean));
    CHECK(state.number == mean);
    CHECK(state.divisor == graph::StandardDivisor(SumOf(squares) / n, n));

    // Zeros become so small that a double has no room for them beside the others.
    AugmentCase contrast = standard;
    contrast.operations = {Brightness(1e-9), Contrast(0.2, 1.8)};
    AugmentInput input(contrast);
    for (size_t i = 0; i < elements; i += 2) input.pixels[i] = 0;
    OnDevice other(contrast);
    other.Take(input);
    other.Run();
    const double delta = other.InWorkspace<AugmentState>(0).number;
    for (size_t c = 0; c < 3; ++c) {
      std::vector<double> values;
      for (size_t i = c; i < elements; i += 3) {
        values.push_back(double{graph::Brightened(input.pixels[i], delta)});
      }
      // Of the second of three operations, behind their states.
      CHECK(other.InWorkspace<double>(256 + (3 + c) * sizeof(double)) == SumOf(values) / width);
    }
  }
}

TEST_CASE("CUDA augment: few threads and many, sums near and far") {
  const std::vector<v1::Augmentation> moved_late = {Contrast(0.2, 1.8), Standardization(), Crop(9),
                                                    Flip(), Contrast(0.2, 1.8)};
  const std::vector<v1::Augmentation> usual = {Crop(4), Flip(), Brightness(63), Contrast(0.2, 1.8),
                                               Standardization()};
  const ImageShape models[] = {
      {64, 64, 4},    {64, 65, 4},     // the last image for few threads, and the next
      {160, 1024, 1}, {161, 1024, 1},  // the last whose sums are near, and the next
      {213, 256, 3},  {300, 301, 3}};
  uint64_t seed = 7;
  for (const ImageShape& model : models) {
    const bool grey = model.channels == 3;
    const ImageShape stored = grey ? ImageShape{28, 31, 1} : model;
    for (const auto& operations : {moved_late, usual}) {
      CheckCase(
          {.operations = operations, .stored = stored, .model = model, .rows = 2, .seed = ++seed});
    }
  }
}

// Where the emulator runs one block after another rows that shared it would not show.
TEST_CASE("CUDA augment: each row has scratch of its own, as much as its sums need") {
  const auto check_last_eight = [](const AugmentCase& of) {
    OnDevice device(of);
    device.Run();
    size_t used = 0;
    for (size_t i = 1; i <= 8; ++i) {
      used += device.UsedWorkspaceAt(device.workspace_bytes() - i) ? 1 : 0;
    }
    CHECK(used > 4);
  };
  // 704 sums a row, the last ones in the workspace; 16 means a row, the last ones.
  check_last_eight({.operations = {Standardization()},
                    .stored = {176, 1024, 1},
                    .model = {176, 1024, 1},
                    .rows = 2});
  check_last_eight({.operations = {Standardization(), Flip(), Flip(), Contrast(0.2, 1.8)},
                    .stored = {9, 9, 4},
                    .model = {9, 9, 4},
                    .rows = 2});
  // 642 sums of channels, and 640 of the whole.
  const ImageShape shape = {31, 1759, 3};
  const OnDevice whole({.operations = {Standardization()}, .stored = shape, .model = shape});
  const OnDevice channels({.operations = {Contrast(0.2, 1.8)}, .stored = shape, .model = shape});
  CHECK(whole.workspace_bytes() < 640);
  CHECK(channels.workspace_bytes() > 3 * 642 * sizeof(double));
}

TEST_CASE("CUDA augment: a captured launch reads what lies at its addresses when it is replayed") {
  const AugmentCase of = {.operations = {Crop(2), Contrast(0.2, 1.8), Flip(), Standardization()},
                          .stored = {5, 4, 1},
                          .model = {8, 9, 3},
                          .rows = 4};
  const size_t live = testing::LiveObjects();
  {
    OnDevice device(of);
    const auto stream = MakeStream();
    REQUIRE(stream.ok());
    REQUIRE(cudaStreamBeginCapture(stream->get(), cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    REQUIRE(Message(device.Launch(stream->get())) == "");
    cudaGraph_t captured = nullptr;
    REQUIRE(cudaStreamEndCapture(stream->get(), &captured) == cudaSuccess);
    const Graph graph(captured);
    cudaGraphExec_t made = nullptr;
    REQUIRE(cudaGraphInstantiate(&made, captured, 0) == cudaSuccess);
    const GraphExec exec(made);
    for (uint64_t seed = 20; seed < 25; ++seed) {
      AugmentCase other = of;
      other.seed = seed;
      // The seed is no part of what was made at Create.
      AugmentInput input(other);
      input.seed_and_step[0] = of.seed;
      device.Take(input);
      REQUIRE(cudaGraphLaunch(exec.get(), stream->get()) == cudaSuccess);
      REQUIRE(cudaStreamSynchronize(stream->get()) == cudaSuccess);
      device.CheckImages();
    }
  }
  CHECK(testing::LiveObjects() == live);
}

TEST_CASE("CUDA augment: no rows are nothing to do") {
  const graph::Augmenter augmenter({Crop(2)}, {2, 2, 1}, {2, 2, 1}, 1);
  const auto augment = CudaAugment::Create(augmenter, Use::kTraining);
  REQUIRE(augment.ok());
  CHECK((*augment)->workspace_bytes(0) == 0);
  CHECK((*augment)->Launch(nullptr, 0, nullptr, nullptr, nullptr, nullptr, nullptr).ok());
}

TEST_CASE("CUDA augment: what kernels cannot do is refused, and an error names augmentation") {
  const ImageShape shape = {2, 2, 1};
  const graph::Augmenter longest(std::vector<v1::Augmentation>(127, Flip()), shape, shape, 1);
  CHECK(CudaAugment::Create(longest, Use::kTraining).ok());
  const graph::Augmenter longer(std::vector<v1::Augmentation>(128, Flip()), shape, shape, 1);
  const Status refused = CudaAugment::Create(longer, Use::kTraining).status();
  CHECK(absl::IsUnimplemented(refused));
  CHECK(Message(refused) ==
        "augmentation: the CUDA backend does at most 128 operations, got 129; shorten the list");
  CHECK(CudaAugment::Create(longer, Use::kEvaluation).ok());

  v1::Augmentation jitter, erasing;
  jitter.mutable_color_jitter()->set_hue(0.1);
  erasing.mutable_random_erasing();
  for (const auto& [op, name] : {std::pair(jitter, "color_jitter"), {erasing, "random_erasing"}}) {
    const graph::Augmenter of_hosts({Flip(), op}, shape, shape, 1);
    CHECK(Message(CudaAugment::Create(of_hosts, Use::kTraining).status()) ==
          fmt::format("augmentation: the CUDA backend has no kernel for {}; hosts do it", name));
    CHECK(CudaAugment::Create(of_hosts, Use::kEvaluation).ok());
  }

  const graph::Augmenter large({}, shape, {1 << 16, 1 << 15, 1}, 1);
  CHECK(Message(CudaAugment::Create(large, Use::kTraining).status()) ==
        "augmentation: the model's images of 65536 x 32768 x 1 values; the CUDA backend makes "
        "images of less than 2^31; resize them to a smaller size");

  const auto augment = CudaAugment::Create(longest, Use::kEvaluation);
  REQUIRE(augment.ok());
  const Status many =
      (*augment)->Launch(nullptr, int64_t{1} << 31, nullptr, nullptr, nullptr, nullptr, nullptr);
  CHECK(absl::IsInternal(many));
  CHECK_THAT(Message(many), Catch::Contains("augmentation"));
}

TEST_CASE("CUDA augment: division as a product gives every quotient") {
  std::mt19937 random(3);
  constexpr uint32_t kMost = INT32_MAX;
  const auto check = [](uint32_t divisor, uint32_t x) {
    if (Divisor(divisor).Quotient(x) != x / divisor) FAIL(x << " / " << divisor);
  };
  const auto check_near = [&](uint32_t divisor, uint64_t x) {
    for (uint64_t near = x > 2 ? x - 2 : 0; near <= x + 2 && near <= kMost; ++near) {
      check(divisor, static_cast<uint32_t>(near));
    }
  };
  for (int i = 0; i < 200000; ++i) {
    const uint32_t divisor = std::max(1U, static_cast<uint32_t>(random() & kMost) >> i % 31);
    check_near(divisor, 0);
    check_near(divisor, kMost);
    check_near(divisor, uint64_t{divisor} * (random() % (kMost / divisor + 1)));
  }
  for (uint32_t divisor = 1; divisor <= 1025; ++divisor) {
    for (uint32_t x = 0; x < 5000; ++x) check(divisor, x);
  }
  for (const uint32_t divisor : {1U, 2U, 3U, kMost - 1, kMost}) check_near(divisor, kMost / 2);
}

}  // namespace ringmaster::cuda

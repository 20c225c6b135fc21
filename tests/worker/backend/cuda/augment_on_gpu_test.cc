// Augmented images on a GPU, where there is one: those of the CPU.
#include <catch2/catch.hpp>

#include "tests/worker/backend/cuda/augment_case.h"
#include "tests/worker/backend/cuda/gpu.h"
#include "worker/backend/cuda/device/runtime.h"
#include "worker/backend/cuda/input.h"

namespace ringmaster::cuda {
namespace {

using testing::AugmentCase;
using testing::AugmentInput;
using testing::Brightness;
using testing::Contrast;
using testing::Crop;
using testing::Flip;
using testing::Standardization;

template <typename T>
void Upload(const std::vector<T>& values, DeviceArray<T>* array) {
  REQUIRE(Message(array->Make(values.size())) == "");
  REQUIRE(cudaMemcpy(array->data(), values.data(), array->bytes(), cudaMemcpyHostToDevice) ==
          cudaSuccess);
}

std::vector<std::byte> AugmentOnGpu(const AugmentCase& of, const AugmentInput& input) {
  const graph::Augmenter augmenter = of.augmenter();
  const auto augment = CudaAugment::Create(augmenter, of.use, of.type);
  REQUIRE(Message(augment.status()) == "");
  const auto rows = static_cast<int64_t>(of.rows);
  DeviceArray<uint8_t> pixels;
  DeviceArray<uint64_t> keys, samples;
  DeviceArray<std::byte> workspace, images;
  Upload(input.pixels, &pixels);
  Upload(input.seed_and_step, &keys);
  Upload(input.samples, &samples);
  REQUIRE(Message(workspace.Make((*augment)->workspace_bytes(rows))) == "");
  std::vector<std::byte> made(of.rows * of.model.elements() * graph::ByteSize(of.type));
  Upload(made, &images);
  const auto stream = MakeStream();
  REQUIRE(stream.ok());
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);  // the stream does not wait for the uploads
  REQUIRE(Message((*augment)->Launch(pixels.data(), rows, keys.data(), samples.data(),
                                     workspace.data(), images.data(), stream->get())) == "");
  REQUIRE(cudaStreamSynchronize(stream->get()) == cudaSuccess);
  REQUIRE(cudaMemcpy(made.data(), images.data(), images.bytes(), cudaMemcpyDeviceToHost) ==
          cudaSuccess);
  return made;
}

void CheckCase(AugmentCase of) {
  const AugmentInput input(of);
  for (const graph::DType type :
       {graph::DType::kFloat32, graph::DType::kBFloat16, graph::DType::kFloat16}) {
    of.type = type;
    INFO(of.name());
    const std::vector<std::byte> expected = AugmentOnHost(of, input);
    CHECK(testing::FirstDifference(AugmentOnGpu(of, input), expected) == -1);
  }
}

}  // namespace

TEST_CASE("CUDA augment on a GPU: the CPU's bits, in every type") {
  const auto backend = testing::CudaBackendOrSkip();
  if (backend == nullptr) return;
  for (uint64_t seed = 0; seed < 500; ++seed) CheckCase(testing::AnyAugmentCase(seed));
  const std::vector<v1::Augmentation> usual = {Crop(4), Flip(), Brightness(63), Contrast(0.2, 1.8),
                                               Standardization()};
  const std::vector<v1::Augmentation> moved_late = {Standardization(), Contrast(0.2, 1.8), Flip(),
                                                    Crop(64)};
  uint64_t seed = 1000;
  for (const auto& operations : {usual, moved_late, {Crop(4), Flip()}}) {
    CheckCase({.operations = operations,
               .stored = {32, 32, 3},
               .model = {32, 32, 3},
               .rows = 3000,
               .seed = ++seed});
    CheckCase({.operations = operations,
               .stored = {28, 28, 1},
               .model = {224, 224, 3},
               .rows = 40,
               .seed = ++seed});
    CheckCase({.operations = operations,
               .stored = {32, 32, 3},
               .model = {1024, 1000, 3},
               .rows = 3,
               .seed = ++seed});
  }
}

}  // namespace ringmaster::cuda

// What is planned of a GPU's memory for weights and a state is what they take, on the late runtime.
#include <catch2/catch.hpp>

#include "tests/support/optimizers.h"
#include "tests/worker/backend/cuda/hash_program.h"
#include "tests/worker/backend/cuda/late_runtime.h"
#include "tests/worker/backend/model_program.h"
#include "worker/backend/cuda/state/weights.h"

namespace ringmaster::cuda {
namespace {

using testing::Adam;
using testing::DeviceBytes;
using testing::Sgd;

// Without what belongs to a tensor or is there once.
bool Near(uint64_t planned, uint64_t taken) { return planned <= taken && taken < planned + 1024; }

}  // namespace

TEST_CASE("CUDA weights: planned bytes are those that weights and state take") {
  for (const v1::Policy policy : {v1::POLICY_FLOAT32, v1::POLICY_MIXED_BFLOAT16}) {
    auto program = testing::ModelProgram({.name = "alexnet", .samples = 1, .policy = policy});
    REQUIRE(program.ok());
    const testing::Master master(*program, 1);
    for (const v1::Optimizer& optimizer :
         {Adam(), Sgd(0.1, 0.9, false), Sgd(0.1, 0, false), testing::Lamb()}) {
      const DeviceStateOptions options{
          .layout = &master.layout, .update = {optimizer}, .shards = 4, .precision_bits = 21};
      REQUIRE(DeviceBytes() == 0);
      CudaWeights weights(*program);
      DeviceWeights* const device = *weights.On(0);
      for (const graph::Parameter& parameter : program->parameters) {
        REQUIRE(device->Provide(program->graph.value(parameter.value).dtype).ok());
      }
      CHECK(weights.DeviceBytes(nullptr) == DeviceBytes());
      const auto state = weights.MakeState(options);
      REQUIRE(state.ok());
      CHECK(Near(weights.DeviceBytes(&options), DeviceBytes()));
    }
  }
}

}  // namespace ringmaster::cuda

// On a GPU: each convolution and product of the zoo gives the same bits, whatever its workspace and
// outputs held before, in every policy.
#include <catch2/catch.hpp>

#include "tests/worker/backend/cuda/gpu.h"
#include "tests/worker/backend/model_program.h"
#include "worker/backend/cuda/device/device.h"
#include "worker/backend/cuda/libraries/cudnn_convolution.h"
#include "worker/backend/cuda/libraries/plan_cache.h"
#include "worker/backend/cuda/libraries/plan_table.h"
#include "worker/backend/cuda/node_run.h"

namespace ringmaster::cuda {
namespace {

bool IsProduct(const graph::Node& node) {
  return node.attributes<graph::Conv2dAttributes>() != nullptr ||
         node.attributes<graph::DenseAttributes>() != nullptr;
}

// nullptr, with a line, where there is no GPU.
std::unique_ptr<Device> OpenOrSkip() {
  const auto devices = FindDevices();
  if (!devices.ok()) {
    fmt::print("skipped: {}\n", Message(devices.status()));
    return nullptr;
  }
  auto device = Device::Open(devices->front());
  REQUIRE(Message(device.status()) == "");
  return *std::move(device);
}

StatusOr<exact::BlockSum> RunAfter(NodeRun* run, int byte) {
  RING_RETURN_IF_ERROR(run->Scribble(byte));
  RING_RETURN_IF_ERROR(run->Run());
  return run->Digest();
}

void CheckRepeats(const BindContext& context) {
  // Not the installed table: what is chosen without one.
  auto run = NodeRun::Create(context);
  REQUIRE(Message(run.status()) == "");
  const auto first = RunAfter(run->get(), 0);
  REQUIRE(Message(first.status()) == "");
  for (const int byte : {0x5a, 0xff}) {
    const auto again = RunAfter(run->get(), byte);
    REQUIRE(Message(again.status()) == "");
    CHECK(*again == *first);
  }
  auto other = NodeRun::Create(context);
  REQUIRE(Message(other.status()) == "");
  const auto bound_again = RunAfter(other->get(), 0x77);
  REQUIRE(Message(bound_again.status()) == "");
  CHECK(*bound_again == *first);
}

}  // namespace

TEST_CASE(
    "CUDA convolutions: a plan that was written down and restored gives the bits that it gave") {
  const auto device = OpenOrSkip();
  if (device == nullptr) return;
  const PlanTable none;
  PlanCache made(
      {.make = [&](const PlanRequest& request) { return MakePlan(device->facts(), request); }});
  PlanCache restored({.make = [&](const PlanRequest& request) -> StatusOr<ChosenConvolution> {
    RING_ASSIGN_OR_RETURN(const auto plan, made.Get(request));
    RING_ASSIGN_OR_RETURN(const std::string written, plan->plan.Written());
    return RestoreConvolution({.handle = device->cudnn()}, request, plan->choice, written);
  }});
  for (const char* model : {"alexnet", "vgg"}) {
    for (const v1::Policy policy : {v1::POLICY_FLOAT32, v1::POLICY_MIXED_BFLOAT16}) {
      const auto program = testing::ModelProgram({.name = model, .samples = 64, .policy = policy});
      REQUIRE(Message(program.status()) == "");
      for (const graph::Node& node : program->graph.nodes()) {
        if (node.attributes<graph::Conv2dAttributes>() == nullptr) continue;
        INFO(model << " " << v1::Policy_Name(policy) << " " << node.name);
        auto run = NodeRun::Create({*program, node, *device, &none, &made});
        REQUIRE(Message(run.status()) == "");
        auto again = NodeRun::Create({*program, node, *device, &none, &restored});
        REQUIRE(Message(again.status()) == "");
        CHECK((*again)->workspace_bytes() == (*run)->workspace_bytes());
        const auto first = RunAfter(run->get(), 0);
        REQUIRE(Message(first.status()) == "");
        const auto second = RunAfter(again->get(), 0x5a);
        REQUIRE(Message(second.status()) == "");
        CHECK(*first == *second);
      }
    }
  }
}

TEST_CASE("CUDA convolutions and products: the same bits in every run") {
  const auto device = OpenOrSkip();
  if (device == nullptr) return;
  const PlanTable none;
  for (const char* model : {"alexnet", "vgg", "mlp", "mobilenet"}) {
    for (const v1::Policy policy :
         {v1::POLICY_FLOAT32, v1::POLICY_MIXED_BFLOAT16, v1::POLICY_MIXED_FLOAT16}) {
      const auto program = testing::ModelProgram({.name = model, .samples = 64, .policy = policy});
      REQUIRE(Message(program.status()) == "");
      for (const graph::Node& node : program->graph.nodes()) {
        if (!IsProduct(node)) continue;
        INFO(model << " " << v1::Policy_Name(policy) << " " << node.name);
        CheckRepeats({*program, node, *device, &none});
      }
    }
  }
}

}  // namespace ringmaster::cuda

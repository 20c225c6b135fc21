// Buffers on which kernels are tried, on the late runtime: inputs are there and the same every
// time, and the digest of outputs sees what a kernel wrote, and nothing else.
#include "worker/backend/cuda/node_run.h"

#include <catch2/catch.hpp>
#include <limits>
#include <set>

#include "tests/worker/backend/cuda/late_runtime.h"
#include "tests/worker/backend/model_program.h"
#include "worker/backend/cuda/kernel.h"

namespace ringmaster::cuda {
namespace {

// Own kernels ask nothing of the device.
BindContext ContextFor(const graph::Program& program, const graph::Node& node) {
  alignas(64) static std::byte no_device[64];
  return {program, node, *reinterpret_cast<const Device*>(no_device)};
}

// The first node of each of these ops, which the model has.
std::vector<const graph::Node*> SomeNodes(const graph::Program& program) {
  std::set<std::string> wanted = {"batch_norm", "batch_norm_gradient", "max_pool",
                                  "max_pool_gradient"};
  std::vector<const graph::Node*> nodes;
  for (const graph::Node& node : program.graph.nodes()) {
    if (wanted.erase(node.op()) > 0) nodes.push_back(&node);
  }
  REQUIRE(nodes.size() == 4);
  return nodes;
}

exact::BlockSum DigestAfter(NodeRun* run, int byte) {
  REQUIRE(Message(run->Scribble(byte)) == "");
  const auto scribbled = run->Digest();
  REQUIRE(Message(run->Run()) == "");
  const auto digest = run->Digest();
  REQUIRE(Message(digest.status()) == "");
  CHECK_FALSE(*scribbled == *digest);
  return *digest;
}

graph::Program Vgg(v1::Policy policy) {
  auto program = testing::ModelProgram({.name = "vgg", .samples = 3, .policy = policy});
  REQUIRE(Message(program.status()) == "");
  return *std::move(program);
}

}  // namespace

TEST_CASE("NodeRun: the same digest in every run, whatever memory held before") {
  for (const v1::Policy policy : {v1::POLICY_FLOAT32, v1::POLICY_MIXED_BFLOAT16}) {
    const graph::Program program = Vgg(policy);
    const auto shared = NodeRun::Create();
    REQUIRE(Message(shared.status()) == "");
    std::set<std::string> digests;
    for (const graph::Node* node : SomeNodes(program)) {
      INFO(node->name << " " << node->op());
      const BindContext context = ContextFor(program, *node);
      const auto run = NodeRun::Create(context);
      REQUIRE(Message(run.status()) == "");
      const exact::BlockSum digest = DigestAfter(run->get(), 0);
      CHECK(DigestAfter(run->get(), 0x5a) == digest);
      // In buffers that other nodes had before.
      REQUIRE(Message((*shared)->Hold(context)) == "");
      REQUIRE(Message((*shared)->Bind(context, (*run)->workspace_bytes())) == "");
      CHECK(DigestAfter(shared->get(), 0x11) == digest);
      const auto bytes = digest.bytes();
      CHECK(digests.emplace(bytes.begin(), bytes.end()).second);
    }
  }
}

TEST_CASE("NodeRun: a launch has the time of the runtime's events") {
  const graph::Program program = Vgg(v1::POLICY_FLOAT32);
  const auto run = NodeRun::Create(ContextFor(program, *SomeNodes(program)[0]));
  REQUIRE(Message(run.status()) == "");
  CHECK((*run)->Glance().value() == 1000);  // of one launch: the late runtime's interval is 1 ms
  CHECK((*run)->Microseconds(1e9).value() == 500);  // of two, as fill 2 ms
}

TEST_CASE("NodeRun: a kernel that wants more scratch than it may have is not bound") {
  const graph::Program program = Vgg(v1::POLICY_FLOAT32);
  const graph::Node* node = SomeNodes(program)[0];  // a batch norm, which has partial sums
  const BindContext context = ContextFor(program, *node);
  const auto run = NodeRun::Create(context);
  REQUIRE(Message(run.status()) == "");
  const size_t workspace = (*run)->workspace_bytes();
  REQUIRE(workspace > 0);
  CHECK(absl::IsUnimplemented((*run)->Bind(context, workspace - 1)));
  CHECK(Message((*run)->Bind(context, workspace)) == "");
}

TEST_CASE("NodeRun: its memory goes with it") {
  const size_t before = testing::LiveObjects();
  {
    const graph::Program program = Vgg(v1::POLICY_FLOAT32);
    const auto run = NodeRun::Create(ContextFor(program, *SomeNodes(program)[0]));
    REQUIRE(Message(run.status()) == "");
    CHECK(testing::LiveObjects() > before);
  }
  CHECK(testing::LiveObjects() == before);
}

}  // namespace ringmaster::cuda

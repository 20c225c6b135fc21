// Digests of graphs that jobs have trained: names, order and bits of these models stay. A change
// here changes every model digest; whether it changes results says scripts/same-bits.
#include <catch2/catch.hpp>

#include <string>

#include "common/job/resolve.h"
#include "tests/support/model_option.h"
#include "tests/support/zoo_program.h"

namespace ringmaster::zoo {
namespace {

std::string DigestOf(const v1::Model& model) {
  const auto graph = BuildGraph(model);
  REQUIRE(Message(graph.status()) == "");
  return Hex(job::ModelDigest(*graph));
}

}  // namespace

TEST_CASE("Zoo: alexnet, mlp and vgg are the graphs that they were") {
  v1::Model alexnet = Model("alexnet"), mlp = Model("mlp"), vgg = Model("vgg");
  CHECK(DigestOf(alexnet) == "7bd67b37b7baaf356bd1f7c0b456d34dc619b956d3d8cf6c51942d02ba633d18");
  CHECK(DigestOf(mlp) == "e42ea146efd896279fde099d3ce38358caef7b58ae331804549af51fe1c33e9f");
  CHECK(DigestOf(vgg) == "734d5fb86d2e643ae55c4b1ce1e604571d744aba6283b29ae079d405cfb905cd");
  testing::SetOption("batch_norm", true, &alexnet);
  testing::SetOption("dropout", 0.2, &alexnet);
  testing::SetHidden({512}, &mlp);
  testing::SetOption("dropout", 0.5, &mlp);
  testing::SetOption("batch_norm", false, &vgg);
  testing::SetOption("depth", 19, &vgg);
  CHECK(DigestOf(alexnet) == "f2c7f6546694f747ca6f8d311f6dc1f07724b6638e5dfb368c2274c2569b764b");
  CHECK(DigestOf(mlp) == "b6138638f612b12f237c2ddff67f26866d6ee51fc4938de116ced28a5501ce0d");
  CHECK(DigestOf(vgg) == "982186022ab5befaea3246b24ce94bb328977ec2621c7adb2245c3ad035a3601");
}

}  // namespace ringmaster::zoo

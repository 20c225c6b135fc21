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
  CHECK(DigestOf(alexnet) == "01b3ff9f3b04f00f7dfc7be4951075e5f530636ce41341a4165233b2a97f616c");
  CHECK(DigestOf(mlp) == "30ea1bb116e6563aec1acf00faa5e0d3f418f2998df1b09cf5dbe6dfdadaf639");
  CHECK(DigestOf(vgg) == "c721e149b86e19404f57a679fe83553a4346a136ed7674fd47ef7079d420a51b");
  testing::SetOption("batch_norm", true, &alexnet);
  testing::SetOption("dropout", 0.2, &alexnet);
  testing::SetHidden({512}, &mlp);
  testing::SetOption("dropout", 0.5, &mlp);
  testing::SetOption("batch_norm", false, &vgg);
  testing::SetOption("depth", 19, &vgg);
  CHECK(DigestOf(alexnet) == "291a2ce88588af26f12feb2c409ad591e393a2050aa14129cf9520881232d3b6");
  CHECK(DigestOf(mlp) == "8233fc1ec81ffc7faf5d6dca32c3c258c15480a0d4db4f2b7a310db72a7431a7");
  CHECK(DigestOf(vgg) == "92eb2279d3763f885d9cf70126c2d7e4dfb7eb302d3c1b8e9efeb8e32ef675ea");
}

}  // namespace ringmaster::zoo

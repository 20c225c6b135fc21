// Digests of graphs that jobs have trained: names, order and bits of these models stay. They were
// taken before layers were structs; a change here changes every result.
#include <catch2/catch.hpp>

#include <string>

#include "common/job/resolve.h"
#include "common/zoo/zoo.h"
#include "tests/common/zoo/zoo_model.h"
#include "tests/support/model_option.h"

namespace ringmaster::zoo {
namespace {

std::string DigestOf(const v1::Model& model) {
  const auto graph = BuildGraph(model, {.height = 32, .width = 32, .channels = 3, .classes = 10});
  REQUIRE(Message(graph.status()) == "");
  return Hex(job::ModelDigest(*graph));
}

}  // namespace

TEST_CASE("Zoo: alexnet, mlp and vgg are the graphs that they were") {
  v1::Model alexnet = Model("alexnet"), mlp = Model("mlp"), vgg = Model("vgg");
  CHECK(DigestOf(alexnet) == "949ce2ce036775f5c2b64fa34c17c42a0ef50e43c7734abf13f3ca89c709702c");
  CHECK(DigestOf(mlp) == "37f33fc42629296f67ba7846cdb9e26564ca9563236871aab98295da1989be8b");
  CHECK(DigestOf(vgg) == "f46dabf1b12eecdcd2ae9d3fe9fae695358259ec899454425c0db3e9140bca3f");
  testing::SetOption("batch_norm", true, &alexnet);
  testing::SetOption("dropout", 0.2, &alexnet);
  testing::SetHidden({512}, &mlp);
  testing::SetOption("dropout", 0.5, &mlp);
  testing::SetOption("batch_norm", false, &vgg);
  testing::SetOption("depth", 19, &vgg);
  CHECK(DigestOf(alexnet) == "ce18e18b29de3b607d8abc987112c5cd963aea67235c69d50d73577b53881c06");
  CHECK(DigestOf(mlp) == "a4bd09dfd9091b1b9631583103cbf65617e63bbbc71b265d266f6372526fa16b");
  CHECK(DigestOf(vgg) == "cdbdd152c59c2e8752579f0319ffbab02d96ab3859415db621b016141bf80882");
}

}  // namespace ringmaster::zoo

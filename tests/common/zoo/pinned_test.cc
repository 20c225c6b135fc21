// Digests of graphs that jobs have trained: names, order and bits of these models stay. A change
// here changes every model digest; whether it changes results says scripts/same-bits.
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
  CHECK(DigestOf(alexnet) == "e6c379a7c67f01aa087e867afdb159076b6e7820fff821416ebf04af91fd150f");
  CHECK(DigestOf(mlp) == "8b91d7f76ce8eeaa820099b7812f31c1e0c3f82ac836da0d63c603c578a93781");
  CHECK(DigestOf(vgg) == "e345acb5957fc1c9f10d4aa72fa43f685a7c80f6685312ddbee5cdaa522c686e");
  testing::SetOption("batch_norm", true, &alexnet);
  testing::SetOption("dropout", 0.2, &alexnet);
  testing::SetHidden({512}, &mlp);
  testing::SetOption("dropout", 0.5, &mlp);
  testing::SetOption("batch_norm", false, &vgg);
  testing::SetOption("depth", 19, &vgg);
  CHECK(DigestOf(alexnet) == "31bd2979d340e71029b34fa2a6c14847683468d5258e44d215589cf55157766e");
  CHECK(DigestOf(mlp) == "1c50c47605ea2c176d01844117b938ca0a84af4005ce61d355deefbc24bd17de");
  CHECK(DigestOf(vgg) == "99d138e0a538bfc75e042116ff44c40b91869e899413d10c955f099295af15b1");
}

}  // namespace ringmaster::zoo

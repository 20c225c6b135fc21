#include "common/edit_distance.h"

#include <catch2/catch.hpp>

namespace ringmaster {
namespace {

TEST_CASE("EditDistance: counts insertions, deletions, replacements and swaps of neighbours") {
  CHECK(EditDistance("", "") == 0);
  CHECK(EditDistance("", "abc") == 3);
  CHECK(EditDistance("abc", "") == 3);
  CHECK(EditDistance("alexnet", "alexnet") == 0);
  CHECK(EditDistance("alexnte", "alexnet") == 1);
  CHECK(EditDistance("kitten", "sitting") == 3);
}

TEST_CASE("Nearest: one slip in short words, two in long ones, a third of the letters at most") {
  CHECK(Nearest("vvg", {"alexnet", "mlp", "vgg"}) == "vgg");
  CHECK(Nearest("gte", {"ls", "get", "verify"}) == "get");
  CHECK(Nearest("learnin_rat", {"learning_rate", "momentum"}) == "learning_rate");
  CHECK(Nearest("shrads", {"batch", "shards", "seed"}) == "shards");
  CHECK(Nearest("ab", {"ac"}).empty());
  CHECK(Nearest("vxy", {"vgg"}).empty());
  CHECK(Nearest("btahc", {"batch"}).empty());  // two slips in five letters
  CHECK(Nearest(std::string(1'000'000, 'x'), {"batch"}).empty());
}

TEST_CASE("Nearest: what is only the least far away was not meant") {
  CHECK(Nearest("resnet50", {"alexnet", "mlp", "vgg"}).empty());
  CHECK(Nearest("rmsprop", {"sgd", "adam"}).empty());
  CHECK(Nearest("metrics", {"name", "model", "data", "batch", "shards", "epochs"}).empty());
}

}  // namespace
}  // namespace ringmaster

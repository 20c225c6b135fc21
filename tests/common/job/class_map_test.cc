#include "common/job/class_map.h"

#include <catch2/catch.hpp>

#include "common/job/resolve.h"
#include "tests/common/job/small_job.h"

namespace ringmaster::job {
namespace {

using small::Numerics;

v1::NumericsClass Of(const std::string& instructions) {
  v1::NumericsClass numerics = Numerics();
  numerics.set_instruction_set(instructions);
  return numerics;
}

TEST_CASE("Numerics class: the first difference is named") {
  const v1::NumericsClass a = Numerics();
  v1::NumericsClass b = a;
  CHECK(Difference(a, b).empty());
  (*b.mutable_libraries())["blas"] = "3.11";
  CHECK(Difference(a, b) == "library blas: none and 3.11");
  (*b.mutable_libraries())["glibc"] = "2.37";
  b.mutable_libraries()->erase("blas");
  CHECK(Difference(a, b) == "library glibc: 2.36 and 2.37");
  b.add_cache_bytes(1 << 20);
  CHECK(Difference(a, b) == "cache_bytes: 32768 and 32768/1048576");
  b.set_compute_id("b2");
  b.set_instruction_set("avx512_core");
  b.set_cache_bytes(0, 32768);
  CHECK(Difference(Numerics(), b).find("cache_bytes") == 0);
}

TEST_CASE("Numerics class: its name says what it is, and is another one for each") {
  const std::string name = ClassName(Numerics());
  CHECK(name.starts_with("cpu-avx2-"));
  CHECK(name.size() == std::string("cpu-avx2-").size() + 8);
  CHECK(name == ClassName(Numerics()));
  v1::NumericsClass other = Numerics();
  (*other.mutable_libraries())["glibc"] = "2.37";
  CHECK(ClassName(other) != name);
  other.set_instruction_set("sm_90, a: b");
  CHECK(ClassName(other).starts_with("cpu-sm_90__a__b-"));  // a key without quotes
}

struct Made {
  std::vector<std::string> parts;  // `avx2 3`
  std::vector<std::string> left_out;
};

Made Make(uint32_t shards, std::vector<ClassSpeed> classes) {
  Made made;
  const v1::ClassMap map = MakeClassMap(shards, std::move(classes), &made.left_out);
  std::string before;
  for (const v1::MappedClass& each : map.classes()) {
    CHECK(before < each.class_());
    before = each.class_();
    made.parts.push_back(fmt::format("{} {}", each.numerics().instruction_set(), each.shards()));
  }
  return made;
}

TEST_CASE("Class map: its text tells maps apart, and copies of one are the same") {
  v1::NumericsClass forward = Numerics(), backward = Numerics();
  for (int i = 0; i < 20; ++i) {
    (*forward.mutable_libraries())["library " + std::to_string(i)] = "1";
    (*backward.mutable_libraries())["library " + std::to_string(19 - i)] = "1";
  }
  const std::string text = TextOf(OneClass(4, forward));
  CHECK(text == TextOf(OneClass(4, backward)));
  (*backward.mutable_libraries())["library 7"] = "2";
  CHECK(text != TextOf(OneClass(4, backward)));
  CHECK(text != TextOf(OneClass(5, forward)));
  v1::ClassMap other = OneClass(4, forward);
  other.set_step(3);
  CHECK(text != TextOf(other));
  other = OneClass(4, forward);
  other.set_before_evaluation(!other.before_evaluation());
  CHECK(text != TextOf(other));
}

TEST_CASE("Class map: what began before a step led to it, and what began there did not") {
  ClassMaps first, both;
  *first.Add() = OneClass(4, Of("avx2"));
  both = first;
  *both.Add() = OneClass(4, Of("avx512_core"));
  both.Mutable(1)->set_step(6);
  CHECK(LedAlike(first, both, 0));
  CHECK(LedAlike(first, both, 6));
  CHECK_FALSE(LedAlike(first, both, 7));
  CHECK(LedAlike(both, both, 7));
  CHECK(LedAlike({}, both, 0));
  CHECK_FALSE(LedAlike({}, both, 1));
}

TEST_CASE("Class map: shards in proportion to speed, by largest remainder") {
  const auto a = Of("avx2"), b = Of("avx512"), c = Of("sse4");
  CHECK(Make(8, {{a, 1, 1.0}}).parts == std::vector<std::string>{"avx2 8"});
  CHECK(Make(8, {{b, 2, 0.1}, {a, 1, 0.15}}).parts ==
        std::vector<std::string>{"avx2 2", "avx512 6"});
  CHECK(Make(28, {{a, 1, 1.0}, {b, 1, 2.0}, {c, 1, 4.0}}).parts ==
        std::vector<std::string>{"avx2 16", "avx512 8", "sse4 4"});
  CHECK(Make(3, {{a, 1, 1.0}, {b, 1, 1.0}}).parts ==
        std::vector<std::string>{"avx2 2", "avx512 1"});
}

TEST_CASE("Class map: a class whose part is less than a shard is left out by name") {
  const auto a = Of("avx2"), b = Of("avx512"), c = Of("sse4");
  // A twentieth: of 28 shards more than one, of 8 less.
  CHECK(Make(28, {{a, 1, 1.0}, {b, 1, 19.0}}).left_out.empty());
  const Made made = Make(8, {{a, 1, 1.0}, {b, 1, 19.0}, {c, 1, 19.0}});
  CHECK(made.parts == std::vector<std::string>{"avx2 8"});
  CHECK(made.left_out == std::vector<std::string>{ClassName(b), ClassName(c)});
}

TEST_CASE("Class map: everybody gets a shard where nobody may be left out") {
  const v1::ClassMap map =
      MakeClassMap(4, {{Of("avx2"), 1, 1.0}, {Of("avx512"), 1, 1000.0}}, nullptr);
  REQUIRE(map.classes_size() == 2);
  CHECK(map.classes(0).shards() == 3);
  CHECK(map.classes(1).shards() == 1);
  CHECK(ShardsOfClass(map, map.classes(0).class_()) == Range{0, 3});
  CHECK(ShardsOfClass(map, map.classes(1).class_()) == Range{3, 4});
  CHECK(FindClass(map, Of("avx512")) == &map.classes(1));
  CHECK(FindClass(map, Of("sse4")) == nullptr);
}

TEST_CASE("Class map: which one computes what follows a state, and what digests have of it") {
  v1::ResultSpec result;
  result.add_class_maps()->set_before_evaluation(true);
  const Sha256Digest first = ResultDigest(result);
  v1::ClassMap& later = *result.add_class_maps();
  later.set_step(5);
  CHECK(MapOf(result, 4, true) == 0);
  CHECK(MapOf(result, 5, false) == 0);  // its evaluation is still the first one's
  CHECK(MapOf(result, 5, true) == 1);
  CHECK(MapOf(result, 6, false) == 1);
  later.set_before_evaluation(true);
  CHECK(MapOf(result, 5, false) == 1);
  CHECK(ResultDigest(result) == first);
  CHECK(MapsDigest(result, 4) == Sha256Digest{});
  CHECK(MapsDigest(result, 5) != Sha256Digest{});
  CHECK(MapsDigest(result, 0) == Sha256Digest{});  // of the first one digest(0) is
  result.mutable_class_maps(0)->add_classes()->set_shards(1);
  CHECK(ResultDigest(result) != first);
}

}  // namespace
}  // namespace ringmaster::job

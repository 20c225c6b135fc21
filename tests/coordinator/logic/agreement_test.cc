#include "coordinator/logic/run/agreement.h"

#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace ringmaster::coordinator {
namespace {

v1::ScriptFacts MakeScriptFacts() {
  v1::ScriptFacts facts;
  for (const char* const name : {"fc.weight", "fc.bias"}) {
    v1::ScriptTensor& tensor = *facts.add_tensors();
    tensor.set_name(name);
    tensor.add_shape(10);
    tensor.set_role(v1::PARAMETER);
  }
  facts.add_groups()->set_weight_decay(0.1);
  facts.mutable_optimizer()->mutable_torch_sgd()->set_learning_rate(0.1);
  facts.add_metrics("correct");
  facts.set_initial_sha256("aaaa");
  facts.set_frozen_sha256("ffff");
  facts.set_samples(100);
  facts.set_batch(64);
  (*facts.mutable_libraries())["python"] = "3.11.2";
  (*facts.mutable_libraries())["torch"] = "1.13.1";
  return facts;
}

// What is said of a worker b whose facts are changed so.
template <typename Change>
std::string ScriptDifference(const Change& change, Libraries libraries = Libraries::kEqual) {
  const v1::ScriptFacts here = MakeScriptFacts();
  v1::ScriptFacts there = here;
  change(there);
  const Status same = SameScript({"a", here}, {"b", there}, libraries);
  if (same.ok()) return "the same";
  CHECK(same.code() == absl::StatusCode::kFailedPrecondition);
  return Message(same);
}

TEST_CASE("SameScript: the first thing that differs is named with both workers and what to do") {
  CHECK(ScriptDifference([](v1::ScriptFacts&) {}) == "the same");
  const auto torch = [](v1::ScriptFacts& facts) { (*facts.mutable_libraries())["torch"] = "2.0"; };
  CHECK(ScriptDifference(torch) ==
        "the script differs: torch is 1.13.1 on worker a, 2.0 on worker b; install the same on "
        "both, or name an interpreter that has it: script.python");
  CHECK(ScriptDifference(torch, Libraries::kMayDiffer) == "the same");
  CHECK_THAT(
      ScriptDifference([](v1::ScriptFacts& f) { (*f.mutable_libraries())["blas_core"] = "Zen"; }),
      Catch::Contains("blas_core is absent on worker a, Zen on worker b; script.env: {OPENBLAS_"));
  CHECK_THAT(
      ScriptDifference([](v1::ScriptFacts& f) { f.mutable_tensors(1)->set_shape(0, 3); }),
      Catch::Contains("tensor 1 is fc.bias (10) on worker a, fc.bias (3) on worker b; what"));
  CHECK_THAT(
      ScriptDifference([](v1::ScriptFacts& f) { f.mutable_tensors(1)->set_role(v1::BUFFER); }),
      Catch::Contains("fc.bias (10), a buffer on worker b"));
  CHECK_THAT(ScriptDifference([](v1::ScriptFacts& f) { f.mutable_tensors()->RemoveLast(); }),
             Catch::Contains("tensor 1 is fc.bias (10) on worker a, absent on worker b"));
  CHECK_THAT(ScriptDifference([](v1::ScriptFacts& f) { (*f.mutable_aliases())["x"] = "y"; }),
             Catch::Contains("x is tied to absent on worker a, y on worker b"));
  CHECK_THAT(ScriptDifference([](v1::ScriptFacts& f) { f.set_initial_sha256("bbbb"); }),
             Catch::Contains("first values have SHA-256 aaaa on worker a, bbbb on worker b; seed "
                             "before the model is made: torch.manual_seed(0)"));
  CHECK_THAT(ScriptDifference([](v1::ScriptFacts& f) { f.set_frozen_sha256("eeee"); }),
             Catch::Contains("has SHA-256 ffff on worker a, eeee on worker b; load the same file"));
}

TEST_CASE("SameScript: whatever a script says of itself is compared, in order") {
  using Change = std::function<void(v1::ScriptFacts&)>;
  const std::vector<std::pair<std::string, Change>> changes = {
      {"torch is", [](auto& f) { (*f.mutable_libraries())["torch"] = "2"; }},
      {"tensor 0 is", [](auto& f) { f.mutable_tensors(0)->set_name("x"); }},
      {"counters are", [](auto& f) { f.add_counters("n"); }},
      {"counters begin with", [](auto& f) { f.add_counter_starts(3); }},
      {"groups of parameters", [](auto& f) { f.mutable_groups(0)->set_weight_decay(0); }},
      {"the optimizer is", [](auto& f) { f.mutable_optimizer()->mutable_torch_adam(); }},
      {"metrics are", [](auto& f) { f.add_metrics("other"); }},
      {"samples of the dataset", [](auto& f) { f.set_samples(99); }},
      {"attach was told batch", [](auto& f) { f.set_batch(32); }},
      {"attach was told shards", [](auto& f) { f.set_shards(2); }},
      {"attach was told steps", [](auto& f) { f.set_steps(5); }},
      {"attach was told epochs", [](auto& f) { f.set_epochs(5); }},
      {"attach was told seed", [](auto& f) { f.set_seed(5); }},
      {"the first values", [](auto& f) { f.set_initial_sha256("b"); }},
      {"what never changes", [](auto& f) { f.set_frozen_sha256("b"); }}};
  for (size_t first = 0; first < changes.size(); ++first) {
    const std::string told = ScriptDifference([&](v1::ScriptFacts& facts) {
      for (size_t i = first; i < changes.size(); ++i) changes[i].second(facts);
    });
    CHECK_THAT(told, Catch::StartsWith("the script differs: " + changes[first].first));
  }
}

TEST_CASE("SameScript: classes that share a job have libraries and first values of their own") {
  v1::ScriptFacts a, b;
  (*a.mutable_libraries())["torch"] = "1.13.1";
  (*b.mutable_libraries())["torch"] = "2.0";
  a.set_initial_sha256("aaaa");
  b.set_initial_sha256("bbbb");
  const auto same = [&] { return SameScript({"a", a}, {"b", b}, Libraries::kMayDiffer); };
  CHECK(same().ok());
  b.set_frozen_sha256("ffff");
  CHECK_THAT(Message(same()), Catch::Contains("what never changes"));
}

TEST_CASE("StateDigests: two that differ at one step are named, in whatever order steps come") {
  StateDigests digests;
  CHECK(digests.Add(9, "a", "x").ok());
  CHECK(digests.Add(4, "b", "y").ok());
  CHECK(digests.Add(4, "a", "y").ok());
  CHECK(digests.Add(9, "a", "x").ok());
  const Status status = digests.Add(9, "b", "z");
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(Message(status), Catch::Contains("digest(9) is 78 on worker a, but 7a on worker b"));
}

TEST_CASE("StateDigests: after a rewind what is said is compared, however much was said before") {
  StateDigests digests;
  for (uint64_t step = 1; step <= 5'000; ++step) CHECK(digests.Add(step, "a", "x").ok());
  digests.GoOnFrom(3'000);
  for (uint64_t step = 3'001; step <= 4'000; ++step) {
    CHECK(digests.Add(step, "a", "x").ok());
    CHECK_FALSE(digests.Add(step, "b", "y").ok());
  }
}

TEST_CASE("StateDigests: what was said of steps after a rewind holds for nobody") {
  StateDigests digests;
  CHECK(digests.Add(5, "lost", "x").ok());
  CHECK(digests.Add(6, "lost", "wrong").ok());
  digests.GoOnFrom(5);
  CHECK(digests.Add(6, "a", "right").ok());
  CHECK_FALSE(digests.Add(5, "a", "y").ok());
}

TEST_CASE("StateDigests: of many steps those that were spoken of last are remembered") {
  StateDigests digests;
  CHECK(digests.Add(1'000'000, "a", "x").ok());
  for (uint64_t step = 1; step <= 256; ++step) CHECK(digests.Add(step, "a", "x").ok());
  CHECK(digests.Add(1'000'000, "b", "y").ok());  // forgotten: the oldest, not the smallest
  CHECK_FALSE(digests.Add(256, "b", "y").ok());
  CHECK_FALSE(digests.Add(3, "b", "y").ok());
}

TEST_CASE("StateDigests: of at least three who differ those that are alone are the minority") {
  StateDigests digests;
  for (const char* worker : {"a", "b", "c"}) CHECK(digests.Add(4, worker, "x").ok());
  CHECK(digests.Add(6, "a", "y").ok());
  CHECK_FALSE(digests.Add(6, "b", "z").ok());
  CHECK(digests.Minority().empty());  // of two
  CHECK(digests.Add(6, "c", "y").ok());
  CHECK(digests.Minority() == std::vector<std::string>{"b"});
  CHECK_FALSE(digests.Add(6, "d", "z").ok());
  CHECK(digests.Minority().empty());  // two against two
  CHECK(digests.AgreedBefore(6) == 4);
  CHECK(digests.AgreedBefore(4) == 0);
  CHECK(digests.AgreedBefore(100) == 4);
}

}  // namespace
}  // namespace ringmaster::coordinator

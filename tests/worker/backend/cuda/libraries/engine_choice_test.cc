// The rule that picks an engine, with candidates that only a test has.
#include "worker/backend/cuda/libraries/engine_choice.h"

#include <catch2/catch.hpp>

namespace ringmaster::cuda {
namespace {

using graph::DType;

struct Fake {
  StatusOr<size_t> workspace;
};

StatusOr<std::optional<size_t>> Choose(const std::vector<Fake>& fakes, std::vector<size_t>* asked) {
  return ChooseFirst(fakes.size(), 100, [&](size_t i) {
    asked->push_back(i);
    return fakes[i].workspace;
  });
}

const Status kUnsupported = absl::UnimplementedError("not this one");

}  // namespace

TEST_CASE("EngineChoice: the first candidate that finalizes is taken, and no other is asked") {
  std::vector<size_t> asked;
  const auto chosen = Choose({{kUnsupported}, {100}, {1}}, &asked);
  REQUIRE(chosen.ok());
  CHECK(*chosen == 1U);
  CHECK(asked == std::vector<size_t>{0, 1});
}

TEST_CASE("EngineChoice: scratch above the cap is second choice, and the first of those is taken") {
  std::vector<size_t> asked;
  const auto under = Choose({{101}, {200}, {99}}, &asked);
  REQUIRE(under.ok());
  CHECK(*under == 2U);
  const auto above = Choose({{kUnsupported}, {500}, {101}}, &asked);
  REQUIRE(above.ok());
  CHECK(*above == 1U);
}

TEST_CASE("EngineChoice: none, when none finalizes") {
  std::vector<size_t> asked;
  const auto chosen = Choose({{kUnsupported}, {absl::InternalError("broken")}}, &asked);
  REQUIRE(chosen.ok());
  CHECK(!chosen->has_value());
  CHECK(!Choose({}, &asked)->has_value());
}

TEST_CASE("EngineChoice: memory that is used up chooses no other kernel") {
  std::vector<size_t> asked;
  const auto chosen = Choose({{absl::ResourceExhaustedError("no memory")}, {1}}, &asked);
  CHECK(absl::IsResourceExhausted(chosen.status()));
  CHECK(asked == std::vector<size_t>{0});
}

TEST_CASE("EngineChoice: what every run must not do, and what float32 must not do beside") {
  CHECK(Refusal({}, DType::kFloat32).empty());
  CHECK(Refusal({CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP}, DType::kFloat32).empty());
  for (const DType type : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    INFO(graph::Name(type));
    const bool wide = type == DType::kFloat32;
    CHECK(Refusal({CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC},
                  type) == "not the same bits on every run");
    CHECK(Refusal({CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION}, type) ==
          "sums in less than float32");
    CHECK(Refusal({CUDNN_NUMERICAL_NOTE_FFT}, type) == "an FFT");
    CHECK(Refusal({CUDNN_NUMERICAL_NOTE_WINOGRAD}, type) == "a Winograd transform");
    CHECK(Refusal({CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, type) ==
          (wide ? "float32 on tensor cores" : ""));
    CHECK(Refusal({CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS}, type) ==
          (wide ? "float32 inputs rounded" : ""));
  }
}

TEST_CASE("EngineChoice: text and back") {
  for (const EngineChoice& choice :
       {EngineChoice{0, {}}, EngineChoice{37, {{2, 11}}}, EngineChoice{1, {{2, 11}, {13, -4}}}}) {
    const auto parsed = ParseEngineChoice(ToString(choice));
    REQUIRE(Message(parsed.status()) == "");
    CHECK(*parsed == choice);
  }
  for (const char* wrong : {"", "engine", "engine ", "engine -1", "engine 1 knobs ", "engine 1 2=3",
                            "engine 1 knobs 2=", "engine 1 knobs 2=3,", "engine 1 knobs 2=3 "}) {
    INFO(wrong);
    CHECK(!ParseEngineChoice(wrong).ok());
  }
}

}  // namespace ringmaster::cuda

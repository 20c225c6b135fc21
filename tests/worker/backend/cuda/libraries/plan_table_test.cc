// The kernel table as text: what ringctl tune writes is read back, and mistakes are named by line;
// and the rule that picks an engine where it has no row.
#include "worker/backend/cuda/libraries/plan_table.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/support/temporary_folder.h"

namespace ringmaster::cuda {
namespace {

const std::string kAlgorithm = std::string(112, '0') + "00000000deadbeef";

PlanKey Key(const std::string& op, const std::string& shape) {
  return {"NVIDIA H200", "cudnn 91900", op, shape};
}

std::string ErrorOf(const std::string& text) {
  return Message(PlanTable::Parse(text, "table.txt").status());
}

}  // namespace

TEST_CASE("PlanTable: what is printed is parsed again") {
  PlanTable table;
  table.Put(Key("conv2d", "x 1,2,3,4"), ConvolutionChoice{{}, {37, {{2, 11}, {13, -4}}}});
  table.Put(Key("conv2d", "x 5,6,7,8"),
            ConvolutionChoice{{.fused = true, .padded = true, .narrow = true}, {0, {}}});
  table.Put(Key("matmul", "m 1"), MatmulChoice{{1, 2, 3, 4, 5, 6, 7, 0xfedcba9876543210}});
  const auto parsed = PlanTable::Parse(table.Print(), "table.txt");
  REQUIRE(Message(parsed.status()) == "");
  CHECK(parsed->Print() == table.Print());
  CHECK(parsed->size() == 3);

  const auto* first = parsed->Find<ConvolutionChoice>(Key("conv2d", "x 1,2,3,4"));
  REQUIRE(first != nullptr);
  CHECK(*first == ConvolutionChoice{{}, {37, {{2, 11}, {13, -4}}}});
  const auto* second = parsed->Find<ConvolutionChoice>(Key("conv2d", "x 5,6,7,8"));
  REQUIRE(second != nullptr);
  CHECK(second->variant == ConvolutionVariant{true, true, true});
  const auto* product = parsed->Find<MatmulChoice>(Key("matmul", "m 1"));
  REQUIRE(product != nullptr);
  CHECK(product->algorithm[7] == 0xfedcba9876543210);
}

TEST_CASE("PlanTable: a row is found by all of its key, and by what it chooses") {
  PlanTable table;
  const PlanKey key = Key("conv2d", "x 1,2,3,4");
  table.Put(key, ConvolutionChoice{{}, {37, {}}});
  CHECK(table.Find<ConvolutionChoice>(key) != nullptr);
  CHECK(table.Find<MatmulChoice>(key) == nullptr);
  for (std::string PlanKey::*field :
       {&PlanKey::device, &PlanKey::library, &PlanKey::op, &PlanKey::shape}) {
    PlanKey other = key;
    other.*field += "x";
    CHECK(table.Find<ConvolutionChoice>(other) == nullptr);
  }
}

TEST_CASE("PlanTable: people may write comments, blank lines and blanks round fields") {
  const auto table = PlanTable::Parse(
      "# by hand\n\n  A|cudnn 1 |conv2d|x 1 |  plain engine 3 knobs 1=2  \r\n"
      "A | cublaslt 1 | matmul | m 1 | algorithm " +
          kAlgorithm + "\n",
      "table.txt");
  REQUIRE(Message(table.status()) == "");
  CHECK(table->Find<ConvolutionChoice>({"A", "cudnn 1", "conv2d", "x 1"}) != nullptr);
  CHECK(table->Find<MatmulChoice>({"A", "cublaslt 1", "matmul", "m 1"}) != nullptr);
}

TEST_CASE("PlanTable: files of two models of GPU, one behind the other, are one table") {
  PlanTable one, other;
  const PlanKey key = Key("conv2d", "x 1,2,3,4");
  PlanKey elsewhere = key;
  elsewhere.device = "NVIDIA H100 80GB HBM3";
  one.Put(key, ConvolutionChoice{{}, {37, {}}});
  other.Put(elsewhere, ConvolutionChoice{{}, {4, {}}});
  const auto both = PlanTable::Parse(one.Print() + other.Print(), "table.txt");
  REQUIRE(Message(both.status()) == "");
  CHECK(both->size() == 2);
  REQUIRE(both->Find<ConvolutionChoice>(elsewhere) != nullptr);
  CHECK(both->Find<ConvolutionChoice>(elsewhere)->engine.engine == 4);
  CHECK(both->Find<ConvolutionChoice>(key)->engine.engine == 37);
}

TEST_CASE("PlanTable: tables of hosts that tuned one shape are merged alike in any order") {
  const std::string three = "A | B 1 | C | D | plain engine 3\n";
  const std::string twelve = "A | B 1 | C | D | plain engine 12\n";
  const std::string narrow = "A | B 1 | C | D | narrow engine 1\n";
  const std::string newer = "A | B 2 | C | D | plain engine 7\n";  // of the library: both stay
  std::vector<std::string> hosts = {narrow + newer, newer + three, "# by hand\n" + twelve};
  std::sort(hosts.begin(), hosts.end());
  do {
    const auto merged = PlanTable::Parse(hosts[0] + hosts[1] + hosts[2], "table.txt");
    REQUIRE(Message(merged.status()) == "");
    CHECK(merged->size() == 2);
    // As text 12 comes before 3, and what keeps all bits before what does not.
    CHECK(merged->Print() == PlanTable::Parse(newer + twelve, "one")->Print());
    CHECK(merged->Version() == PlanTable::Parse(newer + twelve, "one")->Version());
    CHECK(merged->Version() != PlanTable::Parse(newer + three, "other")->Version());
  } while (std::next_permutation(hosts.begin(), hosts.end()));
  CHECK(PlanTable::Parse(narrow + narrow, "table.txt")->Print() ==
        PlanTable::Parse(narrow, "table.txt")->Print());
}

TEST_CASE("PlanTable: mistakes are named with file and line") {
  CHECK(ErrorOf("# fine\nA | B | C | D\n") ==
        "table.txt:2: expected 5 fields between bars (device | library | op | shape | choice), "
        "got 4");
  CHECK(ErrorOf("A | B | C | D | engine\n") ==
        "table.txt:1: `engine` is no choice; expected `plain engine ...` or `algorithm ...`");
  CHECK(ErrorOf("A | B | C | D | wide engine 3\n") ==
        "table.txt:1: `wide` is no variant; expected plain, fused, padded or narrow");
  CHECK(ErrorOf("A | B | C | D | plain engine x\n") ==
        "table.txt:1: `engine x` is no engine; expected something like `engine 37 knobs "
        "2=11,13=4`");
  CHECK(ErrorOf("A | B | C | D | plain engine 3 knobs 1\n") ==
        "table.txt:1: `engine 3 knobs 1` is no engine; expected something like `engine 37 knobs "
        "2=11,13=4`");
  CHECK(ErrorOf("A | B | C | D | algorithm 12\n") ==
        "table.txt:1: an algorithm is 128 hexadecimal digits, got `12`");
}

TEST_CASE("PlanTable: the installed one is read once, by whoever names it or computes with it") {
  const std::string version = InstalledPlanTableVersion();
  const auto table = PlanTableOrInstalled(nullptr);
  REQUIRE(table.ok());
  const TemporaryFolder folder;
  std::ofstream(folder / "table.txt") << "A | B | C | D | plain engine 1\n";
  const char* const before = std::getenv("RINGMASTER_KERNEL_TABLE");
  const std::string kept = before == nullptr ? "" : before;
  setenv("RINGMASTER_KERNEL_TABLE", (folder / "table.txt").c_str(), 1);
  CHECK(InstalledPlanTableVersion() == version);
  CHECK((*PlanTableOrInstalled(nullptr))->size() == (*table)->size());
  if (before == nullptr) {
    unsetenv("RINGMASTER_KERNEL_TABLE");
  } else {
    setenv("RINGMASTER_KERNEL_TABLE", kept.c_str(), 1);
  }
}

// The rule that picks an engine, with candidates that only a test has.

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

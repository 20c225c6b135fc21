// Plans are made once, by whoever wants them first, and say why they cannot be made; and are kept
// for the next process.
#include "worker/backend/cuda/libraries/plan_cache.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/support/temporary_folder.h"
#include "tests/worker/backend/model_program.h"

namespace ringmaster::cuda {
namespace {

PlanRequest Request(int64_t filters, std::optional<ConvolutionChoice> row = std::nullopt) {
  return {ConvolutionShape::Of(ConvolutionPass::kForward, {}, {1, 8, 8, 8}, {filters, 1, 1, 8},
                               graph::DType::kFloat32),
          std::move(row)};
}

// Makes plans of nothing, which remember their shape in the choice, and counts them.
class Maker {
 public:
  PlanCache::Options Options(size_t threads = 3) {
    return {.make = [this](const PlanRequest& request) -> StatusOr<ChosenConvolution> {
              const std::scoped_lock lock(mu_);
              made_.push_back(request.shape.filters);
              if (request.shape.filters == failing) return error;
              const EngineChoice engine = {request.shape.filters, {}};
              return ChosenConvolution{request.row.value_or(ConvolutionChoice{{}, engine}), {}};
            },
            .threads = threads,
            .progress = [this](size_t done, size_t of) { told_.emplace_back(done, of); }};
  }
  std::vector<int64_t> made() {
    std::sort(made_.begin(), made_.end());
    return made_;
  }
  [[nodiscard]] const auto& told() const { return told_; }
  int64_t failing = -1;
  Status error = Error(absl::StatusCode::kUnimplemented, "no engine");

 private:
  std::mutex mu_;
  std::vector<int64_t> made_;
  std::vector<std::pair<size_t, size_t>> told_;
};

using Filters = std::vector<int64_t>;

// What binding a program asks for.
std::vector<PlanRequest> RequestsOf(const graph::Program& program) {
  std::vector<PlanRequest> requests;
  for (const graph::Node& node : program.graph.nodes()) {
    const auto request = PlanRequestOf(program.graph, node, "a GPU", PlanTable());
    if (request) requests.push_back(*request);
  }
  return requests;
}

}  // namespace

TEST_CASE("PlanCache: two nodes of one shape make one plan, and share it") {
  Maker maker;
  PlanCache cache(maker.Options());
  cache.Prepare(std::vector{Request(1), Request(2), Request(1)});
  CHECK(maker.made() == Filters{1, 2});
  const auto one = cache.Get(Request(1));
  REQUIRE(one.ok());
  CHECK(cache.Get(Request(1))->get() == one->get());
  CHECK((*one)->choice.engine.engine == 1);
  CHECK((*cache.Get(Request(2)))->choice.engine.engine == 2);
  CHECK(maker.made() == Filters{1, 2});
  CHECK(maker.told() == std::vector<std::pair<size_t, size_t>>{{2, 2}});
}

TEST_CASE("PlanCache: the kernel table's row is another plan than the rule's") {
  Maker maker;
  PlanCache cache(maker.Options());
  const ConvolutionChoice row = {{.padded = true}, {37, {{2, 1}}}};
  cache.Prepare(std::vector{Request(1), Request(1, row)});
  CHECK(maker.made() == Filters{1, 1});
  CHECK((*cache.Get(Request(1, row)))->choice == row);
  CHECK((*cache.Get(Request(1)))->choice.engine.engine == 1);
}

TEST_CASE("PlanCache: what nobody prepared is made when it is asked for, once") {
  Maker maker;
  PlanCache cache(maker.Options());
  CHECK(cache.Get(Request(5)).ok());
  CHECK(cache.Get(Request(5)).ok());
  cache.Prepare(std::vector{Request(5)});
  CHECK(maker.made() == Filters{5});
  CHECK(maker.told().empty());
}

TEST_CASE("PlanCache: what nothing computes is said to everybody; other errors may pass") {
  Maker maker;
  maker.failing = 2;
  PlanCache cache(maker.Options());
  cache.Prepare(std::vector{Request(1), Request(2)});
  CHECK(Message(cache.Get(Request(2)).status()) == "no engine");
  CHECK(maker.made() == Filters{1, 2});
  maker.failing = 3;
  maker.error = Error(absl::StatusCode::kResourceExhausted, "none left");
  cache.Prepare(std::vector{Request(3)});
  CHECK(absl::IsResourceExhausted(cache.Get(Request(3)).status()));
  maker.failing = -1;
  CHECK(cache.Get(Request(3)).ok());
  CHECK(maker.made() == Filters{1, 2, 3, 3, 3});
  maker.failing = 4;
  maker.error = Error(absl::StatusCode::kInternal, "the driver");
  CHECK(absl::IsInternal(cache.Get(Request(4)).status()));
  maker.failing = -1;
  CHECK(cache.Get(Request(4)).ok());
}

TEST_CASE("PlanCache: of plans that nobody uses some are kept, those that were used last") {
  Maker maker;
  PlanCache::Options options = maker.Options();
  options.most_idle = 16;
  PlanCache cache(std::move(options));
  const auto held = cache.Get(Request(1));
  REQUIRE(held.ok());
  for (int64_t i = 2; i <= 1000; ++i) REQUIRE(cache.Get(Request(i)).ok());
  CHECK(maker.made().size() == 1000);
  REQUIRE(cache.Get(Request(1000)).ok());
  CHECK(cache.Get(Request(1))->get() == held->get());
  CHECK(maker.made().size() == 1000);
  REQUIRE(cache.Get(Request(2)).ok());
  CHECK(maker.made().size() == 1001);
}

TEST_CASE("PlanCache: cores that bind the same program at once make its plans once") {
  Maker maker;
  PlanCache cache(maker.Options());
  std::vector<PlanRequest> requests;
  for (int64_t i = 1; i <= 20; ++i) requests.push_back(Request(i));
  std::atomic<int> good = 0;
  {
    std::vector<std::jthread> cores;
    for (int core = 0; core < 4; ++core) {
      cores.emplace_back([&] {
        cache.Prepare(requests);
        for (const PlanRequest& request : requests) good += cache.Get(request).ok() ? 1 : 0;
      });
    }
  }
  CHECK(good == 80);
  CHECK(maker.made().size() == 20);
}

TEST_CASE("PlanCache: training and evaluation of a net make its plans once") {
  Maker maker;
  PlanCache cache(maker.Options());
  const auto training = testing::ModelProgram({.name = "vgg", .samples = 8});
  REQUIRE(Message(training.status()) == "");
  const auto evaluation =
      testing::ModelProgram({.name = "vgg", .samples = 8, .mode = graph::Mode::kInference});
  REQUIRE(Message(evaluation.status()) == "");
  const auto requests = RequestsOf(*training);
  cache.Prepare(requests);
  const size_t first = maker.made().size();
  CHECK(first > 10);
  CHECK(first < requests.size());
  const auto forward = RequestsOf(*evaluation);
  CHECK(!forward.empty());
  cache.Prepare(forward);
  cache.Prepare(requests);
  CHECK(maker.made().size() == first);
}

// Plans that are kept for the next process, in a file that may be anybody's or broken.

namespace {

const StoredPlan kOne = {{{.fused = true}, {37, {{2, 11}}}}, std::string("{\"a\":\n1}\0\n", 10)};
const StoredPlan kOther = {{{}, {4, {}}}, ""};

struct Shelf {
  TemporaryFolder folder;
  std::string path = folder / "plans";
  [[nodiscard]] std::unique_ptr<PlanStore> Open(const std::string& identity = "cuDNN 9",
                                                size_t most = PlanStore::kMostBytes) const {
    return PlanStore::Open(path, identity, most);
  }
  void Fill() const {
    const auto store = Open();
    store->Put("one", kOne);
    store->Put("other", kOther);
    REQUIRE(Message(store->Save()) == "");
  }
};

}  // namespace

TEST_CASE("PlanStore: the next process finds what was saved, byte by byte") {
  const Shelf shelf;
  CHECK_FALSE(shelf.Open()->Find("one"));
  shelf.Fill();
  const auto store = shelf.Open();
  CHECK(store->Find("one") == kOne);
  CHECK(store->Find("other") == kOther);
  CHECK_FALSE(store->Find("third"));
}

TEST_CASE("PlanStore: a file of another library, GPU or build is not read, and replaced") {
  const Shelf shelf;
  shelf.Fill();
  const auto store = shelf.Open("cuDNN 10");
  CHECK_FALSE(store->Find("one"));
  store->Put("one", kOther);
  REQUIRE(store->Save().ok());
  CHECK(shelf.Open("cuDNN 10")->Find("one") == kOther);
  CHECK_FALSE(shelf.Open()->Find("one"));
}

TEST_CASE("PlanStore: whatever byte of the file is wrong or missing, nothing is read from it") {
  const Shelf shelf;
  shelf.Fill();
  const std::string good = ReadWhole(shelf.path);
  for (size_t i = 0; i < good.size(); ++i) {
    INFO(i);
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    WriteWhole(shelf.path, bad);
    CHECK_FALSE(shelf.Open()->Find("one"));
    WriteWhole(shelf.path, good.substr(0, i));
    CHECK_FALSE(shelf.Open()->Find("one"));
  }
  WriteWhole(shelf.path, good);
  CHECK(shelf.Open()->Find("one") == kOne);
}

TEST_CASE("PlanStore: where nothing is new nothing is written") {
  const Shelf shelf;
  REQUIRE(shelf.Open()->Save().ok());
  CHECK_FALSE(std::filesystem::exists(shelf.path));
  shelf.Fill();
  const auto store = shelf.Open();
  CHECK(store->Find("one"));
  std::filesystem::remove(shelf.path);
  REQUIRE(store->Save().ok());
  CHECK_FALSE(std::filesystem::exists(shelf.path));
}

TEST_CASE("PlanStore: a file that would be too large keeps what this process asked for") {
  const Shelf shelf;
  const StoredPlan large = {{}, std::string(400, 'x')};
  for (const char* key : {"a", "b", "c"}) {
    const auto store = shelf.Open("cuDNN 9", 1000);
    if (std::string(key) == "c") CHECK(store->Find("b") == large);
    store->Put(key, large);
    REQUIRE(store->Save().ok());
  }
  const auto store = shelf.Open("cuDNN 9", 1000);
  CHECK_FALSE(store->Find("a"));
  CHECK(store->Find("b") == large);
  CHECK(store->Find("c") == large);
}

TEST_CASE("PlanStore: a folder that is not there is an error of saving alone") {
  const Shelf shelf;
  const auto store = PlanStore::Open(shelf.folder / "none/plans", "cuDNN 9");
  store->Put("one", kOne);
  CHECK_FALSE(store->Save().ok());
  CHECK(store->Find("one") == kOne);
  // And what could not be kept is kept the next time.
  std::filesystem::create_directory(shelf.folder / "none");
  REQUIRE(store->Save().ok());
  CHECK(PlanStore::Open(shelf.folder / "none/plans", "cuDNN 9")->Find("one") == kOne);
}

}  // namespace ringmaster::cuda

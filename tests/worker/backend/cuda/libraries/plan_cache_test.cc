// Plans are made once, by whoever wants them first, and say why they cannot be made.
#include "worker/backend/cuda/libraries/plan_cache.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <mutex>
#include <thread>
#include <vector>

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
  Status error = Internal("no engine");

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

TEST_CASE("PlanCache: what cannot be made is said to everybody; memory is asked for again") {
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

}  // namespace ringmaster::cuda

// What the exact sum rests on: the bits of a shard depend on nothing but its inputs, the weights
// and the thread count.
#include <catch2/catch.hpp>
#include <latch>
#include <set>
#include <thread>

#include "tests/support/bound_program.h"
#include "tests/support/program_feeds.h"
#include "tests/support/sanitized.h"
#include "tests/worker/backend/backend_under_test.h"
#include "tests/worker/backend/model_program.h"
#include "tests/worker/backend/op_program.h"

namespace ringmaster {
namespace {

// Runs the shard `times` times on a core of the calling thread; all hashes, or the error.
StatusOr<std::set<std::string>> Hashes(Backend& backend, const graph::Program& program,
                                       const graph::ReferenceFeeds& feeds, uint32_t threads,
                                       int times) {
  RING_ASSIGN_OR_RETURN(auto bound, testing::BoundProgram::Create(
                                        backend, program, {.name = "core", .threads = threads}));
  std::set<std::string> hashes;
  for (int i = 0; i < times; ++i) {
    RING_ASSIGN_OR_RETURN(const auto result, bound->Run(feeds, testing::KeysOf(program)));
    hashes.insert(result.Hash());
  }
  return hashes;
}

StatusOr<std::set<std::string>> Hashes(Backend& backend, const graph::Program& program,
                                       uint32_t threads, int times) {
  return Hashes(backend, program, testing::FeedProgram(program), threads, times);
}

// The same on a new thread, as a worker's cores do.
StatusOr<std::set<std::string>> HashesOnThread(Backend& backend, const graph::Program& program,
                                               uint32_t threads, int times) {
  StatusOr<std::set<std::string>> hashes = std::set<std::string>();
  {
    std::jthread core([&] { hashes = Hashes(backend, program, threads, times); });
  }
  return hashes;
}

graph::Program Alexnet(int64_t samples, v1::Policy policy) {
  return testing::ModelProgram({.samples = samples, .policy = policy}).value();
}

// One program on two cores, one after the other.
StatusOr<std::set<std::string>> HashesOfOp(Backend& backend, const testing::OpProgram& op,
                                           uint32_t threads) {
  const graph::ReferenceFeeds feeds = testing::FeedOp(op);
  RING_ASSIGN_OR_RETURN(auto hashes, Hashes(backend, op.program, feeds, threads, 2));
  RING_ASSIGN_OR_RETURN(const auto others, Hashes(backend, op.program, feeds, threads, 1));
  hashes.insert(others.begin(), others.end());
  return hashes;
}

}  // namespace

TEST_CASE("Determinism: every op gives the same bits again") {
  const auto backend = testing::MakeBackendUnderTest();
  REQUIRE(Message(backend.status()) == "");
  // Under a sanitizer every fifth, of which some have each type and each number of threads.
  size_t turn = 0;
  for (graph::DType compute :
       {graph::DType::kFloat32, graph::DType::kBFloat16, graph::DType::kFloat16}) {
    for (const graph::OpCase& test : graph::AllCases()) {
      const auto op = testing::MakeOpProgram(test, compute);
      REQUIRE(Message(op.status()) == "");
      for (uint32_t threads : testing::ThreadCounts()) {
        if (testing::kSanitized && ++turn % 5 != 0) continue;
        INFO(graph::NameOf(test) << ", " << graph::Name(compute) << ", " << threads << " threads");
        const auto hashes = HashesOfOp(**backend, *op, threads);
        REQUIRE(Message(hashes.status()) == "");
        CHECK(hashes->size() == 1);
      }
    }
  }
}

TEST_CASE("Determinism: cores side by side give the bits of a core alone") {
  for (v1::Policy policy :
       {v1::POLICY_FLOAT32, v1::POLICY_MIXED_BFLOAT16, v1::POLICY_MIXED_FLOAT16}) {
    for (uint32_t threads : testing::ThreadCounts()) {
      INFO(v1::Policy_Name(policy) << ", " << threads << " threads");
      const auto backend = testing::MakeBackendUnderTest();
      REQUIRE(Message(backend.status()) == "");
      const graph::Program program = Alexnet(4, policy);
      const graph::Program other = Alexnet(3, policy);
      const auto alone = HashesOnThread(**backend, program, threads, 2);
      REQUIRE(Message(alone.status()) == "");
      CHECK(alone->size() == 1);

      StatusOr<std::set<std::string>> together[3] = {alone, alone, alone};
      {
        std::latch start(3);
        std::vector<std::jthread> cores;
        for (int core = 0; core < 3; ++core) {
          cores.emplace_back([&, core] {
            start.arrive_and_wait();
            together[core] = Hashes(**backend, core == 2 ? other : program, threads, 2);
          });
        }
      }
      for (const auto& hashes : together) REQUIRE(Message(hashes.status()) == "");
      CHECK(*together[0] == *alone);
      CHECK(*together[1] == *alone);
      CHECK(together[2]->size() == 1);
      CHECK(*together[2] != *alone);
    }
  }
}

TEST_CASE("Determinism: one executable after another on a core changes nothing") {
  const auto backend = testing::MakeBackendUnderTest();
  REQUIRE(Message(backend.status()) == "");
  const graph::Program small = Alexnet(2, v1::POLICY_FLOAT32);
  const graph::Program large = Alexnet(5, v1::POLICY_FLOAT32);
  auto bound = testing::BoundProgram::Create(**backend, small);
  REQUIRE(Message(bound.status()) == "");
  const auto before = (*bound)->Run(testing::FeedProgram(small), testing::KeysOf(small));
  REQUIRE(before.ok());
  // The core's memory grows, and the first executable's addresses must survive that.
  const auto larger = (*bound)->core().Bind(large, (*bound)->weights(), nullptr);
  REQUIRE(Message(larger.status()) == "");
  const auto feeds = testing::FeedProgram(large);
  const std::vector<float> images(feeds.at(large.fed("image")).begin(),
                                  feeds.at(large.fed("image")).end());
  const std::vector<int32_t> labels(5, 1);
  ShardOutput output;
  REQUIRE((*larger)
              ->Run({.samples = testing::KeysOf(large).samples,
                     .columns = testing::Columns(images, labels)},
                    {.take = [](uint32_t, size_t, std::span<const float>) {}}, &output)
              .ok());
  const auto after = (*bound)->Run(testing::FeedProgram(small), testing::KeysOf(small));
  REQUIRE(after.ok());
  CHECK(before->Hash() == after->Hash());
}

TEST_CASE("Determinism: seed, step and sample numbers choose the dropout mask") {
  const auto backend = testing::MakeBackendUnderTest();
  REQUIRE(Message(backend.status()) == "");
  const graph::Program program = Alexnet(2, v1::POLICY_FLOAT32);
  auto bound = testing::BoundProgram::Create(**backend, program);
  REQUIRE(bound.ok());
  const auto feeds = testing::FeedProgram(program);
  std::set<std::string> hashes;
  for (const graph::RandomKeys& keys :
       {graph::RandomKeys{1, 1, {5, 6}}, graph::RandomKeys{2, 1, {5, 6}},
        graph::RandomKeys{1, 2, {5, 6}}, graph::RandomKeys{1, 1, {5, 7}}}) {
    const auto result = (*bound)->Run(feeds, keys);
    REQUIRE(result.ok());
    hashes.insert(result->Hash());
  }
  CHECK(hashes.size() == 4);
}

}  // namespace ringmaster

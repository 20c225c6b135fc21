// Planted races are found, with their places, and reads behind the end of a buffer; the same
// kernels with what they lack have none. This file is compiled as kernels are.
#include "tests/worker/backend/cuda/emulation/race_check.h"

#include <catch2/catch.hpp>
#include <string>

#include "tests/worker/backend/cuda/emulation/guarded_array.h"
#include "worker/backend/cuda/kernels/launch.h"

namespace ringmaster::testing {
namespace {

constexpr int kThreads = 64;  // two warps
constexpr unsigned kBlocks = 2;

template <typename Body>
__global__ void Planted(Body body, int* memory) {
  body(threadIdx.x, memory);
}

// In both orders of threads; the same number of races in each.
template <typename Body>
std::vector<std::string> RacesOf(Body body, int64_t blocks = 1) {
  std::vector<std::string> lines[2];
  for (const Schedule schedule : {Schedule::kForward, Schedule::kBackward}) {
    SetSchedule(schedule);
    GuardedArray<int> memory(1024);
    const ExpectRaces races;
    REQUIRE(cuda::Enqueue(Planted<Body>, blocks, dim3(kThreads), nullptr, body, memory.data()) ==
            cudaSuccess);
    lines[schedule == Schedule::kForward ? 0 : 1] = races.lines();
  }
  SetSchedule(Schedule::kForward);
  CHECK(lines[0].size() == lines[1].size());
  return lines[0];
}

// Reads what a neighbour wrote, in another warp when it is `away` by 32.
template <void (*kBetween)()>
int NeighbourOf(unsigned mine, unsigned away) {
  __shared__ int shared[kThreads];
  shared[mine] = static_cast<int>(mine);
  kBetween();
  return shared[mine ^ away];
}

void Nothing() {}
void Barrier() { __syncthreads(); }
void WarpBarrier() { __syncwarp(); }
void Shuffle() { (void)__shfl_xor_sync(0xffffffffU, 1, 1); }

template <void (*kBetween)()>
std::vector<std::string> RacesBetweenNeighbours(unsigned away) {
  return RacesOf(
      [away](unsigned mine, int* memory) { memory[mine] = NeighbourOf<kBetween>(mine, away); });
}

}  // namespace

TEST_CASE(
    "Race check: what a thread reads in shared memory that another wrote, without a barrier") {
  const auto lines = RacesBetweenNeighbours<Nothing>(1);
  REQUIRE(lines.size() == 1);
  INFO(lines[0]);
  CHECK(lines[0].find("Planted") != std::string::npos);
  CHECK(lines[0].find("was read by thread 0 of block 0 (race_check_test.cc:") != std::string::npos);
  CHECK(lines[0].find("then written by thread 1 of block 0 (race_check_test.cc:") !=
        std::string::npos);
  CHECK(lines[0].find("::shared") != std::string::npos);
  CHECK(RacesBetweenNeighbours<Barrier>(1).empty());
}

TEST_CASE("Race check: a barrier of a warp orders its lanes alone, and a shuffle nothing") {
  CHECK(RacesBetweenNeighbours<WarpBarrier>(1).empty());
  CHECK(RacesBetweenNeighbours<WarpBarrier>(32).size() == 1);
  CHECK(RacesBetweenNeighbours<Shuffle>(1).size() == 1);
  CHECK(RacesBetweenNeighbours<Barrier>(32).empty());
}

TEST_CASE("Race check: two threads that write one shared word") {
  CHECK(RacesOf([](unsigned mine, int* memory) {
          __shared__ int word;
          word = static_cast<int>(mine);
          __syncthreads();
          memory[mine] = word;
        }).size() == 1);
  CHECK(RacesOf([](unsigned mine, int* memory) {
          __shared__ int word;
          if (mine == 0) word = 1;
          __syncthreads();
          if (mine == 1) word = 2;
          __syncthreads();
          memory[mine] = word;
        }).empty());
}

TEST_CASE("Race check: what is overwritten while others read it, whoever they are") {
  const auto by = [](unsigned writer) {
    return RacesOf([writer](unsigned mine, int* memory) {
      __shared__ int word;
      if (mine == 0) word = 1;
      __syncthreads();
      memory[mine] = word;
      if (mine == writer) word = 2;
    });
  };
  for (const unsigned writer : {0U, 1U, 31U, 32U, 63U}) CHECK(by(writer).size() == 1);
  CHECK(RacesOf([](unsigned mine, int* memory) {
          __shared__ int word;
          if (mine == 0) word = 1;
          __syncthreads();
          memory[mine] = word;
          __syncthreads();
          if (mine == 5) word = 2;
        }).empty());
}

TEST_CASE("Race check: readers before a warp's barrier race with other warps all the same") {
  const auto by = [](unsigned writer) {
    return RacesOf([writer](unsigned mine, int* memory) {
      __shared__ int word;
      if (mine == 0) word = 1;
      __syncthreads();
      if (mine < 32) memory[mine] = word;
      __syncwarp();
      if (mine == writer) word = 2;
    });
  };
  CHECK(by(0).empty());
  CHECK(by(31).empty());
  CHECK(by(32).size() == 1);
}

TEST_CASE("Race check: shared memory of one block is not that of another") {
  CHECK(RacesOf(
            [](unsigned mine, int* memory) {
              __shared__ int shared[kThreads];
              shared[mine ^ blockIdx.x] = 1;
              memory[blockIdx.x * kThreads + mine] = shared[mine ^ blockIdx.x];
            },
            kBlocks)
            .empty());
}

TEST_CASE("Race check: blocks that write, or write and read, one word of global memory") {
  const auto lines = RacesOf(
      [](unsigned mine, int* memory) {
        if (mine == 0) memory[7] = static_cast<int>(blockIdx.x);
      },
      kBlocks);
  REQUIRE(lines.size() == 1);
  INFO(lines[0]);
  CHECK(lines[0].find("byte 28 behind a pointer of parameter 1") != std::string::npos);
  CHECK(lines[0].find("of block 0") != std::string::npos);
  CHECK(lines[0].find("of block 1") != std::string::npos);
  // No barrier orders blocks.
  CHECK(RacesOf(
            [](unsigned mine, int* memory) {
              memory[blockIdx.x * kThreads + mine] = 1;
              __syncthreads();
              memory[512 + blockIdx.x * kThreads + mine] = memory[mine];
            },
            kBlocks)
            .size() == 1);
  CHECK(RacesOf(
            [](unsigned mine, int* memory) {
              memory[blockIdx.x * kThreads + mine] = 1;
              __syncthreads();
              memory[512 + blockIdx.x * kThreads + mine] =
                  memory[blockIdx.x * kThreads + (mine ^ 1)];
            },
            kBlocks)
            .empty());
}

TEST_CASE("Race check: threads of a block that write and read one word of global memory") {
  CHECK(RacesOf([](unsigned mine, int* memory) {
          memory[mine] = 1;
          memory[512 + mine] = memory[mine ^ 1];
        }).size() == 1);
  CHECK(RacesOf([](unsigned mine, int* memory) { memory[512 + mine] = memory[mine]; }).empty());
}

TEST_CASE("Race check: a launch begins with nothing touched") {
  GuardedArray<int> memory(kThreads);
  const ExpectRaces races;
  for (const int shift : {0, 1}) {
    const auto body = [shift](unsigned mine, int* at) {
      at[mine ^ static_cast<unsigned>(shift)] = 1;
    };
    REQUIRE(cuda::Enqueue(Planted<decltype(body)>, 1, dim3(kThreads), nullptr, body,
                          memory.data()) == cudaSuccess);
  }
  CHECK(races.lines().empty());
}

TEST_CASE("Race check: atomics race with plain accesses, not with each other") {
  CHECK(RacesOf([](unsigned, int* memory) { atomicAdd(memory, 1); }, kBlocks).empty());
  CHECK(RacesOf([](unsigned mine, int* memory) {
          atomicAdd(memory, 1);
          if (mine == 40) memory[1] = *memory;
        }).size() == 1);
  CHECK(RacesOf([](unsigned mine, int* memory) {
          if (mine == 40) *memory = 0;
          atomicAdd(memory, 1);
        }).size() == 1);
  CHECK(RacesOf([](unsigned mine, int* memory) {
          if (mine == 40) *memory = 0;
          __syncthreads();
          atomicMin(memory, 1);
          __syncthreads();
          memory[1 + mine] = *memory;
        }).empty());
}

TEST_CASE("Race check: bytes side by side are not one word, and a word has all its bytes") {
  const auto bytes = [](int* memory) { return reinterpret_cast<char*>(memory); };
  CHECK(RacesOf([=](unsigned mine, int* memory) {
          bytes(memory)[mine] = 1;
          memory[512 + mine] = bytes(memory)[mine];
        }).empty());
  // The last byte of a word that another thread wrote, and the other way round.
  CHECK(RacesOf([=](unsigned mine, int* memory) {
          if (mine == 0) memory[3] = 1;
          if (mine == 1) bytes(memory)[15] = 1;
        }).size() == 1);
  CHECK(RacesOf([=](unsigned mine, int* memory) {
          struct alignas(16) Four {
            int words[4];
          };
          if (mine == 0) bytes(memory)[15] = 1;
          if (mine == 1) reinterpret_cast<Four*>(memory)[0] = Four{{1, 2, 3, 4}};
        }).size() == 1);
}

TEST_CASE("Race check: what a thread reads behind the end of a buffer") {
  const auto read = [](size_t size, size_t at) {
    GuardedArray<int> memory(size), result(1);
    int* const to = result.data();
    const ExpectRaces races;
    const auto body = [=](unsigned mine, int* from) {
      if (mine == 3) *to = from[at];
    };
    REQUIRE(cuda::Enqueue(Planted<decltype(body)>, 1, dim3(kThreads), nullptr, body,
                          memory.data()) == cudaSuccess);
    return races.lines();
  };
  for (const size_t size : {1U, 5U, 7U, 15U, 1001U}) {
    CHECK(read(size, size - 1).empty());
    const auto lines = read(size, size);
    REQUIRE(lines.size() == 1);
    INFO(lines[0]);
    CHECK(lines[0].find("behind the end in ") == 0);
    CHECK(lines[0].find("byte " + std::to_string(4 * size) +
                        " behind a pointer of parameter 1 was read by thread 3 of block 0 "
                        "(race_check_test.cc:") != std::string::npos);
  }
  // A pack that begins within it.
  GuardedArray<int> memory(6), result(4);
  struct alignas(16) Four {
    int words[4];
  };
  auto* const to = reinterpret_cast<Four*>(result.data());
  const ExpectRaces races;
  const auto body = [=](unsigned mine, int* from) {
    if (mine == 0) *to = reinterpret_cast<const Four*>(from)[1];
  };
  REQUIRE(cuda::Enqueue(Planted<decltype(body)>, 1, dim3(kThreads), nullptr, body, memory.data()) ==
          cudaSuccess);
  CHECK_FALSE(races.lines().empty());
}

}  // namespace ringmaster::testing

#include "cli/worker_share.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "common/amount.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster::cli {
namespace {

using Lists = std::vector<std::string>;

TEST_CASE("CpuLists: disjoint and in order, from what this process may use") {
  CHECK(DisjointCpuLists({0, 1, 4, 5, 8}, 2, 2) == Lists{"0,1", "4,5"});
  CHECK(DisjointCpuLists({3}, 1, 1) == Lists{"3"});
}

TEST_CASE("CpuLists: nobody is pinned when there are not enough for all") {
  CHECK(DisjointCpuLists({0, 1}, 3, 1).empty());
  CHECK(DisjointCpuLists({0, 1}, 4096, 4096).empty());
  CHECK(DisjointCpuLists({}, 1, 1).empty());
}

constexpr uint64_t kGiB = uint64_t{1} << 30;

HostDevices Cpus(std::vector<int> cpus) {
  return {"cpu", "Abacus 9000, caches shared by 1/2", 1, 10 * kGiB, cpus, false};
}
HostDevices Gpus(uint32_t count) {
  return {"cuda", "Abacus H", count, 80 * kGiB, {0, 1, 2, 3}, false};
}

std::vector<WorkerShare> Shared(const HostDevices& host, const ShareOptions& options) {
  auto shares = ShareHost(host, options);
  REQUIRE(Message(shares.status()) == "");
  return *std::move(shares);
}

TEST_CASE("WorkerShare: CPUs and four fifths of the host's memory are shared evenly") {
  const auto shares = Shared(Cpus({0, 1, 2, 3}), {.device = "auto", .workers = 2});
  REQUIRE(shares.size() == 2);
  CHECK(shares[0].device == "cpu");
  CHECK(shares[0].cores == 2);
  CHECK(shares[0].memory_per_core == 2 * kGiB);
  CHECK(shares[0].cpus == "0,1");
  CHECK(shares[1].cpus == "2,3");
  CHECK(DescribeShares(Cpus({}), shares) ==
        "2 workers, each 2 cores with 2.0 GiB a core on Abacus 9000");
}

TEST_CASE("WorkerShare: what is said goes before what would be dealt out") {
  const auto shares =
      Shared(Cpus({0}), {.device = "cpu", .workers = 3, .cores = 4, .memory_per_core = kGiB});
  REQUIRE(shares.size() == 3);
  CHECK(shares[2].cores == 4);
  CHECK(shares[2].memory_per_core == kGiB);
  CHECK(shares[2].cpus.empty());
  CHECK(Shared(Cpus({}), {.device = "cpu"}).at(0).cores == 1);
}

TEST_CASE("WorkerShare: one worker has all GPUs, several have one each and share its memory") {
  const auto one = Shared(Gpus(4), {.device = "auto"});
  REQUIRE(one.size() == 1);
  CHECK(one[0].device == "cuda");
  CHECK(one[0].cores == 4);
  CHECK(one[0].memory_per_core == 80 * kGiB);
  const auto three = Shared(Gpus(2), {.device = "cuda", .workers = 3});
  REQUIRE(three.size() == 3);
  CHECK(three[0].device == "cuda:0");
  CHECK(three[1].device == "cuda:1");
  CHECK(three[2].device == "cuda:0");
  CHECK(three[2].cores == 1);
  CHECK(three[2].memory_per_core == 40 * kGiB);
  const auto pinned = Shared(Gpus(2), {.device = "cuda:1", .workers = 2, .cores = 2});
  CHECK(pinned.at(1).device == "cuda:1");
  CHECK(pinned.at(1).memory_per_core == 20 * kGiB);
}

TEST_CASE("WorkerShare: a plugin's devices are shared evenly, and it keeps its name") {
  const HostDevices host = {"pjrt", "double, double", 8, uint64_t{16} << 30, {0, 1}, false};
  const auto one = Shared(host, {.device = "pjrt:/opt/libtpu.so"});
  REQUIRE(one.size() == 1);
  CHECK(one[0].device == "pjrt:/opt/libtpu.so");
  CHECK(one[0].cores == 8);
  CHECK(one[0].memory_per_core == uint64_t{16} << 30);
  const auto three = Shared(host, {.device = "auto", .workers = 3});
  REQUIRE(three.size() == 3);
  CHECK(three[2].device == "pjrt");
  CHECK(three[2].cores == 2);
  CHECK(three[2].memory_per_core == uint64_t{16} << 30);
  // More cores than devices share their memory.
  CHECK(Shared(host, {.device = "pjrt", .cores = 16})[0].memory_per_core == uint64_t{8} << 30);
}

TEST_CASE("WorkerShare: several workers get no devices that one process alone may have") {
  const auto host = ParseHostDevices(
      R"({"device":"pjrt","device_model":"tpu, TPU v3","devices":8,"memory_bytes":1024,"exclusive":true})");
  REQUIRE(Message(host.status()) == "");
  CHECK(Shared(*host, {.device = "auto"}).at(0).cores == 8);
  const auto refused = ShareHost(*host, {.device = "auto", .workers = 2});
  CHECK(absl::IsInvalidArgument(refused.status()));
  CHECK(Message(refused.status()) ==
        "--workers 2: one process at a time may have the devices of tpu, TPU v3: leave --workers "
        "out, and one worker has all 8");
}

TEST_CASE("WorkerShare: what a ringworker of another build says is an error, not a cluster") {
  const auto host = ParseHostDevices(
      R"({"device":"cuda","backend":"cuda","device_model":"M","devices":2,"memory_bytes":1024})");
  REQUIRE(host.ok());
  CHECK(host->devices == 2);
  CHECK(host->memory == 1024);
  for (const char* line : {"", "cuda", "[]", R"({"device":"cuda","devices":0,"memory_bytes":1})",
                           R"({"device":1,"devices":"2","memory_bytes":1})"}) {
    INFO(line);
    CHECK_FALSE(ParseHostDevices(line).ok());
  }
}

}  // namespace
}  // namespace ringmaster::cli

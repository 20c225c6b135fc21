#include "common/amount.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tests/support/temporary_folder.h"

namespace ringmaster {
namespace {

using namespace std::chrono_literals;

TEST_CASE("Duration: numbers and units") {
  CHECK(*ParseDuration("90s", "--timeout") == 90s);
  CHECK(*ParseDuration("10m", "--timeout") == 10min);
  CHECK(*ParseDuration("1h", "--timeout") == 1h);
  CHECK(*ParseDuration("1.5h", "--timeout") == 90min);
  CHECK(*ParseDuration("1h30m", "--timeout") == 90min);
  CHECK(*ParseDuration("250ms", "--timeout") == 250ms);
}

TEST_CASE("Duration: anything else names the flag and shows how") {
  for (const char* text : {"", "10", "m", "-5s", "0", "0s", "5d", "5 s", "1e3s", "nan", "inf",
                           "-inf", "99999h", "1us", "1.0005s"}) {
    INFO(text);
    const auto duration = ParseDuration(text, "--timeout");
    REQUIRE(duration.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(Message(duration.status()) ==
          std::string("--timeout ") + text +
              ": expected a time from 1ms to 365 days, with its unit: 500ms, 90s, 10m, 1h");
  }
}

TEST_CASE("Duration: a range is kept, and nothing at all is a time where it begins with 0") {
  constexpr DurationRange kRange{0ms, 24h};
  CHECK(*ParseDuration("0", "--drain", kRange) == 0ms);
  CHECK(*ParseDuration("24h", "--drain", kRange) == 24h);
  CHECK(Message(ParseDuration("25h", "--drain", kRange).status()) ==
        "--drain 25h: expected a time from 0 to 24h, with its unit: 500ms, 90s, 10m, 1h");
}

TEST_CASE("Duration: an exact one is read again") {
  for (const std::chrono::milliseconds duration : {0ms, 500ms, 3000ms, 90'000ms, 5'400'000ms}) {
    CHECK(*ParseDuration(ExactDuration(duration), "again", {0ms}) == duration);
  }
  CHECK(ExactDuration(500ms) == "500ms");
  CHECK(ExactDuration(30s) == "30s");
}

TEST_CASE("Duration: printed with two units at most") {
  CHECK(FormatDuration(0s) == "0s");
  CHECK(FormatDuration(-3s) == "0s");
  CHECK(FormatDuration(59s) == "59s");
  CHECK(FormatDuration(125s) == "2m05s");
  CHECK(FormatDuration(3h + 7min + 59s) == "3h07m");
  CHECK(FormatDuration(52h) == "2d04h");
}

constexpr uint64_t kGiB = uint64_t{1} << 30;

class Cgroups {
 public:
  void Limit(const std::string& group, const std::string& file, const std::string& text) const {
    std::filesystem::create_directories(folder_ / group);
    std::ofstream(folder_ / group + "/" + file) << text << "\n";
  }
  [[nodiscard]] std::optional<uint64_t> LimitOf(const std::string& membership) const {
    return CgroupMemoryLimit(folder_.path(), membership);
  }

 private:
  TemporaryFolder folder_;
};

TEST_CASE("Memory: a process may have what its cgroup and those above it allow") {
  const Cgroups cgroups;
  CHECK(cgroups.LimitOf("0::/") == std::nullopt);
  CHECK(cgroups.LimitOf("") == std::nullopt);
  cgroups.Limit("a/b", "memory.max", "max");
  CHECK(cgroups.LimitOf("0::/a/b\n") == std::nullopt);
  cgroups.Limit("a", "memory.max", "4096");
  CHECK(cgroups.LimitOf("0::/a/b\n") == 4096U);
  cgroups.Limit("a/b", "memory.max", "8192");
  CHECK(cgroups.LimitOf("0::/a/b\n") == 4096U);
  CHECK(cgroups.LimitOf("0::/gone/for/ever\n") == std::nullopt);
  cgroups.Limit(".", "memory.max", "2048");  // of a container that sees its own group as the root
  CHECK(cgroups.LimitOf("0::/gone/for/ever\n") == 2048U);
}

TEST_CASE("Memory: limits of version 1 are found beside its other controllers") {
  const Cgroups cgroups;
  cgroups.Limit("memory/job", "memory.limit_in_bytes", "1000");
  CHECK(cgroups.LimitOf("9:cpu,cpuacct:/job\n5:hugetlb,memory:/job\n0::/\n") == 1000U);
  CHECK(cgroups.LimitOf("9:cpu,cpuacct:/job\n") == std::nullopt);
  CHECK(HostMemory() > 0);
}

TEST_CASE("Memory: amounts are read as they are written, with binary units") {
  CHECK(*ParseBytes("8GiB", "x") == 8 * kGiB);
  CHECK(*ParseBytes("512MiB", "x") == kGiB / 2);
  CHECK(*ParseBytes("4096", "x") == 4096);
  for (const char* bad : {"", "8GB", "GiB", "-1", "0", "1.5GiB", "99999999999TiB", "8 GiB"}) {
    INFO(bad);
    CHECK(Message(ParseBytes(bad, "--memory-per-core").status()) ==
          std::string("--memory-per-core ") + bad +
              ": expected an amount of memory, for example 8GiB or 512MiB");
  }
  CHECK(FormatBytes(12 * kGiB) == "12.0 GiB");
  CHECK(FormatBytes(1023) == "1023 B");
  CHECK(FormatBytes(1536) == "1.5 KiB");
}

}  // namespace
}  // namespace ringmaster

#include "bench/process_memory.h"

#include <catch2/catch.hpp>

namespace ringmaster::bench {
namespace {

TEST_CASE("ProcessMemory: a line of /proc/PID/status") {
  const std::string status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t      16 kB\n";
  CHECK(StatusBytes(status, "VmHWM") == 2048U << 10);
  CHECK(StatusBytes(status, "VmRSS") == 16U << 10);
  CHECK_FALSE(StatusBytes(status, "Vm").has_value());
  CHECK_FALSE(StatusBytes("VmHWM:\tnothing\n", "VmHWM").has_value());
}

TEST_CASE("ProcessMemory: this process holds something, and never held less than it does") {
  const HostMemory memory = ReadHostMemory();
  CHECK(memory.resident > 0);
  CHECK(memory.peak >= memory.resident);
}

TEST_CASE("ProcessMemory: what nvidia-smi prints, summed over GPUs") {
  CHECK(SmiBytes("1024\n") == uint64_t{1} << 30);
  CHECK(SmiBytes("1024\n 3\n") == (uint64_t{1} << 30) + (3U << 20));
  CHECK_FALSE(SmiBytes("").has_value());
  CHECK_FALSE(SmiBytes("NVIDIA-SMI has failed\n").has_value());
}

}  // namespace
}  // namespace ringmaster::bench

// Figures of GPUs that need not be here, from management libraries of the test's own.
#include "worker/backend/cuda/device/device.h"

#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/support/log_lines.h"

namespace ringmaster::cuda {
namespace {

using Catch::Matchers::Contains;
using testing::LogLines;

// The library that was built beside this test as libtest_nvml_NAME.so.
std::string ManagementLibrary(const std::string& name) {
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  return (folder / ("libtest_nvml_" + name + ".so")).string();
}

DeviceFacts Gpu(const std::string& pci_bus_id) {
  DeviceFacts facts;
  facts.name = "as CUDA calls it";
  facts.memory_bytes = 900;
  facts.pci_bus_id = pci_bus_id;
  return facts;
}

}  // namespace

TEST_CASE("Gauges: the management library's figures, of each GPU by its place on the bus") {
  const LogLines lines;
  Gauges gauges({Gpu("0000:2C:00.0"), Gpu("0000:1B:00.0")}, ManagementLibrary("fake_nvml"));
  const auto devices = gauges.Read();
  REQUIRE(devices.size() == 2);
  CHECK(devices[1].ShortDebugString() ==
        R"(kind: "cuda" index: 1 name: "NVIDIA Abacus" memory_used: 300 memory_total: 1000 )"
        "utilization: 87 temperature: 61");
  // It knows no GPU at the first place: what CUDA knew of that one stays.
  CHECK(devices[0].ShortDebugString() ==
        R"(kind: "cuda" name: "as CUDA calls it" memory_total: 900)");
  CHECK_THAT(lines.text(), Contains("0000:2C:00.0") && Contains("Not Found"));
  (void)gauges.Read();
  CHECK(lines.count() == 1);
}

TEST_CASE("Gauges: without a library that works name and size alone, and one line that says why") {
  const LogLines lines;
  Gauges gauges({Gpu("0000:1B:00.0")}, ManagementLibrary("no_driver"));
  for (int i = 0; i < 2; ++i) {
    const auto devices = gauges.Read();
    REQUIRE(devices.size() == 1);
    CHECK(devices[0].ShortDebugString() ==
          R"(kind: "cuda" name: "as CUDA calls it" memory_total: 900)");
  }
  CHECK(lines.count() == 1);
  CHECK_THAT(lines.text(), Contains("Driver Not Loaded"));
}

}  // namespace ringmaster::cuda

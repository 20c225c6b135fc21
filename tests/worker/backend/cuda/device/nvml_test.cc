#include "worker/backend/cuda/device/device.h"

#include <catch2/catch.hpp>
#include <filesystem>

namespace ringmaster::cuda {
namespace {

using Catch::Matchers::Contains;

// The library that was built beside this test as libtest_nvml_NAME.so.
std::string Library(const std::string& name) {
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  return (folder / ("libtest_nvml_" + name + ".so")).string();
}

TEST_CASE("Nvml: the figures of a GPU, and none that it does not have") {
  const auto nvml = Nvml::Open(Library("fake_nvml"));
  REQUIRE(nvml.ok());
  const auto figures = (*nvml)->Read("0000:1B:00.0");
  REQUIRE(figures.ok());
  CHECK(figures->name == "NVIDIA Abacus");
  CHECK(figures->memory_used == 300);
  CHECK(figures->memory_total == 1000);
  CHECK(figures->utilization == 87U);
  CHECK(figures->temperature == 61U);
  CHECK_FALSE(figures->power);
  CHECK_FALSE(figures->power_limit);
}

TEST_CASE("Nvml: a GPU that is not there is named") {
  const auto nvml = Nvml::Open(Library("fake_nvml"));
  REQUIRE(nvml.ok());
  const Status status = (*nvml)->Read("0000:2C:00.0").status();
  CHECK(absl::IsNotFound(status));
  CHECK_THAT(Message(status), Contains("0000:2C:00.0") && Contains("Not Found"));
}

TEST_CASE("Nvml: without a library, a whole one, or a driver it is unavailable") {
  struct Case {
    std::string library;
    std::string why;
  };
  const std::vector<Case> cases = {{"/nowhere/libnvidia-ml.so.1", "cannot be loaded"},
                                   {Library("no_driver"), "Driver Not Loaded"},
                                   {"libm.so.6", "has no function nvmlInit_v2"}};
  for (const Case& one : cases) {
    const Status status = Nvml::Open(one.library).status();
    CHECK(absl::IsUnavailable(status));
    CHECK_THAT(Message(status), Contains(one.why));
  }
}

}  // namespace
}  // namespace ringmaster::cuda

#include "worker/backend/cuda/device/gpu_group.h"

#include <catch2/catch.hpp>
#include <filesystem>

#if __has_include(<nccl.h>)
#include <nccl.h>

#include <cstddef>

namespace ringmaster::cuda {

static_assert(Nccl::kSuccess == ncclSuccess && Nccl::kInProgress == ncclInProgress);
static_assert(Nccl::kInt64 == ncclInt64 && Nccl::kSum == ncclSum);
static_assert(sizeof(Nccl::UniqueId) == sizeof(ncclUniqueId));
static_assert(offsetof(Nccl::Config, size) == offsetof(ncclConfig_t, size));
static_assert(offsetof(Nccl::Config, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(Nccl::Config, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(Nccl::Config, blocking) == offsetof(ncclConfig_t, blocking));
constexpr ncclConfig_t kInitial = NCCL_CONFIG_INITIALIZER;
static_assert(kInitial.magic == Nccl::Config().magic);

}  // namespace ringmaster::cuda
#endif

namespace ringmaster::cuda {
namespace {

using Catch::Matchers::Contains;

TEST_CASE("NCCL: the functions of a library that was built beside this test") {
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const auto nccl = Nccl::Open((folder / "libtest_nccl_fake_nccl.so").string());
  REQUIRE(Message(nccl.status()) == "");
  CHECK(nccl->group_start() == 41);
  CHECK(nccl->group_end() == 42);
  CHECK(nccl->reduce(nullptr, nullptr, 0, 0, 0, 0, nullptr, nullptr) == 1);
  CHECK(nccl->broadcast(nullptr, nullptr, 0, 0, 0, nullptr, nullptr) == 2);
  CHECK(nccl->all_reduce(nullptr, nullptr, 0, 0, 0, nullptr, nullptr) == 3);
  CHECK(nccl->error_string(1) == std::string("unhandled"));
  CHECK(nccl->last_error(nullptr) == std::string("no socket"));
}

TEST_CASE("NCCL: without a library, or with one that is too old, it is unavailable") {
  const Status missing = Nccl::Open("/nowhere/libnccl.so.2").status();
  CHECK(absl::IsUnavailable(missing));
  CHECK_THAT(Message(missing), Contains("/nowhere/libnccl.so.2 cannot be loaded"));
  const Status other = Nccl::Open("libm.so.6").status();
  CHECK(absl::IsUnavailable(other));
  CHECK_THAT(Message(other), Contains("libm.so.6 has no function ncclGetUniqueId"));
}

}  // namespace
}  // namespace ringmaster::cuda

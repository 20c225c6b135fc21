#include "worker/backend/pjrt/platform.h"

#include <algorithm>

#include "common/text.h"

namespace ringmaster::pjrt {
namespace {

using Processes = Platform::Processes;

constexpr Platform kPlatforms[] = {
    {"tpu", Processes::kOne, false, Convolutions::kFloat32},
    // Each process would begin with the first GPU, and take three quarters of its memory.
    {"cuda", Processes::kOne, true, Convolutions::kStored},
    {"cpu", Processes::kSeveral, false, Convolutions::kFloat32},
    {"double", Processes::kSeveral, true, Convolutions::kFloat32},  // of the tests
};

}  // namespace

StatusOr<Platform> FindPlatform(const std::string& name) {
  const auto found = std::ranges::find(kPlatforms, name, &Platform::name);
  if (found != std::end(kPlatforms)) return *found;
  return FailedPrecondition(
      "the plugin's platform is {}: what makes a compiler's bits repeatable is known here of tpu, "
      "cuda and cpu alone, and workers must agree bit by bit",
      OneLine(name, kMaxNameText));
}

}  // namespace ringmaster::pjrt

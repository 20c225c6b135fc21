#include "worker/backend/pjrt/pjrt_core.h"

#include <algorithm>
#include <utility>

#include "common/amount.h"
#include "common/text.h"
#include "worker/backend/core_thread.h"
#include "worker/backend/failure.h"
#include "worker/backend/pjrt/pjrt_weights.h"
#include "worker/backend/pjrt/tpus.h"

namespace ringmaster::pjrt {

PjrtCore::PjrtCore(CoreOptions options, uint32_t device, const Platform& platform, PluginHost& host)
    : options_(std::move(options)),
      device_(device),
      platform_(platform),
      host_(host),
      thread_(std::this_thread::get_id()),
      lane_(std::make_shared<Lane>(host, options_.stop)) {}

StatusOr<std::unique_ptr<PjrtCore>> PjrtCore::Create(const CoreOptions& options, uint32_t device,
                                                     const Platform& platform, PluginHost& host) {
  RING_RETURN_IF_ERROR(PinThread(options));
  return std::unique_ptr<PjrtCore>(new PjrtCore(options, device, platform, host));
}

StatusOr<std::unique_ptr<Executable>> PjrtCore::Bind(const graph::Program& program,
                                                     Weights& weights,
                                                     const graph::Augmenter* augmenter) {
  if (std::this_thread::get_id() != thread_) {
    return FailedPrecondition("{}: bound on another thread than the core's", options_.name);
  }
  auto* const own = dynamic_cast<PjrtWeights*>(&weights);
  if (own == nullptr) return InvalidArgument("the weights are of another backend");
  if (augmenter != nullptr) {
    return Error(absl::StatusCode::kUnimplemented,
                 "{}: the PJRT backend makes no images of pixels: bind without an augmenter",
                 options_.name);
  }
  auto bound = PjrtExecutable::Create(program, *own, device_, platform_.convolutions, lane_);
  if (!bound.ok()) return Annotate(bound.status(), options_.name);
  RING_RETURN_IF_ERROR(CheckFits(**bound));
  largest_ = std::max(largest_, (*bound)->device_bytes());
  return std::unique_ptr<Executable>(*std::move(bound));
}

StatusOr<CoreLayout> PjrtCore::Plan(const graph::Program& program, Weights& /*weights*/) {
  const std::string& kind = host_.facts().devices[device_].kind;
  if (FindTpuWorker(kind) != nullptr) return PlanOnTpu(program);
  std::string profiles;
  for (const TpuWorker& worker : TpuWorkers()) {
    profiles += fmt::format("{}{}", profiles.empty() ? "" : ", ", worker.name);
  }
  return Error(
      absl::StatusCode::kUnimplemented,
      "what a program takes of a device of kind {} its plugin says once it has compiled it, before "
      "the first step: no plan. For a TPU name one with --profile: {}; for a GPU plan with "
      "--device "
      "cuda",
      OneLine(kind, kMaxNameText), profiles);
}

Status PjrtCore::CheckFits(const PjrtExecutable& executable) const {
  const uint64_t used = executable.device_bytes() + options_.shared_bytes;
  if (options_.memory_bytes == 0 || used <= options_.memory_bytes) return absl::OkStatus();
  return OutOfMemory("{}: the program does not fit the device: Used {} of {} hbm: {}",
                     options_.name, FormatHbm(used), FormatHbm(options_.memory_bytes),
                     executable.DescribeMemory());
}

}  // namespace ringmaster::pjrt

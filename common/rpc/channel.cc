#include "common/rpc/channel.h"

#include <grpc/support/time.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <algorithm>

namespace ringmaster {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kFirstBackoff{50};
constexpr milliseconds kConnectLimit{1'000};  // of one attempt
constexpr milliseconds kSlice{20};            // between two looks at `stop`

}  // namespace

grpc::ChannelArguments ChannelOptions(milliseconds longest_backoff) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, static_cast<int>(kFirstBackoff.count()));
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, static_cast<int>(kConnectLimit.count()));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, static_cast<int>(longest_backoff.count()));
  return arguments;
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& target,
                                           const grpc::ChannelArguments& arguments) {
  return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments);
}

bool AwaitConnection(grpc::Channel& channel, steady_clock::time_point until,
                     const std::function<bool()>& stop) {
  while (!stop()) {
    const auto left = std::clamp<steady_clock::duration>(until - steady_clock::now(),
                                                         steady_clock::duration::zero(), kSlice);
    const int64_t nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
    // As a span, so that nobody who sets the clock changes it.
    if (channel.WaitForConnected(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                              gpr_time_from_nanos(nanoseconds, GPR_TIMESPAN)))) {
      return true;
    }
    if (left < kSlice) return false;
  }
  return false;
}

}  // namespace ringmaster

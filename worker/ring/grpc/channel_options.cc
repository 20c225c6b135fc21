#include "worker/ring/grpc/channel_options.h"

#include <utility>

namespace ringmaster::ring {
namespace {

using Option = std::pair<const char*, int>;

constexpr Option kBothEnds[] = {
    // Frames as large as messages and a fixed lookahead: a quarter more than probing and 16 KiB.
    {GRPC_ARG_HTTP2_BDP_PROBE, 0},
    {GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 16 << 20},
    {GRPC_ARG_HTTP2_MAX_FRAME_SIZE, 1 << 20},
    // Only a backstop for a peer that is silent without a reset (a dead host, a stopped process): a
    // broken stream is seen in milliseconds. Also sets TCP_USER_TIMEOUT.
    {GRPC_ARG_KEEPALIVE_TIME_MS, 2'000},
    {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000},
    {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
    {GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0},
};

constexpr Option kClientOnly[] = {
    // A retry buffer would keep sent payloads, and a retried stream would repeat frames.
    {GRPC_ARG_ENABLE_RETRIES, 0},
    // Neither connections nor their fate are shared with other channels.
    {GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1},
    {GRPC_ARG_ENABLE_HTTP_PROXY, 0},
    {GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1},
    {GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50},
    {GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1'000},
    {GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1'000},
};

constexpr Option kServerOnly[] = {
    // Two daemons on one port would share its connections by chance.
    {GRPC_ARG_ALLOW_REUSEPORT, 0},
    {GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 100},
    {GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0},
};

}  // namespace

grpc::ChannelArguments RingChannelArguments() {
  grpc::ChannelArguments arguments;
  for (const auto& [name, value] : kBothEnds) arguments.SetInt(name, value);
  for (const auto& [name, value] : kClientOnly) arguments.SetInt(name, value);
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(-1);
  return arguments;
}

void SetRingOptions(grpc::ServerBuilder* builder) {
  for (const auto& [name, value] : kBothEnds) builder->AddChannelArgument(name, value);
  for (const auto& [name, value] : kServerOnly) builder->AddChannelArgument(name, value);
  builder->SetMaxReceiveMessageSize(kMaxMessageBytes);
}

}  // namespace ringmaster::ring

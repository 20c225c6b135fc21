#include "worker/ring/grpc/channel_options.h"

#include <chrono>
#include <span>
#include <utility>

#include "common/rpc/channel.h"

namespace ringmaster::ring {
namespace {

using Option = std::pair<const char*, int>;

// Of gRPC's own, without a public name.
constexpr char kHttpConnectServer[] = "grpc.http_connect_server";

constexpr Option kBothEnds[] = {
    // Frames as large as messages. Windows grow by probing: of a lookahead gRPC 1.51 gives the
    // stream
    // its share, but never the connection, so that each frame would wait for a window update.
    {GRPC_ARG_HTTP2_BDP_PROBE, 1},
    {GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 8 << 20},
    {GRPC_ARG_HTTP2_MAX_FRAME_SIZE, 1 << 20},
    // Otherwise gRPC stops to ping a connection that carries nothing.
    {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
    {GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0},
};

// Keepalive ends a connection whose peer answers no ping: a backstop for a peer that is silent
// without a reset (a dead host, a stopped process). Beats notice that within 0.35 s, and a broken
// stream is seen in milliseconds. Also sets TCP_USER_TIMEOUT.
//
// A ping on the bulk connection waits behind megabytes of frames, and its answer behind those of
// the other direction, on hosts whose cores are busy: a short limit would end healthy connections.
constexpr Option kBulkKeepalive[] = {
    {GRPC_ARG_KEEPALIVE_TIME_MS, 2'000},
    {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000},
};

// Nothing but beats can be before a ping here. The limit is far above that of silence, which is
// adaptive and knows when this process itself was late; keepalive knows neither.
constexpr Option kPulseKeepalive[] = {
    {GRPC_ARG_KEEPALIVE_TIME_MS, 500},
    {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 2'000},
};

// Behind its handshake there is a worker of this cluster, or a user of this host: one that keeps a
// connection ready for a regroup makes no call on it for as long as nothing happens.
constexpr std::chrono::hours kWithoutCall{1};

constexpr Option kServerOnly[] = {
    // However often a peer pings, it is not an attack: by default a client that pings every 500 ms
    // loses its connection after some seconds (too_many_pings).
    {GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 100},
    {GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0},
};

grpc::ChannelArguments ClientArguments(std::span<const Option> keepalive) {
  grpc::ChannelArguments arguments = ChannelOptions();
  for (const auto& [name, value] : kBothEnds) arguments.SetInt(name, value);
  for (const auto& [name, value] : keepalive) arguments.SetInt(name, value);
  return arguments;
}

}  // namespace

grpc::ChannelArguments LinkChannelArguments() {
  grpc::ChannelArguments arguments = ClientArguments(kBulkKeepalive);
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(-1);
  // gRPC's way through an HTTP proxy: it asks for that name before anything else.
  arguments.SetString(kHttpConnectServer, kLinkDoor);
  return arguments;
}

grpc::ChannelArguments PulseChannelArguments() {
  grpc::ChannelArguments arguments = ClientArguments(kPulseKeepalive);
  arguments.SetMaxReceiveMessageSize(kMaxBeatBytes);
  return arguments;
}

AcceptorOptions RingConnections() {
  AcceptorOptions options;
  options.idle = kWithoutCall;
  options.unacknowledged = std::chrono::milliseconds(kBulkKeepalive[1].second);
  return options;
}

void SetRingOptions(grpc::ServerBuilder* builder) {
  for (const auto& [name, value] : kBothEnds) builder->AddChannelArgument(name, value);
  for (const auto& [name, value] : kServerOnly) builder->AddChannelArgument(name, value);
  // One port takes both kinds of connection, so the wider limits are for both.
  for (const auto& [name, value] : kBulkKeepalive) builder->AddChannelArgument(name, value);
  builder->SetMaxReceiveMessageSize(kMaxMessageBytes);
}

}  // namespace ringmaster::ring

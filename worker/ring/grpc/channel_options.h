// Settings of both ends of a ring connection, measured for messages of about 1 MiB. Thread-safe
// (free functions).
#pragma once

#include <grpcpp/server_builder.h>
#include <grpcpp/support/channel_arguments.h>

#include "common/rpc/acceptor.h"

namespace ringmaster::ring {

// The path of ringmaster.v1.Ring/Link, and where in a ring port its connections ask for: they are
// of a server of their own there (Acceptor::AddDoor).
inline constexpr char kLinkMethod[] = "/ringmaster.v1.Ring/Link";
inline constexpr char kLinkDoor[] = "link";

// A segment of 512 KiB of float32 packs to 1 MiB at worst (AllReduce::LargestPayload); a stranger
// cannot make the port hold more than this, and of a predecessor a link takes what its job needs.
inline constexpr int kMaxMessageBytes = 4 << 20;
// A Beat is two numbers and a word.
inline constexpr int kMaxBeatBytes = 4096;

// Of a connection that carries one Link alone, through the door of links.
[[nodiscard]] grpc::ChannelArguments LinkChannelArguments();
// Of the connection that carries beats alone.
[[nodiscard]] grpc::ChannelArguments PulseChannelArguments();
// Who may connect to a ring port: two neighbours, and those who may be next; who fetches a state;
// monitors.
[[nodiscard]] AcceptorOptions RingConnections();
void SetRingOptions(grpc::ServerBuilder* builder);

}  // namespace ringmaster::ring

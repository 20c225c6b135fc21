// Settings of both ends of a ring connection, measured for messages of about 1 MiB. Thread-safe
// (free functions).
#pragma once

#include <grpcpp/server_builder.h>
#include <grpcpp/support/channel_arguments.h>

namespace ringmaster::ring {

// The path of ringmaster.v1.Ring/Link.
inline constexpr char kLinkMethod[] = "/ringmaster.v1.Ring/Link";

// A segment of 1 MiB of float32 packs to 2 MiB at worst; this leaves room for longer segments, and
// a stranger cannot make the port hold more.
inline constexpr int kMaxMessageBytes = 16 << 20;
// A Beat is two numbers and a word.
inline constexpr int kMaxBeatBytes = 4096;

[[nodiscard]] grpc::ChannelArguments RingChannelArguments();
// Of the connection that carries beats alone.
[[nodiscard]] grpc::ChannelArguments PulseChannelArguments();
void SetRingOptions(grpc::ServerBuilder* builder);

}  // namespace ringmaster::ring

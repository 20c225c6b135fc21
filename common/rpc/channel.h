// Channels to other processes of a cluster: what is common to all of them, and the wait for one's
// connection. Thread-safe (free functions).
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "common/address.h"

namespace ringmaster {

// Without gRPC's own retries, which would keep or repeat what streams sent, without proxies and
// configurations by DNS, and with a connection that no other channel of this process shares. A
// connection that fails is tried again within `longest_backoff`.
[[nodiscard]] grpc::ChannelArguments ChannelOptions(
    std::chrono::milliseconds longest_backoff = std::chrono::seconds(1));

// `target`: Address::Target, or what a user wrote.
[[nodiscard]] std::shared_ptr<grpc::Channel> MakeChannel(const std::string& target,
                                                         const grpc::ChannelArguments& arguments);

// Waits until the channel is connected, `until` at the longest, or until `stop`, which is asked
// every few milliseconds; whether it is. Whoever calls again behind a failure waits here and does
// not sleep: gRPC's `poll` engine (ring::PollQueuesApart) moves a connection on only while somebody
// waits for the channel or a call of it, and calls fail at once until it stands again.
bool AwaitConnection(grpc::Channel& channel, std::chrono::steady_clock::time_point until,
                     const std::function<bool()>& stop);

// Why an Acceptor does not let this process in, as it says to whoever connects: gRPC has no words
// for that ("Trying to connect an http1.x server"). Empty: it says nothing of the kind within
// `limit`. A line of printable ASCII.
[[nodiscard]] std::string RefusalAt(const Address& address, std::chrono::milliseconds limit);

}  // namespace ringmaster

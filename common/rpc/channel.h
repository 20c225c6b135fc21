// Channels to other processes of a cluster: what is common to all of them, and the wait for one's
// connection. Thread-safe (free functions).
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "common/net/address.h"
#include "common/rpc/credentials.h"
#include "common/status.h"

namespace ringmaster {

// Without gRPC's own retries, which would keep or repeat what streams sent, without proxies and
// configurations by DNS, and with a connection that no other channel of this process shares. A
// connection that fails is tried again within `longest_backoff`.
[[nodiscard]] grpc::ChannelArguments ChannelOptions(
    std::chrono::milliseconds longest_backoff = std::chrono::seconds(1));

// Connects this process to others, with its credentials where it has some: to the coordinator
// always, so that it is known there by its name; to workers of its own host (loopback), who see
// which user it is, without TLS. Off this host there is only TLS. A value; thread-safe.
class Dialer {
 public:
  // Without credentials: it reaches loopback and Unix sockets alone.
  Dialer() = default;
  // `folder` as in common/pki/credential_folder.h. It is read for each channel, so that what is
  // renewed there is used.
  explicit Dialer(std::string folder) : folder_(std::move(folder)) {}

  // Lazily, as gRPC does. Where there are no credentials that can be used nobody is connected to:
  // every call of the channel fails, and a line of the log says why.
  [[nodiscard]] std::shared_ptr<grpc::Channel> Dial(const Address& address,
                                                    const ExpectedPeer& peer,
                                                    grpc::ChannelArguments arguments) const;
  // Another text when the credentials have been renewed; empty: there are none.
  [[nodiscard]] std::string Issue() const;

 private:
  [[nodiscard]] StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CredentialsFor(
      const Address& address, const ExpectedPeer& peer) const;

  std::string folder_;
};

// Waits until the channel is connected, `until` at the longest, or until `stop`, which is asked
// every few milliseconds; whether it is. Whoever calls again behind a failure waits here and does
// not sleep: gRPC's `poll` engine (ring::PollQueuesApart) moves a connection on at once only while
// somebody waits for the channel or a call of it, and calls fail until it stands again.
bool AwaitConnection(grpc::Channel& channel, std::chrono::steady_clock::time_point until,
                     const std::function<bool()>& stop);

// Why an Acceptor does not let this process in, as it says to whoever connects: gRPC has no words
// for that ("Trying to connect an http1.x server"). Empty: it says something else, or nothing
// within `limit`. A line of printable ASCII.
[[nodiscard]] std::string RefusalAt(const Address& address, std::chrono::milliseconds limit);

}  // namespace ringmaster

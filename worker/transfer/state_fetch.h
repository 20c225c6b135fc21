// Fetches S(k) from a worker that holds it, into the place where it will lie. A free function, on a
// connection of its own; the caller's thread waits, and checks and copies what arrives. It sees
// that the bytes are those that were sent; that they are the state that they should be is for
// Trainer::Adopt, which hashes all of it.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>

#include "common/ids.h"
#include "common/rpc/channel.h"
#include "common/status.h"
#include "worker/state/state_row.h"

namespace ringmaster::worker {

struct FetchOptions {
  std::string address;  // HOST:PORT of the source's ring port
  std::string source;   // its name; may be empty
  JobId job;
  uint64_t step = 0;
  GenerationId generation;  // that begins there, and its ticket
  std::string ticket;
  std::string worker;  // that asks
  std::chrono::steady_clock::time_point deadline;
  // The source is given up when it sends nothing for so long while it streams, or when for so long
  // nobody answered at its address.
  std::chrono::milliseconds silence{2'000};
  Dialer dialer;
  // To the source, with FetchChannelArguments; null: one is made.
  std::shared_ptr<grpc::Channel> channel;
  Follows follows = Follows::kNo;  // pieces may be of later states
};

// A state comes on a connection of its own: the ring's frames must not wait behind it.
[[nodiscard]] grpc::ChannelArguments FetchChannelArguments();

// What arrives goes to `sink`, from the beginning again at every attempt. Asks again every 20 ms
// while the source is not at that step yet, or is busy. `stop` ends it within milliseconds. Errors
// name source, job and step: CANCELLED: `stop`; DEADLINE_EXCEEDED: not there until then, with the
// source's last answer; UNAVAILABLE: the source was lost or is silent; FAILED_PRECONDITION: it is
// past that step, serves another job, or speaks another protocol version; PERMISSION_DENIED: the
// ticket is not the generation's; DATA_LOSS: what arrived is not what was sent; INVALID_ARGUMENT:
// an address that is none of a worker (ParsePeerAddress).
[[nodiscard]] Status FetchState(const FetchOptions& options, StateSink* sink,
                                const std::stop_token& stop);

}  // namespace ringmaster::worker

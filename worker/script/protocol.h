// The core protocol's packets (docs/core_protocol.md), as the worker's end sends and takes them.
// Thread-safe (free functions); one thread at a time reads a socket, one writes it.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <google/protobuf/message.h>

#include "common/files.h"
#include "common/status.h"

namespace ringmaster::script {

enum class PacketKind : uint16_t {
  kHello = 1,
  kFacts = 2,
  kLayout = 3,
  kReady = 4,
  kShard = 5,
  kBucket = 6,
  kDone = 7,
  kRaised = 8,
  kEnd = 9,
  kAhead = 10,
  kUp = 16,
  kFork = 17,
  kForked = 18,
  kExited = 19,
};
[[nodiscard]] const char* Name(PacketKind kind);

using Deadline = std::chrono::steady_clock::time_point;

struct Packet {
  PacketKind kind = PacketKind::kEnd;
  std::string body;
  std::vector<OwnedFile> files;
};

// UNAVAILABLE: the other end is closed. DEADLINE_EXCEEDED: it was not taken in time.
[[nodiscard]] Status Send(int socket, PacketKind kind, std::string_view body,
                          std::span<const int> files, Deadline deadline);
// `message` as JSON in a memory file, which goes first.
[[nodiscard]] Status SendJson(int socket, PacketKind kind, const google::protobuf::Message& message,
                              std::span<const int> files, Deadline deadline);
// UNAVAILABLE: the other end is closed. DEADLINE_EXCEEDED: nothing came in time. DATA_LOSS: what
// came is no packet of this version, which the text names.
[[nodiscard]] StatusOr<Packet> Receive(int socket, Deadline deadline);
// Takes the JSON, and its file, out of a packet. DATA_LOSS: there is none, or it is no such
// message.
[[nodiscard]] Status TakeJson(Packet* packet, google::protobuf::Message* message);

struct ShardCall {
  uint64_t step = 0, update = 0, seed = 0, batch = 0;
  uint32_t shard = 0, shards = 0;
  float seed_scale = 1;
  std::span<const uint64_t> samples;
};
[[nodiscard]] std::string ToBody(const ShardCall& call);

// A shard that may come.
struct ComingShard {
  uint64_t step = 0, seed = 0;
  uint32_t shard = 0;
  std::span<const uint64_t> samples;
};
[[nodiscard]] std::string ToBody(const ComingShard& coming);

struct ShardDone {
  uint64_t step = 0;
  uint32_t shard = 0;
  double loss = 0;
  std::vector<double> metrics, rates;
};
// DATA_LOSS: the body is no DONE with so many metrics and groups.
[[nodiscard]] StatusOr<ShardDone> DoneOf(const std::string& body, size_t metrics, size_t groups);
[[nodiscard]] std::vector<uint32_t> BucketOf(const std::string& body);

}  // namespace ringmaster::script

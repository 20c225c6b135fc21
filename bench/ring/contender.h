// One way to add up float32 over processes: ours, and what it is compared with. Each contender is
// one member of a group of `size` processes that find each other through files in a folder.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "common/status.h"

namespace ringmaster::bench {

struct Member {
  uint32_t rank = 0, size = 1;
  std::string host = "127.0.0.1";  // this member's address
  std::filesystem::path folder;    // of the group, empty at the start
};

// For whom or what a member waits: the others, their files, a peer's bytes.
inline constexpr std::chrono::minutes kPatience{2};

class Contender {
 public:
  virtual ~Contender() = default;
  // Called by all members before timed reductions: the member's own contribution.
  virtual Status Load(std::span<const float> own) = 0;
  // Of each block of what was loaded last, instead of those that a contender with units makes of
  // its own sums.
  virtual void UseUnits(std::span<const int16_t> /*exponents*/) {}
  // One all-reduce of what was loaded. Some contenders work in place, so that a second one adds the
  // sums of the first.
  virtual Status Reduce() = 0;
  // The sums of the last one; empty where nothing is added up.
  [[nodiscard]] virtual std::span<const float> sums() const = 0;
};

// `exact`, `float32`: Ringmaster's ring over gRPC, as a step uses it; `exact` from float32
// gradients to float32 sums, `integers` its ring alone. Payloads go through memory, as between
// workers of one host; of `exact_tcp` and so on over TCP; of `exact_tls` likewise, with
// certificates, on a host's address that is not loopback. `tcp`: the bytes of a float32 ring over
// plain sockets, a thread for each direction, nothing added. `gloo_ring`, `gloo_halving`: gloo's.
// `mpi`: MPI_Allreduce. NOT_FOUND: there is no such contender, or it was not built, as its library
// was not there.
[[nodiscard]] StatusOr<std::unique_ptr<Contender>> MakeContender(const std::string& name,
                                                                 const Member& member);

// Publishes `text` for the other members and reads what member `rank` published.
void Publish(const Member& member, const std::string& text);
[[nodiscard]] StatusOr<std::string> ReadPublished(const Member& member, uint32_t rank);

[[nodiscard]] StatusOr<std::unique_ptr<Contender>> MakeRing(const std::string& name,
                                                            const Member& member);
[[nodiscard]] StatusOr<std::unique_ptr<Contender>> MakeTcp(const Member& member);
[[nodiscard]] StatusOr<std::unique_ptr<Contender>> MakeGloo(const std::string& name,
                                                            const Member& member);
[[nodiscard]] StatusOr<std::unique_ptr<Contender>> MakeMpi(const Member& member);

}  // namespace ringmaster::bench

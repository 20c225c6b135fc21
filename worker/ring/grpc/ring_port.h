// The ring's place on the network: one gRPC server for the life of the daemon, which accepts the
// predecessor's stream, and the client stream to the successor. The only gRPC of the data plane.
// Thread-safe. It hands out Links; frames that are malformed or not current never get that far:
// they end their own stream with an error and nothing else.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "common/ids.h"
#include "common/rpc/address.h"
#include "common/status.h"
#include "worker/ring/link.h"

namespace ringmaster::ring {

struct LinkOptions {
  std::string job_id;
  GenerationId generation;
  std::string successor_address;
  std::string self_name, self_incarnation;
  std::string predecessor_name, predecessor_incarnation;  // whom to accept
};

class RingPort {
 public:
  // Listens at once; port 0 picks one.
  [[nodiscard]] static StatusOr<std::unique_ptr<RingPort>> Create(const Address& listen);
  virtual ~RingPort() = default;
  [[nodiscard]] virtual uint16_t port() const = 0;
  // Connects to the successor and waits for the predecessor, whichever comes first; both carry job
  // and generation. An older Link of this port must be gone. DEADLINE_EXCEEDED names who is
  // missing.
  [[nodiscard]] virtual StatusOr<std::unique_ptr<Link>> Connect(
      const LinkOptions& options, std::chrono::steady_clock::time_point deadline) = 0;
  // Refuses new streams, ends those that exist. Idempotent.
  virtual void Stop() = 0;
};

}  // namespace ringmaster::ring

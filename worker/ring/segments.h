// How the numbers of one bucket become payloads and payloads become sums: the part of an all-reduce
// that depends on the kind of number. Ring thread only. It knows no network and no order.
#pragma once

#include "common/status.h"
#include "worker/ring/payload.h"
#include "worker/ring/schedule.h"

namespace ringmaster::ring {

// `turn` says which blocks. INVALID_ARGUMENT: a received payload is not of the form that these
// blocks have; it is tested before anything is read from it.
class Segments {
 public:
  virtual ~Segments() = default;
  // The own contribution.
  virtual Payload Pack(const Turn& turn) = 0;
  // A received partial sum plus the own contribution.
  virtual StatusOr<Payload> Add(const Turn& turn, const Payload& received) = 0;
  // The same where the result is the total, which is kept too.
  virtual StatusOr<Payload> Total(const Turn& turn, const Payload& received) = 0;
  // Keeps a received total.
  virtual Status Keep(const Turn& turn, const Payload& received) = 0;
};

}  // namespace ringmaster::ring

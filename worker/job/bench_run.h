// This worker's part of one MeasureRing: connects the ring, measures, says what came of it. On the
// job thread, so that no job is on. It decides nothing.
#pragma once

#include <stop_token>
#include <string>

#include "common/rpc/channel.h"
#include "ringmaster/v1/bench.pb.h"
#include "worker/ring/grpc/ring_port.h"

namespace ringmaster::worker {

// `dialer` is for a link whose successor is to be reached first. `name` and `incarnation` say which
// member this worker is. Waits for the ring no longer than 20 s, and for any frame no longer than 2
// minutes; `stop` ends it at once. What went wrong stands in the message.
[[nodiscard]] v1::RingMeasured RunBench(ring::RingPort* port, const Dialer& dialer,
                                        const std::string& name, const std::string& incarnation,
                                        const v1::MeasureRing& measure,
                                        const std::stop_token& stop);

}  // namespace ringmaster::worker

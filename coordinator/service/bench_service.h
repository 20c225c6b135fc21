// The Bench service: hands a request to the control loop and answers when the measurement is over.
// Owned by the daemon; thread-safe. It decides nothing.
#pragma once

#include "coordinator/service/bench_table.h"
#include "coordinator/service/control_loop.h"
#include "coordinator/service/open_calls.h"
#include "ringmaster/v1/bench.grpc.pb.h"

namespace ringmaster::coordinator {

class BenchService final : public v1::Bench::CallbackService {
 public:
  // All outlive it.
  BenchService(ControlLoop& control, BenchTable& benches, OpenCalls& calls)
      : control_(control), benches_(benches), calls_(calls) {}

  grpc::ServerUnaryReactor* AllReduce(grpc::CallbackServerContext* context,
                                      const v1::AllReduceRequest* request,
                                      v1::AllReduceReport* response) override;

 private:
  ControlLoop& control_;
  BenchTable& benches_;
  OpenCalls& calls_;
};

}  // namespace ringmaster::coordinator

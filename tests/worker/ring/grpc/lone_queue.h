// The EventQueue of a server without calls: what a test asks for, and Wake, are all that comes
// through it. Threads as of EventQueue.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <memory>
#include <utility>

#include "worker/ring/grpc/event_queue.h"

namespace ringmaster::ring {

// Nothing but an event ends a wait, and the queue stays whose it is.
inline constexpr QueueLimits kNoTimer{.idle = std::chrono::hours(1),
                                      .slice = std::chrono::hours(1)};

struct LoneQueue {
  explicit LoneQueue(QueueLimits limits = kNoTimer) {
    grpc::ServerBuilder builder;
    builder.RegisterAsyncGenericService(&service);
    auto queue = builder.AddCompletionQueue();
    server = builder.BuildAndStart();
    events = std::make_unique<EventQueue>(std::move(queue), limits);
  }
  ~LoneQueue() { Stop(); }
  void Stop() {
    server->Shutdown(std::chrono::system_clock::now());
    events->Stop();
  }

  grpc::AsyncGenericService service;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<EventQueue> events;
};

}  // namespace ringmaster::ring

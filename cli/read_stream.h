// Reads a stream of messages on this thread alone, and ticks while nothing comes: a display that
// shows time needs no thread of its own. Thread-compatible.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/support/async_stream.h>

#include <chrono>
#include <functional>
#include <memory>

#include "common/rpc/clean_strings.h"
#include "common/status.h"

namespace ringmaster::cli {

// Of a text from the coordinator: a log line has the most.
inline constexpr size_t kMaxText = 32 << 10;

struct StreamEnd {
  grpc::Status status;
  // The stream has served its purpose whatever `status` is: `why` is CANCELLED when the ticker
  // ended it, OK when its deadline passed after something came.
  bool enough = false;
  Status why;
};

// `start` prepares the call. `sink` gets every message. `on_tick` may be empty; false ends the
// call.
template <typename Message, typename Start>
StreamEnd ReadStream(std::chrono::system_clock::time_point deadline, const Start& start,
                     const std::function<bool()>& on_tick,
                     const std::function<void(const Message&)>& sink) {
  constexpr std::chrono::milliseconds kTick(100);
  enum Tag : intptr_t { kStarted = 1, kRead, kFinished };
  grpc::ClientContext context;
  context.set_deadline(deadline);
  grpc::CompletionQueue queue;
  StreamEnd end;
  Message message;
  const std::unique_ptr<grpc::ClientAsyncReader<Message>> reader = start(&context, &queue);
  reader->StartCall(reinterpret_cast<void*>(kStarted));
  bool answered = false, stopped = false;
  for (void* tag = nullptr; tag != reinterpret_cast<void*>(kFinished);) {
    bool ok = false;
    const auto next = queue.AsyncNext(&tag, &ok, std::chrono::system_clock::now() + kTick);
    if (on_tick && !stopped && !on_tick()) {
      stopped = true;
      context.TryCancel();
    }
    if (next != grpc::CompletionQueue::GOT_EVENT || tag == reinterpret_cast<void*>(kFinished)) {
      continue;
    }
    if (ok && tag == reinterpret_cast<void*>(kRead)) {
      answered = true;
      CleanStrings(&message, kMaxText);
      sink(message);
    }
    if (ok) {
      reader->Read(&message, reinterpret_cast<void*>(kRead));
    } else {
      reader->Finish(&end.status, reinterpret_cast<void*>(kFinished));
    }
  }
  queue.Shutdown();
  bool ok = false;
  for (void* tag = nullptr; queue.Next(&tag, &ok);) {
  }
  const bool timed_out = end.status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
  if (stopped) end.why = Error(absl::StatusCode::kCancelled, "stopped");
  end.enough = stopped || (answered && timed_out);
  return end;
}

}  // namespace ringmaster::cli

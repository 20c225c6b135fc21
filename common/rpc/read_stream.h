// One server-streaming call as seen by the one thread that reads it: every operation has a
// deadline, and a stop token ends it at once. After the first operation that failed the stream is
// spent.
#pragma once

#include <grpc/support/time.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/support/async_stream.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <stop_token>
#include <utility>

namespace ringmaster {

template <typename Message>
class ReadStream {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // `prepare(&context, &queue)`: a stub's PrepareAsync call.
  template <typename Prepare>
  ReadStream(const Prepare& prepare, const std::stop_token& stop)
      : stream_(prepare(&context_, &queue_)),
        on_stop_(stop, [context = &context_]() { context->TryCancel(); }) {}
  ~ReadStream();
  ReadStream(const ReadStream&) = delete;
  ReadStream& operator=(const ReadStream&) = delete;

  // Connects and sends the request; reads the next message. False when the stream is over, or the
  // deadline passed.
  [[nodiscard]] bool Begin(TimePoint deadline);
  [[nodiscard]] bool Read(Message* message, TimePoint deadline);
  // A deadline passed.
  [[nodiscard]] bool late() const { return late_; }
  // How the stream ended; ends it first when it did not.
  [[nodiscard]] grpc::Status End();

 private:
  // Waits for the one operation under way.
  bool Await(TimePoint deadline);

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::ClientAsyncReaderInterface<Message>> stream_;
  std::stop_callback<std::function<void()>> on_stop_;
  bool begun_ = false;
  bool over_ = false;  // an operation failed by itself: the status is on its way
  bool late_ = false;
};

template <typename Message>
ReadStream<Message>::~ReadStream() {
  if (begun_) (void)End();
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

template <typename Message>
bool ReadStream<Message>::Await(TimePoint deadline) {
  // As a span, so that nobody who sets the clock changes it.
  const auto left = std::chrono::duration_cast<std::chrono::microseconds>(
      std::max(deadline - TimePoint::clock::now(), TimePoint::duration::zero()));
  const gpr_timespec until =
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_micros(left.count(), GPR_TIMESPAN));
  void* tag = nullptr;
  bool ok = false;
  if (queue_.AsyncNext(&tag, &ok, until) == grpc::CompletionQueue::GOT_EVENT) {
    over_ = over_ || !ok;
    return ok;
  }
  late_ = true;
  context_.TryCancel();  // the operation ends now
  (void)queue_.Next(&tag, &ok);
  return false;
}

template <typename Message>
bool ReadStream<Message>::Begin(TimePoint deadline) {
  stream_->StartCall(this);
  begun_ = true;
  return Await(deadline);
}

template <typename Message>
bool ReadStream<Message>::Read(Message* message, TimePoint deadline) {
  stream_->Read(message, this);
  return Await(deadline);
}

template <typename Message>
grpc::Status ReadStream<Message>::End() {
  begun_ = false;
  if (!over_) context_.TryCancel();
  grpc::Status status;
  stream_->Finish(&status, this);
  (void)Await(TimePoint::clock::now() + std::chrono::seconds(1));
  return status;
}

}  // namespace ringmaster

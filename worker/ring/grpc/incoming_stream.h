// The server end of a Link: a call of the predecessor's, which waits until it is accepted or
// refused; once accepted its frames go to the LinkEdges as long as there is room. Thread-safe; what
// gRPC finished comes on the thread that polls the EventQueue. Holds itself until gRPC is done.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/support/byte_buffer.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/ids.h"
#include "common/mutex.h"
#include "ringmaster/v1/ring.pb.h"
#include "worker/ring/grpc/event_queue.h"
#include "worker/ring/grpc/link_edges.h"

namespace ringmaster::ring {

class IncomingStream : public std::enable_shared_from_this<IncomingStream> {
 public:
  using State = LinkEdges;
  static constexpr char kOwner[] = "link";  // of the streams of a membership, for messages

  // Hands every call that comes, and says who it is, to `came`, until the server ends; one that
  // does not say it, or is of another method, is refused.
  using Came = std::function<void(const std::shared_ptr<IncomingStream>&)>;
  static void Serve(grpc::AsyncGenericService* service, EventQueue* events, const Came& came);

  [[nodiscard]] const v1::LinkHello& hello() const { return hello_; }
  // False when the stream has ended meanwhile.
  [[nodiscard]] bool Accept(std::shared_ptr<LinkEdges> edges);
  // Ends the stream; the first status counts.
  void End(const grpc::Status& status);
  [[nodiscard]] bool closed() const;
  // Reads on after the window was full.
  void Resume();
  // For StreamTable: what was decided has happened already.
  void Run() {}

 private:
  IncomingStream(grpc::AsyncGenericService* service, EventQueue* events, Came came);
  void Ask() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { ++asked_; }
  void Read() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Finish(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  [[nodiscard]] std::shared_ptr<LinkEdges> edges() const;

  void OnCall(bool ok);
  void OnGreeted();
  void OnRead(bool ok);
  void OnOver();
  // A frame, or the goodbye.
  void Take(const grpc::ByteBuffer& message, LinkEdges* edges);
  // One thing less that gRPC was asked for; after the last one it is done with this.
  void Settle();

  grpc::AsyncGenericService* const service_;
  EventQueue* const events_;
  const Came came_;
  EventQueue::Event called_, greeted_, read_, finished_, over_;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_{&context_};
  grpc::ByteBuffer message_;  // of the read under way
  // Constant once the call has come.
  v1::LinkHello hello_;
  uint64_t job_hash_ = 0;

  mutable Mutex mu_;
  std::shared_ptr<IncomingStream> self_ ABSL_GUARDED_BY(mu_);
  int asked_ ABSL_GUARDED_BY(mu_) = 0;  // events that will come
  bool greeting_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<grpc::Status> last_ ABSL_GUARDED_BY(mu_);  // for when greeting is done
  std::shared_ptr<LinkEdges> edges_ ABSL_GUARDED_BY(mu_);  // since Accept
};

}  // namespace ringmaster::ring

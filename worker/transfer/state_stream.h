// One Fetch call on the source's side. It goes from the service's thread, which prepares a piece,
// to gRPC, which writes it, and back, one at a time; while one is written the next is prepared.
// Lives until gRPC is done with the call. Thread-safe.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <memory>
#include <optional>

#include "common/ids.h"
#include "common/mutex.h"
#include "ringmaster/v1/states.pb.h"
#include "worker/transfer/state_service.h"

namespace ringmaster::worker {

class StateStream : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                    public std::enable_shared_from_this<StateStream> {
 public:
  StateStream(StateService* service, grpc::CallbackServerContext* context,
              const v1::FetchRequest& request);

  void Begin();
  // The call ends soon, whatever it waits for.
  void Cancel();
  // Whether a write has been waiting for the fetcher since before then.
  [[nodiscard]] bool StalledSince(std::chrono::steady_clock::time_point then) const;

 private:
  void OnWriteDone(bool ok) override;
  void OnCancel() override {}  // the write under way fails, or the next one does
  void OnDone() override;

  // Has the service's thread prepare the next piece.
  void PrepareSoon() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PrepareNext();  // there
  // The next message; nothing: all were there.
  [[nodiscard]] StatusOr<std::optional<grpc::ByteBuffer>> NextMessage();
  [[nodiscard]] bool left();  // the fetcher did
  // Writes what is prepared, when nothing is being written.
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void End(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  StateService* const service_;
  const JobId job_;
  const uint64_t step_;
  const Follows follows_;

  // The service's thread only.
  std::optional<StateService::Opened> opened_;
  uint64_t read_ = 0;  // bytes of the row

  grpc::ByteBuffer writing_;  // gRPC's, while it writes

  enum class Next : uint8_t { kNotReady, kMessage, kNothing };

  mutable Mutex mu_;
  grpc::CallbackServerContext* context_ ABSL_GUARDED_BY(mu_);  // null once gRPC is done
  bool ended_ ABSL_GUARDED_BY(mu_) = false;                    // Finish was called
  Next next_ ABSL_GUARDED_BY(mu_) = Next::kNotReady;
  grpc::ByteBuffer next_message_ ABSL_GUARDED_BY(mu_);
  grpc::Status end_ ABSL_GUARDED_BY(mu_);  // after the last message
  std::optional<std::chrono::steady_clock::time_point> writing_since_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ringmaster::worker

// One Fetch call on the source's side. It goes from the service's thread, which prepares a piece,
// to gRPC, which writes it, and back, one at a time; while one is written the next is prepared.
// Lives until gRPC is done with the call. Thread-safe.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <array>
#include <chrono>
#include <memory>
#include <optional>

#include "common/ids.h"
#include "common/mutex.h"
#include "ringmaster/v1/states.pb.h"
#include "worker/transfer/state_pieces.h"
#include "worker/transfer/state_service.h"

namespace ringmaster::worker {

class StateStream : public grpc::ServerWriteReactor<v1::StatePiece>,
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

  // Has the service's thread prepare the next piece and write it.
  void Continue();
  void SendNext();
  [[nodiscard]] Status Prepare();

  StateService* const service_;
  const JobId job_;
  const uint64_t step_;

  // One of the service's thread and the pending write at a time.
  std::optional<StatePieces> pieces_;
  v1::StatePiece piece_;

  mutable Mutex mu_;
  grpc::CallbackServerContext* context_ ABSL_GUARDED_BY(mu_);  // null once gRPC is done
  std::optional<std::chrono::steady_clock::time_point> writing_since_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ringmaster::worker

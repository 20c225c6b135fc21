// Serves files of datasets to workers that lack them (data.proto): workers beside States, on the
// ring's port, and the coordinator. One service for the life of a daemon, which outlives the server
// that it is registered with. Its thread, "data_files", lists, hashes and reads, a little of each
// stream in turn; gRPC's threads only pass on what is ready. Thread-safe, but for Start and Stop,
// which its one owner calls. Who may read what is for its owner to say (`admit`); that nothing
// outside of that folder is read is its own concern.
#pragma once

#include <grpcpp/security/auth_context.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "common/data_files/file_list.h"
#include "common/loop.h"
#include "common/mutex.h"
#include "common/status.h"
#include "ringmaster/v1/data.grpc.pb.h"

namespace ringmaster::data_files {

// The words by which who fetches knows why it was refused (google.rpc.ErrorInfo.reason).
inline constexpr char kReasonCrowded[] = "DATA_TOO_MANY_STREAMS";  // ask again
inline constexpr char kReasonTicket[] = "TICKET_NOT_VALID";
inline constexpr char kReasonProtocol[] = "DATA_PROTOCOL";  // another protocol version

// A folder that may be read: `path` beneath `root`, and nothing outside of it. What `holds` is kept
// until no stream reads there any more.
struct Place {
  std::string root, path;
  std::shared_ptr<const void> holds = {};
};

// One call of either kind, seen by the service.
class ServedCall {
 public:
  virtual ~ServedCall() = default;
  virtual void Begin() = 0;
  // The call ends soon, whatever it waits for.
  virtual void Cancel() = 0;
  // All was said; gRPC may still be busy with it.
  [[nodiscard]] virtual bool Ended() const = 0;
  // Whether a write has been waiting for who fetches since before then.
  [[nodiscard]] virtual bool StalledSince(std::chrono::steady_clock::time_point then) const = 0;
};

class DataFilesService : public v1::DataFiles::CallbackService {
 public:
  struct Options {
    std::string state_dir;  // where SHA-256 are remembered; empty: nowhere
    // RESOURCE_EXHAUSTED beyond.
    size_t max_lists = 8, max_reads = 4;
    // Who takes nothing for so long is given up. Looked at once a second.
    std::chrono::milliseconds write_limit{10'000};
    // What this asker may read. Any thread; quick. NOT_FOUND: nothing of that path is here, nor
    // will be; UNAVAILABLE: not yet; PERMISSION_DENIED: the ticket.
    std::function<StatusOr<Place>(const grpc::AuthContext&, const v1::DataAsker&)> admit;
  };

  explicit DataFilesService(Options options);
  ~DataFilesService() override;

  // Before it everything is refused with UNAVAILABLE.
  void Start();
  // Refuses new calls and ends those that exist, then the thread. Before Server::Shutdown, which
  // would wait for them. Idempotent.
  void Stop();

  grpc::ServerWriteReactor<v1::ListedFiles>* List(grpc::CallbackServerContext* context,
                                                  const v1::ListFilesRequest* request) override;
  grpc::ServerWriteReactor<v1::PieceFrame>* Read(grpc::CallbackServerContext* context,
                                                 const v1::ReadPieceRequest* request) override;

  // For calls.
  [[nodiscard]] bool Post(Loop::Task task) { return loop_.Post(std::move(task)); }
  void Done(const std::shared_ptr<ServedCall>& call);
  // The list of a place, which calls at the same time share. Thread "data_files" only.
  [[nodiscard]] StatusOr<std::shared_ptr<FileList>> ListOf(const Place& place);

 private:
  using Calls = std::set<std::shared_ptr<ServedCall>>;

  [[nodiscard]] StatusOr<Place> Admit(const grpc::AuthContext& connection,
                                      const v1::DataAsker& asker) const;
  // Takes it in, unless there are `most` of its kind.
  [[nodiscard]] Status Add(const std::shared_ptr<ServedCall>& call, Calls* calls, size_t most);
  template <typename Message, typename Next>
  grpc::ServerWriteReactor<Message>* Open(grpc::CallbackServerContext* context,
                                          const v1::DataAsker& asker, Calls* calls, size_t most,
                                          Next next);
  [[nodiscard]] std::set<std::shared_ptr<ServedCall>> All();
  void CancelStalled();

  const Options options_;

  Mutex mu_;
  bool started_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  Calls lists_ ABSL_GUARDED_BY(mu_);
  Calls reads_ ABSL_GUARDED_BY(mu_);

  std::map<std::string, std::weak_ptr<FileList>> shared_;  // thread "data_files" only

  Loop loop_;  // "data_files"; last: its tasks use the rest
};

}  // namespace ringmaster::data_files

// Hosts and people who join: each connection that began with the greeting of a join (common/pki/
// join.h) is served on one of a few threads of this listener, a TLS handshake and two messages in
// all, within a deadline. Owned by the daemon; thread-safe. Who is let in Access decides.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "common/files.h"
#include "common/mutex.h"
#include "common/pki/credential_folder.h"
#include "common/rpc/acceptor.h"
#include "common/status.h"
#include "ringmaster/v1/access.pb.h"

namespace ringmaster::coordinator {

class JoinListener {
 public:
  static constexpr size_t kThreads = 4;
  static constexpr size_t kMostWaiting = 16;
  static constexpr size_t kMostOfAnAddress = 2;     // that wait or are served
  static constexpr std::chrono::seconds kLimit{5};  // of one, from the handshake to the reply

  // Somebody shows a token or an old certificate; `done` runs once, on any thread.
  // AccessService::Join.
  using Join = std::function<void(const v1::JoinRequest& request, const std::string& key_sha256,
                                  const std::string& address,
                                  std::function<void(const v1::JoinReply&)> done)>;
  // The coordinator's own, of each of its authorities; asked anew for each who joins.
  using Own = std::function<StatusOr<std::vector<pki::Credentials>>()>;
  JoinListener(Own credentials, Join join)
      : credentials_(std::move(credentials)), join_(std::move(join)) {}
  ~JoinListener() { Stop(); }

  void Start();
  // Refuses who waits; ends within twice kLimit. Idempotent.
  void Stop();
  // Thread "accept". Waits for nothing: what is too much is closed.
  void Take(OwnedFile connection, const std::string& address);

 private:
  struct Joiner {
    OwnedFile connection;
    std::string address;
  };
  void Run();
  void Serve(Joiner joiner);
  void Warn(const std::string& what);
  [[nodiscard]] v1::JoinReply Ask(const v1::JoinRequest& request, const std::string& address);

  const Own credentials_;
  const Join join_;

  Mutex mu_;
  Condition changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<Joiner> waiting_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, size_t> of_address_ ABSL_GUARDED_BY(mu_);
  SeldomLine warnings_ ABSL_GUARDED_BY(mu_);

  std::vector<std::jthread> threads_;  // "join"
};

}  // namespace ringmaster::coordinator

// The notice that a cloud gives before it takes a host away (a spot or preemptible one): asked of
// its metadata service every two seconds, from a thread of its own. Owned by the daemon;
// thread-safe. It leaves no job: whoever owns it looks at notice().
//
// AWS: instance metadata v2, `spot/instance-action`, some 120 s before. Google:
// `instance/preempted`, 30 s before. Azure: scheduled events of the type Preempt, 30 s before.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "common/mutex.h"
#include "common/net/address.h"
#include "common/status.h"
#include "worker/fetch/http_client.h"

namespace ringmaster::worker {

enum class Cloud : uint8_t { kAws, kGcp, kAzure };

struct NoticeOptions {
  std::optional<Cloud> cloud;  // nothing: the first whose service answers
  Address metadata{"169.254.169.254", 80};
};

// What the answer of a cloud's service says: why this host goes, empty while it stays. `own_name`
// is this host's among those of Azure's events. UNKNOWN: it is no such answer.
[[nodiscard]] StatusOr<std::string> NoticeIn(Cloud cloud, const HttpResponse& response,
                                             const std::string& own_name);

class NoticeWatch {
 public:
  // Without options there is nothing to watch.
  explicit NoticeWatch(const std::optional<NoticeOptions>& options);
  ~NoticeWatch() { Stop(); }

  void Start();
  // Breaks off a request that is under way. Idempotent.
  void Stop();
  // Why this host goes away soon; empty: nobody said so.
  [[nodiscard]] std::string notice() const;

 private:
  void Run(const std::stop_token& stop);
  // Asks once. An error: there is no such service, or none that can be understood.
  [[nodiscard]] StatusOr<std::string> Look(const std::stop_token& stop);
  [[nodiscard]] StatusOr<std::string> Ask(Cloud cloud, const std::stop_token& stop);
  [[nodiscard]] StatusOr<HttpResponse> Request(HttpRequest::Method method, const std::string& path,
                                               const std::string& header,
                                               const std::stop_token& stop);
  void SayOnce(const Status& status);

  const std::optional<NoticeOptions> options_;
  HttpClient http_;
  // Thread "notice".
  std::optional<Cloud> cloud_;
  std::string token_;     // of AWS; empty: none yet
  std::string own_name_;  // in Azure; likewise
  std::string said_;      // that the service cannot be used, and why

  mutable Mutex mu_;
  Condition changed_;
  std::string notice_ ABSL_GUARDED_BY(mu_);

  std::jthread thread_;  // "notice"; last: it uses everything above
};

}  // namespace ringmaster::worker

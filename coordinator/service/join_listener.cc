#include "coordinator/service/join_listener.h"

#include <pthread.h>
#include <spdlog/spdlog.h>

#include <future>
#include <memory>
#include <optional>
#include <utility>

#include "common/pki/authority.h"
#include "common/pki/join.h"
#include "common/text.h"

namespace ringmaster::coordinator {
namespace {

v1::JoinReply NoJoin(absl::StatusCode code, const std::string& reason, const std::string& words) {
  v1::JoinReply reply;
  reply.set_code(static_cast<int>(code));
  reply.set_reason(reason);
  reply.set_message(words);
  return reply;
}

}  // namespace

void JoinListener::Start() {
  for (size_t i = 0; i < kThreads; ++i) {
    threads_.emplace_back([this]() { Run(); });
    pthread_setname_np(threads_.back().native_handle(), "join");
  }
}

void JoinListener::Stop() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
    waiting_.clear();
    changed_.NotifyAll();
  }
  threads_.clear();
}

void JoinListener::Take(OwnedFile connection, const std::string& address) {
  MutexLock lock(mu_);
  if (stopping_ || waiting_.size() >= kMostWaiting) return;
  size_t& of_address = of_address_[address];
  if (of_address >= kMostOfAnAddress) return;
  ++of_address;
  waiting_.push_back({std::move(connection), address});
  changed_.NotifyOne();
}

void JoinListener::Run() {
  while (true) {
    Joiner joiner;
    {
      MutexLock lock(mu_);
      WaitFor(changed_, mu_,
              [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return stopping_ || !waiting_.empty(); });
      if (stopping_) return;
      joiner = std::move(waiting_.front());
      waiting_.pop_front();
    }
    const std::string address = joiner.address;
    Serve(std::move(joiner));
    MutexLock lock(mu_);
    if (--of_address_[address] == 0) of_address_.erase(address);
  }
}

void JoinListener::Serve(Joiner joiner) {
  const StatusOr<std::vector<pki::Credentials>> own = credentials_();
  const Status served =
      !own.ok() ? own.status()
                : pki::ServeJoin(std::move(joiner.connection), *own,
                                 std::chrono::steady_clock::now() + kLimit,
                                 [&](const v1::JoinRequest& request, const std::string&) {
                                   return Ask(request, joiner.address);
                                 });
  if (!served.ok()) Warn(fmt::format("nobody joined: {}", Message(served)));
}

void JoinListener::Warn(const std::string& what) {
  std::optional<std::string> line;
  {
    MutexLock lock(mu_);
    line = warnings_.Next(what, std::chrono::steady_clock::now());
  }
  if (line) spdlog::warn("{}", *line);
}

v1::JoinReply JoinListener::Ask(const v1::JoinRequest& request, const std::string& address) {
  const StatusOr<Sha256Digest> key = pki::KeyHashOfRequest(request.signing_request());
  if (!key.ok()) {
    return NoJoin(absl::StatusCode::kInvalidArgument, "INVALID_REQUEST", Message(key.status()));
  }
  // Outlives a wait that was given up.
  const auto reply = std::make_shared<std::promise<v1::JoinReply>>();
  std::future<v1::JoinReply> answer = reply->get_future();
  join_(request, std::string(key->begin(), key->end()), address,
        [reply](const v1::JoinReply& said) { reply->set_value(said); });
  if (answer.wait_for(kLimit) != std::future_status::ready) {
    return NoJoin(absl::StatusCode::kUnavailable, "UNAVAILABLE",
                  "the coordinator is busy; try again with the same key");
  }
  return answer.get();
}

}  // namespace ringmaster::coordinator

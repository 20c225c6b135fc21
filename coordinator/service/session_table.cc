#include "coordinator/service/session_table.h"

#include <utility>

namespace ringmaster::coordinator {
namespace {

constexpr size_t kMaxSessions = 8'192;  // attached workers, and those that are about to be

}  // namespace

std::optional<SessionId> SessionTable::Add(std::shared_ptr<SessionStream> stream) {
  MutexLock lock(mu_);
  if (closed_ || streams_.size() >= kMaxSessions) return std::nullopt;
  const SessionId session{next_++};
  streams_[session] = std::move(stream);
  return session;
}

void SessionTable::Remove(SessionId session) {
  MutexLock lock(mu_);
  streams_.erase(session);
}

std::shared_ptr<SessionStream> SessionTable::Find(SessionId session) const {
  MutexLock lock(mu_);
  const auto stream = streams_.find(session);
  return stream == streams_.end() ? nullptr : stream->second;
}

void SessionTable::Send(SessionId session, const v1::CoordinatorMessage& message) {
  if (const auto stream = Find(session)) stream->Send(message);
}

void SessionTable::End(SessionId session, const Refusal& refusal) {
  if (const auto stream = Find(session)) stream->End(refusal);
}

void SessionTable::Close(const Refusal& refusal) {
  std::map<SessionId, std::shared_ptr<SessionStream>> streams;
  {
    MutexLock lock(mu_);
    closed_ = true;
    streams = streams_;
  }
  for (const auto& [session, stream] : streams) stream->End(refusal);
}

}  // namespace ringmaster::coordinator

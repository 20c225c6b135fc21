#include "coordinator/service/session_table.h"

#include <utility>

#include "common/ticket.h"

namespace ringmaster::coordinator {
namespace {

constexpr size_t kMaxSessions = 8'192;  // attached workers, and those that are about to be
constexpr size_t kMaxEnded = 1'024;     // tickets of sessions that ended

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
  EndTicket(session);
}

void SessionTable::Admit(SessionId session, const std::string& worker,
                         const v1::Attached& attached) {
  v1::CoordinatorMessage message;
  *message.mutable_attached() = attached;
  const std::string ticket = RandomTicket();
  message.mutable_attached()->set_ticket(ticket);
  {
    MutexLock lock(mu_);
    if (!streams_.contains(session)) return;
    if (const auto former = by_worker_.find(worker); former != by_worker_.end()) {
      Forget(TicketKey(former->second));
    }
    const TicketKey key = Sha256Of(ticket);
    tickets_[key] = {ticket, {session, worker, true}};
    by_session_[session] = by_worker_[worker] = key;
  }
  Send(session, message);
}

void SessionTable::Forget(const TicketKey& key) {
  const auto known = tickets_.extract(key);
  if (known.empty()) return;
  by_session_.erase(known.mapped().holder.session);
  by_worker_.erase(known.mapped().holder.worker);
  std::erase(ended_, key);
}

void SessionTable::EndTicket(SessionId session) {
  const auto known = by_session_.extract(session);
  if (known.empty()) return;
  tickets_.at(known.mapped()).holder.open = false;
  ended_.push_back(known.mapped());
  if (ended_.size() <= kMaxEnded) return;
  Forget(TicketKey(ended_.front()));
}

std::optional<SessionTable::Holder> SessionTable::FindByTicket(
    const std::string& ticket, const std::optional<IdentityName>& shows) const {
  if (ticket.size() != kTicketBytes) return std::nullopt;
  const TicketKey key = Sha256Of(ticket);
  MutexLock lock(mu_);
  const auto known = tickets_.find(key);
  if (known == tickets_.end() || !SameTicket(known->second.ticket, ticket)) return std::nullopt;
  const Holder& holder = known->second.holder;
  const bool other = shows && *shows != IdentityName{IdentityKind::kWorker, holder.worker};
  return other ? std::nullopt : std::optional(holder);
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
  {
    MutexLock lock(mu_);
    EndTicket(session);
  }
  if (const auto stream = Find(session)) stream->End(refusal);
}

std::vector<std::shared_ptr<SessionStream>> SessionTable::All() const {
  std::vector<std::shared_ptr<SessionStream>> all;
  MutexLock lock(mu_);
  all.reserve(streams_.size());
  for (const auto& [session, stream] : streams_) all.push_back(stream);
  return all;
}

void SessionTable::CancelStuck(std::chrono::steady_clock::time_point now) {
  for (const auto& stream : All()) stream->CancelIfStuck(now);
}

void SessionTable::Close(const Refusal& refusal) {
  {
    MutexLock lock(mu_);
    closed_ = true;
  }
  for (const auto& stream : All()) stream->End(refusal);
}

}  // namespace ringmaster::coordinator

#include "worker/term_store.h"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "common/files.h"

namespace ringmaster::worker {
namespace {

using Clock = std::chrono::steady_clock;

std::string TermPath(const std::string& state_dir) { return state_dir + "/term"; }

}  // namespace

StatusOr<uint64_t> TermStore::Load(const std::string& state_dir) {
  errno = 0;
  std::ifstream file(TermPath(state_dir));
  if (!file && errno == ENOENT) return 0;
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) {
    return Error(absl::StatusCode::kUnavailable,
                 "{}: {}; without it an older coordinator could be obeyed", TermPath(state_dir),
                 std::strerror(errno));
  }
  uint64_t term = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), term);
  if (error != std::errc() || end == text.data()) {
    return Error(absl::StatusCode::kDataLoss,
                 "{} does not hold a number; remove it only if no coordinator with an older store "
                 "can come back",
                 TermPath(state_dir));
  }
  return term;
}

TermStore::TermStore(Options options, std::function<void(Event)> post)
    : options_(std::move(options)), post_(std::move(post)) {}

void TermStore::Store(uint64_t term) {
  uint64_t attempt = 0;
  {
    MutexLock lock(mu_);
    attempt = ++last_;
    open_[attempt] = {term, Clock::now() + options_.limit};
  }
  const bool posted = loop_.Post([this, attempt, term]() {
    Status status;
    if (term > written_) {
      status = WriteDurably(TermPath(options_.state_dir), std::to_string(term) + "\n");
      if (status.ok()) written_ = term;
    }  // else as much, or more, is there
    Answer(attempt, term, status);
  });
  if (posted) return;
  Answer(attempt, term,
         Error(absl::StatusCode::kUnavailable, "earlier attempts to write {} are still under way",
               TermPath(options_.state_dir)));
}

void TermStore::GiveUpLate() {
  std::vector<std::pair<uint64_t, uint64_t>> late;
  {
    MutexLock lock(mu_);
    for (const auto& [attempt, what] : open_) {
      if (what.deadline <= Clock::now()) late.emplace_back(attempt, what.term);
    }
  }
  for (const auto& [attempt, term] : late) {
    Answer(attempt, term,
           Error(absl::StatusCode::kDeadlineExceeded, "{} takes longer than {} ms to be written",
                 TermPath(options_.state_dir), options_.limit.count()));
  }
}

void TermStore::Answer(uint64_t attempt, uint64_t term, const Status& status) {
  {
    MutexLock lock(mu_);
    if (open_.erase(attempt) == 0) return;
  }
  post_(TermStored{term, Message(status)});
}

}  // namespace ringmaster::worker

#include "worker/fetch/piece_transfer.h"

#include <fmt/format.h>
#include <pthread.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "common/amount.h"

namespace ringmaster::worker {
namespace {

using Clock = std::chrono::steady_clock;

// How long a thread waits for something to do before it looks again.
constexpr std::chrono::milliseconds kLook{50};
constexpr std::chrono::milliseconds kNothing{0};
// Pieces that came in time until a source is asked for one more at a time.
constexpr int kInTime = 16;

// Another try may go well.
bool MayPass(const Status& status) {
  return status.code() == absl::StatusCode::kUnavailable ||
         status.code() == absl::StatusCode::kDeadlineExceeded;
}

}  // namespace

PieceTransfer::PieceTransfer(PartialData* partial,
                             std::vector<std::shared_ptr<PieceSource>> sources, Options options)
    : partial_(partial), options_(std::move(options)) {
  MutexLock lock(mu_);
  for (auto& source : sources) {
    sources_.push_back(std::make_unique<Source>());
    sources_.back()->from = std::move(source);
  }
  const std::vector<PieceId> missing = partial->Missing();
  missing_.assign(missing.begin(), missing.end());
}

Status PieceTransfer::Run(const std::stop_token& stop) {
  {
    MutexLock lock(mu_);
    last_piece_ = options_.now();
    if (missing_.empty()) End(absl::OkStatus());
  }
  for (size_t i = 0; i < kThreads; ++i) {
    threads_[i] = std::jthread([this, stop]() { Work(stop); });
    pthread_setname_np(threads_[i].native_handle(), fmt::format("fetch{}", i).c_str());
  }
  for (std::jthread& thread : threads_) thread.join();
  MutexLock lock(mu_);
  for (const auto& source : sources_) {
    if (source->bytes == 0) continue;
    spdlog::info("data: {} came from {}", FormatBytes(source->bytes), source->from->name());
  }
  return status_;
}

void PieceTransfer::Work(const std::stop_token& stop) {
  std::vector<uint8_t> buffer;
  for (Turn turn; Take(&turn, stop);) {
    const Status fetched = Fetch(turn, &buffer, stop);
    const Status kept = fetched.ok() ? partial_->Write(turn.piece, buffer) : absl::OkStatus();
    Settle(turn, fetched, kept);
    if (fetched.ok() && kept.ok()) {
      options_.on_piece(partial_->done_bytes(), turn.source->from->name());
    }
  }
}

bool PieceTransfer::Take(Turn* turn, const std::stop_token& stop) {
  MutexLock lock(mu_);
  while (!over_) {
    if (stop.stop_requested()) {
      End(absl::CancelledError("the fetch was stopped"));
      break;
    }
    // A piece that is on its way has a limit of its own.
    const auto patience = options_.silence + (in_hand_ > 0 ? options_.piece_limit : kNothing);
    if (options_.now() - last_piece_ >= patience) {
      End(Error(absl::StatusCode::kUnavailable, "no piece came for {} s: {}",
                std::chrono::duration_cast<std::chrono::seconds>(patience).count(),
                WhatTheySaid()));
      break;
    }
    Source* const source = missing_.empty() ? nullptr : Choose();
    if (source != nullptr) {
      *turn = {missing_.front(), source};
      missing_.pop_front();
      ++source->in_hand;
      ++in_hand_;
      return true;
    }
    changed_.WaitUntil(mu_, Clock::now() + kLook,
                       [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return over_; });
  }
  return false;
}

PieceTransfer::Source* PieceTransfer::Choose() {
  Source* best = nullptr;
  size_t active = 0;
  const Clock::time_point now = Clock::now();
  for (const auto& source : sources_) {
    if (source->out || source->rests_until > now || source->in_hand >= source->most) continue;
    if (best == nullptr || source->in_hand < best->in_hand) best = source.get();
    if (++active == kMostSources) break;
  }
  return best;
}

Status PieceTransfer::Fetch(const Turn& turn, std::vector<uint8_t>* buffer,
                            const std::stop_token& stop) const {
  const SourceFile& file = partial_->list().files[turn.piece.file];
  const uint64_t offset = uint64_t{turn.piece.piece} * kPieceBytes;
  buffer->resize(partial_->BytesOf(turn.piece));
  RING_RETURN_IF_ERROR(
      turn.source->from->Read(file, offset, *buffer, {Clock::now() + options_.piece_limit, stop}));
  if (file.pieces.empty()) return absl::OkStatus();
  Sha256 hash;
  hash.Update(*buffer);
  if (hash.Finish() == file.pieces[turn.piece.piece]) return absl::OkStatus();
  return DataLoss("{}: the {} bytes at byte {} are not those of the list", file.name,
                  buffer->size(), offset);
}

void PieceTransfer::Settle(const Turn& turn, const Status& fetched, const Status& kept) {
  MutexLock lock(mu_);
  --turn.source->in_hand;
  --in_hand_;
  if (!kept.ok()) End(kept);
  if (fetched.ok()) {
    turn.source->failures = 0;
    if (++turn.source->in_time >= kInTime && turn.source->most < kThreads) {
      ++turn.source->most;
      turn.source->in_time = 0;
    }
    turn.source->bytes += partial_->BytesOf(turn.piece);
    last_piece_ = options_.now();
  } else {
    missing_.push_front(turn.piece);
    // Side by side they take as long as one after the other, but none of them is late then.
    if (fetched.code() == absl::StatusCode::kDeadlineExceeded && turn.source->most > 1) {
      turn.source->most /= 2;
      turn.source->in_time = 0;
      last_piece_ = options_.now();
    }
    Blame(turn.source, fetched);
  }
  if (missing_.empty() && in_hand_ == 0) End(absl::OkStatus());
  changed_.NotifyAll();
}

void PieceTransfer::Blame(Source* source, const Status& status) {
  if (status.code() == absl::StatusCode::kCancelled || over_) return;
  source->last = status;
  if (MayPass(status)) {
    const auto pause =
        std::min(options_.pause * (1 << std::min(source->failures, 10)), options_.longest_pause);
    source->rests_until = Clock::now() + pause;
    if (source->failures++ == 0) {
      spdlog::warn("data: {} is asked again: {}", source->from->name(), Message(status));
    }
    return;
  }
  source->out = true;
  spdlog::warn("data: {} is asked no more: {}", source->from->name(), Message(status));
  if (!std::ranges::all_of(sources_, [](const auto& one) { return one->out; })) return;
  const bool changed = status.code() == absl::StatusCode::kFailedPrecondition;
  End(Error(changed ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kUnavailable,
            "no source is left: {}", WhatTheySaid()));
}

void PieceTransfer::End(const Status& status) {
  if (std::exchange(over_, true)) return;
  status_ = status;
  changed_.NotifyAll();
}

std::string PieceTransfer::WhatTheySaid() const {
  std::string text;
  for (const auto& source : sources_) {
    if (source->last.ok()) continue;
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", source->from->name(),
                        Message(source->last));
  }
  return text.empty() ? "nobody answers" : text;
}

}  // namespace ringmaster::worker

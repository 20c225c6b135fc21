// The pieces that an entry of the cache lacks, on their way from sources to the disk: four at a
// time, from up to three sources, the one with the fewest in hand first. Owned by DatasetFetch for
// one fetch. A source whose pieces are not the list's is asked no more; one that is cut rests, and
// others take over.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "common/mutex.h"
#include "common/status.h"
#include "worker/fetch/cache_entry.h"
#include "worker/fetch/piece_source.h"

namespace ringmaster::worker {

class PieceTransfer {
 public:
  struct Options {
    std::chrono::milliseconds silence, pause, longest_pause, piece_limit;
    std::function<std::chrono::steady_clock::time_point()> now;  // by which silence is counted
    // A piece is there: how many bytes of the dataset now are, and who sent it. Any thread.
    std::function<void(uint64_t bytes, const std::string& source)> on_piece;
  };
  // `partial` outlives it. `sources`: who gave the list first.
  PieceTransfer(PartialData* partial, std::vector<std::shared_ptr<PieceSource>> sources,
                Options options);

  // Returns when every piece is there, or why not. FAILED_PRECONDITION: it changed at the source
  // that listed it; RESOURCE_EXHAUSTED, UNAVAILABLE: the disk; UNAVAILABLE: no source goes on, and
  // what each said; CANCELLED: `stop`. Once.
  [[nodiscard]] Status Run(const std::stop_token& stop);

 private:
  static constexpr size_t kThreads = 4;
  static constexpr size_t kMostSources = 3;  // at a time

  struct Source {
    std::shared_ptr<PieceSource> from;
    size_t in_hand = 0;
    size_t most = kThreads;  // in hand: fewer where pieces do not come in time
    int in_time = 0;         // pieces since `most` changed
    int failures = 0;        // in a row
    std::chrono::steady_clock::time_point rests_until{};
    bool out = false;  // it is asked no more
    Status last;       // that it said
    uint64_t bytes = 0;
  };
  struct Turn {
    PieceId piece;
    Source* source = nullptr;
  };

  void Work(const std::stop_token& stop);
  // Waits for something to do; false: nothing more will come.
  [[nodiscard]] bool Take(Turn* turn, const std::stop_token& stop);
  [[nodiscard]] Source* Choose() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  [[nodiscard]] Status Fetch(const Turn& turn, std::vector<uint8_t>* buffer,
                             const std::stop_token& stop) const;
  // What came of it: of the source, and of the disk.
  void Settle(const Turn& turn, const Status& fetched, const Status& kept);
  void Blame(Source* source, const Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void End(const Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  [[nodiscard]] std::string WhatTheySaid() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  PartialData* const partial_;
  const Options options_;

  Mutex mu_;
  Condition changed_;
  std::vector<std::unique_ptr<Source>> sources_ ABSL_GUARDED_BY(mu_);
  std::deque<PieceId> missing_ ABSL_GUARDED_BY(mu_);
  size_t in_hand_ ABSL_GUARDED_BY(mu_) = 0;
  bool over_ ABSL_GUARDED_BY(mu_) = false;
  Status status_ ABSL_GUARDED_BY(mu_);
  std::chrono::steady_clock::time_point last_piece_ ABSL_GUARDED_BY(mu_);

  std::array<std::jthread, kThreads> threads_;  // "fetch0", ...
};

}  // namespace ringmaster::worker

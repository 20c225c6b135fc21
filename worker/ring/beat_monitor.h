// Decides which neighbour is to be accused of being lost, from beats, goodbyes and broken streams,
// and from how late this process itself was. Every moment is an argument: it reads no clock, waits
// for nothing and calls nobody. Thread-compatible.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ringmaster::ring {

// Which of a member's two neighbours in the ring. A value.
enum class Edge : uint8_t { kSuccessor, kPredecessor };

// How late the last beats of a neighbour were, and so how long its silence may last before it means
// something. Thread-compatible.
class LateBeats {
 public:
  void Add(std::chrono::milliseconds late) {
    late_[count_++ % kKept] = static_cast<uint16_t>(std::clamp<int64_t>(late.count(), 0, 60'000));
  }

  // The 99.9th percentile (nearest rank) of the last 1,024, which are 51 s of beats: the largest
  // while there are fewer than 1,000.
  [[nodiscard]] std::chrono::milliseconds P999() const {
    const size_t kept = std::min(count_, kKept);
    if (kept == 0) return std::chrono::milliseconds(0);
    std::array<uint16_t, kKept> sorted = late_;
    const size_t above = kept / 1000;  // so many are larger
    std::nth_element(sorted.begin(), sorted.begin() + above, sorted.begin() + kept,
                     std::greater<>());
    return std::chrono::milliseconds(sorted[above]);
  }

 private:
  static constexpr size_t kKept = 1024;
  std::array<uint16_t, kKept> late_{};
  size_t count_ = 0;
};

struct WatchLimits {
  std::chrono::milliseconds interval{50};  // of the own beats
  // Without a beat; the limit is wider for an edge whose beats come late (docs/ring.md).
  std::chrono::milliseconds silence{300};
  std::chrono::milliseconds widest_silence{700};
  // Of a peer that has not connected yet, which takes milliseconds. Where TCP would try a second
  // time after 1 s, a new generation with new connections is there sooner.
  std::chrono::milliseconds connect{400};
  // An own tick that is later than this accuses nobody: this process stood still.
  std::chrono::milliseconds own_lateness{150};
};

// Those of a coordinator whose own limit is `silence`: the defaults belong to its default, 500 ms,
// and a longer one makes beats rarer and the limits of silence longer, in proportion; 0 and shorter
// ones do not.
[[nodiscard]] WatchLimits LimitsFor(std::chrono::milliseconds silence);

// What a Beat says about its sender's step thread.
struct Pulse {
  uint64_t progress = 0;
  std::string phase;
};

struct Accusation {
  std::string peer;
  std::string reason;
};

class BeatMonitor {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // The first own beat is due `now`. The two names are equal in a ring of two.
  BeatMonitor(const std::string& successor, const std::string& predecessor,
              const WatchLimits& limits, TimePoint now);

  // The peer accepted the stream, or opened its own.
  void Connected(Edge edge, TimePoint now);
  void Heard(Edge edge, Pulse pulse, TimePoint now);
  // The peer left the generation: nothing more is expected of it.
  void Left(Edge edge);
  // The stream broke without a goodbye; the next Tick accuses.
  void Broke(Edge edge, std::string how);

  struct Verdict {
    bool beat = false;                    // the own beat is due; the next one is due at due()
    std::vector<Accusation> accusations;  // each peer at most once, ever
  };
  // When it is called late by more than own_lateness it accuses nobody and every silence begins
  // anew.
  [[nodiscard]] Verdict Tick(TimePoint now);
  [[nodiscard]] TimePoint due() const { return due_; }
  // Of silence on this edge, as wide as it is now.
  [[nodiscard]] std::chrono::milliseconds limit(Edge edge) const;

 private:
  struct Neighbour {
    std::string name;
    bool connected = false;
    bool left = false;
    std::string broken;  // how, when it did
    TimePoint since;     // of the last sign of life
    Pulse pulse;
    bool heard = false;  // `pulse` is from a beat
    LateBeats late;
  };
  [[nodiscard]] Neighbour& of(Edge edge) { return neighbours_[static_cast<size_t>(edge)]; }
  // Why the neighbour is to be accused; empty when it is not.
  [[nodiscard]] std::string Charge(Edge edge, TimePoint now) const;
  [[nodiscard]] bool OwnLate(TimePoint now) const { return now - due_ > limits_.own_lateness; }

  const WatchLimits limits_;
  std::array<Neighbour, 2> neighbours_;  // by Edge
  std::vector<std::string> accused_;
  TimePoint due_;
};

}  // namespace ringmaster::ring

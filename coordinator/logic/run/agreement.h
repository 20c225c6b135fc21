// What must be equal on every worker of a job, at its start and at every step, and in what two of
// them differ. Functions are pure and thread-safe; each returns OK, or FAILED_PRECONDITION naming
// both workers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "common/status.h"
#include "ringmaster/v1/fleet.pb.h"
#include "ringmaster/v1/job.pb.h"
#include "ringmaster/v1/script.pb.h"

namespace ringmaster::coordinator {

// One worker's word on something.
template <typename T>
struct Claim {
  const std::string& worker;
  const T& value;
};

// The datasets: names the first file that differs, or the first fact.
[[nodiscard]] Status SameDataset(Claim<v1::DatasetFacts> a, Claim<v1::DatasetFacts> b);

// What the job's script said of itself: names the first thing that differs, and what makes it the
// same. kMayDiffer: of two numerics classes that share a job.
enum class Libraries : uint8_t { kEqual, kMayDiffer };
[[nodiscard]] Status SameScript(Claim<v1::ScriptFacts> a, Claim<v1::ScriptFacts> b,
                                Libraries libraries = Libraries::kEqual);

// The job's known shard, and what a worker computed: on every core, then digest(0).
[[nodiscard]] Status SameKnownShard(const v1::KnownShard& expected, Claim<v1::Prepared> b);

// digest(step).
[[nodiscard]] Status SameDigest(uint64_t step, Claim<std::string> a, Claim<std::string> b);

// What members said of their state: for the newest steps that anybody spoke of, who said first what
// digest it has. Members choose the steps whose digests they report by number alone (fleet.proto),
// so that it does not matter when each of them reports. Owned by Run, loop thread only. What
// follows from a difference is Run's to say.
class StateDigests {
 public:
  // OK, or FAILED_PRECONDITION naming both workers, when another one said something else.
  [[nodiscard]] Status Add(uint64_t step, const std::string& worker, const std::string& digest);
  // Who said something else than most of at least three who spoke of a step, by name; of steps
  // where there are such the one of which most spoke, of several the newest. Empty: there is no
  // such step.
  [[nodiscard]] std::vector<std::string> Minority() const;
  // The newest step before `step` of which at least two spoke, and all of them said the same; 0:
  // there is none.
  [[nodiscard]] uint64_t AgreedBefore(uint64_t step) const;
  // A generation begins with S(step): whoever spoke of later steps is not in it, and what it said
  // holds for nobody.
  void GoOnFrom(uint64_t step);

 private:
  // A member reports at most 8 every 250 ms, nearly the same as the others: seconds of a fast job.
  static constexpr size_t kMost = 256;

  struct Said {
    std::string first;                           // worker
    std::map<std::string, std::string> digests;  // by worker
    [[nodiscard]] std::vector<std::string> Minority() const;
  };
  std::map<uint64_t, Said> said_;  // by step
  std::deque<uint64_t> order_;     // of the same steps: in which they were first spoken of
};

}  // namespace ringmaster::coordinator

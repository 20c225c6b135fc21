// P of the digest (common/exact/digest.h): the hash of all that S(k) holds beside the sums of its
// step, by part, tensor and block, so that parts can be hashed by whoever writes them, in any
// order; and what of a state is not what was written. Free functions on values; the caller owns the
// state and its thread.
//
// float32 values are words as their bits. Left out are what never changes (frozen parameters) and
// what the evaluation of S(k) sets, which is in D of the next digest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/exact/digest.h"
#include "common/status.h"

namespace ringmaster::worker {

struct State;
class StateLayout;

// Sums of hashes of blocks; P is the sum of all of them.
struct StateSums {
  // Of the parameters and then of each slot: of each tensor by its place in the arena; or, where a
  // device hashes them, of all tensors together.
  std::vector<exact::BlockSum> trained;
  exact::BlockSum exponents;
  // Of each normalization its means, then its variances.
  std::vector<exact::BlockSum> statistics;
  exact::BlockSum numbers;  // updates, loss scale and its counter, the metrics of the epoch so far
  exact::BlockSum rows;     // of predictions

  [[nodiscard]] exact::BlockSum total() const;
};

// Calls work(i) for each i in [0, count), in any order, also side by side.
using ForEachPiece = std::function<void(size_t count, const std::function<void(size_t)>& work)>;
void OneAfterAnother(size_t count, const std::function<void(size_t)>& work);

// All of a state, as it lies in memory.
[[nodiscard]] StateSums HashState(const State& state,
                                  const ForEachPiece& for_each = &OneAfterAnother);

// Its parts. `part` 0: the parameters, i: slot i - 1; the result by tensor, in arena order.
[[nodiscard]] std::vector<exact::BlockSum> HashTrained(const State& state,
                                                       const ForEachPiece& for_each);
[[nodiscard]] std::vector<exact::BlockSum> HashStatistics(const State& state);
[[nodiscard]] exact::BlockSum HashNumbers(const State& state);
// Of the predictions of one step's batch.
[[nodiscard]] exact::BlockSum HashRows(const State& state, uint64_t step);

// Blocks, from block `index` on, of a parameter (part 0) or of slot part - 1.
void AddTrained(size_t part, uint32_t tensor, uint32_t index, std::span<const float> values,
                exact::BlockSum* sum);

// What of `found` is not as `written`, in words for people; empty: nothing.
[[nodiscard]] std::string NameDifference(const StateLayout& layout, const StateSums& written,
                                         const StateSums& found);
// Of `trained` alone.
[[nodiscard]] std::string NameTrainedDifference(const StateLayout& layout,
                                                std::span<const exact::BlockSum> written,
                                                std::span<const exact::BlockSum> found);

// Makes state->written what the state holds, and checks its digest against that and state->link.
// DATA_LOSS: it is the digest of something else.
Status CheckChain(State* state, const ForEachPiece& for_each = &OneAfterAnother);

}  // namespace ringmaster::worker

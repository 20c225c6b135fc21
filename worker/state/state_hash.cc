#include "worker/state/state_hash.h"

#include <algorithm>
#include <array>
#include <bit>

#include "common/check.h"
#include "common/exact/word_hash.h"
#include "worker/state/state.h"

namespace ringmaster::worker {
namespace {

using exact::BlockSum;
using exact::kBlockElements;
using exact::NameOfPart;
using exact::StatePart;

// Blocks that are hashed at a time: 128 Ki elements.
constexpr size_t kHashedBlocks = 512;

// Values one after the other as blocks of `name`, from block `index` on.
void AddRun(uint32_t name, uint32_t index, std::span<const float> values, BlockSum* sum) {
  for (size_t at = 0; at < values.size(); at += kBlockElements) {
    const size_t count = std::min<size_t>(kBlockElements, values.size() - at);
    exact::AddWords(name, index++, values.data() + at, count, sum);
  }
}

std::vector<uint32_t> NumbersOf(const State& state) {
  std::vector<uint32_t> words;
  const auto add = [&](uint64_t value) {
    words.push_back(static_cast<uint32_t>(value));
    words.push_back(static_cast<uint32_t>(value >> 32));
  };
  add(state.updates);
  add(state.loss_scale.value);
  add(state.loss_scale.good_steps);
  add(state.metrics.epoch);
  add(state.metrics.samples);
  std::vector<double> sums = state.metrics.sums;
  sums.resize(state.layout->scalars().size());
  for (const double sum : sums) add(std::bit_cast<uint64_t>(sum));
  return words;
}

// Of several tensors together, by part.
std::vector<BlockSum> Folded(std::span<const BlockSum> trained, size_t parts) {
  std::vector<BlockSum> folded(parts);
  const size_t scopes = trained.size() / parts;
  for (size_t i = 0; i < trained.size(); ++i) folded[i / scopes].Add(trained[i]);
  return folded;
}

BlockSum SumOf(std::span<const BlockSum> sums) {
  BlockSum all;
  for (const BlockSum& each : sums) all.Add(each);
  return all;
}

std::string NameOfTrained(const StateLayout& layout, size_t part, const std::string& tensor) {
  return part == 0 ? tensor : tensor + "/" + layout.slot_names()[part - 1];
}

}  // namespace

exact::BlockSum StateSums::total() const {
  BlockSum all = SumOf(trained);
  all.Add(exponents);
  all.Add(SumOf(statistics));
  all.Add(numbers);
  all.Add(rows);
  return all;
}

void OneAfterAnother(size_t count, const std::function<void(size_t)>& work) {
  for (size_t i = 0; i < count; ++i) work(i);
}

void AddTrained(size_t part, uint32_t tensor, uint32_t index, std::span<const float> values,
                BlockSum* sum) {
  AddRun(NameOfPart(exact::TrainedPart(part), tensor), index, values, sum);
}

std::vector<BlockSum> HashTrained(const State& state, const ForEachPiece& for_each) {
  struct Run {
    size_t part, place, first_block, blocks;
  };
  const auto tensors = state.layout->blocks().tensors();
  const size_t parts = 1 + state.slots.size();
  std::vector<Run> runs;
  for (size_t part = 0; part < parts; ++part) {
    for (size_t place = 0; place < tensors.size(); ++place) {
      for (size_t done = 0; done < tensors[place].block_count; done += kHashedBlocks) {
        runs.push_back({part, place, done,
                        std::min<size_t>(kHashedBlocks, tensors[place].block_count - done)});
      }
    }
  }
  std::vector<BlockSum> sums(runs.size());
  for_each(runs.size(), [&](size_t i) {
    const Run& run = runs[i];
    const exact::TensorRange& range = tensors[run.place];
    const Arena<float>& arena = run.part == 0 ? state.parameters : state.slots[run.part - 1];
    const size_t first = run.first_block * kBlockElements;
    const size_t count = std::min<size_t>(range.elements - first, run.blocks * kBlockElements);
    AddTrained(run.part, range.tensor, static_cast<uint32_t>(run.first_block),
               arena.span().subspan(range.offset() + first, count), &sums[i]);
  });
  std::vector<BlockSum> trained(parts * tensors.size());
  for (size_t i = 0; i < runs.size(); ++i) {
    trained[runs[i].part * tensors.size() + runs[i].place].Add(sums[i]);
  }
  return trained;
}

std::vector<BlockSum> HashStatistics(const State& state) {
  std::vector<BlockSum> sums;
  uint32_t number = 0;
  for (const StateLayout::Normalization& norm : state.layout->normalizations()) {
    for (const auto& [part, arena] : {std::pair{StatePart::kMovingMeans, &state.moving_means},
                                      {StatePart::kMovingVariances, &state.moving_variances}}) {
      AddRun(NameOfPart(part, number), 0,
             std::as_const(*arena).span().subspan(norm.first_channel, norm.channels),
             &sums.emplace_back());
    }
    ++number;
  }
  return sums;
}

BlockSum HashNumbers(const State& state) {
  BlockSum sum;
  const std::vector<uint32_t> words = NumbersOf(state);
  uint32_t index = 0;
  for (size_t at = 0; at < words.size(); at += kBlockElements) {
    exact::AddWords(NameOfPart(StatePart::kNumbers, 0), index++, words.data() + at,
                    std::min<size_t>(kBlockElements, words.size() - at), &sum);
  }
  return sum;
}

BlockSum HashRows(const State& state, uint64_t step) {
  BlockSum sum;
  const uint64_t first = state.predicted.before(step);
  const uint64_t samples = state.predicted.before(step + 1) - first;
  for (size_t i = 0; i < state.rows.size(); ++i) {
    const uint64_t elements = state.layout->rows()[i].elements;
    const uint64_t blocks =
        (state.predicted.batch * elements + kBlockElements - 1) / kBlockElements;
    AddRun(NameOfPart(StatePart::kRows, static_cast<uint32_t>(i)),
           static_cast<uint32_t>(step * blocks),
           state.rows[i].span().subspan(first * elements, samples * elements), &sum);
  }
  return sum;
}

StateSums HashState(const State& state, const ForEachPiece& for_each) {
  StateSums sums;
  sums.trained = HashTrained(state, for_each);
  sums.exponents = state.units.Hash();
  sums.statistics = HashStatistics(state);
  sums.numbers = HashNumbers(state);
  if (!state.rows.empty()) {
    for (uint64_t step = 0; step < state.step; ++step) sums.rows.Add(HashRows(state, step));
  }
  return sums;
}

std::string NameTrainedDifference(const StateLayout& layout, std::span<const BlockSum> written,
                                  std::span<const BlockSum> found) {
  const size_t parts = 1 + layout.slot_names().size();
  const auto tensors = layout.blocks().tensors();
  if (written.size() == found.size() && found.size() == parts * tensors.size()) {
    for (size_t i = 0; i < found.size(); ++i) {
      if (found[i] == written[i]) continue;
      const exact::TensorRange& range = tensors[i % tensors.size()];
      return NameOfTrained(layout, i / tensors.size(), layout.NameOf(range.tensor));
    }
    return "";
  }
  const std::vector<BlockSum> a = Folded(written, parts), b = Folded(found, parts);
  for (size_t part = 0; part < parts; ++part) {
    if (a[part] != b[part]) return NameOfTrained(layout, part, "the parameters");
  }
  return "";
}

std::string NameDifference(const StateLayout& layout, const StateSums& written,
                           const StateSums& found) {
  if (std::string name = NameTrainedDifference(layout, written.trained, found.trained);
      !name.empty()) {
    return name;
  }
  for (size_t i = 0; i < found.statistics.size(); ++i) {
    if (found.statistics[i] == written.statistics[i]) continue;
    return layout.normalizations()[i / 2].name + (i % 2 == 0 ? "/moving_mean" : "/moving_variance");
  }
  if (found.exponents != written.exponents) return "the exponents of the blocks";
  if (found.numbers != written.numbers) return "the counters, loss scale or metrics";
  if (found.rows != written.rows) return "the predictions";
  return "";
}

Status CheckChain(State* state, const ForEachPiece& for_each) {
  state->written = HashState(*state, for_each);
  if (state->step == 0) return absl::OkStatus();
  const Sha256Digest found =
      exact::NextDigest(state->link, state->step - 1, state->written.total());
  if (found == state->digest) return absl::OkStatus();
  return DataLoss(
      "the state of step {} is not the one that its digest {} is of: what it holds gives {}; a "
      "memory, a disk or a release differs",
      state->step, Hex(state->digest), Hex(found));
}

}  // namespace ringmaster::worker

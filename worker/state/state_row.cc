#include "worker/state/state_row.h"

#include <cstring>
#include <utility>

#include "common/safetensors.h"
#include "worker/state/checkpoint.h"

namespace ringmaster::worker {
namespace {

std::span<const float> StatisticsOf(const State& state, size_t which) {
  return which == 0 ? state.moving_means.span() : state.moving_variances.span();
}

// What is short and not updated element by element: as many bytes at every step.
StatusOr<std::string> TextOfNumbers(const State& state) {
  const Scalars scalars = ScalarsOf(state);
  RING_ASSIGN_OR_RETURN(std::string text,
                        WriteSafetensors(TensorsOf(state, scalars).at(kRestOfState)));
  for (const size_t which : {0, 1}) {
    const auto bytes = std::as_bytes(StatisticsOf(state, which));
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return text;
}

Status SetNumbersOf(const std::string& text, State* state) {
  const size_t statistics = state->moving_means.span().size_bytes();
  const size_t rest = text.size() - 2 * statistics;
  const std::string file = text.substr(0, rest);
  StatusOr<TensorViews> views = ReadSafetensors(file);
  RING_RETURN_IF_ERROR(Annotate(views.status(), kRestOfState));
  RING_RETURN_IF_ERROR(SetNumbers(*views, state));
  if (statistics == 0) return absl::OkStatus();
  std::memcpy(state->moving_means.span().data(), text.data() + rest, statistics);
  std::memcpy(state->moving_variances.span().data(), text.data() + rest + statistics, statistics);
  return absl::OkStatus();
}

template <typename Byte, typename T>
std::span<Byte> BytesOf(std::span<T> values) {
  return {reinterpret_cast<Byte*>(values.data()), values.size_bytes()};
}

template <typename Byte>
class RowMaker {
 public:
  explicit RowMaker(size_t most) : most_(most) {}

  // Cut into pieces.
  void Add(std::span<Byte> part) {
    const uint64_t begin = row_.bytes.bytes();
    row_.bytes.Add(part);
    for (uint64_t at = begin; at < row_.bytes.bytes();) {
      at = std::min<uint64_t>(at + most_, row_.bytes.bytes());
      row_.ends.push_back(at);
    }
  }
  // One piece.
  void AddTogether(std::span<const std::span<Byte>> parts) {
    for (const std::span<Byte> part : parts) row_.bytes.Add(part);
    row_.ends.push_back(row_.bytes.bytes());
  }
  [[nodiscard]] StateRow<Byte> Take(uint64_t numbers) {
    row_.numbers = numbers;
    return std::move(row_);
  }

 private:
  const size_t most_;
  StateRow<Byte> row_;
};

template <typename Byte, typename SomeState, typename Text>
StateRow<Byte> LayOut(SomeState& state, Text& first, Text& last, size_t most) {
  RowMaker<Byte> row(most);
  row.Add(BytesOf<Byte>(std::span(first)));
  std::vector<std::span<Byte>> arenas = {BytesOf<Byte>(state.parameters.span())};
  for (auto& slot : state.slots) arenas.push_back(BytesOf<Byte>(slot.span()));
  constexpr size_t kBlockBytes = exact::kBlockElements * sizeof(float);
  const size_t range = std::max(most / arenas.size() / kBlockBytes, size_t{1}) * kBlockBytes;
  std::vector<std::span<Byte>> parts(arenas.size());
  for (size_t at = 0; at < arenas.front().size(); at += range) {
    const size_t size = std::min(range, arenas.front().size() - at);
    for (size_t i = 0; i < parts.size(); ++i) parts[i] = arenas[i].subspan(at, size);
    row.AddTogether(parts);
  }
  row.Add(BytesOf<Byte>(state.frozen.span()));
  for (size_t i = 0; i < state.rows.size(); ++i) {
    const uint64_t elements = state.layout->rows()[i].elements;
    row.Add(
        BytesOf<Byte>(state.rows[i].span().first(state.predicted.before(state.step) * elements)));
  }
  row.Add(BytesOf<Byte>(std::span(last)));
  return row.Take(last.size());
}

}  // namespace

StatusOr<StateReader> StateReader::Create(const State& state, size_t most) {
  RING_ASSIGN_OR_RETURN(std::string numbers, TextOfNumbers(state));
  StateReader reader;
  reader.first_ = std::make_unique<std::string>(numbers);
  reader.last_ = std::make_unique<std::string>(std::move(numbers));
  reader.row_ = LayOut<const uint8_t>(state, std::as_const(*reader.first_),
                                      std::as_const(*reader.last_), most);
  return reader;
}

uint64_t StateReader::PieceEnd(uint64_t offset) const {
  return *std::ranges::upper_bound(row_.ends, offset);
}

void StateReader::Read(uint64_t offset, std::span<uint8_t> to) const {
  uint8_t* at = to.data();
  row_.bytes.At(offset, to.size(), [&](std::span<const uint8_t> bytes) {
    std::memcpy(at, bytes.data(), bytes.size());
    at += bytes.size();
  });
}

Status StateReader::TakeLastNumbers(const State& state) {
  RING_ASSIGN_OR_RETURN(const std::string numbers, TextOfNumbers(state));
  if (numbers.size() != last_->size()) {
    return Internal("the numbers of step {} have {} bytes, those before {}", state.step,
                    numbers.size(), last_->size());
  }
  std::ranges::copy(numbers, last_->begin());  // the row knows where they lie
  return absl::OkStatus();
}

Status StateWriter::Begin(const StateFacts& facts) {
  facts_ = facts;
  state_->step = facts.step;  // how many rows of predictions there are depends on it
  RING_ASSIGN_OR_RETURN(first_, TextOfNumbers(*state_));
  last_ = first_;
  MoveTo(state_);
  if (row_.bytes.bytes() == facts.bytes) return absl::OkStatus();
  return DataLoss("the source's state of step {} has {} bytes, that of this job {}", facts.step,
                  facts.bytes, row_.bytes.bytes());
}

void StateWriter::MoveTo(State* state) {
  state_ = state;
  row_ = LayOut<uint8_t>(*state_, first_, last_, most_);
}

void StateWriter::Write(uint64_t offset, std::span<const uint8_t> from) {
  const uint8_t* at = from.data();
  row_.bytes.At(offset, from.size(), [&](std::span<uint8_t> bytes) {
    std::memcpy(bytes.data(), at, bytes.size());
    at += bytes.size();
  });
}

Status StateWriter::SetFirstNumbers() { return SetNumbersOf(first_, state_); }
Status StateWriter::SetLastNumbers() { return SetNumbersOf(last_, state_); }

Status IncomingState::Write(uint64_t offset, uint64_t step, std::span<const uint8_t> from) {
  if (step != facts().step) {
    return DataLoss("bytes at offset {} are of step {}, those before of step {}", offset, step,
                    facts().step);
  }
  writer_.Write(offset, from);
  return absl::OkStatus();
}

StatusOr<State> IncomingState::Finish(const ForEachPiece& for_each) {
  RING_RETURN_IF_ERROR(writer_.SetLastNumbers());
  RING_RETURN_IF_ERROR(CheckChain(&state_, for_each));
  if (state_.step == facts().step && state_.digest == facts().digest) return std::move(state_);
  return DataLoss(
      "the copy of a peer's state is another one: expected step {} with digest {}, got step {} "
      "with digest {}",
      facts().step, Hex(facts().digest), state_.step, Hex(state_.digest));
}

}  // namespace ringmaster::worker

#include "worker/state/state_row.h"

#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "common/safetensors.h"
#include "worker/state/checkpoint.h"

namespace ringmaster::worker {
namespace {

// Calls visit(bytes) for every tensor but those of state.safetensors, in the row's order; what two
// files, or two names, have of the same (what is frozen, moving statistics, tied tensors) comes
// once, and a counter not at all: it is a number of state.safetensors.
template <typename Visit>
void VisitTensors(const std::map<std::string, TensorViews>& files, Visit visit) {
  std::set<const uint8_t*> seen;
  for (const auto& [file, tensors] : files) {
    if (file == kRestOfState) continue;
    for (const auto& [name, view] : tensors) {
      if (view.type != ElementType::kF32 || view.bytes.empty()) continue;
      if (seen.insert(view.bytes.data()).second) visit(view.bytes);
    }
  }
}

std::span<const uint8_t> BytesOf(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace

StatusOr<StateReader> StateReader::Create(const State& state) {
  const Scalars scalars = ScalarsOf(state);
  const auto files = TensorsOf(state, scalars);
  StateReader reader;
  VisitTensors(files, [&](std::span<const uint8_t> bytes) { reader.row_.Add(bytes); });
  RING_ASSIGN_OR_RETURN(std::string rest, WriteSafetensors(files.at(kRestOfState)));
  reader.rest_ = std::make_unique<const std::string>(std::move(rest));
  reader.row_.Add(BytesOf(*reader.rest_));
  return reader;
}

void StateReader::Read(uint64_t offset, std::span<uint8_t> to) const {
  uint8_t* at = to.data();
  row_.At(offset, to.size(), [&](std::span<const uint8_t> bytes) {
    std::memcpy(at, bytes.data(), bytes.size());
    at += bytes.size();
  });
}

Status IncomingState::Begin(const StateFacts& facts) {
  facts_ = facts;
  row_ = {};
  state_.step = facts.step;  // how many rows of predictions there are depends on it
  const Scalars scalars = ScalarsOf(state_);
  const auto files = TensorsOf(state_, scalars);
  RING_ASSIGN_OR_RETURN(rest_, WriteSafetensors(files.at(kRestOfState)));
  // The views are of our own state.
  VisitTensors(files, [&](std::span<const uint8_t> bytes) {
    row_.Add({const_cast<uint8_t*>(bytes.data()), bytes.size()});
  });
  row_.Add({reinterpret_cast<uint8_t*>(rest_.data()), rest_.size()});
  if (row_.bytes() == facts.bytes) return absl::OkStatus();
  return DataLoss("the source's state of step {} has {} bytes, that of this job {}", facts.step,
                  facts.bytes, row_.bytes());
}

void IncomingState::Write(uint64_t offset, std::span<const uint8_t> from) {
  const uint8_t* at = from.data();
  row_.At(offset, from.size(), [&](std::span<uint8_t> bytes) {
    std::memcpy(bytes.data(), at, bytes.size());
    at += bytes.size();
  });
}

StatusOr<State> IncomingState::Finish(const ForEachPiece& for_each) {
  const Scalars scalars = ScalarsOf(state_);
  auto files = TensorsOf(state_, scalars);
  StatusOr<TensorViews> rest = ReadSafetensors(rest_);
  RING_RETURN_IF_ERROR(Annotate(rest.status(), kRestOfState));
  files[kRestOfState] = *std::move(rest);
  RING_RETURN_IF_ERROR(SetTensors(files, &state_, for_each));
  if (state_.step == facts_.step && state_.digest == facts_.digest) return std::move(state_);
  return DataLoss(
      "the copy of a peer's state is another one: expected step {} with digest {}, got step {} "
      "with digest {}",
      facts_.step, Hex(facts_.digest), state_.step, Hex(state_.digest));
}

}  // namespace ringmaster::worker

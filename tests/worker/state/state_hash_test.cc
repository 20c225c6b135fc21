#include "worker/state/state_hash.h"

#include <bit>
#include <catch2/catch.hpp>
#include <functional>
#include <map>

#include "tests/worker/state/fill_state.h"
#include "worker/state/state.h"

namespace ringmaster::worker {
namespace {

// Two tensors, the larger of three blocks; two slots, two normalizations.
State HashedState() {
  graph::Program program;
  program.parameters.resize(2);
  program.parameters[0].name = "dense/kernel";
  program.parameters[0].shape = {6, 100};
  program.parameters[1].name = "dense/bias";
  program.parameters[1].shape = {100};
  program.gradient_order = {1, 0};
  program.normalizations.resize(2);
  program.normalizations[0].name = "bn1";
  program.normalizations[0].channels = 3;
  program.normalizations[1].name = "bn2";
  program.normalizations[1].channels = 300;
  State state(*StateLayout::Create(program, {"m", "v"}), 21);
  FillWithDifferentValues(&state);
  state.written = HashState(state);
  return state;
}

void Flip(float* value) { *value = std::bit_cast<float>(std::bit_cast<uint32_t>(*value) ^ 0x10); }

TEST_CASE("State hash: what differs is named, whatever part it is in") {
  using Change = std::function<void(State*)>;
  const std::map<std::string, Change> changes = {
      {"dense/kernel", [](State* s) { Flip(&s->parameters.span()[256 + 599]); }},
      {"dense/bias", [](State* s) { Flip(&s->parameters.span()[0]); }},
      {"dense/bias/m", [](State* s) { Flip(&s->slots[0].span()[99]); }},
      {"dense/kernel/v", [](State* s) { Flip(&s->slots[1].span()[256]); }},
      {"bn1/moving_mean", [](State* s) { Flip(&s->moving_means.span()[2]); }},
      {"bn2/moving_mean", [](State* s) { Flip(&s->moving_means.span()[302]); }},
      {"bn2/moving_variance", [](State* s) { Flip(&s->moving_variances.span()[3]); }},
      {"the exponents of the blocks", [](State* s) { s->units.Reset(); }},
      {"the counters, loss scale or metrics", [](State* s) { ++s->updates; }},
  };
  for (const auto& [name, change] : changes) {
    State state = HashedState();
    CHECK(NameDifference(*state.layout, state.written, HashState(state)).empty());
    change(&state);
    const StateSums found = HashState(state);
    CHECK(NameDifference(*state.layout, state.written, found) == name);
    CHECK_FALSE(found.total() == state.written.total());
  }
}

TEST_CASE("State hash: it does not matter in which order its pieces are hashed") {
  const State state = HashedState();
  const auto backward = [](size_t count, const std::function<void(size_t)>& work) {
    for (size_t i = count; i-- > 0;) work(i);
  };
  CHECK(HashState(state, backward).total() == state.written.total());
}

TEST_CASE("State hash: what a device hashes as one is compared as one") {
  State state = HashedState();
  const size_t tensors = state.layout->blocks().tensors().size();
  StateSums device = state.written;
  device.trained.assign(3, {});
  for (size_t i = 0; i < state.written.trained.size(); ++i) {
    device.trained[i / tensors].Add(state.written.trained[i]);
  }
  CHECK(device.total() == state.written.total());
  CHECK(NameDifference(*state.layout, state.written, device).empty());
  CHECK(NameDifference(*state.layout, device, state.written).empty());
  Flip(&state.slots[1].span()[0]);
  CHECK(NameDifference(*state.layout, device, HashState(state)) == "the parameters/v");
}

TEST_CASE("State hash: a digest of another state is told") {
  State state = HashedState();
  CHECK(CheckChain(&state).ok());  // S(0): it has no past
  state.step = 4;
  state.link.sums = exact::BlockSum::OfHalves(1, 2);
  state.digest = exact::NextDigest(state.link, 3, state.written.total());
  CHECK(CheckChain(&state).ok());
  Flip(&state.parameters.span()[1]);
  const Status wrong = CheckChain(&state);
  CHECK(wrong.code() == absl::StatusCode::kDataLoss);
  Flip(&state.parameters.span()[1]);
  state.link.sums = exact::BlockSum::OfHalves(2, 2);
  CHECK_FALSE(CheckChain(&state).ok());
}

}  // namespace
}  // namespace ringmaster::worker

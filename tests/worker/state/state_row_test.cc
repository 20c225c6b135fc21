#include "worker/state/state_row.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/exact/digest.h"
#include "tests/support/memory_state.h"
#include "tests/worker/state/fill_state.h"

namespace ringmaster::worker {
namespace {

using testing::MemoryState;

// Two tensors, two slots and the average, one normalization. `order`: of backward.
State Empty(std::vector<uint32_t> order = {1, 0}) {
  graph::Program program;
  program.parameters.resize(2);
  program.parameters[0].name = "dense/kernel";
  program.parameters[0].shape = {6, 100};
  program.parameters[1].name = "dense/bias";
  program.parameters[1].shape = {101};
  program.gradient_order = std::move(order);
  program.normalizations.resize(1);
  program.normalizations[0].name = "bn1";
  program.normalizations[0].channels = 3;
  return {*StateLayout::Create(program, {"m", "v", "average"}), 21};
}

State Filled() {
  State state = Empty();
  FillWithDifferentValues(&state);
  state.step = 7;
  state.updates = 5;
  state.written = HashState(state);
  state.digest = exact::NextDigest(state.link, 6, state.written.total());
  return state;
}

MemoryState RowOf(const State& state) {
  const auto reader = StateReader::Create(state);
  REQUIRE(reader.ok());
  MemoryState row;
  REQUIRE(row.Begin({state.step, state.digest, reader->bytes(), {}, {}}).ok());
  reader->Read(0, {reinterpret_cast<uint8_t*>(row.bytes.data()), row.bytes.size()});
  return row;
}

TEST_CASE("State row: it may be cut anywhere, and gives the state again") {
  const State state = Filled();
  const MemoryState whole = RowOf(state);
  const auto reader = StateReader::Create(state);
  REQUIRE(reader.ok());
  for (const size_t piece : {1U, 3U, 97U, 4096U}) {
    IncomingState incoming(Empty());
    REQUIRE(incoming.Begin(whole.its).ok());
    std::vector<uint8_t> bytes(piece);
    for (uint64_t at = 0; at < reader->bytes(); at += piece) {
      const auto size = static_cast<size_t>(std::min<uint64_t>(piece, reader->bytes() - at));
      reader->Read(at, std::span(bytes).first(size));
      incoming.Write(at, std::span(bytes).first(size));
    }
    const auto got = incoming.Finish(&OneAfterAnother);
    REQUIRE(got.status() == absl::OkStatus());
    CHECK(got->digest == state.digest);
    CHECK(got->updates == 5);
    CHECK((RowOf(*got) == whole));
  }
}

TEST_CASE("State row: it does not depend on how the tensors lie in memory") {
  const State state = Filled();
  IncomingState incoming(Empty({0, 1}));
  REQUIRE(testing::WriteAll(RowOf(state), &incoming).ok());
  const auto got = incoming.Finish(&OneAfterAnother);
  REQUIRE(got.status() == absl::OkStatus());
  CHECK((RowOf(*got) == RowOf(state)));
}

TEST_CASE("State row: a bit that is another one anywhere in a tensor is not taken for the state") {
  const MemoryState good = RowOf(Filled());
  const size_t tensors = good.bytes.find("{\"") - 8;  // state.safetensors is behind them
  REQUIRE(tensors == 4 * (4 * 701 + 2 * 3));
  for (size_t at = 0; at < tensors; at += 40) {
    MemoryState bad = good;
    bad.bytes[at] ^= 1;
    IncomingState incoming(Empty());
    REQUIRE(testing::WriteAll(bad, &incoming).ok());
    CHECK(incoming.Finish(&OneAfterAnother).status().code() == absl::StatusCode::kDataLoss);
  }
}

TEST_CASE("State row: one of another size is refused before it comes, and another one may follow") {
  const MemoryState good = RowOf(Filled());
  IncomingState incoming(Empty());
  StateFacts facts = good.its;
  ++facts.bytes;
  const Status status = incoming.Begin(facts);
  CHECK(status.code() == absl::StatusCode::kDataLoss);
  CHECK(Message(status) ==
        fmt::format("the source's state of step 7 has {} bytes, that of this job {}",
                    good.its.bytes + 1, good.its.bytes));
  REQUIRE(testing::WriteAll(good, &incoming).ok());
  CHECK(incoming.Finish(&OneAfterAnother).status() == absl::OkStatus());
}

}  // namespace
}  // namespace ringmaster::worker

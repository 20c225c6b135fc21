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

// Two tensors, two slots and the average, one normalization.
State Empty() {
  graph::Program program;
  program.parameters.resize(2);
  program.parameters[0].name = "dense/kernel";
  program.parameters[0].shape = {6, 100};
  program.parameters[1].name = "dense/bias";
  program.parameters[1].shape = {101};
  program.gradient_order = {1, 0};
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
      REQUIRE(incoming.Write(at, state.step, std::span(bytes).first(size)).ok());
    }
    const auto got = incoming.Finish(&OneAfterAnother);
    REQUIRE(got.status() == absl::OkStatus());
    CHECK(got->digest == state.digest);
    CHECK(got->updates == 5);
    CHECK((RowOf(*got) == whole));
  }
}

TEST_CASE("State row: a bit that is another one anywhere in a tensor is not taken for the state") {
  const MemoryState good = RowOf(Filled());
  const auto reader = StateReader::Create(Filled());
  REQUIRE(reader.ok());
  const size_t numbers = reader->bytes() - reader->last_numbers();
  const size_t arena = size_t{1024} * sizeof(float);  // of 256 and 768 elements, 101 and 600 in use
  REQUIRE(reader->last_numbers() == numbers + 4 * arena);
  for (size_t at = numbers; at < reader->last_numbers(); at += 40) {
    const size_t element = (at - numbers) % arena / sizeof(float);
    if (element < 256 ? element >= 101 : element >= 856) continue;
    MemoryState bad = good;
    bad.bytes[at] ^= 1;
    IncomingState incoming(Empty());
    REQUIRE(testing::WriteAll(bad, &incoming).ok());
    CHECK(incoming.Finish(&OneAfterAnother).status().code() == absl::StatusCode::kDataLoss);
  }
}

TEST_CASE("State row: nor are other moving statistics, or numbers that are none of it") {
  const MemoryState good = RowOf(Filled());
  const auto refused = [&](size_t behind) {
    MemoryState bad = good;
    bad.bytes[bad.bytes.size() - behind] ^= 1;
    IncomingState incoming(Empty());
    REQUIRE(testing::WriteAll(bad, &incoming).ok());
    return incoming.Finish(&OneAfterAnother).status().code() == absl::StatusCode::kDataLoss;
  };
  for (size_t behind = 1; behind <= 2 * 3 * sizeof(float); ++behind) CHECK(refused(behind));
  CHECK(refused(good.bytes.size() - good.bytes.rfind("\"digest\"")));
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

#include "worker/transfer/state_pieces.h"

#include <array>
#include <catch2/catch.hpp>
#include <cstring>

#include "common/crc32c.h"
#include "tests/worker/transfer/state_cases.h"

namespace ringmaster::worker {

TEST_CASE("States' messages: a piece is its offset, its step, the CRC-32C of all, and its bytes") {
  const MemoryState state = MakeState(7, kMiB + 5);
  const std::vector<std::string> messages = MessagesOf(state);
  REQUIRE(messages.size() == 3);
  const std::string& last = messages.back();
  REQUIRE(last.size() == 20 + 5);
  uint64_t offset = 0;
  uint64_t step = 0;
  uint32_t crc = 0;
  std::memcpy(&offset, last.data(), 8);
  std::memcpy(&step, last.data() + 8, 8);
  std::memcpy(&crc, last.data() + 16, 4);
  CHECK(offset == kMiB);
  CHECK(step == 7);
  const std::string bytes = state.bytes.substr(kMiB);
  CHECK(last.substr(20) == bytes);
  const auto* begin = reinterpret_cast<const uint8_t*>(last.data());
  CHECK(crc == ExtendCrc32c(ExtendCrc32c(0, {begin, 16}), {begin + 20, bytes.size()}));
}

TEST_CASE("StateReceiver: takes what was cut, whatever the size, and what is known of the past") {
  for (const size_t size : {size_t{0}, size_t{1}, kMiB, kMiB + 1, 3 * kMiB - 1}) {
    MemoryState state = MakeState(3, size);
    if (size % 2 == 0) state.its.validation = state.its.test = std::nullopt;
    if (size % 3 == 0) state.its.test = std::nullopt;
    MemoryState got;
    StateReceiver receiver(3, &got);
    for (const std::string& message : MessagesOf(state)) {
      REQUIRE_FALSE(receiver.complete());
      REQUIRE(receiver.Take(MessageOf(message)) == absl::OkStatus());
    }
    REQUIRE(receiver.complete());
    CHECK((got == state));
    CHECK(receiver.facts() == state.its);
  }
}

TEST_CASE("StateReceiver: a message may arrive in slices, also with a cut header") {
  const MemoryState state = MakeState(3, 100);
  const std::vector<std::string> messages = MessagesOf(state);
  for (const size_t cut : {1U, 8U, 15U, 19U, 20U, 21U, 50U}) {
    MemoryState got;
    StateReceiver receiver(3, &got);
    CHECK(receiver.Take(MessageOf(messages[0])) == absl::OkStatus());
    const std::array<grpc::Slice, 2> slices = {grpc::Slice(messages[1].substr(0, cut)),
                                               grpc::Slice(messages[1].substr(cut))};
    CHECK(receiver.Take(grpc::ByteBuffer(slices.data(), slices.size())) == absl::OkStatus());
    CHECK((got == state));
  }
}

}  // namespace ringmaster::worker
